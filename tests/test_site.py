"""The documentation builds without a warning, describes the public names and needs no network."""

import re
from pathlib import Path
from pkgutil import resolve_name
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup, Tag
from conftest import REPOSITORY
from sphinx.cmd.build import main as sphinx_build
from sphinx.util.inventory import InventoryFile

import docemb_lib
from docemb_lib.settings.sections import Section

PUBLIC = [
    *(f"docemb_lib.{name}" for name in docemb_lib.__all__),
    "docemb_lib.student.Student",
    "docemb_lib.teachers.SBERT",
    "docemb_lib.teachers.ParagraphVector",
    *(
        f"docemb_lib.losses.{name}"
        for name in ("MSE", "Cosine", "MaxMargin", "Contrastive", "SoftCCA", "CCA", "Projection")
    ),
    *(
        f"docemb_lib.evaluation.{name}"
        for name in ("Classification", "Pairs", "Retrieval", "evaluate")
    ),
]
pytestmark = pytest.mark.slow
# What a browser loads unasked.
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


def parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """What the README's command builds, where no notebook was executed."""
    folder = tmp_path_factory.mktemp("site")
    options = ["-q", "-W", "--keep-going", "-c", str(REPOSITORY / "docs")]
    assert sphinx_build([*options, str(REPOSITORY), str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, BeautifulSoup]:
    return {path: parsed(path) for path in sorted(site.rglob("*.html"))}


@pytest.fixture(scope="module")
def anchors(pages) -> dict[Path, dict[str, Tag]]:
    """The elements with an id of each page: to find one by its id takes as long as to find all."""
    return {
        path: {tag["id"]: tag for tag in page.find_all(id=True)} for path, page in pages.items()
    }


@pytest.fixture(scope="module")
def entries(site, anchors) -> list[tuple[object, str]]:
    """Each object that the API describes, and the text of its entry."""
    described = []
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    for kind in ("py:class", "py:function", "py:module"):
        for name, item in inventory[kind].items():
            path, _, anchor = item.uri.partition("#")
            target = anchors[site / path][anchor]
            text = target.find_next("p") if kind == "py:module" else target.find_next_sibling("dd")
            described.append((resolve_name(name), text.get_text()))
    return described


def words(text: str) -> list[str]:
    return re.findall("[A-Za-z]{2,}", text)


def test_public_and_exported_names_have_an_entry_that_begins_as_their_docstring(entries):
    objects = [resolve_name(name) for name in PUBLIC]
    for room in ("student", "teachers", "losses", "evaluation", "thesis"):
        package = resolve_name(f"docemb_lib.{room}")
        exported = (getattr(package, name) for name in package.__all__)
        objects += [item for item in exported if hasattr(item, "__name__") and callable(item)]
    described = {id(entry): text for entry, text in entries}
    assert [public for public in objects if id(public) not in described] == []
    for public in objects:
        text = described[id(public)]
        first = words(public.__doc__)[:5]
        assert len(first) == 5
        assert words(text)[:5] == first


def test_every_field_of_a_profile_is_described_with_its_comment(site, pages):
    api = site / "docs" / "api"
    text = "".join(pages[api / name].get_text() for name in ("runs.html", "evaluation.html"))
    sections = []
    for section in Section.__subclasses__():
        if section.__module__.startswith("docemb_lib.settings"):
            sections.append(section)
    assert len(sections) > 10
    for section in sections:
        for field in section.model_fields:
            assert re.search(rf"^{field} – ", text, flags=re.MULTILINE), field
    comment = "Maximum; None: all. For a hub None must be written"
    assert f"documents – Count | None = None: {comment}" in text


def test_browsers_load_nothing_from_a_network(site, pages):
    assert len(pages) > 15
    for path, page in pages.items():
        for tag in page.find_all(list(LOADED)):
            assert not urlsplit(tag.get(LOADED[tag.name]) or "").netloc, (path, tag)
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\W*(https?:)?//|@import", style.read_text(encoding="utf-8")), (
            style
        )


def targets(pages: dict[Path, BeautifulSoup]):
    """Page, path and anchor of each link and picture that stays in the site."""
    for path, page in pages.items():
        for tag in page.find_all(["a", *LOADED]):
            link = urlsplit(tag.get(LOADED.get(tag.name, "href")) or "")
            if not link.scheme and (link.path or link.fragment):
                target = path
                if link.path:
                    target = (path.parent / unquote(link.path)).resolve()
                yield path, target, unquote(link.fragment)


def test_every_link_leads_to_a_file_and_an_anchor_of_the_site(site, pages, anchors):
    followed = list(targets(pages))
    assert len(followed) > 500
    for page, target, anchor in followed:
        assert target.is_file(), (page, target)
        assert target.is_relative_to(site), (page, target)
        assert not anchor or anchor in anchors[target], (page, target, anchor)


def test_index_leads_to_the_readme_without_a_diagram_that_needs_a_network(site, pages):
    refresh = pages[site / "index.html"].find("meta", {"http-equiv": "refresh"})
    first = pages[site / refresh["content"].partition("url=")[2]].find("article")
    assert "long-document embeddings" in first.find("p").get_text()
    assert "flowchart" not in first.get_text()
