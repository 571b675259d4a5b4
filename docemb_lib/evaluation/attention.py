"""Which words a document's embedding attends to, by their part of speech (the SimDE paper, Figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from docemb_lib.corpus.parts_of_speech import PARTS, Word, tag_words
from docemb_lib.errors import InputError
from docemb_lib.progress import progress

if TYPE_CHECKING:
    from torch import Tensor

    from docemb_lib.student import Student


def attention_by_part(student: Student, texts: Sequence[str]) -> pd.DataFrame:
    """A row per document and part of speech: columns document, part, words, attention and relative.

    attention: what one such word gets in the last layer, mean over heads, from the tokens that are pooled: the first
    one, as in the paper, or the mean over all. relative: divided by what a word of the document gets in the mean, so
    that 1 is as much as any word, whatever the length. English; what the student does not read does not count.
    Raises InputError for a student that gives no attentions, and where no text has a word.
    """
    rows = []
    for number, text in enumerate(progress(texts, desc="attention", unit="documents")):
        weights, offsets = token_attention(student, text)
        words = tag_words(text[: offsets.max()])  # what the student reads of it
        by_word = attention_of_words(weights, offsets, words)
        read = ~np.isnan(by_word)
        parts = np.array([word.part for word in words], dtype=object)
        for part in PARTS:
            own = by_word[read & (parts == part)]
            if len(own):
                rows.append((number, part, len(own), own.mean(), own.mean() / by_word[read].mean()))
    if not rows:
        raise InputError(f"attention: none of the {len(texts)} texts has a word; give documents")
    return pd.DataFrame(rows, columns=["document", "part", "words", "attention", "relative"])


def attention_of_words(weights: np.ndarray, offsets: np.ndarray, words: Sequence[Word]) -> np.ndarray:
    """What each word gets, the sum over its tokens; NaN for one without a token: (W,).

    weights: (T,); offsets: (T, 2), the characters of each token. A token belongs to the word in which its last
    character stands: its first may be the space before.
    """
    found = np.full(len(words), np.nan)
    starts = np.array([word.start for word in words], dtype=np.int64)
    for weight, (start, end) in zip(weights, offsets, strict=True):
        place = int(np.searchsorted(starts, end - 1, side="right")) - 1
        if end > start and place >= 0 and end <= words[place].end:
            found[place] = weight + (0.0 if np.isnan(found[place]) else found[place])
    return found


def token_attention(student: Student, text: str) -> tuple[np.ndarray, np.ndarray]:
    """What each token of a text gets in the last layer, (T,), and its characters in the text, (T, 2).

    Special tokens stand at the ends, with characters (0, 0); with theirs, the weights sum to 1.
    """
    import torch

    if student.config.model_type != "longformer":
        raise InputError(f"attention: a {student.config.model_type} gives none; take a student with BERT's layers")
    encoding = student.tokenizer(text, truncation=True, max_length=student.max_tokens, return_offsets_mapping=True)
    ids, offsets = encoding["input_ids"], np.array(encoding["offset_mapping"])
    T, window = len(ids), max(student.config.attention_window)
    padding = -T % window  # the stock model would do it, with a warning
    input_ids = torch.tensor([ids + [student.config.pad_token_id] * padding], device=student.device)
    is_text = (torch.arange(T + padding, device=student.device) < T)[None].long()
    is_global = torch.zeros_like(is_text)
    is_global[0, 0] = student.pooling == "cls"
    training = student.training
    student.eval()
    with torch.inference_mode():
        output = student.model(
            input_ids, attention_mask=is_text, global_attention_mask=is_global, output_attentions=True
        )
    student.train(training)
    if student.pooling == "cls":
        received = output.global_attentions[-1][0, :, :T, 0].mean(0)
    else:
        pooled = 1 if student.pooling == "first" else T
        received = _received(output.attentions[-1][0, :, :pooled].mean(0), T)
    return received.double().cpu().numpy(), offsets


def _received(local: Tensor, T: int) -> Tensor:
    """What T tokens get from Q queries in the mean: (T,). local: (Q, window + 1), whose middle is the query itself."""
    Q, width = local.shape
    half = width // 2
    around = local.new_zeros(half + T + half)
    for query, weights in enumerate(local):
        around[query : query + width] += weights
    return around[half : half + T] / Q
