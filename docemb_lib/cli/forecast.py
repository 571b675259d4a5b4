"""What a plan needs before it starts: data, files and models, and about how much time, memory and disk on this machine.

Counted is what dominates: corpora, Paragraph Vectors, embeddings of teachers, training, embedding of tasks, and a
constant for each run. Documents count as mean ones, and encoders reach a share of a large matrix product, which
is measured. Expect times within a factor of two or three, on one device and without downloads; short documents take
less, and students with global attention, which pad, more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from math import inf
from statistics import fmean
from typing import NamedTuple

from dask.system import CPU_COUNT

from docemb_lib import hardware, pretrained
from docemb_lib.corpus.sources import local_paths, streamed, text_files
from docemb_lib.doctor import INSTALL, unmet
from docemb_lib.errors import InputError
from docemb_lib.evaluation.benchmarks import BENCHMARKS
from docemb_lib.experiments.execution import Planned, Runs, is_done
from docemb_lib.experiments.plan import Step, runs_of
from docemb_lib.experiments.run import Stages
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings import ParagraphVectorSettings, TextSource
from docemb_lib.settings.profile import FINAL, local_config, width
from docemb_lib.settings.sections import EMBEDDED_TASKS
from docemb_lib.teachers.words import training_memory
from docemb_lib.workspace import Workspace

# Measured on two cores, of the corpora of `tiny` and of English Wikipedia.
DOCUMENTS = {"installed-docs": 8_000, "hub": 8.3e6, "local": 0}  # of a source that is taken whole
TOKENS, WORDS, BYTES = 700, 0.55, 4.0  # tokens of a mean document; words, between white space, and bytes of a token
LONGER = 1.7  # mean tokens of documents of a least length, by that length
COUNTING = 3e5  # tokens a second and core: read, cleaned, counted by two tokenizers, written
GENSIM = 4e6  # words a second and thread, times 4 + vector_size / 100: DM, and DBOW without word vectors
SKIP_GRAM = 4.0  # time of DBOW with word vectors against that
SHARE = 0.5  # of the peak that encoders reach: 0.7 in float32, 0.5 in bfloat16
RUN, SCORE = 8.0, 0.7  # seconds of a run for kernel, imports and figures; of a model and task for head and intervals
LIBRARIES = 1.2e9  # bytes of a process


class Cost(NamedTuple):
    seconds: float = 0.0
    memory: float = 0.0  # bytes at the peak
    disk: float = 0.0  # bytes


class Line(NamedTuple):
    """The forecast of one line of a plan. What an earlier line has built is not counted again."""

    step: Step
    there: int  # runs that are done
    cost: Cost


class Forecast(NamedTuple):
    lines: list[Line]
    total: Cost
    needs: dict[tuple[str, str], list[int]]  # kind and name → numbers of the lines that need it
    missing: list[str]  # why `docemb run` would refuse now, a line each


def forecast(steps: Sequence[Step], workspace: Workspace) -> Forecast:
    """What the missing runs of a plan need and take. Builds nothing."""
    done = {run for run in runs_of(steps) if is_done(run, workspace)}
    built = {piece for run in done for piece in _pieces(run.key)}
    lines: list[Line] = []
    needs: dict[tuple[str, str], list[int]] = {}
    todo: list[Planned] = []
    for number, step in enumerate(steps, 1):
        missing = [run for run in step.runs if run not in done]
        new = {piece: cost for run in missing for piece, cost in _pieces(run.key).items() if piece not in built}
        built |= new.keys()
        for need in dict.fromkeys(need for run in missing for need in _needs(Stages(run.key, workspace))):
            needs.setdefault(need, []).append(number)
        cost = _sum([*new.values(), *(Cost(RUN, LIBRARIES) for _ in missing)])
        lines.append(Line(step, len(step.runs) - len(missing), cost))
        todo += missing
    return Forecast(lines, _sum([line.cost for line in lines]), needs, missing_of(todo, workspace))


def missing_of(runs: Runs, workspace: Workspace) -> list[str]:
    """Why runs cannot be executed, a line each: packages, files, models and the hub. Empty if all is there."""
    reasons = {f"{problem}; {INSTALL}": ["packages"] for problem in unmet()}  # reason → what it holds for
    for run in runs:
        for check in Stages(run.key, workspace).checks():
            try:
                check()
            except InputError as error:
                of, _, reason = str(error).partition(": ")
                reasons.setdefault(reason, []).append(of)
    return [f"{', '.join(dict.fromkeys(of))}: {reason}" for reason, of in reasons.items()]


def _needs(stages: Stages) -> Iterator[tuple[str, str]]:
    """Kind and name of what a run reads from outside."""
    profile = stages.key.profile
    yield from (("model", name) for name in stages.models)
    for source in profile.text_sources:
        yield from (("data set", name) for name in streamed(source))
        paths = source.path if isinstance(source.path, list) else [source.path]
        yield from (("files", str(path)) for path in paths if path)
    folders = {str(name): folder for name, folder in profile.evaluation.benchmarks.items()}
    for name in _tasks(stages.key):
        if benchmark := BENCHMARKS.get(name):
            files = f" ({', '.join(benchmark.files)})" if benchmark.files else ""
            yield "files" if name in folders else "data set", f"{folders.get(name, benchmark.hub)}{files}"


def _pieces(key: RunKey) -> dict[Hashable, Cost]:
    """What a run builds, or finds built by another one: what identifies each piece, and its cost."""
    profile, p, corpus = key.profile, key.profile.parameters, str(key.profile.corpus)
    teachers, structural, student = profile.contextual_teachers, profile.structural_teacher, profile.student
    final, vectors, fitted_on = key.notebook in FINAL, key.paragraph_vectors, teachers.corpus or profile.corpus
    pieces: dict[Hashable, Cost] = {}
    for source in (profile.corpus, *([fitted_on] if vectors else [])):
        read = _documents(source) * _tokens(source)
        pieces[str(source)] = Cost(read / COUNTING / CPU_COUNT, 0, read * BYTES)
    fitted = min(_documents(fitted_on), teachers.documents or inf)
    pieces |= {(str(vector), str(fitted_on)): _fitting(vector, fitted, _tokens(fitted_on)) for vector in vectors}

    tokens = _tokens(profile.corpus)
    models = {str(vector): _inferring(vector, tokens) for vector in vectors}  # seconds of a document
    most = inf if structural.long != "truncate" else structural.max_tokens or 512
    sbert, _ = _encoder(structural.model, min(tokens, most))
    if key.trains:
        named = [p.contextual_teacher, *(further.teacher for further in profile.further_teachers)]
        members = [vector for name in named if name for vector in teachers.members(name)]
        taught_by = {str(vector): _inferring(vector, tokens) for vector in members}
        taught_by |= {str(structural): sbert} if p.structural_loss else {}
        rows = p.documents + profile.corpus.validation
        for teacher, seconds in taught_by.items() if key.taught else ():
            pieces[teacher, corpus, rows] = Cost(rows * seconds, 0, rows * 4096)  # 1,024 numbers at most
        own, weights = _encoder(student.model, min(tokens, student.max_tokens), student.layers)
        passes = key.training.epochs * p.documents * (2 if key.self_supervised else 1) + profile.corpus.validation
        # Backward passes take two thirds. A weight has a gradient and two moments, and as much again for activations.
        trained = f"{key.same_but()} {key.self_supervised} {student} {corpus}"
        pieces[trained] = Cost(3 * passes * own, LIBRARIES + 32 * weights, 4 * weights)
        models |= {trained: own, f"untrained {student}": own}
    models |= {str(structural): sbert} if models else {}
    models |= {name: _encoder(name, 512)[0] for name in profile.evaluation.beside if final}
    for task in _tasks(key):
        texts = profile.evaluation.documents if task in EMBEDDED_TASKS else 2 * profile.evaluation.limit
        pieces |= {(model, task, final, corpus): Cost(SCORE + texts * seconds) for model, seconds in models.items()}
    return pieces


def _tasks(key: RunKey) -> list[str]:
    return key.profile.evaluation.tasks if key.notebook in FINAL else key.profile.evaluation.sweep_tasks


def _documents(source: TextSource) -> float:
    """How many documents a source gives: of local files, as many mean ones as they have bytes."""
    size = 0
    with suppress(InputError):  # of files that are missing
        paths = local_paths(source.path or [])
        files = [file for path in paths for file in (text_files(path) if path.is_dir() else [path])]
        size = sum(file.stat().st_size for file in files)
    return min(DOCUMENTS[source.source] + size / BYTES / TOKENS, source.documents or inf)


def _tokens(source: TextSource) -> float:
    lengths = [LONGER * one.min_student_tokens if one.min_student_tokens else TOKENS for one in source.datasets]
    return fmean(lengths or [TOKENS])


def _fitting(settings: ParagraphVectorSettings, documents: float, tokens: float) -> Cost:
    """tokens: of a document."""
    types = int(min(35 * (documents * tokens * WORDS) ** 0.62, settings.max_vocab_size or inf))  # Heaps' law; web text
    vocabulary = types if settings.max_vocab_size else types // 2  # about half of the types occur once
    size = {"vocabulary": vocabulary, "lines": int(documents), "vector_size": settings.vector_size}
    memory = training_memory(types=types, **size)
    seconds = documents * _inferring(settings, tokens) * CPU_COUNT / min(settings.workers, CPU_COUNT)
    return Cost(seconds, LIBRARIES + memory["total"], memory["words"] + memory["documents"])


def _inferring(settings: ParagraphVectorSettings, tokens: float) -> float:
    """Seconds of a document, on all cores."""
    rate = CPU_COUNT * GENSIM / (4 + settings.vector_size / 100)
    return settings.epochs * tokens * WORDS / rate * (SKIP_GRAM if settings.dbow_words and not settings.dm else 1)


def _encoder(model: str, tokens: float, layers: Sequence[int] | None = None) -> tuple[float, int]:
    """Seconds of a document, and weights: as of a BERT as wide, where no config.json is here."""
    config = {}
    with suppress(InputError):
        config = local_config(pretrained.resolve(model))
    D = config.get("hidden_size") or width(model) or 768
    weights = 12 * D * D * (len(layers) if layers else config.get("num_hidden_layers", D // 64))
    # Of each token, a multiplication and an addition for each weight.
    return 2 * weights * tokens / encoder_flops(), weights + D * config.get("vocab_size", 40_000)


@cache
def encoder_flops() -> float:
    """Floating-point operations a second that encoders reach on this machine: a share of the measured peak."""
    import torch

    device = hardware.devices_at_hand()[0]
    return SHARE * hardware.matmul_peak(device, torch.bfloat16 if hardware.fast_bf16(device) else torch.float32)


def _sum(costs: Sequence[Cost]) -> Cost:
    """One after the other: times and files add up, memory is that of the largest."""
    memory = max((cost.memory for cost in costs), default=0.0)
    return Cost(sum(cost.seconds for cost in costs), memory, sum(cost.disk for cost in costs))
