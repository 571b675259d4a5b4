"""A .npy file that grows by rows: an array of any number of rows is written in constant memory."""

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
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeVar

import numpy as np
import torch

from docemb_lib.errors import InputError
from docemb_lib.hardware import fast_bf16
from docemb_lib.student.packing import PackedBatch, pack, token_batches

if TYPE_CHECKING:
    from docemb_lib.student.student import Student


# ---- a


DTYPE = np.dtype("<f4")


@contextmanager
def growing_npy(path: Path, width: int) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that appends rows (n, width) to a float32 array in `path`, which is there once the block has ended.

    Until then it is a hidden file beside, which an error or an interrupt removes. Raises InputError for another ending
    than .npy.
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
    """numpy leaves room for a first axis of any length: the header of 0 rows is as long as the last one."""
    np.lib.format.write_array_header_1_0(
        file, {"descr": np.lib.format.dtype_to_descr(DTYPE), "fortran_order": False, "shape": shape}
    )


# ---- documents in


CHUNK = 512  # documents tokenised, sorted and embedded at a time: what an iterable's memory is bounded by
CPU_BATCH_TOKENS = 2**13  # a CPU is at full speed long before; activations of a base model: some hundred MB
GPU_BATCH_TOKENS = 2**16  # a GPU computes for longer than launching its kernels takes; activations: some GB
Item = TypeVar("Item")
Result = TypeVar("Result")


class Batch(NamedTuple):
    """Embeddings under way of some documents of a chunk."""

    rows: list[int]  # which documents of the chunk
    embeddings: Future[np.ndarray]  # (len(rows), D)


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """`texts` in lists of `CHUNK`, the last one shorter."""
    remaining = iter(texts)
    while chunk := list(islice(remaining, CHUNK)):
        yield chunk


def one_ahead(function: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
    """`function` of each item in their order, the next one computed in a thread while the caller uses the last.

    The items themselves are taken in the caller's thread: a database cursor may not leave its own.
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
    """Float32 (n, D) for each chunk of n documents' token ids, in their order.

    One thread per device pulls batches, of the next chunks too, so that no device waits for another at a chunk's end.
    report: told how many documents each finished batch had.
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
                return _embed_batch(replica, batch, bf16)
            finally:
                idle.put(replica)

        threads = ThreadPoolExecutor(len(replicas))
        try:
            pending: deque[list[Batch]] = deque()
            for documents in tokenised:
                plan = token_batches([len(ids) for ids in documents], batch_tokens)
                # Packed here, so that a device finds its next batch ready.
                packed = [(rows, pack([documents[row] for row in rows])) for rows in plan]
                pending.append([Batch(rows, threads.submit(embed, batch)) for rows, batch in packed])
                if len(pending) > len(replicas):
                    yield _gather(pending.popleft(), student.dim, report)
            while pending:
                yield _gather(pending.popleft(), student.dim, report)
        finally:
            threads.shutdown(cancel_futures=True)  # after an error or an interrupt what has not begun is left undone


def _gather(batches: list[Batch], dim: int, report: Callable[[int], object]) -> np.ndarray:
    embeddings = np.empty((sum(len(batch.rows) for batch in batches), dim), dtype=np.float32)
    for batch in batches:
        embeddings[batch.rows] = batch.embeddings.result()
        report(len(batch.rows))
    return embeddings


def _embed_batch(student: Student, batch: PackedBatch, bf16: bool | None) -> np.ndarray:
    """Embeddings (n, D) of n documents; inference mode and autocast hold in the calling thread alone."""
    device = student.device
    enabled = fast_bf16(device) if bf16 is None else bf16
    with torch.inference_mode(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled):
        return student(batch.to(device)).float().cpu().numpy()


@contextmanager
def _replicas(student: Student, devices: Sequence[str | torch.device] | None) -> Iterator[list[Student]]:
    """The student in eval mode on each of `devices`, itself where it is on one already; None: where it is."""
    if devices is not None and (isinstance(devices, str) or not devices):
        raise InputError(f"devices: got {devices!r}, give a list of devices such as ['cuda:0', 'cuda:1'], or None")
    was_training = student.training
    student.eval()
    try:
        replicas: list[Student] = []
        for device in [student.device] if devices is None else devices:
            replicas.append(_on_device(student, device, own=student not in replicas))
        yield replicas
    finally:
        student.train(was_training)


def _on_device(student: Student, device: str | torch.device, *, own: bool) -> Student:
    try:
        if own and torch.device(device) == student.device:
            return student
        return copy.deepcopy(student).to(device)
    except (RuntimeError, AssertionError) as error:  # unknown, not there, too small; without CUDA torch asserts
        raise InputError(f"devices: {device} cannot be used: {str(error).splitlines()[0]}") from error
