import json
import warnings
from importlib.metadata import version

import numpy as np
import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from docemb_lib.student import Student
from docemb_lib.student.export import add_scores, student_card


def in_stock_sentence_transformers(folder, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return SentenceTransformer(str(folder), device="cpu", **options)


@pytest.mark.parametrize("kind", ["mean", "lead", "first", "cls", "modernbert"])
def test_stock_sentence_transformers_gives_the_same_embeddings(
    make_kind, texts, tmp_path, transformers_log, kind
):
    student = make_kind(kind)
    ours = student.embed(texts, bf16=False)
    student.save(tmp_path)
    assert [module["path"] for module in json.loads((tmp_path / "modules.json").read_text())] == [
        "",
        "1_Pooling",
    ]
    matter, card = front_and_body(tmp_path)
    assert ("mean over all" in card) == (student.pooling in ("mean", "lead"))
    assert ("global attention" in card) == (kind == "cls")
    assert ("trust_remote_code=True).encode" in card) == (kind == "lead")
    assert ("modernbert" in matter["tags"]) == (kind == "modernbert")
    stock = in_stock_sentence_transformers(tmp_path, trust_remote_code=kind == "lead")
    assert (transformers_log, stock.max_seq_length) == ([], 600)
    np.testing.assert_allclose(stock.encode(texts, batch_size=3), ours, atol=1e-5)
    stock.save_pretrained(str(tmp_path / "again"))
    trained = {name for name, weight in student.named_parameters() if weight.requires_grad}
    for folder in (tmp_path, tmp_path / "again"):
        loaded = Student.load(folder)
        of_both = [(s.pooling, s.packed, s.max_tokens, s.training) for s in (loaded, student)]
        assert of_both[0] == of_both[1]
        assert {
            name for name, weight in loaded.named_parameters() if weight.requires_grad
        } == trained
        torch.testing.assert_close(loaded.state_dict(), student.state_dict(), atol=0, rtol=0)
        # The stock forward may round differently where the weights lie at another alignment in
        # memory.
        np.testing.assert_allclose(
            loaded.embed(texts, bf16=False), ours, rtol=0, atol=0 if student.packed else 2e-6
        )


def test_global_attention_and_pooling_distinguish_three_students(make_kind, tmp_path, refused):
    make_kind("cls").save(tmp_path)
    assert Student.load(tmp_path).pooling == "cls"
    (tmp_path / "docemb.json").unlink()  # the checksums
    pooling = tmp_path / "1_Pooling" / "config.json"
    saved = pooling.read_text()
    pooling.write_text('{"pooling_mode": "mean"}')
    refused("pools by mean with global attention", Student.load, tmp_path)
    pooling.write_text(saved)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 600}')
    assert Student.load(tmp_path).pooling == "first"
    pooling.write_text('{"pooling_mode": "mean"}')
    assert Student.load(tmp_path).pooling == "mean"


def test_a_call_with_truncation_leaves_none_in_the_file(make_student, tmp_path):
    student = make_student(windows=[8], max_tokens=30)
    student.tokenize(["word " * 50])
    student.save(tmp_path)
    saved = json.loads((tmp_path / "tokenizer.json").read_text())
    assert saved["truncation"] is saved["padding"] is None


@pytest.mark.parametrize(
    ("own", "of_tokenizer", "expected"),
    [(16, 600, 16), (None, 50, 50), (None, 10**30, 600), (None, None, 600)],
)
def test_a_limit_below_the_positions_is_kept(
    make_kind, tmp_path, edit_files, own, of_tokenizer, expected
):
    make_kind("mean").save(tmp_path)
    limits = json.dumps({} if own is None else {"max_seq_length": own})
    files = {
        "sentence_bert_config.json": limits,
        "tokenizer_config.json": {"model_max_length": of_tokenizer},
    }
    edit_files(tmp_path, files)
    assert Student.load(tmp_path).max_tokens == expected


