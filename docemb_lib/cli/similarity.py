"""What `docemb search` and `docemb explain` read and print."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from textwrap import fill, indent, shorten
from typing import Any

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.cli.terminal import console
from docemb_lib.corpus.reader import FORMATS, TEXTS, file_format, lines_of, well_formed
from docemb_lib.student.embeddings_file import EmbeddingsFile, passage_cosines

short = partial(shorten, width=160, placeholder=" …")  # of a passage


def given_text(argument: str) -> str:
    """Return the text of a file of this name, or the argument itself.

    Raises InputError for a blank text, a folder, a data file, and the name of a file that is not
    there.
    """
    text = well_formed(argument)
    is_name = len(text.split()) == 1 and "/" in text
    is_file = os.path.isfile(argument)  # False for a text that is too long for a name
    if os.path.isdir(argument) or (is_file and file_format(Path(argument))):
        mend = "give a text file, or several words"
        raise InputError(f"{argument}: this is a folder or a data file; {mend}")
    if is_file:
        text = "".join(lines_of(Path(argument)))
    elif is_name or text.endswith((*TEXTS, *FORMATS)):
        raise InputError(f"{argument}: there is no such file; correct it, or give several words")
    if not text.strip():
        raise InputError(f"{argument!r}: the text is blank; give a text, or a file with one")
    return text


def hits(
    file: EmbeddingsFile, cosines: Mapping[int, float], query: np.ndarray, pairs: np.ndarray
) -> list[dict[str, Any]]:
    """Return the fields of each document: rank, cosine, id, and its nearest passage if it has some.

    Where there are pairs, `nearer_than` is the share of them that are less near.

    cosines: with the query, by row of the file; pairs: cosines of documents, ascending.
    """
    rows = []
    for rank, (row, cosine) in enumerate(cosines.items(), start=1):
        document = file.document(row)
        fields: dict[str, Any] = {
            "rank": rank,
            "cosine": round(cosine, 4),
            "id": str(document["id"]),
        }
        if len(pairs):
            fields["nearer_than"] = round(np.searchsorted(pairs, cosine) / len(pairs), 4)
        if file.has_passages:
            best = int(np.argmax(passage_cosines(document["passage"], query)))
            start = document["passage_start"][best]
            end = document["passage_end"][best]
            fields |= {"start": start, "end": end, "passage": document["text"][start:end]}
        rows.append(fields)
    return rows


def print_hits(found: list[dict[str, Any]]) -> None:
    """Print rank, cosine and id of each hit on a line, and the beginning of its passage below."""
    for hit in found:
        share = f"  nearer than {hit['nearer_than']:.2%} of pairs" if "nearer_than" in hit else ""
        console.print(f"{hit['rank']:>3}  {hit['cosine']:.3f}{share}  {hit['id']}")
        if "passage" in hit:
            console.print(indent(fill(short(hit["passage"]), console.width - 5), " " * 5))
