"""Pretrained encoders, tokenizers and heads: conversion, faulty checkpoints refused in one line,
published formats.
"""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from conftest import Hostile, write_files
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, pre_tokenizers, processors

from docemb_lib.base.prompts import Prompts
from docemb_lib.losses import MaskedLanguageHead
from docemb_lib.losses.contextual import NO_LABEL
from docemb_lib.runs.models import published_model
from docemb_lib.student import Query, Student, count_tokens, pack
from docemb_lib.student.export import saved_prompts
from docemb_lib.student.loading import load_masked_head
from docemb_lib.teachers import SBERT

TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
NO_MODEL = "bert: its weights cannot be loaded"
NO_CONFIG = r"bert: its config\.json cannot be used \(\S"
FILE = "model.safetensors"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")


def test_the_given_layers_are_kept_with_copies_for_global_attention(minilm):
    student = Student.from_encoder(
        minilm, layers=[0, 4], max_tokens=512, attention_window=64, dropout=0.0
    )
    original = hf.BertModel.from_pretrained(minilm)
    config = student.config
    assert (config.num_hidden_layers, config.attention_window) == (2, [64, 64])
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.0
    for ours, theirs in zip(student.model.encoder.layer, (0, 4), strict=True):
        reference = original.encoder.layer[theirs]
        torch.testing.assert_close(
            ours.intermediate.dense.weight, reference.intermediate.dense.weight
        )
        for name in ("query", "key", "value"):
            expected = getattr(reference.attention.self, name).weight
            torch.testing.assert_close(getattr(ours.attention.self, name).weight, expected)
            torch.testing.assert_close(
                getattr(ours.attention.self, f"{name}_global").weight, expected
            )


def test_a_modernbert_stays_as_it_is(modernbert_folder):
    student = Student.from_encoder(modernbert_folder, max_tokens=200, dropout=0.25)
    config = student.config
    assert (student.dim, student.max_tokens, student.pooling, config.max_position_embeddings) == (
        16,
        200,
        "mean",
        600,
    )
    assert config.embedding_dropout == config.mlp_dropout == config.attention_dropout == 0.25
    original = hf.AutoModel.from_pretrained(modernbert_folder)
    torch.testing.assert_close(student.model.state_dict(), original.state_dict(), atol=0, rtol=0)


