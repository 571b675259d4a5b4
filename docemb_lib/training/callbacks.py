"""What happens around the updates of a training run: its bar, its order, its checkpoints, its polite end."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from docemb_lib.progress import progress
from docemb_lib.training.batches import Updates
from docemb_lib.training.checkpoints import LOG, Identity, Last, mark_whole
from docemb_lib.training.monitor import Monitor


class Bar(TrainerCallback):
    """A progress bar over the updates with the last loss; the last update is always logged and validated."""

    def __init__(self, updates: int) -> None:
        self.updates = updates
        self.bar: Any = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            self.bar = progress(desc="training the student", total=self.updates, unit="updates")
            self.bar.initial = self.bar.n = state.global_step  # an earlier run's: the pace is that of the rest
            self.bar.refresh()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.bar is not None:
            self.bar.update(1)
        if state.global_step == state.max_steps:
            control.should_evaluate = control.should_log = True

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        if self.bar is not None and "learning_rate" in logs:
            self.bar.set_description_str(f"training the student (loss {logs['loss']:.4f})", refresh=False)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class Log(TrainerCallback):
    """What is logged, a line each as it comes, in a file beside the checkpoints, for whoever watches the training.

    The first line says what is trained; `at` is the time of a row of this process. A resumed training begins the file
    anew with the rows of its checkpoint.
    """

    def __init__(self, folder: Path, title: str, updates: int) -> None:
        self.file, self.head = folder / LOG, {"title": title, "updates": updates}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            first = {"step": state.global_step, "at": time.time()}
            lines = [self.head, *state.log_history, first]
            self.file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero and self.file.is_file():  # not before the training begins
            with self.file.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps({**state.log_history[-1], 'at': time.time()})}\n")


class EpochOrder(TrainerCallback):
    """Tells the order of documents which epoch it is."""

    def __init__(self, updates: Updates) -> None:
        self.order = updates

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.order.set_epoch(int(state.epoch or 0))


class Checkpoints(TrainerCallback):
    """Completes the Trainer's checkpoints by what is ours, and the marker that makes them count."""

    def __init__(self, identity: Identity, batch_tokens: int, monitor: Monitor, *, resumed: Last | None) -> None:
        self.identity, self.batch_tokens, self.monitor, self.resumed = identity, batch_tokens, monitor, resumed

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.resumed is not None:
            self.monitor.load(self.resumed.path, args.process_index)
            state.compute_steps(args, state.max_steps)  # a checkpoint brings those of its own run
        self.monitor.start_clock()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        checkpoint = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        self.monitor.save(checkpoint, args.process_index)
        if args.world_size > 1:
            dist.barrier()  # every process has written its part
        if state.is_world_process_zero:
            mark_whole(checkpoint, self.identity, batch_tokens=self.batch_tokens)


class Stop(TrainerCallback):
    """SIGTERM, as clusters send it before the time is up: a checkpoint after the update in hand, then the signal's
    usual effect. All processes stop after the same update."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # signals are the main thread's alone
            yield
            return
        earlier = signal.signal(signal.SIGTERM, self._ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, earlier)
        if self.asked:
            signal.raise_signal(signal.SIGTERM)

    def _ask(self, *_: Any) -> None:
        self.asked = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if args.world_size > 1:
            asked = torch.tensor(int(self.asked), device=args.device)
            dist.all_reduce(asked, dist.ReduceOp.MAX)
            self.asked = bool(asked)
        if self.asked:
            control.should_save = control.should_training_stop = True
