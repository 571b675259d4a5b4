"""Faulty checkpoints, each refused in one line, and the published format of longformer-base-4096."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DebertaV2Config,
    GPT2Config,
    LongformerConfig,
    LongformerForMaskedLM,
    MPNetConfig,
)

from docemb_lib.errors import InputError
from docemb_lib.student import Student, pack

TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


@pytest.fixture(scope="module")
def sound_bert(minilm, tmp_path_factory):
    """A random BERT as published: with pooler and language model head beside the encoder, and MiniLM's tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(vocab_size=30522, max_position_embeddings=40, **TINY)).save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    weights |= {"bert.pooler.dense.weight": torch.zeros(16, 16), "bert.embeddings.position_ids": torch.arange(40)[None]}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(f"{minilm}/{name}", folder)
    return folder


@pytest.fixture
def bert(sound_bert, tmp_path):
    """A copy of it to spoil."""
    return shutil.copytree(sound_bert, tmp_path / "bert")


def edit_weights(folder, edit):
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def edit_json(file, **fields):
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def refused(match, call, *arguments, **options):
    with pytest.raises(InputError, match=match) as failure:
        call(*arguments, **options)
    assert "\n" not in str(failure.value)
    assert len(str(failure.value)) < 500


def test_heads_poolers_and_buffers_beside_the_encoder_are_fine(sound_bert):
    names = load_file(sound_bert / "model.safetensors").keys()
    assert {"cls.predictions.bias", "bert.pooler.dense.weight", "bert.embeddings.position_ids"} <= names
    assert Student.from_encoder(sound_bert, max_tokens=64).max_tokens == 64


def test_missing_weights_are_refused_by_name(bert):
    edit_weights(bert, lambda weights: weights.pop("bert.encoder.layer.1.output.dense.weight"))
    refused(r"bert: its weights lack encoder\.layer\.1\.output\.dense\.weight", Student.from_encoder, bert)


@pytest.mark.parametrize("extra", ["bert.encoder.layer.7.output.dense.weight", "blocks.0.weight"])
def test_weights_of_another_model_are_refused_by_name(bert, extra):
    edit_weights(bert, lambda weights: weights.update({extra: torch.zeros(16, 16)}))
    refused(rf"its weights hold {extra}.* \(bert, 2 layers\)", Student.from_encoder, bert)


def test_weights_of_another_size_are_refused_with_both(bert):
    edit_json(bert / "config.json", intermediate_size=32)
    refused(r"intermediate\.dense\.bias is \[24\] .* \[32\] by its config", Student.from_encoder, bert)


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", None])
def test_corrupt_weights_are_refused(bert, content):
    file = bert / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000] if content is None else content)
    refused("bert: cannot be loaded as a model with safetensors weights", Student.from_encoder, bert)


@pytest.mark.parametrize(
    "content", ["{nope", "[]", "{}", '{"model_type": "bert", "hidden_size": "wide"}', '{"model_type": "x"}']
)
def test_a_corrupt_configuration_is_refused(bert, content):
    (bert / "config.json").write_text(content)
    refused(r"bert: its config\.json cannot be used: \S", Student.from_encoder, bert)


@pytest.mark.parametrize("name", ["modules.json", "sentence_bert_config.json"])
def test_corrupt_settings_of_a_student_are_refused(make_student, tmp_path, name):
    make_student(windows=[8]).save(tmp_path)
    (tmp_path / name).write_text("{nope")
    refused(f"{name}: not valid JSON", Student.load, tmp_path)


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused_with_both(bert):
    edit_weights(bert, lambda weights: weights.update({k: v[:1000] for k, v in weights.items() if v.shape[0] == 30522}))
    edit_json(bert / "config.json", vocab_size=1000)
    refused("its tokenizer has 30522 tokens, its model embeddings for 1000", Student.from_encoder, bert)


def test_a_model_without_a_tokenizer_is_refused(bert):
    for file in bert.glob("*tok*"):
        file.unlink()
    (bert / "vocab.txt").unlink()
    refused("bert: no tokenizer; put its tokenizer.json", Student.from_encoder, bert)


def test_a_corrupt_tokenizer_is_refused(bert):
    (bert / "tokenizer.json").write_text("{nope")
    refused("its tokenizer cannot be used", Student.from_encoder, bert)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (MPNetConfig(), "type mpnet has relative position biases.*use one of type bert"),
        (DebertaV2Config(), "type deberta-v2 has relative position biases"),
        (GPT2Config(), "type gpt2 does not convert.*use one of type bert, .*, modernbert"),
    ],
)
def test_wrong_architectures_are_refused_with_those_that_work(tmp_path, config, match):
    config.save_pretrained(tmp_path)
    refused(match, Student.from_encoder, tmp_path)
    refused(f"type {config.model_type}; a student is one of longformer, modernbert", Student.load, tmp_path)


@pytest.mark.parametrize("kind", ["packed", "modernbert"])
def test_a_limit_beyond_the_learnt_positions_is_refused(make_kind, tmp_path, kind):
    make_kind(kind).save(tmp_path)
    edit_json(tmp_path / "sentence_bert_config.json", max_seq_length=601)
    refused("max_seq_length 601, but the model has positions for 600", Student.load, tmp_path)


