"""`transformers.Trainer` for packed documents: how updates are computed, ordered, validated, logged
and stopped.

A run resumes bit-exactly from a checkpoint that is complete, of the same configuration and of as
many processes. The Trainer writes in place. A marker, written last, lists checksums: a folder that
differs is incomplete or damaged.
"""

import json
import logging
import math
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import send_to_device
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from docemb_lib.base.errors import InputError
from docemb_lib.base.integrity import MARKER, damaged, sealed
from docemb_lib.base.progress import progress
from docemb_lib.losses import ObjectiveOutput
from docemb_lib.settings.sections import Training
from docemb_lib.training.batches import Collate, MicroBatch, Updates
from docemb_lib.training.distributed import all_reduced, from_first
from docemb_lib.training.monitor import Monitor, validate
from docemb_lib.workspace import write_text

logger = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
LOG = "log.jsonl"  # beside the checkpoints, see `Log`


class DistillationTrainer(Trainer):
    """Trains an `Objective`. A batch of the Trainer is one update, run as several passes where
    memory asks for it.

    A subclass changes the content of an update (`collate`), its gradients (`training_step`) and
    `validation_means`.
    """

    control: TrainerControl

    def __init__(
        self, *, settings: Training, budget: int, dtype: Any, monitor: Monitor, **kwargs: Any
    ) -> None:
        """budget: tokens in a pass, with padding; dtype: of autocast, None without."""
        super().__init__(**kwargs)
        self.settings, self.budget, self.monitor = settings, budget, monitor
        self.validation_options = {
            "batch_size": settings.batch_size,
            "dtype": dtype,
            "budget": budget,
        }
        self.ranks = {"rank": self.args.process_index, "processes": self.args.world_size}

    def collate(self, updates: Updates) -> Callable[[list[int]], Any]:
        padded = self.model.student.padded
        return Collate(
            self.train_dataset, self.settings.batch_size, self.budget, padded, **self.ranks
        )

    def validation_means(self) -> dict[str, float]:
        return validate(self.model, self.eval_dataset, **self.ranks, **self.validation_options)

    def get_train_dataloader(self) -> DataLoader:
        rows: Any = range(len(self.train_dataset))  # which `collate` turns into documents
        updates = Updates(
            len(rows), self.settings, seed=self.args.seed, epoch=lambda: int(self.state.epoch or 0)
        )
        pinned = self.args.device.type == "cuda"
        return DataLoader(
            rows, batch_sampler=updates, collate_fn=self.collate(updates), pin_memory=pinned
        )

    def check_finite(self, rows: Sequence[Sequence[int]], losses: Tensor) -> None:
        """Raise FloatingPointError, in all processes, where a loss is not finite, naming the
        documents of its rows.
        """
        if not all_reduced((~losses.isfinite()).any().int(), dist.ReduceOp.MAX):
            return
        own = [
            row
            for batch, finite in zip(rows, losses.isfinite(), strict=True)
            if not finite
            for row in batch
        ]
        names = ", ".join(str(self.train_dataset.ids[row]) for row in own) or "of another process"
        problem = (
            f"update {self.state.global_step + 1}: the loss is not finite, with documents {names}"
        )
        raise FloatingPointError(f"{problem}; look at these, or lower training.learning_rate")

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(
            model, grad_norm=grad_norm
        )  # a gradient scaler skips those that are not finite
        if norm is not None and self.accelerator.scaler is None and not math.isfinite(norm):
            mend = "lower training.learning_rate, or set training.precision to fp32"
            raise FloatingPointError(
                f"update {self.state.global_step + 1}: the gradient is not finite; {mend}"
            )
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "learning_rate" in logs:
            logs |= self.monitor.row()
        super().log(logs, start_time)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Validation loss by part, in place of the Trainer's padded prediction loop."""
        start = time.perf_counter()
        means = self.validation_means()
        self.monitor.started += time.perf_counter() - start  # leaves this time out of the speed
        metrics = {f"eval_{name}": value for name, value in means.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def learn(
        self, model: Any, micro: MicroBatch, *, scale: float
    ) -> tuple[ObjectiveOutput, Tensor]:
        """Accumulate the gradients of `scale` times an objective's loss.

        Returns the output and the scaled loss.
        """
        micro = send_to_device(micro, self.args.device, non_blocking=True)
        with self.compute_loss_context_manager():
            output: ObjectiveOutput = model(
                micro.batch, **micro.targets._asdict(), run_groups=micro.run_groups
            )
        loss = output.loss * scale
        self.accelerator.backward(loss)
        return output, loss.detach()

    def training_step(
        self, model: Any, inputs: list[MicroBatch], num_items_in_batch: Any = None
    ) -> Tensor:
        """Accumulate the gradients of one update.

        Returns the sum of this process' weighted losses.
        """
        model.train()
        losses = []
        for number, micro in enumerate(inputs, 1):
            # Processes exchange gradients once, in the last backward pass of the update.
            with self.accelerator.no_sync(model) if number < len(inputs) else nullcontext():
                # A document weighs 1 / (documents of the update); DDP averages over processes,
                # hence `world_size`.
                output, loss = self.learn(model, micro, scale=micro.share * self.args.world_size)
            losses.append(loss)
            self.monitor.add(
                output if micro.share else None, documents=micro.documents, tokens=micro.tokens
            )
        each = torch.stack(losses)
        self.check_finite([micro.rows for micro in inputs], each)
        return each.sum()


class Bar(TrainerCallback):
    """A progress bar over the updates with the last loss.

    The last update is always logged and validated.
    """

    bar: Any = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if state.is_world_process_zero:
            self.bar = progress(desc="training the student", total=state.max_steps, unit="updates")
            self.bar.initial = self.bar.n = (
                state.global_step
            )  # leaves a resumed run's first updates out of the pace

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self.bar is not None:
            self.bar.update(1)
        if state.global_step == state.max_steps:
            control.should_evaluate = control.should_log = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if self.bar is not None and "learning_rate" in logs:
            self.bar.set_description_str(
                f"training the student (loss {logs['loss']:.4f})", refresh=False
            )

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class Log(TrainerCallback):
    """Writes title and number of updates, then the history while it grows, a line a row, beside the
    checkpoints.
    """

    def __init__(self, folder: Path, title: str) -> None:
        self.file, self.title = folder / LOG, title

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if state.is_world_process_zero:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            head = {"title": self.title, "updates": state.max_steps}
            lines = [head, *state.log_history, {"step": state.global_step, "at": time.time()}]
            self.file.write_text(
                "".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8"
            )

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if state.is_world_process_zero and self.file.is_file():  # not before the training begins
            with self.file.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps({**state.log_history[-1], 'at': time.time()})}\n")


