"""The command line: `commands` run notebooks and show results, `__main__` adds those on one's own
documents and models.

`terminal` shows progress and tables, `dry_run` says what a plan needs, `report` makes pages of
notebooks.
"""
