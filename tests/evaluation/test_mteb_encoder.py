"""A student in mteb's runner scores as the same folder does there through sentence-transformers."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from docemb_lib import pretrained
from docemb_lib.evaluation.mteb import find_task
from docemb_lib.student import Student


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("students") / "small"
    Student.from_encoder(pretrained.resolve("all-MiniLM-L6-v2"), layers=[0], max_tokens=64).save(place)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "pairs", "retrieval"])
def test_scores_are_those_of_the_stock_model(mteb_samples, folder, kind):
    import mteb

    from docemb_lib.evaluation.mteb import StudentEncoder

    task = find_task(getattr(mteb_samples, kind)())
    student = StudentEncoder(folder)
    (ours,) = mteb.evaluate(student, task, cache=None, show_progress_bar=False).task_results
    stock = SentenceTransformer(str(folder), device="cpu")
    (theirs,) = mteb.evaluate(stock, task, cache=None, show_progress_bar=False).task_results
    for split, scores in theirs.scores.items():
        expected = {name: value for name, value in scores[0].items() if isinstance(value, float)}
        found = {name: ours.scores[split][0][name] for name in expected}
        assert len(expected) > 4
        assert found == pytest.approx(expected, abs=1e-4, nan_ok=True)


def test_mteb_keeps_results_by_the_folders_name_and_content(folder):
    pytest.importorskip("mteb")
    from mteb.models import EncoderProtocol

    from docemb_lib.evaluation.mteb import StudentEncoder

    student = StudentEncoder(folder)
    assert isinstance(student, EncoderProtocol)
    assert (student.mteb_model_meta.name, student.mteb_model_meta.revision) == (
        "docemb/small",
        pretrained.fingerprint(str(folder)),
    )
    batches = [{"text": ["a violin", "a graph of nodes"]}, {"text": ["one"]}]
    expected = Student.load(folder).embed(["a violin", "a graph of nodes", "one"])
    np.testing.assert_array_equal(student.encode(batches, task_metadata=None), expected)
