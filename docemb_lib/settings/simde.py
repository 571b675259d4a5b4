"""How a student learns without a teacher."""

from __future__ import annotations

from pydantic import Field

from docemb_lib.settings.section import Section
from docemb_lib.settings.student import Training


class SimDE(Section):
    """Learning from pairs of texts made of one document (the SimDE paper, Sections 3 and 4).

    Which pairs and what weighs how much are notebook parameters: `pairs`, `pair_temperature`, `mlm_weight` and
    `beside_teachers`.
    """

    symmetric: bool = False  # find the first text by the second, too
    language: str = "en"  # ISO 639: which abbreviations end no sentence
    max_tokens: int | None = Field(None, ge=8)  # of each text of a pair; None: as many as the student reads
    dropout: float | None = Field(None, ge=0, lt=1)  # of the student meanwhile; None: as student.dropout
    # The paper's, for BERT; its Longformer had batches of 12. Warm-up and decay, of which it is silent, are BERT's.
    training: Training = Training(batch_size=36, learning_rate=5e-5, weight_decay=0.01)