class Stop(TrainerCallback):
    """On SIGTERM: a checkpoint after the current update in all processes, then the signal's usual
    effect.
    """

    requested = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        if (
            threading.current_thread() is not threading.main_thread()
        ):  # which alone may set signal handlers
            yield
            return
        earlier = signal.signal(signal.SIGTERM, lambda *_: setattr(self, "requested", True))
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, earlier)
        if self.requested:
            signal.raise_signal(signal.SIGTERM)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        # Only ever set: a signal during the reduction is for the next update.
        if all_reduced(torch.tensor(int(self.requested), device=args.device), dist.ReduceOp.MAX):
            self.requested = control.should_save = control.should_training_stop = True


class Checkpoints(TrainerCallback):
    """Completes the Trainer's checkpoints with the monitor's state and the marker, and restores
    that state.
    """

    def __init__(self, marker: dict[str, Any], monitor: Monitor, *, resumed: Path | None) -> None:
        self.marker, self.monitor, self.resumed = marker, monitor, resumed

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self.resumed is not None:
            self.monitor.load(self.resumed, args.process_index)
            state.compute_steps(
                args, state.max_steps
            )  # the checkpoint's may differ: save_every, log_every
        self.monitor.start_clock()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if (
            state.global_step == state.max_steps
        ):  # the Trainer would always save here, but the result follows at once
            control.should_save = state.global_step % state.save_steps == 0

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        checkpoint = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        self.monitor.save(checkpoint, args.process_index)
        if args.world_size > 1:
            dist.barrier()  # every process has written its part
        if state.is_world_process_zero:
            write_text(checkpoint / MARKER, sealed(checkpoint, self.marker, MARKER))


def find_checkpoint(folder: Path, configuration: str) -> tuple[Path | None, int | None]:
    """The newest complete checkpoint in `folder`, the same one in all processes, and its tokens of
    a pass, because another number would round differently; (None, None) where there is none.

    The first process looks, since a shared file system may show others an older state. It removes
    the others: the Trainer would keep them, and delete a complete one instead. Raises InputError
    for a checkpoint of another run.
    """

    def find() -> tuple[Path | None, int | None]:
        found = [
            path
            for path in folder.glob("checkpoint-*")
            if path.name.removeprefix("checkpoint-").isdigit()
        ]
        markers = {
            path: json.loads((path / MARKER).read_bytes())
            for path in found
            if not damaged(path, MARKER)
        }
        newest = max(
            markers, key=lambda path: int(path.name.removeprefix("checkpoint-")), default=None
        )
        if newest and markers[newest]["configuration"] != configuration:
            other = "other settings, documents, versions or number of processes"
            of_another = f"this checkpoint is from a run with {other}"
            mend = f"go on with these, or remove {folder} to begin anew"
            raise InputError(f"{newest}: {of_another}; {mend}")
        for path in set(found) - set(markers):
            logger.warning("%s is incomplete or damaged, and not used", path)
            shutil.rmtree(path)
        return (newest, markers[newest]["batch_tokens"]) if newest else (None, None)

    return from_first(find)


def remove_checkpoints(folder: Path) -> None:
    """Remove checkpoints and log of a training in `folder`, once its result is saved; files of
    trackers stay.
    """
    for path in (folder / CHECKPOINTS).glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)
    (folder / CHECKPOINTS / LOG).unlink(missing_ok=True)
    with suppress(OSError):  # not empty, or not there
        (folder / CHECKPOINTS).rmdir()
