"""Models that are compared: students before and after training, their teachers in every form, and
search engines.

Texts are embedded once per model, however many tasks and splits contain them. A reference that is
fitted on the texts of a task, without their labels, is fitted once per task.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.base.hardware import devices_at_hand, uses_bf16
from docemb_lib.base.integrity import MANIFEST, is_published, is_whole
from docemb_lib.base.progress import progress
from docemb_lib.evaluation.retrieval import Similarities, bm25, by_cosine, fused, tfidf, unit
from docemb_lib.runs import records
from docemb_lib.runs.key import PV_NAMES
from docemb_lib.runs.stages import TeacherStage
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import Long, ParagraphVectorSettings
from docemb_lib.teachers import LSA, Compound, Teacher
from docemb_lib.teachers.lsa import directions
from docemb_lib.workspace import VERSIONS, Artefact, Workspace

if TYPE_CHECKING:
    from docemb_lib.runs.students import StudentStage
    from docemb_lib.student import Student

logger = logging.getLogger(__name__)

UNTRAINED = "student before distillation"
UNTRAINED_ADAPTED = f"{UNTRAINED} ⊕ LSA"
SBERT_TRUNCATED, SBERT_CHUNKS = SBERT_LABELS = ("SBERT truncated", "SBERT over chunks")
TFIDF, BM25, LSA_ON_TASK = ("TF-IDF", "BM25", "LSA")
# in the keys of models that fit it: others keep their scores when it changes
LSA_FIT = f"LSA/{VERSIONS['lsa']}"
# Endings of the labels of a student: as it was saved; with its lexical half fitted on the texts of
# a task; without that half; minus its mean embedding of these texts.
_, ADAPTED, DENSE, CENTRED = FORMS = ("", ", adapted", ", dense half", ", centred")
LEAD = f"{SBERT_CHUNKS} and lead"  # lead: the first tokens of a text
# References by what a user has to compute and keep: counts of words; one encoder as it is, over the
# beginning, then over the whole document; an encoder with the words of the documents. A trained
# student comes after these.
SIMPLEST_FIRST = (
    TFIDF,
    LSA_ON_TASK,
    SBERT_TRUNCATED,
    SBERT_CHUNKS,
    f"{SBERT_CHUNKS}{CENTRED}",
    LEAD,
    UNTRAINED,
    UNTRAINED_ADAPTED,
)
LSA_BY_THE_WAY = 20_000  # documents at most for which fitting LSA takes seconds
DIM = 512  # directions at most of what is fitted on a task
TEXTS = 1024  # texts that a stock model sorts by length at a time


def _no_embeddings(texts: list[str]) -> NoReturn:
    raise RuntimeError("this model cannot embed texts: only its scores on tasks are available")


class Model(NamedTuple):
    """A model that embeds texts; `embed` is called only for texts that have not been embedded yet."""

    label: str  # in tables and figures
    fingerprint: str  # equal for two models only if they embed alike
    # (N, D); loads what it needs. Left out where only scores on tasks are known, or only what `fit`
    # gives on a task.
    embed: Callable[[list[str]], np.ndarray] = _no_embeddings
    # Fits the model on the N texts of a task, without labels, and gives what the task scores:
    # embeddings (N, D), dense or sparse, or `Similarities`. None: `embed` embeds any text.
    fit: Callable[[list[str]], Any] | None = None
    ranks_only: bool = False  # gives similarities alone, so that only retrieval can be scored
    fitted_on: str = "corpus"  # or "task", or "" for a model as it was published


def embed_once(workspace: Workspace, model: Model, texts: Sequence[str]) -> np.ndarray:
    """Float32 (N, D) in the order of `texts`.

    Texts without an embedding are embedded together and published as a further shard of the model's
    embeddings.
    """
    keys = [hashlib.sha256(text.encode()).hexdigest()[:24] for text in texts]
    known = _shards(workspace, model)
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if missing:

        def build(folder: Path) -> None:
            vectors = np.asarray(model.embed(list(missing.values())), dtype=np.float32)
            if bad := int((~np.isfinite(vectors).all(axis=1)).sum()):
                problem = f"{bad} of {len(vectors)} embeddings are not finite"
                mend = "restore the model's files, or train it again"
                raise InputError(f"{model.label}: {problem}; {mend}")
            np.save(folder / "embeddings.npy", vectors)
            content = {"model": model.fingerprint, "label": model.label, "texts": list(missing)}
            (folder / "shard.json").write_text(json.dumps(content), encoding="utf-8")

        workspace.artefact(
            _shelf(model), {"model": model.fingerprint, "texts": sorted(missing)}, build
        )
        known = _shards(workspace, model)
    return np.stack([known[key] for key in keys])


def _shards(workspace: Workspace, model: Model) -> dict[str, np.ndarray]:
    """Text key → embedding (D,), of all shards of the model."""
    found: dict[str, np.ndarray] = {}
    for folder in sorted((workspace.outputs / "artefacts" / _shelf(model)).glob("*")):
        if folder.suffix or not is_whole(folder):  # `.partial`: not published yet
            continue
        texts = json.loads((folder / "shard.json").read_text(encoding="utf-8"))["texts"]
        found.update(zip(texts, np.load(folder / "embeddings.npy", mmap_mode="r"), strict=True))
    return found


def _shelf(model: Model) -> str:
    return f"embeddings/{hashlib.sha256(model.fingerprint.encode()).hexdigest()[:16]}"


def student_model(label: str, artefact: Artefact, *, dense: bool = False) -> Model:
    """A student, which embeds on all GPUs. dense: without its lexical half."""

    def embed(texts: list[str]) -> np.ndarray:
        return _loaded(artefact.path, dense).embed(
            texts, devices=devices_at_hand(), desc=f"embedding by {label}"
        )

    precision = "bf16" if uses_bf16(devices_at_hand()[0]) else "float32"
    return Model(label, f"student/{artefact.fingerprint}/{precision}", embed)


@lru_cache(maxsize=1)  # a notebook embeds several sets of texts by one student
def _loaded(folder: Path, dense: bool) -> Student:
    from docemb_lib.student import Student

    student = Student.load(folder)
    return student.dense_half() if dense else student


def student_at(folder: Path) -> Artefact | None:
    """The student in this folder, or behind this link, if it was trained here.

    Raises InputError for a damaged one.
    """
    folder = folder.resolve()
    here = (
        is_published(folder) and folder.parent.parent.name == "artefacts"
    )  # a copy may have any name
    return Artefact(folder.name, folder) if here else None


def recorded_student(workspace: Workspace, record: records.Record) -> Artefact | None:
    """The student of a recorded run; None where there was none or it is gone."""
    return None if record.student is None else student_at(workspace.root / record.student)


def lexical_models(label: str, trained: Artefact, workspace: Workspace) -> list[Model]:
    """A student with the lexical half that it was saved with; without it; and fitted on each task,
    as `docemb adapt`.

    Without a lexical half there is the student alone.
    """
    from docemb_lib.student.export import saved_training
    from docemb_lib.student.lexical import saved_lexical_half

    own = student_model(label, trained)
    if (half := saved_lexical_half(str(trained.path))) is None:
        return [own]
    inputs = trained.manifest["inputs"] if (trained.path / MANIFEST).is_file() else {}
    artefact = Artefact(inputs.get("dense", f"{trained.fingerprint}/dense"), trained.path)
    # A converted encoder has seen no corpus. Folders of earlier releases do not say what the student
    # was trained on; the artefact of one that was trained here names its dense half.
    is_trained = saved_training(str(trained.path)) is not None or "dense" in inputs
    dense = student_model(f"{label}{DENSE}", artefact, dense=True)
    dense = dense._replace(fitted_on="corpus" if is_trained else "")
    own = own._replace(
        embed=lambda texts: _joined(half, embed_once(workspace, dense, texts), texts)
    )
    words = inputs.get("words", 50_000)
    weight = float(half.weight) if half.weight_given else None
    dim = half.vectors.shape[1]
    adapted = beside_lsa(workspace, dense, f"{label}{ADAPTED}", dim, words, weight)
    return [own, dense, adapted]


def beside_lsa(
    workspace: Workspace,
    dense: Model,
    label: str,
    dim: int = DIM,
    words: int = 50_000,
    weight: float | None = None,
) -> Model:
    """A model and LSA of a task's texts side by side, joined as a student's two halves.

    weight: of LSA; None: without labels, from the texts. A task whose texts share too few words is
    scored by the dense half alone.
    """

    def fit(texts: list[str]) -> np.ndarray:
        from docemb_lib.student.lexical import fit_lexical_half

        X = embed_once(workspace, dense, texts)
        filled = directions(len(texts), dim)
        try:
            half = fit_lexical_half(lambda: X, texts, dim=filled, words=words, weight=weight)
            return _joined(half, X, texts)
        except InputError as error:
            logger.warning("%s is scored without its lexical half: %s", label, error)
            return X

    # "None" stands for a removed option: the key finds the scores measured before.
    key = f"{dense.fingerprint} ⊕ {LSA_FIT}/{dim}/{words}/None"
    if weight is not None:
        key += f"/{weight}"
    return _on_task(label, fit, key)


def on_task_models(
    workspace: Workspace, teachers: Sequence[Model], paragraph_vector: Model | None
) -> list[Model]:
    """What a user has without training: search engines, and the teachers (SBERT truncated, over
    chunks) beside them.
    """
    truncated, chunks = (partial(embed_once, workspace, model) for model in teachers)
    of_sbert = teachers[1].fingerprint

    def with_lead(texts: list[str]) -> np.ndarray:
        return unit(chunks(texts)) + unit(truncated(texts))

    def fusion(texts: list[str]) -> Similarities:
        return fused(bm25(texts), by_cosine(chunks(texts)))

    lead = Model(LEAD, f"lead/{of_sbert}", with_lead, fitted_on="")
    found = [
        _on_task(TFIDF, tfidf),
        _on_task(
            LSA_ON_TASK,
            lambda texts: LSA(directions(len(texts), DIM)).fit(texts).embed(texts),
            LSA_FIT,
        ),
        _on_task(BM25, bm25, ranks_only=True),
        centred_model(workspace, teachers[1]),
        lead,
        beside_lsa(workspace, lead, f"{lead.label} ⊕ LSA"),
        _on_task(f"{BM25} and {SBERT_CHUNKS}, fused", fusion, f"fused/{of_sbert}", ranks_only=True),
    ]
    if paragraph_vector is not None:
        context, key = (
            partial(embed_once, workspace, paragraph_vector),
            f"{of_sbert}/{paragraph_vector.fingerprint}",
        )
        found.append(
            _on_task(
                f"{SBERT_CHUNKS} ⊕ PV",
                lambda texts: _side_by_side(chunks(texts), context(texts)),
                key,
            )
        )
    return found


def _on_task(
    label: str, fit: Callable[[list[str]], Any], key: str = "", *, ranks_only: bool = False
) -> Model:
    """A model fitted on the texts of each task. key: identifies the fit and its other inputs; by
    default the label.
    """
    fingerprint = f"on-task/{VERSIONS['on-task']}/{key or label}"
    return Model(label, fingerprint, fit=fit, ranks_only=ranks_only, fitted_on="task")


def _joined(half: Any, dense: np.ndarray, texts: list[str]) -> np.ndarray:
    import torch

    return half.join(torch.tensor(dense), half.lexical(texts)).numpy()


def _side_by_side(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """(N, D + L): both centred, partially whitened and balanced. first: (N, D); second: (N, L)."""
    import torch

    from docemb_lib.student.lexical import balance, partially_whitened

    halves = [partially_whitened(torch.tensor(X)) for X in (first, second)]
    w = balance(*halves)
    return np.concatenate(
        [np.sqrt(1 - w) * halves[0].numpy(), np.sqrt(w) * halves[1].numpy()], axis=1
    )


def published_model(name: str, prompt: str = "", *, pooling: str | None = None) -> Model:
    """A model as sentence-transformers runs it. prompt: stands before every text; pooling: instead
    of its own.
    """

    def embed(texts: list[str]) -> np.ndarray:
        model: Any = pretrained.load_stock(name, device=devices_at_hand()[0])
        if pooling:
            model[1].pooling_mode = pooling
        options = {"prompt": prompt or None, "show_progress_bar": False}
        starts = progress(
            range(0, len(texts), TEXTS), desc=f"embedding by {Path(name).name}", unit="blocks"
        )
        blocks = [model.encode(texts[start : start + TEXTS], **options) for start in starts]
        return np.concatenate(blocks).astype(np.float32)

    options = prompt, pooling and f"{pooling} pooling"
    given = ("sentence-transformers", pretrained.fingerprint(pretrained.resolve(name)), *options)
    return Model(name, "/".join(filter(None, given)), embed, fitted_on="")


def untrained_model(students: StudentStage) -> Model:
    return student_model(UNTRAINED, students.untrained)._replace(fitted_on="")


def sbert_models(teachers: TeacherStage, *, together: bool = False) -> list[Model]:
    """The structural teacher on truncated text, and averaged over chunks of the whole document.

    together: texts are embedded for both models at once, which takes no longer than for the second
    one.
    """
    forms: dict[str, Long] = {SBERT_TRUNCATED: "truncate", SBERT_CHUNKS: "chunks"}
    models = [
        _teacher(label, teachers.sbert(long), teachers.workspace) for label, long in forms.items()
    ]
    embedded: dict[str, np.ndarray] = {}  # text → (2, D), kept until the second model reads them

    def embed(form: int, texts: list[str]) -> np.ndarray:
        if new := [text for text in texts if text not in embedded]:
            embedded.update(
                zip(new, np.stack(teachers.sbert("chunks").embed_both(new), axis=1), strict=True)
            )
        found = np.stack([embedded[text][form] for text in texts])
        if form:
            embedded.clear()
        return found

    if together:
        models = [model._replace(embed=partial(embed, form)) for form, model in enumerate(models)]
    return [model._replace(fitted_on="") for model in models]


def contextual_labels(profile: Profile) -> dict[str, str]:
    """The contextual teachers by the labels of their models: `DM;100d` → `DM`."""
    return {
        f"{name};{profile.contextual_teachers.width(name)}d": name for name in (*PV_NAMES, "LSA")
    }


def contextual_models(teachers: TeacherStage) -> list[Model]:
    """DM, DBOW, PV, and LSA if there are enough documents to fit it, and few enough that this takes
    seconds.
    """
    labels, documents = contextual_labels(teachers.profile), len(teachers.corpus.teacher_texts)
    with_lsa = teachers.profile.contextual_teachers.lsa_dim <= documents <= LSA_BY_THE_WAY
    wanted = [one for one in labels.items() if one[1] != "LSA" or with_lsa]
    return [
        _teacher(label, teachers.contextual(name), teachers.workspace) for label, name in wanted
    ]


def paragraph_vector_model(
    teachers: TeacherStage, settings: Sequence[ParagraphVectorSettings], *, seed: int
) -> Model:
    """One Paragraph Vector, or several side by side."""
    fitted = [teachers.paragraph_vector(member, seed=seed) for member in settings]
    teacher = fitted[0] if len(fitted) == 1 else Compound(fitted)
    return _teacher(teacher.label, teacher, teachers.workspace)


def centred_model(workspace: Workspace, model: Model) -> Model:
    """The model minus its mean embedding of the texts of a task."""

    def fit(texts: list[str]) -> np.ndarray:
        X = embed_once(workspace, model, texts)
        return X - X.mean(axis=0)

    return _on_task(f"{model.label}{CENTRED}", fit, f"centred/{model.fingerprint}")


def _teacher(label: str, teacher: Teacher, workspace: Workspace) -> Model:
    """The teacher as a model.

    A compound embeds through its members, so that each of them embeds a text once.
    """
    model = Model(label, f"teacher/{teacher.fingerprint}", teacher.embed)
    if not isinstance(teacher, Compound):
        return model
    members = [_teacher(member.label, member, workspace) for member in teacher.members]

    def embed(texts: list[str]) -> np.ndarray:
        return np.concatenate([embed_once(workspace, member, texts) for member in members], axis=1)

    return model._replace(embed=embed)


def models_of(name: str, workspace: Workspace) -> list[Model]:
    """A student as docemb runs it, in all its forms (`lexical_models`); any other model as
    sentence-transformers does.

    Raises InputError for no model.
    """
    from docemb_lib.student import export, loading

    source = pretrained.resolve(name)
    if not any(loading.find_file(source, file) for file in ("modules.json", "config.json")):
        problem = "there is neither a modules.json nor a config.json"
        raise InputError(f"{name}: {problem}; give the folder or the hub id of a model")
    label = Path(name).absolute().name if Path(name).is_dir() else name
    try:
        export.saved_pooling(source)
        is_student = loading.load_config(source).model_type in loading.LONG
    except InputError:
        is_student = False
    if not is_student:
        return [published_model(name)._replace(label=label)]
    # What the notebooks have scored of a student trained here is found again by its artefact.
    here = student_at(Path(source)) or Artefact(pretrained.fingerprint(source), Path(source))
    return lexical_models(label, here, workspace)