def test_the_tokenizer_neither_truncates_nor_pads(minilm, texts):
    student = Student.from_encoder(minilm, layers=[0], max_tokens=300)
    assert [len(ids) for ids in student.tokenize(["word", "word " * 200]).sequences] == [3, 202]
    assert student.tokenizer.model_max_length == student.max_tokens == 300
    tokenizer = hf.AutoTokenizer.from_pretrained(minilm, model_max_length=10**6)
    expected = [len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
    assert count_tokens(minilm, texts) == expected
    assert max(expected) > 1024


def test_weights_pickled_alone_are_read_as_tensors_and_said_to_be(
    make_student, tmp_path, monkeypatch, caplog, refused
):
    """The files are those of longformer-base-4096 on its hub, with pytorch_model.bin alone."""
    monkeypatch.chdir(tmp_path)
    student = make_student(windows=[8, 8], max_tokens=40)
    student.model.save_pretrained("longformer")
    student.tokenizer.save_pretrained("longformer")
    weights = {
        f"longformer.{name}": tensor
        for name, tensor in load_file("longformer/model.safetensors").items()
    }
    Path("longformer/model.safetensors").unlink()
    torch.save(weights, "longformer/pytorch_model.bin")
    for loaded in (Student.from_encoder("longformer", max_tokens=40), Student.load("longformer")):
        torch.testing.assert_close(loaded.state_dict(), student.state_dict(), atol=0, rtol=0)
    assert (
        caplog.messages
        == ["longformer has no safetensors, and of its pytorch_model.bin only tensors are read"] * 2
    )
    torch.save(
        {**weights, "trap": Hostile(Path.touch, Path("sprung"))}, "longformer/pytorch_model.bin"
    )
    refused(
        r"longformer: its weights cannot be loaded \(.*[Ww]eights.only", Student.load, "longformer"
    )
    assert not Path("sprung").exists()


@pytest.mark.parametrize(
    ("encoder", "arguments", "message"),
    [
        ("minilm", {"layers": [0, 6]}, "layers: got [0, 6]"),
        ("modernbert_folder", {"layers": [0]}, "a ModernBERT becomes a student as it is"),
        ("modernbert_folder", {"max_tokens": 601}, "max_tokens at most 600"),
        ("modernbert_folder", {"pooling": "cls"}, "a student cannot pool by cls of a modernbert"),
    ],
)
def test_values_out_of_range_are_refused(encoder, arguments, message, request, refused):
    given = {"max_tokens": 600, **arguments}
    folder = request.getfixturevalue(encoder)
    refused(re.escape(message), Student.from_encoder, folder, **given)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            {FILE: {"bert.encoder.layer.1.output.dense.weight": None}},
            r"bert: its weights and its config.json disagree about "
            r"encoder\.layer\.1\.output\.dense\.weight",
        ),
        ({"config.json": {"intermediate_size": 32}}, r"disagree about .*intermediate\.dense\.bias"),
        (
            dict.fromkeys(TOKENIZER),
            r"bert: the model has no fast tokenizer; put its tokenizer\.json",
        ),
        ({"tokenizer.json": "{nope"}, "its tokenizer cannot be used"),
        ({FILE: slice(5000)}, NO_MODEL),
        ({"config.json": '{"model_type": "x"}'}, NO_CONFIG),
        (
            {"sentence_bert_config.json": '{"max_seq_length": "256"}'},
            "gives a limit of '256' tokens; write a number",
        ),
    ],
)
def test_a_damaged_checkpoint_is_refused_in_one_line(
    bert_folder, tmp_path, edit_files, damage, message, refused
):
    folder = shutil.copytree(bert_folder, tmp_path / "bert")
    edit_files(folder, damage)
    refused(message, Student.from_encoder, folder)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (
            hf.RobertaConfig(position_embedding_type="relative_key"),
            "type roberta with positions of type relative_key cannot .* absolute positions; give",
        ),
        (hf.AlbertConfig(), "type albert cannot become a student, .* of type bert, .* distilbert,"),
    ],
)
def test_wrong_architectures_are_refused_with_those_that_work(tmp_path, config, match, refused):
    config.save_pretrained(tmp_path)
    refused(match, Student.from_encoder, tmp_path)


