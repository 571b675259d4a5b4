import json
import logging
import warnings
from importlib.metadata import version

import numpy as np
import pytest
import torch
import yaml
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from docemb_lib.errors import InputError
from docemb_lib.student import Student
from docemb_lib.student.export import add_scores, licence_of, model_card


@pytest.fixture(scope="module")
def folder(converted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("student")
    converted.save(folder)
    return folder


@pytest.fixture
def transformers_log():
    """What transformers logs from warnings on; it does not propagate, so caplog cannot hear it."""
    records = []

    class Listener(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())

    listener = Listener(logging.WARNING)
    logging.getLogger("transformers").addHandler(listener)
    yield records
    logging.getLogger("transformers").removeHandler(listener)


def test_a_loaded_student_embeds_as_the_saved_one(converted, folder, texts, transformers_log):
    loaded = Student.load(folder)
    assert not loaded.training
    assert (loaded.dim, loaded.max_tokens) == (384, 1024)
    np.testing.assert_array_equal(loaded.embed(texts, bf16=False), converted.embed(texts, bf16=False))
    assert transformers_log == []


@pytest.mark.parametrize("kind", ["packed", "first", "global", "modernbert"])
def test_stock_sentence_transformers_gives_the_same_embeddings(make_kind, texts, tmp_path, transformers_log, kind):
    student = make_kind(kind)
    student.save(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stock = SentenceTransformer(str(tmp_path), device="cpu")
    assert transformers_log == []
    assert stock.max_seq_length == 600
    theirs, ours = stock.encode(texts, batch_size=3), student.embed(texts, bf16=False)
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
    loaded = Student.load(tmp_path)
    assert (loaded.pooling, loaded.packed, loaded.max_tokens) == (student.pooling, student.packed, 600)
    np.testing.assert_array_equal(loaded.embed(texts, bf16=False), ours)
    trained = {name for name, weight in student.named_parameters() if weight.requires_grad}
    assert {name for name, weight in loaded.named_parameters() if weight.requires_grad} == trained

    stock.save_pretrained(str(tmp_path / "again"))
    again = Student.load(tmp_path / "again")
    assert (again.pooling, again.max_tokens) == (student.pooling, 600)
    np.testing.assert_array_equal(again.embed(texts, bf16=False), ours)


@pytest.mark.parametrize("kind", ["packed", "global", "modernbert"])
def test_a_centred_student_is_the_same_in_stock_sentence_transformers(
    make_kind, texts, tmp_path, transformers_log, kind
):
    student = make_kind(kind)
    plain = student.embed(texts, bf16=False)
    student.centre(texts[:4], bf16=False)
    ours = student.embed(texts, bf16=False)
    np.testing.assert_allclose(ours, plain - plain[:4].mean(axis=0), atol=1e-5)
    student.save(tmp_path)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stock = SentenceTransformer(str(tmp_path), device="cpu")
    assert transformers_log == []
    theirs = stock.encode(texts, batch_size=3)
    cosines = (theirs * ours).sum(1) / np.linalg.norm(theirs, axis=1) / np.linalg.norm(ours, axis=1)
    assert cosines.min() >= 0.99999
    np.testing.assert_allclose(theirs, ours, atol=1e-5)

    stock.save_pretrained(str(tmp_path / "again"))
    for folder in (tmp_path, tmp_path / "again"):
        loaded = Student.load(folder)
        torch.testing.assert_close(loaded.mean, student.mean, atol=0, rtol=0)
        assert (loaded.pooling, loaded.max_tokens) == (student.pooling, 600)
        np.testing.assert_array_equal(loaded.embed(texts, bf16=False), ours)
    assert "The mean embedding of training documents is subtracted" in front_and_body(tmp_path)[1]


def test_centring_again_starts_from_the_embeddings_themselves(make_student, texts):
    student = make_student(windows=[8])
    plain = student.embed(texts, bf16=False)
    student.centre(texts)
    student.centre(texts[:3], bf16=False)
    np.testing.assert_allclose(student.embed(texts, bf16=False), plain - plain[:3].mean(axis=0), atol=1e-5)
    with pytest.raises(InputError, match="texts: none"):
        student.centre([])


def test_a_plain_student_has_no_mean_and_no_third_module(make_student, tmp_path):
    student = make_student(windows=[8])
    student.save(tmp_path)
    assert student.mean is Student.load(tmp_path).mean is None
    assert [module["path"] for module in json.loads((tmp_path / "modules.json").read_text())] == ["", "1_Pooling"]
    assert "subtracted" not in front_and_body(tmp_path)[1]


def test_stock_sentence_transformers_embeds_as_a_converted_model(converted, folder, texts):
    stock = SentenceTransformer(str(folder), device="cpu")
    assert stock.max_seq_length == 1024
    theirs, ours = stock.encode(texts, batch_size=3), converted.embed(texts, bf16=False)
    np.testing.assert_allclose(theirs, ours, atol=1e-5)


def test_global_attention_is_what_tells_cls_from_first(make_kind, tmp_path):
    make_kind("global").save(tmp_path)
    settings = tmp_path / "sentence_bert_config.json"
    saved = json.loads(settings.read_text())
    settings.write_text(json.dumps({"max_seq_length": saved["max_seq_length"]}))
    assert Student.load(tmp_path).pooling == "first"
    settings.write_text(json.dumps(saved))
    assert Student.load(tmp_path).pooling == "cls"
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    with pytest.raises(InputError, match="pooling is mean with global attention"):
        Student.load(tmp_path)


def test_versions_are_noted_as_sentence_transformers_notes_them(folder, tmp_path):
    SentenceTransformer(str(folder), device="cpu").save_pretrained(str(tmp_path))
    theirs, ours = (json.loads((f / "config_sentence_transformers.json").read_text()) for f in (tmp_path, folder))
    assert ours["__version__"] == theirs["__version__"]
    assert ours["model_type"] == theirs["model_type"]


def test_stock_transformers_loads_the_same_folder(converted, folder, transformers_log):
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert transformers_log == []
    assert model.config.model_type == "longformer"
    assert tokenizer.model_max_length == 1024
    assert len(tokenizer("word " * 500)["input_ids"]) == 502  # no truncation of its own
    for name, weight in converted.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name


def test_a_call_with_truncation_is_not_saved_with_the_tokenizer(make_student, tmp_path):
    student = make_student(windows=[8], max_tokens=12)
    student.tokenize(["word " * 50])
    student.save(tmp_path)
    saved = json.loads((tmp_path / "tokenizer.json").read_text())
    assert saved["truncation"] is saved["padding"] is None


def test_a_folder_written_by_sentence_transformers_itself_loads(folder, texts, tmp_path, converted):
    SentenceTransformer(str(folder), device="cpu").save_pretrained(str(tmp_path))
    np.testing.assert_array_equal(
        Student.load(tmp_path).embed(texts[:3], bf16=False), converted.embed(texts[:3], bf16=False)
    )


def test_a_plain_longformer_folder_loads_with_the_limit_of_its_positions(make_student, tmp_path):
    student = make_student(windows=[8], max_tokens=30)
    student.model.save_pretrained(tmp_path)
    student.tokenizer.save_pretrained(tmp_path)
    loaded = Student.load(str(tmp_path))
    assert loaded.max_tokens == 30
    np.testing.assert_array_equal(loaded.embed(["a b c"], bf16=False), student.embed(["a b c"], bf16=False))


def test_a_limit_below_the_positions_is_kept(make_student, tmp_path):
    make_student(windows=[8], max_tokens=30).save(tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    assert Student.load(tmp_path).max_tokens == 16


def test_pickled_weights_are_refused(make_student, tmp_path):
    student = make_student(windows=[8])
    student.save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(student.model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="safetensors"):
        Student.load(tmp_path)


def test_incomplete_weights_are_refused(make_student, tmp_path):
    student = make_student(windows=[8, 8])
    student.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"num_hidden_layers": 3, "attention_window": [8, 8, 8]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"lack encoder\.layer\.2\."):
        Student.load(tmp_path)


def test_a_model_that_ends_in_more_than_mean_pooling_is_refused(minilm, make_student, tmp_path):
    with pytest.raises(InputError, match="Transformer, Pooling, Normalize"):
        Student.load(minilm)
    make_student(windows=[8]).save(tmp_path)
    for written in ('{"pooling_mode_max_tokens": true}', '{"pooling_mode": "max"}'):
        (tmp_path / "1_Pooling" / "config.json").write_text(written)
        with pytest.raises(InputError, match="pooling is max without"):
            Student.load(tmp_path)


def test_a_short_encoder_is_not_loaded_as_a_student(minilm, tmp_path):
    AutoModel.from_pretrained(minilm).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="type bert; convert it"):
        Student.load(tmp_path)


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(InputError, match="absent") as failure:
        Student.load(tmp_path / "absent")
    assert "\n" not in str(failure.value)


def front_and_body(folder):
    _, front, body = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), body


