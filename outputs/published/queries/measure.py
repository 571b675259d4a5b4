"""Queries by the teacher, documents by the student: python measure.py OUTPUTS SIX.

OUTPUTS: the folder `outputs` of a working folder in which `docemb run` has ended. SIX: the folder
of the student of `docemb run --profile tiny-final`, without words.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from docemb_lib import Profile, Student, Workspace
from docemb_lib.corpus.rows import split_sentences
from docemb_lib.evaluation.probes import fit_ridge
from docemb_lib.evaluation.retrieval import unit
from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import differences, score_intervals, verdicts
from docemb_lib.runs.embeddings import embed_once
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.pipeline import Stages
from docemb_lib.student.lexical_module import side_by_side
from docemb_lib.teachers import SBERT

ENCODER = "all-MiniLM-L6-v2"
WORDS = 8  # of a sentence that is a query, at least
BOTH = ("truncated", "chunks")  # documents by the teacher
TIMED = 100  # queries, embedded one by one
outputs, six = map(Path, sys.argv[1:])
workspace = Workspace(outputs.parent)


class Embedder(NamedTuple):
    """A model whose embeddings are kept, see `embed_once`."""

    label: str
    fingerprint: str
    embed: Any
    store: None = None


def recorded(notebook: str, label: str) -> str:
    """The fingerprint under which a model of a recorded run has its embeddings."""
    for file in sorted(outputs.glob(f"records/{notebook}/*/models.json")):
        documents = json.loads((file.parent / "record.json").read_text())["parameters"]
        for row in json.loads(file.read_text()):
            if (row["model"], row["form"]) == (label, "saved") and documents["seed"] == 0:
                return row["fingerprint"]
    raise LookupError(label)


class Collection(NamedTuple):
    documents: list[str]
    queries: list[str]  # query i asks for document rows[i]
    rows: np.ndarray


def pages_and_sentences(rng: np.random.Generator) -> Collection:
    """The test pages; for each a sentence that stands in no other page."""
    stages = Stages(RunKey.of("06_evaluation", Profile.load("tiny")), workspace)
    documents = [*stages.scores.task("see-also-retrieval").documents("test").values()]
    flat = [" ".join(text.split()) for text in documents]
    everything = "\n".join(flat)
    queries = []
    rows = []
    for row, text in enumerate(documents):
        sentences = [" ".join(sentence.split()) for sentence in split_sentences(text)]
        long = [sentence for sentence in sentences if len(sentence.split()) >= WORDS]
        for place in rng.permutation(len(long)):
            if everything.count(long[place]) == 1:
                queries.append(long[place])
                rows.append(row)
                break
    return Collection(documents, queries, np.array(rows))


def centred(embeddings: np.ndarray, mean: np.ndarray) -> np.ndarray:
    return unit(unit(embeddings) - mean)


def score(queries: np.ndarray, documents: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Reciprocal rank and nDCG@10 of each query by cosine, (Q,)."""
    cosines = (unit(queries) @ unit(documents).T).round(9)
    own = cosines[np.arange(len(rows)), rows][:, None]
    ahead = (cosines > own).sum(axis=1)
    ties = (cosines == own).sum(axis=1) - 1
    rank = 1 + ahead + ties / 2
    return {"mrr": 1 / rank, "ndcg@10": np.where(rank <= 10, 1 / np.log2(1 + rank), 0.0)}


def results(
    student: Student, fingerprint: str, collection: Collection, teacher: dict[str, np.ndarray]
) -> dict[str, dict[str, np.ndarray]]:
    """The scores of one student, by how queries and documents are embedded."""
    _, queries, rows = collection
    embedder = Embedder(fingerprint, fingerprint, student.embed)
    D = embed_once(workspace, embedder, collection.documents)
    Q = student.embed(queries)
    T, truncated = teacher["queries"], teacher["truncated"]
    # A linear map from the teacher to the student, fitted on the documents, and the means of both.
    mapped = fit_ridge(truncated, unit(D)).predict(T)
    mean, of_teacher = unit(D).mean(axis=0), unit(truncated).mean(axis=0)
    found = {
        "dense: query by the student": score(Q, D, rows),
        "dense: query by the teacher": score(T, D, rows),
        "dense, centred: query by the student": score(centred(Q, mean), centred(D, mean), rows),
        "dense, centred: query by the teacher": score(
            centred(T, of_teacher), centred(D, mean), rows
        ),
        "dense: query by the teacher, mapped": score(mapped, D, rows),
    }

    # Both halves side by side. In an adapted student the dense half is centred by its mean over
    # documents, then whitened in part; a query of the teacher is centred by either mean.
    student.adapt(collection.documents, embed=lambda texts: student_rows(texts, collection, D))
    half = student.lexical
    words = half.lexical(queries)
    joined = half.join(torch.from_numpy(D), half.lexical(collection.documents)).numpy()
    found["with words: query by the student"] = score(student.embed(queries), joined, rows)
    at_mean = {
        "query by the teacher": T - truncated.mean(axis=0),
        "query by the teacher, centred as the student's": T - half.dense_mean.numpy(),
        "query by the teacher, mapped": fit_ridge(truncated, D - half.dense_mean.numpy()).predict(
            T
        ),
    }
    for way, X in at_mean.items():
        dense = torch.from_numpy(unit(X @ half.dense_map.numpy()).astype(np.float32))
        beside = side_by_side(dense, words, half.weight).numpy()
        found[f"with words: {way}"] = score(beside, joined, rows)
    return found


