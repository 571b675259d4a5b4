"""What a plan needs before it starts: data, files and models, and about how much time, memory and disk on this machine.

Counted are corpora, Paragraph Vectors, students, and the tasks that they and their references embed, each in the first
line that needs it. Not counted are downloads. All documents count as mean ones, and encoders as reaching a share of a
large matrix product, which is measured. Expect times within a factor of three, on one device. The memory is the least:
training takes up to half of what is free for larger passes.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import islice
from math import inf, prod
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pandas as pd
from dask.system import CPU_COUNT
from rich.console import Console
from rich.filesize import decimal

from docemb_lib import hardware
from docemb_lib.cli.terminal import duration, print_table
from docemb_lib.corpus.sources import local_documents, local_files, streamed
from docemb_lib.doctor import INSTALL, unmet
from docemb_lib.errors import InputError
from docemb_lib.evaluation.benchmarks import BENCHMARKS
from docemb_lib.evaluation.catalogue import files_of
from docemb_lib.experiments.execution import Planned, is_done
from docemb_lib.experiments.plan import Step, runs_of
from docemb_lib.experiments.run import Stages
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.experiments.stages import TEACHER_SEED
from docemb_lib.settings.profile import FINAL, Profile, width
from docemb_lib.settings.sections import EMBEDDED_TASKS, ParagraphVectorSettings, TextSource
from docemb_lib.workspace import Workspace

# Measured on two cores, of the corpora of `tiny` and of English Wikipedia.
# Documents of a source that is taken whole, and tokens of a mean one; a hub's: articles and long news.
SIZES = {"installed-docs": (8e3, 700.0), "hub": (8.3e6, 1400.0), "local": (1e4, 700.0)}
READ = 1000  # documents of local files whose mean length is taken
WORDS, BYTES = 0.55, 4.0  # words, between white space, and bytes of a token
GZIP = 3.0  # times that text takes of its compressed size
COUNTING = 3e5  # tokens a second and core: read, cleaned, counted by two tokenizers, written
GENSIM = 4e6  # words a second and thread, times 4 + vector_size / 100: DM, and DBOW without word vectors
SKIP_GRAM = 4.0  # time of DBOW with word vectors against that
SHARE = 0.5  # of the peak that encoders reach: 0.7 in float32, 0.5 in bfloat16
RUN = 8.0  # seconds of a run for kernel, imports, heads, intervals and figures
LIBRARIES = 1.2e9  # bytes of a process
COLUMNS = ["line", "notebook", "runs", "there", "profile", "grid, or single run", "time", "memory", "disk"]


class Cost(NamedTuple):
    seconds: float = 0.0
    memory: float = 0.0  # bytes at the peak
    disk: float = 0.0  # bytes

    @property
    def texts(self) -> tuple[str, str, str]:
        return duration(self.seconds), decimal(round(self.memory)), decimal(round(self.disk))

    def __str__(self) -> str:
        return "about {} on this machine, {} or more of memory and {} of disk".format(*self.texts)


class Forecast(NamedTuple):
    lines: pd.DataFrame  # a row for each line of the plan, with the time, memory and disk of its missing runs
    total: Cost
    needs: dict[tuple[str, str], list[int]]  # kind and name → numbers of the lines that need it
    missing: list[str]  # why `docemb run` would refuse now, a line each


def forecast(steps: Sequence[Step], workspace: Workspace, done: set[Planned] | None = None) -> Forecast:
    """What the missing runs of a plan need and take. Builds nothing. done: those that are done; None: find them."""
    done = {run for run in runs_of(steps) if is_done(run, workspace)} if done is None else done
    rows, costs = [], run_costs(steps, workspace, done)
    needs: dict[tuple[str, str], list[int]] = {}
    reasons = {f"{problem}; {INSTALL}": ["packages"] for problem in unmet()}  # reason → what it holds for
    for number, step in enumerate(steps, 1):
        first, missing = step.runs[0], [run for run in step.runs if run in costs]
        for stages in (Stages(run.key, workspace) for run in missing):
            for need in _needs(stages):
                if number not in needs.setdefault(need, []):
                    needs[need].append(number)
            for check in stages.checks():
                try:
                    check()
                except InputError as error:
                    of, _, reason = str(error).partition(": ")
                    reasons.setdefault(reason, []).append(of)
        there, all_costs = len(step.runs) - len(missing), _sum([costs[run] for run in missing])
        named = str(number), first.notebook, len(step.runs), there, first.profile.name, step.grid or first.label
        rows.append((*named, *all_costs.texts))
    lines = pd.DataFrame(rows, columns=COLUMNS)
    why = [f"{', '.join(dict.fromkeys(of))}: {reason}" for reason, of in reasons.items()]
    return Forecast(lines, _sum([*costs.values()]), needs, why)


def run_costs(steps: Sequence[Step], workspace: Workspace, done: Set[Planned]) -> dict[Planned, Cost]:
    """What each run that is not `done` takes; what several runs need counts for the first of them."""
    sources = {str(source): source for run in runs_of(steps) for source in run.profile.text_sources}
    sizes = {name: _size(source) for name, source in sources.items()}
    built = {piece for run in done for piece in _pieces(run.key, sizes)}
    costs: dict[Planned, Cost] = {}
    for run in (run for run in runs_of(steps) if run not in done):
        pieces = _pieces(run.key, sizes)
        built |= _built(Stages(run.key, workspace))
        costs[run] = _sum([Cost(RUN, LIBRARIES), *(cost for piece, cost in pieces.items() if piece not in built)])
        built |= pieces.keys()
    return costs


def run_seconds(steps: Sequence[Step], workspace: Workspace, done: Set[Planned]) -> dict[Planned, float]:
    """The seconds of `run_costs`."""
    return {run: cost.seconds for run, cost in run_costs(steps, workspace, done).items()}


def _sum(costs: Sequence[Cost]) -> Cost:
    seconds, memory, disk = zip(Cost(), *costs, strict=True)
    return Cost(sum(seconds), max(memory), sum(disk))


def print_forecast(found: Forecast, console: Console) -> None:
    """A plan before it starts: its lines, what they need from outside, what is missing, and about what it takes."""
    print_table(found.lines, console)
    needs = [(kind, name, ", ".join(map(str, lines))) for (kind, name), lines in found.needs.items()]
    print_table(pd.DataFrame(needs, columns=["needs", "which", "for lines"]), console)
    for line in found.missing:
        console.print(f"missing: {line}")
    runs, there = found.lines["runs"].sum(), found.lines["there"].sum()
    console.print(f"{runs} runs, {there} of them already there; {found.total}", soft_wrap=not console.is_terminal)


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


def _tasks(key: RunKey) -> list[str]:
    return key.profile.evaluation.tasks if key.notebook in FINAL else key.profile.evaluation.sweep_tasks


def _pieces(key: RunKey, sizes: Mapping[str, tuple[float, float]]) -> dict[Hashable, Cost]:
    """What a run builds, or finds built by another one: corpora, Paragraph Vectors, its student. Name → cost."""
    profile, student = key.profile, key.profile.student
    fitted_on = profile.contextual_teachers.corpus or profile.corpus
    pieces: dict[Hashable, Cost] = {}
    for source in map(str, profile.text_sources):
        read = prod(sizes[source])
        pieces[source] = Cost(read / COUNTING / CPU_COUNT, disk=read * BYTES)
    for vectors in key.paragraph_vectors:
        documents, mean = sizes[str(fitted_on)]
        documents = min(documents, profile.contextual_teachers.documents or inf)
        pieces[str(vectors), str(fitted_on)] = _fitting(vectors, documents, documents * mean * WORDS)
    if key.trains:
        from docemb_lib.student.student import adapted_on  # with torch

        D = width(student.model) or 768
        depth = max(1, D // 64)  # layers of a BERT as wide, which the structural teacher has
        whole, layers = (12 * D * D * n for n in (depth, len(student.layers or range(depth))))  # their weights
        weights = layers + 35_000 * D
        there, mean = sizes[str(profile.corpus)]
        mean = min(mean, student.max_tokens)
        documents = (profile.parameters.documents + profile.corpus.validation) * mean
        targets = documents if key.taught and profile.parameters.structural_loss else 0  # that the teacher embeds
        embedded = sum(_task_tokens(profile, task, mean) for task in _tasks(key))
        halved = min(there, adapted_on(D)) * mean if key.has_lexical_half else 0
        seconds = 2 / encoder_flops()  # of a token and a weight: a multiplication and an addition
        # Backward passes take two thirds.
        work = (3 * key.training.epochs * documents + embedded + halved) * layers + targets * whole
        # A weight has a gradient and two moments, and as much again for activations.
        built = Cost(work * seconds, LIBRARIES + 32 * weights, 4 * weights)
        pieces[f"{key.same_but()} {key.self_supervised} {student} {profile.corpus}"] = built
        # The student before distillation and the structural teacher, which reads the whole as well.
        of_references = Cost(embedded * (layers + whole) * seconds)
        pieces[f"{student} {profile.corpus} {profile.evaluation}", *_tasks(key)] = of_references
    return pieces


def _task_tokens(profile: Profile, task: str, mean: float) -> float:
    """The tokens of a task's documents. mean: of a document of the corpus, also taken where a task is not at hand."""
    size = profile.evaluation
    if task in EMBEDDED_TASKS:
        return min(size.texts // 2 if task == "halves" else size.texts, profile.corpus.tasks) * mean
    return _tokens(files_of(task, size)) or 2 * size.limit * mean


def _tokens(files: Sequence[Path]) -> float:
    return sum(file.stat().st_size * (GZIP if file.suffix == ".gz" else 1) for file in files if file.is_file()) / BYTES


def _built(stages: Stages) -> set[Hashable]:
    """The pieces of a run that are artefacts already: its corpus, and the Paragraph Vectors that are fitted on it."""
    key, corpus = stages.key, str(stages.key.profile.corpus)
    if not stages.corpus.is_built:
        return set()
    if key.profile.contextual_teachers.corpus is not None:
        return {corpus}
    seed = TEACHER_SEED if key.trains else key.profile.parameters.seed
    inputs = {str(one): stages.teachers.vector_inputs(one, seed=seed) for one in key.paragraph_vectors}
    return {corpus, *((name, corpus) for name in inputs if stages.workspace.is_built("paragraph-vector", inputs[name]))}


def _size(source: TextSource) -> tuple[float, float]:
    """The documents of a source, and the tokens of a mean one."""
    documents, mean = SIZES[source.source]
    if source.source == "local":
        with suppress(InputError):  # of files that are missing or no documents
            paths, fields = source.path or [], {"text_field": source.text_field, "id_field": source.id_field}
            first = islice(local_documents(paths, **fields), READ)
            mean = fmean(len(document.text.encode()) for document in first) / BYTES
            documents = _tokens(local_files(paths)) / mean
    return min(documents, source.documents or inf), mean


def _fitting(settings: ParagraphVectorSettings, documents: float, words: float) -> Cost:
    vocabulary = min(18 * words**0.62, settings.max_vocab_size or inf)  # Heaps' law; web text, words that occur twice
    vectors = 4 * settings.vector_size * (documents + 2 * vocabulary)
    rate = min(settings.workers, CPU_COUNT) * GENSIM / (4 + settings.vector_size / 100)
    slower = SKIP_GRAM if settings.dbow_words and not settings.dm else 1
    return Cost(slower * settings.epochs * words / rate, LIBRARIES + vectors, vectors)


@cache
def encoder_flops() -> float:
    """Floating-point operations a second that encoders reach on this machine: a share of the measured peak."""
    import torch

    device = hardware.devices_at_hand()[0]
    measured = device, torch.bfloat16 if hardware.fast_bf16(device) else torch.float32
    if device == "cpu":
        return SHARE * hardware.matmul_peak(*measured)
    # In a process of its own: this one would hold memory of the GPU as long as a plan takes.
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return SHARE * process.submit(hardware.matmul_peak, *measured).result()
