"""The student: a long encoder over packed documents, and a mean of its last hidden states.

Section 4.2 of the thesis describes it. B: documents of a batch; T: tokens of all of them; D: width
of the dense embedding; N: documents that are embedded.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor, nn

from docemb_lib.base import tokenizing
from docemb_lib.base.errors import InputError
from docemb_lib.base.pretrained import resolve
from docemb_lib.base.progress import progress
from docemb_lib.packed.forward import (
    hidden_states,
    padded_length,
    stock_hidden_states,
)
from docemb_lib.packed.packing import PackedBatch
from docemb_lib.student import export, lexical, loading
from docemb_lib.student.embedding import (
    CHUNK,
    Encoder,
    check_npy,
    checked,
    embed_chunks,
    growing_npy,
    one_ahead,
)
from docemb_lib.student.explanation import explained, parts_of
from docemb_lib.student.export import MEANS, Pooling
from docemb_lib.student.passages import (
    Embedded,
    PassageEncoder,
    Passages,
    Windows,
    means,
    passages_of,
)

if TYPE_CHECKING:
    import pandas as pd
    from tqdm import tqdm
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


Kept = Callable[[str], np.ndarray | None]  # the row of a text that there is already


class Options(TypedDict, total=False):
    """What `Student.embed` takes with and without passages."""

    out: str | Path | None
    bf16: bool | None
    devices: Sequence[str | torch.device] | None
    desc: str
    kept: Kept | None


class Pending(NamedTuple):
    """What a chunk of texts has, beside its tokens, before its embeddings are computed.

    known: the row of each text that has one. windows: the passages of each. lexical: (n, L)
    """

    known: list[np.ndarray | None]
    windows: Sequence[Windows]
    lexical: Tensor | None


TOKENS_OF_A_CHARACTER = 4  # at most, where a tokenizer splits its bytes


class Encoded(NamedTuple):
    """Token ids of each text, and the number of texts that are too long and lose tokens."""

    sequences: Sequence[Sequence[int] | np.ndarray]
    truncated: int


class Student(nn.Module):
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
        # torch would register a module that is an attribute, and write it into checkpoints, which
        # hold the encoder alone. It does not look into a tuple.
        self._appended = (lexical,)
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
        converted = loading.convert(source, layers, max_tokens, attention_window, dropout)
        model, tokenizer = converted
        loading.check_tokens(str(path_or_id), model, tokenizer)
        return cls(model, tokenizer, pooling=pooling, prompt=prompt).eval()

    @classmethod
    def load(cls, folder_or_id: str | Path) -> Student:
        """Load a saved student, or any long encoder with mean pooling.

        The student is in eval mode, on the CPU. Raises InputError for other models, for files that
        do not belong together and for pickled weights.
        """
        source = resolve(str(folder_or_id))
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
        student = cls(model, tokenizer, pooling=pooling, lexical=half)
        student.trained_on = export.saved_training(source)
        student.prompt = export.default_prompt(str(folder_or_id))
        return student.eval()

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
        devices: Sequence[str | torch.device] | None = None,
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

        def dense() -> np.ndarray:
            sample = [texts[row] for row in rows]
            if embed is not None:
                return embed(sample)
            return self.dense_half().embed(sample, bf16=bf16, devices=devices, desc="adapting")

        options = {"dim": dim, "words": words, "weight": weight, "rows": rows}
        self._appended = (lexical.fit_lexical_half(dense, texts, **options),)

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

    @property
    def lexical(self) -> LexicalHalf | None:
        """The half that `embed` appends to the dense one, if any."""
        return self._appended[0]

    def dense_half(self) -> Student:
        """Return the student without its lexical half; both share the encoder."""
        dense = copy.copy(self)
        dense._appended = (None,)
        return dense

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
        return self._tokenize(texts, None)[0]

    def _tokenize(
        self, texts: Sequence[str], passages: int | None
    ) -> tuple[Encoded, Sequence[Windows]]:
        """Also return where the passages of at most so many tokens of each text lie."""
        if not texts:
            return Encoded([], 0), []
        texts = [self.prompt + text for text in texts]
        loading.remove_limits(self.tokenizer)  # set by the call below
        beginnings = tokenizing.heads(self.tokenizer.backend_tokenizer, texts, self.max_tokens)
        tokens = self.tokenizer(
            beginnings,
            truncation=True,
            max_length=self.max_tokens,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        truncated = sum(bool(encoding.overflowing) for encoding in tokens.encodings)
        windows: list[Windows] = []
        if passages is not None:
            leads = _first_tokens() if self.pooling == "lead" else ()
            before = len(self.prompt)
            for encoding in tokens.encodings:
                windows.append(Windows.of(encoding, passages, leads, before))
        return Encoded(tokens["input_ids"], truncated), windows

    @overload
    def embed(
        self, texts: Iterable[str], *, passages: None = None, **options: Unpack[Options]
    ) -> np.ndarray: ...

    @overload
    def embed(
        self, texts: Iterable[str], *, passages: int, **options: Unpack[Options]
    ) -> Embedded: ...

    def embed(
        self,
        texts: Iterable[str],
        *,
        out: str | Path | None = None,
        bf16: bool | None = None,
        devices: Sequence[str | torch.device] | None = None,
        desc: str = "embedding",
        passages: int | None = None,
        kept: Kept | None = None,
    ) -> np.ndarray | Embedded:
        """Embed N documents without dropout or gradients; logs how many were cut.

        Args:
            texts: any iterable of strings; one without a length is read once.
            out: a .npy file for the embeddings, which appears when complete; memory then does not
                grow with N.
            bf16: compute in bfloat16; None: see `docemb_lib.base.hardware.uses_bf16`.
            devices: share the work, each with a copy of the student; None: the student's own.
            desc: label of the progress bar.
            passages: also give the passages of at most so many tokens of each document, from the
                same pass; they are held in memory. The lexical half, if any, has no passages.
            kept: gives the dense half's embedding of a text, (D,), or with `passages` its row of
                `PassageEncoder`, if there is one already. Such a text is not embedded again.

        Returns float32 (N, width) in the order of `texts`; with `out`, its read-only memory map;
        with `passages`, `Embedded`. Raises InputError for what is no sequence of strings, naming
        the item, for another `out`, for embeddings that are not finite, and for passages of a
        student that does not average its states.
        """
        texts = checked(texts)
        if out is not None:
            check_npy(Path(out))
        encoder: Encoder = self
        if passages is not None:
            self._check_mean()
            encoder = PassageEncoder(self, passages)
        half = self.lexical
        in_memory = [np.empty((0, self.width), dtype=np.float32)]
        pending: deque[Pending] = deque()  # chunks that are tokenised and not yet embedded
        of_documents: list[Passages] = []
        truncated = 0
        total = 0

        def tokenize(chunk: list[str]) -> Sequence[Sequence[int] | np.ndarray]:
            nonlocal truncated, total
            known = [None if kept is None else kept(text) for text in chunk]
            # All are tokenised: passages are windows of tokens, and all that are cut are counted.
            encoded, windows = self._tokenize(chunk, passages)
            lexical = None if half is None else half.lexical(chunk)
            pending.append(Pending(known, windows, lexical))
            truncated += encoded.truncated
            total += len(chunk)
            return [ids for ids, row in zip(encoded.sequences, known, strict=True) if row is None]

        with ExitStack() as stack:
            append: Callable[[np.ndarray], object] = in_memory.append
            if out is not None:
                append = stack.enter_context(growing_npy(Path(out), self.width))
            expected = len(texts) if isinstance(texts, Sized) else None
            bar: tqdm[str] = stack.enter_context(
                progress(desc=desc, total=expected, unit="documents")
            )
            # Generators are closed on an error: their threads end, and no partial file is left.
            chunks = closing(one_ahead(tokenize, tokenizing.batched(texts, CHUNK)))
            tokenised = stack.enter_context(chunks)
            embeddings = closing(embed_chunks(encoder, tokenised, devices, bf16, bar.update))
            for computed in stack.enter_context(embeddings):
                known, windows, lexical = pending.popleft()
                in_order = iter(computed)
                all_rows = [next(in_order) if row is None else row for row in known]
                bar.update(len(known) - len(computed))
                if passages is not None:
                    for row, cut in zip(all_rows, windows, strict=True):
                        of_documents.append(passages_of(cut, row, self.dim, half))
                rows = np.stack([row[: self.dim] for row in all_rows])
                if half is not None and lexical is not None:
                    rows = half.join(torch.from_numpy(rows), lexical).numpy()
                if not np.isfinite(rows).all():
                    problem = "an embedding is not finite: the student's weights are damaged"
                    raise InputError(f"{problem}; restore them")
                append(rows)
        if truncated:
            message = "%d of %d documents are cut at %d tokens"
            logger.warning(message, truncated, total, self.max_tokens)
        result = np.concatenate(in_memory) if out is None else np.load(out, mmap_mode="r")
        return result if passages is None else Embedded(result, of_documents)

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
        _, of_texts = self.embed(texts, passages=passages, bf16=bf16)
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
