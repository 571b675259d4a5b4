"""Models that are compared: students in every form, their teachers, and search engines.

A reference that is fitted on the texts of a task, without their labels, is fitted once per task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.base.hardware import devices_at_hand, uses_bf16
from docemb_lib.base.integrity import (
    GENERAL,
    MODULES,
    STUDENT,
    digest_of,
    files_of,
    read_json,
)
from docemb_lib.base.progress import progress
from docemb_lib.evaluation.retrieval import (
    Similarities,
    bm25,
    by_cosine,
    fused,
    of_rows,
    tfidf,
    unit,
)
from docemb_lib.runs import records
from docemb_lib.runs.embeddings import embed_once, store_of
from docemb_lib.runs.kinds import Form, Kind, label_of
from docemb_lib.runs.stages import TeacherStage
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import ParagraphVectorSettings
from docemb_lib.teachers import LSA, Compound, Teacher
from docemb_lib.teachers.lsa import directions
from docemb_lib.workspace import Workspace, fingerprint_of

if TYPE_CHECKING:
    from docemb_lib.evaluation.retrieval import Embeddings
    from docemb_lib.runs.students import StudentStage
    from docemb_lib.student import Student
    from docemb_lib.student.lexical_module import LexicalHalf

logger = logging.getLogger(__name__)

# References by what a user has to compute and keep: counts of words; one encoder as it is, over the
# beginning, then over the whole document; an encoder with the words of the documents. A trained
# student comes after these.
SIMPLEST_FIRST = (
    (Kind.TFIDF, Form.SAVED),
    (Kind.TASK_LSA, Form.SAVED),
    (Kind.SBERT_TRUNCATED, Form.SAVED),
    (Kind.SBERT_CHUNKS, Form.SAVED),
    (Kind.SBERT_CHUNKS, Form.CENTRED),
    (Kind.SBERT_LEAD, Form.SAVED),
    (Kind.UNTRAINED, Form.SAVED),
    (Kind.UNTRAINED, Form.ADAPTED),
)
# Kinds of the contextual teachers of a profile, by their names in its parameters.
CONTEXTUAL_KINDS = {
    "DM": Kind.DM,
    "DBOW": Kind.DBOW,
    "PV": Kind.PV,
    "LSA": Kind.CORPUS_LSA,
}
MAX_LSA_DOCUMENTS = 20_000  # for which fitting LSA takes seconds
DIM = 512  # directions at most of what is fitted on a task
TEXTS = 1024  # texts that a stock model sorts by length at a time
# Files of a student that its embeddings do not depend on: of sentence-transformers, of docemb, and
# what the training leaves.
NOT_IN_EMBEDDINGS = {
    *pretrained.NOT_IN_FINGERPRINT,
    MODULES,
    GENERAL,
    STUDENT,
    "history.json",
    "projections.safetensors",
    "head.safetensors",
}
# What transformers notes on the making of a file.
NOT_IN_CONFIG = {"dtype", "transformers_version"}

Embed = Callable[[list[str]], np.ndarray]  # N texts to (N, D)
# N texts of a task, and the number of the first of them to fit on, None for all: not the queries
# that are no documents
Fit = Callable[[list[str], int | None], Any]


def _no_embeddings(texts: list[str]) -> NoReturn:
    raise RuntimeError("this model cannot embed texts: only its scores on tasks are available")


class Model(NamedTuple):
    """A model that embeds texts, or that is fitted on the texts of a task."""

    kind: Kind
    form: Form
    name: str  # where a kind has several models; the name of a student is the label of its run
    fingerprint: str  # equal for two models only if they embed alike
    # Embeds N texts as (N, D), and loads what it needs. It is called only for texts that have not
    # been embedded yet. Models that only have scores on tasks, or only `fit`, go without it.
    embed: Embed = _no_embeddings
    # Fits the model on texts of a task, without labels, and gives what the task scores: embeddings
    # (N, D), dense or sparse, or `Similarities`. None: `embed` embeds any text.
    fit: Fit | None = None
    ranks_only: bool = False  # gives similarities alone, so that only retrieval can be scored
    fitted_on: str = "corpus"  # or "task", or "" for a model as it was published
    store: Path | None = None  # a folder of embeddings besides those of the workspace

    @property
    def label(self) -> str:
        """The model in tables and figures."""
        return label_of(self.kind, self.form, self.name)


def models_of_table(table: pd.DataFrame) -> list[Model]:
    """The models of a table `models` (see `Final`). They have their scores alone."""
    columns = ["kind", "form", "name", "fingerprint", "fitted on", "ranks_only"]
    return [
        Model(
            Kind(kind),
            Form(form),
            name,
            fingerprint,
            fitted_on=fitted_on,
            ranks_only=bool(ranks_only),
        )
        for kind, form, name, fingerprint, fitted_on, ranks_only in table[columns].to_numpy()
    ]


class StudentForms(NamedTuple):
    """A student in the forms that are compared. Without a lexical half there is one form."""

    saved: Model
    dense: Model | None = None  # without the lexical half
    adapted: Model | None = None  # with a lexical half that is fitted on the texts of each task

    @property
    def models(self) -> list[Model]:
        return [model for model in self if model is not None]


class SBERTModels(NamedTuple):
    """The structural teacher in its two treatments of long documents."""

    truncated: Model
    chunks: Model  # a mean over the chunks of the whole document


def student_model(
    name: str, folder: Path, form: Form = Form.SAVED, kind: Kind = Kind.STUDENT
) -> Model:
    """A student in a folder, or of a hub id, which embeds on all GPUs.

    name: the label of its run; form: as it was saved, or its dense half.
    """
    label = label_of(kind, form, name)

    def embed(texts: list[str]) -> np.ndarray:
        student = _loaded(folder, form == Form.DENSE)
        return student.embed(texts, devices=devices_at_hand(), desc=f"embedding by {label}")

    precision = "bf16" if uses_bf16(devices_at_hand()[0]) else "float32"
    fingerprint = f"student/{_fingerprint(folder, form)}/{precision}"
    return Model(kind, form, name, fingerprint, embed, store=store_of(folder))


def passage_model(dense: Model, student: Student, size: int) -> Model:
    """A model that gives what passages of at most `size` tokens need: rows of `PassageEncoder`.

    Rows begin with the embedding by the dense half, and hold nothing else where the student
    averages no states.

    dense: the dense half as a model.
    """
    from docemb_lib.student.embedding import embed_chunks
    from docemb_lib.student.export import MEANS
    from docemb_lib.student.passages import PassageEncoder

    encoder = PassageEncoder(student, size) if student.pooling in MEANS else student

    def embed(texts: list[str]) -> np.ndarray:
        tokens = [student.tokenize(texts).sequences]
        with progress(texts, desc="adapting", unit="documents") as bar:
            (rows,) = embed_chunks(encoder, tokens, devices_at_hand(), None, bar.update)
        return rows

    return dense._replace(fingerprint=f"{dense.fingerprint}/passages/{size}", embed=embed)


def _fingerprint(student: Path, form: Form) -> str:
    """16 hex digits over what the embeddings of a student in this form depend on, or its hub id.

    The dense half has the same before and after an adaptation, and wherever its folder lies.
    """
    if not student.is_dir():
        return f"{student}/dense" if form == Form.DENSE else str(student)
    mend = "restore the file"
    modules: list[dict[str, str]] = []
    if (student / MODULES).is_file():
        modules = read_json(student / MODULES, mend)
    weighted = [module["type"].endswith("WeightedTransformer") for module in modules]
    parts: dict[str, object] = {"weighted": any(weighted)}
    if (student / GENERAL).is_file():
        general = read_json(student / GENERAL, mend)
        prompts = general.get("prompts") or {}
        parts["prompt"] = prompts.get(general.get("default_prompt_name"), "")
    left_out = set(NOT_IN_EMBEDDINGS)
    if form == Form.DENSE:
        for module in modules:
            if module["type"].endswith("LexicalHalf"):
                left_out.add(module["path"])
    for file in files_of(student):
        if file.suffix not in pretrained.IN_FINGERPRINT or left_out.intersection(file.parts):
            continue
        if file.name == "config.json":
            config = read_json(student / file, mend)
            parts[file.as_posix()] = {key: config[key] for key in config.keys() - NOT_IN_CONFIG}
        else:
            parts[file.as_posix()] = digest_of(student / file)
    return fingerprint_of(parts)


@lru_cache(maxsize=1)  # a notebook embeds several sets of texts by one student
def _loaded(folder: Path, dense: bool) -> Student:
    from docemb_lib.student import Student

    student = Student.load(folder)
    return student.dense_half() if dense else student


def recorded_student(workspace: Workspace, record: records.Record) -> Path | None:
    """The student of a recorded run; None where there was none or it is gone."""
    folder = workspace.root / record.student if record.student else None
    return folder if folder is not None and folder.is_dir() else None


def lexical_models(name: str, folder: Path, workspace: Workspace) -> StudentForms:
    """A student in its forms: as it was saved, without its lexical half, and adapted.

    The adapted form is fitted on each task as `docemb adapt` does. A student without a lexical half
    has one form.
    """
    from docemb_lib.student.export import saved_training
    from docemb_lib.student.lexical import saved_lexical_half

    saved = student_model(name, folder)
    half = saved_lexical_half(str(folder))
    if half is None:
        return StudentForms(saved)
    # A converted encoder has seen no corpus.
    is_trained = saved_training(str(folder)) is not None
    dense = student_model(name, folder, Form.DENSE)
    dense = dense._replace(fitted_on="corpus" if is_trained else "")
    saved = saved._replace(
        embed=lambda texts: _joined(half, embed_once(workspace, dense, texts), texts)
    )
    weight = float(half.weight) if half.weight_given else None
    dim = half.vectors.shape[1]
    adapted = beside_lsa(workspace, dense, dim, weight)
    return StudentForms(saved, dense, adapted)


def beside_lsa(
    workspace: Workspace,
    dense: Model,
    dim: int = DIM,
    weight: float | None = None,
) -> Model:
    """A model and LSA of a task's texts side by side, joined as a student's two halves.

    A task whose texts share too few words is scored by the dense half alone.

    dim: directions of LSA at most; weight: of LSA; None: it follows from the spreads of cosines in
    the two halves.
    """

    def fit(texts: list[str], fitted: int | None = None) -> np.ndarray:
        from docemb_lib.student.lexical import fit_lexical_half

        X = embed_once(workspace, dense, texts)
        documents = texts[:fitted]
        filled = directions(len(documents), dim)
        try:
            half = fit_lexical_half(lambda: X[:fitted], documents, dim=filled, weight=weight)
            return _joined(half, X, texts)
        except InputError as error:
            label = label_of(dense.kind, name=dense.name)
            logger.warning("%s, fitted on a task, has no lexical half there: %s", label, error)
            return X

    key = f"{dense.fingerprint} ⊕ LSA/{dim}"
    if weight is not None:
        key += f"/{weight}"
    return _on_task(dense.kind, fit, key, form=Form.ADAPTED, name=dense.name)


def tfidf_model() -> Model:
    return _on_task(Kind.TFIDF, tfidf, "TF-IDF")


def on_task_models(
    workspace: Workspace, sbert: SBERTModels, paragraph_vector: Model | None
) -> list[Model]:
    """What a user has without training: search engines, and SBERT beside them.

    paragraph_vector: PV, to be joined with SBERT; None: there is none.
    """
    truncated = partial(embed_once, workspace, sbert.truncated)
    chunks = partial(embed_once, workspace, sbert.chunks)
    of_sbert = sbert.chunks.fingerprint

    def fit_lsa(texts: list[str], fitted: int | None = None) -> np.ndarray:
        documents = texts[:fitted]
        return LSA(directions(len(documents), DIM)).fit(documents).embed(texts)

    def with_lead(texts: list[str]) -> np.ndarray:
        return unit(chunks(texts)) + unit(truncated(texts))

    def fusion(texts: list[str], fitted: int | None = None) -> Similarities:
        return fused(bm25(texts, fitted), by_cosine(chunks(texts)), fitted=fitted)

    lead = Model(Kind.SBERT_LEAD, Form.SAVED, "", f"lead/{of_sbert}", with_lead, fitted_on="")
    models = [
        tfidf_model(),
        _on_task(Kind.TASK_LSA, fit_lsa, "LSA"),
        _on_task(Kind.BM25, bm25, "BM25", ranks_only=True),
        centred_model(workspace, sbert.chunks),
        lead,
        beside_lsa(workspace, lead),
        _on_task(Kind.FUSION, fusion, f"fused/{of_sbert}", ranks_only=True),
    ]
    if paragraph_vector is not None:
        context = partial(embed_once, workspace, paragraph_vector)

        def with_context(texts: list[str], fitted: int | None = None) -> np.ndarray:
            return _side_by_side(chunks(texts), context(texts), fitted)

        key = f"{of_sbert}/{paragraph_vector.fingerprint}"
        models.append(_on_task(Kind.SBERT_WITH_PV, with_context, key))
    return models


def fit_once(
    fit: Fit, texts: Sequence[str], fitted: int | None = None
) -> Embeddings | Similarities:
    """What a model gives for N texts, of which it is fitted on the first `fitted`, None: on all.

    Equal texts count once in the fit.
    """
    row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    given = fit(list(row_of), len(set(texts[:fitted])))
    if len(row_of) == len(texts):
        return given
    rows = [row_of[text] for text in texts]
    return of_rows(given, rows) if callable(given) else given[rows]


def _on_task(
    kind: Kind,
    fit: Fit,
    key: str,
    *,
    form: Form = Form.SAVED,
    name: str = "",
    ranks_only: bool = False,
) -> Model:
    """A model that is fitted on the texts of each task.

    key: identifies the fit and what it depends on besides the texts.
    """
    fingerprint = f"on-task/{key}"
    return Model(kind, form, name, fingerprint, fit=fit, ranks_only=ranks_only, fitted_on="task")


def _joined(half: LexicalHalf, dense: np.ndarray, texts: list[str]) -> np.ndarray:
    import torch

    return half.join(torch.tensor(dense), half.lexical(texts)).numpy()


def _side_by_side(first: np.ndarray, second: np.ndarray, fitted: int | None) -> np.ndarray:
    """Two embeddings of N texts, (N, D) and (N, L), as one, (N, D + L).

    Each is centred and partially whitened; their weights come from their spreads of cosines. All
    this is fitted on the first `fitted` texts, None: on all.
    """
    import torch

    from docemb_lib.student.lexical import balance, partially_whitened

    X, Y = (partially_whitened(torch.tensor(each), fitted) for each in (first, second))
    w = balance(X[:fitted], Y[:fitted])
    return np.concatenate([np.sqrt(1 - w) * X.numpy(), np.sqrt(w) * Y.numpy()], axis=1)


def published_model(name: str, prompt: str = "", *, pooling: str | None = None) -> Model:
    """A model as sentence-transformers runs it.

    prompt: stands before every text; pooling: replaces the pooling of the model.
    """

    def embed(texts: list[str]) -> np.ndarray:
        model: Any = pretrained.load_stock(name, device=devices_at_hand()[0])
        if pooling:
            model[1].pooling_mode = pooling
        blocks = [
            model.encode(
                texts[start : start + TEXTS], prompt=prompt or None, show_progress_bar=False
            )
            for start in progress(
                range(0, len(texts), TEXTS), desc=f"embedding by {Path(name).name}", unit="blocks"
            )
        ]
        return np.concatenate(blocks).astype(np.float32)

    parts = ["sentence-transformers", pretrained.fingerprint(pretrained.resolve(name)), prompt]
    if pooling:
        parts.append(f"{pooling} pooling")
    fingerprint = "/".join(filter(None, parts))
    return Model(Kind.PUBLISHED, Form.SAVED, name, fingerprint, embed, fitted_on="")


def untrained_model(students: StudentStage) -> Model:
    return student_model("", students.untrained.path, kind=Kind.UNTRAINED)._replace(fitted_on="")


def sbert_models(teachers: TeacherStage) -> SBERTModels:
    """The structural teacher on truncated text, and averaged over chunks of the whole document.

    The first chunk of a text is the truncated text, whose embedding both share.
    """
    workspace = teachers.workspace
    over_chunks = teachers.sbert("chunks")
    truncated = teacher_model(teachers.sbert("truncate"), workspace, Kind.SBERT_TRUNCATED)
    chunks = teacher_model(over_chunks, workspace, Kind.SBERT_CHUNKS)

    def embed(texts: list[str]) -> np.ndarray:
        return over_chunks.embed(texts, embed_once(workspace, truncated, texts))

    return SBERTModels(truncated._replace(fitted_on=""), chunks._replace(embed=embed, fitted_on=""))


def contextual_names(profile: Profile) -> dict[Kind, str]:
    """The names of the models of the contextual teachers: `DM;100d` is DM of 100 dimensions."""
    width = profile.contextual_teachers.width
    return {kind: f"{name};{width(name)}d" for name, kind in CONTEXTUAL_KINDS.items()}


def contextual_models(teachers: TeacherStage) -> dict[Kind, Model]:
    """DM, DBOW, PV and LSA as models, by kind.

    LSA is among them if there are enough documents to fit it, and so few that this takes seconds.
    """
    documents = len(teachers.corpus.teacher_texts)
    with_lsa = teachers.profile.contextual_teachers.lsa_dim <= documents <= MAX_LSA_DOCUMENTS
    names = contextual_names(teachers.profile)
    return {
        kind: teacher_model(teachers.contextual(name), teachers.workspace, kind, names[kind])
        for name, kind in CONTEXTUAL_KINDS.items()
        if kind != Kind.CORPUS_LSA or with_lsa
    }


def paragraph_vector_model(
    teachers: TeacherStage, settings: Sequence[ParagraphVectorSettings], *, seed: int
) -> Model:
    """One Paragraph Vector, or several side by side."""
    teacher = teachers.paragraph_vectors(settings, seed=seed)
    return teacher_model(teacher, teachers.workspace, name=teacher.label)


def centred_model(workspace: Workspace, model: Model) -> Model:
    """The model minus its mean embedding of the texts of a task."""

    def fit(texts: list[str], fitted: int | None = None) -> np.ndarray:
        X = embed_once(workspace, model, texts)
        return X - X[:fitted].mean(axis=0)

    key = f"centred/{model.fingerprint}"
    return _on_task(model.kind, fit, key, form=Form.CENTRED, name=model.name)


def teacher_model(
    teacher: Teacher, workspace: Workspace, kind: Kind = Kind.PARAGRAPH_VECTOR, name: str = ""
) -> Model:
    """The teacher as a model.

    A compound embeds through its members, so that each of them embeds a text once.
    """
    model = Model(kind, Form.SAVED, name, f"teacher/{teacher.fingerprint}", teacher.embed)
    if not isinstance(teacher, Compound):
        return model
    members = [teacher_model(member, workspace, kind, member.label) for member in teacher.members]

    def embed(texts: list[str]) -> np.ndarray:
        return np.concatenate([embed_once(workspace, member, texts) for member in members], axis=1)

    return model._replace(embed=embed)


def forms_at(path: str, workspace: Workspace) -> StudentForms:
    """The model in a folder or of a hub id: a student in its forms, see `lexical_models`.

    The adapted form is called refitted, because the student as saved may be adapted, too. Any other
    model has one form and is run by sentence-transformers. Raises InputError for what is no model.
    """
    from docemb_lib.student import export, loading

    source = pretrained.resolve(path)
    if not any(loading.find_file(source, file) for file in (MODULES, "config.json")):
        problem = "there is neither a modules.json nor a config.json"
        raise InputError(f"{path}: {problem}; give the folder or the hub id of a model")
    name = Path(path).absolute().name if Path(path).is_dir() else path
    try:
        export.saved_pooling(source)
        is_student = loading.load_config(source).model_type in loading.LONG
    except InputError:
        is_student = False
    if not is_student:
        return StudentForms(published_model(path)._replace(name=name))
    forms = lexical_models(name, Path(source), workspace)
    return forms._replace(adapted=forms.adapted and forms.adapted._replace(form=Form.REFITTED))
