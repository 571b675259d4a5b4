"""The command line.

`__main__` declares the commands; `commands` holds what they share, `terminal` prints, and `output`
writes. `report` shows runs, `similarity` texts, and `working_folder` is what `docemb init` makes.
"""


def main() -> None:
    """The `docemb` command, which exits with 130 also where it is interrupted while it loads."""
    try:
        from docemb_lib.cli.__main__ import app
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    app()
