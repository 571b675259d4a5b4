import re

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from docemb_lib.errors import InputError
from docemb_lib.student import Student, count_tokens
from docemb_lib.student.packing import pack

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]


@pytest.fixture(scope="module")
def roberta_folder(tmp_path_factory):
    """A random RoBERTa of three layers and 20 positions, padding id 1, with a tokenizer of nine words."""
    vocabulary = {word: i for i, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    )
    config = RobertaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=22,
        type_vocab_size=1,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("roberta")
    RobertaModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def mean_of_hidden_states(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).last_hidden_state[0].mean(0)


def test_converted_minilm_is_the_original_on_texts_within_its_window_and_positions(minilm, texts):
    student = Student.from_encoder(minilm, max_tokens=2048)
    original = BertModel.from_pretrained(minilm).eval()
    short = [ids for ids in student.tokenize(texts) if len(ids) <= 256 and 0 not in ids]
    assert len(short) >= 4
    with torch.no_grad():
        ours = student(pack(short))
    for embedding, ids in zip(ours, short, strict=True):
        torch.testing.assert_close(embedding, mean_of_hidden_states(original, ids), atol=1e-5, rtol=0)


def test_a_window_over_all_positions_makes_minilm_itself_with_its_cls(minilm, texts):
    """Whatever the length: a short encoder trained as it is, packed; its gradients too."""
    student = Student.from_encoder(minilm, pooling="first", max_tokens=512, attention_window=1024)
    original = BertModel.from_pretrained(minilm, add_pooling_layer=False).eval()
    documents = [ids for ids in student.tokenize(texts) if 0 not in ids]
    assert max(map(len, documents)) == 512
    ours = student.eval()(pack(documents))
    theirs = torch.stack([original(torch.tensor([ids])).last_hidden_state[0, 0] for ids in documents])
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    weight = torch.randn(ours.shape, generator=torch.Generator().manual_seed(0))
    mine, reference = student.model.encoder.layer[2], original.encoder.layer[2]
    for embeddings in (ours, theirs):
        (embeddings * weight).sum().backward()
    torch.testing.assert_close(
        mine.attention.self.key.weight.grad, reference.attention.self.key.weight.grad, atol=1e-4, rtol=1e-3
    )


def test_a_converted_roberta_is_the_original_on_short_texts(roberta_folder):
    student = Student.from_encoder(roberta_folder, max_tokens=50, attention_window=64)
    original = RobertaModel.from_pretrained(roberta_folder).eval()
    ids = student.tokenize(["the quick brown fox", " ".join(WORDS * 2), "dog"])
    with torch.no_grad():
        ours = student(pack(ids))
    for embedding, document in zip(ours, ids, strict=True):
        torch.testing.assert_close(embedding, mean_of_hidden_states(original, document), atol=1e-5, rtol=0)


def test_positions_repeat_after_the_rows_that_no_token_has(roberta_folder, minilm):
    table = Student.from_encoder(roberta_folder, max_tokens=50).model.embeddings.position_embeddings.weight
    learnt = RobertaModel.from_pretrained(roberta_folder).embeddings.position_embeddings.weight
    assert table.shape == (52, 16)
    torch.testing.assert_close(table[2:22], learnt[2:])
    torch.testing.assert_close(table[22:42], learnt[2:])
    torch.testing.assert_close(table[42:], learnt[2:12])

    table = Student.from_encoder(minilm, layers=[0], max_tokens=600).model.embeddings.position_embeddings.weight
    learnt = BertModel.from_pretrained(minilm).embeddings.position_embeddings.weight
    torch.testing.assert_close(table[1:513], learnt)
    torch.testing.assert_close(table[513:], learnt[:88])


def test_the_given_layers_are_kept_in_their_order_and_globals_are_copies(minilm):
    student = Student.from_encoder(minilm, layers=[0, 4], max_tokens=512, attention_window=64, dropout=0.0)
    original = BertModel.from_pretrained(minilm)
    assert student.config.num_hidden_layers == 2
    assert student.config.attention_window == [64, 64]
    assert student.config.hidden_dropout_prob == student.config.attention_probs_dropout_prob == 0.0
    for ours, theirs in zip(student.model.encoder.layer, (0, 4), strict=True):
        reference = original.encoder.layer[theirs]
        torch.testing.assert_close(ours.intermediate.dense.weight, reference.intermediate.dense.weight)
        for name in ("query", "key", "value"):
            expected = getattr(reference.attention.self, name).weight
            torch.testing.assert_close(getattr(ours.attention.self, name).weight, expected)
            torch.testing.assert_close(getattr(ours.attention.self, f"{name}_global").weight, expected)


def test_a_longformer_passes_through_unchanged(make_student, tmp_path):
    student = make_student(windows=[8, 16], max_tokens=40)
    student.save(tmp_path)
    passed = Student.from_encoder(tmp_path, max_tokens=40)
    assert passed.config.attention_window == [8, 16]
    assert passed.max_tokens == 40
    assert passed.state_dict().keys() == student.state_dict().keys()
    for name, weight in student.state_dict().items():
        assert torch.equal(passed.state_dict()[name], weight), name
    fewer = Student.from_encoder(tmp_path, layers=[1], max_tokens=40)
    assert fewer.config.attention_window == [16]


def test_the_tokenizer_loses_its_own_truncation_and_padding(minilm):
    student = Student.from_encoder(minilm, layers=[0], max_tokens=300)
    lengths = [len(ids) for ids in student.tokenize(["word", "word " * 200])]
    assert lengths == [3, 202]
    assert student.tokenizer.model_max_length == student.max_tokens == 300


def test_counted_tokens_are_neither_special_nor_cut(minilm, texts):
    tokenizer = AutoTokenizer.from_pretrained(minilm, model_max_length=10**6)
    expected = [len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
    assert count_tokens(minilm, texts) == expected
    assert max(expected) > 1024


def test_nothing_in_a_converted_model_is_random(minilm):
    torch.manual_seed(1)
    first = Student.from_encoder(minilm, layers=[0], max_tokens=64)
    torch.manual_seed(2)
    second = Student.from_encoder(minilm, layers=[0], max_tokens=64)
    for name, weight in first.state_dict().items():
        np.testing.assert_array_equal(weight.numpy(), second.state_dict()[name].numpy(), err_msg=name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": [0, 6]}, "layers: got [0, 6]"),
        ({"layers": [-1]}, "has layers 0 to 5"),
        ({"layers": []}, "layers: got []"),
        ({"attention_window": 63}, "attention_window: got 63"),
        ({"attention_window": 2}, "attention_window: got 2"),
        ({"max_tokens": 7}, "max_tokens: got 7"),
        ({"dropout": 1.0}, "dropout: got 1.0"),
    ],
)
def test_values_out_of_range_are_refused(minilm, arguments, message):
    with pytest.raises(InputError, match=re.escape(message)):
        Student.from_encoder(minilm, **arguments)


def test_other_architectures_are_refused_with_those_that_work(tmp_path):
    DistilBertModel(DistilBertConfig(dim=8, hidden_dim=8, n_heads=1, n_layers=1, vocab_size=10)).save_pretrained(
        tmp_path
    )
    with pytest.raises(InputError, match=r"distilbert .* bert, roberta, xlm-roberta, camembert, longformer"):
        Student.from_encoder(tmp_path)


def test_relative_positions_are_refused(roberta_folder, tmp_path):
    config = RobertaConfig.from_pretrained(roberta_folder)
    config.position_embedding_type = "relative_key"
    config.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="relative_key do not tile"):
        Student.from_encoder(tmp_path)
