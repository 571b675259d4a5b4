"""The stock `transformers.Trainer`, told how an update is made of passes, how it is ordered, logged and validated."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerControl

from docemb_lib.losses import ObjectiveOutput
from docemb_lib.settings import Training
from docemb_lib.training.batches import Collate, Micro, Updates
from docemb_lib.training.callbacks import EpochOrder
from docemb_lib.training.documents import Bank
from docemb_lib.training.monitor import Monitor
from docemb_lib.training.precision import AUTOCAST, precision_of
from docemb_lib.training.validation import validate


class DistillationTrainer(Trainer):
    """A batch of the Trainer is one update, run as several packed passes where memory asks for it."""

    control: TrainerControl

    def __init__(
        self, *, settings: Training, budget: int, monitor: Monitor, bank: Bank | None = None, **kwargs: Any
    ) -> None:
        """budget: tokens in a pass; bank: of negatives, for an objective that asks for them."""
        super().__init__(**kwargs)
        self.settings, self.budget, self.monitor, self.bank = settings, budget, monitor, bank

    def get_train_dataloader(self) -> DataLoader:
        """Every process goes through the same updates and reads the documents that are its own."""
        documents, settings = self.train_dataset, self.settings
        updates = Updates(
            documents,
            batch_size=settings.batch_size,
            accumulation=settings.accumulation,
            order=settings.order,
            seed=self.args.seed,
        )
        self.add_callback(EpochOrder(updates))
        collate = Collate(
            documents,
            batch_size=settings.batch_size,
            budget=self.budget,
            bank=self.bank,
            rank=self.args.process_index,
            processes=self.args.world_size,
        )
        return DataLoader(
            range(len(documents)),  # type: ignore[arg-type]  # a sequence of rows, which `collate` turns into documents
            batch_sampler=updates,
            collate_fn=collate,
            pin_memory=self.args.device.type == "cuda",
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
            self.monitor.add(micro, output)
            losses.append(loss.detach())
        parts = torch.stack(losses)
        self._check_finite(inputs, parts)
        return parts.sum()

    def _check_finite(self, inputs: list[Micro], parts: Tensor) -> None:
        """Raise in all processes together: one that went on alone would wait for the others."""
        wrong = (~parts.isfinite()).any().int()
        if self.args.world_size > 1:
            dist.all_reduce(wrong, dist.ReduceOp.MAX)
        if not wrong:
            return
        own = [micro for micro, finite in zip(inputs, parts.isfinite().tolist(), strict=True) if not finite]
        names = ", ".join(str(self.train_dataset.ids[row]) for row in own[0].rows) if own else "of another process"
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
        means = validate(
            self.model,
            self.eval_dataset,
            batch_size=self.settings.batch_size,
            bank=self.bank,
            dtype=AUTOCAST[precision_of(self.settings.precision, self.args.device)],
            budget=self.budget,
            rank=self.args.process_index,
            processes=self.args.world_size,
        )
        self.monitor.started += time.perf_counter() - start
        metrics = {f"eval_{name}": value for name, value in means.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics
