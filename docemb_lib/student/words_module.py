"""What a docemb student adds to sentence-transformers: a weighted mean, and a half of words.

docemb copies this file into the folder of a student, so it imports nothing of docemb.
sentence-transformers (release 6 or later) loads it with `trust_remote_code=True`.

N: documents; D: width of the half of meaning; L: width of the half of words.
"""

import json
import os
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import regex
import torch
from safetensors.torch import load_file, save
from scipy.sparse import csr_matrix
from sentence_transformers.sentence_transformer.modules import Transformer
from sklearn.feature_extraction.text import CountVectorizer
from torch import Tensor, nn

# A token among the first 256 counts three times more in the mean, among the first 64 another four
# times more, and among the first 16, where a title stands, another eight times more. Chosen on
# eight collections.
FIRST_TOKENS = ((256, 3), (64, 4), (16, 8))
WORDS = "words.json"
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
# Words, and runs of scripts without spaces, of which each two neighbouring characters are a word.
WORD = regex.compile(r"\w\w+")
UNSPACED = regex.compile(
    r"(?V1)[\w&&[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]+"
)
CHARACTER = regex.compile(r"\X")  # with its marks
# Soft hyphens, joiners, the lengthening of Arabic words, points of Arabic and Hebrew; not U+200B.
POINTS = r"\u0640\u064B-\u065F\u0670\u0591-\u05BD\u05BF-\u05C2\u05C4\u05C5\u05C7"
IGNORED = regex.compile(rf"(?V1)[[\p{{DI}}{POINTS}]--\u200B]")
COUNTED = {"preprocessor": str.casefold, "tokenizer": WORD.findall, "token_pattern": None}
Features = dict[str, Any]  # what the modules of sentence-transformers hand on


