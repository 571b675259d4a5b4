"""Draws the validation and test data of these results: `python prepare.py FROM INTO`.

FROM holds wikipedia_articles.jsonl.gz (id, title, text), wiki_seealso/ and peps/ (corpus.jsonl.gz:
id, text; relevance.tsv: two ids a line), imdb20k.jsonl.gz and newsgroups20.jsonl.gz (id, text,
label, split). The profile reads what is in INTO.
"""

import gzip
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

VALIDATION, TEST = 360, 800  # articles of See-also retrieval
PASSAGE = 190  # words of a passage, about as many as MiniLM reads at once
MORE = 3000  # further test reviews
SAMPLES = {
    "imdb20k": ("imdb20k", 800, 1200),
    "20news": ("newsgroups20", 1000, 1500),
}  # file, train, test


def read(file: Path) -> Iterator[dict]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def write(file: Path, rows: Iterable[dict]) -> None:
    with gzip.open(file, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def write_links(file: Path, sources: Iterable[str], lists: dict[str, list[str]]) -> None:
    rows = [f"{source}\t{target}\n" for source in sources for target in lists[source]]
    file.write_text("".join(["source\ttarget\n", *rows]), encoding="utf-8")


def lists_of(links: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    lists = defaultdict(list)
    for source, target in links:
        lists[source].append(target)
    return lists


def components(links: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The articles that links connect have the same name."""
    parent: dict[str, str] = {}

    def root(article: str) -> str:
        parent.setdefault(article, article)
        while parent[article] != article:
            parent[article] = parent[parent[article]]
            article = parent[article]
        return article

    for source, target in links:
        parent[root(source)] = root(target)
    return {article: root(article) for article in parent}


def filled(
    lists: dict[str, list[str]], sources: Iterable[str], size: int
) -> tuple[list[str], dict[str, None]]:
    """Sources with all that they list, as long as there is room for both: sources taken, articles."""
    articles: dict[str, None] = {}
    taken = []
    for source in sources:
        new = {source, *lists[source]} - set(articles)
        if len(articles) + len(new) <= size:
            articles |= dict.fromkeys(sorted(new))
            taken.append(source)
    return taken, articles


def validation_of(links: list[tuple[str, str]]) -> tuple[list[str], dict[str, None]]:
    """Whole small components, so that validation and test share no link."""
    rng, lists, of = random.Random(0), lists_of(links), components(links)
    sources = sorted(lists)
    rng.shuffle(sources)
    groups = defaultdict(list)
    for source in sources:
        groups[of[source]].append(source)
    shuffled = list(groups.values())
    rng.shuffle(shuffled)
    pool: set[str] = set()
    candidates: list[str] = []
    for group in (group for group in shuffled if len(group) < 100):
        new = {article for source in group for article in (source, *lists[source])}
        if len(pool | new) > 600:
            break
        pool |= new
        candidates += group
    return filled(lists, candidates, VALIDATION)


def passage_of(article: dict, rng: random.Random) -> dict:
    """Some words of an article, of three articles in ten its first ones."""
    words = article["text"].split()
    first = rng.randrange(max(1, len(words) - PASSAGE)) if rng.random() < 0.7 else 0
    return {"id": str(article["id"]), "text": " ".join(words[first : first + PASSAGE])}


def main(origin: Path, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for whole in ("wikipedia_articles.jsonl.gz", "peps"):
        (into / whole).symlink_to((origin / whole).resolve())
    rng = random.Random(0)
    write(
        into / "passages.jsonl.gz",
        (passage_of(row, rng) for row in read(origin / "wikipedia_articles.jsonl.gz")),
    )
    texts = {row["id"]: row["text"] for row in read(origin / "wiki_seealso" / "corpus.jsonl.gz")}
    listed = (
        line.split("\t")
        for line in (origin / "wiki_seealso" / "relevance.tsv").read_text().splitlines()
    )
    links = [(a, b) for a, b in listed if a in texts and b in texts and a != b]
    sources, held = validation_of(links)
    write(into / "seealso-validation.jsonl.gz", ({"id": a, "text": texts[a]} for a in held))
    write_links(into / "seealso-validation.tsv", sources, lists_of(links))

    lists = lists_of((a, b) for a, b in links if a not in held and b not in held)
    shuffled = sorted(lists)
    random.Random(1).shuffle(shuffled)
    _, articles = filled(lists, shuffled, TEST)
    complete = [
        source
        for source in sorted(lists)
        if source in articles and set(lists[source]) <= set(articles)
    ]
    write(into / "seealso.jsonl.gz", ({"id": a, "text": texts[a]} for a in sorted(articles)))
    write_links(into / "seealso.tsv", complete, lists)
    write(
        into / "seealso-all.jsonl.gz",
        ({"id": a, "text": texts[a]} for a in sorted(texts) if a not in held),
    )
    write_links(into / "seealso-all.tsv", sorted(lists), lists)

    for name, (file, train, test) in SAMPLES.items():
        rows = list(read(origin / f"{file}.jsonl.gz"))
        random.Random(2).shuffle(rows)
        kept = [row for row in rows if row["text"].strip()]
        learnt = [row for row in kept if row["split"] == "train"][:train]
        others = [{**row, "split": "test"} for row in kept if row["split"] != "train"]
        write(into / f"{name}.jsonl.gz", learnt + others[:test])
        if name == "imdb20k":
            write(into / "imdb-more.jsonl.gz", learnt + others[test : test + MORE])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
