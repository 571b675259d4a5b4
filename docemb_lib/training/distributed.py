"""Several processes of one command (torchrun, `accelerate launch`): what they build and compute
together.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from docemb_lib.base.errors import InputError
from docemb_lib.losses.objective import in_order
from docemb_lib.workspace import Artefact, Build, Inputs, Workspace

Result = TypeVar("Result")
TIMEOUT = timedelta(
    days=7
)  # processes wait for each other while one of them builds corpus and teachers


@contextmanager
def together() -> Iterator[None]:
    """Join the process group for the duration of a command, if a launcher started several
    processes.
    """
    if "LOCAL_RANK" not in os.environ:  # set by torchrun and accelerate
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
    yield
    # not after an error: other processes may wait, and the launcher ends them
    dist.destroy_process_group()


def is_first() -> bool:  # the process that writes results and prints
    return "LOCAL_RANK" not in os.environ or os.environ.get("RANK", "0") == "0"


def all_reduced(tensor: Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
    if dist.is_initialized():
        dist.all_reduce(tensor, op)
    return tensor


def from_first(compute: Callable[[], Result]) -> Result:
    """The result of `compute` in the first process, sent to all; an InputError of it is raised in
    all.
    """
    if not dist.is_initialized():
        return compute()
    try:
        found: list[Any] = [compute() if is_first() else None]
    except InputError as error:
        found = [error]
    dist.broadcast_object_list(found)
    if isinstance(found[0], InputError):
        raise found[0]
    return found[0]


def build_together(workspace: Workspace, kind: str, inputs: Inputs, build: Build) -> Artefact:
    """The resumable artefact made from `inputs`, built by all processes in one folder and published
    by the first.
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
    dist.barrier()  # published
    return workspace.artefact(kind, inputs, build, resumable=True)


@dataclass(frozen=True)
class GroupExchange:
    """Runs a contextual loss over the groups of all processes, as `Objective.forward` takes it
    (`run_groups`).

    Running statistics advance over all groups, in order, in every process, from the projected views
    that the processes send each other. So the weighted mean of the processes' gradients equals that
    of a single process. All groups must have the same size, and all processes must call.
    """

    owners: tuple[int, ...]  # rank that holds each group, in the groups' order
    rank: int  # of this process, which has its groups in that order

    def __call__(self, loss: nn.Module, groups: list[tuple[Tensor, ...]]) -> Tensor:
        """The losses of this process' groups, (B,). groups: their two views, (b, P) each.

        A process that owns no group runs one with a share of zero, because DDP requires a connected
        graph. The loss must not see this uncounted group, which would advance the statistics.
        """
        if not any(True for _ in loss.buffers()):  # no statistics: groups are independent
            return in_order(loss, groups)
        remaining, losses = iter(groups), []
        for owner, views in zip(self.owners, self._gather(groups), strict=True):
            if owner == self.rank:
                losses.append(loss(*next(remaining)))
            else:
                loss(*views)  # advances the statistics
        uncounted = [(student + teacher).mean(dim=1) for student, teacher in remaining]
        return torch.cat(losses + uncounted)

    def _gather(
        self, groups: list[tuple[Tensor, ...]]
    ) -> list[Tensor]:  # of all processes, (2, b, P) each
        ranks = range(dist.get_world_size())
        views = torch.stack([torch.stack(group) for group in groups]).detach()  # (n, 2, b, P)
        most = max(
            self.owners.count(rank) for rank in ranks
        )  # all_gather needs one shape for all processes
        sent = views.new_zeros(most, *views.shape[1:])
        if self.rank in self.owners:
            sent[: len(views)] = views
        received = [torch.empty_like(sent) for _ in ranks]
        dist.all_gather(received, sent)
        queues = list(map(iter, received))
        return [next(queues[owner]) for owner in self.owners]
