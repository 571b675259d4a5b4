"""The sections of a profile, one frozen model each: corpus, teachers, student, training and so on.

The comment of a field gives the unit of its value, or the reason.
"""

import re
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from docemb_lib.base.errors import InputError, nearest, repeated
from docemb_lib.base.files import known_encoding
from docemb_lib.settings.projections import WIDEST, parse_projection

EMBEDDED_TASKS = ("package", "see-also-pairs", "halves", "see-also-retrieval")
LINKED_TASKS = ("package", "see-also-pairs", "see-also-retrieval")  # need links between the pages
BenchmarkName = Literal["arxiv", "imdb", "aan", "oc", "s2orc", "pan", "wines", "games"]
SimDEName = Literal["fakenews", "20news", "arxiv-abstracts", "nyt", "bbcnews"]
ON_HUB = ("arxiv", "imdb", "20news", "bbcnews")  # the authors publish the others as files
STRUCTURAL_LOSSES = ("mse", "cosine", "max-margin", "contrastive")
USER_CLASS = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"  # the import path of a class, module:Class


class ContextualKind(NamedTuple):
    """What a contextual loss is."""

    kind: str  # its class in `docemb_lib.losses`
    parameters: tuple[str, ...] = ()  # those that set it


SOFT_CCA = ContextualKind("SoftCCA", ("delta", "beta"))
# soft-cca:covariance has that form whatever training.sdl says.
CONTEXTUAL_LOSSES = {
    "soft-cca": SOFT_CCA,
    "soft-cca:correlation": SOFT_CCA,
    "soft-cca:covariance": SOFT_CCA,
    "mse": ContextualKind("MSE"),
    "cosine": ContextualKind("Cosine"),
    "infonce": ContextualKind("InfoNCE"),
    "cca": ContextualKind("CCA"),
}
Value = TypeVar("Value")
SplitName = Literal["train", "validation", "test"]
Long = Literal["truncate", "chunks"]
PairFeatures = Literal["concat", "interaction"]
ContextualName = Literal["DM", "DBOW", "PV", "LSA"]
# An error of two modules.
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


def _no_null(value: object) -> object:
    if isinstance(value, str) and value.lower() in {"null", "none"}:
        raise ValueError(
            f"got the string {value!r}; to switch it off write None (`-p NAME None`; in YAML: null)"
        )
    return value


def _projection(value: object) -> object:
    """The text of a projection, which papermill and YAML read as a number if it is one width."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str):
        parse_projection(text)
    return text


def _structural_loss(value: str) -> str:
    """One of docemb's losses, or the import path of a loss."""
    if value not in STRUCTURAL_LOSSES and not re.fullmatch(USER_CLASS, value):
        allowed = (*STRUCTURAL_LOSSES, "module:Class")
        raise ValueError(f"there is no such loss{nearest(value, allowed)}")
    return value


def _contextual_loss(value: str) -> str:
    if value not in CONTEXTUAL_LOSSES:
        raise ValueError(f"there is no such loss{nearest(value, CONTEXTUAL_LOSSES)}")
    return value


