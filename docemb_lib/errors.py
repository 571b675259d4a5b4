"""The exception for bad input. The command line prints its one line and exits with 2."""


class InputError(ValueError):
    """A file, field or parameter that the user must change.

    The message is one line: the file or parameter, the value found, and what to write instead. A notebook shows this
    line without a traceback, because IPython calls `_render_traceback_`.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"InputError: {self}"]
