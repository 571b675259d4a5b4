"""`transformers.Trainer` for packed documents: updates, validation, the log, checkpoints and stops.

A run resumes bit-exactly from a checkpoint that is complete, of the same configuration and of as
many processes. The Trainer writes a checkpoint in place. A marker, written last, lists checksums: a
folder that differs from its marker is incomplete or damaged.
"""

import json
import logging
import math
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import send_to_device
from torch import Tensor, nn
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
LOG = "log.jsonl"  # in the folder of the checkpoints, see `Log`
BAR = "training the student"


class DistillationTrainer(Trainer):
    """Trains an `Objective`.

    A batch of the Trainer is one update of the weights. `Collate` cuts it into as many passes as
    memory asks for, and `training_step` accumulates their gradients, so the Trainer's own gradient
    accumulation is not used. A subclass changes the content of an update (`collate`), its gradients
    (`training_step`) and `validation_means`.

    Args:
        settings: of the profile.
        budget: tokens of a process in a pass, with padding.
        dtype: of autocast in validation. None: no autocast.
        monitor: collects the rows of the history.
        **kwargs: the arguments of `transformers.Trainer`.
    """

    control: TrainerControl

    def __init__(
        self,
        *,
        settings: Training,
        budget: int,
        dtype: torch.dtype | None,
        monitor: Monitor,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        self.budget = budget
        self.monitor = monitor
        self.validation_options: dict[str, Any] = {
            "batch_size": settings.batch_size,
            "dtype": dtype,
            "budget": budget,
        }
        self.ranks = {"rank": self.args.process_index, "processes": self.args.world_size}

    def collate(self, updates: Updates) -> Callable[[list[int]], Any]:
        """The function that turns the rows of an update into the `inputs` of `training_step`."""
        padded = self.model.student.padded
        batch_size = self.settings.batch_size
        return Collate(self.train_dataset, batch_size, self.budget, padded, **self.ranks)

    def validation_means(self) -> dict[str, float]:
        """The mean loss over the validation documents, and the rest of a validation row."""
        return validate(self.model, self.eval_dataset, **self.ranks, **self.validation_options)

    def get_train_dataloader(self) -> DataLoader:
        """Rows in the order of `Updates`; `collate` turns those of an update into documents."""
        # The dataset is only row numbers, because a pass needs several documents at once.
        rows: Any = range(len(self.train_dataset))
        # The epoch is asked for when an iteration begins, so a resumed run continues its order.
        updates = Updates(
            len(rows), self.settings, seed=self.args.seed, epoch=lambda: int(self.state.epoch or 0)
        )
        return DataLoader(
            rows,
            batch_sampler=updates,
            collate_fn=self.collate(updates),
            pin_memory=self.args.device.type == "cuda",
        )

    def check_finite(self, rows: Sequence[Sequence[int]], losses: Tensor) -> None:
        """Check the losses of an update, (passes,); `rows` are the documents of each pass.

        Raises FloatingPointError, in all processes, where a loss is not finite.
        """
        finite = losses.isfinite()
        # Every process must learn of it: one that goes on alone would wait for the others forever.
        if not all_reduced((~finite).any().int(), dist.ReduceOp.MAX):
            return
        ids = self.train_dataset.ids
        names = [
            str(ids[row])
            for rows_of_pass, is_finite in zip(rows, finite, strict=True)
            if not is_finite
            for row in rows_of_pass
        ]
        documents = ", ".join(names) or "of another process"
        raise FloatingPointError(
            f"update {self.state.global_step + 1}: the loss is not finite, with documents "
            f"{documents}; look at these, or lower training.learning_rate"
        )

    def _get_grad_norm(
        self, model: nn.Module, grad_norm: float | None = None
    ) -> Tensor | float | None:
        """The Trainer's norm of the gradients after clipping.

        Raises FloatingPointError where it is not finite. In fp16 the gradient scaler skips such an
        update, and lowers its scale.
        """
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if norm is not None and self.accelerator.scaler is None and not math.isfinite(norm):
            raise FloatingPointError(
                f"update {self.state.global_step + 1}: the gradient is not finite; "
                "lower training.learning_rate, or set training.precision to fp32"
            )
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the monitor's means and speed to a row of training."""
        if "learning_rate" in logs:
            logs |= self.monitor.row()
        super().log(logs, start_time)

    def evaluate(self, *_: object, **__: object) -> dict[str, float]:
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
        self, model: nn.Module, micro: MicroBatch, *, scale: float
    ) -> tuple[ObjectiveOutput, Tensor]:
        """Accumulate the gradients of `scale` times an objective's loss.

        Returns the objective's output and the scaled loss, ().
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
        self,
        model: nn.Module,
        inputs: list[MicroBatch],
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Accumulate the gradients of one update.

        With n_k of the update's n documents in pass k, the gradient is that of
        L = sum_k (n_k / n) L_k, the mean over all n documents. Returns the sum of this process'
        weighted losses, ().
        """
        model.train()
        losses = []
        for number, micro in enumerate(inputs, 1):
            # DDP exchanges gradients in a backward pass. They are sums over the passes, so the last
            # backward pass of the update is the only one that needs to exchange them.
            with self.accelerator.no_sync(model) if number < len(inputs) else nullcontext():
                # n_k / n is `micro.share`. DDP takes the mean over W processes, hence the factor W.
                output, loss = self.learn(model, micro, scale=micro.share * self.args.world_size)
            losses.append(loss)
            if micro.share:  # otherwise a filler, which adds gradients of zero
                self.monitor.add(output, tokens=sum(micro.batch.sizes))
        each = torch.stack(losses)  # (passes,)
        # One check for all passes, because it waits for the device.
        self.check_finite([micro.rows for micro in inputs], each)
        return each.sum()


