"""Data for the figures and tables of notebook 07: halves of documents, other students, SimDE's analysis, few-shot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from docemb_lib.corpus.rows import split_sentences
from docemb_lib.errors import InputError
from docemb_lib.evaluation.probes import (
    attention_by_part,
    measure_distances,
    redundancy,
    redundancy_by_length,
    sentence_similarity,
    tidy_distances,
)
from docemb_lib.evaluation.protocols import few_shot_scores
from docemb_lib.evaluation.scoreboard import MAIN_METRICS, last_round, mean_over_tasks
from docemb_lib.evaluation.tasks import Classification
from docemb_lib.evaluation.uncertainty import OVERALL
from docemb_lib.experiments.models import UNTRAINED, Model, embed_once, sbert_models, student_model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.students import recorded_student
from docemb_lib.settings.profile import FINAL
from docemb_lib.thesis.values import published
from docemb_lib.training.pairs import draw_halves, generator_of
from docemb_lib.views.runs import SHOWN

FEW = range(6, 13)  # sentences of the example document
READ = 300  # training documents whose words are counted
ATTENDED = 20  # validation documents; attentions take stock Longformer a second per document
TAGGED = "en"  # the language of the part-of-speech tagger


def example_halves(run: Run) -> pd.DataFrame:
    """The first training document of 6 to 12 sentences, each sentence in the column of its half in the first epoch.

    Raises InputError if no document has two sentences.
    """
    rows, language = min(run.profile.parameters.documents, SHOWN), run.profile.simde.language
    split = run.stages.corpus.split("train").select(range(rows))
    documents = [(row["id"], split_sentences(row["text"], language=language)) for row in split]
    candidates = [one for one in documents if len(one[1]) >= 2]
    if not candidates:
        raise InputError(f"documents: none of the first {rows} has two sentences, so none has halves")
    name, sentences = next((one for one in candidates if len(one[1]) in FEW), candidates[0])
    shown = np.array([" ".join(sentence.split()) for sentence in sentences], dtype=object)
    first = _draw(run, name, len(sentences))
    return pd.DataFrame({"first half": np.where(first, shown, ""), "second half": np.where(first, "", shown)})


def distances_of_halves(run: Run, models: list[Model], *, negatives: int = 20) -> pd.DataFrame:
    """Cosine distances from the first halves of validation documents to their second halves and to those of others.

    Tidy, see `tidy_distances`, with a column model. Documents of one sentence are left out.
    """
    language, split = run.profile.simde.language, run.stages.corpus.split("validation")
    firsts, seconds = [], []
    for name, text in zip(split["id"][:SHOWN], split["text"][:SHOWN], strict=True):
        sentences = np.array(split_sentences(text, language=language), dtype=object)
        if len(sentences) >= 2:
            first = _draw(run, name, len(sentences))
            firsts.append("".join(sentences[first]))
            seconds.append("".join(sentences[~first]))
    frames = []
    for model in models:
        embeddings = embed_once(run.workspace, model, firsts + seconds)
        found = measure_distances(*np.split(embeddings, 2), distance="cosine", negatives=negatives)
        frames.append(tidy_distances(found).assign(model=model.label))
    return pd.concat(frames, ignore_index=True)


def students_beside(run: Run) -> list[Model]:
    """The students of recorded runs comparable with this one, of notebook 07 and of the final evaluation."""
    models: dict[str, Model] = {}
    for record in (*run.comparable(FINAL[1]), *run.comparable(FINAL[0])):
        student = recorded_student(run.workspace, record)
        if student is not None and record.label not in {run.label, *models}:
            models[record.label] = student_model(record.label, student)
    return list(models.values())


def beside_paper(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores beside the paper's on common tasks: rows (source, model), columns (task, metric); empty without any.

    scores: tidy.
    """
    here = last_round(scores)[["model", "task", "metric", "value"]].assign(source="here")
    rows = pd.concat([here, published("simde").query("round == 'all'").assign(source="paper")])
    common = rows.groupby(["task", "metric"])["source"].transform("nunique") == 2
    return rows[common].pivot_table(index=["source", "model"], columns=["task", "metric"], values="value", sort=False)