@pytest.fixture(scope="module")
def published(tmp_path_factory, texts):
    """A random Longformer in the format of allenai/longformer-base-4096: prefixed weights with the
    language model's head and a buffer of positions, 4,098 rows of positions, a byte-level BPE in
    vocab.json and merges.txt."""
    folder = tmp_path_factory.mktemp("longformer")
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        texts, vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    )
    bpe.save_model(str(folder))
    config = {
        "attention_mode": "longformer",
        "attention_window": [8, 16],
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "sep_token_id": 2,
        "gradient_checkpointing": False,
        "ignore_attention_mask": False,
        "initializer_range": 0.3,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 4098,
        "model_type": "longformer",
        "type_vocab_size": 1,
        "vocab_size": 300,
    }
    (folder / "config.json").write_text(json.dumps(config | TINY))
    torch.manual_seed(0)
    model = hf.LongformerForMaskedLM(hf.LongformerConfig.from_pretrained(folder)).eval()
    weights = {
        name: tensor.clone() for name, tensor in model.state_dict().items() if "decoder" not in name
    }
    weights |= {"longformer.embeddings.position_ids": torch.arange(4098)[None]}
    weights |= {
        "longformer.pooler.dense.weight": torch.zeros(16, 16),
        "longformer.pooler.dense.bias": torch.zeros(16),
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder, model.longformer, bpe


def test_a_longformer_as_published_is_taken_whole(published, texts):
    folder, stock, bpe = published
    loaded = Student.load(folder)
    student = Student.from_encoder(folder)
    assert (loaded.max_tokens, loaded.pooling) == (4096, "mean")
    assert (student.max_tokens, student.config.attention_window) == (4096, [8, 16])
    assert Student.from_encoder(folder, layers=[1]).config.attention_window == [16]
    for name, weight in stock.state_dict().items():
        assert torch.equal(student.model.state_dict()[name], weight), name
    ids = student.tokenize(texts).sequences
    assert (ids, max(map(len, ids))) == (
        [[0, *bpe.encode(text).ids[:4094], 2] for text in texts],
        4096,
    )
    short = [document for document in ids if len(document) < 500]
    with torch.no_grad():
        for document, ours in zip(short, student(pack(short)), strict=True):
            theirs = stock(torch.tensor([document])).last_hidden_state[0].mean(0)
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


SIZES = {
    **TINY,
    "vocab_size": 50,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.5,
}
LONG = hf.LongformerConfig(**SIZES, attention_window=[8, 8], max_position_embeddings=40)
MODELS = [
    (hf.BertForMaskedLM, hf.BertConfig(**SIZES)),
    (hf.RobertaForMaskedLM, hf.RobertaConfig(**SIZES)),
    (hf.LongformerForMaskedLM, LONG),
    (hf.ModernBertForMaskedLM, hf.ModernBertConfig(**SIZES, cls_token_id=1, sep_token_id=2)),
    (hf.MPNetForMaskedLM, hf.MPNetConfig(**SIZES)),
    (hf.DistilBertForMaskedLM, hf.DistilBertConfig(**SIZES)),
]


@pytest.mark.parametrize(
    ("model_class", "config"), MODELS, ids=lambda x: getattr(x, "model_type", "")
)
def test_a_checkpoints_head_scores_words_and_adds_losses_as_its_model_does(
    model_class, config, tmp_path
):
    torch.manual_seed(0)
    model = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name or "norm" in name.lower():
                parameter.uniform_()
    model.save_pretrained(tmp_path)
    fixed = 1e-12 if config.model_type == "distilbert" else 1e-5
    head = MaskedLanguageHead(16, 50, norm_eps=getattr(config, "layer_norm_eps", fixed))
    head.load_state_dict(load_masked_head(str(tmp_path)))
    ids = torch.randint(3, 50, (1, 12))
    labels = torch.where(torch.rand(1, 12) < 0.4, ids, NO_LABEL)
    with torch.no_grad():
        expected = model(ids, labels=labels)
        hidden = model.base_model(ids).last_hidden_state[0]
        words = model.get_input_embeddings().weight
        torch.testing.assert_close(head(hidden, words), expected.logits[0])
        torch.testing.assert_close(
            head.loss(hidden, labels[0], words) / (labels != NO_LABEL).sum(), expected.loss
        )


# ---- Every kind of encoder that converts
XLM_R = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
XLM_R |= {"pad_token": "<pad>", "unk_token": "<unk>"}
BERT = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
LIMIT = 20  # tokens of a text
OF_ROBERTA = ["<s>", "<pad>", "</s>", "<unk>"]
KINDS = {
    "bert": (hf.BertConfig, hf.BertModel, ["[PAD]", "[UNK]", "[CLS]", "[SEP]"], BERT, 0),
    # Multilingual MiniLM: the tokenizer of XLM-R, in which 0 is <s>
    "bert-xlm-r": (hf.BertConfig, hf.BertModel, OF_ROBERTA, XLM_R, 0),
    "roberta": (hf.RobertaConfig, hf.RobertaModel, OF_ROBERTA, XLM_R, 1),
    "xlm-roberta": (hf.XLMRobertaConfig, hf.XLMRobertaModel, OF_ROBERTA, XLM_R, 1),
    "camembert": (hf.CamembertConfig, hf.CamembertModel, OF_ROBERTA, XLM_R, 1),
    "mpnet": (hf.MPNetConfig, hf.MPNetModel, OF_ROBERTA, XLM_R, 1),
    "distilbert": (
        hf.DistilBertConfig,
        hf.DistilBertModel,
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
        BERT,
        0,
    ),
    # A padding id that is neither 0 nor 1
    "bert-late-padding": (hf.BertConfig, hf.BertModel, ["<s>", "</s>", "<unk>", "<pad>"], XLM_R, 0),
}


def encoder_of(kind, folder, *, mode="mean", prompts=None, padding_side="right", **pooling_options):
    """A random encoder with a tokenizer of nine words, as sentence-transformers saves one."""
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    config_class, model_class, special, names, padding = KINDS[kind]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=names["unk_token"]))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    first, last = names["cls_token"], names["sep_token"]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        special_tokens=[(name, vocabulary[name]) for name in (first, last)],
    )
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=backend, padding_side=padding_side, **names
    )
    from_row_0 = config_class in (hf.BertConfig, hf.DistilBertConfig)
    positions = LIMIT if from_row_0 else LIMIT + padding + 1
    sizes = TINY | {"vocab_size": len(vocabulary), "max_position_embeddings": positions}
    config = config_class(**sizes, pad_token_id=padding, initializer_range=0.3)
    torch.manual_seed(0)
    without_pooler = {} if kind == "distilbert" else {"add_pooling_layer": False}
    model_class(config, **without_pooler).save_pretrained(folder / "plain")
    tokenizer.save_pretrained(folder / "plain")
    modules = [Transformer(str(folder / "plain"), max_seq_length=LIMIT)]
    modules.append(Pooling(16, pooling_mode=mode, **pooling_options))
    default = "passage" if prompts else None
    stock = SentenceTransformer(
        modules=modules, prompts=prompts, default_prompt_name=default, device="cpu"
    )
    stock.save(str(folder / "encoder"))
    return stock, folder / "encoder"


