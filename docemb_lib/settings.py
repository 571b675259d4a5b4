"""The sections of a profile and the notebook parameters: one frozen model each, every field with unit or reason.

Defaults are the thesis'; combinations that make no sense are refused here, values one by one in the fields.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

ContextualName = Literal["DM", "DBOW", "PV", "LSA"]
EMBEDDED_TASKS = ("package", "see-also-pairs", "halves", "see-also-retrieval")
LINKED_TASKS = ("package", "see-also-pairs", "see-also-retrieval")  # need the pages' own links
BenchmarkName = Literal["arxiv", "imdb", "aan", "oc", "s2orc", "pan", "wines", "games"]
ON_HUB: tuple[BenchmarkName, ...] = ("arxiv", "imdb")  # the others come as files, from their authors
SplitName = Literal["train", "validation", "test"]


def _no_null(value: Any) -> Any:
    if isinstance(value, str) and value.lower() in {"null", "none"}:
        raise ValueError(f"got the string {value!r}; to switch it off write None (`-p NAME None`; in YAML: null)")
    return value


def _min_count(value: Any) -> Any:
    if value == "10%" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError("must be an integer from 1, or '10%'")


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_LABEL = re.compile(r"(DM|DBOW);([2-9]|[1-9]\d+);(stem|lowercase|None);([1-9]\d*|10%)")


def members_of(compound: str) -> list[dict[str, Any]]:
    """The parameters of a compound's members, DM before DBOW. Raises ValueError for anything else than labels."""
    labels = [label.strip() for label in compound.split("+")]
    found = [_LABEL.fullmatch(label) for label in labels]
    if len(labels) < 2 or not all(found) or len(set(labels)) < len(labels):
        raise ValueError(
            "must be two or more different labels ARCH;vector_size;preprocess;min_count (DM or DBOW; stem, lowercase "
            "or None; a number or 10%) joined by +, e.g. DM;1024;stem;2+DBOW;1024;None;2"
        )
    members = [
        {
            "dm": match[1] == "DM",
            "vector_size": int(match[2]),
            "preprocess": "none" if match[3] == "None" else match[3],
            "min_count": match[4] if match[4] == "10%" else int(match[4]),
        }
        for match in found
        if match
    ]
    return sorted(members, key=lambda member: not member["dm"])


def label_of_paragraph_vector(*, dm: bool, vector_size: int, preprocess: str, min_count: int | str) -> str:
    """As in the thesis' figures: `DM;100;lowercase;2`."""
    return f"{'DM' if dm else 'DBOW'};{vector_size};{'None' if preprocess == 'none' else preprocess};{min_count}"


