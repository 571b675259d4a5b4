"""The sections of a profile: corpus, teachers, student, training, SimDE and evaluation, one frozen model each.

A comment beside a field gives the unit or the reason of its value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from docemb_lib.projections import WIDEST, parse_projection

EMBEDDED_TASKS = ("package", "see-also-pairs", "halves", "see-also-retrieval")
LINKED_TASKS = ("package", "see-also-pairs", "see-also-retrieval")  # need links between the pages
BenchmarkName = Literal["arxiv", "imdb", "aan", "oc", "s2orc", "pan", "wines", "games"]
SimDEName = Literal["fakenews", "20news", "arxiv-abstracts", "nyt", "bbcnews"]
ON_HUB = ("arxiv", "imdb", "20news", "bbcnews")  # the authors publish the others as files
STRUCTURAL_LOSSES = ("mse", "cosine", "max-margin", "contrastive")
CONTEXTUAL_LOSSES = ("soft-cca", "mse", "cca", "cca:10")  # the last with any number of components
_CONTEXTUAL_LOSS = re.compile(r"soft-cca|mse|cca(:[1-9][0-9]{0,4})?")
MTEB = "mteb:"  # prefix of the tasks of that benchmark, which needs the extra `mteb`
SplitName = Literal["train", "validation", "test"]
Long = Literal["truncate", "chunks", "lead"]
PairFeatures = Literal["concat", "interaction"]
ContextualName = Literal["DM", "DBOW", "PV", "LSA"]
# Settings of `Training` that do not change a result. `precision` and `batch_size` do.
NOT_IN_FINGERPRINT = {"checkpointing", "batch_tokens", "compile", "save_every", "log_every", "report_to"}


def _no_null(value: Any) -> Any:
    if isinstance(value, str) and value.lower() in {"null", "none"}:
        raise ValueError(f"got the string {value!r}; to switch it off write None (`-p NAME None`; in YAML: null)")
    return value


def _min_count(value: Any) -> Any:
    if value == "10%" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError("must be an integer from 1, or '10%'")


def _loss_name(value: Any) -> Any:
    if value is None or value in STRUCTURAL_LOSSES or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", str(value)):
        return value
    raise ValueError(f"must be one of {', '.join(STRUCTURAL_LOSSES)}, or the import path of a loss, module:Class")


def _contextual_loss(value: Any) -> Any:
    if _CONTEXTUAL_LOSS.fullmatch(str(value)):
        return value
    raise ValueError(f"must be one of {', '.join(CONTEXTUAL_LOSSES)} (the first ten correlations)")


def _projection(value: Any) -> Any:
    """The text of a projection, which papermill and YAML read as a number where it is a single width."""
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
MaxTokens = Annotated[int, Field(ge=8, le=2**20)]
StructuralLoss = Annotated[str, BeforeValidator(_loss_name)]
ContextualLoss = Annotated[str, BeforeValidator(_contextual_loss)]
MinCount = Annotated[int | str, BeforeValidator(_min_count)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true where a number is expected; pydantic would read it as 1."""
        annotation = repr(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(value, bool) and re.search(r"\b(int|float)\b", annotation) and "bool" not in annotation:
            raise ValueError("must be a number")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _no_giant_and_no_twin(cls, value: Any) -> Any:
        """Refuse integers that no generator takes as a seed, and lists that name one thing twice."""
        values = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, int | str)]
        if any(isinstance(one, int) and abs(one) >= 2**32 for one in values):
            raise ValueError("must be below 2**32")
        if twice := [one for one, times in Counter(values).items() if times > 1]:
            raise ValueError(f"names {twice[0]} twice; leave one out")
        return value


class HubDataset(Section):
    """A data set that `datasets.load_dataset` streams."""

    dataset: str  # hub id, local folder, or data files: a path or pattern ending in .jsonl, .csv, .tsv or .parquet
    config: str | None = None
    split: str = "train"
    text_field: str = "text"
    min_words: int | None = Field(None, ge=1)  # leave out shorter documents
    min_student_tokens: int | None = Field(None, ge=1)  # the same in tokens of the student, without special tokens


