"""The command line: `__main__` holds the commands, `commands` what they do, `terminal` what they show.

`forecast` says what a plan needs and takes, `report` makes pages of its executed notebooks.
"""
