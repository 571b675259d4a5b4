"""An exported student gives in ONNX Runtime what it gives in torch."""

import numpy as np
import pytest
import torch

from docemb_lib.student import onnx, pack
from docemb_lib.student.onnx import PaddedForward, write_onnx

runtime = pytest.importorskip("onnxruntime", reason="the extra docemb[onnx] is not installed")
pytest.importorskip("onnxscript", reason="the extra docemb[onnx] is not installed")

LONGEST = 600


# Students by name: windows of both directions together, for the random ones of each layer.
@pytest.fixture(scope="module")
def exported(make_student, tmp_path_factory):
    """A student of two windows, whose first tokens count more, and its session."""
    student = make_student(windows=[8, 16], pooling="lead", max_tokens=LONGEST)
    file = tmp_path_factory.mktemp("onnx") / "student.onnx"
    write_onnx(student, file)
    return student, runtime.InferenceSession(file)


def padded(documents, padding=0):
    longest = max(map(len, documents))
    input_ids = np.full((len(documents), longest), padding)
    mask = np.zeros_like(input_ids)
    for row, document in enumerate(documents):
        input_ids[row, : len(document)] = document
        mask[row, : len(document)] = 1
    return {"input_ids": input_ids, "attention_mask": mask}


def in_torch(student, documents):
    with torch.no_grad():
        return student(pack(documents)).numpy()


@pytest.mark.parametrize(
    "lengths",
    [[1], [9], [129], [LONGEST, 3, 300]],
    ids=str,
)
def test_the_file_gives_the_embeddings_of_torch(exported, random_documents, lengths):
    student, session = exported
    documents = random_documents(lengths)
    (ours,) = session.run(None, padded(documents))
    np.testing.assert_allclose(ours, in_torch(student, documents), rtol=0, atol=1e-5)


def test_the_padding_token_inside_a_text_is_a_token(exported, random_documents):
    student, session = exported
    (document,) = random_documents([40])
    document[10:13] = [0, 0, 0]
    (ours,) = session.run(None, padded([document, document[:20]]))
    np.testing.assert_allclose(ours, in_torch(student, [document, document[:20]]), atol=1e-5)


def test_what_the_padding_holds_does_not_matter(exported, random_documents):
    _, session = exported
    documents = random_documents([40, 9])
    (zeros,) = session.run(None, padded(documents))
    (others,) = session.run(None, padded(documents, padding=1234))
    np.testing.assert_allclose(others, zeros, rtol=0, atol=1e-6)


def test_the_file_names_its_inputs_and_the_limit_of_a_document(exported):
    _, session = exported
    assert [entry.name for entry in session.get_inputs()] == ["input_ids", "attention_mask"]
    assert [entry.name for entry in session.get_outputs()] == ["sentence_embedding"]
    facts = session.get_modelmeta().custom_metadata_map
    assert (facts["max_tokens"], facts["pooling"]) == (str(LONGEST), "lead")


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_dropout_is_left_out_and_the_student_goes_on_training(
    make_student, random_documents, pooling
):
    student = make_student(windows=[8], dropout=0.5, pooling=pooling).train()
    documents = random_documents([30])
    batch = (torch.from_numpy(values) for values in padded(documents).values())
    with torch.no_grad():
        ours = PaddedForward(student)(*batch).numpy()
    assert student.training
    np.testing.assert_allclose(ours, in_torch(student.eval(), documents), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["cls", "modernbert"])
def test_a_student_with_a_stock_forward_is_refused(make_kind, refused, kind):
    refused("take a Longformer with pooling mean, lead or first$", PaddedForward, make_kind(kind))


def test_a_missing_package_is_an_error_that_names_the_extra(
    make_student, refused, tmp_path, monkeypatch
):
    monkeypatch.setattr(onnx, "find_spec", lambda name: None)
    said = r'the package onnxscript is not installed; run `pip install "docemb\[onnx\]"`$'
    refused(said, write_onnx, make_student(windows=[8]), tmp_path / "a.onnx")