def a_card(**options):
    return model_card(
        profile="tiny",
        encoder="all-MiniLM-L6-v2",
        structural_teacher="all-mpnet-base-v2",
        contextual_teacher="PV",
        parameters={
            "structural_loss": "cosine",
            "contextual_loss": "soft-cca",
            "lam": 0.5,
            "student_projection": "-",
        },
        documents=150,
        corpus="installed-docs",
        validation_before=1.5,
        validation_after=0.25,
        **options,
    )


def test_the_card_has_front_matter_and_says_where_a_student_comes_from(make_student, tmp_path):
    make_student(windows=[8]).save(tmp_path, card=a_card(licence="mit"))
    matter, body = front_and_body(tmp_path)
    assert matter["library_name"] == "sentence-transformers"
    assert matter["license"] == "mit"
    assert {"sentence-transformers", "longformer"} <= set(matter["tags"])
    assert "| `lam` | `0.5` |" in body
    assert "1.5000 before, 0.2500 after" in body
    assert "150 documents of installed-docs" in body
    assert "structure from all-mpnet-base-v2 (loss cosine) and context from a PV model (loss soft-cca)" in body
    for package in ("docemb", "torch", "transformers", "sentence-transformers"):
        assert f"{package} {version(package)}" in body


def test_the_card_of_a_student_of_pairs_says_what_it_learnt_from():
    sizes = {"documents": 9, "corpus": "texts", "validation_before": 1.0, "validation_after": 0.5}
    alone = model_card(
        profile="tiny", encoder="e", structural_teacher=None, contextual_teacher=None, parameters={"pairs": "dropout"},
        pairs="dropout", **sizes,
    )  # fmt: skip
    assert "e as a longformer, trained to know a document again under another dropout (SimCSE), on 9" in alone
    beside = {"pairs": "halves", "beside_teachers": 0.5, "structural_loss": "mse"}
    both = model_card(
        profile="tiny", encoder="e", structural_teacher="t", contextual_teacher=None, parameters=beside,
        pairs="halves", **sizes,
    )  # fmt: skip
    assert "other documents (SimDE) and distilled with structure from t (loss mse), on 9" in both
    assert "| `beside_teachers` | `0.5` |" in both


