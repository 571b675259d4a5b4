"""What a docemb student has beyond the modules of sentence-transformers: a weighted mean, and a
lexical half.

docemb copies this file into the folder of a student, so it imports nothing of docemb.
sentence-transformers (release 6 or later) loads it with `trust_remote_code=True`.
"""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from sentence_transformers.sentence_transformer.modules import Transformer
from sklearn.feature_extraction.text import CountVectorizer
from torch import Tensor, nn

# A token among the first 256 counts three times more in the mean, among the first 64 another four
# times more, and among the first 16, where a title stands, another eight times more. Chosen on
# eight collections.
FIRST_TOKENS = ((256, 3), (64, 4), (16, 8))
WORDS, WEIGHTS, CONFIG = "words.json", "model.safetensors", "config.json"


class TextTransformer(Transformer):
    """A Transformer that hands the whole texts to `LexicalHalf`; its own tokens stop at its limit."""

    def preprocess(self, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**super().preprocess(inputs, *args, **kwargs), "texts": list(inputs)}


class WeightedTransformer(TextTransformer):
    """Weighs the states of tokens before their mean: the beginning of a document tells best what it
    is about.
    """

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        features = super().forward(features, **kwargs)
        mask = features["attention_mask"]
        number = mask.cumsum(dim=1)  # from 1
        weights = mask * (1 + sum(more * (number <= first) for first, more in FIRST_TOKENS))
        features["token_embeddings"] = features["token_embeddings"] * weights[:, :, None]
        features["token_weights_sum"] = weights.sum(dim=1)  # `Pooling` divides by it
        return features


class LexicalHalf(nn.Module):
    """Dense and lexical embeddings side by side: `[sqrt(1 - w) * dense; sqrt(w) * lexical]`.

    Cosines of the result are the sum of those of the halves, weighted by 1 - w and w. The lexical
    half of a document is the sum over its distinct words of sqrt(count) * vector, of unit length.
    Both halves are then centred and scaled to unit length; `dense_map` is applied to the dense half
    between the two.

    vocabulary: V words; vectors: (V, L); lexical_mean: (L,); dense_mean: (D,); dense_map: (D, D);
    weight: w. leads: pairs of numbers, a word among so many first words of a document counts so
    many times more. unspaced: pattern of a run of characters of which each two neighbours are a
    word; "": none. weight_given: w was given by hand and does not follow from the documents.
    """

    lexical_mean: Tensor
    dense_mean: Tensor
    dense_map: Tensor
    weight: Tensor

    def __init__(
        self,
        vocabulary: list[str],
        tensors: dict[str, Tensor],
        leads: Sequence[Sequence[int]],
        unspaced: str,
        weight_given: bool = False,
    ) -> None:
        super().__init__()
        self.vocabulary, self.leads, self.unspaced = vocabulary, leads, unspaced
        self.weight_given = weight_given
        self.vectors = tensors["vectors"].float().numpy()  # of words, summed on the CPU
        self.counter = CountVectorizer(vocabulary=vocabulary, dtype=np.float32)
        for name in ("lexical_mean", "dense_mean", "dense_map", "weight"):
            self.register_buffer(name, tensors[name].float())

    @property
    def dim(self) -> int:
        """D + L."""
        return self.dense_map.shape[1] + self.vectors.shape[1]

    def lexical(self, texts: Sequence[str]) -> Tensor:
        """(N, L) on the CPU, rows of unit length; zero for a text without a known word."""
        if self.unspaced:
            texts = [re.sub(self.unspaced, _in_pairs, text) for text in texts]
        counts = self.counter.transform(texts)
        for first, more in self.leads:
            counts = counts + more * self.counter.transform(
                " ".join(t.split(maxsplit=first)[:first]) for t in texts
            )
        return self.centred(nn.functional.normalize(torch.from_numpy(counts.sqrt() @ self.vectors)))

    def centred(self, lexical: Tensor) -> Tensor:
        """(N, L), of unit length; zero rows stay zero. lexical: (N, L) on the CPU."""
        return nn.functional.normalize(lexical - self.lexical_mean.float().cpu()) * lexical.any(
            dim=1, keepdim=True
        )

    def dense(self, embeddings: Tensor) -> Tensor:
        """(N, D), rows of unit length. embeddings: (N, D) of the encoder."""
        return nn.functional.normalize(
            (embeddings.float() - self.dense_mean.float()) @ self.dense_map.float()
        )

    def join(self, embeddings: Tensor, lexical: Tensor) -> Tensor:
        """(N, D + L), rows of unit length where both halves have a direction."""
        w = self.weight.float()
        halves = (1 - w).sqrt() * self.dense(embeddings), w.sqrt() * lexical.to(embeddings.device)
        return torch.cat(halves, dim=1)

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        embeddings = features["sentence_embedding"]
        features["sentence_embedding"] = self.join(embeddings, self.lexical(features["texts"]))
        return features

    def get_embedding_dimension(self) -> int:
        return self.dim

    def save(self, folder: str, **kwargs: Any) -> None:
        """Write vocabulary, tensors (the vectors in half precision) and the checksum of this file."""
        tensors = {
            name: tensor.detach().float().cpu().contiguous()
            for name, tensor in self.state_dict().items()
        }
        tensors["vectors"] = torch.from_numpy(self.vectors).half()
        path = Path(folder)
        (path / WORDS).write_text(json.dumps(self.vocabulary), encoding="utf-8")
        code = hashlib.sha256(
            Path(__file__).read_bytes()
        ).hexdigest()  # docemb compares it with this file's copy
        config = {"dim": self.dim, "code": code, "leads": self.leads, "unspaced": self.unspaced}
        config["weight_given"] = self.weight_given
        (path / CONFIG).write_text(json.dumps(config), encoding="utf-8")
        temporary = path / f".{WEIGHTS}.{os.getpid()}"
        temporary.write_bytes(save(tensors))
        temporary.replace(path / WEIGHTS)  # a loaded half maps the old file into its memory

    @classmethod
    def load(cls, folder: str) -> "LexicalHalf":
        path = Path(folder)
        words, config = (
            json.loads((path / name).read_text(encoding="utf-8")) for name in (WORDS, CONFIG)
        )
        tensors = load_file(path / WEIGHTS)
        if "reduction" in tensors:
            problem = "the halves were reduced to fewer dimensions, which is supported no more"
            raise ValueError(f"{folder}: {problem}; adapt the student again with `docemb adapt`")
        # Folders of earlier releases lack the last two fields.
        unspaced, weight_given = config.get("unspaced", ""), config.get("weight_given", False)
        return cls(words, tensors, config["leads"], unspaced, weight_given)


def _in_pairs(run: re.Match[str]) -> str:
    return f" {' '.join(map(''.join, pairwise(run[0]))) or run[0]} "
