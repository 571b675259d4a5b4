"""Code of one's own that a run uses: a class, and the file that defines it."""

import inspect
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

from docemb_lib.base.errors import InputError, did_you_mean
from docemb_lib.base.files import hash_of
from docemb_lib.settings.files import PACKAGE, working_folder

Sources = dict[str, str]  # the SHA-256 of a file, by the name of the file


def load_class(name: str) -> type:
    """Import a class, `module:Class`, from `notebooks/` of the working folder or PYTHONPATH.

    Raises InputError where the import fails, or the module has no such class.
    """
    root = working_folder()
    if root is not None and str(root / "notebooks") not in sys.path:
        sys.path.insert(0, str(root / "notebooks"))
    module, _, attribute = name.partition(":")
    try:
        names = vars(import_module(module))
    except Exception as error:  # the code may raise any kind
        raise InputError(
            f"{name} cannot be imported ({type(error).__name__}: {error}); "
            "put its file into notebooks/, or its folder on PYTHONPATH"
        ) from error
    kind = names.get(attribute)
    if not isinstance(kind, type):
        question = did_you_mean(attribute, names)
        raise InputError(f"{name}: {module} has no class {attribute}{question}")
    sources_of(kind)  # hashes the file as it was imported
    return kind


@cache  # a class stays as it was imported while the process lives
def sources_of(kind: type) -> Sources:
    """Hash the file that defines a class of one's own.

    Nothing is hashed for docemb's classes, and for those that no file defines, such as a class in a
    cell of a notebook.
    """
    with suppress(OSError, TypeError):
        file = Path(inspect.getfile(kind)).resolve()
        if not file.is_relative_to(PACKAGE):
            return {file.name: hash_of(file.read_bytes())}
    return {}
