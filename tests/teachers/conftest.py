"""Real text for the teachers: the documentation that NumPy carries."""

import inspect

import numpy as np
import pytest

from docemb_lib.teachers import SBERT, ParagraphVector, paragraph_vector


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Infer with one process unless a test asks for more: each one takes seconds to start."""
    monkeypatch.setattr(paragraph_vector, "cpu_count", lambda: 1)


@pytest.fixture(scope="session")
def pages() -> list[str]:
    """Eighty pages of 100 to 2,000 words, in the order of their names."""
    names = [name for name in sorted(dir(np)) if not name.startswith("_")]
    # `abs` and `absolute` share a text.
    texts = dict.fromkeys(inspect.getdoc(getattr(np, name)) or "" for name in names)
    return [text for text in texts if 100 <= len(text.split()) <= 2000][:80]


@pytest.fixture(scope="session")
def dm(pages: list[str]) -> ParagraphVector:
    return ParagraphVector(dm=True, vector_size=12, epochs=3).fit(pages)


@pytest.fixture(scope="session")
def sbert() -> SBERT:
    return SBERT(device="cpu", bf16=False)
