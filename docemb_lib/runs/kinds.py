"""Identities of the models that are compared: kind, form, name, and the label made of them.

A row of an evaluation carries the kind and the form of its model beside the label. Code asks for
these; labels are for people.
"""

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What a model is. The values stand in the tables of records."""

    STUDENT = "student"  # trained here, or a student that `docemb evaluate` is given
    UNTRAINED = "untrained"  # the student before distillation
    SBERT_TRUNCATED = "sbert-truncated"  # the structural teacher on the beginning of a text
    SBERT_CHUNKS = "sbert-chunks"  # its mean over the chunks of the whole text
    SBERT_LEAD = "sbert-lead"  # the sum of both, which weighs the beginning more
    SBERT_WITH_PV = "sbert-with-pv"  # over chunks, beside PV
    PUBLISHED = "published"  # any other model that sentence-transformers runs
    DM = "DM"  # these four are the contextual teachers of the profile, by their names
    DBOW = "DBOW"
    PV = "PV"  # DM and DBOW side by side
    CORPUS_LSA = "LSA"
    PARAGRAPH_VECTOR = "paragraph-vector"  # the Paragraph Vectors that 02_paragraph_vector trains
    TFIDF = "tf-idf"  # these four are fitted on the texts of a task
    TASK_LSA = "task-lsa"
    BM25 = "bm25"
    FUSION = "fusion"  # of the rankings by BM25 and by SBERT over chunks


class Form(StrEnum):
    """The form of a model. The values stand in the tables of records."""

    SAVED = "saved"
    MEANING = "meaning"  # without the half of words
    ADAPTED = "adapted"  # with a half of words that is fitted on the texts of a task
    REFITTED = "refitted"  # the same of a student that `docemb evaluate` is given
    CENTRED = "centred"  # minus the mean embedding of the texts of a task


# Models that are fitted on the texts of a task, without labels, and models that are not fitted here
ON_TASK = {Kind.TFIDF, Kind.TASK_LSA, Kind.BM25, Kind.FUSION, Kind.SBERT_WITH_PV}
AS_PUBLISHED = {
    Kind.UNTRAINED,
    Kind.SBERT_TRUNCATED,
    Kind.SBERT_CHUNKS,
    Kind.SBERT_LEAD,
    Kind.PUBLISHED,
}

# Labels of the kinds that have one model in an evaluation. Models of other kinds have names.
TITLES = {
    Kind.UNTRAINED: "student before distillation",
    Kind.SBERT_TRUNCATED: "SBERT truncated",
    Kind.SBERT_CHUNKS: "SBERT over chunks",
    Kind.SBERT_LEAD: "SBERT over chunks and lead",
    Kind.SBERT_WITH_PV: "SBERT over chunks ⊕ PV",
    Kind.TFIDF: "TF-IDF",
    Kind.TASK_LSA: "LSA",
    Kind.BM25: "BM25",
    Kind.FUSION: "BM25 and SBERT over chunks, fused",
}
# The same for figures, where they are shorter.
SHORT_TITLES = {
    **TITLES,
    Kind.UNTRAINED: "start",
    Kind.SBERT_TRUNCATED: "SBERT",
    Kind.SBERT_CHUNKS: "SBERT-chunks",
    Kind.SBERT_LEAD: "SBERT-lead",
    Kind.SBERT_WITH_PV: "SBERT-chunks ⊕ PV",
    Kind.FUSION: "BM25 + SBERT-chunks",
}


def short_titles(tokens: int | None) -> dict[Kind, str]:
    """Titles for figures and sentences. tokens: those that the truncated SBERT reads."""
    return {**SHORT_TITLES, Kind.SBERT_TRUNCATED: f"SBERT-{tokens or 'truncated'}"}


ENDINGS = {
    Form.SAVED: "",
    Form.MEANING: ", meaning alone",
    Form.ADAPTED: " ⊕ LSA",
    Form.REFITTED: ", refitted to the task",
    Form.CENTRED: ", centred",
}


class Identity(NamedTuple):
    """What a model is called, and what it is fitted on."""

    kind: Kind
    form: Form = Form.SAVED
    name: str = ""  # where a kind has several models; the name of a student is the label of its run

    @property
    def label(self) -> str:
        """The model in tables and figures; a name takes the place of the title of its kind."""
        return (self.name or TITLES[self.kind]) + self.ending

    @property
    def ending(self) -> str:
        """The end of the label, which names the form; "" for a model as it was saved."""
        if (self.kind, self.form) == (Kind.STUDENT, Form.ADAPTED):
            return ", adapted"
        return ENDINGS[self.form]

    @property
    def ranks_only(self) -> bool:
        """Whether the model gives similarities alone, so that only retrieval can be scored."""
        return self.kind in (Kind.BM25, Kind.FUSION)

    @property
    def fitted_on(self) -> str:
        """Where words and directions of the model are from: "corpus", "task", or "" for neither."""
        if self.kind in ON_TASK or self.form in (Form.ADAPTED, Form.REFITTED, Form.CENTRED):
            return "task"
        return "" if self.kind in AS_PUBLISHED else "corpus"
