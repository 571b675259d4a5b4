import json
import warnings
from importlib.metadata import version

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from docemb_lib.errors import InputError
from docemb_lib.student import Student
from docemb_lib.student.export import add_scores, licence_of, model_card

FILE = "model.safetensors"
# Embeddings of the random models reach 5; the global one's weights are drawn so wide that rounding exceeds 1e-5.
ATOL = {"packed": 1e-5, "first": 1e-5, "global": 3e-5, "modernbert": 1e-5}


def refused(source, message):
    with pytest.raises(InputError, match=message) as failure:
        Student.load(source)
    assert "\n" not in str(failure.value)
    assert len(str(failure.value)) < 500


@pytest.fixture(scope="module")
def folder(converted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("student")
    converted.save(folder)
    return folder


def in_stock_sentence_transformers(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("kind", ["packed", "first", "global", "modernbert"])
def test_stock_sentence_transformers_gives_the_same_embeddings(
    make_kind, texts, tmp_path, transformers_log, kind, centred
):
    student = make_kind(kind)
    plain = ours = student.embed(texts, bf16=False)
    if centred:
        student.centre(texts[:4], bf16=False)
        ours = student.embed(texts, bf16=False)
        np.testing.assert_allclose(ours, plain - plain[:4].mean(axis=0), atol=1e-5)
    student.save(tmp_path)
    assert [module["path"] for module in json.loads((tmp_path / "modules.json").read_text())] == [
        "", "1_Pooling", *["2_Dense"] * centred,
    ]  # fmt: skip
    assert ("The mean embedding of training documents is subtracted" in front_and_body(tmp_path)[1]) == centred

    stock = in_stock_sentence_transformers(tmp_path)
    assert transformers_log == []
    assert stock.max_seq_length == 600
    np.testing.assert_allclose(stock.encode(texts, batch_size=3), ours, atol=ATOL[kind])
    stock.save_pretrained(str(tmp_path / "again"))
    trained = {name for name, weight in student.named_parameters() if weight.requires_grad}
    for folder in (tmp_path, tmp_path / "again"):
        loaded = Student.load(folder)
        assert (loaded.pooling, loaded.packed, loaded.max_tokens) == (student.pooling, student.packed, 600)
        assert {name for name, weight in loaded.named_parameters() if weight.requires_grad} == trained
        torch.testing.assert_close(loaded.mean, student.mean, atol=0, rtol=0) if centred else None
        assert (loaded.mean is None) == (not centred)
        np.testing.assert_array_equal(loaded.embed(texts, bf16=False), ours)


def test_a_converted_student_is_the_same_loaded_and_in_stock_libraries(
    converted, folder, texts, tmp_path, transformers_log
):
    ours = converted.embed(texts, bf16=False)
    loaded = Student.load(folder)
    assert not loaded.training
    assert (loaded.dim, loaded.max_tokens) == (384, 1024)
    np.testing.assert_array_equal(loaded.embed(texts, bf16=False), ours)

    stock = in_stock_sentence_transformers(folder)
    assert stock.max_seq_length == 1024
    np.testing.assert_allclose(stock.encode(texts, batch_size=3), ours, atol=1e-5)

    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert (model.config.model_type, tokenizer.model_max_length) == ("longformer", 1024)
    assert len(tokenizer("word " * 500)["input_ids"]) == 502  # no truncation of its own
    for name, weight in converted.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name
    assert transformers_log == []


def test_global_attention_is_what_tells_cls_from_first(make_kind, tmp_path, edit_json):
    make_kind("global").save(tmp_path)
    settings = tmp_path / "sentence_bert_config.json"
    saved = settings.read_text()
    settings.write_text('{"max_seq_length": 600}')
    assert Student.load(tmp_path).pooling == "first"
    settings.write_text(saved)
    assert Student.load(tmp_path).pooling == "cls"
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    with pytest.raises(InputError, match="pooling is mean with global attention"):
        Student.load(tmp_path)


def test_versions_are_noted_as_sentence_transformers_notes_them(folder, tmp_path):
    SentenceTransformer(str(folder), device="cpu").save_pretrained(str(tmp_path))
    theirs, ours = (json.loads((f / "config_sentence_transformers.json").read_text()) for f in (tmp_path, folder))
    assert ours["__version__"] == theirs["__version__"]
    assert ours["model_type"] == theirs["model_type"]


def test_a_call_with_truncation_is_not_saved_with_the_tokenizer(make_student, tmp_path):
    student = make_student(windows=[8], max_tokens=12)
    student.encode(["word " * 50])
    student.save(tmp_path)
    saved = json.loads((tmp_path / "tokenizer.json").read_text())
    assert saved["truncation"] is saved["padding"] is None


def test_a_plain_longformer_folder_loads_with_the_limit_of_its_positions(make_student, tmp_path):
    student = make_student(windows=[8], max_tokens=30)
    student.model.save_pretrained(tmp_path)
    student.tokenizer.save_pretrained(tmp_path)
    loaded = Student.load(str(tmp_path))
    assert loaded.max_tokens == 30
    np.testing.assert_array_equal(loaded.embed(["a b c"], bf16=False), student.embed(["a b c"], bf16=False))


@pytest.mark.parametrize(
    ("own", "of_tokenizer", "expected"), [(16, 600, 16), (None, 50, 50), (None, 10**30, 600), (None, None, 600)]
)
def test_a_limit_below_the_positions_is_kept(make_kind, tmp_path, edit_json, own, of_tokenizer, expected):
    make_kind("packed").save(tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({} if own is None else {"max_seq_length": own}))
    edit_json(tmp_path / "tokenizer_config.json", model_max_length=of_tokenizer)
    assert Student.load(tmp_path).max_tokens == expected


@pytest.mark.parametrize("kind", ["packed", "modernbert"])
def test_a_limit_beyond_the_learnt_positions_is_refused(make_kind, tmp_path, edit_json, kind):
    make_kind(kind).save(tmp_path)
    edit_json(tmp_path / "sentence_bert_config.json", max_seq_length=601)
    refused(tmp_path, "max_seq_length 601, but the model has positions for 600")


def test_pickled_weights_are_refused(make_student, tmp_path):
    student = make_student(windows=[8])
    student.save(tmp_path)
    (tmp_path / FILE).unlink()
    torch.save(student.model.state_dict(), tmp_path / "pytorch_model.bin")
    refused(tmp_path, "safetensors")


def test_incomplete_weights_are_refused(make_student, tmp_path, edit_json):
    make_student(windows=[8, 8]).save(tmp_path)
    edit_json(tmp_path / "config.json", num_hidden_layers=3, attention_window=[8, 8, 8])
    refused(tmp_path, r"lack encoder\.layer\.2\.")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("modules.json", "{nope", r"modules\.json: not valid JSON"),
        ("sentence_bert_config.json", "{nope", r"sentence_bert_config\.json: not valid JSON"),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}', "pooling is max without"),
        ("1_Pooling/config.json", '{"pooling_mode": "max"}', "pooling is max without"),
    ],
)
def test_faulty_settings_are_refused(make_student, tmp_path, name, content, message):
    make_student(windows=[8]).save(tmp_path)
    (tmp_path / name).write_text(content)
    refused(tmp_path, message)


