"""Tiny random Longformers with MiniLM's true tokenizer, and MiniLM itself, converted."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from docemb_lib.base.pretrained import resolve
from docemb_lib.student import Student
from docemb_lib.student.export import Pooling


@pytest.fixture(scope="session")
def minilm() -> str:
    return resolve("all-MiniLM-L6-v2")


@pytest.fixture(scope="session")
def make_student(minilm: str) -> Callable[..., Student]:
    def make(
        *,
        windows: list[int],
        head_dim: int = 8,
        heads: int = 2,
        max_tokens: int = 600,
        dropout: float = 0.0,
        seed: int = 0,
        pooling: Pooling = "mean",
    ) -> Student:
        tokenizer = transformers.AutoTokenizer.from_pretrained(minilm, model_max_length=max_tokens)
        torch.manual_seed(seed)
        config = transformers.LongformerConfig(
            vocab_size=tokenizer.vocab_size,
            hidden_size=head_dim * heads,
            num_attention_heads=heads,
            num_hidden_layers=len(windows),
            intermediate_size=32,
            attention_window=windows,
            pad_token_id=0,
            max_position_embeddings=max_tokens + 1,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            initializer_range=0.3,  # attention far from uniform, so that a wrong mask shows
        )
        return Student(
            transformers.LongformerModel(config, add_pooling_layer=False),
            tokenizer,
            pooling=pooling,
        ).eval()

    return make


@pytest.fixture(scope="session")
def modernbert_folder(minilm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random ModernBERT of three layers, one global and two local, with 600 positions."""
    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm, model_max_length=600)
    config = transformers.ModernBertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_attention_heads=2,
        num_hidden_layers=3,
        intermediate_size=24,
        local_attention=8,
        max_position_embeddings=600,
        pad_token_id=0,
        bos_token_id=101,
        cls_token_id=101,
        eos_token_id=102,
        sep_token_id=102,
        initializer_range=0.3,
    )
    folder = tmp_path_factory.mktemp("modernbert")
    transformers.ModernBertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def bert_folder(minilm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT as published: with pooler and language model head beside the encoder, and
    MiniLM's tokenizer.
    """
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30522,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=40,
    )
    folder = tmp_path_factory.mktemp("bert")
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    weights |= {
        "bert.pooler.dense.weight": torch.zeros(16, 16),
        "bert.embeddings.position_ids": torch.arange(40)[None],
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(f"{minilm}/{name}", folder)
    return folder


@pytest.fixture(scope="session")
def make_kind(make_student: Callable[..., Student], modernbert_folder: Path) -> Callable:
    """A new student of each kind: of a pooling (mean, lead and first are packed), or modernbert."""

    def make(kind: str, *, dropout: float = 0.0) -> Student:
        if kind == "modernbert":
            return Student.from_encoder(modernbert_folder, max_tokens=600, dropout=dropout)
        return make_student(windows=[8, 16], dropout=dropout, pooling=kind)

    return make


@pytest.fixture(scope="session")
def random_documents() -> Callable[..., list[list[int]]]:
    def make(lengths: list[int], *, seed: int = 0) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        return [
            torch.randint(1000, 30000, (length,), generator=generator).tolist()
            for length in lengths
        ]

    return make


@pytest.fixture(scope="session")
def converted(minilm: str) -> Student:
    return Student.from_encoder(minilm, layers=[0, 2, 4], max_tokens=1024, attention_window=128)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Real text of mixed lengths: short, empty, not English, longer than 1,024 tokens."""
    return [
        str(torch.nn.LayerNorm.__doc__),
        "",
        "Die Sonne schien, da sie keine andere Wahl hatte, auf nichts Neues.",
        str(torch.nn.Transformer.__doc__) + str(torch.nn.MultiheadAttention.__doc__) * 3,
        "A tokenizer pads with [PAD], as in [CLS] short text [SEP] [PAD] [PAD].",
        "word",
        str(Path.__doc__),
    ]


@pytest.fixture(scope="session")
def edit_files() -> Callable[[Path, dict], None]:
    """Edits files of a folder, by name: None removes one, a text replaces it, a slice of its bytes
    stays, of a mapping the fields of its JSON or its tensors are set (None removes a tensor). The
    checksums go first, as they do where someone changes a student on purpose."""

    def edit(folder: Path, files: dict) -> None:
        (folder / "docemb.json").unlink(missing_ok=True)
        for name, content in files.items():
            file = folder / name
            if content is None:
                file.unlink()
            elif isinstance(content, str):
                file.write_text(content)
            elif isinstance(content, slice):
                file.write_bytes(file.read_bytes()[content])
            elif file.suffix == ".json":
                file.write_text(json.dumps(json.loads(file.read_text()) | content))
            else:
                tensors = {
                    key: tensor
                    for key, tensor in (load_file(file) | content).items()
                    if tensor is not None
                }
                save_file(tensors, file, metadata={"format": "pt"})

    return edit


@pytest.fixture
def transformers_log(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Messages that transformers logs from warnings on; its logger does not propagate."""
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    yield caplog.messages
    logger.removeHandler(caplog.handler)
