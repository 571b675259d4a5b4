"""Halves of documents, and the analyses of the SimDE paper (notebook 07)."""

from functools import partial

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.rows import split_sentences
from docemb_lib.evaluation import probes
from docemb_lib.runs.models import (
    Model,
    embed_once,
    published_model,
    recorded_student,
    sbert_models,
    student_model,
)
from docemb_lib.runs.run import Run
from docemb_lib.settings.notebooks import EVALUATION, SIMDE
from docemb_lib.thesis.values import published
from docemb_lib.views.students import SHOWN

SENTENCES = 12  # sentences of the example document
READ = 300  # training documents whose words are counted


def example_halves(run: Run) -> pd.DataFrame:
    """The first sentences of a training document, each in the column of its half in epoch 1.

    The document is the first of at least two sentences. Raises InputError if there is none.
    """
    rows = min(run.profile.parameters.documents, SHOWN)
    for row in run.stages.corpus.split("train").select(range(rows)):
        sentences = split_sentences(row["text"], language=run.profile.simde.language)
        if len(sentences) < 2:
            continue
        in_first = _draw(run, row["id"], len(sentences))
        texts = [" ".join(sentence.split()) for sentence in sentences]
        halves = {
            "first half": np.where(in_first, texts, ""),
            "second half": np.where(in_first, "", texts),
        }
        return pd.DataFrame(halves).head(SENTENCES)
    problem = f"none of the first {rows} has two sentences, so none has halves"
    raise InputError(f"documents: {problem}; add documents of several sentences")


def distances_of_halves(run: Run, models: list[Model]) -> pd.DataFrame:
    """Cosine distances from the first halves of validation documents to second halves.

    Positives are the second halves of the same documents, negatives those of others. Tidy, see
    `tidy_distances`, with a column model. Documents of one sentence are left out. Raises InputError
    if fewer than two documents have two sentences.
    """
    documents = run.stages.corpus.split("validation")
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
        problem = f"{len(firsts)} documents have two sentences; distances need two such documents"
        mend = "raise it, or add documents of several sentences"
        raise InputError(f"corpus.validation: {problem}; {mend}")

    frames = []
    for model in models:
        first, second = np.split(embed_once(run.workspace, model, firsts + seconds), 2)
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
        student = recorded_student(run.workspace, record)
        if student is not None:
            models[record.label] = student_model(record.label, student)
    return list(models.values())


def redundancy_beside_paper(run: Run) -> pd.DataFrame:
    """Table 4 of the paper below this run's training documents; columns are numbers of words.

    The first `READ` training documents count, if they are English.
    """
    paper = published("simde").query("metric == 'redundancy'")
    rows = paper.rename(columns={"task": "data", "value": "redundancy"})
    if run.profile.simde.language == "en":  # the language of the part-of-speech tagger
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
        encoder = sbert_models(run.stages.teachers).truncated
    embed = partial(embed_once, run.workspace, encoder)
    cosines = probes.sentence_similarity(_texts_read(run), embed, language=simde.language)
    here = pd.DataFrame(cosines, index=[f"here: {run.profile.corpus.source}, by {encoder.label}"])
    table_5 = published("simde").query("source == 'table 5'")
    paper = table_5.pivot(index="task", columns="metric", values="value")
    return pd.concat([here, paper[[*cosines]]]).rename_axis(index="data", columns="mean cosine")


def _texts_read(run: Run) -> list[str]:
    return run.stages.corpus.split("train")["text"][: min(READ, run.profile.parameters.documents)]
