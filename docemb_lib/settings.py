"""The sections of a profile and the notebook parameters: one frozen model each, every field with unit or reason.

Defaults are the thesis'; combinations that make no sense are refused here, values one by one in the fields.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

ContextualName = Literal["DM", "DBOW", "PV", "LSA"]
TaskName = Literal["package", "see-also-pairs", "halves", "see-also-retrieval"]
LINKED_TASKS: tuple[TaskName, ...] = ("package", "see-also-pairs", "see-also-retrieval")  # need the pages' own links


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


ProjectionSpec = Annotated[str, BeforeValidator(_as_text)]  # papermill and YAML read a single width as a number
PairFeatures = Literal["concat", "interaction"]
MinCount = Annotated[int | str, BeforeValidator(_min_count)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Parameters(Section):
    """What a notebook can be told, `-p name value`; defaults are the thesis' best cosine student (Table 4.10)."""

    seed: int = Field(0, ge=0)
    # 02: one Paragraph Vector
    dm: bool = True  # True: distributed memory (DM); False: distributed bag of words (DBOW)
    vector_size: int = Field(100, ge=2)  # dimensions
    min_count: MinCount = 2  # drop rarer words; an occurrence count, or the thesis' "10%"
    preprocess: Literal["none", "lowercase", "stem"] = "lowercase"
    # 03-06: the student's objective
    structural_loss: Annotated[
        Literal["mse", "cosine", "max-margin", "contrastive"] | None, BeforeValidator(_no_null)
    ] = "cosine"
    distance: Literal["mse", "cosine"] = "mse"  # of max-margin
    gamma: float = Field(1.0, ge=0)  # of max-margin: weight of the negatives
    contextual_teacher: Annotated[ContextualName | None, BeforeValidator(_no_null)] = "PV"
    contextual_loss: Literal["soft-cca", "mse", "cca"] = "soft-cca"
    student_projection: ProjectionSpec = "768(ReLU)x4096(ReLU)x2048"
    contextual_projection: ProjectionSpec = "-"
    lam: Annotated[float | None, BeforeValidator(_no_null)] = 0.5  # λ; None: plain sum of both losses
    lam_by_length: Annotated[str | None, BeforeValidator(_no_null)] = None  # "linear:384:4096"
    max_structural_len: Annotated[int | None, BeforeValidator(_no_null)] = Field(384, ge=1)  # structural tokens
    documents: int = Field(15_000, ge=2)  # first documents of the train split

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


class Corpus(Section):
    """Where the text comes from, and what is set apart from training."""

    source: Literal["installed-docs", "local", "hub"] = "installed-docs"
    packages: list[str] | None = None  # installed-docs: which packages; None: all that docemb knows
    path: Path | None = None  # local: a folder of .txt/.md files, or a .jsonl, relative to this profile's own folder
    text_field: str = "text"  # local .jsonl and hub
    id_field: str = "id"  # local .jsonl
    datasets: list[HubDataset] = []  # hub: equal shares of each
    documents: int | None = Field(None, ge=1)  # at most so many; None: all
    seed: int = Field(42, ge=0)  # of sampling and splitting (Section 5.1); runs of every seed share their corpus
    validation: int = Field(200, ge=2)  # documents of the validation split
    tasks: int = Field(200, ge=20)  # documents held out for the tasks, from all training

    @model_validator(mode="after")
    def _fits_its_source(self) -> Self:
        if self.source == "local" and self.path is None:
            raise ValueError("path is missing: name a folder of .txt/.md files or a .jsonl file")
        if self.source == "hub" and not self.datasets:
            raise ValueError("datasets is missing: name at least one data set of the hub")
        if self.source == "hub" and self.documents is None:
            raise ValueError("documents is missing: say how many documents to take from the hub")
        return self


class HubDataset(Section):
    """A data set that `datasets.load_dataset` reads."""

    dataset: str  # hub id or local folder
    config: str | None = None
    split: str = "train"
    text_field: str = "text"
    min_words: int | None = None  # leave out shorter documents


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


class ContextualTeachers(Section):
    """The contextual teachers by name (Section 5.1.2); the members of PV are concatenated in their order."""

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


class Student(Section):
    model: str = "allenai/longformer-base-4096"
    pooling: Literal["mean", "cls"] = "mean"  # cls: the first token, with global attention, unpacked and slow
    layers: list[int] | None = None  # which encoder layers to keep; None: all
    max_tokens: int = Field(4096, ge=8)  # positions, special tokens included
    attention_window: int | None = Field(512, ge=4)  # two-sided, as in transformers; None: the checkpoint's own
    dropout: float | None = Field(None, ge=0, lt=1)  # None: as in the checkpoint


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


class Evaluation(Section):
    tasks: list[TaskName] = Field(["halves"], min_length=1)  # of the final evaluation, on their test splits
    sweep_tasks: list[TaskName] = Field(["halves"], min_length=1)  # of every run, on their validation splits
    seeds: int = Field(5, ge=1)  # heads trained per score; the spread is over them
    documents: int = Field(400, ge=8)  # at most so many documents a task
    head: HeadSettings = HeadSettings()


Corpus.model_rebuild()
