"""Makes the data of the profile thesis-mini in data/mini: `python params/thesis-mini.py [INTO]`,
half a minute.

Pages of the documentation inside the installed packages stand in for the corpora and tasks of the
thesis, in the published formats. Tasks of one kind are drawn from the same pages, and the corpora
have the rest.
"""

import csv
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from docemb_lib.corpus.build import hold_out
from docemb_lib.corpus.installed_docs import PACKAGES, installed_docs
from docemb_lib.evaluation.catalogue import embedded_task
from docemb_lib.evaluation.tasks import Ranking

INTO = Path(__file__).resolve().parents[1] / "data" / "mini"
WORDS = 60  # of a page of a task, at most, and of a short document
HELD = 400  # pages held out for the tasks, disjoint by split
SHARDS = 4
# Task of the thesis: the embedded task that stands in for it, its texts per scoring, and the names
# of its files.
TASKS = {
    "arxiv": ("package", 60, ("arxiv/no_ref/{}.parquet", "train", "validation", "test")),
    "imdb": ("package", 40, ("imdb/plain_text/{}-00000-of-00001.parquet", "train", None, "test")),
    "aan": ("see-also-pairs", 80, ("cda/{}_cite.csv", "train", "dev", "test")),
    "oc": ("see-also-pairs", 80, ("cda/{}_ai2_ab.csv", "train", "dev", "test")),
    "s2orc": ("see-also-pairs", 80, ("cda/{}_ai2_gorc.csv", "train", "dev", "test")),
    "pan": ("halves", 80, ("cda/pla_{}.csv", "train", "dev", "test")),
    "wines": ("see-also-retrieval", 40, ("wines/wines.txt",)),
    "games": ("see-also-retrieval", 40, ("games/video_games.txt",)),
}


def write_task(into: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write the files of a task, made of the pages that are held out."""
    kind, limit, (pattern, *names) = TASKS[name]
    # Two classes: is the page about a class, whose name begins with a capital letter?
    if name == "imdb":
        rows = [
            row | {"source": str(int(row["id"].rpartition(".")[2][:1].isupper()))} for row in rows
        ]
    task = embedded_task(rows, kind, seed=list(TASKS).index(name), limit=limit)
    for split, part in zip(("train", "validation", "test"), names, strict=False):
        file = into / pattern.format(part)
        file.parent.mkdir(parents=True, exist_ok=True)
        data = task.splits[split]
        if pattern.endswith(".parquet") and part:
            pd.DataFrame({"text": data.texts, "label": data.labels}).to_parquet(file)
        elif part:
            with file.open("w", encoding="utf-8", newline="") as stream:
                csv.writer(stream).writerows(zip(data.labels, data.first, data.second, strict=True))
    if isinstance(ranking := task.splits["test"], Ranking):
        (into / pattern).parent.mkdir(parents=True, exist_ok=True)
        titles = [f"Page {number}" for number in range(len(ranking.texts))]
        with (into / pattern).open("w", encoding="utf-8", newline="") as stream:
            sections = [str([("", text)]) for text in ranking.texts]
            csv.writer(stream).writerows(
                [("Title", "Sections"), *zip(titles, sections, strict=True)]
            )
        lists = zip(ranking.queries, ranking.relevant, strict=True)
        relevant = {titles[query]: {titles[row]: 1 for row in rows} for query, rows in lists}
        (into / pattern).with_name("gt").write_bytes(pickle.dumps(relevant))


def first_words(text: str, count: int) -> str:
    return " ".join(text.split()[:count])


def write_corpus(into: Path, name: str, texts: Sequence[str]) -> None:
    """Write texts as a data set of a hub in several shards."""
    (into / name).mkdir(parents=True, exist_ok=True)
    for shard in range(SHARDS):
        file = into / name / f"train-{shard:05d}-of-{SHARDS:05d}.parquet"
        pd.DataFrame({"text": texts[shard::SHARDS]}).to_parquet(file)


def make_data(into: Path, packages: Sequence[str] = PACKAGES) -> None:
    pages, rng = installed_docs(packages), np.random.default_rng(0)
    pages = [pages[place] for place in rng.permutation(len(pages))]
    held = hold_out(pages, size=HELD)
    rows = [page._asdict() | {"split": held[page.id]} for page in pages if page.id in held]
    for row in rows:
        row["text"] = first_words(row["text"], WORDS)
        row["see_also"] = [id for id in row["see_also"] if held.get(id) == row["split"]]
    for name in TASKS:
        write_task(into, name, rows)
    texts = [page.text for page in pages if page.id not in held]
    half = len(texts) // 2
    write_corpus(
        into, "short", [first_words(text, rng.integers(WORDS // 4, WORDS)) for text in texts[:half]]
    )
    write_corpus(into, "long", texts[half:])


if __name__ == "__main__":
    make_data(Path(sys.argv[1]) if len(sys.argv) > 1 else INTO)
