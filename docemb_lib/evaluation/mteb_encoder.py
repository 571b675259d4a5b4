"""A student in mteb's own runner: embedded packed, without padding, and scored by mteb as any other model.

    import mteb
    from docemb_lib.evaluation.mteb_encoder import StudentEncoder

    mteb.evaluate(StudentEncoder("outputs/students/<label>"), mteb.get_tasks(["Banking77Classification"]))

Needs the extra `mteb`. sentence-transformers runs the same folder with the same result, padded and slower.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction

from docemb_lib import pretrained
from docemb_lib.hardware import devices_at_hand
from docemb_lib.student import Student


class StudentEncoder(AbsEncoder):
    """What mteb asks of a model, by `Student.embed`; students know no prompts, so mteb's are left out."""

    def __init__(self, model_name: str | Path, revision: str | None = None, *, device: str | None = None) -> None:
        """model_name: a student's folder or hub id; revision: None: a fingerprint of its files, by which mteb keeps
        results; device: None: a GPU where there is one."""
        source = pretrained.resolve(str(model_name))
        self.model = Student.load(source).to(device or devices_at_hand()[0])
        folder = Path(source)
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": f"docemb/{folder.absolute().name}" if folder.is_dir() else source,
                "revision": revision or pretrained.fingerprint(source),
                "max_tokens": self.model.max_tokens,
                "embed_dim": self.model.dim,
                "framework": ["PyTorch"],
                "similarity_fn_name": ScoringFunction.COSINE,
            }
        )

    def encode(self, inputs: Any, **kwargs: Any) -> np.ndarray:
        """inputs: batches of mteb, mappings whose `text` is a list of texts. Returns float32 (N, D), in their order."""
        return np.asarray(self.model.embed([text for batch in inputs for text in batch["text"]]))
