"""The sections of a profile: corpus, teachers, student, training, SimDE and evaluation, one frozen
model each.

A comment beside a field gives the unit or the reason of its value.
"""

import re
from collections.abc import Mapping
from math import inf
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

from docemb_lib.base.errors import InputError
from docemb_lib.settings.projections import WIDEST, parse_projection

EMBEDDED_TASKS = ("package", "see-also-pairs", "halves", "see-also-retrieval")
LINKED_TASKS = ("package", "see-also-pairs", "see-also-retrieval")  # need links between the pages
BenchmarkName = Literal["arxiv", "imdb", "aan", "oc", "s2orc", "pan", "wines", "games"]
SimDEName = Literal["fakenews", "20news", "arxiv-abstracts", "nyt", "bbcnews"]
ON_HUB = ("arxiv", "imdb", "20news", "bbcnews")  # the authors publish the others as files
STRUCTURAL_LOSS = "^(mse|cosine|max-margin|contrastive)$"
CONTEXTUAL_LOSS = (
    "^(soft-cca|mse|cca|cca:[1-9][0-9]{0,4})$"  # the last: so many canonical correlations
)
SplitName = Literal["train", "validation", "test"]
Long = Literal["truncate", "chunks"]
PairFeatures = Literal["concat", "interaction"]
ContextualName = Literal["DM", "DBOW", "PV", "LSA"]
# Of an error.
NO_PAIRS = "pairs: dropout makes no pairs of a student without dropout; set simde.dropout to 0.1"
SINGLE = ("dm", "vector_size", "min_count", "preprocess")  # the parameters of one Paragraph Vector
# Settings of `Training` that do not change a result. `precision` and `batch_size` do.
NOT_IN_FINGERPRINT = {
    "checkpointing",
    "batch_tokens",
    "compile",
    "save_every",
    "log_every",
    "report_to",
}


def _no_null(value: Any) -> Any:
    if isinstance(value, str) and value.lower() in {"null", "none"}:
        raise ValueError(
            f"got the string {value!r}; to switch it off write None (`-p NAME None`; in YAML: null)"
        )
    return value


def _projection(value: Any) -> Any:
    """The text of a projection, which papermill and YAML read as a number where it is a single
    width.
    """
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str):
        parse_projection(text)
    return text


def _head_of_that_name(value: Any) -> Any:
    if isinstance(value, str) and value not in HEADS:
        raise ValueError(f"there is no head {value!r}; write {' or '.join(HEADS)}, or a mapping")
    return HEADS[value] if isinstance(value, str) else value