TEXTS = [
    "the quick brown fox",
    "",
    "dog",
    "a lazy dog jumps over the quick fox " * 4,
    "fox unknown",
]


@pytest.mark.parametrize("mode", ["mean", "cls"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_converted_encoder_gives_the_embeddings_of_sentence_transformers(tmp_path, kind, mode):
    stock, folder = encoder_of(kind, tmp_path, mode=mode)
    pooling = {"mean": "mean", "cls": "first"}[mode]
    student = Student.from_encoder(
        folder, pooling=pooling, max_tokens=LIMIT, attention_window=2 * LIMIT
    )
    expected = stock.encode(TEXTS)
    np.testing.assert_allclose(student.embed(TEXTS, bf16=False), expected, atol=1e-5)
    student.save(tmp_path / "student")
    runs_code = kind == "mpnet"
    again = SentenceTransformer(
        str(tmp_path / "student"), device="cpu", trust_remote_code=runs_code
    )
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=1e-5)


def positions(model):
    return model.embeddings.position_embeddings.weight


@pytest.mark.parametrize(
    ("kind", "first"), [("bert", 0), ("distilbert", 0), ("roberta", 2), ("mpnet", 2)]
)
def test_positions_repeat_after_the_rows_that_no_token_has(tmp_path, kind, first):
    _, folder = encoder_of(kind, tmp_path)
    own = positions(hf.AutoModel.from_pretrained(folder))[first:]
    tiled = positions(Student.from_encoder(folder, max_tokens=50).model)
    assert torch.equal(tiled[-50:], torch.cat([own, own, own[:10]]))


def test_positions_repeat_from_the_limit_that_a_sentence_encoder_was_tuned_with(minilm):
    own = positions(hf.AutoModel.from_pretrained(minilm))[:256]  # of 512
    tiled = positions(Student.from_encoder(minilm, layers=[0], max_tokens=600).model)
    assert torch.equal(tiled[1:], torch.cat([own, own, own[:88]]))


PROMPTS = {"query": "quick ", "passage": "lazy "}
QUERIES = list(map(Query, TEXTS))


def test_the_prompts_of_an_encoder_are_read_said_and_saved(tmp_path, caplog, refused):
    stock, folder = encoder_of("xlm-roberta", tmp_path, prompts=PROMPTS)
    student = Student.from_encoder(folder, max_tokens=LIMIT, attention_window=2 * LIMIT)
    ours = student.embed([*TEXTS, *QUERIES], bf16=False)
    expected = [stock.encode(TEXTS), stock.encode_query(TEXTS)]
    np.testing.assert_allclose(ours, np.concatenate(expected), atol=1e-5)
    assert np.abs(expected[0] - expected[1]).max() > 0.01
    student.tokenizer.model_max_length = 3
    refused(
        "prompts: 'lazy ' takes all of the 3 tokens that the student reads", student.embed, ["a"]
    )
    student.tokenizer.model_max_length = LIMIT
    assert "encoder: 'lazy ' stands before a document, and 'quick ' before a query" in caplog.text
    student.adapt(["a lazy dog", "the quick fox"] * 9, dim=2)
    student.save(tmp_path / "student")
    ours = Student.load(tmp_path / "student").embed([*TEXTS, *QUERIES], bf16=False)
    stock = SentenceTransformer(str(tmp_path / "student"), device="cpu", trust_remote_code=True)
    expected = [stock.encode_document(TEXTS), stock.encode_query(TEXTS)]
    np.testing.assert_allclose(ours, np.concatenate(expected), atol=1e-5)
    np.testing.assert_allclose(stock.encode(TEXTS), expected[0], atol=1e-6)


@pytest.mark.parametrize(
    ("named", "default", "expected"),
    [
        ({"query": "q", "document": "d"}, None, ("d", "q")),
        ({"query": "q", "document": "", "passage": "p"}, "passage", ("p", "q")),
        ({"query": "q", "document": ""}, None, ("", "q")),
        ({"passage": "p"}, "passage", ("p", "p")),
        ({"passage": "p"}, None, ("", "")),
        (None, None, ("", "")),
    ],
)
def test_queries_without_a_prompt_have_that_of_documents(named, default, expected):
    prompts = Prompts.among({"prompts": named, "default_prompt_name": default})
    assert (prompts.of("a"), prompts.of(Query("a"))) == expected


@pytest.mark.parametrize("prompts", ["['q']", {"document": 5}])
def test_prompts_that_are_no_texts_are_refused(tmp_path, prompts, refused):
    name = "config_sentence_transformers.json"
    write_files(tmp_path, {name: json.dumps({"prompts": prompts})})
    refused(f"prompts in its {name} must be texts by name", saved_prompts, str(tmp_path))


def test_prompts_that_pooling_leaves_out_are_refused(tmp_path, refused):
    _, folder = encoder_of("bert", tmp_path, prompts={"passage": "lazy "}, include_prompt=False)
    refused(r"leaves its prompts \['lazy ', ''\] out of the mean", Student.from_encoder, folder)


@pytest.mark.parametrize("kind", ["SBERT", "published"])
def test_references_read_queries_after_their_prompt(workspace_root, tmp_path, kind):
    stock, folder = encoder_of("roberta", tmp_path, prompts=PROMPTS)
    model = SBERT(str(folder), bf16=False, device="cpu")
    if kind == "published":
        model = published_model(str(folder))
    expected = np.stack([stock.encode("dog"), stock.encode_query("dog")])
    for texts in ("dog", Query("dog")), (Query("dog"), "dog"):
        np.testing.assert_allclose(model.embed(texts), expected, atol=1e-5)
        expected = expected[::-1]


@pytest.mark.parametrize(
    ("kind", "mode", "side"),
    [
        ("bert", "mean", "right"),
        ("bert", "cls", "right"),
        ("bert", "max", "right"),
        ("camembert", "mean", "left"),
        ("mpnet", "mean", "right"),
    ],
)
def test_any_encoder_is_a_reference_as_sentence_transformers_runs_it(tmp_path, kind, mode, side):
    stock, folder = encoder_of(kind, tmp_path, mode=mode, padding_side=side)
    texts = [*TEXTS, "a [PAD] dog", "a <pad> dog"]
    ours = SBERT(str(folder), device="cpu", bf16=False).embed(texts)
    np.testing.assert_allclose(ours, stock.encode(texts), atol=2e-5)


def test_references_read_the_prompt_before_every_chunk(tmp_path):
    stock, folder = encoder_of("roberta", tmp_path, prompts={"passage": "lazy "})
    truncated = SBERT(str(folder), bf16=False, device="cpu")
    averaged = SBERT(str(folder), long="chunks", bf16=False, device="cpu")
    text = " ".join(WORDS * 4)  # 36 words in chunks of 17, of 20 tokens with prompt and brackets
    words = text.split()
    chunks = stock.encode([" ".join(words[start : start + 17]) for start in (0, 17, 34)])
    first = truncated.embed([text])
    np.testing.assert_allclose(first[0], chunks[0], atol=1e-5)
    expected = [np.average(chunks, axis=0, weights=[20, 20, 5])]
    np.testing.assert_allclose(averaged.embed([text]), expected, atol=1e-5)
    np.testing.assert_allclose(averaged.embed([text], first), expected, atol=1e-5)
