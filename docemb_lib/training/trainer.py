"""`transformers.Trainer` for packed documents: updates, validation, the log, checkpoints and stops.

An update of the weights goes through these steps:

1. `Updates` draws the rows of its documents, and the documents cut them into passes (`batches`).
2. `training_step` runs the passes one after the other and sums their gradients.
3. The Trainer clips the gradient, lets the optimizer step, and moves the learning rate on.
4. `Flow` decides what is logged, validated and saved, moves the bar on, and stops on request.

A checkpoint holds all that the rest of a run depends on: the objective (student, projections,
running statistics), optimizer, schedule, the states of the random number generators, the history,
the sums of the monitor, and a marker. So a run resumes bit-exactly from a checkpoint that is
complete and of the same configuration. The Trainer writes a checkpoint in place. The marker,
written last, lists checksums: a folder that differs from its marker is incomplete or damaged.

Under torchrun each process goes through batches of its own, `DistributedDataParallel` averages the
gradients, and all compute with the running statistics of the first process, whose history counts.
"""

import json
import logging
import math
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from docemb_lib.base.errors import InputError
from docemb_lib.base.files import MARKER, damaged, sealed, write_text
from docemb_lib.base.progress import progress, stopped
from docemb_lib.settings.sections import Training
from docemb_lib.training.batches import Autocast, Cut, Updates
from docemb_lib.training.monitor import COLLAPSED, Monitor, validate
from docemb_lib.training.pairs import Pass

logger = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"  # their folder, in that of the run
BAR = "training the student"
AGAIN = 1.0  # seconds until a further Ctrl-C is a second one, not an echo of a launcher


