"""What a plan needs before it starts: data, files and models, and about how much time, memory and disk on this machine.

Two rates are measured, in about a second: a large matrix product, of which encoders reach a share, and gensim's words a
second. What an encoder computes is `forward_flops`. Everything else is a constant that was measured on two cores, or
published. Expect times within a factor of two where the texts are here, and of three where they stand on a hub.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np

from docemb_lib import hardware, pretrained
from docemb_lib.corpus.installed_docs import PACKAGES
from docemb_lib.corpus.sources import local_documents, local_paths, streamed, text_files
from docemb_lib.doctor import INSTALL, unmet
from docemb_lib.errors import InputError
from docemb_lib.evaluation.benchmarks import BENCHMARKS, published_tasks
from docemb_lib.experiments.execution import Runs, is_done
from docemb_lib.experiments.plan import Step
from docemb_lib.experiments.processes import default_workers
from docemb_lib.experiments.run import Stages
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings import Corpus, Long, ParagraphVectorSettings
from docemb_lib.settings.profile import FINAL, Profile, local_config, width
from docemb_lib.settings.sections import EMBEDDED_TASKS
from docemb_lib.teachers.words import training_memory
from docemb_lib.workspace import Workspace

# Rows and bytes of the text of known data sets, all of which is streamed; of others so many rows as are taken.
DATA_SETS = {"wikimedia/wikipedia 20231101.en": (6.4e6, 20e9), "allenai/c4 realnewslike": (13.8e6, 38e9)}
TOKENS = 700  # of a document about which nothing is known
LONGER = 1.7  # mean tokens of documents with a minimum, by that minimum
PAGES, PAGE_TOKENS = 730, 700  # of the documentation of an installed package
BYTES = 4.0  # of a token; English
WORDS = 0.55  # of a token, between white space
STREAMING = 20e6  # bytes a second from a hub
COUNTING = 3e5  # tokens a second and core: read, cleaned, counted by two tokenizers, written
SPLITTING = 1.5e6  # words a second that are split and counted
INTERPRETING = 8.0  # seconds of a run for its kernel, imports and figures
SCORING, PER_EXAMPLE = 0.7, 2e-4  # seconds of a model and task: intervals and tests, and five heads for each example
SHARE = {"fp32": 0.7, "bf16": 0.5, "cuda": 0.4}  # of the measured peak that training reaches
ACTIVATIONS = 65  # bytes of a token, layer and dimension that the backward pass needs
SHARED_PAGES = 0.7  # of the embedded tasks' pages: those that no other task has embedded
LIBRARIES = 1.2e9  # bytes of a process
LAYERS = {1024: 24, 768: 12, 384: 6}  # of encoders by width, as far as no config.json says more
VOCABULARY = 40_000
SAMPLE, TRIAL = 1000, 20_000  # documents that are read, and words that gensim trains on
SKIP_GRAM, BAG = 3.7, 0.75  # time of DBOW with and without word vectors against DM
UNPACKED = 8.0  # time of a student with global attention, which pads, against a packed one
LONG_FORMS: tuple[Long, ...] = ("truncate", "chunks", "lead")
ON_TASK = ("TF-IDF", "LSA", "BM25", "centred", "lead", "beside LSA", "fused", "beside PV")  # fitted on each task


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


class Texts(NamedTuple):
    documents: float
    tokens: float = TOKENS  # of a document, in the mean
    streamed: float = 0.0  # bytes


def forecast(steps: Sequence[Step], workspace: Workspace) -> Forecast:
    """What the missing runs of a plan need and take. Builds nothing."""
    done = {run for step in steps for run in step.runs if is_done(run, workspace)}
    built = {key for run in done for key, _ in _pieces(run.key)}
    lines: list[Line] = []
    needs: dict[tuple[str, str], list[int]] = {}
    for number, step in enumerate(steps, 1):
        missing = [run for run in step.runs if run not in done]
        for need in dict.fromkeys(need for run in missing for need in _needs(run.key)):
            needs.setdefault(need, []).append(number)
        costs = []
        for run in missing:
            new = [(key, cost) for key, cost in _pieces(run.key) if key not in built]
            built |= {key for key, _ in new}
            costs += [cost for _, cost in new]
        together = default_workers(len(missing)) if missing and step.grid and _on_gpu() else 1  # a run for each GPU
        cost = _sum(costs)
        lines.append(Line(step, len(step.runs) - len(missing), cost._replace(seconds=cost.seconds / together)))
    todo = [run for step in steps for run in step.runs if run not in done]
    return Forecast(lines, _sum([line.cost for line in lines]), needs, missing_of(todo, workspace))


def missing_of(runs: Runs, workspace: Workspace) -> list[str]:
    """Why runs cannot be executed, a line each: packages, files, models and the hub. Empty if all is there."""
    reasons: dict[str, list[str]] = {}  # reason → what it holds for
    for problem in unmet():
        reasons.setdefault(f"{problem}; {INSTALL}", []).append("packages")
    for run in runs:
        for check in Stages(run.key, workspace).checks():
            try:
                check()
            except InputError as error:
                of, _, reason = str(error).partition(": ")
                reasons.setdefault(reason, []).append(of)
    return [": ".join(filter(None, (", ".join(dict.fromkeys(of)), reason))) for reason, of in reasons.items()]


def _needs(key: RunKey) -> Iterator[tuple[str, str]]:
    """Kind and name of what a run reads from outside."""
    evaluation = key.profile.evaluation
    yield from (("model", name) for name in Stages(key).models)
    for source in key.profile.text_sources:
        yield from (("data set", name) for name in streamed(source))
        for path in source.path if isinstance(source.path, list) else filter(None, [source.path]):
            yield "files", str(path)
    for name in evaluation.tasks if key.notebook in FINAL else evaluation.sweep_tasks:
        if benchmark := BENCHMARKS.get(name):
            place = {str(one): place for one, place in evaluation.benchmarks.items()}.get(name)
            inside = f" ({', '.join(benchmark.files)})" if benchmark.files else ""
            yield "files" if place else "data set", f"{place or benchmark.hub}{inside}"


def _pieces(key: RunKey) -> Iterator[tuple[Hashable, Cost]]:
    """What a run builds, or finds built by another one: what identifies each piece, and its cost."""
    profile, final = key.profile, key.notebook in FINAL
    p, teachers, settings = profile.parameters, profile.contextual_teachers, profile.structural_teacher
    corpus = profile.corpus.model_dump_json()
    texts, read = _texts(corpus), Stages(key).corpus
    yield (key.notebook, key.same_but(), profile.name), Cost(INTERPRETING, LIBRARIES)
    if not read.is_built:
        yield ("corpus", corpus), _building(texts)
    of_teachers = corpus if teachers.corpus is None else teachers.corpus.model_dump_json()
    fitted_on = _texts(of_teachers)
    fitted_on = fitted_on._replace(documents=min(fitted_on.documents, teachers.documents or np.inf))
    if key.paragraph_vectors and not read.is_built_for_teachers:
        yield ("corpus", of_teachers), _building(fitted_on)
    vectors = {member.model_dump_json(): member for member in key.paragraph_vectors}
    for name, member in vectors.items():
        words = fitted_on.documents * fitted_on.tokens * WORDS
        yield ("words", member.preprocess, of_teachers), Cost(words / SPLITTING, 0, words * BYTES / WORDS)
        yield (name, of_teachers), _fitting(member, words, fitted_on.documents)

    sbert = _Encoder.of(settings.model)
    student = _Encoder.of(profile.student.model, profile.student.layers, profile.student.attention_window)
    forms = {long: sbert.embedding(settings.max_tokens or 512, chunks=long != "truncate") for long in LONG_FORMS}
    if profile.student.pooling == "cls":
        student = student._replace(slower=UNPACKED)
    embedding, rows = student.embedding(profile.student.max_tokens), p.documents + profile.corpus.validation
    if key.taught:
        named = [p.contextual_teacher, *(further.teacher for further in profile.further_teachers)]
        members = [member for name in named if name for member in teachers.members(name)]
        of_rows = {member.model_dump_json(): _inferring(member) for member in members}
        if p.structural_loss:
            of_rows[settings.model_dump_json()] = forms[settings.long]
        for teacher, seconds in of_rows.items():
            yield ("embeddings", teacher, corpus, rows), Cost(rows * seconds(texts.tokens), 0, rows * 4 * 1024)
    if key.trains:
        trained = (key.same_but(), key.self_supervised, str(profile.student), corpus)
        yield ("student", *trained), _training(key, student, embedding(texts.tokens))
        if final and profile.student.lexical and not key.self_supervised:
            seconds_of_half = min(1000, texts.documents) * embedding(texts.tokens)
            yield ("lexical", *trained), Cost(seconds_of_half, 0, 4 * student.weights)
    elif not vectors:
        return

    models: dict[Hashable, Callable[[float], float]] = {}
    if key.trains:
        models = {("before", str(profile.student)): embedding, ("own", *trained): embedding}
    models |= {("SBERT", settings.model, long): forms[long] for long in LONG_FORMS[: 2 if final else 1]}
    models |= {name: _inferring(member) for name, member in vectors.items()}
    models |= {name: _Encoder.of(name).embedding(4096) for name in profile.evaluation.beside if final}
    models |= dict.fromkeys(ON_TASK if final else ON_TASK[:1], lambda tokens: 0.0)
    for model, seconds in models.items():
        for task in profile.evaluation.tasks if final else profile.evaluation.sweep_tasks:
            N, tokens = _task_size(task, profile, texts.tokens, final=final)
            yield ("scores", model, task, final, corpus), Cost(SCORING + N * (PER_EXAMPLE + seconds(tokens)))


class _Encoder(NamedTuple):
    """The size of an encoder, from its config.json where that is here, else by its width."""

    config: Any  # as `forward_flops` reads it
    weights: float
    slower: float = 1.0

    @classmethod
    def of(cls, name: str, layers: Sequence[int] | None = None, window: int | None = None) -> Self:
        known: dict[str, Any] = {}
        with suppress(InputError):
            known = local_config(pretrained.resolve(name))
        D = known.get("hidden_size") or width(name) or 768
        L = len(layers) if layers else known.get("num_hidden_layers", LAYERS.get(D, 12))
        wide = known.get("intermediate_size", 4 * D)
        sizes = {"hidden_size": D, "num_hidden_layers": L, "intermediate_size": wide}
        weights = known.get("vocab_size", VOCABULARY) * D + L * (7 * D * D + 2 * D * wide)  # with global projections
        return cls(SimpleNamespace(**sizes, attention_window=window or 1024), weights)

    def embedding(self, most: int, *, chunks: bool = False) -> Callable[[float], float]:
        """A function from the tokens of a document to the seconds that embedding it takes."""
        from docemb_lib.student.longformer import forward_flops

        def seconds(tokens: float) -> float:
            parts = max(1.0, tokens / most) if chunks else 1.0
            return self.slower * parts * forward_flops(self.config, [max(1, int(min(tokens, most)))]) / encoder_flops()

        return seconds


def _training(key: RunKey, student: _Encoder, seconds: float) -> Cost:
    """seconds: of a forward pass of one document."""
    p, profile = key.profile.parameters, key.profile
    texts = (1 + (p.pairs == "dropout")) * (1 + (p.mlm_weight > 0)) if key.self_supervised else 1
    # A training pass counts as three; the validation documents are embedded about three times.
    passes = 3 * key.training.epochs * p.documents + 3 * profile.corpus.validation
    shape = student.config.hidden_size * student.config.num_hidden_layers
    memory = 16 * student.weights + profile.student.max_tokens * ACTIVATIONS * shape  # weights, gradients, AdamW
    return Cost(texts * passes * seconds, LIBRARIES + memory, 4 * student.weights)


def _building(texts: Texts) -> Cost:
    tokens = texts.documents * texts.tokens
    held = tokens * BYTES if texts.streamed else 0  # a sample of a stream is in memory
    seconds = texts.streamed / STREAMING + tokens / COUNTING / _cores()
    return Cost(seconds, LIBRARIES + held, tokens * BYTES)


def _fitting(settings: ParagraphVectorSettings, words: float, documents: float) -> Cost:
    types = int(
        min(35 * words**0.62, settings.max_vocab_size or np.inf)
    )  # Heaps' law; of web text, punctuation attached
    kept = {1: 1.0, "10%": 0.001}.get(settings.min_count, 0.45)  # of the types; most occur once
    vocabulary = types if settings.max_vocab_size else int(kept * types)
    sizes = {"vocabulary": vocabulary, "lines": int(documents), "vector_size": settings.vector_size}
    memory = training_memory(**sizes, types=types)
    kind = 1.0 if settings.dm else SKIP_GRAM if settings.dbow_words else BAG
    threads = min(settings.workers, _cores()) ** 0.75
    seconds = settings.epochs * words * kind / (_words_a_second(settings.vector_size) * threads)
    return Cost(seconds, LIBRARIES + memory["total"], memory["words"] + memory["documents"])


def _inferring(settings: ParagraphVectorSettings) -> Callable[[float], float]:
    rate = _words_a_second(settings.vector_size) * _cores() / settings.epochs
    return lambda tokens: tokens * WORDS / rate


@cache
def _texts(settings: str) -> Texts:
    """How many documents a source gives, and how long they are. settings: as JSON."""
    source = Corpus.model_validate_json(settings)
    most = source.documents or np.inf
    if source.source == "installed-docs":
        return Texts(min(most, PAGES * len(source.packages or PACKAGES)), PAGE_TOKENS)
    if source.source == "hub":
        known = [DATA_SETS.get(name, (0.0, 0.0)) for name in streamed(source)] or [(0.0, 0.0)]
        documents = source.documents or len(known) * (known[0][0] or 1e6)
        lengths = [LONGER * one.min_student_tokens if one.min_student_tokens else TOKENS for one in source.datasets]
        return Texts(documents, float(np.mean(lengths)), sum(size for _, size in known))
    with suppress(InputError):
        paths = local_paths(source.path or [])
        files = [file for path in paths for file in (text_files(path) if path.is_dir() else [path])]
        read = local_documents(source.path or [], text_field=source.text_field, id_field=source.id_field)
        sizes = [len(document.text.encode(errors="replace")) for document in islice(read, SAMPLE)]
        total = sum(file.stat().st_size * (3 if file.suffix == ".gz" else 1) for file in files)
        found = len(sizes) if len(sizes) < SAMPLE else max(SAMPLE, float(total / np.mean(sizes)))
        return Texts(min(most, found), float(np.mean(sizes)) / BYTES)
    return Texts(min(most, SAMPLE))


def _task_size(name: str, profile: Profile, tokens: float, *, final: bool) -> tuple[float, float]:
    """Texts of a task that are embedded and their mean tokens. tokens: of a document of the corpus."""
    evaluation = profile.evaluation
    if name in EMBEDDED_TASKS:
        return SHARED_PAGES * evaluation.documents, tokens
    if (benchmark := BENCHMARKS.get(name)) is None:
        return 2000.0, TOKENS
    if benchmark.size is not None:
        return benchmark.size, TOKENS / 2
    sizes, long = _published_size(name)
    N = sum(sizes) if final else sum(sorted(min(size, evaluation.limit) for size in sizes)[-2:])
    return N * (2 if len(benchmark.files) == 3 else 1), 300 + 37 * long


@cache
def _published_size(task: str) -> tuple[list[float], float]:
    """The sizes of a task's splits, and the percentage of its texts beyond 512 tokens."""
    rows = published_tasks().query("protocol == 'final' and task == @task")
    sizes, long = (rows[rows["statistic"].isin(names)]["value"] for names in (["examples", "documents"], ["over_512"]))
    return sizes.tolist(), max(long, default=50.0)


