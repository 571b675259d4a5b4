import os
import shutil
from functools import cache

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoTokenizer

from docemb_lib.base.pretrained import resolve
from docemb_lib.packed.forward import is_plain_short
from docemb_lib.teachers import SBERT

FOLDER = resolve("all-MiniLM-L6-v2")
SHORT = ["", "One sentence.", "Un texte plus long, en français : où est-ce ?"]


@pytest.fixture(scope="module")
def plain():
    """The plain encoder: ids in, the mean of its hidden states out."""
    model = AutoModel.from_pretrained(FOLDER).eval()

    @cache  # tests ask for the same chunks
    def embed(*ids):
        with torch.inference_mode():
            return model(torch.tensor([ids])).last_hidden_state[0].mean(0).numpy()

    return embed


@pytest.fixture(scope="module")
def content_ids():
    """The text's token ids without special ones, from a tokenizer without truncation."""
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    return lambda text: tokenizer(text, add_special_tokens=False, truncation=False, padding=False)[
        "input_ids"
    ]


@pytest.fixture(scope="module")
def texts(pages):
    return [*SHORT, *sorted(pages, key=len)[:6], max(pages, key=len)]


def test_an_embedding_is_the_plain_encoders_mean_over_the_first_256_tokens(
    sbert, texts, plain, content_ids
):
    ours = sbert.embed(texts)
    np.testing.assert_allclose(
        ours, [plain(101, *content_ids(text)[:254], 102) for text in texts], atol=2e-6
    )
    assert (sbert.max_tokens, sbert.dim) == (256, 384)
    peer = SentenceTransformer(FOLDER, device="cpu").encode(texts)  # normalised
    norms = np.linalg.norm(ours, axis=1, keepdims=True)
    np.testing.assert_allclose(ours / norms, peer, atol=2e-6)
    assert abs(norms - 1).min() > 0.1  # ours are raw


def test_chunks_give_the_mean_of_all_hidden_states_of_all_chunks(texts, plain, content_ids):
    expected = []
    for text in texts:
        ids = content_ids(text)
        chunks = [
            [101, *ids[start : start + 126], 102] for start in range(0, max(len(ids), 1), 126)
        ]
        expected.append(
            np.average([plain(*chunk) for chunk in chunks], axis=0, weights=list(map(len, chunks)))
        )
    ours = SBERT(max_tokens=128, long="chunks", bf16=False).embed(texts)
    np.testing.assert_allclose(ours, expected, atol=2e-6)


def test_tokens_are_counted_beyond_any_limit(sbert, texts, content_ids):
    long = " ".join(["word"] * 5000)
    assert sbert.count_tokens([*texts, long]) == [*(len(content_ids(text)) for text in texts), 5000]
    assert sbert.count_tokens([""]) == [0]


@pytest.mark.parametrize(("prompt", "tokens"), [("", 0), ("query: ", 2)])
def test_the_unread_end_of_a_text_begins_with_the_first_word_beyond_the_limit(prompt, tokens):
    teacher = SBERT(max_tokens=12, device="cpu", bf16=False)
    teacher._encoder.prompts = {"default": prompt}
    teacher._encoder.default_prompt_name = "default"
    sentence = "ten small birds sit on a high wall and one more comes to them"
    words = sentence.split()  # a token each
    read = " ".join(words[: 10 - tokens])
    end = " ".join(words[10 - tokens :])
    texts = [read, f" {read}  {end}\n", f"{read} other words", f"small {read}"]
    assert [teacher.unread(text) for text in texts[:2]] == ["", f"{end}\n"]
    first, *same, moved = teacher.embed(texts)
    np.testing.assert_allclose(same, [first, first], atol=2e-6)
    assert abs(moved - first).max() > 1e-3


def test_what_changes_an_embedding_changes_the_fingerprint():
    teachers = [SBERT(), SBERT(max_tokens=128), SBERT("some/model")]
    teachers += [SBERT(long="chunks", bf16=bf16) for bf16 in (False, True)]
    assert len({teacher.fingerprint for teacher in teachers}) == 5


def test_bfloat16_gives_almost_the_same_embeddings():
    texts = [" ".join(f"word{k % 37}" for k in range(n)) for n in (1, 40, 300)]
    a, b = (SBERT(long="chunks", bf16=bf16).embed(texts) for bf16 in (False, True))
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert cosine.min() > 0.9999
    assert not np.array_equal(a, b)


@pytest.mark.parametrize("tokens", [2, 513])
def test_a_context_that_the_model_does_not_have_is_refused(tokens, refused):
    refused("takes 3 to 512", SBERT(max_tokens=tokens).embed, ["text"])


def test_an_encoder_of_relative_positions_keeps_the_context_of_its_model():
    teacher = SBERT()
    del teacher._encoder[0].auto_model.config.max_position_embeddings  # T5 has none
    assert teacher.max_tokens == 256


@pytest.mark.parametrize(
    ("file", "content"), [("modules.json", b'[{"idx": 0}]'), ("1_Pooling/config.json", b"{")]
)
def test_a_damaged_teacher_is_refused_in_one_line(tmp_path, refused, file, content):
    shutil.copytree(FOLDER, tmp_path / "own", copy_function=os.symlink)
    (tmp_path / "own" / file).unlink()
    (tmp_path / "own" / file).write_bytes(content)
    refused(
        "sentence-transformers cannot load the model",
        lambda: SBERT(str(tmp_path / "own"), device="cpu").max_tokens,
    )


def test_chunks_beside_known_first_ones_are_embedded_alone(sbert, texts, monkeypatch):
    chunks = SBERT(FOLDER, long="chunks", device="cpu", bf16=False)
    texts = texts[2:8]  # of one chunk and of several
    expected = chunks.embed(texts)
    count = sum(-(-max(tokens, 1) // 254) for tokens in chunks.count_tokens(texts))
    truncated = sbert.embed(texts)
    asked = []
    embed_batch = SBERT._embed_batch

    def counted(teacher, batch):
        asked.append(len(batch))
        return embed_batch(teacher, batch)

    monkeypatch.setattr(SBERT, "_embed_batch", counted)
    np.testing.assert_allclose(chunks.embed(texts, truncated), expected, atol=2e-6)
    assert sum(asked) == count - len(texts) > 0


class Adapter(torch.nn.Module):
    """Adds to a linear layer, as one of PEFT does."""

    def __init__(self, layer):
        super().__init__()
        self.base_layer = layer


def test_only_a_plain_short_encoder_is_computed_without_padding():
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    models = {}
    for name, kind, options in (
        ("plain", "bert", {}),
        ("decoder", "bert", {"is_decoder": True}),
        ("relative", "roberta", {"position_embedding_type": "relative_key"}),
        ("long", "longformer", {"attention_window": [8]}),
        ("adapted", "bert", {}),
    ):
        models[name] = AutoModel.from_config(AutoConfig.for_model(kind, **sizes, **options))
    attention = models["adapted"].encoder.layer[0].attention.self
    attention.query = Adapter(attention.query)
    assert [name for name, model in models.items() if is_plain_short(model)] == ["plain"]
