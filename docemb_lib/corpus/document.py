"""A document, and the error for documentation that is not here."""

from typing import NamedTuple

from docemb_lib.base.errors import InputError


class Document(NamedTuple):
    """One text of a corpus."""

    id: str
    text: str
    source: str  # where it comes from; the class of the package task
    see_also: tuple[str, ...] = ()  # ids of the documents it refers to


def not_installed(package: str) -> InputError:
    """Return the error for a package whose documentation is asked for, and which is not here."""
    mend = "install it (`pip install`), or leave it out"
    return InputError(f"corpus.packages: {package} is not installed; {mend}")
