"""The student and MiniLM over chunks embed the same documents; libraries may be missing."""

import numpy as np
import pytest
import torch

from docemb_lib.base.pretrained import resolve
from docemb_lib.bench import embed
from docemb_lib.teachers import SBERT

TEXTS = [str(torch.nn.Transformer.__doc__) * 2, "A short text.", str(torch.nn.LayerNorm.__doc__)]


@pytest.fixture(scope="module")
def report():
    """The quick benchmark, as if neither library were installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embed, "find_spec", lambda name: None)
        patch.setattr(embed, "uses_bf16", lambda: True)
        return embed.bench_embed(quick=True)


def test_libraries_that_are_not_installed_are_named(report):
    missing = [row.name for row in report.rows if np.isnan(row.ours)]
    assert missing == [
        "ONNX Runtime (onnxruntime, onnx) is not installed",
        "OpenVINO (openvino, onnx) is not installed",
    ]


def test_each_model_has_a_row_with_its_worth(report):
    rows = {row.name: row for row in report.rows if isinstance(row, embed.EmbedRow)}
    assert list(rows) == [
        "MiniLM over chunks, torch fp32",
        "MiniLM over chunks, torch bf16",
        "MiniLM over chunks, torch int8",
        "student fp32",
        "student bf16",
    ]
    assert all(row.ours > 0 and row.documents_per_second > 0 for row in rows.values())
    assert all(0 < row.map <= 1 for row in rows.values())
    cosines = [row.cosine for row in rows.values()]
    assert np.greater(cosines, [0.9999999, 0.9999, 0.95, 0.9999999, 0.9999]).all()


def test_the_table_shows_documents_cosines_and_scores(report):
    assert {"documents_per_second", "cosine", "map"} <= set(report.table())


def test_the_faster_student_is_judged_beside_the_fastest_other_model():
    seconds = {
        "chunks, slow": [9.0, 9.0],
        "chunks, fast": [4.0, 4.0],
        "student fp32": [8.0, 8.0],
        "student bf16": [5.0, 5.0],
    }
    row = embed.against_the_best(seconds, 40)
    assert row.name == "student bf16 against chunks, fast"
    assert (row.ours, row.peer, row.verdict) == (8, 10, "below")


def test_chunks_are_those_of_the_structural_teacher():
    """SBERT cuts texts into the same chunks, and weighs them by their tokens, too."""
    minilm = resolve(embed.MODEL)
    teacher = SBERT(minilm, long="chunks", bf16=False, device="cpu")
    student = embed.Student.from_encoder(minilm)
    model = embed.AutoModel.from_pretrained(minilm, add_pooling_layer=False)
    forward = embed.partial(embed.torch_forward, embed.MeanOfStates(model).eval(), False)
    embeddings = embed.embed_over_chunks(forward, student.tokenize(TEXTS).sequences)
    np.testing.assert_allclose(embeddings, teacher.embed(TEXTS), atol=1e-5)