def student_rows(texts: list[str], collection: Collection, D: np.ndarray) -> np.ndarray:
    row_of = {text: row for row, text in enumerate(collection.documents)}
    return D[[row_of[text] for text in texts]]


def timed(embed, queries: list[str]) -> float:
    """CPU milliseconds for each query, embedded one by one."""
    embed(queries[:1])
    begin = time.process_time()
    for query in queries[:TIMED]:
        embed([query])
    return 1000 * (time.process_time() - begin) / TIMED


def students() -> dict[str, tuple[Student, str]]:
    """Students and the fingerprints of their embeddings."""
    folder = outputs / "students"
    plain = "tiny-cosine-PV-S-384-ReLU-x2048-ReLU-x200-C-2000docs-seed0"
    two = {"layers": [0, 5], "max_tokens": 1024, "attention_window": 256}
    all_layers = {"pooling": "lead", "max_tokens": 2048, "attention_window": 256}
    before = recorded("06_evaluation", "student before distillation")
    alone = recorded("06_evaluation", "student only-structural;cosine;2000 docs")
    both = recorded(
        "06_evaluation", "student cosine;no-weighting;PV;S:384(ReLU)x2048(ReLU)x200;C:-;2000 docs"
    )
    return {
        "two layers, untrained": (Student.from_encoder(ENCODER, **two), before),
        "two layers, cosine": (Student.load(folder / "tiny-cosine-2000docs-seed0"), alone),
        "two layers, cosine and PV": (Student.load(folder / plain), both),
        "six layers, untrained": (Student.from_encoder(ENCODER, **all_layers), "six-untrained"),
        "six layers, cosine over chunks": (Student.load(six), "six"),
    }


rng = np.random.default_rng(0)
collections = {
    "sentence to page": pages_and_sentences(rng),
}
truncate = SBERT(ENCODER, max_tokens=256)
chunks = SBERT(ENCODER, max_tokens=256, long="chunks")
embedders = {
    name: Embedder(name, recorded("06_evaluation", name), teacher.embed)
    for name, teacher in (("SBERT truncated", truncate), ("SBERT over chunks", chunks))
}
frames = []
tests = []
for name, collection in collections.items():
    teacher = {
        "queries": truncate.embed(collection.queries),
        "truncated": embed_once(workspace, embedders["SBERT truncated"], collection.documents),
        "chunks": embed_once(workspace, embedders["SBERT over chunks"], collection.documents),
    }
    found = {}
    for kind in BOTH:
        by_teacher = score(teacher["queries"], teacher[kind], collection.rows)
        found[f"both by the teacher, {kind}"] = by_teacher
    for label, (student, fingerprint) in students().items():
        by_way = results(student, fingerprint, collection, teacher)
        found |= {f"{label}; {way}": values for way, values in by_way.items()}
        print(
            name, label, {way: round(v["mrr"].mean(), 3) for way, v in by_way.items()}, flush=True
        )
    scores = {}
    for label, values in found.items():
        examples = {metric: each[None].astype(np.float32) for metric, each in values.items()}
        means = (float(values["mrr"].mean()),)
        scores[label] = {name: Score("mrr", means, {}, examples)}
    frames.append(score_intervals(scores))
    for label in scores:
        if "query by the teacher" in label:
            by_student = label.split(": query")[0] + ": query by the student"
            for reference in (by_student, *(f"both by the teacher, {kind}" for kind in BOTH)):
                pair = {side: scores[side] for side in (label, reference)}
                tests.append(differences(pair, reference))
    pd.concat(frames).round(4).to_csv("scores.csv", index=False)
    verdicts(pd.concat(tests, ignore_index=True)).round(5).to_csv("tests.csv", index=False)

torch.set_num_threads(1)
by_name = {"teacher": truncate.embed}
by_name |= {name: student.embed for name, (student, _) in students().items()}
queries = collections["sentence to page"].queries
rounds = [{name: timed(embed, queries) for name, embed in by_name.items()} for _ in range(3)]
pd.DataFrame(rounds).round(2).to_csv("milliseconds.csv", index=False)
