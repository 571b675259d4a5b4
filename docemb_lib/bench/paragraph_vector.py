"""Inference of Paragraph Vectors by processes against a plain gensim loop, on generated text.

gensim's side is the usual script: the same model, and `infer_vector` one document after the other.
"""

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from joblib import cpu_count

from docemb_lib.base.progress import progress
from docemb_lib.base.scratch import scratch_folder
from docemb_lib.bench.harness import Report, Row, interleaved, ratio_row, thesis_lengths
from docemb_lib.teachers import ParagraphVector, paragraph_vector

# The words of a document for each token of one of the thesis: about 400 words in the mean.
SCALE = 0.3
TYPES = 30_000  # different words, with frequencies after Zipf's law


def bench_paragraph_vector(*, quick: bool = False) -> Report:
    """Documents a second, with one process and with two, and how far their embeddings differ.

    Takes some minutes on two cores. `quick` takes few documents, to see that all parts run.
    """
    documents = 40 if quick else 1200
    repeats = 1 if quick else 3
    options: dict[str, Any] = {"vector_size": 100, "epochs": 2 if quick else 10}
    processes = [1, 2] if cpu_count() > 1 else [1]
    texts = random_texts(documents)
    rows = []
    with scratch_folder("docemb-bench-") as temporary:
        for name in progress(("DM", "DBOW"), desc="bench", unit="parts"):
            folder = temporary / name
            ParagraphVector(dm=name == "DM", **options).fit(texts, folder)
            rows += inference(name, texts, folder, processes, repeats)
    paragraph_vector.PROCESSES.stop()
    settings = {"documents": documents, "repeats": repeats, **options, "gensim": version("gensim")}
    return Report("paragraph-vector", "gensim", settings, rows)


def random_texts(documents: int, *, types: int = TYPES) -> list[str]:
    """Words drawn independently: word k with a probability proportional to 1/k."""
    generator = np.random.default_rng(0)
    frequency = 1 / np.arange(1, types + 1)
    lengths = thesis_lengths(documents, seed=0, scale=SCALE)
    drawn = generator.choice(types, size=sum(lengths), p=frequency / frequency.sum())
    words = np.array([f"word{k}" for k in range(types)])[drawn]
    return [" ".join(text) for text in np.split(words, np.cumsum(lengths)[:-1])]


def inference(
    name: str, texts: list[str], folder: Path, processes: list[int], repeats: int
) -> list[Row]:
    """Rates of the model in `folder` against gensim's loop, and with two processes against one."""
    model = ParagraphVector.load(folder)
    options = tuple(model.gensim_options(model.fitted.min_count).items())
    plain = paragraph_vector.load_model(folder, "", options)
    # The largest number comes first, which starts all processes.
    embeddings = [model.embed(texts, jobs=number) for number in reversed(processes)]
    runs: dict[int, Callable[[], object]] = {
        number: partial(model.embed, texts, jobs=number) for number in processes
    }
    runs[0] = lambda: [plain.infer_vector(text.lower().split()) for text in texts]
    seconds = interleaved(runs, repeats)
    peer = seconds.pop(0)
    rows = [
        ratio_row(f"{name}, {number} processes", len(texts), "documents/s", ours, peer)
        for number, ours in seconds.items()
    ]
    if 2 in seconds:
        scaling = median(seconds[1]) / median(seconds[2])
        rows.append(Row(f"{name}, 2 processes over 1", scaling, "×", at_least=1.8))
    difference = float(np.ptp(embeddings, axis=0).max())
    name = f"{name}, largest difference between numbers of processes"
    return [*rows, Row(name, difference, "", at_most=0.0)]
