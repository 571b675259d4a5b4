"""What the SimDE notebook shows beside scores: one document in two halves, how well halves find each other, rivals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from docemb_lib.corpus.sentences import split_sentences
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
from docemb_lib.experiments.models import UNTRAINED, student_model, untrained_model
from docemb_lib.experiments.report import FINAL
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.scores import Model, embed_once
from docemb_lib.experiments.students import SIMDE
from docemb_lib.thesis.comparison import comparable
from docemb_lib.thesis.values import published
from docemb_lib.training.pairs import draw_halves, generator_of
from docemb_lib.views.runs import SHOWN
from docemb_lib.workspace import MANIFEST, Artefact

# ---- what the SimDE notebook shows beside scores


FEW = range(6, 13)  # sentences of a document that is shown whole


def example_halves(run: Run) -> pd.DataFrame:
    """The first training document of 6 to 12 sentences, of those looked at: a row each, in the column of the half that
    it goes to in the first epoch.

    Raises InputError where none of them has two sentences.
    """
    rows, language = min(run.profile.parameters.documents, SHOWN), run.profile.simde.language
    split = run.stages.split("train").select(range(rows))
    documents = [(row["id"], split_sentences(row["text"], language=language)) for row in split]
    several = [one for one in documents if len(one[1]) >= 2]
    if not several:
        raise InputError(f"documents: none of the first {rows} has two sentences, so none has halves")
    name, sentences = next((one for one in several if len(one[1]) in FEW), several[0])
    shown = np.array([" ".join(sentence.split()) for sentence in sentences], dtype=object)
    first = _draw(run, name, len(sentences))
    return pd.DataFrame({"first half": np.where(first, shown, ""), "second half": np.where(first, "", shown)})


def distances_of_halves(run: Run, models: list[Model], *, negatives: int = 20) -> pd.DataFrame:
    """Cosine distances from first halves of validation documents to the second ones, their own and others'.

    Tidy, see `tidy_distances`, and model. Documents of one sentence have no halves and are left out.
    """
    language, split = run.profile.simde.language, run.stages.split("validation")
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


def students_beside(run: Run, student: Artefact) -> list[Model]:
    """This run's student, those of the comparable recorded runs of its notebook and of the final evaluation, and the
    encoder that all of them started from."""
    models = {run.label: student_model(run.label, student)}
    for record in (*comparable(run, SIMDE), *comparable(run, FINAL)):
        folder = run.workspace.root / (record.student or "")
        if record.student is not None and (folder / MANIFEST).is_file() and record.label not in models:
            artefact = Artefact("student", folder.resolve().name, folder.resolve())
            models[record.label] = student_model(record.label, artefact)
    return [*models.values(), untrained_model(run.stages)]


def beside_paper(scores: pd.DataFrame) -> pd.DataFrame:
    """Our scores beside the paper's, where both have a task: rows (source, model), columns (task, metric).

    scores: tidy. Empty where no task is one of the paper's.
    """
    ours = last_round(scores)[["model", "task", "metric", "value"]].assign(source="here")
    theirs = published("simde").query("round == 'all'").assign(source="paper")
    together = pd.concat([rows for rows in (ours, theirs) if len(rows)])
    shared = together.groupby(["task", "metric"])["source"].transform("nunique") == 2
    return together[shared].pivot_table(
        index=["source", "model"], columns=["task", "metric"], values="value", sort=False
    )


def gain_over_start(scores: pd.DataFrame, comparison: pd.DataFrame, *, student: str) -> pd.DataFrame:
    """The student against the encoder that it started from, a row per task and one for the mean over them.

    Columns difference, its 95% interval and the verdict of the paired test; head_seeds, the deviation of the student's
    score over head seeds. scores, comparison: of a final evaluation.
    """
    pair = (comparison["model"] == student) & (comparison["reference"] == UNTRAINED)
    means = mean_over_tasks(last_round(scores)).assign(task=OVERALL)
    by_seed = pd.concat([last_round(scores)[lambda rows: rows["metric"].isin(MAIN_METRICS)], means])
    spread = by_seed[by_seed["model"] == student].groupby("task")["value"].std()
    rows = comparison[pair].set_index("task")
    return rows[["metric", "difference", "low", "high", "verdict"]].assign(head_seeds=spread)


def _draw(run: Run, document: str, n: int) -> np.ndarray:
    """As training draws in its first epoch: which of n sentences go to the first half, (n,) bool."""
    return draw_halves(n, generator_of(document, seed=run.profile.parameters.seed, epoch=0))


# ---- why halves are a pair


READ = 300  # training documents whose words are counted
ATTENDED = 20  # validation documents: with attentions, stock Longformer takes a second each
TAGGED = "en"  # the language whose parts of speech are known


def redundancy_beside_paper(run: Run) -> pd.DataFrame:
    """Table 4 of the first `READ` training documents, if they are English, and of the paper's data: columns data,
    words, redundancy."""
    paper = published("simde").query("metric == 'redundancy'").rename(columns={"task": "data", "value": "redundancy"})
    frames = [paper]
    if run.profile.simde.language == TAGGED:
        texts = run.stages.split("train")["text"][: min(READ, run.profile.parameters.documents)]
        here = redundancy_by_length(redundancy(texts)).reset_index()
        frames.insert(0, here.assign(data=f"here: {run.profile.corpus.source}"))
    return pd.concat(frames, ignore_index=True)[["data", "words", "redundancy"]]


def similarity_of_sentences(run: Run, model: Model) -> pd.DataFrame:
    """Cosines of sentences of the same training documents, of one and of two of them, see `sentence_similarity`."""
    texts = run.stages.split("train")["text"][: min(READ, run.profile.parameters.documents)]
    return sentence_similarity(
        texts,
        lambda sentences: embed_once(run.workspace, model, sentences),
        pairs=READ,
        language=run.profile.simde.language,
    )


def attention_of_students(run: Run, students: Mapping[str, Artefact]) -> pd.DataFrame:
    """Which words students attend to in the first `ATTENDED` validation documents: model, and see
    `attention_by_part`. Empty where documents are not English, and for students that give no attentions."""
    from docemb_lib.student import Student

    loaded = {label: Student.load(student.path) for label, student in students.items()}
    if run.profile.simde.language != TAGGED or any(s.config.model_type != "longformer" for s in loaded.values()):
        return pd.DataFrame()
    texts = run.stages.split("validation")["text"][:ATTENDED]
    frames = [attention_by_part(student, texts).assign(model=label) for label, student in loaded.items()]
    return pd.concat(frames, ignore_index=True)


def few_shot(run: Run, models: Sequence[Model], *, per_class: Sequence[int] = (2, 5)) -> pd.DataFrame:
    """The profile's classification tasks by heads that learn from so few examples of each class, on test splits.

    Columns task, model, and see `few_shot_scores`; numbers that a task's smallest class has not are left out. Empty
    where there is no such task, or none with so many examples.
    """
    stages, frames = run.stages, []
    for name in run.profile.evaluation.tasks:
        task = stages.tasks[name]
        if not isinstance(task, Classification):
            continue
        smallest = min(Counter(task.splits["train"].labels).values())
        numbers = [number for number in per_class if number <= smallest]
        for model in models if numbers else ():
            embeddings = embed_once(run.workspace, model, task.texts("test"))
            frames.append(few_shot_scores(task, embeddings, per_class=numbers).assign(task=name, model=model.label))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