ProjectionSpec = Annotated[str, BeforeValidator(_as_text)]  # papermill and YAML read a single width as a number
PairFeatures = Literal["concat", "interaction"]
SINGLE = ("dm", "vector_size", "min_count", "preprocess")  # the parameters of one Paragraph Vector
MinCount = Annotated[int | str, BeforeValidator(_min_count)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """pydantic takes true for 1; here it is a slip."""
        if isinstance(value, bool):
            types = _types(cls.model_fields[str(info.field_name)].annotation)
            if types & {int, float} and bool not in types:
                raise ValueError("must be a number")
        return value


def _types(annotation: Any) -> set[Any]:
    """The annotation, or all that its parts admit."""
    return set().union(*map(_types, get_args(annotation))) if get_args(annotation) else {annotation}


class Parameters(Section):
    """What a notebook can be told, `-p name value`; defaults are the thesis' best cosine student (Table 4.10)."""

    seed: int = Field(0, ge=0)
    # 02: one Paragraph Vector
    dm: bool = True  # True: distributed memory (DM); False: distributed bag of words (DBOW)
    vector_size: int = Field(100, ge=2)  # dimensions
    min_count: MinCount = 2  # drop rarer words; an occurrence count, or the thesis' "10%"
    preprocess: Literal["none", "lowercase", "stem"] = "lowercase"
    compound: Annotated[str | None, BeforeValidator(_no_null)] = None  # labels of trained models, joined by +
    # 03-06: the student's objective
    structural_loss: Annotated[
        Literal["mse", "cosine", "max-margin", "contrastive"] | None, BeforeValidator(_no_null)
    ] = "cosine"
    distance: Literal["mse", "cosine"] = "mse"  # of max-margin
    gamma: float = Field(1.0, ge=0)  # of max-margin: weight of the negatives
    temperature: Annotated[float | None, BeforeValidator(_no_null)] = Field(None, gt=0)  # of contrastive; None: none
    negatives: int = Field(0, ge=0)  # max-margin, contrastive: so many further teacher embeddings drawn for each batch
    contextual_teacher: Annotated[ContextualName | None, BeforeValidator(_no_null)] = "PV"
    contextual_loss: Literal["soft-cca", "mse", "cca"] = "soft-cca"
    student_projection: ProjectionSpec = "768(ReLU)x4096(ReLU)x2048"
    contextual_projection: ProjectionSpec = "-"
    lam: Annotated[float | None, BeforeValidator(_no_null)] = 0.5  # λ; None: plain sum of both losses
    lam_by_length: Annotated[str | None, BeforeValidator(_no_null)] = None  # "linear:384:4096"
    max_structural_len: Annotated[int | None, BeforeValidator(_no_null)] = Field(384, ge=1)  # structural tokens
    form: Literal["weighted", "half_means_sum", "contextual_full"] = "weighted"  # see losses.Weighting
    documents: int = Field(15_000, ge=2)  # first documents of the train split

    @model_validator(mode="before")
    @classmethod
    def _compound_alone(cls, given: Any) -> Any:
        """A compound says all; the parameters of a single model, which it has no use for, are as if not given."""
        if isinstance(given, dict) and given.get("compound") is not None:
            return {name: value for name, value in given.items() if name not in SINGLE}
        return given

    @field_validator("compound")
    @classmethod
    def _in_one_order(cls, value: str | None) -> str | None:
        return None if value is None else "+".join(label_of_paragraph_vector(**member) for member in members_of(value))

    @field_validator("lam")
    @classmethod
    def _lam_in_unit_interval(cls, value: float | None) -> float | None:
        if value is not None and not 0 <= value <= 1:
            raise ValueError("must lie in [0, 1] or be None (the plain sum of both losses)")
        return value

    @field_validator("lam_by_length")
    @classmethod
    def _ramp(cls, value: str | None) -> str | None:
        if value is None:
            return None
        match = re.fullmatch(r"linear:(\d+):(\d+)", value)
        if not match or int(match[1]) >= int(match[2]):
            raise ValueError("must be None or linear:FIRST:LAST in tokens with FIRST < LAST, e.g. linear:384:4096")
        return value

    @model_validator(mode="after")
    def _some_teacher(self) -> Self:
        if self.structural_loss is None and self.contextual_teacher is None:
            raise ValueError("structural_loss and contextual_teacher are both None; a student needs one of them")
        return self

    @model_validator(mode="after")
    def _fits_its_losses(self) -> Self:
        if self.negatives and self.structural_loss not in {"max-margin", "contrastive"}:
            raise ValueError(
                f"negatives: structural_loss {self.structural_loss} compares with no other documents; set negatives "
                f"to 0, or structural_loss to max-margin or contrastive, got {self.negatives}"
            )
        if self.form == "half_means_sum" and self.lam_by_length is not None:
            raise ValueError("form: half_means_sum drops the weights at lam 0.5; set lam_by_length to None with it")
        return self


class Corpus(Section):
    """Where the text comes from, and what is set apart from training."""

    source: Literal["installed-docs", "local", "hub"] = "installed-docs"
    packages: list[str] | None = None  # installed-docs: which packages; None: all that docemb knows
    # local: a folder of .txt/.md files, a data file (.jsonl, .csv, .tsv, .parquet), a pattern such as news/*.jsonl.gz,
    # or a list of them, relative to this profile's own folder
    path: Path | list[Path] | None = None
    text_field: str = "text"  # local data files
    id_field: str = "id"  # local data files; where it is missing, the number of the row
    datasets: list[HubDataset] = []  # hub: equal shares of each
    documents: int | None = Field(None, ge=1)  # at most so many; None: all
    # Leave out a document that shares so much with an earlier one (Jaccard index of their runs of five words); needs
    # the extra `dedup`. None: exact copies only.
    near_duplicates: float | None = Field(None, gt=0, lt=1)
    seed: int = Field(42, ge=0)  # of sampling and splitting (Section 5.1); runs of every seed share their corpus
    validation: int = Field(200, ge=2)  # documents of the validation split
    tasks: int = Field(200, ge=20)  # documents held out for the tasks, from all training

    @model_validator(mode="after")
    def _fits_its_source(self) -> Self:
        if self.source == "local" and self.path is None:
            raise ValueError("path is missing: name a folder of .txt/.md files or a data file")
        if self.source == "hub" and not self.datasets:
            raise ValueError("datasets is missing: name at least one data set of the hub")
        if self.source == "hub" and self.documents is None:
            raise ValueError("documents is missing: say how many documents to take from the hub")
        return self


class HubDataset(Section):
    """A data set that `datasets.load_dataset` streams."""

    dataset: str  # hub id, local folder, or data files: a path or pattern ending in .jsonl, .csv, .tsv or .parquet
    config: str | None = None
    split: str = "train"
    text_field: str = "text"
    min_words: int | None = Field(None, ge=1)  # leave out shorter documents
    min_student_tokens: int | None = Field(None, ge=1)  # the same in tokens of the student, without special tokens


class StructuralTeacher(Section):
    model: str = "sentence-transformers/all-mpnet-base-v2"
    max_tokens: int | None = Field(384, ge=8)  # with special tokens; None: the model's own
    long: Literal["truncate", "chunks"] = "truncate"  # beyond max_tokens: cut, or mean over chunks weighted by tokens
    bf16: bool | None = None  # compute its embeddings in bfloat16; None: where the processor is fast at it


class ParagraphVectorSettings(Section):
    """One gensim Doc2Vec; what Table 4.5 holds fixed is fixed."""

    dm: bool
    vector_size: int = Field(100, ge=2)
    min_count: MinCount = 2
    preprocess: Literal["none", "lowercase", "stem"] = "lowercase"
    epochs: int = Field(10, ge=1)
    dbow_words: bool = True  # DBOW also trains word vectors (skip-gram), several times slower
    workers: int = Field(1, ge=1)  # training threads; only with one does a training repeated give the same model
    # Cap on the words kept while counting (the thesis' last teachers: 60 and 12 million); what is then dropped depends
    # on the order of the documents. None: no cap
    max_vocab_size: int | None = Field(None, ge=1)


class ContextualTeachers(Section):
    """The contextual teachers by name (Section 5.1.2); PV concatenates its members, DM before DBOW."""

    documents: int | None = Field(None, ge=2)  # fit on the first so many train documents; None: on all
    DM: ParagraphVectorSettings = ParagraphVectorSettings(dm=True)
    DBOW: ParagraphVectorSettings = ParagraphVectorSettings(dm=False, vector_size=1024, preprocess="none")
    PV: list[ParagraphVectorSettings] = Field(
        [
            ParagraphVectorSettings(dm=True, vector_size=1024, preprocess="stem"),
            ParagraphVectorSettings(dm=False, vector_size=1024, preprocess="none"),
        ],
        min_length=1,
    )
    lsa_dim: int = Field(300, ge=2)


# Names that a row of a training history has already, or that the first two teachers have.
TAKEN_NAMES = {"structural", "contextual", "loss", "step", "epoch", "norm", "spread", "cca"}
STRUCTURAL_ONLY = ("model", "max_tokens", "long", "distance", "gamma", "temperature")  # fields of further teachers


class FurtherTeacher(Section):
    """One more teacher of every student, beside the structural and the contextual one that the parameters name."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")  # its column in the training history
    role: Literal["structural", "contextual"]  # whether lam or 1 - lam weighs it, and whether the mask holds for it
    loss: Literal["mse", "cosine", "max-margin", "contrastive", "soft-cca", "cca"]  # as the role's parameter takes it
    weight: float = Field(1.0, gt=0)  # among the losses of its role
    student_projection: ProjectionSpec = "-"
    teacher_projection: ProjectionSpec = "-"
    teacher: ContextualName | None = None  # contextual: as in contextual_teachers
    model: str | None = None  # structural: a hub id, a folder, or all-MiniLM-L6-v2
    max_tokens: int | None = Field(None, ge=8)  # with special tokens; None: the model's own
    long: Literal["truncate", "chunks"] = "truncate"
    distance: Literal["mse", "cosine"] = "mse"
    gamma: float = Field(1.0, ge=0)
    temperature: float | None = Field(None, gt=0)

    @field_validator("name")
    @classmethod
    def _free(cls, value: str) -> str:
        if value in TAKEN_NAMES:
            raise ValueError(f"is taken, as are {', '.join(sorted(TAKEN_NAMES))}; choose another")
        return value

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        needed, foreign, losses = {
            "structural": ("model", ("teacher",), ("mse", "cosine", "max-margin", "contrastive")),
            "contextual": ("teacher", STRUCTURAL_ONLY, ("soft-cca", "mse", "cca")),
        }[self.role]
        if getattr(self, needed) is None:
            raise ValueError(f"{needed} is missing: a {self.role} teacher is named by it")
        for field in foreign:
            if getattr(self, field) != type(self).model_fields[field].default:
                raise ValueError(f"{field} is not for a {self.role} teacher; leave it out")
        if self.loss not in losses:
            raise ValueError(f"loss of a {self.role} teacher must be one of {', '.join(losses)}, got {self.loss!r}")
        return self


class Student(Section):
    model: str = "allenai/longformer-base-4096"
    pooling: Literal["mean", "cls"] = "mean"  # cls: the first token, with global attention, unpacked and slow
    layers: list[int] | None = None  # which encoder layers to keep; None: all
    max_tokens: int = Field(4096, ge=8)  # positions, special tokens included
    attention_window: int | None = Field(512, ge=4)  # two-sided, as in transformers; None: the checkpoint's own
    dropout: float | None = Field(None, ge=0, lt=1)  # None: as in the checkpoint
    centre: bool = False  # after training: subtract the mean embedding of the first 1,000 training documents


class Training(Section):
    """Tables 4.4 and 5.2; AdamW with betas 0.9 and 0.999, no decay on biases and LayerNorm, cosine decay to 0."""

    epochs: int = Field(1, ge=1)
    batch_size: int = Field(6, ge=2)  # documents whose losses are computed together
    accumulation: int = Field(1, ge=1)  # batches per update, however many processes share them
    order: Literal["shuffled", "length-consistent"] = "shuffled"  # or the same mix of lengths in every update
    learning_rate: float = Field(1e-4, gt=0)
    warmup: float = Field(0.1, ge=0)  # share of the updates, or their number from 1
    weight_decay: float = Field(0.1, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    precision: Literal["bf16", "fp16", "fp32"] | None = None  # autocast; None: the best for the device
    attention: Literal["blocks", "varlen"] | None = None  # None: the faster for device and precision
    delta: float = Field(0.03, ge=0)  # SoftCCA: weight of the decorrelation
    beta: float = Field(0.95, ge=0, lt=1)  # SoftCCA: memory of the running covariance
    # SoftCCA: mean over the P^2 - P off-diagonal cells of a covariance; or, as the thesis writes it, their sum, with
    # delta / (P^2 - P): the same but for rounding
    sdl: Literal["mean", "sum"] = "mean"
    ridge: float = Field(1e-3, ge=0)  # CCA: added to the variances of both views; on trained projections CCA is DCCA
    # How it is run: nothing below changes what is computed, but for rounding.
    # Compute a layer's activations again in the backward pass: less memory, a third more time. None: where a batch of
    # the longest documents would not fit otherwise (the thesis: on, for 12 GB).
    checkpointing: bool | None = None
    batch_tokens: int | None = Field(None, ge=1)  # tokens in one forward pass; None: what the device has memory for
    compile: bool | None = None  # torch.compile the layers, a minute's preparation; None: on GPUs, if it works there
    save_every: int = Field(500, ge=1)  # updates between checkpoints: what a kill may cost
    log_every: int = Field(10, ge=1)  # updates between two rows of the history
    report_to: list[str] = []  # trackers beside the history, as transformers names them: tensorboard, wandb, …


# Settings of `Training` that a result does not depend on; `precision` and `batch_size` are none of them.
UNDECISIVE = {"checkpointing", "batch_tokens", "compile", "save_every", "log_every", "report_to"}


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


class OwnTask(Section):
    """A task from one's own data files (.jsonl, .csv, .tsv or .parquet), relative to the profile's own folder."""

    name: str = Field(min_length=1)
    kind: Literal["classification", "pairs", "retrieval"]
    path: Path | dict[SplitName, Path]  # one file, or one per split; retrieval: the documents
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
    # The embedded tasks (EMBEDDED_TASKS), the benchmark tasks (BenchmarkName) and one's own, by name.
    tasks: list[str] = Field(["halves"], min_length=1)  # of the final evaluation, on their test splits
    sweep_tasks: list[str] = Field(["halves"], min_length=1)  # of every run, on their validation splits
    own_tasks: list[OwnTask] = []
    benchmarks: dict[BenchmarkName, str] = {}  # where a benchmark task lies: a folder, or another hub id than its own
    seeds: int = Field(5, ge=1)  # heads trained per score; the spread is over them
    documents: int = Field(400, ge=8)  # of an embedded task, at most
    head: HeadSettings = HeadSettings()
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
        given = (*EMBEDDED_TASKS, *get_args(BenchmarkName))
        if taken := [name for number, name in enumerate(own) if name in given or name in own[:number]]:
            raise ValueError(f"own_tasks: there is a task {taken[0]!r} already; choose another name")
        known = (*given, *own)
        if unknown := [name for name in (*self.tasks, *self.sweep_tasks) if name not in known]:
            raise ValueError(f"there is no task {unknown[0]!r}; known are {', '.join(known)}; define it in own_tasks")
        for name in (*self.tasks, *self.sweep_tasks):
            if name in get_args(BenchmarkName) and name not in (*ON_HUB, *self.benchmarks):
                raise ValueError(f"benchmarks: {name} stands on no hub; name the folder that holds its files")
        return self


Corpus.model_rebuild()