class TextSource(Section):
    """Where text comes from."""

    source: Literal["installed-docs", "local", "hub"] = "installed-docs"
    # installed-docs: import names; None: the eleven of installed_docs.PACKAGES
    packages: list[str] | None = Field(None, min_length=1)
    # local: a folder of .txt/.md files, a data file (.jsonl, .csv, .tsv, .parquet), a pattern such as news/*.jsonl.gz,
    # or a list of them, relative to the folder of this profile
    path: Path | list[Path] | None = None
    text_field: str = "text"  # of local data files
    id_field: str = "id"  # of local data files; where it is missing, the number of the row
    datasets: list[HubDataset] = []  # hub: equal shares of each
    # Maximum; None: all. For a hub None must be written: all of the first data set, as many of each other one.
    documents: int | None = Field(None, ge=1)
    # Leave out a document whose similarity to an earlier one (Jaccard index of their runs of five words) is at least
    # this; needs the extra `dedup`. None: leave out exact copies only.
    near_duplicates: float | None = Field(None, gt=0, lt=1)
    seed: int = Field(42, ge=0)  # of sampling and splitting (Section 5.1); runs of every seed share their corpus

    @model_validator(mode="after")
    def _fits_its_source(self) -> Self:
        if self.source == "local" and not self.path:
            raise ValueError("path is missing: name a folder of .txt/.md files or a data file")
        if self.source == "hub" and not self.datasets:
            raise ValueError("datasets is missing: name at least one data set of the hub")
        if self.source == "hub" and "documents" not in self.model_fields_set:
            raise ValueError("documents is missing: say how many documents to take from the hub; null: all")
        return self


class Corpus(TextSource):
    """The text of the students, and the parts of it that training leaves out."""

    validation: int = Field(200, ge=2)  # documents of the validation split
    tasks: int = Field(200, ge=20)  # documents held out for the tasks, from all training


class StructuralTeacher(Section):
    model: str = "sentence-transformers/all-mpnet-base-v2"
    max_tokens: MaxTokens | None = 384  # with special tokens; None: the limit of the model
    # Beyond max_tokens: cut, or the mean over chunks weighted by tokens, or the same with the first chunk counted more.
    long: Long = "truncate"
    bf16: bool | None = None  # compute its embeddings in bfloat16; None: where the processor is fast at it


class ParagraphVectorSettings(Section):
    """One gensim Doc2Vec. What Table 4.5 holds fixed is no setting."""

    dm: bool
    vector_size: int = Field(100, ge=2, le=WIDEST)
    min_count: MinCount = 2
    preprocess: Literal["none", "lowercase", "stem"] = "lowercase"
    epochs: int = Field(10, ge=1)
    dbow_words: bool = True  # DBOW also trains word vectors (skip-gram), several times slower
    workers: int = Field(1, ge=1)  # training threads; training is repeatable with one only
    # Cap on the words kept while counting (the thesis' last teachers: 60 and 12 million); the words that are dropped
    # then depend on the order of the documents. None: no cap
    max_vocab_size: int | None = Field(None, ge=1)


class ContextualTeachers(Section):
    """The contextual teachers by name (Section 5.1.2); PV concatenates its members, DM before DBOW."""

    # The text that they are fitted on, without the documents that the students' corpus holds out; None: its train split
    corpus: TextSource | None = None
    documents: int | None = Field(None, ge=2)  # fit on the first so many of these documents; None: on all
    DM: ParagraphVectorSettings = ParagraphVectorSettings(dm=True)
    DBOW: ParagraphVectorSettings = ParagraphVectorSettings(dm=False, vector_size=1024, preprocess="none")
    PV: list[ParagraphVectorSettings] = Field(
        [ParagraphVectorSettings(dm=True, vector_size=1024, preprocess="stem"), DBOW], min_length=1
    )
    lsa_dim: int = Field(300, ge=2, le=WIDEST)

    def members(self, name: str) -> list[ParagraphVectorSettings]:
        """The Paragraph Vectors of a contextual teacher: one of DM and DBOW, several of PV, none of LSA."""
        return {"DM": [self.DM], "DBOW": [self.DBOW], "PV": self.PV}.get(name, [])

    def width(self, name: str) -> int:
        """The width of a contextual teacher's embeddings, without fitting the teacher."""
        return self.lsa_dim if name == "LSA" else sum(member.vector_size for member in self.members(name))


# Columns of a training history, and the names of the first two teachers.
TAKEN_NAMES = {"structural", "contextual", "loss", "step", "epoch", "norm", "spread", "cca"}
STRUCTURAL_ONLY = ("model", "max_tokens", "long", "distance", "gamma", "temperature")  # fields of further teachers


