"""The tasks, and how models are scored on them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from docemb_lib.settings.sections import Section

EMBEDDED_TASKS = ("package", "see-also-pairs", "halves", "see-also-retrieval")
LINKED_TASKS = ("package", "see-also-pairs", "see-also-retrieval")  # need the pages' own links
BenchmarkName = Literal["arxiv", "imdb", "aan", "oc", "s2orc", "pan", "wines", "games"]
SimDEName = Literal["fakenews", "20news", "arxiv-abstracts", "nyt", "bbcnews"]
ON_HUB = ("arxiv", "imdb", "20news", "bbcnews")  # the others come as files, from their authors
MTEB = "mteb:"  # in front of the name of a task of that benchmark, which the extra `mteb` brings
SplitName = Literal["train", "validation", "test"]
PairFeatures = Literal["concat", "interaction"]


class HeadSettings(Section):
    """How a classification head on frozen embeddings is trained (Tables 4.3 and 5.6)."""

    hidden: int = Field(50, ge=1)  # width of the hidden layer
    dropout: float = Field(0.5, ge=0, lt=1)  # after the ReLU
    epochs: int = Field(10, ge=1)  # the weights after the last one are scored: no selection
    batch_size: int = Field(32, ge=1)  # the last short batch is kept
    learning_rate: float = Field(1e-4, gt=0)  # at the first step; cosine decay to 0, no warm-up
    weight_decay: float = Field(0.1, ge=0)  # AdamW, not on biases
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    max_grad_norm: float = Field(1.0, gt=0)  # each head is clipped by its own norm
    pair_features: PairFeatures = "concat"  # [e0; e1] (thesis), or interaction: [|e0 - e1|; e0 * e1]


HEADS: Mapping[str, HeadSettings] = {
    "thesis": HeadSettings(),
    "simde": HeadSettings(learning_rate=3e-4, batch_size=8),  # all that the paper says of its MLP; the rest as above
    # The same for long enough to learn a hundred examples: after ten epochs of those it answers by chance.
    "few-shot": HeadSettings(learning_rate=3e-4, batch_size=8, epochs=300),
}


def _head_of_that_name(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in HEADS:
        raise ValueError(f"there is no head {value!r}; write {' or '.join(HEADS)}, or a mapping")
    return HEADS[value]


class OwnTask(Section):
    """A task from one's own data files (.jsonl, .csv, .tsv or .parquet), relative to the profile's own folder.

    A classification may also be a folder that holds a folder of texts for each class, or such folders by split.
    """

    name: str = Field(min_length=1)
    kind: Literal["classification", "pairs", "retrieval"]
    path: Path | dict[SplitName, Path]  # one file or folder, or one per split; retrieval: the documents
    text_field: str = "text"
    second_field: str = "second"  # pairs: the field of the second text
    label_field: str = "label"
    split_field: str = "split"  # one file: train, validation or test; where it is missing, splits are drawn
    share: float = Field(0.2, gt=0, lt=0.5)  # of the examples drawn for test, and as many for validation
    seed: int = Field(0, ge=0)  # of this draw
    id_field: str = "id"  # retrieval: the field of a document's id
    relevance: Path | dict[SplitName, Path] | None = None  # retrieval: pairs of ids, a document and one to be found

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if (self.kind == "retrieval") != (self.relevance is not None):
            raise ValueError("relevance, a file of pairs of ids, belongs to every retrieval task and to no other")
        if self.kind == "retrieval" and isinstance(self.path, dict):
            raise ValueError("path of a retrieval task is one file of documents; give relevance a file per split")
        return self


class Evaluation(Section):
    # The embedded tasks (EMBEDDED_TASKS), the benchmark tasks (BenchmarkName, SimDEName), one's own and mteb:NAME.
    tasks: list[str] = Field(["halves"], min_length=1)  # of the final evaluation, on their test splits
    sweep_tasks: list[str] = Field(["halves"], min_length=1)  # of every run, on their validation splits
    own_tasks: list[OwnTask] = []
    benchmarks: dict[BenchmarkName | SimDEName, str] = {}  # where one lies: a folder (SimDEName: or file), or a hub id
    seeds: int = Field(5, ge=1)  # heads trained per score; the spread is over them
    documents: int = Field(400, ge=8)  # of an embedded task, at most
    head: Annotated[HeadSettings, BeforeValidator(_head_of_that_name)] = HeadSettings()  # or a name of HEADS
    # Runs are scored on validation splits (Section 4.3), the final evaluation on whole test splits (Section 5.2).
    limit: int = Field(10_000, ge=1)  # runs: examples of each split of a task with heads, classes keep their shares
    folds: int = Field(5, ge=2)  # runs: of the cross-validation of such a task, where it has no validation split
    rounds: list[int | None] = Field([None], min_length=1)  # final: heads learn from so many examples; None: from all

    @field_validator("rounds")
    @classmethod
    def _ascend(cls, value: list[int | None]) -> list[int | None]:
        sizes = [float("inf") if size is None else size for size in value]
        if sizes[0] < 1 or sizes != sorted(set(sizes)):
            raise ValueError(
                "must be numbers from 1 that ascend, null (all) last, each once, as in [1000, 10000, null]"
            )
        return value

    @model_validator(mode="after")
    def _known_tasks(self) -> Self:
        own = [task.name for task in self.own_tasks]
        benchmarks = (*get_args(BenchmarkName), *get_args(SimDEName))
        given = (*EMBEDDED_TASKS, *benchmarks)
        if taken := [name for n, name in enumerate(own) if name in (*given, *own[:n]) or name.startswith(MTEB)]:
            raise ValueError(f"own_tasks: there is a task {taken[0]!r} already; choose another name")
        known = (*given, *own)
        named = [name for name in (*self.tasks, *self.sweep_tasks) if not name.startswith(MTEB)]
        if unknown := [name for name in named if name not in known]:
            raise ValueError(
                f"there is no task {unknown[0]!r}; known are {', '.join(known)} and {MTEB}NAME; define it in own_tasks"
            )
        for name in (*self.tasks, *self.sweep_tasks):
            if name in benchmarks and name not in (*ON_HUB, *self.benchmarks):
                raise ValueError(f"benchmarks: {name} stands on no hub; name the folder that holds its files")
        return self