class TextTransformer(Transformer):
    """A Transformer that hands the whole texts to `WordsHalf`; its tokens stop at its limit."""

    def preprocess(self, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Features:
        return {**super().preprocess(inputs, *args, **kwargs), "texts": list(inputs)}


class WeightedTransformer(TextTransformer):
    """A Transformer that weighs the states of tokens before their mean.

    The beginning of a document tells best what it is about.
    """

    def forward(self, features: Features, **kwargs: Any) -> Features:
        features = super().forward(features, **kwargs)
        mask = features["attention_mask"]
        number = mask.cumsum(dim=1)  # from 1
        weights = mask * (1 + sum(more * (number <= first) for first, more in FIRST_TOKENS))
        features["token_embeddings"] = features["token_embeddings"] * weights[:, :, None]
        features["token_weights_sum"] = weights.sum(dim=1)  # `Pooling` divides by it
        return features


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


class WordsHalf(nn.Module):
    """Embeddings by meaning and by words side by side, see `join`.

    The half of words of a document is the sum over its distinct words of sqrt(count) * vector, of
    unit length. Both halves are then centred and scaled to unit length; `meaning_map` is applied to
    the half of meaning between the two.

    Args:
        vocabulary: V words.
        tensors: `vectors` (V, L) of the words, `words_mean` (L,), `meaning_mean` (D,),
            `meaning_map` (D, D), and `weight`, w.
        leads: pairs of numbers; a word among so many first words of a document counts so many times
            more.
        weight_given: whether w was given by hand and does not follow from the documents.
    """

    words_mean: Tensor
    meaning_mean: Tensor
    meaning_map: Tensor
    weight: Tensor

    def __init__(
        self,
        vocabulary: list[str],
        tensors: dict[str, Tensor],
        leads: Sequence[Sequence[int]],
        weight_given: bool = False,
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.leads = leads
        self.weight_given = weight_given
        self.vectors = tensors["vectors"].float().numpy()  # of words, summed on the CPU
        self.counter = CountVectorizer(vocabulary=vocabulary, dtype=np.float32, **COUNTED)
        for name in ("words_mean", "meaning_mean", "meaning_map", "weight"):
            self.register_buffer(name, tensors[name].float())

    @property
    def dim(self) -> int:
        """D + L."""
        return self.meaning_map.shape[1] + self.vectors.shape[1]

    def frequencies(self, texts: Sequence[str]) -> csr_matrix:
        """Compute the square roots of counts of words, a sparse matrix (N, V)."""
        texts = list(map(spaced, texts))
        counts = self.counter.transform(texts)  # (N, V)
        for first, more in self.leads:
            beginnings = (" ".join(text.split(maxsplit=first)[:first]) for text in texts)
            counts = counts + more * self.counter.transform(beginnings)
        return counts.sqrt()

    def words(self, texts: Sequence[str]) -> Tensor:
        """Compute the half of words of texts, (N, L) on the CPU, with rows of unit length.

        The row of a text without a known word is zero.
        """
        sums = torch.from_numpy(self.frequencies(texts) @ self.vectors)  # (N, L)
        return self.centred(nn.functional.normalize(sums))

    def centred(self, words: Tensor) -> Tensor:
        """Centre rows and scale them to unit length; zero rows stay zero. words: (N, L), CPU."""
        centred = nn.functional.normalize(words - self.words_mean.float().cpu())
        return centred * words.any(dim=1, keepdim=True)

    def meaning(self, embeddings: Tensor) -> Tensor:
        """Compute the half of meaning, of unit length, from the encoder's rows, both (N, D)."""
        centred = embeddings.float() - self.meaning_mean.float()
        return nn.functional.normalize(centred @ self.meaning_map.float())

    def join(self, embeddings: Tensor, words: Tensor) -> Tensor:
        """Return `[sqrt(1 - w) * meaning; sqrt(w) * words]`, (N, D + L).

        embeddings: the encoder's, (N, D); words: (N, L). Both halves have rows of unit length, so
        cosines of the result are the sum of those of the halves, weighted by 1 - w and w.
        """
        meaning = self.meaning(embeddings)
        weight = self.weight.float()
        halves = [(1 - weight).sqrt() * meaning, weight.sqrt() * words.to(meaning.device)]
        return torch.cat(halves, dim=1)

    def forward(self, features: Features) -> Features:
        embeddings = features["sentence_embedding"]
        features["sentence_embedding"] = self.join(embeddings, self.words(features["texts"]))
        return features

    def get_embedding_dimension(self) -> int:
        return self.dim

    def save(self, folder: str, **kwargs: Any) -> None:
        """Write vocabulary, tensors (the vectors in half precision) and settings.

        Each file is replaced in one step. A loaded half maps its old file into its memory.
        """
        path = Path(folder)
        _replace(path / WORDS, json.dumps(self.vocabulary).encode())
        config = {"leads": self.leads, "weight_given": self.weight_given}
        _replace(path / CONFIG, json.dumps(config).encode())
        tensors = {"vectors": torch.from_numpy(self.vectors).half()}
        for name, tensor in self.state_dict().items():
            tensors[name] = tensor.detach().float().cpu().contiguous()
        _replace(path / WEIGHTS, save(tensors))

    @classmethod
    def load(cls, folder: str) -> "WordsHalf":
        """Load a saved half."""
        path = Path(folder)
        words = json.loads((path / WORDS).read_text(encoding="utf-8"))
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        tensors = load_file(path / WEIGHTS)
        return cls(words, tensors, config["leads"], config["weight_given"])


def spaced(text: str) -> str:
    """Return the text in one normal form, with blanks between words of scripts without spaces.

    The form is NFKC without `IGNORED`. A character that is a run by itself is a word, too.
    """

    def pairs(run: regex.Match[str]) -> str:
        words = " ".join(map("".join, pairwise(CHARACTER.findall(run[0]))))
        return f" {words or run[0]} "

    if text.isascii():
        return text
    return UNSPACED.sub(pairs, IGNORED.sub("", unicodedata.normalize("NFKC", text)))