def test_models_that_are_no_student_are_refused(minilm, tmp_path):
    refused(minilm, "Transformer, Pooling, Normalize")
    refused(tmp_path / "absent", "absent")
    AutoModel.from_pretrained(minilm).save_pretrained(tmp_path)
    refused(tmp_path, "type bert; convert it")


@pytest.fixture
def dense(make_student, tmp_path):
    """The Dense folder of a centred student."""
    student = make_student(windows=[8])
    student.mean = torch.arange(16.0)
    student.save(tmp_path)
    return tmp_path / "2_Dense"


@pytest.mark.parametrize(
    ("weights", "fields", "message"),
    [
        ({"linear.weight": 2 * torch.eye(16)}, {}, "2_Dense does more than subtract a mean"),
        ({"linear.weight": torch.ones(16, 16)}, {}, "does more than subtract"),
        ({"linear.weight": torch.eye(8, 16)}, {}, "does more than subtract"),
        ({"linear.bias": None}, {}, "does more than subtract"),
        (
            {"linear.weight": torch.eye(8), "linear.bias": torch.zeros(8)},
            {},
            r"mean: got a tensor of shape \[8\], embeddings have 16 dimensions",
        ),
        ({}, {"activation_function": "torch.nn.modules.activation.Tanh"}, "2_Dense does more than subtract a mean"),
        ({}, {"use_residual": True}, "2_Dense does more than subtract a mean"),
    ],
)
def test_a_dense_module_that_does_not_centre_is_refused(dense, edit_json, weights, fields, message):
    edited = {name: tensor for name, tensor in (load_file(dense / FILE) | weights).items() if tensor is not None}
    save_file(edited, dense / FILE, metadata={"format": "pt"})
    edit_json(dense / "config.json", **fields)
    refused(dense.parent, message)


def test_centring_without_readable_weights_is_refused(dense):
    (dense / FILE).write_bytes(b"not safetensors")
    refused(dense.parent, r"2_Dense/model\.safetensors cannot be used")
    (dense / FILE).unlink()
    refused(dense.parent, r"2_Dense has no model\.safetensors")


def front_and_body(folder):
    _, front, body = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), body


def a_card(student, parameters, **options):
    common = {"profile": "tiny", "encoder": "e", "documents": 150, "corpus": "installed-docs"}
    common |= {"structural_teacher": None, "contextual_teacher": None}
    return model_card(
        student, parameters=parameters, validation_before=1.5, validation_after=0.25, **(common | options)
    )


def test_the_card_has_front_matter_and_says_where_a_student_comes_from(make_student, tmp_path):
    student = make_student(windows=[8])
    losses = {"structural_loss": "cosine", "contextual_loss": "soft-cca", "lam": 0.5, "student_projection": "-"}
    teachers = {"structural_teacher": "all-mpnet-base-v2", "contextual_teacher": "PV"}
    student.save(tmp_path, card=a_card(student, losses, licence="mit", **teachers))
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


def test_the_card_of_a_student_of_pairs_says_what_it_learnt_from(make_student):
    student = make_student(windows=[8])
    alone = a_card(student, {"pairs": "dropout"}, pairs="dropout")
    assert "e as a longformer, trained to know a document again under another dropout (SimCSE), on 150" in alone
    beside = {"pairs": "halves", "beside_teachers": 0.5, "structural_loss": "mse"}
    both = a_card(student, beside, pairs="halves", structural_teacher="t")
    assert "other documents (SimDE) and distilled with structure from t (loss mse), on 150" in both
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
    make_student(windows=[8]).save(tmp_path)
    card = tmp_path / "README.md"
    before = card.read_text()
    first = [("halves", "accuracy", 0.75, 0.0125), (r"see-also \\1", "map", 0.5, None)]
    add_scores(tmp_path, first)
    once = card.read_text()
    assert "| halves | accuracy | 0.7500 ± 0.0125 |\n| see-also \\\\1 | map | 0.5000 |" in once
    assert once.startswith(before.rstrip())
    add_scores(tmp_path, first)
    assert card.read_text() == once

    card.write_text(once + "\n## Notes\n\nKept.\n")
    add_scores(tmp_path, [("halves", "accuracy", 0.8, None)])
    twice = card.read_text()
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
