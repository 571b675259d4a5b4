"""Pieces of HTML for explorers. Whatever comes from a document, a model or a file is escaped here."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

LONGEST = 4000  # characters of a document that are shown
CELL = "padding: 1px 10px 1px 0; text-align: left; vertical-align: top;"
BOX = (
    "flex: 1 1 300px; max-height: 260px; overflow: auto; white-space: pre-wrap; margin: 0; padding: 6px; "
    "font-size: 12px; line-height: 1.35; border: 1px solid var(--jp-border-color2, #999);"
)


def message(text: str) -> str:
    """One line instead of an answer."""
    return f'<p class="docemb-message">{escape(text)}</p>'


def picture(png: bytes, alt: str) -> str:
    """An image, with its description for those who do not see it."""
    data = base64.b64encode(png).decode("ascii")
    return (
        f'<img class="docemb-figure" style="max-width: 100%;" alt="{escape(alt)}" src="data:image/png;base64,{data}">'
    )


def number(name: str, value: object, tag: str = "b") -> str:
    """A number that can be found again: `<b class="docemb-auc">0.912</b>`."""
    return f'<{tag} class="docemb-{escape(name)}">{escape(str(value))}</{tag}>'


def cell(name: str, value: object) -> str:
    """The same in a table."""
    return f'<td class="docemb-{escape(name)}" style="{CELL}">{escape(str(value))}</td>'


def table(name: str, heads: Sequence[str], rows: Iterable[str]) -> str:
    """rows: ready `<tr>`s."""
    head = "".join(f'<th style="{CELL}">{escape(text)}</th>' for text in heads)
    return (
        f'<div style="overflow-x: auto;"><table class="docemb-{name}" style="border-collapse: collapse; '
        f'font-size: 12px;"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def row(cells: Iterable[str], **data: object) -> str:
    """A row; `data` says what it is about: `<tr data-model="cosine">`."""
    said = "".join(f' data-{name}="{escape(str(value))}"' for name, value in data.items())
    return f"<tr{said}>{''.join(cells)}</tr>"


def document(title: str, text: str) -> str:
    """A document as text, cut after `LONGEST` characters, and said so."""
    cut = "" if len(text) <= LONGEST else f"\n… ({len(text) - LONGEST} more characters)"
    return (
        f'<div style="{BOX}"><b>{escape(title)}</b>'
        f'<pre class="docemb-document" style="white-space: pre-wrap; background: none; color: inherit; '
        f'font-family: inherit; margin: 0;">{escape(text[:LONGEST] + cut)}</pre></div>'
    )


def side_by_side(pieces: Iterable[str]) -> str:
    """Beside each other, or below where there is no room."""
    return f'<div style="display: flex; flex-wrap: wrap; gap: 8px;">{"".join(pieces)}</div>'
