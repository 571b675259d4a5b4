"""What all sections of a profile are, and the types that several of them share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

# ---- what all sections of a profile are


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


NoNull = BeforeValidator(_no_null)  # of what None switches off
ProjectionSpec = Annotated[str, BeforeValidator(_as_text)]  # papermill and YAML read a single width as a number
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


# ---- Where the text comes from.


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
    packages: list[str] | None = None  # installed-docs: which packages; None: all that docemb knows
    # local: a folder of .txt/.md files, a data file (.jsonl, .csv, .tsv, .parquet), a pattern such as news/*.jsonl.gz,
    # or a list of them, relative to this profile's own folder
    path: Path | list[Path] | None = None
    text_field: str = "text"  # local data files
    id_field: str = "id"  # local data files; where it is missing, the number of the row
    datasets: list[HubDataset] = []  # hub: equal shares of each
    # At most so many; None: all. Of a hub None has to be written: all of the first data set, as many of each other one.
    documents: int | None = Field(None, ge=1)
    # Leave out a document that shares so much with an earlier one (Jaccard index of their runs of five words); needs
    # the extra `dedup`. None: exact copies only.
    near_duplicates: float | None = Field(None, gt=0, lt=1)
    seed: int = Field(42, ge=0)  # of sampling and splitting (Section 5.1); runs of every seed share their corpus

    @model_validator(mode="after")
    def _fits_its_source(self) -> Self:
        if self.source == "local" and self.path is None:
            raise ValueError("path is missing: name a folder of .txt/.md files or a data file")
        if self.source == "hub" and not self.datasets:
            raise ValueError("datasets is missing: name at least one data set of the hub")
        if self.source == "hub" and "documents" not in self.model_fields_set:
            raise ValueError("documents is missing: say how many documents to take from the hub; null: all")
        return self


class Corpus(TextSource):
    """The students' text, and what of it is set apart from all training."""

    validation: int = Field(200, ge=2)  # documents of the validation split
    tasks: int = Field(200, ge=20)  # documents held out for the tasks, from all training


# ---- Whom students learn from.


ContextualName = Literal["DM", "DBOW", "PV", "LSA"]


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

    # What they are fitted on, but for documents that the students' corpus holds out; None: the students' train split.
    corpus: TextSource | None = None
    documents: int | None = Field(None, ge=2)  # fit on the first so many of these documents; None: on all
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

    def members(self, name: str) -> list[ParagraphVectorSettings]:
        """The Paragraph Vectors of a contextual teacher: one of DM and DBOW, several of PV, none of LSA."""
        return {"DM": [self.DM], "DBOW": [self.DBOW], "PV": self.PV}.get(name, [])

    def width(self, name: str) -> int:
        """The width of a contextual teacher's embeddings, without fitting the teacher."""
        return self.lsa_dim if name == "LSA" else sum(member.vector_size for member in self.members(name))


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


# ---- What is trained, and how.


class Student(Section):
    model: str = "allenai/longformer-base-4096"
    # first: the first token, [CLS] of a BERT; cls: the same with global attention, unpacked and slow
    pooling: Literal["mean", "first", "cls"] = "mean"
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


# ---- How a student learns without a teacher.


class SimDE(Section):
    """Learning from pairs of texts made of one document (the SimDE paper, Sections 3 and 4).

    Which pairs and what weighs how much are notebook parameters: `pairs`, `pair_temperature`, `mlm_weight` and
    `beside_teachers`.
    """

    symmetric: bool = False  # find the first text by the second, too
    language: str = "en"  # ISO 639: which abbreviations end no sentence
    max_tokens: int | None = Field(None, ge=8)  # of each text of a pair; None: as many as the student reads
    dropout: float | None = Field(None, ge=0, lt=1)  # of the student meanwhile; None: as student.dropout
    # The paper's, for BERT; its Longformer had batches of 12. Warm-up and decay, of which it is silent, are BERT's.
    training: Training = Training(batch_size=36, learning_rate=5e-5, weight_decay=0.01)
