"""Embedding of any number of documents in constant memory: chunks of texts, batches on all devices, a growing file."""

from __future__ import annotations

import copy
import os
import queue
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import numpy as np
import torch

from docemb_lib.errors import InputError
from docemb_lib.hardware import fast_bf16
from docemb_lib.student.packing import PackedBatch, pack, token_batches

if TYPE_CHECKING:
    from docemb_lib.student.student import Student

CHUNK = 512  # documents tokenised, sorted and embedded at a time; bounds the memory for an iterable
CPU_BATCH_TOKENS = 2**13  # more than a CPU needs for full speed; activations of a base model: some hundred MB
GPU_BATCH_TOKENS = 2**16  # a GPU then computes longer than launching its kernels takes; activations: some GB
DTYPE = np.dtype("<f4")
Item = TypeVar("Item")
Result = TypeVar("Result")


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """`texts` in lists of `CHUNK`, the last one shorter."""
    remaining = iter(texts)
    while chunk := list(islice(remaining, CHUNK)):
        yield chunk


def one_ahead(function: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
    """`function` of each item in order; a thread computes the next result while the caller uses the last one.

    The items themselves are taken in the caller's thread: a database cursor must not leave the thread that made it.
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
    student: Student,
    tokenised: Iterable[Sequence[Sequence[int]]],
    *,
    devices: Sequence[str | torch.device] | None,
    batch_tokens: int | None,
    bf16: bool | None,
    report: Callable[[int], object],
) -> Generator[np.ndarray, None, None]:
    """Float32 (n, D) for each chunk of n documents' token ids, in order.

    One thread per device takes batches, of the following chunks too, so that no device waits at the end of a chunk.
    report: called with the number of documents of each finished batch.
    """
    with _replicas(student, devices) as replicas:
        if batch_tokens is None:
            on_cpu = any(replica.device.type == "cpu" for replica in replicas)
            batch_tokens = CPU_BATCH_TOKENS if on_cpu else GPU_BATCH_TOKENS
        idle: queue.SimpleQueue[Student] = queue.SimpleQueue()
        for replica in replicas:
            idle.put(replica)

        def embed(batch: PackedBatch) -> np.ndarray:
            replica = idle.get()
            try:
                device = replica.device
                enabled = fast_bf16(device) if bf16 is None else bf16
                # Inference mode and autocast hold for the calling thread alone.
                with torch.inference_mode(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled):
                    return replica(batch.to(device)).float().cpu().numpy()
            finally:
                idle.put(replica)

        def collect(batches: list[tuple[list[int], Future[np.ndarray]]]) -> np.ndarray:
            embeddings = np.empty((sum(len(rows) for rows, _ in batches), student.dim), dtype=np.float32)
            for rows, future in batches:
                embeddings[rows] = future.result()
                report(len(rows))
            return embeddings

        threads = ThreadPoolExecutor(len(replicas))
        try:
            pending: deque[list[tuple[list[int], Future[np.ndarray]]]] = deque()
            for documents in tokenised:
                plan = token_batches([len(ids) for ids in documents], batch_tokens)
                # Packed in this thread, so that a device finds its next batch ready.
                packed = [(rows, pack([documents[row] for row in rows])) for rows in plan]
                pending.append([(rows, threads.submit(embed, batch)) for rows, batch in packed])
                if len(pending) > len(replicas):
                    yield collect(pending.popleft())
            while pending:
                yield collect(pending.popleft())
        finally:
            threads.shutdown(cancel_futures=True)  # after an error or an interrupt, drop the batches not yet started


@contextmanager
def _replicas(student: Student, devices: Sequence[str | torch.device] | None) -> Iterator[list[Student]]:
    """The student in eval mode on each of `devices`, itself where possible, else as a copy; None: on its own device."""
    if devices is not None and (isinstance(devices, str) or not devices):
        raise InputError(f"devices: got {devices!r}, give a list of devices such as ['cuda:0', 'cuda:1'], or None")
    was_training = student.training
    student.eval()
    try:
        replicas: list[Student] = []
        for device in [student.device] if devices is None else devices:
            try:
                own = student not in replicas and torch.device(device) == student.device
                replicas.append(student if own else copy.deepcopy(student).to(device))
            except (RuntimeError, AssertionError) as error:  # unknown, absent, too small; without CUDA torch asserts
                raise InputError(f"devices: {device} cannot be used: {str(error).splitlines()[0]}") from error
        yield replicas
    finally:
        student.train(was_training)


@contextmanager
def growing_npy(path: Path, width: int) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that appends rows (n, width) to a float32 array in the file `path`, which appears when the block ends.

    Until then the rows are in a hidden file beside it, which an error or an interrupt removes. Raises InputError for a
    suffix other than .npy.
    """
    if path.suffix != ".npy":
        raise InputError(f"out: got {path}, give a file that ends in .npy")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{os.getpid()}.npy")
    n = 0
    try:
        with partial.open("wb") as file:

            def append(rows: np.ndarray) -> None:
                nonlocal n
                file.write(np.ascontiguousarray(rows, dtype=DTYPE).data)
                n += len(rows)

            _write_header(file, (0, width))
            yield append
            file.seek(0)
            _write_header(file, (n, width))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _write_header(file: BinaryIO, shape: tuple[int, int]) -> None:
    """numpy reserves room for a first axis of any length: the header of 0 rows is as long as the final one."""
    header = {"descr": np.lib.format.dtype_to_descr(DTYPE), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
