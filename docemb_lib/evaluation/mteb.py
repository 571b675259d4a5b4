"""Tasks of the MTEB benchmark by name, `mteb:Banking77Classification`, as tasks of ours; the extra `mteb`.

Their texts and labels are mteb's, the score is ours: our heads on all training examples (mteb: a logistic regression on
eight of each class), our ranking of all documents. For mteb's own scores see `mteb_encoder`.

| of mteb            | becomes        | splits                                                              |
|--------------------|----------------|---------------------------------------------------------------------|
| Classification     | Classification | its own; drawn from the scored one where there is no other          |
| PairClassification | Pairs          | the same; most have no train split                                  |
| Retrieval          | Retrieval      | those it is scored on; queries stand in no pool, or, where mteb     |
|                    |                | ignores equal ids, are documents of it                              |
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction

from docemb_lib import pretrained
from docemb_lib.corpus.rows import Row, text_of
from docemb_lib.errors import InputError
from docemb_lib.evaluation.readers import VALIDATION, Example, draw_splits, labelled, labelled_pairs, read_example
from docemb_lib.evaluation.tasks import Classification, Pairs, Ranking, Retrieval, Task
from docemb_lib.hardware import devices_at_hand
from docemb_lib.settings import MTEB
from docemb_lib.student import Student

# ---- tasks of the MTEB benchmark


logger = logging.getLogger(__name__)

SHARE, SEED = 0.2, 0  # of the splits that are drawn where mteb has one only
KINDS = ("Classification", "PairClassification", "Retrieval")


def mteb_task(name: str) -> Task:
    """The task `mteb:NAME`, or `mteb:NAME/SUBSET` of a task in several languages, loaded as mteb loads it.

    Raises InputError where mteb is not installed or does not know it, it is of another kind, or it cannot be loaded.
    """
    from datasets.exceptions import DatasetsError

    theirs = find_task(name)
    try:
        theirs.load_data()
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"task {name}: cannot be loaded ({reason}); look at the network, or leave it out") from error
    (subset,) = theirs.hf_subsets
    make = _retrieval if theirs.metadata.type == "Retrieval" else _with_heads
    return make(theirs, name, subset)


def _retrieval(theirs: Any, name: str, subset: str) -> Retrieval:
    theirs.convert_v1_dataset_format_to_v2(num_proc=None)
    data, same_ids = theirs.dataset[subset], theirs.ignore_identical_ids
    splits = retrieval_splits(theirs)
    return Retrieval(name, {ours: _ranking(data[split], name, same_ids=same_ids) for ours, split in splits.items()})


def _with_heads(theirs: Any, name: str, subset: str) -> Classification | Pairs:
    data = theirs.dataset[subset] if theirs.metadata.is_multilingual else theirs.dataset
    of_pairs = theirs.metadata.type == "PairClassification"
    fields = [theirs.input1_column_name, theirs.input2_column_name] if of_pairs else [theirs.input_column_name]
    train, scored = "train" if of_pairs else theirs.train_split, _scored(theirs.metadata.eval_splits)

    def examples(split: str) -> list[Example]:
        rows = _rows(data[split], name, split)
        return [read_example(row, text_fields=fields, label_field=theirs.label_column_name) for row in rows]

    if train not in data or train == scored:
        found = draw_splits(examples(scored), share=SHARE, seed=SEED, where=f"task {name}")
    else:
        wanted = {"train": train, "validation": _validation(data, scored), "test": scored}
        found = {ours: examples(split) for ours, split in wanted.items() if split}
    if of_pairs:
        return Pairs(name, {split: labelled_pairs(some) for split, some in found.items()})
    return Classification(name, {split: labelled(some) for split, some in found.items()})


def mteb_fingerprint(name: str) -> str:
    """What identifies such a task without loading anything: mteb's version holds the revision of its data."""
    try:
        return f"{name} mteb {version('mteb')}"
    except PackageNotFoundError:
        raise InputError(f'task {name}: mteb is not installed; run pip install -e ".[mteb]"') from None


