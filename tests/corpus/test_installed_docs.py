import re
import subprocess
import sys
import textwrap

import pytest

from docemb_lib.corpus import PACKAGES, Document, installed_docs
from docemb_lib.errors import InputError

# Written apart from the library's own patterns.
PACKAGE_NAME = re.compile(
    r"(?i)numpy|scipy|sklearn|scikit.?learn|pandas|matplotlib|seaborn|torch|nltk|gensim|networkx|sympy"
    r"|(?<![a-z0-9_])(np|sp|pd|plt|mpl|sns|nx)(?![a-z0-9_])"
)
SEE_ALSO = re.compile(r"(?im)^\W*see[ -]?also\b")

FILES = {
    "__init__.py": '"""Everything for the shop, gathered in one place for you."""',
    "_till.py": '''
        def count(till):
            """Count the coins of a till, by hand and with NumPy.

            See Also
            --------
            weigh : The quick way.
            Till.empty
            count
            minishop.shelf.count
            nowhere
            """

        class Till:
            """Keeps the coins of a day in five small boxes.

            See also :func:`count`.
            """
            def empty(self):
                """Take all coins out.

                See Also
                --------
                weigh
                """

        def short():
            """Too few words."""
        ''',
    "shelf.py": '''
        def count():
            """Count the boxes that stand on a shelf in the shop."""

        def weigh():
            """Weigh everything that stands on a shelf.

            See Also
            --------
            count
            """
        ''',
    "copies.py": '''
        def tally():
            """Count the boxes that STAND on a shelf
            in the shop."""
        ''',
    "tests/test_till.py": '"""A test with quite a few words in its docstring."""',
}

EXPECTED = [
    Document("minishop", "Everything for the shop, gathered in one place for you.", "minishop"),
    Document("minishop.Till", "Keeps the coins of a day in five small boxes.\n\nempty\nTake all coins out.", "minishop",
             ("minishop.count", "minishop.shelf.weigh")),
    Document("minishop.copies.tally", "Count the boxes that STAND on a shelf\nin the shop.", "minishop"),
    Document("minishop.count", "Count the coins of a till, by hand and with .", "minishop",
             ("minishop.shelf.weigh", "minishop.Till")),
    Document("minishop.shelf.weigh", "Weigh everything that stands on a shelf.", "minishop", ("minishop.count",)),
]  # fmt: skip


def write_package(root, name, files):
    for path, content in files.items():
        file = root / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(content), encoding="utf-8")


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_package_becomes_exactly_its_pages_with_their_links(site):
    write_package(site, "minishop", FILES)
    assert installed_docs(["minishop"], min_words=6, jobs=1) == EXPECTED
    assert "minishop" not in sys.modules


def test_a_name_shared_by_two_private_modules_keeps_the_full_path(site):
    write_package(
        site,
        "twins",
        {
            "__init__.py": "",
            "_a.py": 'def f():\n    """The first of two."""',
            "_b.py": 'def f():\n    """The second of two."""',
            "c.py": 'def g():\n    """Cites.\n\n    See Also\n    --------\n    f\n    twins._b.f\n    """',
        },
    )
    documents = installed_docs(["twins"], min_words=1, jobs=1)
    assert [document.id for document in documents] == ["twins._a.f", "twins._b.f", "twins.c.g"]
    assert documents[2].see_also == ("twins._b.f",)  # `f` alone could be either


def test_a_copy_is_left_out_across_packages_too(site):
    page = 'def f():\n    """One page in two packages."""'
    write_package(site, "alpha", {"__init__.py": page})
    write_package(site, "beta", {"__init__.py": page.replace("One", "ONE")})
    assert [document.id for document in installed_docs(["beta", "alpha"], min_words=1, jobs=1)] == ["alpha.f"]


def test_a_package_that_is_not_installed_is_refused_with_its_name_and_the_mend():
    with pytest.raises(InputError, match=r"'nowhere_at_all' is not installed; install it \(pip install -e \.\)"):
        installed_docs(["nowhere_at_all"])


@pytest.fixture(scope="module")
def real():
    return installed_docs(["seaborn", "networkx"], jobs=2)


def test_real_pages_are_distinct_sorted_long_enough_and_linked_inside_their_package(real):
    by_id = {document.id: document for document in real}
    assert list(by_id) == sorted(by_id)
    assert len(by_id) == len(real)
    assert {document.source for document in real} == {"seaborn", "networkx"}
    assert min(len(document.text.split()) for document in real) >= 80
    assert len({" ".join(document.text.lower().split()) for document in real}) == len(real)
    for document in real:
        assert document.id not in document.see_also
        assert all(by_id[target].source == document.source for target in document.see_also)


def test_real_pages_hold_neither_a_see_also_nor_a_name_of_a_package(real):
    found = [
        match.group() for page in real for pattern in (PACKAGE_NAME, SEE_ALSO) for match in pattern.finditer(page.text)
    ]
    assert found == []


def test_links_of_real_pages_are_those_a_reader_finds(real):
    pages = {page.id: page for page in real}
    page = pages["networkx.algorithms.efficiency_measures.efficiency"]
    assert page.see_also == (
        "networkx.algorithms.efficiency_measures.local_efficiency",
        "networkx.algorithms.efficiency_measures.global_efficiency",
    )
    assert "seaborn.distributions.kdeplot" in pages["seaborn.distributions.histplot"].see_also


def test_the_pages_depend_neither_on_what_is_imported_nor_on_the_number_of_processes(real):
    program = (
        "import sys, {before}; from docemb_lib.corpus import installed_docs; "
        "documents = installed_docs(['networkx', 'seaborn'], jobs=1); "
        "import hashlib; print(hashlib.sha256(repr(documents).encode()).hexdigest(), 'networkx' in sys.modules)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program.format(before=before)], capture_output=True, text=True, check=True
        ).stdout.split()
        for before in ("re", "networkx")
    ]
    assert runs[0][0] == runs[1][0]
    assert [imported for _, imported in runs] == ["False", "True"]
    jobs_1 = installed_docs(["networkx", "seaborn"], jobs=1)
    assert jobs_1 == real


def test_the_default_packages_are_the_eleven_classes_of_the_package_task():
    assert len(set(PACKAGES)) == len(PACKAGES) == 11
