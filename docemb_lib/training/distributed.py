"""Several processes that build one artefact: started by torchrun or `accelerate launch`, each runs the same command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from docemb_lib.workspace import Artefact, Workspace

PATIENCE = timedelta(days=7)  # processes wait for each other while one of them builds corpus and teachers


@contextmanager
def together() -> Iterator[None]:
    """Meet the other processes of a command, where there are any, and part from them at its end."""
    if "LOCAL_RANK" not in os.environ:  # set by torchrun and accelerate
        yield
        return
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE)
    yield
    torch.distributed.destroy_process_group()  # not after an error: the others may wait, and the launcher ends them


def is_first() -> bool:
    """Whether this process is the one that writes and speaks for all."""
    return os.environ.get("RANK", "0") == "0"


def build_together(
    workspace: Workspace, kind: str, inputs: Mapping[str, Any], build: Callable[[Path], None]
) -> Artefact:
    """The resumable artefact made from `inputs`, built by all processes at once where there are several.

    All of them run `build` in the same folder, on a file system that they share; the first one publishes it, and
    should be the only one to write results.
    """
    import torch.distributed as dist

    if not dist.is_initialized():
        return workspace.artefact(kind, inputs, build, resumable=True)
    told: list[str | None] = [None]  # the folder; None: there is nothing to build

    if is_first():

        def announced(folder: Path) -> None:
            told[0] = str(folder)
            dist.broadcast_object_list(told)
            build(folder)
            dist.barrier()  # nobody is in the folder any more when it gets its name

        workspace.artefact(kind, inputs, announced, resumable=True)
        if told[0] is None:
            dist.broadcast_object_list(told)
    else:
        dist.broadcast_object_list(told)
        if told[0] is not None:
            build(Path(told[0]))
            dist.barrier()
    dist.barrier()
    return workspace.artefact(kind, inputs, build, resumable=True)  # there by now