@pytest.mark.parametrize(
    ("kind", "sentence"), [("packed", "mean over all"), ("global", "global"), ("modernbert", "mean")]
)
def test_a_plain_card_says_what_an_embedding_is(make_kind, tmp_path, kind, sentence):
    make_kind(kind).save(tmp_path)
    matter, body = front_and_body(tmp_path)
    assert sentence in body
    assert ("global attention" in body) == (kind == "global")
    assert ("modernbert" in matter["tags"]) == (kind == "modernbert")


def test_scores_are_written_into_a_card_and_replaced(make_student, tmp_path):
    make_student(windows=[8]).save(tmp_path, card=a_card())
    before = (tmp_path / "README.md").read_text()
    first = [("halves", "accuracy", 0.75, 0.0125), (r"see-also \\1", "map", 0.5, None)]
    add_scores(tmp_path, first)
    once = (tmp_path / "README.md").read_text()
    assert "| halves | accuracy | 0.7500 ± 0.0125 |\n| see-also \\\\1 | map | 0.5000 |" in once
    assert once.startswith(before.rstrip())
    assert once == a_card(scores=first)
    add_scores(tmp_path, first)
    assert (tmp_path / "README.md").read_text() == once

    (tmp_path / "README.md").write_text(once + "\n## Notes\n\nKept.\n")
    add_scores(tmp_path, [("halves", "accuracy", 0.8, None)])
    twice = (tmp_path / "README.md").read_text()
    assert "0.8000" in twice
    assert "0.7500" not in twice
    assert twice.count("## Scores") == 1
    assert twice.endswith("## Notes\n\nKept.\n")
    assert not list(tmp_path.glob(".README*"))


def test_scores_need_a_card(tmp_path):
    with pytest.raises(InputError, match=r"README\.md: missing"):
        add_scores(tmp_path, [("halves", "accuracy", 0.8, None)])


def test_an_interrupted_writing_of_scores_leaves_the_old_card(make_student, tmp_path, monkeypatch):
    make_student(windows=[8]).save(tmp_path)
    before = (tmp_path / "README.md").read_text()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        add_scores(tmp_path, [("halves", "accuracy", 0.8, None)])
    assert (tmp_path / "README.md").read_text() == before


def test_the_licence_is_the_one_of_the_encoders_own_card(minilm, tmp_path):
    assert licence_of(minilm) == "apache-2.0"
    assert licence_of(str(tmp_path)) is None
    assert licence_of("nobody/has-this-model") is None
    for card in (
        "No front matter.",
        "---\nlanguage: en\n---\n",
        "---\nlicense: [mit, apache-2.0]\n---\n",
        "---\n: {\n---\n",
    ):
        (tmp_path / "README.md").write_text(card)
        assert licence_of(str(tmp_path)) is None, card