class FurtherTeacher(Section):
    """A teacher of every student besides the structural and the contextual one that the parameters name."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")  # its column in the training history
    role: Literal["structural", "contextual"]  # structural: weight lam and masked by length; contextual: 1 - lam
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

    @field_validator("name")
    @classmethod
    def _free(cls, value: str) -> str:
        if value in TAKEN_NAMES:
            raise ValueError(f"is taken, as are {', '.join(sorted(TAKEN_NAMES))}; choose another")
        return value

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        needed, foreign, losses, known = {
            "structural": ("model", ("teacher",), STRUCTURAL_LOSSES, re.compile("|".join(STRUCTURAL_LOSSES))),
            "contextual": ("teacher", STRUCTURAL_ONLY, CONTEXTUAL_LOSSES, _CONTEXTUAL_LOSS),
        }[self.role]
        if getattr(self, needed) is None:
            raise ValueError(f"{needed} is missing: a {self.role} teacher is named by it")
        for field in foreign:
            if getattr(self, field) != type(self).model_fields[field].default:
                raise ValueError(f"{field} is not for a {self.role} teacher; leave it out")
        if not known.fullmatch(self.loss):
            raise ValueError(f"loss of a {self.role} teacher must be one of {', '.join(losses)}, got {self.loss!r}")
        return self


class Student(Section):
    model: str = "allenai/longformer-base-4096"
    # first: the first token, [CLS] of a BERT; cls: the same with global attention, unpacked and slow
    pooling: Literal["mean", "first", "cls"] = "mean"
    layers: list[Annotated[int, Field(ge=0)]] | None = Field(None, min_length=1)  # those to keep; None: all
    max_tokens: MaxTokens = 4096  # positions, special tokens included
    # two-sided and even, as in transformers; None: as in the checkpoint
    attention_window: int | None = Field(512, ge=4, le=2**21, multiple_of=2)
    dropout: float | None = Field(None, ge=0, lt=1)  # None: as in the checkpoint
    # Width of a lexical half, fitted after training on the words of the corpus' train split; 0: none
    lexical: int = Field(0, ge=0, le=WIDEST)
    lexical_words: int = Field(50_000, ge=2)  # size of its vocabulary at most


class Training(Section):
    """Tables 4.4 and 5.2; AdamW with betas 0.9 and 0.999, no decay on biases and LayerNorm, cosine decay to 0."""

    epochs: int = Field(1, ge=1)
    batch_size: int = Field(6, ge=2)  # documents whose losses are computed together
    accumulation: int = Field(1, ge=1)  # batches per update, over all processes
    learning_rate: float = Field(1e-4, gt=0)
    warmup: float = Field(0.1, ge=0)  # below 1: share of the updates; from 1: their number
    weight_decay: float = Field(0.1, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    precision: Literal["bf16", "fp16", "fp32"] | None = None  # autocast; None: the best for the device
    attention: Literal["blocks", "varlen"] | None = None  # None: the faster for device and precision
    # SoftCCA: mean over the P^2 - P off-diagonal cells of a covariance; or, as the thesis writes it, their sum with
    # delta / (P^2 - P): equal except for rounding
    sdl: Literal["mean", "sum"] = "mean"
    ridge: float = Field(1e-3, ge=0)  # CCA: added to the variances of both views; on trained projections CCA is DCCA
    # The settings below change results by rounding only (NOT_IN_FINGERPRINT).
    # Recompute the activations of a layer in the backward pass: less memory, a third more time. None: where a batch of
    # the longest documents would not fit otherwise (the thesis: on, for 12 GB).
    checkpointing: bool | None = None
    batch_tokens: int | None = Field(None, ge=1)  # tokens in one forward pass; None: as many as fit into memory
    compile: bool | None = None  # torch.compile the layers, takes a minute; None: on GPUs where it works
    save_every: int = Field(500, ge=1)  # updates between checkpoints, the most that a kill costs
    log_every: int = Field(10, ge=1)  # updates between two rows of the history
    report_to: list[str] = []  # trackers beside the history, as transformers names them: tensorboard, wandb, …


class SimDE(Section):
    """Learning from pairs of texts of one document, without a teacher (the SimDE paper, Sections 3 and 4).

    The notebook parameters `pairs`, `pair_temperature`, `mlm_weight` and `beside_teachers` set the pairs and weights.
    """

    language: str = "en"  # ISO 639; decides which abbreviations end no sentence
    max_tokens: MaxTokens | None = None  # of each text of a pair; None: as many as the student reads
    dropout: float | None = Field(None, ge=0, lt=1)  # of the student while it is trained; None: as student.dropout
    # The paper's values for BERT; its Longformer had batches of 12. Warm-up and decay, which it does not give: BERT's.
    training: Training = Training(batch_size=36, learning_rate=5e-5, weight_decay=0.01)


class HeadSettings(Section):
    """How a classification head on frozen embeddings is trained (Tables 4.3 and 5.6)."""

    hidden: int = Field(50, ge=1)  # width of the hidden layer
    dropout: float = Field(0.5, ge=0, lt=1)  # after the ReLU
    epochs: int = Field(10, ge=1)  # the weights after the last one are scored: no selection
    batch_size: int = Field(32, ge=1)  # the last short batch is kept
    learning_rate: float = Field(1e-4, gt=0)  # at the first step; cosine decay to 0, no warm-up
    weight_decay: float = Field(0.1, ge=0)  # AdamW, not on biases
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    max_grad_norm: float = Field(1.0, gt=0)  # clips each head by the norm of that head
    # One factor scales all embeddings to this root mean square on the train split, so that models differ by content and
    # not by scale, to which a head of few steps is sensitive; None: as the model gives them (thesis).
    rms: float | None = Field(None, gt=0)
    pair_features: PairFeatures = "concat"  # [e0; e1] (thesis), or interaction: [|e0 - e1|; e0 * e1]


HEADS: Mapping[str, HeadSettings] = {
    "thesis": HeadSettings(),
    "simde": HeadSettings(learning_rate=3e-4, batch_size=8),  # the paper gives these two values for its MLP
    # Ten epochs of a hundred examples leave a head at chance level.
    "few-shot": HeadSettings(learning_rate=3e-4, batch_size=8, epochs=300),
}


class OwnTask(Section):
    """A task from data files of the user (.jsonl, .csv, .tsv or .parquet), relative to the folder of the profile.

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
    mask_names: bool = False  # retrieval: words that begin with a capital letter are removed, so that none is a key

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if (self.kind == "retrieval") != (self.relevance is not None):
            raise ValueError("relevance, a file of pairs of ids, belongs to every retrieval task and to no other")
        if self.mask_names and self.kind != "retrieval":
            raise ValueError("mask_names belongs to retrieval tasks; leave it out")
        if self.kind == "retrieval" and isinstance(self.path, dict):
            raise ValueError("path of a retrieval task is one file of documents; give relevance a file per split")
        return self


