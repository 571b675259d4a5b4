"""Read a pickle that holds plain data and nothing else.

A pickle is a program: loading one from elsewhere may run whatever its author wished. This reader knows no function and
no class but Python's own containers and numbers, so that such a program stops at the first it asks for.
"""

from __future__ import annotations

import collections
import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

from docemb_lib.errors import InputError

# Built-in types only: a pickle may also set attributes of whatever it is given, which those refuse.
ADMITTED: dict[tuple[str, str], type] = {
    **{("builtins", kind.__name__): kind for kind in (dict, list, tuple, set, frozenset, str, int, float, bool)},
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "OrderedDict"): dict,
    ("collections", "Counter"): dict,
}
# Tuples are made without asking for a class. Python takes their hash by a recursion in C without a limit, so a tower
# of them, as a key, would end the process; this many are no danger, however they are stacked.
MOST_TUPLES = 10_000
OLD_NAMES = {"__builtin__": "builtins"}  # of Python 2, in pickles of protocol 2 and below


class PlainUnpickler(pickle.Unpickler):
    """An unpickler that admits the containers and numbers in ADMITTED only."""

    def find_class(self, module: str, name: str) -> Any:
        """Whatever a pickle wants to call or build goes through here."""
        try:
            return ADMITTED[OLD_NAMES.get(module, module), name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def read_plain_pickle(file: Path) -> Any:
    """The data of a pickle of dicts, lists, tuples, sets, strings and numbers; InputError for any other file."""
    try:
        data = file.read_bytes()
        if sum(opcode.name.startswith("TUPLE") for opcode, _, _ in pickletools.genops(data)) > MOST_TUPLES:
            raise pickle.UnpicklingError(f"it holds more than {MOST_TUPLES:,} tuples")
        return PlainUnpickler(io.BytesIO(data)).load()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); look for the file and its permissions") from error
    except Exception as error:  # a broken pickle may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{file}: refused, is no whole pickle of plain containers ({reason}); write the mapping as JSON instead"
        ) from error
