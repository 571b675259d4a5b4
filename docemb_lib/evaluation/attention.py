"""The attention of a student to nouns, verbs, adjectives and other words (SimDE paper, A.4)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import lcm
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from docemb_lib.base.progress import progress
from docemb_lib.corpus.rows import PARTS, tag_words

if TYPE_CHECKING:
    from docemb_lib.student import Student


def attention_by_part(student: Student, texts: Sequence[str]) -> pd.DataFrame:
    """Return columns document, part (of speech), words, attention, relative.

    attention: the mean attention that a word of this part receives in the last layer, over heads,
    from the tokens that the student pools: the first one ([CLS]), as in the paper (A.4, Figure 3),
    or all of them. relative: divided by the mean over all words of the document, so that 1 is the
    average whatever the length. English; text beyond the limit of the student is not counted.

    student: a Longformer in eval mode.
    """
    rows = []
    for document, text in enumerate(progress(texts, desc="attention", unit="documents")):
        weights, offsets = token_attention(student, text)
        words = pd.DataFrame(tag_words(text[: offsets.max()]), columns=["word", "part"])
        places = places_of(words["word"], text)
        words["attention"] = attention_of_words(weights, offsets, places)
        read = words.dropna()
        for part in PARTS:
            received = read.loc[read["part"] == part, "attention"]
            if len(received):
                mean = received.mean()
                relative = mean / read["attention"].mean()
                rows.append((document, part, len(received), mean, relative))
    return pd.DataFrame(rows, columns=["document", "part", "words", "attention", "relative"])


def places_of(words: Iterable[str], text: str) -> np.ndarray:
    """Return where each word starts and ends in the text, (W, 2); the words are in its order."""
    places = []
    end = 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        places.append((start, end))
    return np.array(places, dtype=int).reshape(-1, 2)


def attention_of_words(weights: np.ndarray, offsets: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Sum the attention to all tokens of each word: (W,), NaN for a word without a token.

    weights: (T,); offsets: (T, 2), the characters of a token; places: (W, 2). A token belongs to
    the word that holds its last character, since the first may be the space before the word.
    """
    of_words = np.full(len(places), np.nan)
    starts = places[:, 0].tolist()
    for weight, (start, end) in zip(weights, offsets, strict=True):
        word = bisect_right(starts, end - 1) - 1
        if end > start and word >= 0 and end <= places[word, 1]:
            of_words[word] = np.nansum([of_words[word], weight])
    return of_words


def token_attention(student: Student, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the attention that each token receives in the last layer, (T,), and its characters.

    It sums to 1, and is the mean over heads and over the tokens that the student pools. The
    characters are (T, 2).
    """
    import torch
    from torch.nn.functional import pad

    encoding = student.tokenizer(
        text, truncation=True, max_length=student.max_tokens, return_offsets_mapping=True
    )
    offsets = np.array(encoding["offset_mapping"])
    config = student.model.config
    ids = torch.tensor([encoding["input_ids"]], device=student.model.device)
    T = ids.shape[1]
    # The windows of the stock model must divide the number of tokens.
    padding = (0, -T % lcm(*config.attention_window))
    input_ids = pad(ids, padding, value=config.pad_token_id)
    is_text = pad(torch.ones_like(ids), padding)
    is_global = torch.zeros_like(is_text)
    is_global[0, 0] = student.pooling == "cls"
    with torch.inference_mode():
        output = student.model(
            input_ids,
            attention_mask=is_text,
            global_attention_mask=is_global,
            output_attentions=True,
        )
    if student.pooling == "cls":
        # (1, H, T, 1): from the global token to all tokens
        received = output.global_attentions[-1][0, :, :T, 0].mean(dim=0)
    else:
        queries = 1 if student.pooling == "first" else T
        # (Q, window + 1): from Q tokens to those around each, which is in the middle.
        local = output.attentions[-1][0, :, :queries].mean(dim=0)
        width = local.shape[1]
        around = local.new_zeros(T + width)
        for query, weights in enumerate(local):
            around[query : query + width] += weights
        received = around[width // 2 :][:T] / queries
    return received.double().cpu().numpy(), offsets