class Evaluation(Section):
    """The tasks, and how models are scored on them.

    Runs are scored on validation splits (Section 4.3), the final evaluation on whole test splits (Section 5.2).
    """

    # Names of EMBEDDED_TASKS, BenchmarkName, SimDEName or own_tasks, and mteb:NAME.
    tasks: list[str] = Field(["halves"], min_length=1)  # of the final evaluation
    sweep_tasks: list[str] = Field(["halves"], min_length=1)  # of every run
    own_tasks: list[OwnTask] = []
    benchmarks: dict[BenchmarkName | SimDEName, str] = {}  # where one lies: a folder (SimDEName: or file), or a hub id
    seeds: int = Field(5, ge=1)  # heads trained per score; the spread is over them
    documents: int = Field(400, ge=8)  # of an embedded task, at most
    head: Annotated[HeadSettings, BeforeValidator(_head_of_that_name)] = HeadSettings()  # or a name of HEADS
    limit: int = Field(10_000, ge=1)  # runs: examples of each split of a task with heads, classes keep their shares
    folds: int = Field(5, ge=2)  # runs: of the cross-validation of such a task, where it has no validation split
    map_at: int | None = Field(None, ge=1)  # MAP over so many first hits, 1000 in Table 5.7; None: over all
    # Final: other models that are scored, too, by hub id or absolute path, each with the prompt that it wants before a
    # text; "": none
    beside: dict[str, str] = {}
    few_shot: list[Annotated[int, Field(ge=1)]] = [2, 5, 10]  # 07_simde: heads learn from so many of each class
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
        own, benchmarks = [task.name for task in self.own_tasks], (*get_args(BenchmarkName), *get_args(SimDEName))
        given = (*EMBEDDED_TASKS, *benchmarks)
        if taken := [name for n, name in enumerate(own) if name in (*given, *own[:n]) or name.startswith(MTEB)]:
            raise ValueError(f"own_tasks: there is a task {taken[0]!r} already; choose another name")
        for name in (*self.tasks, *self.sweep_tasks):
            if not name.startswith(MTEB) and name not in (*given, *own):
                known = ", ".join((*given, *own))
                raise ValueError(f"there is no task {name!r}; known are {known} and {MTEB}NAME; define it in own_tasks")
            if name in benchmarks and name not in (*ON_HUB, *self.benchmarks):
                raise ValueError(f"benchmarks: {name} stands on no hub; name the folder that holds its files")
        return self
