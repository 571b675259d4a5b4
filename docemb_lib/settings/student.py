"""What is trained, and how."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from docemb_lib.settings.section import Section


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
