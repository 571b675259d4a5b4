"""Many documents through an encoder, on one device or several."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from docemb_lib.base.errors import InputError
from docemb_lib.base.hardware import MOST_THREADS, side_by_side, uses_bf16
from docemb_lib.base.pretrained import one_line
from docemb_lib.base.progress import progress
from docemb_lib.base.tokenizing import batched
from docemb_lib.packed.packing import PackedBatch, pack, token_batches
from docemb_lib.student.encoder import Encoder

CHUNK = 512  # documents tokenised, sorted and embedded at a time
BLOCK = 64 * CHUNK  # documents whose embeddings are in memory at a time on their way to a file
# Tokens of a batch. A CPU has full speed with fewer; activations of a base model: some hundred MB.
CPU_BATCH_TOKENS = 2**12
# A GPU then computes longer than launching its kernels takes; activations: some GB.
GPU_BATCH_TOKENS = 2**16
# Tokens after which a GPU's encoder is compiled. Embedding so many takes an H100 about as long as
# compiling does, so that few documents never wait for it.
COMPILED_AFTER = 2**25
Tokens = Sequence[Sequence[int] | np.ndarray]  # the token ids of each document
Devices = Sequence[str | torch.device] | None  # None: the encoder's own
Compute = Callable[[Encoder, PackedBatch], Tensor]


def checked(texts: Iterable[str]) -> list[str]:
    """Return the texts. Raises InputError for what is no collection of strings, naming the item."""
    # Of a mapping or a table, the names would be embedded.
    is_other = isinstance(texts, str | bytes | Mapping | Set) or hasattr(texts, "columns")
    if is_other or not isinstance(texts, Iterable):
        problem = f"this is a {type(texts).__name__} and no sequence of documents"
        raise InputError(f"texts: {problem}; give a list of strings")
    texts = list(texts)
    for number, text in enumerate(texts):
        try:
            str.encode(text)
        except (TypeError, UnicodeEncodeError):  # an unpaired surrogate
            problem = f"item {number} is the {type(text).__name__} {text!r:.40}"
            raise InputError(f"texts: {problem} and no string; mend or leave it out") from None
    return texts


def embed_texts(
    encoder: Encoder,
    texts: Sequence[str],
    tokenize: Callable[[list[str]], Tokens],
    *,
    devices: Devices,
    bf16: bool | None,
    desc: str,
    compute: Compute = Encoder.__call__,
) -> np.ndarray:
    """Embed N texts, float32 (N, width of a row), see `embed_chunks`."""
    chunks = map(tokenize, batched(texts, CHUNK))
    bar: tqdm[str] = progress(desc=desc, total=len(texts), unit="documents")
    # The generator is closed on an error, so that its threads end.
    with bar, closing(embed_chunks(encoder, chunks, devices, bf16, bar.update, compute)) as found:
        rows = list(found)
    return np.concatenate(rows) if rows else np.empty((0, encoder.dim), dtype=np.float32)


def embed_chunks(
    encoder: Encoder,
    tokenised: Iterable[Tokens],
    devices: Devices,
    bf16: bool | None,
    report: Callable[[int], object],
    compute: Compute = Encoder.__call__,
) -> Generator[np.ndarray, None, None]:
    """Yield what is computed of each chunk of n documents in order, float32 (n, D).

    One thread per GPU takes batches, of the following chunks too, so that no device waits at the
    end of a chunk, nor at the end of a batch: results are fetched after the next one has begun. A
    GPU's encoder is compiled where the work is long enough. The cores of a single CPU take batches
    side by side. `report` is called with the number of documents of each finished batch, and
    `compute` gives a row for each document of a batch.
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
                    return compute(replica, batch).float()
            finally:
                idle.append(replica)

        def collect(plan: list[list[int]], results: Iterable[Tensor]) -> np.ndarray:
            """Put the results of the batches of a chunk into the order of its documents."""
            found = []
            for rows, result in zip(plan, results, strict=True):
                found.append(result.cpu().numpy())
                report(len(rows))
            return np.concatenate(found)[np.argsort(list(chain.from_iterable(plan)))]

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
def _replicas(encoder: Encoder, devices: Devices) -> Iterator[list[Encoder]]:
    """Give the encoder in eval mode on each of `devices`, or on its own device for None.

    The encoder itself serves its own device once; all others have copies.
    """
    was_training = encoder.training
    encoder.eval()
    try:
        replicas: list[Encoder] = []
        for device in [devices] if isinstance(devices, str | int) else devices or [encoder.device]:
            with one_line("devices", f"{device} cannot be used", "give cpu, or one that is here"):
                if encoder not in replicas and torch.device(device) == encoder.device:
                    replicas.append(encoder)
                else:
                    replicas.append(copy.deepcopy(encoder).to(device))
        yield replicas
    finally:
        encoder.train(was_training)


def write_npy(
    path: Path, texts: Sequence[str], width: int, embed: Callable[[Sequence[str]], np.ndarray]
) -> np.ndarray:
    """Write the embeddings of N texts, (N, width), and return the read-only memory map of the file.

    The file appears when it is complete; memory holds the embeddings of `BLOCK` texts. Raises
    InputError for the path of another file.
    """
    if path.suffix != ".npy" or path.is_dir():
        raise InputError(f"out: {path} is a folder or no .npy file; name one")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{os.getpid()}.npy")
    try:
        shape = (len(texts), width)
        rows = np.lib.format.open_memmap(partial, "w+", np.float32, shape)
        for start in range(0, len(texts), BLOCK):
            block = slice(start, start + BLOCK)
            rows[block] = embed(texts[block])
        rows.flush()
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)  # after an error
    return np.load(path, mmap_mode="r")
