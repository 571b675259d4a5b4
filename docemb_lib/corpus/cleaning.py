"""Take out of a documentation page what would answer a task: its See Also references and its package's name."""

from __future__ import annotations

import re
from typing import NamedTuple

# Whatever stands around them, so that `to_numpy` and `NetworkXError` answer the package task no more than `numpy` does.
NAMES = (
    r"scikit[\W_]{0,9}learn|natural language toolkit|pytorch|torch|numpy|scipy|sklearn|pandas|matplotlib|seaborn|nltk|"
    r"gensim|networkx|sympy"
)
ALIASES = r"np|sp|pd|mpl|plt|sns|nx"  # customary in examples; only as whole identifiers
NAME = re.compile(rf"(?:{NAMES}|\b(?:{ALIASES})\b)(?:\.(?=\w))?", re.IGNORECASE)
IMPORT = re.compile(
    rf"^[ \t]*(?:>>> |\.\.\. )?import[ \t]+(?:{NAMES})(?:\.\w+)*(?:[ \t]+as[ \t]+\w+)?[ \t]*(?:#.*)?$",
    re.IGNORECASE | re.MULTILINE,
)
FROM = re.compile(rf"\bfrom[ \t]+(?:{NAMES})[ \t]+(?=import\b)", re.IGNORECASE)

HEADING = re.compile(r"see[ -]?also\s*:?\s*|\.\. seealso::(?P<inline>.*)", re.IGNORECASE)
RULE = re.compile(r"([-=~^*])\1{2,}\s*")
# In running text: a whole parenthesis, else up to the end of the sentence or paragraph.
SENTENCE = re.compile(
    r"\(\s*see[ -]?also\b(?:[^()]|\([^()]*\))*\)|"
    r":?\bsee[ -]?also\b(?:(?!\n[ \t]*\n).)*?(?:\.(?=\s|$)|(?=\n[ \t]*\n)|\Z)",
    re.IGNORECASE | re.DOTALL,
)
LEAD = re.compile(r"\W*see[ -]?also\s*(?::(?=\s))?\s*", re.IGNORECASE)
# `a.b`, ``a.b``, :func:`~a.b`, :func:`title <a.b>`
QUOTED = re.compile(r"(?::[\w:+-]+:)?`+(?:[^`<]*<)?[~!.]*([\w.]+)(?:\(\))?>?`+_?")
PATH = re.compile(r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|\b\w+_\w+\b|\b\w+(?=\(\))")  # a.b, a_b or a(): no word of prose
LIST = re.compile(r"\.?[A-Za-z_][\w.]*(?:\(\))?(?:(?:\s*,\s*|\s+and\s+)\.?[A-Za-z_][\w.]*(?:\(\))?)*\s*[.,]?")


class Cut(NamedTuple):
    """A text without its See Also references, and the names they cite, in order, each once."""

    text: str
    cited: tuple[str, ...]


def cut_see_also(text: str) -> Cut:
    """Remove See Also sections (numpydoc), `.. seealso::` blocks (Sphinx) and "See also ..." sentences from `text`."""
    kept: list[str] = []
    cited: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        heading = HEADING.fullmatch(lines[at].strip())
        if heading is None:
            kept.append(lines[at])
            at += 1
            continue
        inline = heading["inline"] or ""
        end = _block_end(lines, at, inline=bool(inline.strip()))
        block = [line for line in lines[at + 1 : end] if line.strip() and not RULE.fullmatch(line.strip())]
        entries = [line for line in block if _indent(line) == _indent(block[0])]  # not what describes them below
        for entry in [inline, *entries]:
            cited += _names(entry)
        at = end
    text = "\n".join(kept)
    for sentence in SENTENCE.findall(text):
        cited += _names(LEAD.sub("", sentence.strip("()")))
    return Cut(_tidy(SENTENCE.sub("", text)), tuple(dict.fromkeys(cited)))


def remove_names(text: str) -> str:
    """`text` without the eleven packages' names and aliases; `numpy.argsort` becomes `argsort`."""
    text = IMPORT.sub("", text)
    text = FROM.sub("", text)
    return _tidy(NAME.sub("", text))


def _block_end(lines: list[str], heading: int, *, inline: bool) -> int:
    """Index of the first line after the block that `lines[heading]` opens.

    Under an underlined heading that is the next underlined heading. Without the underline it is the end of what is
    indented deeper, or, where nothing is and none of it stands `inline` after the heading, the end of the next
    paragraph. Text indented less always ends it.
    """
    indent = _indent(lines[heading])
    at = heading + 1
    if at < len(lines) and RULE.fullmatch(lines[at].strip()):
        at += 1
        while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) >= indent):
            if lines[at].strip() and at + 1 < len(lines) and RULE.fullmatch(lines[at + 1].strip()):
                break
            at += 1
        return at
    while at < len(lines) and not lines[at].strip():
        at += 1
    if at < len(lines) and _indent(lines[at]) > indent:
        while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > indent):
            at += 1
    elif not inline:
        while at < len(lines) and lines[at].strip() and _indent(lines[at]) >= indent:
            at += 1
    return at


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _names(text: str) -> list[str]:
    """The names cited in one entry (`a, b : what they do`) or in a sentence of prose."""
    plain = QUOTED.sub(r"\1", text)
    head = re.split(r"\s:|:\s|:$", plain.strip().removeprefix("- ").removeprefix("* "))[0].strip()
    if LIST.fullmatch(head):
        found = re.split(r"\s*,\s*|\s+and\s+", head)
    else:
        found = QUOTED.findall(text) + PATH.findall(QUOTED.sub(" ", text))
    return [name for name in (item.replace("()", "").strip(" .,") for item in found) if name]


def _tidy(text: str) -> str:
    """No trailing spaces, no runs of blank lines."""
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")