def find_task(name: str) -> Any:
    """The task as mteb knows it, of one subset, nothing loaded. Raises InputError as `mteb_task` does."""
    mteb_fingerprint(name)  # is it installed?
    import mteb
    from mteb.abstasks import AbsTaskClassification, AbsTaskPairClassification, AbsTaskRetrieval

    plain, _, subset = name.removeprefix(MTEB).partition("/")
    try:
        task = mteb.get_task(plain)
    except KeyError as error:
        reason = str(error.args[0]).removeprefix("KeyError: ")
        raise InputError(f"task {name}: unknown to mteb {mteb.__version__} ({reason}); correct the name") from None
    kinds = (AbsTaskClassification, AbsTaskPairClassification, AbsTaskRetrieval)
    if task.metadata.type not in KINDS or task.metadata.modalities != ["text"] or not isinstance(task, kinds):
        what = f"{task.metadata.type} of {', '.join(task.metadata.modalities)}"
        raise InputError(f"task {name}: is {what}; take one of text, of the kind {', '.join(KINDS)}")
    subsets = list(task.hf_subsets)
    if not subset and len(subsets) > 1:
        raise InputError(f"task {name}: has the subsets {', '.join(subsets)}; name one, as in {name}/{subsets[0]}")
    if subset and subset not in subsets:
        raise InputError(f"task {name}: has no subset {subset!r}; there are {', '.join(subsets)}")
    return mteb.get_task(plain, hf_subsets=[subset or subsets[0]])


def retrieval_splits(task: Any) -> dict[str, str]:
    """Ours to mteb's of a retrieval task, which its description tells before it is loaded."""
    scored = _scored(task.metadata.eval_splits)
    validation = _validation(task.metadata.eval_splits, scored)
    return {"validation": validation, "test": scored} if validation else {"test": scored}


def _scored(names: Sequence[str]) -> str:
    return "test" if "test" in names else names[0]


def _validation(names: Any, scored: str) -> str | None:
    return next((name for name in ("validation", *VALIDATION) if name in names and name != scored), None)


def _rows(rows: Any, name: str, part: str) -> Iterator[Row]:
    """Rows of a data set; of older ones the only row holds all of them as lists."""
    if len(rows) == 1 and all(isinstance(value, list) for value in rows[0].values()):
        columns = rows[0]
        rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    for number, fields in enumerate(rows, start=1):
        yield Row(f"task {name} [{part}], row {number}", number, fields)


def _ranking(data: Mapping[str, Any], name: str, *, same_ids: bool) -> Ranking:
    """The documents, and behind them the queries that are none of them; what is relevant at all is relevant.

    same_ids: a query with the id of a document is that document.
    """
    texts = [_document(row) for row in _rows(data["corpus"], name, "corpus")]
    row_of = {id: row for row, id in enumerate(data["corpus"]["id"])}
    pool, queries, relevant, missing = len(texts), [], [], 0
    for row in _rows(data["queries"], name, "queries"):
        id = row.fields["id"]
        wanted = [target for target, score in data["relevant_docs"].get(id, {}).items() if score > 0]
        own = row_of.get(id) if same_ids else None
        found = [row_of[target] for target in wanted if target in row_of and row_of[target] != own]
        missing += sum(target not in row_of for target in wanted)
        if not found:
            continue
        queries.append(len(texts) if own is None else own)
        relevant.append(found)
        if own is None:
            texts.append(_query(row))
    if missing:
        logger.warning("task %s: %d relevant documents are left out: the corpus has no such id", name, missing)
    return Ranking(texts, queries, relevant, candidates=pool)


def _document(row: Row) -> str:
    """Title and text, as mteb gives them to a model."""
    title = row.fields.get("title") or ""
    return f"{title} {text_of(row.fields, 'text', where=row.where)}".strip()


def _query(row: Row) -> str:
    text, instruction = text_of(row.fields, "text", where=row.where), row.fields.get("instruction")
    return f"{text} {instruction}" if instruction else text


# ---- a student in mteb's own runner


class StudentEncoder(AbsEncoder):
    """What mteb asks of a model, by `Student.embed`; students know no prompts, so mteb's are left out."""

    def __init__(self, model_name: str | Path, revision: str | None = None, *, device: str | None = None) -> None:
        """model_name: a student's folder or hub id; revision: None: a fingerprint of its files, by which mteb keeps
        results; device: None: a GPU where there is one."""
        source = pretrained.resolve(str(model_name))
        self.model = Student.load(source).to(device or devices_at_hand()[0])
        folder = Path(source)
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": f"docemb/{folder.absolute().name}" if folder.is_dir() else source,
                "revision": revision or pretrained.fingerprint(source),
                "max_tokens": self.model.max_tokens,
                "embed_dim": self.model.dim,
                "framework": ["PyTorch"],
                "similarity_fn_name": ScoringFunction.COSINE,
            }
        )

    def encode(self, inputs: Any, **kwargs: Any) -> np.ndarray:
        """inputs: batches of mteb, mappings whose `text` is a list of texts. Returns float32 (N, D), in their order."""
        return np.asarray(self.model.embed([text for batch in inputs for text in batch["text"]]))