def test_a_limit_that_only_the_tokenizer_knows_is_kept(make_kind, tmp_path):
    make_kind("packed").save(tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text("{}")
    edit_json(tmp_path / "tokenizer_config.json", model_max_length=50)
    assert Student.load(tmp_path).max_tokens == 50
    edit_json(tmp_path / "tokenizer_config.json", model_max_length=10**30)
    assert Student.load(tmp_path).max_tokens == 600


def centred(make_student, folder):
    student = make_student(windows=[8])
    student.mean = torch.arange(16.0)
    student.save(folder)
    return folder / "2_Dense"


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda weights: weights["linear.weight"].mul_(2), "2_Dense does more than subtract a mean"),
        (lambda weights: weights.update({"linear.weight": torch.ones(16, 16)}), "does more than subtract"),
        (lambda weights: weights.update({"linear.weight": torch.eye(8, 16)}), "does more than subtract"),
        (lambda weights: weights.pop("linear.bias"), "does more than subtract"),
        (
            lambda weights: weights.update({"linear.weight": torch.eye(8), "linear.bias": torch.zeros(8)}),
            r"mean: got a tensor of shape \[8\], embeddings have 16 dimensions",
        ),
    ],
)
def test_a_dense_module_that_is_no_centring_is_refused(make_student, tmp_path, edit, match):
    edit_weights(centred(make_student, tmp_path), edit)
    refused(match, Student.load, tmp_path)


@pytest.mark.parametrize(
    "fields", [{"activation_function": "torch.nn.modules.activation.Tanh"}, {"use_residual": True}]
)
def test_a_dense_module_with_an_activation_or_a_residual_is_refused(make_student, tmp_path, fields):
    edit_json(centred(make_student, tmp_path) / "config.json", **fields)
    refused("2_Dense does more than subtract a mean", Student.load, tmp_path)


def test_centring_without_sound_weights_is_refused(make_student, tmp_path):
    file = centred(make_student, tmp_path) / "model.safetensors"
    file.write_bytes(b"not safetensors")
    refused(r"2_Dense/model\.safetensors cannot be used", Student.load, tmp_path)
    file.unlink()
    refused(r"2_Dense has no model\.safetensors", Student.load, tmp_path)


@pytest.fixture(scope="module")
def published(tmp_path_factory, texts):
    """A random Longformer in the format of allenai/longformer-base-4096: prefixed weights with the language model's
    head and a buffer of positions, 4,098 rows of positions, a byte-level BPE in vocab.json and merges.txt."""
    folder = tmp_path_factory.mktemp("longformer")
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    bpe.save_model(str(folder))
    config = {
        "attention_mode": "longformer",
        "attention_probs_dropout_prob": 0.1,
        "attention_window": [8, 16],
        "bos_token_id": 0,
        "eos_token_id": 2,
        "gradient_checkpointing": False,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "ignore_attention_mask": False,
        "initializer_range": 0.3,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 4098,
        "model_type": "longformer",
        "pad_token_id": 1,
        "sep_token_id": 2,
        "type_vocab_size": 1,
        "vocab_size": 300,
        **TINY,
    }
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    model = LongformerForMaskedLM(LongformerConfig.from_pretrained(folder)).eval()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items() if "decoder" not in name}
    weights |= {
        "longformer.embeddings.position_ids": torch.arange(4098)[None],
        "longformer.pooler.dense.weight": torch.zeros(16, 16),
        "longformer.pooler.dense.bias": torch.zeros(16),
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert sorted(file.name for file in folder.iterdir()) == [
        "config.json",
        "merges.txt",
        "model.safetensors",
        "vocab.json",
    ]
    return folder, model.longformer, bpe


def test_a_longformer_as_published_is_taken_whole(published, texts, tmp_path):
    folder, stock, bpe = published
    student = Student.from_encoder(folder)
    assert (student.max_tokens, student.config.attention_window) == (4096, [8, 16])
    for name, weight in stock.state_dict().items():
        assert torch.equal(student.model.state_dict()[name], weight), name
    ids = student.tokenize(texts)
    assert ids == [[0, *bpe.encode(text).ids[:4094], 2] for text in texts]
    assert max(map(len, ids)) == 4096
    short = [document for document in ids if len(document) < 500]
    with torch.no_grad():
        for document, ours in zip(short, student(pack(short)), strict=True):
            theirs = stock(torch.tensor([document])).last_hidden_state[0].mean(0)
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)

    student.save(tmp_path)
    some = [text for text, document in zip(texts, ids, strict=True) if len(document) < 500]
    encoded = SentenceTransformer(str(tmp_path), device="cpu").encode(some)
    np.testing.assert_allclose(encoded, student.embed(some, bf16=False), atol=1e-5)


def test_a_longformer_as_published_is_loaded_with_its_own_limit(published):
    student = Student.load(published[0])
    assert (student.max_tokens, student.pooling) == (4096, "mean")