def _head_of_that_name(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in HEADS:
        raise ValueError(f"there is no head {value!r}; write {' or '.join(HEADS)}, or a mapping")
    return HEADS[value]


def _no_bool(value: object) -> object:
    if isinstance(value, bool):  # pydantic reads `off` and `true` as 0 and 1
        raise ValueError("must be a number")
    return value


Int = Annotated[int, BeforeValidator(_no_bool)]
Float = Annotated[float, BeforeValidator(_no_bool)]
OrNone = Annotated[Value | None, BeforeValidator(_no_null)]  # None switches the field off
ProjectionSpec = Annotated[str, BeforeValidator(_projection)]
Seed = Annotated[Int, Field(ge=0, lt=2**32)]  # what generators take
MaxTokens = Annotated[Int, Field(ge=8, le=2**20)]
StructuralLoss = Annotated[str, AfterValidator(_structural_loss)]
ContextualLoss = Annotated[str, AfterValidator(_contextual_loss)]
Count = Annotated[Int, Field(ge=1)]
Several = Annotated[Int, Field(ge=2)]  # two or more
Width = Annotated[Int, Field(ge=2, le=WIDEST)]  # dimensions of an embedding
Positive = Annotated[Float, Field(gt=0)]
NotNegative = Annotated[Float, Field(ge=0)]
Share = Annotated[Float, Field(ge=0, lt=1)]
MinCount = Count | Literal["10%"]
Names = Annotated[list[str], Field(min_length=1)]
Encoding = Annotated[str, AfterValidator(known_encoding)]
TextFields = str | Names


class Section(BaseModel):
    """A frozen model that refuses unknown keys and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: object) -> object:
        """Name the nearest known key, which pydantic does not do."""
        for name in given if isinstance(given, dict) else ():
            if name not in cls.model_fields:
                raise ValueError(f"unknown key {name!r}{nearest(str(name), cls.model_fields)}")
        return given


class HubDataset(Section):
    """A data set that `datasets.load_dataset` streams."""

    dataset: str  # hub id, or a folder of which `datasets` finds the splits by the names of files
    config: str | None = None
    split: str = "train"
    text_field: str = "text"
    # Leave out shorter documents, in tokens of the student without special tokens.
    min_student_tokens: Count | None = None


class TextSource(Section):
    """Where text comes from."""

    source: Literal["installed-docs", "local", "hub"] = "installed-docs"
    # installed-docs: import names; None: the eleven of installed_docs.PACKAGES
    packages: Names | None = None
    # local: a folder of .txt/.md files, a data file (.jsonl, .csv, .tsv, .parquet), a pattern such
    # as news/*.jsonl.gz, or a list of them, relative to the folder of this profile
    path: Path | list[Path] | None = None
    # of local data files; several are joined
    text_field: TextFields = "text"
    # of local data files; None: the first of id, _id, doc_id, docid, uid and uuid, or the number of
    # the row where there is none
    id_field: str | None = None
    skip_bad: bool = False  # local: leave out files and rows that cannot be read, and say so
    encoding: Encoding | None = None  # of local files; None: UTF-8, or UTF-16 where its mark stands
    datasets: list[HubDataset] = []  # hub: equal shares of each
    # Maximum; None: all. For a hub None must be written: all documents of the first data set, and
    # as many of each other one
    documents: Count | None = None
    # Of sampling and splitting (Section 5.1); runs of every seed share their corpus
    seed: Seed = 42

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

    validation: Several = 200  # documents of the validation split
    tasks: Int = Field(200, ge=20)  # documents held out for the tasks, from all training


class StructuralTeacher(Section):
    """The structural teacher, a model of sentence-transformers."""

    model: str = "sentence-transformers/all-mpnet-base-v2"
    max_tokens: MaxTokens | None = 384  # with special tokens; None: the limit of the model
    # Beyond max_tokens: cut, or the mean over chunks weighted by tokens
    long: Long = "truncate"


class ParagraphVectorSettings(Section):
    """One Doc2Vec of gensim. What Table 4.5 of the thesis holds fixed is no setting."""

    dm: bool
    vector_size: Width = 100
    min_count: MinCount = 2
    preprocess: Literal["none", "lowercase", "stem"] = "lowercase"
    epochs: Count = 10
    dbow_words: bool = True  # DBOW also trains word vectors (skip-gram), several times slower
    workers: Count = 1  # training threads; training is repeatable with one only
    # Cap on the words kept while counting (the thesis' last teachers: 60 and 12 million); the words
    # that are dropped then depend on the order of the documents. None: no cap
    max_vocab_size: Count | None = None

    @property
    def described(self) -> str:
        """The label, and what differs from Table 4.5, for example `DBOW;100;None;2;epochs=20`."""
        names = {"epochs"} if self.dm else {"epochs", "dbow_words"}
        others = self.model_dump(include=names, exclude_defaults=True)
        label = label_of_paragraph_vector(**self.model_dump(include={*SINGLE}))
        return ";".join([label, *(f"{name}={value}" for name, value in others.items())])


def label_of_paragraph_vector(
    *, dm: bool, vector_size: int, preprocess: str, min_count: int | str
) -> str:
    """The label in the figures of the thesis: `DM;100;lowercase;2`."""
    architecture = "DM" if dm else "DBOW"
    if preprocess == "none":
        preprocess = "None"
    return f"{architecture};{vector_size};{preprocess};{min_count}"


# The Paragraph Vectors of the compound teacher in the thesis.
LARGE_DM = ParagraphVectorSettings(dm=True, vector_size=1024, preprocess="stem")
LARGE_DBOW = ParagraphVectorSettings(dm=False, vector_size=1024, preprocess="none")


class ContextualTeachers(Section):
    """The contextual teachers by name (Section 5.1.2).

    PV concatenates its members, DM before DBOW.
    """

    # The text that they are fitted on, without the documents that the students' corpus holds out;
    # None: the train split of that corpus
    corpus: TextSource | None = None
    # Fit on the first so many of these documents; None: on all
    documents: Several | None = None
    DM: ParagraphVectorSettings = ParagraphVectorSettings(dm=True)
    DBOW: ParagraphVectorSettings = LARGE_DBOW
    PV: list[ParagraphVectorSettings] = Field([LARGE_DM, LARGE_DBOW], min_length=1)
    lsa_dim: Width = 300

    def members(self, name: str) -> list[ParagraphVectorSettings]:
        """The Paragraph Vectors of a contextual teacher: one, for PV several, for LSA none."""
        return {"DM": [self.DM], "DBOW": [self.DBOW], "PV": self.PV}.get(name, [])

    def width(self, name: str) -> int:
        """The width of a contextual teacher's embeddings, without fitting the teacher."""
        if name == "LSA":
            return self.lsa_dim
        return sum(member.vector_size for member in self.members(name))


class Student(Section):
    """The encoder that is trained, and the half of words of its embeddings."""

    model: str = "allenai/longformer-base-4096"
    # mean: over all tokens; lead: a mean in which the beginning counts more; first: the first
    # token, [CLS] of a BERT; cls: the first token with global attention; global: the mean over all
    # tokens with global attention of the first. The thesis tried and rejected the last two, which
    # are unpacked and slow
    pooling: Literal["mean", "lead", "first", "cls"] = "mean"
    # The layers to keep; None: all
    layers: list[Annotated[Int, Field(ge=0)]] | None = Field(None, min_length=1)
    max_tokens: MaxTokens = 4096  # positions, special tokens included
    # Two-sided and even, as in transformers; None: as in the checkpoint
    attention_window: Int | None = Field(512, ge=4, le=2**21, multiple_of=2)
    dropout: Share | None = None  # None: as in the checkpoint
    # Width of a half of words, fitted after training on the words of the corpus' train split; 0:
    # none
    words: Int = Field(0, ge=0, le=WIDEST)


class Decorrelation(Section):
    """SoftCCA's soft decorrelation loss (SDL) of a view Z (Equations 4.10 to 4.14)."""

    # correlation: of Z after batch normalisation, as the author's code; covariance: of Z as it is,
    # as printed
    form: Literal["correlation", "covariance"] = "correlation"
    # Over the P^2 - P off-diagonal cells: their mean, as the author's code; or as printed their sum
    # with delta / (P^2 - P), which is the same loss except for rounding
    reduction: Literal["mean", "sum"] = "mean"


class Training(Section):
    """How a student is trained (Tables 4.4 and 5.2).

    The optimiser is AdamW with betas 0.9 and 0.999, without decay of biases and LayerNorm. The
    learning rate decays to 0 along a cosine.
    """

    epochs: Count = 1
    batch_size: Several = 6  # documents whose losses are computed together
    accumulation: Count = 1  # batches per update of a process
    learning_rate: Positive = 1e-4
    warmup: NotNegative = 0.1  # below 1: share of the updates; from 1: their number
    weight_decay: NotNegative = 0.1
    max_grad_norm: Positive = 1.0
    # Of autocast; None: as DOCEMB_PRECISION says
    precision: Literal["bf16", "fp16", "fp32"] | None = None
    sdl: Decorrelation = Decorrelation()  # of SoftCCA
    # CCA: added to the variances of both views; on trained projections CCA is DCCA
    ridge: NotNegative = 1e-3
    # Of the loss, the spread and the correlations on the validation documents: before the first
    # update, after the last, and at even steps between
    validations: Several = 20

    # The settings below change results by rounding only (NOT_IN_FINGERPRINT).

    # Recompute the activations of a layer in the backward pass: less memory, a third more time.
    # None: only if a batch of the longest documents does not fit otherwise (the thesis: on, for
    # 12 GB)
    checkpointing: bool | None = None
    # Of one forward pass, with padding; None: as many as fit into memory
    batch_tokens: Count | None = None
    # torch.compile the layers, which takes a minute; None: on GPUs where it works
    compile: bool | None = None
    save_every: Count = 500  # updates between checkpoints, the most that a kill costs
    log_every: Count = 10  # updates between two rows of the history
    # Trackers beside the history, as transformers names them: tensorboard, wandb, …
    report_to: list[str] = []

    def check_fills_a_batch(self, documents: int, section: str = "training") -> None:
        """Raise InputError for less than one batch. section: the name of these settings."""
        if documents < self.batch_size:
            raise InputError(
                f"documents: {documents} training documents do not fill one batch; "
                f"give {self.batch_size} or more, or lower {section}.batch_size"
            )


class SimDE(Section):
    """Learning from pairs of texts of one document, without a teacher (Sections 3 and 4 of SimDE).

    The notebook parameters `pairs`, `pair_temperature` and `mlm_weight` set the pairs and weights.
    """

    language: str = "en"  # ISO 639; decides which abbreviations end no sentence
    # Of each text of a pair; None: as many as the student reads
    max_tokens: MaxTokens | None = None
    # Of the student while it is trained; None: as student.dropout
    dropout: Share | None = None
    # The paper's values for BERT; its Longformer had batches of 12. Warm-up and decay are BERT's,
    # since the paper gives none.
    training: Training = Training(batch_size=36, learning_rate=5e-5, weight_decay=0.01)


class HeadSettings(Section):
    """How a classification head on frozen embeddings is trained (Tables 4.3 and 5.6)."""

    # Width of the hidden layer; 0: no such layer, but a logistic regression (C = 10) on embeddings
    # of a mean squared length of 1, which learns from a hundred examples what an MLP of few steps
    # does not, and reads no other field but pair_features
    hidden: Int = Field(50, ge=0)
    dropout: Share = 0.5  # after the ReLU
    epochs: Count = 10  # the weights after the last one are scored: no selection
    batch_size: Count = 32  # the last short batch is kept
    learning_rate: Positive = 1e-4  # at the first step; cosine decay to 0, no warm-up
    weight_decay: NotNegative = 0.1  # AdamW, not on biases
    label_smoothing: Share = 0.1
    max_grad_norm: Positive = 1.0  # clips each head by the norm of that head
    # concat: [e0; e1] (thesis); interaction: [|e0 - e1|; sqrt(D) * e0 * e1]
    pair_features: PairFeatures = "concat"


HEADS: Mapping[str, HeadSettings] = {
    "thesis": HeadSettings(),
    # The paper gives these two values for its MLP.
    "simde": HeadSettings(learning_rate=3e-4, batch_size=8),
    # Ten epochs of a hundred examples leave a head at chance level.
    "few-shot": HeadSettings(learning_rate=3e-4, batch_size=8, epochs=300),
}


class OwnTask(Section):
    """A task from data files of the user: .jsonl, .json, .csv, .tsv or .parquet.

    Paths are relative to the folder of the profile. A classification may also be a folder that
    holds a folder of texts for each class, or such folders by split.
    """

    name: str = Field(pattern="^[^/]+$")
    kind: Literal["classification", "pairs", "retrieval", "scored-pairs"]
    # One file or folder, or one per split; retrieval, scored-pairs: the documents
    path: Path | dict[SplitName, Path]
    text_field: TextFields = "text"  # several are joined
    second_field: str = "second"  # pairs: the field of the second text
    label_field: str = "label"
    # One file: train, validation or test; None: `split`; where that is missing, splits are drawn
    split_field: str | None = None
    share: Float = Field(0.2, gt=0, lt=0.5)  # of examples drawn for test, as many for validation
    seed: Seed = 0  # of this draw
    id_field: str | None = None  # the field of a document's id; None: as of a corpus
    skip_bad: bool = False  # leave out rows that cannot be read, and say so
    encoding: Encoding | None = None  # of the files, as of a corpus
    # retrieval: a file of queries that are no documents; None: documents are the queries
    queries: Path | None = None
    # retrieval: pairs of ids, a document or query and a document to be found; None: `path` is a
    # folder with corpus.jsonl, queries.jsonl and qrels, as those of BEIR. scored-pairs: ids of two
    # documents and a number, which says how similar they are
    relevance: Path | dict[SplitName, Path] | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.kind not in ("retrieval", "scored-pairs"):
            for name in ("queries", "relevance"):
                if getattr(self, name):
                    raise ValueError(f"{name} belongs to retrieval tasks; leave it out")
            return self
        if isinstance(self.path, dict):
            raise ValueError(
                f"path of a {self.kind} task is one file of documents for all splits; "
                "name one file, and give relevance a file per split"
            )
        if self.relevance is None and (self.queries or not self.path.is_dir()):
            raise ValueError(
                f"relevance (a file of pairs of ids) is missing; add it, or let path {self.path} "
                "be a folder of BEIR's layout, without queries"
            )
        return self


class Evaluation(Section):
    """The tasks, and how models are scored on them.

    Runs are scored on validation splits (Section 4.2), the final evaluation on whole test splits
    (Section 5.2).
    """

    # Names of EMBEDDED_TASKS, BenchmarkName, SimDEName or own_tasks.
    tasks: Names = ["halves"]  # of the final evaluation
    sweep_tasks: Names = ["halves"]  # of every run
    own_tasks: list[OwnTask] = []
    # Where a benchmark lies: a folder (SimDEName: or file), or a hub id
    benchmarks: dict[BenchmarkName | SimDEName, str] = {}
    seeds: Count = 5  # heads trained per score; the spread is over them
    texts: Int = Field(800, ge=16)  # of an embedded task, at most; a half of a document is one
    # Of a task with heads, or a name of HEADS
    head: Annotated[HeadSettings, BeforeValidator(_head_of_that_name)] = HeadSettings()
    # Runs: examples of each split of a task with heads; classes keep their shares
    limit: Count = 10_000
    # Runs: of the cross-validation of a task with heads, where it has no validation split
    folds: Several = 5
    # MAP over the entire ordering (None), as section 5.3 says; 1000: over the first hits alone, as
    # the author's code does
    map_at: Count | None = None
    # Final: other models that are scored, too, by hub id or absolute path, each with the prompt
    # that it wants before a text; "": none
    beside: dict[str, str] = {}
    # 07_simde: heads learn from so many examples of each class
    few_shot: list[Count] = [2, 5, 10]
    # 07_simde: so many examples of each class of a task in the table beside the paper; `other`: of
    # the tasks without a number
    few_shot_table: dict[str, Count] = {"other": 5, "fakenews": 10, "arxiv-abstracts": 10}
    # Final: heads learn from so many examples, of two classes; None: from all
    rounds: list[Several | None] = Field([None], min_length=1)

    @property
    def largest_round(self) -> int | None:
        """The round with most training examples of the heads; None: with all of them."""
        return self.rounds[-1]

    @model_validator(mode="after")
    def _known_tasks(self) -> Self:
        sizes = [inf if size is None else size for size in self.rounds]
        if sizes != sorted({*sizes}):  # the last one is compared
            raise ValueError(
                f"rounds must ascend, with null as the last, got {self.rounds}; "
                "write them in this order"
            )
        benchmarks = (*get_args(BenchmarkName), *get_args(SimDEName))
        known = [*EMBEDDED_TASKS, *benchmarks, *(task.name for task in self.own_tasks)]
        taken = repeated(known)
        if taken is not None:
            raise ValueError(f"own_tasks: there is a task {taken!r} already; choose another name")
        for name in (*self.tasks, *self.sweep_tasks):
            if name not in known:
                raise ValueError(
                    f"there is no task {name!r}; known are {', '.join(known)}; "
                    "name one of these, or define it in own_tasks"
                )
            if name in benchmarks and name not in (*ON_HUB, *self.benchmarks):
                raise ValueError(
                    f"benchmarks: {name} is on no hub; name the folder that holds its files"
                )
        return self
