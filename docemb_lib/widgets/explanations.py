"""Why two documents are near: both beside each other, with the passages and words that add most."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from docemb_lib.figures import short
from docemb_lib.widgets import explorer as html

if TYPE_CHECKING:
    from docemb_lib.student.explanation import Explanation, Pair

MARKS = "①②③④⑤"  # of the pairs of passages that are linked in the texts
WORDS = 12  # that are listed
BEGIN = 90  # characters of a passage in a list
CELL = "padding: 1px 6px; text-align: right;"
# Translucent, so that the text of a cell is legible on light and dark pages: more and less similar.
MORE = "49, 130, 206"
LESS = "221, 107, 32"
CHOSEN = f"border-left: 4px solid rgb({MORE}); padding-left: 4px; margin: 4px 0;"


def side_by_side(
    explanation: Explanation,
    texts: tuple[str, str],
    titles: tuple[str, str],
    chosen: int = 0,
    why: int = 0,
) -> str:
    """One line, contributions of pairs of passages, both texts with linked passages, and words.

    chosen: of the strongest pairs, the one that is set apart, counted from 0. why: the setting that
    shows this explanation, which the buttons that choose another pair keep.
    """
    linked = [pair for pair in explanation.strongest_pairs(len(MARKS)) if pair.contribution > 0]
    chosen = min(chosen, len(linked) - 1)
    boxes = ""
    for side, title in enumerate(titles):
        places = [pair[:2][side] for pair in linked]
        boxes += _passages(title, texts[side], explanation.spans[side], places, chosen)
    words = [*explanation.words.items()][:WORDS]
    by_word = pd.DataFrame(words, columns=["word", "contribution"])
    listed = html.table("words", by_word) if explanation.words else ""
    tables = f"{_heatmap(explanation, linked, titles, why)}{listed}"
    wrapped = "display: flex; flex-wrap: wrap; gap: 8px 24px; margin-bottom: 8px;"
    return (
        f'<p class="docemb-summary"><b>{escape(str(explanation))}</b></p>'
        f'<div style="{wrapped}">{tables}</div><div style="{wrapped}">{boxes}</div>'
        "<p>A passage counts by its states, which have seen the text around it.</p>"
    )


def _heatmap(
    explanation: Explanation, linked: list[Pair], titles: tuple[str, str], why: int
) -> str:
    """Contributions of pairs in hundredths of a cosine; the linked pairs have their marks."""
    marks = {}
    for number, (mark, pair) in enumerate(zip(MARKS, linked, strict=False)):
        marks[pair[:2]] = html.button(mark, f"pair {number + 1}", why=why, pair=number)
    strongest = float(np.abs(explanation.pairs).max()) or 1.0
    numbers = "".join(f'<th style="{CELL}">{n + 1}</th>' for n in range(explanation.pairs.shape[1]))
    rows = f'<tr><th style="{CELL}">100 ×</th>{numbers}</tr>'
    for first, contributions in enumerate(explanation.pairs):
        cells = f'<th style="{CELL}">{first + 1}</th>'
        for second, value in enumerate(contributions.tolist()):
            colour = MORE if value > 0 else LESS
            shade = f"background: rgba({colour}, {0.6 * abs(value) / strongest:.2f});"
            # Adding zero turns -0.0 into 0.0.
            text = f"{round(100 * value, 1) + 0.0:.1f}{marks.get((first, second), '')}"
            cells += f'<td style="{CELL} {shade}">{text}</td>'
        rows += f"<tr>{cells}</tr>"
    caption = f"passages of {escape(titles[0])} by those of {escape(titles[1])}"
    table = f'<table class="docemb-pairs" aria-label="{caption}">{rows}</table>'
    return f'<div style="overflow-x: auto; max-width: 100%;">{caption}{table}</div>'


def _passages(title: str, text: str, spans: np.ndarray, linked: list[int], chosen: int) -> str:
    """A document by its passages: first that of the chosen pair in full, then how each begins."""
    whole = ""
    listed = ""
    for number, (start, end) in enumerate(spans.tolist()):
        passage = text[start:end]
        marks = "".join(mark for mark, place in zip(MARKS, linked, strict=False) if place == number)
        name = f"<b>{number + 1} {marks}</b>"
        if chosen >= 0 and linked[chosen] == number:
            content = f"{name} {escape(passage)}"
            whole = f'<div class="docemb-chosen" style="{CHOSEN}">{content}</div>'
        shade = f"background: rgba({MORE}, 0.25);" if marks else ""
        begin = escape(short(" ".join(passage.split()), BEGIN))
        listed += f'<div class="docemb-passage" style="{shade}">{name} {begin}</div>'
    label = f'tabindex="0" role="region" aria-label="{escape(title)}"'
    return f'<div {label} style="{html.BOX}"><b>{escape(title)}</b>{whole}{listed}</div>'
