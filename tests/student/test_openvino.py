"""OpenVINO computes the embeddings of torch."""

import subprocess
import sys

import numpy as np
import pytest

from docemb_lib.base import extras
from docemb_lib.student import Student
from docemb_lib.student.openvino import OpenVINOForward

REASON = "the extra docemb[openvino] is not installed"
needs_openvino = pytest.mark.skipif(extras.find_spec("openvino") is None, reason=REASON)


@pytest.fixture(scope="module")
def saved(make_student, tmp_path_factory):
    """Folders of a student with a half of words, and of one without."""
    folder = tmp_path_factory.mktemp("students")
    student = make_student(windows=[8, 16], pooling="lead")
    student.save(folder / "dense")
    words = [f"a{number % 11} b{number % 7} c{number % 13} d{number % 5} e" for number in range(40)]
    student.adapt(words, dim=16, bf16=False)
    student.save(folder / "lexical")
    return folder


@needs_openvino
@pytest.mark.parametrize("name", ["dense", "lexical"])
def test_embeddings_are_those_of_torch(saved, texts, name):
    ours = Student.load(saved / name, backend="openvino").embed(texts, bf16=False)
    expected = Student.load(saved / name).embed(texts, bf16=False)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)


@needs_openvino
def test_the_dense_half_of_a_student_runs_there_too(saved, texts):
    student = Student.load(saved / "lexical", backend="openvino")
    expected = Student.load(saved / "dense").embed(texts, bf16=False)
    ours = student.dense_half().embed(texts, bf16=False)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
    assert not np.array_equal(ours, expected)  # another order of the sums


@needs_openvino
def test_bfloat16_is_near(saved, texts):
    ours = Student.load(saved / "dense", backend="openvino").embed(texts, bf16=True)
    expected = Student.load(saved / "dense").embed(texts, bf16=False)
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((ours * expected).sum(1) / norms).min() > 0.999


@needs_openvino
def test_nothing_is_reported_to_the_maker_of_openvino():
    """openvino_telemetry sends an event when OpenVINO is imported."""
    code = """
import sys
from docemb_lib.base.extras import import_openvino
import_openvino()
assert sys.modules["openvino_telemetry"] is None
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_a_missing_openvino_is_an_error_that_names_the_extra(saved, refused, monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    said = r'the package openvino is not installed; run `pip install "docemb\[openvino\]"`$'
    refused(said, Student.load, saved / "dense", backend="openvino")


@needs_openvino
def test_a_student_with_a_stock_forward_is_refused(make_kind, refused):
    refused("take a Longformer with pooling", OpenVINOForward, make_kind("modernbert"))
