"""Students of a run and of recorded runs: embeddings, linear probes, and what they read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from docemb_lib.evaluation.probes import Ending, Versions, by_position, ending, exchange_passages
from docemb_lib.runs.models import Model, student_model
from docemb_lib.runs.records import Record
from docemb_lib.runs.run import Run
from docemb_lib.runs.stages import Corpus
from docemb_lib.settings.notebooks import Notebook
from docemb_lib.thesis.findings import recorded_model
from docemb_lib.views.corpus import SHOWN

PROJECTED = ("student_projection", "contextual_projection")
BEFORE = 300  # training documents in `embeddings_before`
READ = 12  # documents whose passages are exchanged: a model embeds each six times


def taught(run: Run) -> str:
    """A sentence on whether training lowered the validation loss.

    It need not where the student starts near its teacher.
    """
    _, validation = run.history()
    before, after = validation["loss"].iloc[[0, -1]]
    did = "brought" if after < before else "did not bring"
    teacher = "teachers" if len(run.roles) > 1 else "teacher"
    return (
        f"The validation loss is {before:.4f} before training and {after:.4f} after it:\n"
        f"by this loss training {did} the student nearer to its {teacher} on validation documents."
    )


def students_of_runs(run: Run) -> dict[str, Model]:
    """The student of this run and those of recorded runs of its notebook, by the label of the run.

    Recorded runs count if they have as many documents as this run, and its seed. The students are
    called by their short names, as in `recorded`.
    """
    own = run.model.called(run.name)
    students = {run.label: own}
    for name, record, _ in recorded_students(run, [run.registered], {own.label: own}):
        if record.student_folder is not None:
            students[record.label] = student_model(name, record.student_folder)
    return students


def recorded_students(
    run: Run,
    notebooks: Iterable[Notebook],
    models: Mapping[str, Model],
    *,
    is_comparable: Callable[[Run], bool] | None = None,
) -> Iterator[tuple[str, Record, Model]]:
    """Names, records and models, for their scores alone, of recorded students, each once.

    A name that is taken is followed by the projection where that is another than in `run`, or
    replaced by the label of the run.

    Args:
        models: those that are known already, by name; none of them is given again.
        is_comparable: None: runs from as many documents, or from any number for a student that
            learns from pairs of texts, and with the same seed.
    """
    names = {*models}
    fingerprints = {model.fingerprint for model in models.values()}
    size = ["seed"] if run.self_supervised else ["documents", "seed"]
    projections = run.only(*PROJECTED)
    fits = is_comparable or (lambda key: key.only(*size) == run.only(*size))

    def rank(record: Record) -> tuple[bool, str]:
        return run.of_record(record).only(*PROJECTED) != projections, record.label

    for notebook in notebooks:
        for record in sorted(run.comparable(notebook.name), key=rank):
            key = run.of_record(record)
            name = key.name
            if name in names and key.only(*PROJECTED) != projections:
                name = f"{name}, S:{key.profile.parameters.student_projection}"
            if name in names or not key.trains:
                name = record.label
            student = recorded_model(record, name)
            if student is None or not fits(key):
                continue
            if student.fingerprint not in fingerprints:  # two notebooks may share a student
                names.add(name)
                fingerprints.add(student.fingerprint)
                yield name, record, student


def validation_embeddings(corpus: Corpus, model: Model) -> np.ndarray:
    """The model's embeddings of the first `SHOWN` validation documents: float32 (N, D).

    Each is computed once.
    """
    return model.embed(corpus.split("validation")["text"][:SHOWN])


def embeddings_before(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """What the contextual loss starts from: `y` (N, D) and `c` (N, C) of N training documents.

    They are the embeddings of the student before training and of the contextual teacher, both
    float32; of PV for a run without such a teacher. N is at most `BEFORE`.
    """
    documents = run.profile.parameters.documents
    texts = run.corpus.split("train")["text"][: min(BEFORE, documents)]
    teachers = run.teachers
    teacher = teachers.contextual(run.profile.parameters.contextual_teacher or "PV")
    c = teachers.embeddings(teacher, "train", documents)[: len(texts)]
    return run.untrained.embed(texts), np.array(c, dtype=np.float32)


def documents_to_read(run: Run) -> Versions:
    """The `READ` validation documents whose lengths are nearest to twice what SBERT reads at once.

    Fewer than two documents have no versions.
    """
    validation = run.corpus.split("validation")
    lengths = np.asarray(validation["n_structural_tokens"][:])
    limit = run.teachers.sbert("truncate").max_text_tokens
    rows = np.argsort(np.abs(lengths - 2 * limit), kind="stable")[:READ]
    return Versions.of([validation["text"][int(row)] for row in rows])


def readings(models: Sequence[Model], versions: Versions) -> pd.DataFrame:
    """How far the exchange of a passage moves documents: a row for each model and passage.

    Columns model, kind, metric, and those of `by_position`.
    """
    frames = []
    for model in models:
        frame = by_position(exchange_passages(model.embed, versions))
        frames.append(frame.assign(model=model.label, kind=model.kind.value))
    return pd.concat(frames, ignore_index=True).assign(metric="cosine distance")


def endings(models: Sequence[Model], versions: Versions) -> pd.DataFrame:
    """How much endings count for models beside beginnings, a row each: see `Ending`.

    It is NaN without versions.
    """
    rows = {}
    for model in models:
        rows[model.label] = Ending(np.nan, np.nan, np.nan)
        if versions.documents:
            moved = exchange_passages(model.embed, versions)
            rows[model.label] = ending(moved)
    return pd.DataFrame.from_dict(rows, orient="index", columns=Ending._fields)
