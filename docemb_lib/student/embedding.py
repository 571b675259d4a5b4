"""Many documents through an encoder, on one device or several, in constant memory."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
    Sized,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from docemb_lib.base.errors import InputError
from docemb_lib.base.hardware import MOST_THREADS, side_by_side, uses_bf16
from docemb_lib.packed.packing import PackedBatch, pack, token_batches

CHUNK = 512  # documents tokenised, sorted and embedded at a time; bounds the memory for an iterable
# Tokens of a batch. A CPU has full speed with fewer; activations of a base model: some hundred MB.
CPU_BATCH_TOKENS = 2**12
# A GPU then computes longer than launching its kernels takes; activations: some GB.
GPU_BATCH_TOKENS = 2**16
# Tokens after which a GPU's encoder is compiled. Embedding so many takes an H100 about as long as
# compiling does, so that few documents never wait for it.
COMPILED_AFTER = 2**25
Item = TypeVar("Item")
Result = TypeVar("Result")
Tokens = Sequence[Sequence[int] | np.ndarray]  # the token ids of each document


class Encoder(Protocol):
    """A torch module that turns packed documents into embeddings; `Student` is one."""

    training: bool

    @property
    def device(self) -> torch.device: ...

    @property
    def dim(self) -> int:
        """D, the width of an embedding."""

    def padded(self, tokens: int) -> int:
        """The tokens that a document of so many takes in a batch."""

    def __call__(self, batch: PackedBatch) -> Tensor:
        """The embeddings of B packed documents, (B, D)."""

    def compile_if_possible(self, run: Callable[[], object]) -> None:
        """Compile the encoder, unless a first pass, `run`, fails then."""

    def eval(self) -> object: ...
    def train(self, mode: bool = True) -> object: ...
    def to(self, device: str | torch.device) -> Self: ...


def checked(texts: Iterable[str]) -> Iterable[str]:
    """The texts; raises InputError for what is no collection of strings, naming the item.

    What has a length is checked as a whole, an iterator while it is read.
    """
    # Of a mapping or a table, the names would be embedded.
    is_other = isinstance(texts, str | bytes | Mapping | Set) or hasattr(texts, "columns")
    if is_other or not isinstance(texts, Iterable):
        problem = f"this is a {type(texts).__name__} and no sequence of documents"
        raise InputError(f"texts: {problem}; give a list of strings")
    if not isinstance(texts, Sized):
        return _checked_items(texts)
    for _ in _checked_items(texts):
        pass
    return texts


def _checked_items(texts: Iterable[object]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            problem = f"item {number} is the {type(text).__name__} {text!r:.40}"
            raise InputError(f"texts: {problem} and no string; mend or leave it out")
        yield text


def check_npy(path: Path) -> None:
    """Raise InputError unless a path is that of a .npy file to write."""
    if path.suffix != ".npy":
        raise InputError(f"out: {path} is no .npy file; name one")
    if path.is_dir():
        raise InputError(f"out: {path} is a folder; name a file")


def one_ahead(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    """Apply `function` to each item in order, one item ahead of the caller, in a thread.

    The items are taken in the caller's thread: a database cursor must not leave the thread that
    made it.
    """
    with ThreadPoolExecutor(1) as thread:
        pending: deque[Future[Result]] = deque()
        for item in items:
            pending.append(thread.submit(function, item))
            if len(pending) == 2:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def embed_chunks(
    encoder: Encoder,
    tokenised: Iterable[Tokens],
    devices: Sequence[str | torch.device] | None,
    bf16: bool | None,
    report: Callable[[int], object],
) -> Generator[np.ndarray, None, None]:
    """Yield the embeddings of each chunk of n documents in order, float32 (n, D).

    One thread per GPU takes batches, of the following chunks too, so that no device waits at the
    end of a chunk, nor at the end of a batch: results are fetched after the next one has begun. A
    GPU's encoder is compiled where the work is long enough. The cores of a single CPU take batches
    side by side. `report` is called with the number of documents of each finished batch.
    """
    with ExitStack() as stack:
        replicas = stack.enter_context(_replicas(encoder, devices))
        on_cpu = any(replica.device.type == "cpu" for replica in replicas)
        budget = CPU_BATCH_TOKENS if on_cpu else GPU_BATCH_TOKENS
        is_alone = on_cpu and len(replicas) == 1
        idle = deque(replicas * MOST_THREADS if is_alone else replicas)  # each thread finds one
        uncompiled = [] if on_cpu else list(replicas)
        tokens = 0  # of all chunks so far

        def embed(batch: PackedBatch) -> Tensor:
            replica = idle.popleft()
            try:
                device = replica.device
                enabled = uses_bf16(device) if bf16 is None else bf16
                autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)
                # Inference mode and autocast hold for the calling thread alone.
                with torch.inference_mode(), autocast:
                    batch = batch.to(device)
                    if tokens > COMPILED_AFTER and replica in uncompiled:
                        uncompiled.remove(replica)
                        replica.compile_if_possible(lambda: replica(batch))
                    return replica(batch).float()
            finally:
                idle.append(replica)

        def collect(plan: list[list[int]], results: Iterable[Tensor]) -> np.ndarray:
            """Put the results of the batches of a chunk into the order of its documents."""
            embeddings = np.empty((sum(map(len, plan)), encoder.dim), dtype=np.float32)
            for rows, result in zip(plan, results, strict=True):
                embeddings[rows] = result.cpu().numpy()
                report(len(rows))
            return embeddings

        run: Callable[..., Iterable[Tensor]] | None = None
        if not is_alone:
            threads = ThreadPoolExecutor(len(replicas))
            # After an error or an interrupt, drop the batches that are not yet started.
            stack.callback(threads.shutdown, cancel_futures=True)
            run = threads.map
        pending: deque[tuple[list[list[int]], Iterable[Tensor]]] = deque()
        for documents in tokenised:
            tokens += sum(map(len, documents))
            plan = token_batches([encoder.padded(len(ids)) for ids in documents], budget)
            # Packed in this thread, so that a device finds its next batch ready.
            packed = []
            for rows in plan:
                packed.append(pack([documents[row] for row in rows]))
            if run is None:  # the first chunk decides: only the last one may be smaller
                run = stack.enter_context(side_by_side(len(packed)))
            pending.append((plan, run(embed, packed)))
            if len(pending) > len(replicas):
                yield collect(*pending.popleft())
        while pending:
            yield collect(*pending.popleft())


@contextmanager
def _replicas(
    encoder: Encoder, devices: Sequence[str | torch.device] | None
) -> Iterator[list[Encoder]]:
    """Give the encoder in eval mode on each of `devices`, or on its own device for None.

    The encoder itself serves its own device once; all others have copies.
    """
    was_training = encoder.training
    encoder.eval()
    try:
        replicas: list[Encoder] = []
        for device in devices or [encoder.device]:
            if encoder not in replicas and torch.device(device) == encoder.device:
                replicas.append(encoder)
            else:
                replicas.append(copy.deepcopy(encoder).to(device))
        yield replicas
    finally:
        encoder.train(was_training)


@contextmanager
def growing_npy(path: Path, width: int) -> Iterator[Callable[[np.ndarray], object]]:
    """Give a function that appends float32 rows (n, width) to the array in a file.

    The file appears when the block ends. Until then the rows are in a hidden file beside it, which
    an error or an interrupt removes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{os.getpid()}.npy")
    header = {"descr": "<f4", "fortran_order": False, "shape": (0, width)}
    try:
        with partial.open("wb") as file:
            # The header reserves room for a first axis of any length.
            np.lib.format.write_array_header_1_0(file, header)
            start = file.tell()
            yield lambda rows: file.write(np.ascontiguousarray(rows, dtype="<f4").data)
            n = (file.tell() - start) // (4 * width)
            file.seek(0)
            np.lib.format.write_array_header_1_0(file, header | {"shape": (n, width)})
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
