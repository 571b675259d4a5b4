"""Wikipedia articles and the lists of similar ones that experts wrote: WINES and GAMES (Ginzburg et al. 2021).

Articles: a CSV file with a line of names and two columns, the title and the sections, these as a Python list of
(section title, section text). Relevance: a mapping of a title to the titles to be found, as JSON or as a pickle of
plain containers.
"""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docemb_lib.corpus.rows import read_csv, read_text, without_surrogates
from docemb_lib.errors import InputError
from docemb_lib.evaluation.safe_pickle import read_plain_pickle
from docemb_lib.evaluation.splits import Ranking

logger = logging.getLogger(__name__)


def read_ranking(articles: Path, relevance: Path) -> Ranking:
    """All articles as the pool, those with a list as queries.

    Titles without an article, and a list's own title, are left out, and so are lists that this leaves empty; both are
    counted in the log. Raises InputError, naming file and row.
    """
    texts = read_articles(articles)
    row = {title: number for number, title in enumerate(texts)}
    queries: list[int] = []
    relevant: list[list[int]] = []
    lists = read_relevance(relevance)
    missing = 0
    for title, targets in lists.items():
        found = [row[target] for target in targets if target in row and target != title]
        missing += len(targets) - len(found)
        if title in row and found:
            queries.append(row[title])
            relevant.append(found)
    if left := len(lists) - len(queries):
        logger.warning("%s: %d of %d lists are left out: no article, or none to be found", relevance, left, len(lists))
    if missing:
        logger.warning("%s: %d titles to be found are left out: they have no article", relevance, missing)
    if not queries:
        raise InputError(f"{relevance}: no list belongs to the articles of {articles}; both must be one task's")
    return Ranking(list(texts.values()), queries, relevant)


def read_articles(file: Path) -> dict[str, str]:
    """Text of each article by its title, in their order: the title, then every section that is not empty."""
    texts: dict[str, str] = {}
    for row in read_csv(file):
        values = list(row.fields.values())
        if len(values) != 2:
            raise InputError(f"{file}: has {len(values)} columns, expected two, an article's title and its sections")
        title = without_surrogates(values[0])
        if title in texts:
            raise InputError(f"{row.where}: the title {title!r} stands in an earlier row too; rename or delete one")
        texts[title] = without_surrogates(" ".join([title, *_sections(values[1], where=row.where)]))
    if not texts:
        raise InputError(f"{file}: holds no article below its line of names; download it again")
    return texts


def _sections(literal: str, *, where: str) -> list[str]:
    """`"[('Taste', 'Sour.'), ('History', '')]"` → `["Taste Sour."]`."""
    try:
        sections = ast.literal_eval(literal)
        return [f"{title} {text}" for title, text in sections if text.strip()]
    except (ValueError, TypeError, AttributeError, SyntaxError, MemoryError, RecursionError) as error:
        raise InputError(
            f"{where}: the sections must be a Python list of (title, text), found {literal[:40]!r}; mend the row"
        ) from error


def read_relevance(file: Path) -> dict[str, list[str]]:
    """The titles to be found for each title, each once; the inner values of a mapping (votes) are not looked at."""
    data = _read_json(file) if file.suffix == ".json" else read_plain_pickle(file)
    if not isinstance(data, Mapping) or not data:
        raise InputError(f"{file}: holds {type(data).__name__}, expected a mapping of titles; look at the file")
    lists: dict[str, list[str]] = {}
    for title, targets in data.items():
        if not isinstance(title, str):
            raise InputError(f"{file}: a title is {type(title).__name__}, expected a string; look at the file")
        if not isinstance(targets, Mapping | list | tuple | set | frozenset):
            raise InputError(f"{file}: {title!r} has {type(targets).__name__}, expected titles; look at the file")
        names = sorted(targets, key=str) if isinstance(targets, set | frozenset) else list(targets)
        if not all(isinstance(name, str) for name in names):
            raise InputError(f"{file}: {title!r} has a title that is no string; look at the file")
        lists[without_surrogates(title)] = list(dict.fromkeys(map(without_surrogates, names)))
    return lists


def _read_json(file: Path) -> Any:
    try:
        return json.loads(read_text(file))
    except json.JSONDecodeError as error:
        raise InputError(f"{file}: not JSON ({error.msg} in line {error.lineno}); mend it") from error
    except RecursionError:
        raise InputError(f"{file}: nested too deeply for a mapping of titles; look at the file") from None
