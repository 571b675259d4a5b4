"""What `docemb search` and `docemb explain` read and print."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import shorten

import numpy as np
import pandas as pd
from rich.console import Console

from docemb_lib.base.errors import InputError
from docemb_lib.cli.terminal import print_table
from docemb_lib.corpus.rows import lines_of, well_formed
from docemb_lib.student.embeddings_file import EmbeddingsFile, Hit, best_passage
from docemb_lib.student.explanation import Explanation

SHOWN = 160  # characters of a passage in a table
WORDS = 10  # words of a table
NOTE = (
    "A passage counts by the states of its tokens, which have seen the text around them. The mean "
    "that centres embeddings is spread evenly over tokens and words."
)


LEAD = " The first 256 tokens of a document count four times or more in its embedding."


def given_text(argument: str) -> str:
    """Return the text of a file of this name, or the argument itself.

    Raises InputError for a blank text and for a .txt or .md file that is not there.
    """
    is_file = False
    with suppress(OSError):  # a text may be too long for a name
        is_file = Path(argument).is_file()
    text = "".join(lines_of(Path(argument))) if is_file else well_formed(argument)
    if not text.strip():
        problem = "the file is blank" if is_file else "the text is blank"
        raise InputError(f"{argument!r}: {problem}; give a text, or a file with one")
    if not is_file and len(text.split()) == 1 and text.endswith((".txt", ".md")):
        raise InputError(f"{argument}: there is no such file; correct its name, or give a text")
    return text


def stored_text(file: EmbeddingsFile, id: str) -> str:
    """Return the text of a document of a file. Raises InputError where there is none."""
    text = file.document(file.row_of(id)).text
    if text is None:
        mend = "write them with `docemb embed --passages 256`"
        raise InputError(f"{file.path}: the file holds no texts; {mend}")
    return text


def hits_table(file: EmbeddingsFile, hits: Sequence[Hit], query: np.ndarray) -> pd.DataFrame:
    """A row for each document: rank, cosine, id, and its best passage where there are passages."""
    rows = []
    for rank, (row, cosine) in enumerate(hits, start=1):
        document = file.document(row)
        fields: dict[str, object] = {"rank": rank, "cosine": round(cosine, 4), "id": document.id}
        if document.passages is not None:
            best = best_passage(document.passages, query)
            start, end = document.passages.spans[best].tolist()
            passage = (document.text or "")[start:end]
            fields |= {"start": start, "end": end, "passage": passage}
        rows.append(fields)
    return pd.DataFrame(rows)


def print_hits(hits: pd.DataFrame, console: Console) -> None:
    if "passage" in hits:
        hits = hits.assign(passage=hits["passage"].map(_in_short)).drop(columns=["start", "end"])
    print_table(hits, console)


def strongest_pairs(explanation: Explanation, texts: tuple[str, str], count: int) -> pd.DataFrame:
    """The pairs of passages that add most, with their texts."""
    pairs = []
    for pair in explanation.strongest_pairs(count):
        fields: dict[str, object] = {"contribution": pair.contribution}
        for name, text, number, spans in zip("AB", texts, pair[:2], explanation.spans, strict=True):
            start, end = spans[number].tolist()
            fields[f"passage of {name}"] = f"{number + 1}: {text[start:end]}"
        pairs.append(fields)
    return pd.DataFrame(pairs)


def print_explanation(
    explanation: Explanation, pairs: pd.DataFrame, note: str, console: Console
) -> None:
    console.print(str(explanation))
    texts = pairs.filter(like="passage of").map(_in_short)
    share = f"{pairs['contribution'].sum():.3f} of {explanation.cosine:.3f}"
    title = f"The strongest of {explanation.pairs.size} pairs of passages: {share}"
    print_table(pairs.assign(**texts), console, title)
    if explanation.words:
        words = [*explanation.words.items()][:WORDS]
        by_word = pd.DataFrame(words, columns=["word", "contribution"])
        print_table(by_word, console, "Strongest words")
    console.print(note)


def write_explanation(explanation: Explanation, pairs: pd.DataFrame, note: str) -> None:
    """Print JSON: all pairs and words, and the strongest pairs with their texts."""
    content = {
        "summary": str(explanation),
        "cosine": explanation.cosine,
        "meaning": explanation.meaning,
        "lexical": explanation.lexical,
        "strongest": pairs.to_dict("records"),
        "pairs": explanation.pairs.tolist(),
        "spans": [spans.tolist() for spans in explanation.spans],
        "words": dict(explanation.words),
        "note": note,
    }
    sys.stdout.write(json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _in_short(text: str) -> str:
    return shorten(text, SHOWN, placeholder=" …")
