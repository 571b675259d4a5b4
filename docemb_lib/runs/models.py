"""Models that are compared: students in every form, their teachers, and search engines.

A model is an identity and an embedder, or what is fitted on the texts of a task, without their
labels, once per task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from tqdm import tqdm

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.base.files import digest_of, files_of, fingerprint_of, read_json
from docemb_lib.base.hardware import devices_at_hand, uses_bf16
from docemb_lib.base.progress import progress
from docemb_lib.base.prompts import Prompts
from docemb_lib.base.tokenizing import batched
from docemb_lib.evaluation.retrieval import (
    Similarities,
    bm25,
    by_cosine,
    fused,
    of_rows,
    tfidf,
    unit,
)
from docemb_lib.runs.embeddings import Embedder, embed_once, teacher_embedder
from docemb_lib.runs.kinds import Form, Identity, Kind
from docemb_lib.runs.stages import Teachers
from docemb_lib.runs.store import kept_beside
from docemb_lib.settings.profile import Profile
from docemb_lib.teachers import LSA, Teacher
from docemb_lib.teachers.lsa import directions

if TYPE_CHECKING:
    from docemb_lib.evaluation.retrieval import Embeddings
    from docemb_lib.student import Student
    from docemb_lib.student.words_module import WordsHalf

logger = logging.getLogger(__name__)

# References by what a user has to compute and keep: counts of words; one encoder as it is, over the
# beginning, then over the whole document; an encoder with the words of the documents. A trained
# student comes after these.
SIMPLEST_FIRST = (
    Identity(Kind.TFIDF),
    Identity(Kind.TASK_LSA),
    Identity(Kind.SBERT_TRUNCATED),
    Identity(Kind.SBERT_CHUNKS),
    Identity(Kind.SBERT_CHUNKS, Form.CENTRED),
    Identity(Kind.SBERT_LEAD),
    Identity(Kind.UNTRAINED),
    Identity(Kind.UNTRAINED, Form.ADAPTED),
)
CONTEXTUAL_KINDS = (Kind.DM, Kind.DBOW, Kind.PV, Kind.CORPUS_LSA)
# The lists of modules of a sentence-transformers folder, and the manifest of a student.
MODULES = "modules.json"
STUDENT = "docemb.json"
MAX_LSA_DOCUMENTS = 20_000  # for which fitting LSA takes seconds
BATCH = 128  # texts of a published model between two reports of its progress
DIM = 512  # directions at most of what is fitted on a task
# Files of a student that its embeddings do not depend on: of docemb, and what the training leaves.
NOT_IN_EMBEDDINGS = {
    *pretrained.NOT_IN_FINGERPRINT,
    MODULES,
    STUDENT,
    "history.json",
    "objective.safetensors",
}

# N texts of a task, and the number of the first of them to fit on, None for all: not the queries
# that are no documents. It gives embeddings (N, D), dense or sparse, or `Similarities`.
Fit: TypeAlias = "Callable[[list[str], int | None], Embeddings | Similarities]"


class Fitted(NamedTuple):
    """What is fitted on the texts of each task, without labels."""

    fingerprint: str  # identifies the fit and what it depends on besides the texts
    fit: Fit


class Model(NamedTuple):
    """A model that is compared with others."""

    identity: Identity
    embedder: Embedder | Fitted

    @property
    def kind(self) -> Kind:
        return self.identity.kind

    @property
    def form(self) -> Form:
        return self.identity.form

    @property
    def label(self) -> str:
        """The model in tables and figures."""
        return self.identity.label

    @property
    def fingerprint(self) -> str:
        """Equal for two models only if they embed alike."""
        return self.embedder.fingerprint

    @property
    def of_any_text(self) -> Embedder:
        """The embedder. Raises TypeError for a model that is fitted on the texts of a task."""
        if isinstance(self.embedder, Fitted):
            raise TypeError(f"{self.label} is fitted on the texts of a task")
        return self.embedder

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the embeddings of N texts, float32 (N, D), each computed once; see `embed_once`.

        Raises TypeError for a model that is fitted on the texts of a task.
        """
        return embed_once(self.of_any_text, texts)

    def on_texts(
        self, texts: Sequence[str], fitted: int | None = None
    ) -> Embeddings | Similarities:
        """Return what the model gives for N texts: embeddings (N, D), dense or sparse, or
        `Similarities`.

        A model that is fitted on them counts equal texts once.

        fitted: the number of the first texts to fit on; None: all.
        """
        if not isinstance(self.embedder, Fitted):
            return self.embed(texts)
        row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        given = self.embedder.fit(list(row_of), len(set(texts[:fitted])))
        if len(row_of) == len(texts):
            return given
        rows = [row_of[text] for text in texts]
        return of_rows(given, rows) if callable(given) else given[rows]

    def called(self, name: str) -> Model:
        """The same model with another name."""
        return self._replace(identity=self.identity._replace(name=name))

    def embedding_by(self, embed: Callable[[list[str]], np.ndarray]) -> Model:
        """The same model, whose embeddings another function computes."""
        return self._replace(embedder=self.of_any_text._replace(embed=embed))


