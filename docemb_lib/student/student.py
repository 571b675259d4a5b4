"""The student: a long encoder over packed documents, and a mean of its last hidden states.

Section 4.3 of the thesis describes it. B: documents of a batch; T: tokens of all of them; D: width
of the dense embedding; N: documents that are embedded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from docemb_lib.base import tokenizing
from docemb_lib.base.errors import InputError
from docemb_lib.base.pretrained import resolve
from docemb_lib.packed.forward import hidden_states
from docemb_lib.packed.packing import PackedBatch
from docemb_lib.packed.stock import padded_length, stock_hidden_states
from docemb_lib.student import export, lexical, loading
from docemb_lib.student.embedding import (
    CHUNK,
    Devices,
    Encoder,
    Tokens,
    checked,
    embed_texts,
    write_npy,
)
from docemb_lib.student.explanation import explained, parts_of
from docemb_lib.student.export import MEANS, Pooling
from docemb_lib.student.passages import (
    Embedded,
    Mean,
    PassageEncoder,
    means,
    passages_of,
)

if TYPE_CHECKING:
    import pandas as pd
    from tokenizers import Encoding
    from transformers import (
        PretrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerFast,
    )

    from docemb_lib.student.lexical_module import LexicalHalf

logger = logging.getLogger(__name__)

# Poolings of each encoder with a packed forward, then of those without.
PACKED = (("longformer", "mean"), ("longformer", "lead"), ("longformer", "first"))
KINDS = (*PACKED, ("longformer", "cls"), ("modernbert", "mean"))


TOKENS_OF_A_CHARACTER = 4  # at most, where a tokenizer splits its bytes


class Encoded(NamedTuple):
    """Token ids of each text, and the number of texts that are too long and lose tokens."""

    sequences: Tokens
    truncated: int


class Student(Mean):
    """Documents in, one embedding each, with the weights of a stock transformers model.

    Without global attention, a Longformer computes what `transformers.LongformerModel` computes on
    each document alone, and nothing for padding; its unused projections for global attention are
    frozen. With global attention, and for a ModernBERT, the stock forward runs on padded
    documents. A short encoder converted with at most its own limit as `max_tokens`, and an
    `attention_window` of twice as many, computes what it did before; with pooling "first" it gives
    the state of BERT's [CLS].

    Args:
        model: a Longformer or a ModernBERT.
        tokenizer: a fast one, whose `model_max_length` limits a document.
        pooling: "mean" of all tokens, special ones included; "lead", in which those at the
            beginning count more; the first token of a Longformer, without global attention
            ("first") or with it ("cls"). The thesis tried global attention and rejected it
            (section 4.3).
        lexical: the half that `embed` appends, see `adapt`; training sees the dense half alone.
        trained_on: the corpus, as in "300 documents of reports"; None: the encoder is converted.
        prompt: what the encoder wants before every text, as in "passage: "; the lexical half does
            not read it.

    Example:
        >>> student = Student.from_encoder("all-MiniLM-L6-v2", layers=[0], max_tokens=1024)
        >>> student.embed(["a document", "another one"]).shape
        (2, 384)
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        *,
        pooling: Pooling = "mean",
        lexical: LexicalHalf | None = None,
        trained_on: str | None = None,
        prompt: str = "",
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.prompt = prompt
        self.lexical = lexical
        self.trained_on = trained_on
        # Recompute activations in the backward pass: less memory, a third more time.
        self.checkpointing = False
        # torch.compile between the attentions: for GPUs, takes half a minute to prepare.
        self.compiled = False
        for name, parameter in model.named_parameters():
            if self.packed and "_global." in name:
                parameter.requires_grad_(False)

    @classmethod
    def from_encoder(
        cls,
        path_or_id: str | Path,
        *,
        pooling: Pooling = "mean",
        layers: Sequence[int] | None = None,
        max_tokens: int = 4096,
        attention_window: int | None = None,
        dropout: float | None = None,
    ) -> Student:
        """Convert a short BERT- or RoBERTa-like encoder, or take a long one as it is.

        The student is in eval mode, on the CPU; `loading.convert` describes the conversion. Raises
        InputError for other architectures.

        path_or_id: folder or hub id; layers: those to keep, in this order (None: all); max_tokens:
        positions, special tokens included; attention_window: both directions together (None: the
        Longformer's own or 512); dropout: of hidden states and attention (None: the encoder's).
        """
        source = resolve(str(path_or_id))
        prompt = export.default_prompt(str(path_or_id))
        model, tokenizer = loading.convert(source, layers, max_tokens, attention_window, dropout)
        loading.check_tokens(str(path_or_id), model, tokenizer)
        return cls(model, tokenizer, pooling=pooling, prompt=prompt).eval()

    @classmethod
    def load(cls, folder_or_id: str | Path) -> Student:
        """Load a saved student, or any long encoder with mean pooling.

        The student is in eval mode, on the CPU. Raises InputError for other models, for files that
        do not belong together and for pickled weights.
        """
        source = resolve(str(folder_or_id))
        loading.check_files(Path(source))
        config = loading.load_config(source)
        if config.model_type not in loading.LONG:
            raise loading.no_student(str(folder_or_id), config.model_type)
        pooling = export.saved_pooling(str(folder_or_id))
        model = loading.load_weights(source, config)
        max_tokens = loading.saved_max_tokens(source, positions=loading.positions(model.config))
        tokenizer = loading.load_tokenizer(source, max_tokens=max_tokens)
        loading.check_tokens(str(folder_or_id), model, tokenizer)
        half = lexical.saved_lexical_half(source)
        if half is not None and len(half.dense_mean) != model.config.hidden_size:
            problem = f"its dense half is {len(half.dense_mean)} wide"
            raise InputError(
                f"{folder_or_id}: {lexical.FOLDER}: {problem}, and the encoder is "
                f"{model.config.hidden_size} wide; give files that belong together"
            )
        return cls(
            model,
            tokenizer,
            pooling=pooling,
            lexical=half,
            trained_on=export.saved_training(source),
            prompt=export.default_prompt(str(folder_or_id)),
        ).eval()

    def save(self, folder: str | Path, *, card: str | None = None, words: bool = True) -> None:
        """Write a sentence-transformers folder.

        card: its README with front matter; None writes a plain one. words: False leaves the
        lexical half out, so that the folder holds no code unless `pooling` is "lead".
        """
        export.write_folder(self if words else self.dense_half(), Path(folder), card)

    def adapt(
        self,
        texts: Sequence[str],
        *,
        dim: int | None = None,
        words: int = 50_000,
        weight: float | None = None,
        bf16: bool | None = None,
        devices: Devices = None,
        embed: Callable[[list[str]], np.ndarray] | None = None,
    ) -> None:
        """Fit a lexical half on a collection; `embed` appends it from now on, and it is saved.

        The weights of the encoder stay as they are. `embed` then gives [dense; lexical], (N, D +
        dim). dim: None is the width of the student's half, if it has one; bf16, devices: of
        `embed`, which gives the dense half of some texts unless another function is given. See
        `lexical.fit_lexical_half` for the other arguments and for the causes of
        InputError, after which the student is unchanged.
        """
        checked(texts)
        if dim is None and self.lexical is not None:
            dim = self.lexical.vectors.shape[1]
        # Documents evenly spaced in the collection give the dense half's mean and map.
        count = min(adapted_on(self.dim), len(texts))
        rows = np.unique(np.linspace(0, len(texts) - 1, count).astype(int)).tolist()
        sample = [texts[row] for row in rows]
        if embed is None:
            dense_half = self.dense_half()
            embed = partial(dense_half.embed, bf16=bf16, devices=devices, desc="adapting")
        options = {"dim": dim, "words": words, "weight": weight, "rows": rows}
        self.lexical = lexical.fit_lexical_half(partial(embed, sample), texts, **options)

    @property
    def pooling(self) -> Pooling:
        """How the states of the tokens become one embedding. Raises InputError for another way."""
        return self._pooling

    @pooling.setter
    def pooling(self, pooling: Pooling) -> None:
        model_type = self.model.config.model_type
        if (model_type, pooling) not in KINDS:
            known = ", ".join(f"{pooling} of a {encoder}" for encoder, pooling in KINDS)
            given = f"a student cannot pool by {pooling} of a {model_type}"
            raise InputError(f"pooling: {given}; it takes the {known}")
        self._pooling = pooling
        self.packed = (model_type, pooling) in PACKED

    def dense_half(self) -> Student:
        """Return the student without its lexical half; both share the encoder."""
        if self.lexical is None:
            return self
        dense = Student(
            self.model,
            self.tokenizer,
            pooling=self.pooling,
            trained_on=self.trained_on,
            prompt=self.prompt,
        )
        return dense.train(self.training)

    @property
    def config(self) -> PretrainedConfig:
        return self.model.config

    @property
    def dim(self) -> int:
        """D, of the dense half."""
        return int(self.config.hidden_size)

    @property
    def width(self) -> int:
        """The width of the rows that `embed` returns, D or that of both halves."""
        return self.dim if self.lexical is None else self.lexical.dim

    @property
    def max_tokens(self) -> int:
        """The limit of a document, special tokens included."""
        return int(self.tokenizer.model_max_length)

    def padded(self, length: int) -> int:
        """Return the tokens that the forward pass computes for a document of `length` tokens."""
        return length if self.packed else padded_length(self.config, length)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def compile_if_possible(self, run: Callable[[], object]) -> None:
        """Compile the packed forward, unless that fails in `run`, a first pass.

        torch.compile needs Triton and a C compiler, and fails only when it is first used.
        """
        self.compiled = True
        try:
            run()
        except Exception as error:  # compilers fail in many ways
            self.compiled = False
            reason = str(error).strip().split("\n")[0]
            logger.warning("torch.compile fails and is not used: %s", reason)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Compute the embeddings of B packed documents, pooled over their tokens, (B, D)."""
        states, totals = self.weighted_states(batch)
        if self.pooling not in MEANS:
            return states[batch.first]
        return means(states, totals, batch)

    def weighted_states(self, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        """Compute the states that pooling averages, (T, D), and their sums of weights, (B,)."""
        hidden = self.hidden(batch)  # (T, D)
        hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        if self.pooling == "lead":
            return _lead_weighted(hidden, batch)
        return hidden, batch.lengths

    def hidden(self, batch: PackedBatch) -> Tensor:
        """Compute the last hidden states of a batch of T tokens, (T, D).

        Raises InputError for a document beyond `max_tokens`.
        """
        longest = max(batch.sizes)
        if longest > self.max_tokens:
            limit = f"the student reads {self.max_tokens}"
            raise InputError(
                f"batch: a document has {longest} tokens, and {limit}; cut the document"
            )
        if self.packed:
            return hidden_states(self.model, batch, self.checkpointing, self.compiled)
        is_global = self.pooling == "cls"
        return stock_hidden_states(self.model, batch, is_global, self.checkpointing)

    def count_longer(self, texts: Iterable[str]) -> int:
        """How many texts have more than `max_tokens` tokens, of which `embed` reads the first."""
        # Others need not be tokenised.
        possible = (text for text in texts if len(text) > self.max_tokens // TOKENS_OF_A_CHARACTER)
        blocks = tokenizing.batched(possible, CHUNK)
        return sum(self.tokenize(block).truncated for block in blocks)

    def tokenize(self, texts: Sequence[str]) -> Encoded:
        """Return the token ids of each text after the prompt, cut at `max_tokens`."""
        encodings = self._encodings(texts)
        truncated = sum(bool(encoding.overflowing) for encoding in encodings)
        return Encoded([encoding.ids for encoding in encodings], truncated)

    def _encodings(self, texts: Sequence[str]) -> list[Encoding]:
        loading.remove_limits(self.tokenizer)  # set below, or by stock libraries
        tokenizer = self.tokenizer.backend_tokenizer
        prompted = [self.prompt + text for text in texts]
        beginnings = tokenizing.heads(tokenizer, prompted, self.max_tokens)
        tokenizer.enable_truncation(self.max_tokens)
        return tokenizer.encode_batch(beginnings)

    def embed(
        self,
        texts: Iterable[str],
        *,
        out: str | Path | None = None,
        bf16: bool | None = None,
        devices: Devices = None,
        desc: str = "embedding",
    ) -> np.ndarray:
        """Embed N documents without dropout or gradients; logs how many were cut.

        Args:
            texts: any iterable of strings, which is read once.
            out: a .npy file for the embeddings, which appears when complete; memory then does not
                hold them all.
            bf16: compute in bfloat16; None: see `docemb_lib.base.hardware.uses_bf16`.
            devices: share the work, each with a copy of the student; None: the student's own.
            desc: label of the progress bar.

        Returns float32 (N, width) in the order of `texts`; with `out`, its read-only memory map.
        Raises InputError for what is no sequence of strings, naming the item, for another `out`,
        and for embeddings that are not finite.
        """
        texts = checked(texts)
        embed = partial(self.embed_documents, bf16=bf16, devices=devices, desc=desc)
        if out is None:
            return embed(texts).embeddings
        return write_npy(Path(out), texts, self.width, lambda block: embed(block).embeddings)

    def embed_documents(
        self,
        texts: Iterable[str],
        *,
        passages: int | None = None,
        bf16: bool | None = None,
        devices: Devices = None,
        desc: str = "embedding",
    ) -> Embedded:
        """Embed N documents as `embed` does, and give the passages of each from the same pass.

        The lexical half, if any, has no passages.

        Args:
            passages: the most tokens of a passage; None: there are none.

        Raises InputError also for passages of a student that does not average its states.
        """
        texts = checked(texts)
        encoder: Encoder = self.dense_half()
        if passages is not None:
            self._check_mean()
            encoder = PassageEncoder(self.dense_half(), passages)
        truncated = []

        def tokenize(chunk: list[str]) -> Tokens:
            encoded = self.tokenize(chunk)
            truncated.append(encoded.truncated)
            return encoded.sequences

        rows = embed_texts(encoder, texts, tokenize, bf16=bf16, devices=devices, desc=desc)
        if any(truncated):
            message = "%d of %d documents are cut at %d tokens"
            logger.warning(message, sum(truncated), len(texts), self.max_tokens)
        half = self.lexical
        embeddings = [np.empty((0, self.width), dtype=np.float32)]
        for start in range(0, len(texts), CHUNK):
            X = rows[start : start + CHUNK, : self.dim]
            if half is not None:
                words = half.lexical(texts[start : start + CHUNK])
                X = half.join(torch.from_numpy(X).to(half.weight.device), words).cpu().numpy()
            embeddings.append(X)
        result = np.concatenate(embeddings)
        if not np.isfinite(result).all():
            problem = "an embedding is not finite: the student's weights are damaged"
            raise InputError(f"{problem}; restore them")
        if passages is None:
            return Embedded(result, [])
        leads = _first_tokens() if self.pooling == "lead" else ()
        cut = partial(passages_of, leads=leads, prompt=len(self.prompt), half=half)
        of_documents = []
        for text, row in zip(texts, rows, strict=True):
            (encoding,) = self._encodings([text])
            of_documents.append(cut(encoding, row, self.dim, passages))
        return Embedded(result, of_documents)

    def explain(
        self, a: str, b: str, *, passages: int = 128, bf16: bool | None = None
    ) -> pd.DataFrame:
        """Tell which passages and words of two texts add how much to their cosine.

        Returns a row for each pair of passages, of at most `passages` tokens, and for each word,
        the greatest contribution first; the contributions sum to the cosine. A product of two
        different words counts half for each. See `embed` for bf16 and for a student that does not
        average its states.
        """
        texts = (a, b)
        _, of_texts = self.embed_documents(texts, passages=passages, bf16=bf16)
        parts = [
            parts_of(text, of_text, self.lexical)
            for text, of_text in zip(texts, of_texts, strict=True)
        ]
        return explained(*parts)

    def _check_mean(self) -> None:
        if self.pooling not in MEANS:
            problem = f"pooling {self.pooling!r} is the state of one token and no mean over tokens"
            mend = f"give a student with pooling {', '.join(MEANS[:-1])} or {MEANS[-1]}"
            raise InputError(f"{problem}, so that no passage has a part in an embedding; {mend}")


def _lead_weighted(hidden: Tensor, batch: PackedBatch) -> tuple[Tensor, Tensor]:
    """Weigh states (T, D) by their place; return them and each document's sum of weights, (B,)."""
    place = torch.arange(len(hidden), device=hidden.device) - batch.first[batch.document]  # (T,)
    weights = torch.ones_like(place)
    totals = batch.lengths
    for first, more in _first_tokens():
        weights = weights + more * (place < first)
        totals = totals + more * batch.lengths.clamp(max=first)
    return hidden * weights[:, None], totals


def _first_tokens() -> tuple[tuple[int, int], ...]:
    # Imported here, because it imports sentence-transformers.
    from docemb_lib.student.lexical_module import FIRST_TOKENS

    return FIRST_TOKENS


def adapted_on(dim: int) -> int:
    """Return how many documents at most give the mean and the map of a dense half in `adapt`.

    With 384 dimensions, 1,000 were no better on validation splits, 300 were worse.
    """
    return max(512, round(4 / 3 * dim))