class StudentTrainer(Trainer):
    """Trains an `Objective` or a `PairObjective`.

    A batch of the Trainer is one update of the weights. The documents cut it into as many passes as
    memory asks for, and `training_step` accumulates their gradients. The Trainer's own gradient
    accumulation is not used, because its passes all have the same number of documents, whatever
    their lengths.

    Args:
        settings: the settings of the training.
        cut: how an update is cut into passes.
        autocast: the context of a forward pass.
        monitor: the object that collects the rows of the history.
        **kwargs: the arguments of `transformers.Trainer`.
    """

    control: TrainerControl

    def __init__(
        self,
        *,
        settings: Training,
        cut: Cut,
        autocast: Autocast,
        monitor: Monitor,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        self.cut = cut
        self.autocast = autocast
        self.monitor = monitor

    def get_train_dataloader(self) -> DataLoader:
        """The updates of an epoch, each a list of passes.

        `Updates` gives each process its own. So the loader is not handed to accelerate.
        """
        # The data set is the row numbers alone. The documents of all rows of an update are read at
        # once, because they are packed by their lengths.
        rows: Any = range(len(self.train_dataset))
        # The order is a function of seed and epoch. Updates ask for the epoch when an iteration
        # begins: a resumed run draws the order of the epoch in which it was saved, and the Trainer
        # skips the updates of it that are done.
        updates = Updates(
            len(rows),
            self.settings,
            seed=self.args.seed,
            epoch=lambda: int(self.state.epoch or 0),
            process=self.args.process_index,
            processes=self.args.world_size,
        )

        def collate(rows: list[int]) -> list[Pass]:
            return list(self.train_dataset.passes(rows, self.cut, updates.drawn))

        return DataLoader(
            rows,
            batch_sampler=updates,
            collate_fn=collate,
            # A GPU copies from pinned memory while it computes: see `MicroBatch.learn`.
            pin_memory=self.args.device.type == "cuda",
        )

    def check_finite(self, rows: Sequence[Sequence[int]], losses: Tensor) -> None:
        """Check the losses of an update.

        Args:
            rows: the rows of the documents of each pass.
            losses: a loss for each pass, (passes,).

        Raises FloatingPointError for a loss that is not finite. It names the documents of the pass.
        """
        for rows_of_pass, is_finite in zip(rows, losses.isfinite().tolist(), strict=True):
            if not is_finite:
                names = [str(self.train_dataset.ids[row]) for row in rows_of_pass]
                raise FloatingPointError(
                    f"update {self.state.global_step + 1}: the loss is not finite, with documents "
                    f"{', '.join(names)}; look at these, or lower training.learning_rate"
                )

    def _get_grad_norm(
        self, model: nn.Module, grad_norm: float | None = None
    ) -> Tensor | float | None:
        """The Trainer's norm of the gradient of an update, before clipping.

        A loss may be finite and its gradient not, as after an overflow in the backward pass. In
        fp16 that is expected: the gradient scaler skips such an update, and lowers its scale. In
        any other precision the weights would be lost, hence a FloatingPointError.
        """
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if norm is not None and self.accelerator.scaler is None and not math.isfinite(norm):
            raise FloatingPointError(
                f"update {self.state.global_step + 1}: the gradient is not finite; "
                "lower training.learning_rate, or set training.precision to fp32"
            )
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log a row; one of training gets the monitor's means and speed since the row before.

        A row of training is one that has a learning rate. Its `loss` is then the mean over the
        documents, in place of the Trainer's mean over updates.
        """
        if "learning_rate" in logs:
            logs |= self.monitor.row()
        super().log(logs, start_time)

    def evaluate(self, *_: object, **__: object) -> dict[str, float]:
        """Validation means, in place of the Trainer's padded prediction loop.

        Returns the means by name with the prefix `eval_`, by which the Trainer and its callbacks
        know a row of validation.
        """
        start = time.perf_counter()
        means = validate(self.model, self.eval_dataset, self.cut, self.autocast)
        self.monitor.started += time.perf_counter() - start  # leaves this time out of the speed
        # A resumed run has the first row, with the spread before training, in its history.
        spreads = (row["eval_spread"] for row in self.state.log_history if "eval_spread" in row)
        before = next(spreads, means["spread"])
        means["collapsed"] = float(means["spread"] < COLLAPSED * before)
        # Logging a row of validation leaves the sums of the monitor alone: see `log`.
        metrics = {f"eval_{name}": value for name, value in means.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def training_step(
        self,
        model: nn.Module,
        inputs: list[Pass],
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Accumulate the gradients of one update, and return its loss, ().

        Let n be the documents of the update, n_k those of pass k, and L_k their mean loss. The loss
        of the update is the mean over all n documents, sum_k (n_k / n) L_k. DDP takes the mean over
        the processes, which have as many documents each.

        model: the objective, in DDP where there are several processes.
        """
        model.train()
        backward = self.accelerator.backward
        losses = []
        for number, part in enumerate(inputs, 1):
            # DDP exchanges the sums of gradients in the last backward pass of an update. Processes
            # may have other numbers of passes before it.
            with self.accelerator.no_sync(model) if number < len(inputs) else nullcontext():
                output = part.learn(model, self.args.device, self.autocast, backward)
            losses.append(output.loss.detach() * part.share)
            self.monitor.add_pass(output, tokens=part.tokens)
        # The losses stay on the device until here, so that no pass waits for the one before.
        each = torch.stack(losses)  # (passes,)
        # The check waits for the device. One after all passes lets a GPU work without a break.
        self.check_finite([part.rows for part in inputs], each)
        return each.sum()


@dataclass(eq=False)
class Flow(TrainerCallback):
    """Decides what is logged, validated and saved, and ends a run that is asked to stop.

    It shows a bar over the updates with the last loss. `transformers.ProgressCallback` would also
    print every row. It completes the Trainer's checkpoints with the monitor's state and the marker,
    and restores that state. On Ctrl-C or SIGTERM, a checkpoint follows the current update, then an
    end. Jupyter's stop button is a Ctrl-C. Schedulers of clusters send SIGTERM some time before
    they kill, so that no update is lost.

    The request to stop is kept here. The Trainer's `should_training_stop` could not hold it: the
    Trainer resets it when it begins, which may be after the signal, and sets it after the last
    update, where it says nothing about a signal.

    Args:
        settings: the settings of the training.
        marker: the content of the marker, without the checksums of the checkpoint.
        monitor: the sums since the last row, which a resumed run needs for its next row.
        updates: the number of updates of the training.
        resumed: the checkpoint that the run goes on from. None: the run starts anew.
    """

    settings: Training
    marker: Mapping[str, Any]
    monitor: Monitor
    updates: int
    resumed: Path | None
    bar: Any = None  # in the first process
    requested: int = 0  # the number of the signal
    since: float = 0.0  # seconds of the clock when it came
    saved: int = 0  # updates in the newest checkpoint

    @contextmanager
    def listening(self, processes: int) -> Iterator[None]:
        """Take note of both signals in this context, where there is one process.

        One of several processes would wait for the others, which may be an update further, so in
        these the signals have their usual effect. At the end of the context, Stopped is raised
        after Ctrl-C, and SIGTERM has its usual effect if it came. A second Ctrl-C ends the update
        in hand at once, without a checkpoint.
        """
        # Python lets only the main thread set signal handlers.
        if processes > 1 or threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [signal.SIGTERM]
        # A process may ignore Ctrl-C, as the workers of a sweep do.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            numbers.append(signal.SIGINT)
        earlier = {number: signal.signal(number, self._note) for number in numbers}
        try:
            yield
        except KeyboardInterrupt:
            if not self.requested:
                raise
            raise stopped("stopped at once", f" after {self._progress()}") from None
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)
        if self.requested == signal.SIGINT:
            raise stopped(f"stopped after {self._progress()}")
        if self.requested:
            signal.raise_signal(self.requested)

    def _progress(self) -> str:
        return f"{self.saved} of {self.updates} updates"

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Keep a request to stop. A second Ctrl-C raises KeyboardInterrupt."""
        if not self.requested:
            self.since = time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - self.since >= AGAIN:
            signal.default_int_handler(number, frame)
        self.requested = max(self.requested, number)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Restore what the Trainer does not know of a checkpoint, and start bar and clock."""
        self.saved = state.global_step
        if state.is_world_process_zero:
            self.bar = progress(desc=BAR, total=self.updates, done=self.saved, unit="updates")
        if self.resumed is not None:
            self.monitor.load(self.resumed, args.device)
        self.monitor.start_clock()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Log and validate at the intervals of the settings and after the last update.

        The last update is saved only where it is due anyway: the result itself is saved next.
        """
        step = state.global_step
        is_last = step == self.updates
        validate_every = math.ceil(self.updates / (self.settings.validations - 1))
        control.should_log = is_last or step == 1 or step % self.settings.log_every == 0
        control.should_evaluate = is_last or step % validate_every == 0
        control.should_save = step % self.settings.save_every == 0
        self.on_evaluate(args, state, control)
        if self.bar is not None:
            self.bar.update(1)

    def on_log(self, *_: object, logs: Mapping[str, float], **__: object) -> None:
        """Show the loss of a row of training, when the bar is drawn next."""
        if self.bar is not None and "learning_rate" in logs:
            self.bar.set_description_str(f"{BAR} (loss {logs['loss']:.4f})", refresh=False)

    def close(self) -> None:
        """End the line of the bar, also after an error."""
        if self.bar is not None:
            self.bar.close()

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Save and stop on request.

        A validation can take as long as many updates, and after the last one no update follows.
        """
        if self.requested:
            control.should_save = True
            control.should_training_stop = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Add the state of the monitor, then the marker."""
        # The Trainer has written its part of the checkpoint before it calls.
        self.saved = state.global_step
        checkpoint = Path(args.output_dir) / f"checkpoint-{self.saved}"
        if args.world_size > 1:
            dist.barrier()  # every process has written the state of its generators
        if state.is_world_process_zero:
            self.monitor.save(checkpoint)
            # The checksums cover all files, so the marker comes last: a kill before it leaves a
            # folder without a marker, which `find_checkpoint` removes.
            write_text(checkpoint / MARKER, sealed(checkpoint, self.marker, MARKER))


def find_checkpoint(folder: Path, configuration: str) -> tuple[Path | None, int | None]:
    """The newest complete checkpoint in `folder`, and its tokens of a pass; None without one.

    A resumed run takes as many tokens in a pass as before, because other passes would add up the
    gradients in another order, which rounds differently. Incomplete checkpoints are removed: the
    Trainer would count them among those to keep, and delete a complete one.

    Args:
        folder: the folder of the checkpoints.
        configuration: the fingerprint of all that a resumed run must have in common with the first.

    Raises InputError where the newest checkpoint is from a run with another configuration, and then
    removes nothing.
    """
    # A checkpoint is named by its update; the names of trackers' files are left alone.
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


def _number(checkpoint: Path) -> str:
    return checkpoint.name.removeprefix("checkpoint-")


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a training in `folder`, once its result is saved.

    Files of trackers stay, and so does the folder of the checkpoints if it holds any. A kill in
    between does no harm, because whoever calls has saved the result before.
    """
    checkpoints = folder / CHECKPOINTS
    for path in checkpoints.glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):  # the folder is not empty, or not there
        checkpoints.rmdir()