class Bar(TrainerCallback):
    """A progress bar over the updates with the last loss."""

    bar: Any = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        if state.is_world_process_zero:
            self.bar = progress(desc=BAR, total=state.max_steps, unit="updates")
            # The first updates of a resumed run are left out of the pace.
            self.bar.initial = self.bar.n = state.global_step

    def on_step_end(self, *_: object, **__: object) -> None:
        if self.bar is not None:
            self.bar.update(1)

    def on_log(self, *_: object, logs: Mapping[str, float], **__: object) -> None:
        if self.bar is not None and "learning_rate" in logs:
            self.bar.set_description_str(f"{BAR} (loss {logs['loss']:.4f})", refresh=False)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class Log(TrainerCallback):
    """Writes `log.jsonl` in the folder of the checkpoints, for displays of a running training.

    The first line has the title and the number of updates. Then the history follows while it grows,
    one row a line.
    """

    def __init__(self, folder: Path, title: str) -> None:
        self.file = folder / LOG
        self.title = title

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        if state.is_world_process_zero:
            head = {"title": self.title, "updates": state.max_steps}
            # A resumed run writes the history of its checkpoint; later rows were lost with a kill.
            rows = [head, *state.log_history, {"step": state.global_step, "at": time.time()}]
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text("".join(map(_json_line, rows)), encoding="utf-8")

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        if state.is_world_process_zero and self.file.is_file():  # not before the training begins
            with self.file.open("a", encoding="utf-8") as file:
                file.write(_json_line({**state.log_history[-1], "at": time.time()}))


def _json_line(row: Mapping[str, Any]) -> str:
    return f"{json.dumps(row)}\n"


class Stop(TrainerCallback):
    """On SIGTERM: a checkpoint after the current update in all processes, then the usual effect.

    The request is kept here rather than in the Trainer's `should_training_stop`, which the Trainer
    resets when it begins and sets itself after the last update.
    """

    requested = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        # Python lets only the main thread set signal handlers.
        if threading.current_thread() is not threading.main_thread():
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
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        # A launcher may signal one process alone, and all must stop after the same update.
        requested = torch.tensor(int(self.requested), device=args.device)
        if all_reduced(requested, dist.ReduceOp.MAX):
            # These are only ever set to True, never to the flag: a signal that arrives during the
            # reduction counts for the next update.
            self.requested = True
            control.should_save = True
            control.should_training_stop = True


class Checkpoints(TrainerCallback):
    """Completes the Trainer's checkpoints with the monitor's state and the marker.

    Restores the monitor's state from the checkpoint `resumed`. Decides what is logged, validated
    and saved after the last update.
    """

    def __init__(
        self, marker: Mapping[str, Any], monitor: Monitor, *, resumed: Path | None
    ) -> None:
        self.marker = marker
        self.monitor = monitor
        self.resumed = resumed

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        if self.resumed is not None:
            self.monitor.load(self.resumed, args.process_index)
            # The settings save_every and log_every may differ from those of the checkpoint.
            state.compute_steps(args, state.max_steps)
        self.monitor.start_clock()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        if state.global_step == state.max_steps:
            control.should_log = True
            control.should_evaluate = True
            # The Trainer would always save here, but the result is saved at once.
            control.should_save = state.global_step % state.save_steps == 0

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self.monitor.save(checkpoint, args.process_index)
        if args.world_size > 1:
            dist.barrier()  # every process has written its part
        if state.is_world_process_zero:
            # The checksums cover all files, so the marker comes last: a kill before it leaves a
            # folder without a marker, which `find_checkpoint` removes.
            write_text(checkpoint / MARKER, sealed(checkpoint, self.marker, MARKER))


def find_checkpoint(folder: Path, configuration: str) -> tuple[Path | None, int | None]:
    """The newest complete checkpoint in `folder`, and its tokens of a pass; None without one.

    A resumed run takes as many tokens in a pass as before, because another number would round
    differently. The first process looks and all use its answer, since a shared file system may show
    others an older state. It removes incomplete checkpoints: the Trainer would count them among
    those to keep, and delete a complete one instead.

    Raises InputError where the newest checkpoint is from a run with another `configuration`.
    """

    def find() -> tuple[Path | None, int | None]:
        paths = [path for path in folder.glob("checkpoint-*") if _number(path).isdigit()]
        complete = [path for path in paths if not damaged(path, MARKER)]
        newest = max(complete, key=lambda path: int(_number(path)), default=None)
        marker = json.loads((newest / MARKER).read_bytes()) if newest else {}
        if newest and marker["configuration"] != configuration:
            raise InputError(
                f"{newest}: this checkpoint is from a run with other settings, documents, versions "
                f"or number of processes; go on with these, or remove {folder} to begin anew"
            )
        for path in set(paths) - set(complete):
            logger.warning("%s is incomplete or damaged, and not used", path)
            shutil.rmtree(path)
        return newest, marker.get("batch_tokens")

    return from_first(find)


def _number(checkpoint: Path) -> str:
    return checkpoint.name.removeprefix("checkpoint-")


def remove_checkpoints(folder: Path) -> None:
    """Remove checkpoints and log of a training in `folder`, once its result is saved.

    Files of trackers stay.
    """
    checkpoints = folder / CHECKPOINTS
    for path in checkpoints.glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)
    (checkpoints / LOG).unlink(missing_ok=True)
    with suppress(OSError):  # the folder is not empty, or not there
        checkpoints.rmdir()