@cache
def encoder_flops() -> float:
    """Floating-point operations a second that an encoder reaches in training: a share of the measured peak."""
    import torch

    device, on_gpu = hardware.devices_at_hand()[0], _on_gpu()
    half = hardware.fast_bf16(device)
    dtype = torch.bfloat16 if half else torch.float16 if on_gpu else torch.float32
    return hardware.matmul_peak(device, dtype) * SHARE["cuda" if on_gpu else "bf16" if half else "fp32"]


@cache
def _gensim_rate() -> float:
    """Words a second of one thread of gensim, DM with 100 dimensions, measured."""
    from gensim.models.doc2vec import Doc2Vec, TaggedDocument

    generator = np.random.default_rng(0)
    drawn = generator.zipf(1.3, TRIAL) % 30_000
    documents = [TaggedDocument(list(map(str, words)), [tag]) for tag, words in enumerate(drawn.reshape(-1, 400))]
    model = Doc2Vec(vector_size=100, dm=1, sample=0, min_count=1, workers=1, epochs=1)
    model.build_vocab(documents)
    start = time.process_time()  # of gensim's thread, whatever else the machine does
    model.train(documents, total_examples=len(documents), epochs=1)
    return TRIAL / (time.process_time() - start)


def _words_a_second(dim: int) -> float:
    return _gensim_rate() / (0.8 + 0.2 * dim / 100)  # measured at 100, 300 and 1,024


def _cores() -> int:
    from dask.system import CPU_COUNT

    return int(CPU_COUNT)


def _on_gpu() -> bool:
    return hardware.devices_at_hand()[0] != "cpu"


def _sum(costs: Sequence[Cost]) -> Cost:
    """One after the other: times and files add up, memory is that of the largest."""
    seconds, memory, disk = zip(*costs, strict=True) if costs else ((0.0,), (0.0,), (0.0,))
    return Cost(sum(seconds), max(memory), sum(disk))
