"""Checkpoints that a run can resume from bit-exactly: complete ones, of the same configuration and number of processes.

The Trainer writes in place. A marker, written last, lists checksums: a folder that differs is torn or damaged.
"""

import contextlib
import json
import logging
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from docemb_lib.errors import InputError
from docemb_lib.integrity import MARKER, damaged, sealed
from docemb_lib.training.distributed import from_first
from docemb_lib.training.monitor import Monitor
from docemb_lib.workspace import write_text

logger = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
LOG = "log.jsonl"  # beside the checkpoints, see `trainer.Log`


class Checkpoint(NamedTuple):
    path: Path
    batch_tokens: int  # tokens of a pass; another number would round differently


class Checkpoints(TrainerCallback):
    """Completes the Trainer's checkpoints with the monitor's state and the marker, and restores that state."""

    def __init__(self, marker: dict[str, Any], monitor: Monitor, *, resumed: Checkpoint | None) -> None:
        self.marker, self.monitor, self.resumed = marker, monitor, resumed

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.resumed is not None:
            self.monitor.load(self.resumed.path, args.process_index)
            state.compute_steps(args, state.max_steps)  # the checkpoint's may differ: save_every, log_every
        self.monitor.start_clock()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        checkpoint = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        self.monitor.save(checkpoint, args.process_index)
        if args.world_size > 1:
            dist.barrier()  # every process has written its part
        if state.is_world_process_zero:
            write_text(checkpoint / MARKER, sealed(checkpoint, self.marker, MARKER))


def find_checkpoint(folder: Path, configuration: str, processes: int) -> Checkpoint | None:
    """The newest complete checkpoint in `folder`, the same one in all processes; None where there is none.

    The first process looks, since a shared file system may show others an older state. It removes the others: the
    Trainer would keep them, and delete a complete one instead. Raises InputError for a checkpoint of another run.
    """

    def find() -> Checkpoint | None:
        found = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
        markers = {path: json.loads((path / MARKER).read_bytes()) for path in found if not damaged(path, MARKER)}
        newest = max(markers, key=lambda path: int(path.name.removeprefix("checkpoint-")), default=None)
        marker = markers[newest] if newest else {}
        if newest and marker["configuration"] != configuration:
            raise InputError(f"{newest}: from a run with other settings, documents or versions; remove {folder}")
        if newest and marker["processes"] != processes:
            both = f"from a run of {marker['processes']} processes, this one has {processes}"
            raise InputError(f"{newest}: {both}; start as many, or remove {folder}")
        for path in set(found) - set(markers):
            logger.warning("%s is torn or damaged: going on from the one before it", path)
            shutil.rmtree(path)
        return Checkpoint(newest, marker["batch_tokens"]) if newest else None

    return from_first(find)


def remove_checkpoints(folder: Path) -> None:
    """Remove checkpoints and log of a training in `folder`, once its result is saved; files of trackers stay."""
    for path in (folder / CHECKPOINTS).glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)
    (folder / CHECKPOINTS / LOG).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty, or not there
        (folder / CHECKPOINTS).rmdir()
