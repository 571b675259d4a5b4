"""What is measured on: Longformers with random weights, and documents as long as the thesis'."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from transformers import LongformerConfig

from docemb_lib.errors import InputError

THESIS_MEAN, THESIS_STD = 1371, 1723  # tokens of a training document (thesis, 4.1)
SHORTEST, LONGEST = 8, 4096  # tokens of a document
GEOMETRIES = {
    "small": {"num_hidden_layers": 3, "hidden_size": 384, "intermediate_size": 1536, "vocab_size": 30522},  # MiniLM's
    "base": {"num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072, "vocab_size": 50265},
}


@dataclass(frozen=True)
class Workload:
    """How much is measured. The defaults take three or four minutes on two cores."""

    size: str = "small"  # a key of GEOMETRIES
    layers: int = 3
    documents: int = 6  # of the thesis' lengths
    repeats: int = 3  # of each timing
    longest: int = LONGEST  # tokens; the thesis' lengths are scaled with it
    memory_documents: int = 6  # of `longest` tokens each
    growth_tokens: int = 4096  # of documents of growing length together
    training_layers: int = 12  # of full training at longformer-base's width, on a GPU
    training_steps: int = 12  # timed
    seed: int = 0

    @classmethod
    def choose(
        cls, size: str | None, device: str, *, quick: bool = False, documents: int | None, repeats: int | None
    ) -> Workload:
        """The workload that suits a kind of device, with what the user asks for. Raises InputError.

        quick: one layer and short documents, to see that everything runs.
        """
        size = size or ("base" if device == "cuda" else "small")
        if size not in GEOMETRIES:
            raise InputError(f"size: got {size!r}, give {' or '.join(GEOMETRIES)}")
        for name, value in (("documents", documents), ("repeats", repeats)):
            if value is not None and value < 1:
                raise InputError(f"{name}: got {value}, give at least 1")
        chosen = cls(size=size, layers=int(GEOMETRIES[size]["num_hidden_layers"]))
        if device == "cuda":
            chosen = replace(chosen, documents=128, growth_tokens=65536)
        elif size == "base":
            chosen = replace(chosen, documents=2, repeats=2)  # stock takes minutes for each
        if quick:
            chosen = replace(
                chosen, layers=1, documents=4, repeats=1, longest=512, memory_documents=2, growth_tokens=1024,
                training_layers=1, training_steps=2,
            )  # fmt: skip
        return replace(chosen, documents=documents or chosen.documents, repeats=repeats or chosen.repeats)

    def config(self, *, layers: int | None = None) -> LongformerConfig:
        """The model's, `layers` deep; None: as deep as it is. longformer-base but for GEOMETRIES, without dropout."""
        return longformer_config(self.size, layers or self.layers)

    def lengths(self) -> list[int]:
        return thesis_lengths(self.documents, seed=self.seed, scale=self.longest / LONGEST)


def longformer_config(size: str, layers: int) -> LongformerConfig:
    """longformer-base-4096 but for what GEOMETRIES says of `size`, with `layers` layers and without dropout."""
    return LongformerConfig(
        **{**GEOMETRIES[size], "num_hidden_layers": layers},
        num_attention_heads=12,
        attention_window=[512] * layers,
        max_position_embeddings=LONGEST + 2,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def thesis_lengths(n: int, *, seed: int, scale: float = 1.0) -> list[int]:
    """Tokens of n documents: log-normal with the thesis' mean and deviation, scaled, cut to what the student reads.

    One is drawn from each n-th of the distribution, in random order: so few of them have its mean and its tail.
    """
    generator = np.random.default_rng(seed)
    variance = math.log(1 + (THESIS_STD / THESIS_MEAN) ** 2)
    normal = NormalDist(math.log(THESIS_MEAN) - variance / 2, math.sqrt(variance))
    shares = (np.arange(n) + generator.uniform(0.001, 0.999, n)) / n
    lengths = [math.exp(normal.inv_cdf(share)) * scale for share in shares]
    cut = [min(max(round(length), SHORTEST), int(LONGEST * scale)) for length in lengths]
    return [cut[index] for index in generator.permutation(n)]


def random_documents(lengths: list[int], vocabulary: int, *, seed: int) -> list[np.ndarray]:
    """Token ids, none of them special."""
    generator = np.random.default_rng(seed)
    return [generator.integers(5, vocabulary - 5, length) for length in lengths]
