"""Compares `docemb adapt` with MPNet and with MiniLM.

    python measure.py MPNET DATA MANUALS INTO TASK ...

MPNET is the folder of all-mpnet-base-v2 (or its hub id). DATA holds wiki_seealso/ and peps/
(corpus.jsonl.gz: id, text; relevance.tsv: two ids a line) and newsgroups20.jsonl.gz (id, text,
label, split). MANUALS holds linux.jsonl.gz and linux.tsv, which `../manuals/prepare.py`
makes. INTO gets the dense embeddings, which a second run reads, and the two tables. The tasks are
20news, linux, seealso and peps.
"""

import gzip
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from docemb_lib import Student
from docemb_lib.evaluation import Classification, Labelled, Ranking, Retrieval
from docemb_lib.evaluation.tasks import Score, Task
from docemb_lib.evaluation.uncertainty import differences, score_intervals, verdicts
from docemb_lib.settings.sections import HeadSettings

MAX_TOKENS = 1024  # of a document, for the dense half
WINDOW = 256  # as in `docemb adapt`
PAGES, ARTICLES, POSTS = 150, 110, 200  # posts of each split
FORMS = ("adapted", "dense half")


def rows_of(file: Path) -> Iterator[dict[str, str]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def linked(name: str, documents: Path, links: Path, size: int) -> Retrieval:
    """Draw sources with all their targets, as long as there is room for both."""
    texts = {row["id"]: row["text"] for row in rows_of(documents)}
    targets = defaultdict(list)
    for line in links.read_text(encoding="utf-8").splitlines():
        source, target = line.split("\t")
        if source in texts and target in texts and source != target:
            targets[source].append(target)
    sources = sorted(targets)
    random.Random(0).shuffle(sources)
    places: dict[str, int] = {}
    queries = []
    for source in sources:
        new = {source, *targets[source]} - set(places)
        if len(places) + len(new) <= size:
            queries.append(source)
            for id in sorted(new):
                places[id] = len(places)
    ranking = Ranking(
        [texts[id] for id in places],
        queries=[places[id] for id in queries],
        relevant=[[places[id] for id in targets[source]] for source in queries],
    )
    return Retrieval(name, {"test": ranking})


def posts(file: Path) -> Classification:
    """Draw posts of both splits."""
    splits = {}
    rows = list(rows_of(file))
    for split in ("train", "test"):
        of_split = [row for row in rows if row["split"] == split and row["text"].strip()]
        drawn = random.Random(0).sample(of_split, POSTS)
        splits[split] = Labelled([row["text"] for row in drawn], [row["label"] for row in drawn])
    return Classification("20news", splits)


def scores_of(name: str, encoder: str, task: Task, into: Path) -> dict[str, Score]:
    """Adapt a student to the texts of a task, and score it with words and without."""
    texts = task.texts("test")
    student = Student.from_encoder(
        encoder, pooling="lead", attention_window=WINDOW, max_tokens=MAX_TOKENS
    )
    file = into / f"{task.name}-{name}.npy"
    if not file.exists():
        start = time.process_time()
        embeddings = student.embed(texts)
        seconds = time.process_time() - start
        tokens = sum(map(len, student.tokenize(texts).sequences))
        print(f"{task.name} {name}: {tokens} tokens, {seconds:.0f} CPU seconds", flush=True)
        np.save(file, embeddings)
    dense = np.load(file)
    row_of = dict(zip(texts, dense, strict=True))
    student.adapt(texts, embed=lambda sample: np.stack([row_of[text] for text in sample]))
    half = student.lexical
    adapted = half.join(torch.from_numpy(dense), half.lexical(texts)).numpy()
    head = HeadSettings(hidden=0)  # a logistic regression
    return {
        form: task.score(rows, head=head)
        for form, rows in zip(FORMS, (adapted, dense), strict=True)
    }


def main(mpnet: str, data: Path, manuals: Path, into: Path, names: list[str]) -> None:
    into.mkdir(parents=True, exist_ok=True)

    def of_folder(name: str, folder: str) -> Retrieval:
        files = (data / folder / file for file in ("corpus.jsonl.gz", "relevance.tsv"))
        return linked(name, *files, ARTICLES)

    manuals_files = (manuals / file for file in ("linux.jsonl.gz", "linux.tsv"))
    make: dict[str, Callable[[], Task]] = {
        "20news": partial(posts, data / "newsgroups20.jsonl.gz"),
        "linux": partial(linked, "linux", *manuals_files, PAGES),
        "seealso": partial(of_folder, "seealso", "wiki_seealso"),
        "peps": partial(of_folder, "peps", "peps"),
    }
    encoders = {"MiniLM": "all-MiniLM-L6-v2", "MPNet": mpnet}
    scores: dict[str, dict[str, Score]] = defaultdict(dict)
    for task in [make[name]() for name in names]:
        for name, encoder in encoders.items():
            for form, score in scores_of(name, encoder, task, into).items():
                scores[f"{name}, {form}"][task.name] = score
    tests = []
    for form in FORMS:
        pair = {f"{name}, {form}": scores[f"{name}, {form}"] for name in encoders}
        tests.append(differences(pair, f"MiniLM, {form}"))
    tables = {"tasks": score_intervals(scores), "differences": verdicts(pd.concat(tests))}
    for name, table in tables.items():
        table.to_csv(into / f"{name}.csv", index=False, float_format="%.4f")
        print(table.round(3).to_string())


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:5]), sys.argv[5:])