NoNull = BeforeValidator(_no_null)  # for fields that None switches off
ProjectionSpec = Annotated[str, BeforeValidator(_projection)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what generators take
MaxTokens = Annotated[int, Field(ge=8, le=2**20)]
# One of docemb's, or the import path of a loss, module:Class.
StructuralLoss = Annotated[str, Field(pattern=rf"{STRUCTURAL_LOSS}|^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
ContextualLoss = Annotated[str, Field(pattern=CONTEXTUAL_LOSS)]
MinCount = Annotated[int, Field(ge=1)] | Literal["10%"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `off` and `true` where a number is expected; pydantic would read them as 0 and 1."""
        annotation = repr(cls.model_fields[str(info.field_name)].annotation)
        if (
            isinstance(value, bool)
            and re.search(r"\b(int|float)\b", annotation)
            and "bool" not in annotation
        ):
            raise ValueError("must be a number")
        return value


class HubDataset(Section):
    """A data set that `datasets.load_dataset` streams."""

    # hub id, local folder, or data files: a path or pattern ending in .jsonl, .csv, .tsv or
    # .parquet
    dataset: str
    config: str | None = None
    split: str = "train"
    text_field: str = "text"
    # Leave out shorter documents, in tokens of the student without special tokens.
    min_student_tokens: int | None = Field(None, ge=1)


class TextSource(Section):
    """Where text comes from."""

    source: Literal["installed-docs", "local", "hub"] = "installed-docs"
    # installed-docs: import names; None: the eleven of installed_docs.PACKAGES
    packages: list[str] | None = Field(None, min_length=1)
    # local: a folder of .txt/.md files, a data file (.jsonl, .csv, .tsv, .parquet), a pattern such
    # as news/*.jsonl.gz, or a list of them, relative to the folder of this profile
    path: Path | list[Path] | None = None
    text_field: str = "text"  # of local data files
    id_field: str = "id"  # of local data files; where it is missing, the number of the row
    datasets: list[HubDataset] = []  # hub: equal shares of each
    # Maximum; None: all. For a hub None must be written: all of the first data set, as many of each
    # other one.
    documents: int | None = Field(None, ge=1)
    seed: Seed = (
        42  # of sampling and splitting (Section 5.1); runs of every seed share their corpus
    )

    @model_validator(mode="after")
    def _fits_its_source(self) -> Self:
        if self.source == "local" and not self.path:
            raise ValueError("path is missing: name a folder of .txt/.md files or a data file")
        if self.source == "hub" and not self.datasets:
            raise ValueError("datasets is missing: name at least one data set of the hub")
        if self.source == "hub" and "documents" not in self.model_fields_set:
            raise ValueError(
                "documents is missing: say how many documents to take from the hub; null: all"
            )
        return self


class Corpus(TextSource):
    """The text of the students, and the parts of it that training leaves out."""

    validation: int = Field(200, ge=2)  # documents of the validation split
    tasks: int = Field(200, ge=20)  # documents held out for the tasks, from all training


class StructuralTeacher(Section):
    model: str = "sentence-transformers/all-mpnet-base-v2"
    max_tokens: MaxTokens | None = 384  # with special tokens; None: the limit of the model
    # Beyond max_tokens: cut, or the mean over chunks weighted by tokens
    long: Long = "truncate"
    bf16: bool | None = None  # compute its embeddings in bfloat16; None: as DOCEMB_PRECISION says


class ParagraphVectorSettings(Section):
    """One gensim Doc2Vec. What Table 4.5 holds fixed is no setting."""

    dm: bool
    vector_size: int = Field(100, ge=2, le=WIDEST)
    min_count: MinCount = 2
    preprocess: Literal["none", "lowercase", "stem"] = "lowercase"
    epochs: int = Field(10, ge=1)
    dbow_words: bool = True  # DBOW also trains word vectors (skip-gram), several times slower
    workers: int = Field(1, ge=1)  # training threads; training is repeatable with one only
    # Cap on the words kept while counting (the thesis' last teachers: 60 and 12 million); the words
    # that are dropped then depend on the order of the documents. None: no cap
    max_vocab_size: int | None = Field(None, ge=1)

    @property
    def described(self) -> str:
        """The label, and what differs from Table 4.5, whose values are the defaults:
        `DBOW;100;None;2;epochs=20`.
        """
        others = self.model_dump(
            include={"epochs"} if self.dm else {"epochs", "dbow_words"}, exclude_defaults=True
        )
        label = label_of_paragraph_vector(**self.model_dump(include={*SINGLE}))
        return ";".join([label, *(f"{name}={value}" for name, value in others.items())])


def label_of_paragraph_vector(
    *, dm: bool, vector_size: int, preprocess: str, min_count: int | str
) -> str:
    """The label in the figures of the thesis: `DM;100;lowercase;2`."""
    return f"{'DM' if dm else 'DBOW'};{vector_size};{'None' if preprocess == 'none' else preprocess};{min_count}"


class ContextualTeachers(Section):
    """The contextual teachers by name (Section 5.1.2); PV concatenates its members, DM before DBOW."""

    # The text that they are fitted on, without the documents that the students' corpus holds out;
    # None: its train split
    corpus: TextSource | None = None
    documents: int | None = Field(
        None, ge=2
    )  # fit on the first so many of these documents; None: on all
    DM: ParagraphVectorSettings = ParagraphVectorSettings(dm=True)
    DBOW: ParagraphVectorSettings = ParagraphVectorSettings(
        dm=False, vector_size=1024, preprocess="none"
    )
    PV: list[ParagraphVectorSettings] = Field(
        [ParagraphVectorSettings(dm=True, vector_size=1024, preprocess="stem"), DBOW], min_length=1
    )
    lsa_dim: int = Field(300, ge=2, le=WIDEST)

    def members(self, name: str) -> list[ParagraphVectorSettings]:
        """The Paragraph Vectors of a contextual teacher: one of DM and DBOW, several of PV, none of
        LSA.
        """
        return {"DM": [self.DM], "DBOW": [self.DBOW], "PV": self.PV}.get(name, [])

    def width(self, name: str) -> int:
        """The width of a contextual teacher's embeddings, without fitting the teacher."""
        return (
            self.lsa_dim
            if name == "LSA"
            else sum(member.vector_size for member in self.members(name))
        )


class FurtherTeacher(Section):
    """A teacher of every student besides the structural and the contextual one that the parameters
    name.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")  # its column in the training history
    role: Literal[
        "structural", "contextual"
    ]  # structural: weight lam and masked by length; contextual: 1 - lam
    loss: str  # as the parameter of that role
    weight: float = Field(1.0, gt=0)  # among the losses of its role
    student_projection: ProjectionSpec = "-"
    teacher_projection: ProjectionSpec = "-"
    teacher: ContextualName | None = None  # contextual: as in contextual_teachers
    model: str | None = None  # structural: a hub id, a folder, or all-MiniLM-L6-v2
    max_tokens: MaxTokens | None = None  # with special tokens; None: the limit of the model
    long: Long = "truncate"
    distance: Literal["mse", "cosine"] = "mse"
    gamma: float = Field(1.0, ge=0)
    temperature: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        structural = self.role == "structural"
        if (self.model is None) == structural or (self.teacher is None) != structural:
            needed = "`model` and no `teacher`" if structural else "`teacher` and no `model`"
            raise ValueError(f"a {self.role} teacher has {needed}; write it so, or change its role")
        if not re.search(STRUCTURAL_LOSS if structural else CONTEXTUAL_LOSS, self.loss):
            own = ("soft-cca, mse, cca or cca:10", "mse, cosine, max-margin or contrastive")
            losses = own[structural]
            raise ValueError(f"loss: a {self.role} teacher takes {losses}, got {self.loss!r}")
        return self


class Student(Section):
    model: str = "allenai/longformer-base-4096"
    # lead: a mean in which the beginning counts more; first: the first token, [CLS] of a BERT; cls:
    # the same with global attention, unpacked and slow
    pooling: Literal["mean", "lead", "first", "cls"] = "mean"
    layers: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, min_length=1
    )  # those to keep; None: all
    max_tokens: MaxTokens = 4096  # positions, special tokens included
    # two-sided and even, as in transformers; None: as in the checkpoint
    attention_window: int | None = Field(512, ge=4, le=2**21, multiple_of=2)
    dropout: float | None = Field(None, ge=0, lt=1)  # None: as in the checkpoint
    # Width of a lexical half, fitted after training on the words of the corpus' train split; 0:
    # none
    lexical: int = Field(0, ge=0, le=WIDEST)
    lexical_words: int = Field(50_000, ge=2)  # size of its vocabulary at most


class Training(Section):
    """Tables 4.4 and 5.2; AdamW with betas 0.9 and 0.999, no decay on biases and LayerNorm, cosine
    decay to 0.
    """

    epochs: int = Field(1, ge=1)
    batch_size: int = Field(6, ge=2)  # documents whose losses are computed together
    accumulation: int = Field(1, ge=1)  # batches per update, over all processes
    learning_rate: float = Field(1e-4, gt=0)
    warmup: float = Field(0.1, ge=0)  # below 1: share of the updates; from 1: their number
    weight_decay: float = Field(0.1, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    precision: Literal["bf16", "fp16", "fp32"] | None = (
        None  # autocast; None: as DOCEMB_PRECISION says
    )
    attention: Literal["blocks", "varlen"] | None = (
        None  # None: the faster for device and precision
    )
    # SoftCCA: mean over the P^2 - P off-diagonal cells of a covariance; or, as the thesis writes
    # it, their sum with delta / (P^2 - P): equal except for rounding
    sdl: Literal["mean", "sum"] = "mean"
    ridge: float = Field(
        1e-3, ge=0
    )  # CCA: added to the variances of both views; on trained projections CCA is DCCA
    # The settings below change results by rounding only (NOT_IN_FINGERPRINT).
    # Recompute the activations of a layer in the backward pass: less memory, a third more time.
    # None: where a batch of the longest documents would not fit otherwise (the thesis: on, for 12
    # GB).
    checkpointing: bool | None = None
    batch_tokens: int | None = Field(
        None, ge=1
    )  # of one forward pass, with padding; None: as many as fit into memory
    compile: bool | None = (
        None  # torch.compile the layers, takes a minute; None: on GPUs where it works
    )
    save_every: int = Field(500, ge=1)  # updates between checkpoints, the most that a kill costs
    log_every: int = Field(10, ge=1)  # updates between two rows of the history
    report_to: list[
        str
    ] = []  # trackers beside the history, as transformers names them: tensorboard, wandb, …

    def check_fills_a_batch(self, documents: int, section: str = "training") -> None:
        """Raise InputError for less than one batch. section: that of these settings."""
        if documents < self.batch_size:
            mend = f"give {self.batch_size} or more, or lower {section}.batch_size"
            problem = f"{documents} training documents do not fill one batch"
            raise InputError(f"documents: {problem}; {mend}")


class SimDE(Section):
    """Learning from pairs of texts of one document, without a teacher (the SimDE paper, Sections 3
    and 4).

    The notebook parameters `pairs`, `pair_temperature`, `mlm_weight` and `beside_teachers` set the
    pairs and weights.
    """

    language: str = "en"  # ISO 639; decides which abbreviations end no sentence
    max_tokens: MaxTokens | None = (
        None  # of each text of a pair; None: as many as the student reads
    )
    dropout: float | None = Field(
        None, ge=0, lt=1
    )  # of the student while it is trained; None: as student.dropout
    # Encoder of the sentences that 07_simde compares (Table 5), pooled by [CLS]; None: the
    # structural teacher as it is
    sentence_encoder: str | None = None  # hub id or absolute path
    # The paper's values for BERT; its Longformer had batches of 12. Warm-up and decay, which it
    # does not give: BERT's.
    training: Training = Training(batch_size=36, learning_rate=5e-5, weight_decay=0.01)


class HeadSettings(Section):
    """How a classification head on frozen embeddings is trained (Tables 4.3 and 5.6)."""

    # Width of the hidden layer; 0: none, a logistic regression (C = 10) on embeddings of a mean
    # squared length of 1, which learns from a hundred examples what an MLP of few steps does not.
    # It reads no other field but pair_features.
    hidden: int = Field(50, ge=0)
    dropout: float = Field(0.5, ge=0, lt=1)  # after the ReLU
    epochs: int = Field(10, ge=1)  # the weights after the last one are scored: no selection
    batch_size: int = Field(32, ge=1)  # the last short batch is kept
    learning_rate: float = Field(1e-4, gt=0)  # at the first step; cosine decay to 0, no warm-up
    weight_decay: float = Field(0.1, ge=0)  # AdamW, not on biases
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    max_grad_norm: float = Field(1.0, gt=0)  # clips each head by the norm of that head
    pair_features: PairFeatures = (
        "concat"  # [e0; e1] (thesis), or interaction: [|e0 - e1|; sqrt(D) * e0 * e1]
    )


HEADS: Mapping[str, HeadSettings] = {
    "thesis": HeadSettings(),
    "simde": HeadSettings(
        learning_rate=3e-4, batch_size=8
    ),  # the paper gives these two values for its MLP
    # Ten epochs of a hundred examples leave a head at chance level.
    "few-shot": HeadSettings(learning_rate=3e-4, batch_size=8, epochs=300),
}


class OwnTask(Section):
    """A task from data files of the user (.jsonl, .csv, .tsv or .parquet), relative to the folder
    of the profile.

    A classification may also be a folder that holds a folder of texts for each class, or such
    folders by split.
    """

    name: str = Field(pattern="^[^/]+$")
    kind: Literal["classification", "pairs", "retrieval"]
    path: (
        Path | dict[SplitName, Path]
    )  # one file or folder, or one per split; retrieval: the documents
    text_field: str = "text"
    second_field: str = "second"  # pairs: the field of the second text
    label_field: str = "label"
    split_field: str = (
        "split"  # one file: train, validation or test; where it is missing, splits are drawn
    )
    share: float = Field(
        0.2, gt=0, lt=0.5
    )  # of the examples drawn for test, and as many for validation
    seed: Seed = 0  # of this draw
    id_field: str = "id"  # retrieval: the field of a document's id
    relevance: Path | dict[SplitName, Path] | None = (
        None  # retrieval: pairs of ids, a document and one to be found
    )
    # retrieval: words that begin with a capital letter are removed, so that none is a key
    mask_names: bool = False

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if (self.kind == "retrieval") != (self.relevance is not None):
            mend = "add it" if self.relevance is None else "leave it out"
            problem = (
                "relevance (a file of pairs of ids) belongs to every retrieval task, to no other"
            )
            raise ValueError(f"{problem}; {mend}")
        if self.mask_names and self.kind != "retrieval":
            raise ValueError("mask_names belongs to retrieval tasks; leave it out")
        if self.kind == "retrieval" and isinstance(self.path, dict):
            problem = "path of a retrieval task is one file of documents for all splits"
            raise ValueError(f"{problem}; name one file, and give relevance a file per split")
        return self


class Evaluation(Section):
    """The tasks, and how models are scored on them.

    Runs are scored on validation splits (Section 4.3), the final evaluation on whole test splits
    (Section 5.2).
    """

    # Names of EMBEDDED_TASKS, BenchmarkName, SimDEName or own_tasks.
    tasks: list[str] = Field(["halves"], min_length=1)  # of the final evaluation
    sweep_tasks: list[str] = Field(["halves"], min_length=1)  # of every run
    own_tasks: list[OwnTask] = []
    benchmarks: dict[
        BenchmarkName | SimDEName, str
    ] = {}  # where one lies: a folder (SimDEName: or file), or a hub id
    seeds: int = Field(5, ge=1)  # heads trained per score; the spread is over them
    texts: int = Field(800, ge=16)  # of an embedded task, at most; a half of a document is one
    head: Annotated[HeadSettings, BeforeValidator(_head_of_that_name)] = (
        HeadSettings()
    )  # or a name of HEADS
    limit: int = Field(
        10_000, ge=1
    )  # runs: examples of each split of a task with heads, classes keep their shares
    folds: int = Field(
        5, ge=2
    )  # runs: of the cross-validation of such a task, where it has no validation split
    map_at: int | None = Field(
        None, ge=1
    )  # MAP over so many first hits, 1000 in Table 5.7; None: over all
    # Final: other models that are scored, too, by hub id or absolute path, each with the prompt
    # that it wants before a text; "": none
    beside: dict[str, str] = {}
    few_shot: list[Annotated[int, Field(ge=1)]] = [
        2,
        5,
        10,
    ]  # 07_simde: heads learn from so many of each class
    # 07_simde: so many of each class of a task in the table beside the paper; `other`: of the tasks
    # without a number
    few_shot_table: dict[str, Annotated[int, Field(ge=1)]] = {
        "other": 5,
        "fakenews": 10,
        "arxiv-abstracts": 10,
    }
    # Final: heads learn from so many examples, of two classes; None: from all
    rounds: list[Annotated[int, Field(ge=2)] | None] = Field([None], min_length=1)

    @model_validator(mode="after")
    def _known_tasks(self) -> Self:
        sizes = [inf if size is None else size for size in self.rounds]
        if sizes != sorted({*sizes}):  # the last one is compared
            problem = f"rounds must ascend, with null as the last, got {self.rounds}"
            raise ValueError(f"{problem}; write them in this order")
        own, benchmarks = (
            [task.name for task in self.own_tasks],
            (*get_args(BenchmarkName), *get_args(SimDEName)),
        )
        given = (*EMBEDDED_TASKS, *benchmarks)
        if taken := [name for n, name in enumerate(own) if name in (*given, *own[:n])]:
            raise ValueError(
                f"own_tasks: there is a task {taken[0]!r} already; choose another name"
            )
        for name in (*self.tasks, *self.sweep_tasks):
            if name not in (*given, *own):
                known = ", ".join((*given, *own))
                mend = "name one of these, or define it in own_tasks"
                raise ValueError(f"there is no task {name!r}; known are {known}; {mend}")
            if name in benchmarks and name not in (*ON_HUB, *self.benchmarks):
                raise ValueError(
                    f"benchmarks: {name} is on no hub; name the folder that holds its files"
                )
        return self
