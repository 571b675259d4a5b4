"""Tasks of the MTEB benchmark, `mteb:Banking77Classification` (extra `mteb`).

`mteb_task` takes texts and labels from mteb and scores them as all tasks here: heads on all training examples (mteb: a
logistic regression on eight of each class), rankings of all documents. For mteb's own scores of a student, give mteb's
runner the `SentenceTransformer` of the student's folder.

| in mteb            | here           | splits                                                                  |
|--------------------|----------------|-------------------------------------------------------------------------|
| Classification     | Classification | as in mteb; drawn from the scored split where there is no other         |
| PairClassification | Pairs          | the same; most have no train split                                      |
| Retrieval          | Retrieval      | the scored ones; queries follow the pool, or, where mteb ignores equal  |
|                    |                | ids, are documents of it                                                |
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from docemb_lib.corpus.rows import Row, text_of
from docemb_lib.errors import InputError
from docemb_lib.evaluation.readers import VALIDATION, draw_splits, head_task, make_ranking, read_examples
from docemb_lib.evaluation.tasks import Ranking, Retrieval, Task
from docemb_lib.settings import MTEB

logger = logging.getLogger(__name__)

KINDS = ("Classification", "PairClassification", "Retrieval")


def mteb_task(name: str) -> Task:
    """The task `mteb:NAME`, or `mteb:NAME/SUBSET` of a task in several languages, loaded as mteb loads it.

    Raises InputError for a task that mteb does not have, that is of another kind or cannot be loaded, and without mteb.
    """
    from datasets.exceptions import DatasetsError

    task = find_task(name)
    try:
        task.load_data()
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        raise InputError(f"task {name}: cannot be loaded ({error}); look at the network, or leave it out") from error
    (subset,) = task.hf_subsets
    if task.metadata.type == "Retrieval":
        task.convert_v1_dataset_format_to_v2(num_proc=None)
        splits = {split: task.dataset[subset][in_mteb] for split, in_mteb in retrieval_splits(task).items()}
        same_ids = task.ignore_identical_ids
        return Retrieval(name, {split: _ranking(data, name, same_ids=same_ids) for split, data in splits.items()})
    data = task.dataset[subset] if task.metadata.is_multilingual else task.dataset
    pairs = task.metadata.type == "PairClassification"
    fields = [task.input1_column_name, task.input2_column_name] if pairs else [task.input_column_name]
    train, scored = "train" if pairs else task.train_split, _scored(task.metadata.eval_splits)
    drawn = train not in data or train == scored
    wanted = {"test": scored} if drawn else {"train": train, "validation": _validation(data, scored), "test": scored}
    rows = ((split, row) for split, part in wanted.items() if part for row in _rows(data[part], name, part))
    texts, label, where = [(field,) for field in fields], (task.label_column_name,), f"task {name}"
    examples = read_examples(rows, texts=texts, label=label, where=where, blank="keep")
    if drawn:
        examples = draw_splits(examples["test"], share=0.2, seed=0, where=where)
    return head_task(name, examples)


def mteb_fingerprint(name: str) -> str:
    """What identifies a task without loading it: the version of mteb determines the revision of the data."""
    try:
        return f"{name} mteb {version('mteb')}"
    except PackageNotFoundError:
        raise InputError(f'task {name}: mteb is not installed; run pip install -e ".[mteb]"') from None


def find_task(name: str) -> Any:
    """The task object of mteb, with one subset, without data. Raises InputError as `mteb_task` does."""
    mteb_fingerprint(name)  # raises without mteb
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
    if subset not in subsets and (subset or len(subsets) > 1):
        mend = f"name one, as in {MTEB}{plain}/{subsets[0]}"
        raise InputError(f"task {name}: has the subsets {', '.join(subsets)}; {mend}")
    return mteb.get_task(plain, hf_subsets=[subset or subsets[0]])


def retrieval_splits(task: Any) -> dict[str, str]:
    """The split names here and in mteb of a retrieval task, from its description."""
    scored = _scored(task.metadata.eval_splits)
    validation = _validation(task.metadata.eval_splits, scored)
    return {"validation": validation, "test": scored} if validation else {"test": scored}


def _scored(names: Sequence[str]) -> str:
    return "test" if "test" in names else names[0]


def _validation(names: Any, scored: str) -> str | None:
    return next((name for name in ("validation", *VALIDATION) if name in names and name != scored), None)


def _rows(rows: Any, name: str, part: str) -> Iterator[Row]:
    """Rows of a data set; the only row of an older one holds all of them as lists."""
    if len(rows) == 1 and all(isinstance(value, list) for value in rows[0].values()):
        columns = rows[0]
        rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    for number, fields in enumerate(rows, start=1):
        yield Row(f"task {name} [{part}], row {number}", number, fields)


def _ranking(data: Mapping[str, Any], name: str, *, same_ids: bool) -> Ranking:
    """The documents, followed by the queries that are not documents; a positive score means relevant.

    same_ids: a query with the id of a document is that document.
    """
    texts: dict[Hashable, str] = {}
    for row in _rows(data["corpus"], name, "corpus"):  # title and text, as mteb gives them to a model
        text = text_of(row.fields, "text", where=row.where)
        texts[row.fields["id"]] = f"{row.fields.get('title') or ''} {text}".strip()
    pool, missing = len(texts), 0
    links: dict[Hashable, list[str]] = {}
    for row in _rows(data["queries"], name, "queries"):
        id, text = row.fields["id"], text_of(row.fields, "text", where=row.where)
        query = id if same_ids and id in texts else ("query", id)
        wanted = [target for target, score in data["relevant_docs"].get(id, {}).items() if score > 0]
        missing += sum(target not in texts for target in wanted)
        if found := [target for target in wanted if target in texts and target != query]:
            links[query] = found
            instruction = row.fields.get("instruction")
            texts.setdefault(query, f"{text} {instruction}" if instruction else text)
    if missing:
        logger.warning("task %s: %d relevant documents are left out: the corpus has no such id", name, missing)
    return make_ranking(texts, links, candidates=pool)