def scored_model(identity: Identity, fingerprint: str) -> Model:
    """A model without weights, of which only scores can be read."""

    def embed(texts: list[str]) -> np.ndarray:
        raise RuntimeError("this model cannot embed texts: only its scores on tasks are available")

    return Model(identity, Embedder(identity.label, fingerprint, embed))


def models_of_table(table: pd.DataFrame) -> list[Model]:
    """The models of a table `models` (see `Final`), with their scores alone."""
    models = []
    for kind, form, name, fingerprint in table[["kind", "form", "name", "fingerprint"]].to_numpy():
        models.append(scored_model(Identity(Kind(kind), Form(form), name), fingerprint))
    return models


class StudentForms(NamedTuple):
    """A student in the forms that are compared. Without a half of words there is one form."""

    saved: Model
    meaning: Model | None = None  # without the half of words
    adapted: Model | None = None  # with a half of words that is fitted on the texts of each task

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

    name: the label of its run; form: as it was saved, or its half of meaning.
    """
    identity = Identity(kind, form, name)

    def embed(texts: list[str]) -> np.ndarray:
        student = _loaded(folder, form == Form.MEANING, fingerprint)
        desc = f"embedding by {identity.label}"
        return student.embed(texts, devices=devices_at_hand(), desc=desc)

    precision = "bf16" if uses_bf16(devices_at_hand()[0]) else "float32"
    fingerprint = f"student/{_fingerprint(folder, form)}/{precision}"
    return Model(identity, Embedder(identity.label, fingerprint, embed))


def _fingerprint(student: Path, form: Form) -> str:
    """16 hex digits over what the embeddings of a student in this form depend on, or its hub id.

    The half of meaning has the same before and after an adaptation, and wherever its folder lies.
    """
    if not student.is_dir():
        return f"{student}/{form}"
    modules: list[dict[str, str]] = []
    if (student / MODULES).is_file():
        modules = read_json(student / MODULES, "restore the file")
    left_out = set(NOT_IN_EMBEDDINGS)
    if form == Form.MEANING:
        left_out |= {each["path"] for each in modules if each["type"].endswith("WordsHalf")}
    weighted = [module["type"].endswith("WeightedTransformer") for module in modules]
    parts: dict[str, object] = {"weighted": any(weighted)}
    for file in files_of(student):
        if file.suffix in pretrained.IN_FINGERPRINT and not left_out.intersection(file.parts):
            parts[file.as_posix()] = digest_of(student / file)
    return fingerprint_of(parts)


@lru_cache(maxsize=1)  # a notebook embeds several sets of texts by one student
def _loaded(folder: Path, without_words: bool, fingerprint: str) -> Student:
    """The student in a folder. fingerprint: so that another one in the same folder is loaded."""
    from docemb_lib.student import Student

    student = Student.load(folder)
    return student.without_words() if without_words else student


def student_forms(name: str, folder: Path) -> StudentForms:
    """A student in its forms: as it was saved, without its half of words, and adapted.

    The adapted form is fitted on each task as `docemb adapt` does. A student without words has one
    form.
    """
    from docemb_lib.student.words import saved_words

    saved = student_model(name, folder)
    half = saved_words(str(folder))
    if half is None:
        return StudentForms(saved)
    meaning = student_model(name, folder, Form.MEANING)

    def embed(texts: list[str]) -> np.ndarray:
        return _joined(half, meaning.embed(texts), texts)

    weight = float(half.weight) if half.weight_given else None
    return StudentForms(
        saved.embedding_by(embed),
        meaning,
        beside_lsa(meaning, half.vectors.shape[1], weight),
    )


def student_embeddings(student: Path, texts: list[str]) -> np.ndarray:
    """Embed N texts by a student in a folder, or of a hub id: float32 (N, width), each once."""
    with kept_beside(student) if student.is_dir() else nullcontext():
        forms = student_forms(student.name, student)
        if forms.meaning is None:
            return forms.saved.embed(texts)
        return forms.saved.of_any_text.embed(texts)


def beside_lsa(meaning: Model, dim: int = DIM, weight: float | None = None) -> Model:
    """A model and LSA of a task's texts side by side, joined as a student's two halves.

    A task whose texts share too few words is scored by the half of meaning alone.

    dim: directions of LSA at most; weight: of LSA; None: it follows from the spreads of cosines in
    the two halves.
    """
    identity = meaning.identity._replace(form=Form.ADAPTED)

    def fit(texts: list[str], fitted: int | None) -> np.ndarray:
        from docemb_lib.student.words import fit_words

        X = meaning.embed(texts)
        documents = texts[:fitted]
        filled = directions(len(documents), dim)
        try:
            half = fit_words(lambda _: X[:fitted], documents, dim=filled, weight=weight)
            return _joined(half, X, texts)
        except InputError as error:
            message = "%s, fitted on a task, has no half of words there: %s"
            logger.warning(message, identity._replace(form=Form.SAVED).label, error)
            return X

    key = f"{meaning.fingerprint} ⊕ LSA/{dim}"
    if weight is not None:
        key += f"/{weight}"
    return _on_task(identity, key, fit)


def centred_model(model: Model) -> Model:
    """The model minus its mean embedding of the texts of a task."""

    def fit(texts: list[str], fitted: int | None) -> np.ndarray:
        X = model.embed(texts)
        return X - X[:fitted].mean(axis=0)

    identity = model.identity._replace(form=Form.CENTRED)
    return _on_task(identity, f"centred/{model.fingerprint}", fit)


def tfidf_model() -> Model:
    return _on_task(Identity(Kind.TFIDF), "TF-IDF", tfidf)


def on_task_models(sbert: SBERTModels, paragraph_vector: Model | None) -> list[Model]:
    """What a user has without training: search engines, and SBERT beside them.

    paragraph_vector: PV, to be joined with SBERT; None: there is none.
    """
    truncated, chunks = sbert
    of_sbert = chunks.fingerprint

    def lsa(texts: list[str], fitted: int | None) -> np.ndarray:
        documents = texts[:fitted]
        return LSA(directions(len(documents), DIM)).fit(documents).embed(texts)

    def with_lead(texts: list[str]) -> np.ndarray:
        return unit(chunks.embed(texts)) + unit(truncated.embed(texts))

    def fusion(texts: list[str], fitted: int | None) -> Similarities:
        return fused(bm25(texts, fitted), by_cosine(chunks.embed(texts)), fitted=fitted)

    of_lead = Identity(Kind.SBERT_LEAD)
    lead = Model(of_lead, Embedder(of_lead.label, f"lead/{of_sbert}", with_lead))
    models = [
        tfidf_model(),
        _on_task(Identity(Kind.TASK_LSA), "LSA", lsa),
        _on_task(Identity(Kind.BM25), "BM25", bm25),
        centred_model(chunks),
        lead,
        beside_lsa(lead),
        _on_task(Identity(Kind.FUSION), f"fused/{of_sbert}", fusion),
    ]
    if paragraph_vector is not None:

        def with_context(texts: list[str], fitted: int | None) -> np.ndarray:
            return _side_by_side(chunks.embed(texts), paragraph_vector.embed(texts), fitted)

        key = f"{of_sbert}/{paragraph_vector.fingerprint}"
        models.append(_on_task(Identity(Kind.SBERT_WITH_PV), key, with_context))
    return models


def _on_task(identity: Identity, key: str, fit: Fit) -> Model:
    return Model(identity, Fitted(f"on-task/{key}", fit))


def _joined(half: WordsHalf, meaning: np.ndarray, texts: list[str]) -> np.ndarray:
    import torch

    return half.join(torch.tensor(meaning), half.words(texts)).numpy()


def _side_by_side(first: np.ndarray, second: np.ndarray, fitted: int | None) -> np.ndarray:
    """Two embeddings of N texts, (N, D) and (N, L), as one, (N, D + L).

    Each is centred and partially whitened; their weights come from their spreads of cosines. All
    this is fitted on the first `fitted` texts, None: on all.
    """
    import torch

    from docemb_lib.student.words import balance, partially_whitened

    X, Y = (partially_whitened(torch.tensor(each), fitted) for each in (first, second))
    w = balance(X[:fitted], Y[:fitted])
    return np.concatenate([np.sqrt(1 - w) * X.numpy(), np.sqrt(w) * Y.numpy()], axis=1)


def published_model(name: str, prompt: str = "") -> Model:
    """A model as sentence-transformers runs it.

    prompt: stands before every text; "": the model's own prompts.
    """

    def embed(texts: list[str]) -> np.ndarray:
        model: Any = pretrained.load_stock(name, device=devices_at_hand()[0])
        own = Prompts.among(vars(model))
        embeddings = []
        bar: tqdm[str] = progress(desc=f"embedding by {name}", total=len(texts), unit="documents")
        with bar:
            for before, part in groupby(texts, lambda text: prompt or own.of(text)):
                for batch in batched(part, BATCH):
                    rows = model.encode([*batch], prompt=before, show_progress_bar=False)
                    embeddings.append(rows)
                    bar.update(len(rows))
        return np.concatenate(embeddings)

    parts = ["sentence-transformers", pretrained.fingerprint(pretrained.resolve(name)), prompt]
    fingerprint = "/".join(filter(None, parts))
    return Model(Identity(Kind.PUBLISHED, name=name), Embedder(name, fingerprint, embed))


def teacher_model(teacher: Teacher, kind: Kind = Kind.PARAGRAPH_VECTOR, name: str = "") -> Model:
    return Model(Identity(kind, name=name), teacher_embedder(teacher))


def sbert_models(teachers: Teachers) -> SBERTModels:
    """The structural teacher on truncated text, and averaged over chunks of the whole document.

    The first chunk of a text is the truncated text, whose embedding both share.
    """
    over_chunks = teachers.sbert("chunks")
    truncated = teacher_model(teachers.sbert("truncate"), Kind.SBERT_TRUNCATED)
    chunks = teacher_model(over_chunks, Kind.SBERT_CHUNKS)

    def embed(texts: list[str]) -> np.ndarray:
        return over_chunks.embed(texts, truncated.embed(texts))

    return SBERTModels(truncated, chunks.embedding_by(embed))


def contextual_names(profile: Profile) -> dict[Kind, str]:
    """The names of the models of the contextual teachers: `DM;100d` is DM of 100 dimensions."""
    width = profile.contextual_teachers.width
    return {kind: f"{kind};{width(kind)}d" for kind in CONTEXTUAL_KINDS}


def contextual_models(teachers: Teachers) -> dict[Kind, Model]:
    """DM, DBOW, PV and LSA as models, by kind.

    LSA is among them if there are enough documents to fit it, and so few that this takes seconds.
    """
    documents = len(teachers.corpus.teacher_texts)
    with_lsa = teachers.profile.contextual_teachers.lsa_dim <= documents <= MAX_LSA_DOCUMENTS
    names = contextual_names(teachers.profile)
    return {
        kind: teacher_model(teachers.contextual(kind), kind, names[kind])
        for kind in CONTEXTUAL_KINDS
        if kind != Kind.CORPUS_LSA or with_lsa
    }


def forms_at(path: str) -> StudentForms:
    """The model in a folder or of a hub id: a student in its forms, see `student_forms`.

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
        return StudentForms(published_model(path).called(name))
    forms = student_forms(name, Path(source))
    if forms.adapted is None:
        return forms
    refitted = forms.adapted.identity._replace(form=Form.REFITTED)
    return forms._replace(adapted=forms.adapted._replace(identity=refitted))
