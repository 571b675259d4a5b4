"""What the diagrams show of a run beside its profile: how wide its embeddings are, how one of its documents begins."""

from __future__ import annotations

from docemb_lib.experiments.run import Run


def widths_of(run: Run) -> dict[str, int]:
    """Dimensions of the embeddings of the `student` and, where there is one, the `contextual` teacher."""
    stages, teacher = run.stages, run.profile.parameters.contextual_teacher
    return {
        "student": stages.student_width,
        **({} if teacher is None else {"contextual": stages.contextual_width(teacher)}),
    }


def opening_words(run: Run, words: int = 12) -> list[str]:
    """The first words of the first training document, as the run's Paragraph Vector (its first member) reads them."""
    from docemb_lib.teachers import preprocess

    (settings, *_) = run.stages.asked_paragraph_vectors()
    return preprocess(run.stages.split("train")["text"][0], settings.preprocess)[:words]
