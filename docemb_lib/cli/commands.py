"""What all commands share: how one is registered, how it reports errors, options and parameters."""

import inspect
import logging
import signal
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from typer.core import TyperCommand

from docemb_lib.base import __version__
from docemb_lib.base.errors import InputError, as_line
from docemb_lib.base.hardware import asked_precision, tune_environment
from docemb_lib.cli.terminal import console, errors
from docemb_lib.settings.files import parse_yaml

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
ProfileName = Annotated[
    str, typer.Option(help="A profile in params/ by name, or the path of a .yaml file.")
]
Parameters = Annotated[
    list[str] | None,
    typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="A parameter of the notebook."),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="List the runs, and say what is there and what is missing."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]
TextField = Annotated[
    list[str] | None,
    typer.Option(
        help="The field of a data file that holds the text (default: text); several are joined."
    ),
]
IdField = Annotated[
    str | None,
    typer.Option(
        help="The field of a data file that holds the id; default: id, _id, doc_id, docid, uid or "
        "uuid, or else the number of the row."
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out bad rows and files, and say so.")
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="The encoding of the files, e.g. cp1252; default: UTF-8, UTF-16 by its mark."
    ),
]
HowRead = Mapping[str, Any]  # arguments of `local_documents`; a command has an option for each
OPTIONS = {"text_field": TextField, "id_field": IdField, "skip_bad": SkipBad, "encoding": Encoding}
DEFAULTS: HowRead = {"text_field": "text", "id_field": None, "skip_bad": False, "encoding": None}
Value = str | int | float | None  # of a parameter


class Command(TyperCommand):
    """A command that reads `-p NAME VALUE`, as papermill does, like `-p NAME=VALUE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for place in reversed(range(len(args) - 2)):
            name, value = args[place + 1 : place + 3]
            if args[place] == "-p" and "=" not in name and not value.startswith("--"):
                args[place + 1 : place + 3] = [f"{name}={value}"]
        return super().parse_args(ctx, args)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Distil long-document embeddings from two teachers.

    The commands run the notebooks, show the results and embed documents.
    """
    if version:
        console.print(f"docemb {__version__}")


def command(example: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command, which imports itself what takes long to load.

    It gets the option --debug, and in the place of a parameter `how` those of OPTIONS. An error
    becomes one line and an exit code. example: a command line, with which its help ends.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def wrapped(*args: Any, debug: bool | None, **kwargs: Any) -> None:
            # SIGTERM ends a command as Ctrl-C does: the same command goes on from there.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            # The warnings of the library become plain lines of stderr.
            handler: Any = logging.lastResort
            handler.emit = lambda record: errors.print(handler.format(record))
            tune_environment()
            if errors.is_terminal:  # before the libraries, which take seconds
                errors.print(f"docemb {function.__name__}: loading", style="dim")
            given = {name: kwargs.pop(name) or DEFAULTS[name] for name in OPTIONS if name in kwargs}
            if given:
                kwargs["how"] = given
            try:
                asked_precision()  # a wrong value is refused before any work
                function(*args, **kwargs)
            except KeyboardInterrupt as stop:
                # asyncio would report what still waited for the ended kernel.
                logging.getLogger("asyncio").disabled = True
                named = (
                    f"docemb {function.__name__} is stopped; give the same command again to go on"
                )
                errors.print(f"Interrupted: {str(stop) or named}.")
                raise typer.Exit(130) from None
            except typer.Exit:
                raise
            except Exception as error:
                if debug:
                    errors.print(traceback.format_exc())
                bad_input = isinstance(error, InputError)
                kind = "" if bad_input else f"{type(error).__name__}: "
                errors.print(as_line(f"Error: {kind}{error}"))
                raise typer.Exit(2 if bad_input else 1) from None

        signature = inspect.signature(function)
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = dict(signature.parameters)
        added = (OPTIONS if parameters.pop("how", None) else {}) | {"debug": Debug}
        options = [*parameters.values()]
        for name, annotation in added.items():
            options.append(inspect.Parameter(name, kind, default=None, annotation=annotation))
        wrapped.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
        return app.command(cls=Command, epilog=f"Example: {example}")(wrapped)

    return register


def parse_parameters(given: list[str] | None) -> dict[str, Value]:
    """Parameters of the form `NAME=VALUE`, with values as in YAML, and None as in papermill.

    Raises InputError for other texts, for the profile, and for a parameter that is given twice.
    """
    parameters: dict[str, Value] = {}
    for text in given or []:
        name, _, value = map(str.strip, text.partition("="))
        if not name or not value or name == "profile" or name in parameters:
            mend = "write NAME=VALUE, each name once, as in -p lam=0.5 or -p lam=None for none"
            raise InputError(f"-p {text}: {mend}; the profile is given as --profile NAME")
        parameters[name] = value
        with suppress(yaml.YAMLError):
            parsed = None if value == "None" else parse_yaml(value)
            if isinstance(parsed, Value):  # "-", a projection, is a list
                parameters[name] = parsed
    return parameters


def given_path(text: str, argument: str) -> Path:
    """An argument as a path. Raises InputError for an empty one, as an unset variable gives."""
    if not text.strip():
        raise InputError(f"{argument}: the argument is empty; name a file or a folder")
    return Path(text)