def gain_over_start(scores: pd.DataFrame, comparison: pd.DataFrame, *, student: str) -> pd.DataFrame:
    """The student against the untrained student, a row per task and one for the mean over tasks.

    Columns metric, difference, low and high (95% interval), verdict of the paired test, and head_seeds, the standard
    deviation of the student's score over head seeds. scores, comparison: of a final evaluation.
    """
    pair = (comparison["model"] == student) & (comparison["reference"] == UNTRAINED)
    means = mean_over_tasks(last_round(scores)).assign(task=OVERALL)
    by_seed = pd.concat([last_round(scores)[lambda rows: rows["metric"].isin(MAIN_METRICS)], means])
    spread = by_seed[by_seed["model"] == student].groupby("task")["value"].std()
    rows = comparison[pair].set_index("task")
    return rows[["metric", "difference", "low", "high", "verdict"]].assign(head_seeds=spread)


def _draw(run: Run, document: str, n: int) -> np.ndarray:
    """Which of n sentences training puts into the first half in the first epoch: (n,) bool."""
    return draw_halves(n, generator_of(document, seed=run.profile.parameters.seed, epoch=0))


def redundancy_beside_paper(run: Run) -> pd.DataFrame:
    """Table 4 of the paper, with this run's first `READ` training documents first: data, words, redundancy.

    Documents in another language than English are left out.
    """
    paper = published("simde").query("metric == 'redundancy'").rename(columns={"task": "data", "value": "redundancy"})
    frames = [paper]
    if run.profile.simde.language == TAGGED:
        texts = run.stages.corpus.split("train")["text"][: min(READ, run.profile.parameters.documents)]
        here = redundancy_by_length(redundancy(texts)).reset_index()
        frames.insert(0, here.assign(data=f"here: {run.profile.corpus.source}"))
    return pd.concat(frames, ignore_index=True)[["data", "words", "redundancy"]]


def similarity_of_sentences(run: Run) -> pd.DataFrame:
    """SBERT cosines of two sentences of one training document and of two documents; see `sentence_similarity`."""
    embed = partial(embed_once, run.workspace, sbert_models(run.stages.teachers)[0])
    texts = run.stages.corpus.split("train")["text"][: min(READ, run.profile.parameters.documents)]
    return sentence_similarity(texts, embed, pairs=READ, language=run.profile.simde.language)


def attention_of_students(run: Run) -> pd.DataFrame:
    """The attention that parts of speech get in the first `ATTENDED` validation documents, before and after training.

    Columns model, and see `attention_by_part`. Empty if documents are not English or the student gives no attentions.
    """
    from docemb_lib.student import Student

    if run.profile.simde.language != TAGGED:
        return pd.DataFrame()
    students = {UNTRAINED: run.stages.students.untrained, run.label: run.student()}
    loaded = {label: Student.load(student.path) for label, student in students.items()}
    if any(student.config.model_type != "longformer" for student in loaded.values()):
        return pd.DataFrame()
    texts = run.stages.corpus.split("validation")["text"][:ATTENDED]
    frames = [attention_by_part(student, texts).assign(model=label) for label, student in loaded.items()]
    return pd.concat(frames, ignore_index=True)


def few_shot(run: Run, models: Sequence[Model], *, per_class: Sequence[int] = (2, 5)) -> pd.DataFrame:
    """Scores on the profile's classification tasks of heads trained on `per_class` examples of each class.

    Columns task, model, and see `few_shot_scores`. A number that exceeds the smallest class of a task is left out.
    """
    frames = []
    for name in run.profile.evaluation.tasks:
        task = run.stages.scores.tasks[name]
        if not isinstance(task, Classification):
            continue
        smallest = min(Counter(task.splits["train"].labels).values())
        numbers = [number for number in per_class if number <= smallest]
        for model in models if numbers else ():
            embeddings = embed_once(run.workspace, model, task.texts("test"))
            frames.append(few_shot_scores(task, embeddings, per_class=numbers).assign(task=name, model=model.label))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
