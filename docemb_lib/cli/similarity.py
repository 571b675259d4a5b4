"""What `docemb search` and `docemb explain` read and print."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import shorten

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.cli.terminal import print_table
from docemb_lib.corpus.reader import lines_of, well_formed
from docemb_lib.student.embeddings_file import EmbeddingsFile, passage_cosines

SHOWN = 160  # characters of a passage in a table


def given_text(argument: str) -> str:
    """Return the text of a file of this name, or the argument itself.

    Raises InputError for a blank text and for a .txt or .md file that is not there.
    """
    text = well_formed(argument)
    with suppress(OSError):  # a text may be too long for a name
        if Path(argument).is_file():
            text = "".join(lines_of(Path(argument)))
        elif len(text.split()) == 1 and text.endswith((".txt", ".md")):
            raise InputError(f"{argument}: there is no such file; correct its name, or give a text")
    if not text.strip():
        raise InputError(f"{argument!r}: the text is blank; give a text, or a file with one")
    return text


def hits(file: EmbeddingsFile, cosines: Mapping[int, float], query: np.ndarray) -> pd.DataFrame:
    """Return a row for each document: rank, cosine, id, and its nearest passage if it has some.

    cosines: with the query, by row of the file.
    """
    rows = []
    for rank, (row, cosine) in enumerate(cosines.items(), start=1):
        document = file.document(row)
        fields = {"rank": rank, "cosine": round(cosine, 4), "id": str(document["id"])}
        if file.has_passages:
            best = int(np.argmax(passage_cosines(document["passage"], query)))
            start = document["passage_start"][best]
            end = document["passage_end"][best]
            fields |= {"start": start, "end": end, "passage": document["text"][start:end]}
        rows.append(fields)
    return pd.DataFrame(rows)


def print_short(frame: pd.DataFrame, title: str | None = None) -> None:
    """Print a table with the beginnings of its passages."""
    short = frame.drop(columns=["start", "end"], errors="ignore")
    for name in {"passage", "of A", "of B"} & {*short}:
        short[name] = [shorten(text, SHOWN, placeholder=" …") for text in short[name]]
    print_table(short, title)
