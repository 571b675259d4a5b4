"""Why halves are a pair, measured on a run's own texts: the SimDE paper's analysis and its few-shot heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from docemb_lib.evaluation.attention import attention_by_part
from docemb_lib.evaluation.few_shot import few_shot_scores
from docemb_lib.evaluation.published import published
from docemb_lib.evaluation.redundancy import redundancy, redundancy_by_length, sentence_similarity
from docemb_lib.evaluation.tasks import Classification
from docemb_lib.experiments.embedding_cache import Model, embed_once
from docemb_lib.experiments.run import Run
from docemb_lib.workspace import Artefact

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
