"""Several processes of one command (torchrun, `accelerate launch`) that compute together."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from docemb_lib.base.errors import InputError
from docemb_lib.losses.objective import in_order, with_parts
from docemb_lib.workspace import Artefact, Build, Inputs, Workspace

Result = TypeVar("Result")
# Processes wait for each other while one of them builds corpus and teachers.
TIMEOUT = timedelta(days=7)
LAUNCHED = "LOCAL_RANK"  # the environment variable that torchrun and accelerate set


@contextmanager
def together() -> Iterator[None]:
    """Join the process group for the duration of a command, if a launcher started several."""
    if LAUNCHED not in os.environ:
        yield
        return
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ[LAUNCHED]))
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=TIMEOUT)
    yield
    # An error skips this line: the other processes may be waiting, and the launcher ends them.
    dist.destroy_process_group()


def is_first() -> bool:
    """Whether this process writes results and prints."""
    return LAUNCHED not in os.environ or os.environ.get("RANK", "0") == "0"


def all_reduced(tensor: Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
    """The tensor reduced in place over all processes, each of which must call."""
    if dist.is_initialized():
        dist.all_reduce(tensor, op)
    return tensor


def from_first(compute: Callable[[], Result]) -> Result:
    """The result of `compute` in the first process, sent to all.

    Raises the InputError of `compute` in all processes.
    """
    if not dist.is_initialized():
        return compute()
    sent: list[Result | InputError | None] = [None]
    if is_first():
        try:
            sent = [compute()]
        except InputError as error:
            sent = [error]
    dist.broadcast_object_list(sent)
    (received,) = sent
    if isinstance(received, InputError):
        raise received
    return received  # type: ignore[return-value]


def build_together(workspace: Workspace, kind: str, inputs: Inputs, build: Build) -> Artefact:
    """The resumable artefact of `inputs`.

    All processes build it in one folder, and the first process publishes it.
    """
    if not dist.is_initialized():
        return workspace.artefact(kind, inputs, build, resumable=True)
    folder: list[str | None] = [None]  # sent to all processes; None: the artefact exists

    def announce_and_build(path: Path) -> None:
        folder[0] = str(path)
        dist.broadcast_object_list(folder)
        build(path)
        dist.barrier()  # all processes have finished in the folder before it is renamed

    if is_first():
        workspace.artefact(kind, inputs, announce_and_build, resumable=True)
    if not is_first() or folder[0] is None:
        dist.broadcast_object_list(folder)
    if not is_first() and folder[0] is not None:
        build(Path(folder[0]))
        dist.barrier()
    dist.barrier()  # the artefact is published
    return workspace.artefact(kind, inputs, build, resumable=True)


@dataclass(frozen=True)
class GroupExchange:
    """Runs a contextual loss over the groups of all processes (`run_groups` of an `Objective`).

    Running statistics advance over all groups, in order, in every process, from the projected views
    that the processes send each other. So the weighted mean of the processes' gradients equals that
    of a single process. All groups must have the same size, and all processes must call.
    """

    owners: tuple[int, ...]  # the rank that holds each group, in the order of the groups
    rank: int  # the rank of this process, which has its groups in that order

    def __call__(self, loss: nn.Module, groups: list[tuple[Tensor, ...]]) -> Tensor:
        """The losses of this process' groups, (B, 1 + K). A group is two views, (b, P) each.

        A process without a group in this pass runs a filler, whose share of the gradient is zero.
        The loss must not see the filler, which would advance the statistics.
        """
        if not list(loss.buffers()):  # no statistics: groups are independent
            return in_order(loss, groups)
        remaining = iter(groups)
        losses = []
        for owner, views in zip(self.owners, self._gather(groups), strict=True):
            if owner == self.rank:
                losses.append(with_parts(loss, *next(remaining)))
            else:
                columns = with_parts(loss, *views).shape[1]  # advances the statistics
        for student, teacher in remaining:  # a filler
            losses.append((student + teacher).mean(dim=1, keepdim=True).expand(-1, columns))
        return torch.cat(losses)

    def _gather(self, groups: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
        """The groups of all processes in their order, (2, b, P) each, without gradient."""
        processes = dist.get_world_size()
        views = torch.stack([torch.stack(group) for group in groups]).detach()  # (n, 2, b, P)
        # `all_gather` needs one shape for all processes: that of the process with most groups.
        most = max(map(self.owners.count, range(processes)))
        sent = views.new_zeros(most, *views.shape[1:])
        if self.rank in self.owners:
            sent[: len(views)] = views
        received = [torch.empty_like(sent) for _ in range(processes)]
        dist.all_gather(received, sent)
        queues = list(map(iter, received))
        return [next(queues[owner]) for owner in self.owners]
