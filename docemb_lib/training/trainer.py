"""The stock `transformers.Trainer`, told how an update is made of passes, how it is ordered, logged and validated."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerControl

from docemb_lib.losses import ObjectiveOutput
from docemb_lib.settings import Training
from docemb_lib.student.longformer import forward_flops
from docemb_lib.training.batches import Collate, Micro, Updates
from docemb_lib.training.callbacks import EpochOrder
from docemb_lib.training.documents import Bank
from docemb_lib.training.memory import AUTOCAST, precision_of
from docemb_lib.training.monitor import Monitor, validate

# ---- the stock `transformers


class UpdateTrainer(Trainer):
    """A batch of the Trainer is one update, run as several passes where memory asks for it.

    What is in an update, and how it gives gradients, subclasses say: `collate`, `training_step` and `validation_means`.
    """

    control: TrainerControl

    def __init__(self, *, settings: Training, budget: int, monitor: Monitor, **kwargs: Any) -> None:
        """budget: tokens in a pass."""
        super().__init__(**kwargs)
        self.settings, self.budget, self.monitor = settings, budget, monitor

    def collate(self, updates: Updates) -> Callable[[list[int]], Any]:
        """From the rows of an update to what `training_step` is given of it."""
        raise NotImplementedError

    def validation_means(self) -> dict[str, float]:
        raise NotImplementedError

    def get_train_dataloader(self) -> DataLoader:
        """Every process goes through the same updates and reads the documents that are its own."""
        settings = self.settings
        updates = Updates(
            self.train_dataset.lengths,
            batch_size=settings.batch_size,
            accumulation=settings.accumulation,
            order=settings.order,
            seed=self.args.seed,
        )
        self.add_callback(EpochOrder(updates))
        return DataLoader(
            range(len(self.train_dataset)),  # type: ignore[arg-type]  # rows, which `collate` turns into documents
            batch_sampler=updates,
            collate_fn=self.collate(updates),
            pin_memory=self.args.device.type == "cuda",
        )

    def check_finite(self, rows: Sequence[Sequence[int]], parts: Tensor) -> None:
        """Raise where one of `parts` of an update's loss is not finite, naming its documents by their rows.

        In all processes together: one that went on alone would wait for the others.
        """
        wrong = (~parts.isfinite()).any().int()
        if self.args.world_size > 1:
            dist.all_reduce(wrong, dist.ReduceOp.MAX)
        if not wrong:
            return
        own = [those for those, finite in zip(rows, parts.isfinite().tolist(), strict=True) if not finite]
        names = ", ".join(str(self.train_dataset.ids[row]) for row in own[0]) if own else "of another process"
        raise FloatingPointError(
            f"update {self.state.global_step + 1}: the loss is not finite, with documents {names}; look at these, "
            "or lower training.learning_rate"
        )

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """The norm, which must be finite too, unless a gradient scaler skips such updates by itself."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if norm is not None and self.accelerator.scaler is None and not math.isfinite(norm):
            raise FloatingPointError(
                f"update {self.state.global_step + 1}: the gradient is not finite, though the loss is; lower "
                "training.learning_rate, or set training.precision to fp32"
            )
        return norm

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        start = time.perf_counter()
        super()._save_checkpoint(*args, **kwargs)
        self.monitor.started += time.perf_counter() - start

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "learning_rate" in logs:
            logs |= self.monitor.row()
        super().log(logs, start_time)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Validation loss by part in place of the Trainer's padded prediction loop."""
        start = time.perf_counter()
        means = self.validation_means()
        self.monitor.started += time.perf_counter() - start
        metrics = {f"eval_{name}": value for name, value in means.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def flops(self, sizes: Sequence[int]) -> float:
        """Of forward and backward pass over documents of `sizes` tokens."""
        return 3 * forward_flops(self.model.student.config, sizes)

    @property
    def autocast_dtype(self) -> torch.dtype | None:
        return AUTOCAST[precision_of(self.settings.precision, self.args.device)]


class DistillationTrainer(UpdateTrainer):
    """Of an `Objective`: every process runs its own batches of each round."""

    def __init__(self, *, bank: Bank | None = None, **kwargs: Any) -> None:
        """bank: of negatives, for an objective that asks for them."""
        super().__init__(**kwargs)
        self.bank = bank

    def collate(self, updates: Updates) -> Collate:
        return Collate(
            self.train_dataset,
            batch_size=self.settings.batch_size,
            budget=self.budget,
            bank=self.bank,
            rank=self.args.process_index,
            processes=self.args.world_size,
        )

    def training_step(self, model: Any, inputs: list[Micro], num_items_in_batch: Any = None) -> Tensor:
        """The gradients of one update. Returns this process' share of its loss, times the number of processes."""
        model.train()
        processes = self.args.world_size
        losses = []
        for number, part in enumerate(inputs, 1):
            micro = part.to(self.args.device)
            # Processes exchange gradients once, in the last backward pass of the update.
            with self.accelerator.no_sync(model) if number < len(inputs) else contextlib.nullcontext():
                with self.compute_loss_context_manager():
                    output: ObjectiveOutput = model(micro.batch, **micro.known._asdict(), peers=micro.peers)
                loss = output.loss * (micro.share * processes)
                self.accelerator.backward(loss)
            self.monitor.add(
                output if micro.share else None,
                documents=micro.documents,
                tokens=micro.tokens,
                flops=self.flops(micro.batch.sizes),
            )
            losses.append(loss.detach())
        parts = torch.stack(losses)
        self.check_finite([micro.rows for micro in inputs], parts)
        return parts.sum()

    def validation_means(self) -> dict[str, float]:
        return validate(
            self.model,
            self.eval_dataset,
            batch_size=self.settings.batch_size,
            bank=self.bank,
            dtype=self.autocast_dtype,
            budget=self.budget,
            rank=self.args.process_index,
            processes=self.args.world_size,
        )
