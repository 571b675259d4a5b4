"""The one exception for bad input: a single line that names where, what and the mend; the command line exits with 2."""


class InputError(ValueError):
    """Input that a user can mend: a file, a field or a parameter.

    The message is one line naming the file or parameter, the value found, and what to write instead.
    In a notebook it shows as that line alone, without a traceback (IPython asks `_render_traceback_`).
    """

    def _render_traceback_(self) -> list[str]:
        return [f"InputError: {self}"]
