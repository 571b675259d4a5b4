"""The command line.

`commands` run notebooks and show results; `__main__` has the commands on one's own documents and
models, of which `init` makes a `working_folder`. `terminal` prints tables, `dry_run` says
what a plan needs, and `report` makes the table and the sentences at the end of `docemb run`,
and pages of notebooks.
"""


def main() -> None:
    """The `docemb` command, which exits with 130 also where it is interrupted while it loads."""
    try:
        from docemb_lib.cli.__main__ import app
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    app()
