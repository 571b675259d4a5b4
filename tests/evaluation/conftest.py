"""Small data sets in the layouts that mteb loads from a hub, and tasks of mteb's own classes over them."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from conftest import write_files

WORDS = {"violin": "bow string sound", "graph": "node edge path", "chart": "axis bar colour"}
TOPICS = list(WORDS)
SCORES = {"Classification": "accuracy", "PairClassification": "max_ap", "Retrieval": "ndcg_at_10", "STS": "cosine_spearman"}  # fmt: skip
RETRIEVAL_CARD = """---
configs:
- {config_name: corpus, data_files: [{split: corpus, path: corpus.jsonl}]}
- {config_name: queries, data_files: [{split: queries, path: queries.jsonl}]}
- config_name: default
  data_files: [{split: dev, path: qrels/dev.jsonl}, {split: test, path: qrels/test.jsonl}]
---
"""


class MtebSamples:
    """Each method writes a data set and makes mteb know a task over it; returns what docemb calls the task."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch

    def classification(self, **fields: Any) -> str:
        """Three topics, 12 of each in train and 5 in test."""
        self.write("train.jsonl", self.examples(range(12)))
        self.write("test.jsonl", self.examples(range(100, 105)))
        return self.define("Classification", **fields)

    def pairs(self, *, nested: bool = False) -> str:
        """30 pairs of one topic (1) or two (0), in test alone; nested: all of them in one row, as in older data sets."""
        rows = [
            {"sentence1": sentence(TOPICS[n % 3], n), "sentence2": sentence(TOPICS[(n + 1 - same) % 3], n + 50), "labels": same}
            for n in range(15)
            for same in (0, 1)
        ]  # fmt: skip
        self.write("test.jsonl", [{name: [row[name] for row in rows] for name in rows[0]}] if nested else rows)
        return self.define("PairClassification")

    def retrieval(self, *, missing: bool = False, queries_are_documents: bool = False, **fields: Any) -> str:
        """6 documents of each topic, a query each of whose documents 4 are relevant: violin in dev, two in test."""
        ids = {topic: f"{topic}5" if queries_are_documents else f"q-{topic}" for topic in TOPICS}
        asked = {topic: f"{topic} {sentence(topic, 5)}" if queries_are_documents else WORDS[topic] for topic in TOPICS}
        corpus = [{"_id": f"{t}{n}", "title": t if n else "", "text": sentence(t, n)} for t in TOPICS for n in range(6)]
        queries = [{"_id": ids[topic], "text": asked[topic]} for topic in TOPICS]
        links = [{"query-id": ids[t], "corpus-id": f"{t}{n}", "score": int(n < 4)} for t in TOPICS for n in range(5)]
        more = [{"query-id": ids["chart"], "corpus-id": "gone", "score": 1}] if missing else []
        self.write("corpus.jsonl", corpus)
        self.write("queries.jsonl", [*queries, {"_id": "nobody", "text": "nothing to be found"}])
        self.write("qrels/dev.jsonl", links[:5])
        self.write("qrels/test.jsonl", links[5:] + more)
        (self.folder / "README.md").write_text(RETRIEVAL_CARD)
        fields = {"eval_splits": ["dev", "test"], **fields}
        return self.define("Retrieval", **fields, ignore_identical_ids=queries_are_documents)

    def define(self, kind: str, *, ignore_identical_ids: bool = False, **fields: Any) -> str:
        from mteb import TaskMetadata, abstasks

        metadata = TaskMetadata(
            name="Local", description="local data", type=kind, category="t2t", modalities=["text"], reference=None,
            dataset={"path": str(self.folder), "revision": "1"}, main_score=SCORES[kind],
            **{"eval_splits": ["test"], "eval_langs": ["eng-Latn"], **fields},
        )  # fmt: skip
        attributes = {"metadata": metadata, "ignore_identical_ids": ignore_identical_ids}
        task = type("Local", (getattr(abstasks, f"AbsTask{kind}"),), attributes)
        self.monkeypatch.setitem(sys.modules["mteb.get_tasks"]._TASKS_REGISTRY, "Local", task)
        return "mteb:Local"

    def write(self, name: str, rows: list[dict[str, Any]]) -> None:
        write_files(self.folder, {name: rows})

    def examples(self, numbers: Iterable[int]) -> list[dict[str, Any]]:
        return [{"text": sentence(topic, n), "label": label} for n in numbers for label, topic in enumerate(TOPICS)]


def sentence(topic: str, number: int) -> str:
    return f"{topic} {WORDS[topic]} number {number}"


@pytest.fixture
def mteb_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MtebSamples:
    pytest.importorskip("mteb")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return MtebSamples(tmp_path / "data", monkeypatch)
