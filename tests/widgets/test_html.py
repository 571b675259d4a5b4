"""Whatever a document holds shows as text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from docemb_lib.widgets import explorer as html

HOSTILE = [
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    '"><b onload=x>',
    "</pre></div><iframe>",
    "a & b",
]


class Parsed(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.values, self.text = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attributes]
        self.values += [value for _, value in attributes]

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "piece",
    [
        lambda t: html.document(t, t), html.message, lambda t: html.number("auc", t),
        lambda t: html.number(t, 1), lambda t: html.table("runs", [], [html.row([html.cell(t, 1)])]),
        lambda t: html.table("runs", [t], [html.row([html.cell("a", t)], model=t)]), lambda t: html.picture(b"", t),
    ],
    ids=["document", "message", "number", "name", "column", "table", "picture"],
)  # fmt: skip
def test_what_looks_like_html_shows_as_text(piece, text):
    made = Parsed(piece(text))
    assert not {"script", "iframe"} & set(made.tags)
    assert made.tags == Parsed(piece("harmless")).tags
    assert not [name for name in made.attributes if name.startswith("on")]
    assert text in made.text or any(text in value for value in made.values)


def test_a_long_document_is_cut_and_says_so():
    shown = Parsed(html.document("t", "x" * (html.LONGEST + 7))).text
    assert shown.count("x") == html.LONGEST
    assert "7 more characters" in shown