def test_models_that_are_no_student_are_refused_and_limits_beyond_the_positions_cut(
    minilm, make_kind, tmp_path, edit_files, refused
):
    for kind in ("mean", "modernbert"):
        make_kind(kind).save(tmp_path / kind)
        edit_files(tmp_path / kind, {"sentence_bert_config.json": {"max_seq_length": 601}})
        assert Student.load(tmp_path / kind).max_tokens == 600
    name = "all-MiniLM-L6-v2"
    mend = f"Make a student of it with `docemb adapt {name} CORPUS -o OUT`, then give that folder.$"
    refused(f"^The model {name} is a short encoder and no student. {mend}", Student.load, name)
    refused("absent", Student.load, tmp_path / "absent")
    AutoModel.from_pretrained(minilm).save_pretrained(tmp_path)
    said = f"^The model {tmp_path} is a short encoder and no student. .* `docemb adapt {tmp_path} "
    refused(said, Student.load, tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            {"config.json": {"num_hidden_layers": 3, "attention_window": [8, 8, 8]}},
            r"disagree about encoder\.layer\.2\.",
        ),
        ({"modules.json": "{nope"}, r"modules\.json: the file is not valid JSON"),
        ({"modules.json": "[1]"}, r"a module in its modules\.json is no mapping"),
        (
            {"modules.json": '{"a": 1}'},
            r"modules\.json: the file holds a dict and must hold a list",
        ),
        ({"modules.json": '[{"type": 3, "path": ""}]'}, r"a module in its modules\.json is no"),
        ({"1_Pooling/config.json": '{"pooling_mode_max_tokens": true}'}, "pools by max without"),
        ({"1_Pooling/config.json": '{"pooling_mode": "max"}'}, "pools by max without"),
        (
            {"1_Pooling/config.json": '{"pooling_mode": ["mean", "max"]}'},
            r"pools by mean\+max without",
        ),
    ],
)
def test_a_damaged_student_is_refused_in_one_line(
    make_student, tmp_path, edit_files, damage, message, refused
):
    make_student(windows=[8, 8]).save(tmp_path)
    edit_files(tmp_path, damage)
    refused(message, Student.load, tmp_path)


def front_and_body(folder):
    _, front, body = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), body


def test_the_card_has_front_matter_and_says_where_a_student_comes_from(
    make_student, minilm, tmp_path
):
    student = make_student(windows=[8])
    facts = {
        "structural_teacher": "all-mpnet-base-v2",
        "lam": None,
        "mean_validation_loss": "1.5000 before",
    }
    student.save(tmp_path, card=student_card(student, minilm, **facts))
    matter, body = front_and_body(tmp_path)
    assert matter["library_name"] == "sentence-transformers"
    assert {"sentence-transformers", "longformer"} <= set(matter["tags"])
    assert f"Made with docemb {version('docemb')}" in body
    for row in (
        "| `structural_teacher` | all-mpnet-base-v2 |",
        "| `lam` | None |",
        f"| `encoder` | {minilm} |",
    ):
        assert row in body


def test_scores_are_written_into_a_card_and_replaced(make_student, tmp_path):
    make_student(windows=[8]).save(tmp_path)
    card = tmp_path / "README.md"
    before = card.read_text()
    first = [("halves", "accuracy", 0.75, 0.0125), ("see-also", "map", 0.5, None)]
    add_scores(tmp_path, first)
    once = card.read_text()
    assert "| halves | accuracy | 0.7500 ± 0.0125 |\n| see-also | map | 0.5000 |" in once
    assert before.partition("\n---\n")[2].rstrip() in once
    add_scores(tmp_path, first)
    assert card.read_text() == once
    add_scores(tmp_path, [("halves", "accuracy", 0.8, None)])
    twice = card.read_text()
    assert ("0.8000" in twice, "0.7500" in twice, twice.count("## Scores")) == (True, False, 1)


@pytest.mark.parametrize(
    ("encoder", "expected"),
    [
        ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"),
        ("intfloat/e5-small-v2", "intfloat/e5-small-v2"),
        (".", None),
        (None, None),
    ],
)
def test_a_card_names_its_encoder_where_the_hub_has_it(make_student, encoder, expected):
    card = ModelCard(student_card(make_student(windows=[8]), encoder))
    assert card.data.base_model == expected


def test_a_card_names_the_data_sets_of_a_hub(make_student):
    card = ModelCard(student_card(make_student(windows=[8]), datasets=["wikimedia/wikipedia"]))
    assert card.data.datasets == ["wikimedia/wikipedia"]


@pytest.fixture(scope="module")
def adapted(make_student):
    """A student of a pooling, with a half of words."""

    def make(pooling):
        student = make_student(windows=[8, 16], pooling=pooling)
        names = [f"a{n % 11} b{n % 7} c{n % 13} d{n % 5} word{n}" for n in range(40)]
        student.adapt(names, dim=16)
        return student

    return make


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_folder_without_words_is_plain_and_gives_the_meaning(adapted, texts, tmp_path, pooling):
    student = adapted(pooling)
    student.save(tmp_path, words=False)
    assert not list(tmp_path.rglob("*.py"))
    assert "trust_remote_code" not in (tmp_path / "README.md").read_text()
    in_stock = in_stock_sentence_transformers(tmp_path).encode(texts, batch_size=3)
    expected = student.without_words().embed(texts, bf16=False)
    np.testing.assert_allclose(in_stock, expected, rtol=0, atol=1e-5)


def test_a_folder_without_words_keeps_the_weights_of_the_first_tokens(adapted, texts, tmp_path):
    student = adapted("lead")
    student.save(tmp_path, words=False)
    loaded = Student.load(tmp_path)
    assert (loaded.pooling, loaded.words) == ("lead", None)
    expected = student.without_words().embed(texts, bf16=False)
    np.testing.assert_array_equal(loaded.embed(texts, bf16=False), expected)
