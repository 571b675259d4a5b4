"""Halves of documents, and the analyses of the SimDE paper (notebook 07)."""

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.rows import split_sentences
from docemb_lib.evaluation import probes
from docemb_lib.evaluation.attention import attention_by_part
from docemb_lib.evaluation.tasks import Classification
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import (
    Model,
    published_model,
    sbert_models,
    student_model,
)
from docemb_lib.runs.run import Run
from docemb_lib.settings.notebooks import EVALUATION, SIMDE
from docemb_lib.thesis.values import published
from docemb_lib.views.corpus import SHOWN

READ = 300  # training documents whose words are counted
ATTENDED = 12  # validation documents; attentions take stock Longformer about a second each
TAGGED = "en"  # the language of the part-of-speech tagger


def distances_of_halves(run: Run, models: list[Model]) -> pd.DataFrame:
    """Cosine distances from the first halves of validation documents to second halves.

    Positives are the second halves of the same documents, negatives those of others. Tidy, see
    `tidy_distances`, with a column model. Documents of one sentence are left out. Raises InputError
    if fewer than two documents have two sentences.
    """
    documents = run.corpus.split("validation")
    firsts = []
    seconds = []
    for name, text in zip(documents["id"][:SHOWN], documents["text"][:SHOWN], strict=True):
        sentences = split_sentences(text, language=run.profile.simde.language)
        if len(sentences) >= 2:
            in_first = _draw(run, name, len(sentences))
            texts = np.array(sentences, dtype=object)
            firsts.append("".join(texts[in_first]))
            seconds.append("".join(texts[~in_first]))
    if len(firsts) < 2:
        raise InputError(
            f"corpus.validation: {len(firsts)} documents have two sentences; "
            "distances need two such documents; raise it, or add documents of several sentences"
        )

    frames = []
    for model in models:
        first, second = np.split(model.embed(firsts + seconds), 2)
        distances = probes.measure_distances(first, second, distance="cosine", negatives=20)
        frames.append(probes.tidy_distances(distances).assign(model=model.label))
    return pd.concat(frames, ignore_index=True)


def _draw(run: Run, document: str, n: int) -> np.ndarray:
    """Which of n sentences training puts into the first half in the first epoch: (n,) bool."""
    from docemb_lib.training.pairs import draw_halves, generator_of

    return draw_halves(n, generator_of(document, seed=run.profile.parameters.seed, epoch=0))


def students_beside(run: Run) -> list[Model]:
    """The students of comparable recorded runs of notebook 07, then of the final evaluation."""
    models: dict[str, Model] = {}
    for record in (*run.comparable(SIMDE.name), *run.comparable(EVALUATION.name)):
        if record.label in (run.label, *models):
            continue
        student = record.student_folder
        if student is not None:
            models[record.label] = student_model(record.label, student)
    return list(models.values())


def sizes_beside_paper(run: Run) -> pd.DataFrame:
    """Table 1 of the paper below this run's training documents and its classification tasks.

    Columns: documents, classes, mean words, median words. Words are split at white space.
    """
    rows = []
    train = run.corpus.split("train")["n_words"][: run.profile.parameters.documents]
    rows.append(_size("here: training documents", np.asarray(train)))
    for name in run.profile.evaluation.tasks:
        task = run.scorer.task(name)
        if isinstance(task, Classification):
            texts = [text for data in task.splits.values() for text in data.texts]
            words = np.array([len(text.split()) for text in texts])
            rows.append(_size(f"here: {name}", words, len(set(task.splits["train"].labels))))
    here = pd.DataFrame(rows).set_index("data")
    table_1 = published("simde").query("source == 'table 1'")
    paper = table_1.pivot_table(index="task", columns="metric", values="value", sort=False)
    return pd.concat([here, paper[[*here]]]).rename_axis("data")


def _size(name: str, words: np.ndarray, classes: float = np.nan) -> dict[str, object]:
    return {
        "data": name,
        "documents": float(len(words)),
        "classes": float(classes),
        "mean words": float(words.mean()),
        "median words": float(np.median(words)),
    }


def attention_of_students(run: Run) -> pd.DataFrame:
    """`attention_by_part` by model and kind: student before and after training, recorded students.

    The first `ATTENDED` validation documents are read. Recorded students are those of comparable
    runs of this notebook. Empty if documents are not English, or where no student is a Longformer,
    the one encoder that gives its attentions here.
    """
    from docemb_lib.student import Student

    columns = ["document", "part", "words", "attention", "relative", "model", "kind"]
    if run.profile.simde.language != TAGGED:
        return pd.DataFrame(columns=columns)
    untrained = Identity(Kind.UNTRAINED).label
    folders = {
        untrained: run.students.untrained,
        run.label: run.student,
    }
    for record in run.comparable():
        recorded = record.student_folder
        if recorded is not None:
            folders.setdefault(record.label, recorded)
    texts = run.corpus.split("validation")["text"][:ATTENDED]
    frames = []
    for label, folder in folders.items():
        student = Student.load(folder)
        if student.model.config.model_type == "longformer":
            kind = Kind.UNTRAINED if label == untrained else Kind.STUDENT
            frames.append(attention_by_part(student, texts).assign(model=label, kind=kind))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def redundancy_beside_paper(run: Run) -> pd.DataFrame:
    """Table 4 of the paper below this run's training documents; columns are numbers of words.

    The first `READ` training documents count, if they are English.
    """
    paper = published("simde").query("metric == 'redundancy'")
    rows = paper.rename(columns={"task": "data", "value": "redundancy"})
    if run.profile.simde.language == TAGGED:
        here = probes.redundancy_by_length(probes.redundancy(_texts_read(run))).reset_index()
        rows = pd.concat([here.assign(data=f"here: {run.profile.corpus.source}"), rows])
    table = rows.pivot_table(index="data", columns="words", values="redundancy", sort=False)
    return table[[*probes.BINS, probes.ALL_LENGTHS]]


def similarity_beside_paper(run: Run) -> pd.DataFrame:
    """Table 5 of the paper (SimCSE's cosines) below mean cosines of this run's training documents.

    The first `READ` training documents count. Their sentences are encoded by
    `simde.sentence_encoder` or, without one, by the structural teacher over truncated text.
    """
    simde = run.profile.simde
    if simde.sentence_encoder:
        encoder = published_model(simde.sentence_encoder, pooling="cls")
    else:
        encoder = sbert_models(run.teachers).truncated
    embed = encoder.embed
    cosines = probes.sentence_similarity(_texts_read(run), embed, language=simde.language)
    here = pd.DataFrame(cosines, index=[f"here: {run.profile.corpus.source}, by {encoder.label}"])
    table_5 = published("simde").query("source == 'table 5'")
    paper = table_5.pivot(index="task", columns="metric", values="value")
    return pd.concat([here, paper[[*cosines]]]).rename_axis(index="data", columns="mean cosine")


def _texts_read(run: Run) -> list[str]:
    return run.corpus.split("train")["text"][: min(READ, run.profile.parameters.documents)]
