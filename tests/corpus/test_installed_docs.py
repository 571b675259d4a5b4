"""Pages of installed packages become documents, with their links and without names of packages."""

import ast
import re
import sys
import textwrap
from importlib import import_module

import pytest
from conftest import write_files

from docemb_lib.corpus import installed_docs as library
from docemb_lib.corpus.document import Document
from docemb_lib.corpus.installed_docs import cut_see_also, installed_docs

# Written apart from the library's own patterns.
PACKAGE_NAME = re.compile(
    r"(?i)numpy|scipy|sklearn|scikit.?learn|pandas|matplotlib|seaborn|torch|nltk|gensim|"
    r"networkx|sympy"
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
    "long.py": f'"""{"A page of too many words. " * 9}"""',
    "copies.py": 'def tally():\n    """Count the boxes that STAND on a shelf\n    in the shop."""',
    "tests/test_till.py": '"""A test with quite a few words in its docstring."""',
}
EXPECTED = [
    Document("minishop", "Everything for the shop, gathered in one place for you.", "minishop"),
    Document(
        "minishop.Till",
        "Keeps the coins of a day in five small boxes.\n\nempty\nTake all coins out.",
        "minishop",
        ("minishop.count", "minishop.shelf.weigh"),
    ),
    Document(
        "minishop.copies.tally", "Count the boxes that STAND on a shelf\nin the shop.", "minishop"
    ),
    Document(
        "minishop.count",
        "Count the coins of a till, by hand and with .",
        "minishop",
        ("minishop.shelf.weigh", "minishop.Till"),
    ),
    Document(
        "minishop.shelf.weigh",
        "Weigh everything that stands on a shelf.",
        "minishop",
        ("minishop.count",),
    ),
]


def write_package(root, name, files):
    write_files(root / name, {path: textwrap.dedent(content) for path, content in files.items()})


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_package_becomes_exactly_its_pages_with_their_links_imported_or_not(site):
    write_package(site, "minishop", FILES)
    assert installed_docs(["minishop"], words=(6, 50)) == EXPECTED
    assert "minishop" not in sys.modules
    import_module("minishop")
    assert installed_docs(["minishop"], words=(6, 50)) == EXPECTED


def test_a_name_shared_by_private_modules_keeps_its_full_path(site):
    twins = {f"_{name}.py": f'def f():\n    """{name}: one of two."""' for name in "ab"}
    citing = 'def g():\n    """Cites.\n\n    See Also\n    --------\n    f\n    twins._b.f\n    """'
    write_package(site, "twins", {"__init__.py": "", **twins, "c.py": citing})
    documents = installed_docs(["twins"], words=(1, 50))
    assert [document.id for document in documents] == ["twins._a.f", "twins._b.f", "twins.c.g"]
    assert documents[2].see_also == ("twins._b.f",)  # `f` alone could be either


def test_a_copy_in_another_package_is_left_out(site):
    page = 'def f():\n    """One page in two packages."""'
    write_package(site, "alpha", {"__init__.py": page})
    write_package(site, "beta", {"__init__.py": page.replace("One", "ONE")})
    documents = installed_docs(["beta", "alpha"], words=(1, 50))
    assert [document.id for document in documents] == ["alpha.f"]


def test_a_missing_package_is_named(refused):
    said = r"nowhere_at_all is not installed; install it \(`pip install`\)"
    refused(said, installed_docs, ["nowhere_at_all"])


@pytest.fixture(scope="module")
def real():
    return installed_docs(["seaborn", "networkx"])


def test_real_pages_are_distinct_sorted_and_long_enough_and_refer_to_others_of_their_package(real):
    by_id = {page.id: page for page in real}
    assert [page.id for page in real] == sorted(by_id)
    assert {page.source for page in real} == {"seaborn", "networkx"}
    assert len({" ".join(page.text.lower().split()) for page in real}) == len(real)
    for page in real:
        assert 80 <= len(page.text.split()) <= 6000
        assert {by_id[target].source for target in page.see_also} <= {page.source}
        assert page.id not in page.see_also


@pytest.mark.parametrize("pattern", [PACKAGE_NAME, SEE_ALSO])
def test_real_pages_give_no_answer_of_a_task_away(real, pattern):
    assert [match.group() for page in real for match in pattern.finditer(page.text)] == []


def test_real_references_are_resolved_as_a_reader_would(real):
    pages = {page.id: page for page in real}
    of = "networkx.algorithms.efficiency_measures"
    assert pages[f"{of}.efficiency"].see_also == (
        f"{of}.local_efficiency",
        f"{of}.global_efficiency",
    )
    assert "seaborn.distributions.kdeplot" in pages["seaborn.distributions.histplot"].see_also


# Reading docstrings
SOURCE = '''
"""The shop and its till."""
def sell(item):
    """Sell one item.

        The price is asked of the till.
    """
def undocumented(): pass
def _hidden(): "Nobody reads this."
try:
    def restock(): "Fill the shelves."
except ImportError:
    restock = None
class Till:
    """Keeps the coins."""
    def __init__(self, coins): "coins: those it starts with."
    def count(self): "How many there are."
    def _rattle(self): "Private noise."
class Drawer:
    def open(self): "Open it, if it is not stuck."
def weigh(): pass
weigh.__doc__ = dedent("""\\
    Weigh {what} on {scales.old}; a set is {{a, b}}.
    """).format(what="flour")
add_newdoc("shop._core", "scan", "Scan a code.")
add_newdoc("shop._core", "Scanner", ("beep", "Beep once."))
add_newdoc("ring", "Ring the bell.")
bag = _add_docstr(shop._C.shop_bag, r"Bag %d items.")
add_docstr(shop.bundle, "Bundle" + " them.")
add_docstr_all("tear", "Tear along the line.")
'''


@pytest.fixture
def pages_of(tmp_path):
    def pages(content, module="shop.front"):
        write_files(tmp_path, {"front.py": content})
        return library.read_pages(tmp_path / "front.py", module)

    return pages


def test_every_public_documented_object_is_one_page(pages_of):
    assert pages_of(SOURCE) == {
        "shop.front": {"": "The shop and its till."},
        "shop.front.sell": {"": "Sell one item.\n\nThe price is asked of the till."},
        "shop.front.restock": {"": "Fill the shelves."},
        "shop.front.Till": {
            "": "Keeps the coins.\n\ncoins: those it starts with.",
            "count": "How many there are.",
        },
        "shop.front.Drawer": {"": "", "open": "Open it, if it is not stuck."},
        "shop.front.weigh": {"": "Weigh  on ; a set is {a, b}."},
        "shop._core.scan": {"": "Scan a code."},
        "shop._core.Scanner": {"": "", "beep": "Beep once."},
        "shop.front.ring": {"": "Ring the bell."},
        "shop.front.bag": {"": "Bag %d items."},
        "shop.bundle": {"": "Bundle them."},
        "torch.Tensor.tear": {"": "Tear along the line."},
    }


@pytest.mark.parametrize(
    ("content", "docs"),
    [
        (
            '"""Notes to ourselves."""\ndef sell():\n    """Sell."""\n',
            ["Sell."],
        ),  # the page of a private module is left out
        (
            'def f():\n    r"""Sum %(what)s of \\frac{a}{b}.\n\n    {parameters}\n    """',
            ["Sum  of \\frac{a}{b}."],
        ),
        (
            '# -*- coding: latin-1 -*-\ndef f():\n    """Prix en café."""\n'.encode("latin-1"),
            ["Prix en café."],
        ),
        (b"print 'python 2'\n", []),
        (b'def f():\n    """caf\xe9"""\n', []),
    ],
)
def test_placeholders_and_private_modules_are_left_out_and_encodings_read(pages_of, content, docs):
    assert [page[""] for page in pages_of(content, "shop._front").values()] == docs


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("'a' 'b' + 'c'", "abc"),
        ("f'a{x}b'", "ab"),
        ("'a {x} {{y}}'.format(**names)", "a  {y}"),
        ("'{seealso.kdeplot} : smooth'.format()", "kdeplot : smooth"),
        ("textwrap.dedent(' a')", " a"),
        ("unknown(1)", ""),
    ],
)
def test_a_string_expression_gives_its_constant_text(expression, text):
    assert library.constant_text(ast.parse(expression, mode="eval").body) == text


# See Also sections and names of packages
NUMPYDOC = """Sort the rows.

See Also
--------
argsort, lexsort : Indirect sorts.
    Described at length, with `mean`.
shop.till.count
:func:`~shop.till.Till.empty` : Empty it.
`partition`

Notes
-----
Stable."""


@pytest.mark.parametrize(
    ("block", "names"),
    [
        ("See Also:\n    keymap\n    itemmap", ("keymap", "itemmap")),
        (".. seealso::\n\n    :func:`shop.norm` computes a norm.", ("shop.norm",)),
        (".. seealso:: :class:`shop.A` and :class:`shop.B`", ("shop.A", "shop.B")),
        ("See also: :func:`shop.fork`.", ("shop.fork",)),
        ("See also: fork, join_all.", ("fork", "join_all")),
        (
            "See also the :py:meth:`~shop.classify` docstring for\nmore on hints.",
            ("shop.classify",),
        ),
        (":seealso: ``Index.find``", ("Index.find",)),
        ("See also the functions for the mean.", ()),  # words of prose are no names
    ],
)
def test_every_form_of_reference_is_cut(block, names):
    assert cut_see_also(f"First.\n\n{block}\n\nLast.") == ("First.\n\nLast.", names)


@pytest.mark.parametrize(
    ("text", "left", "names"),
    [
        (
            NUMPYDOC,
            "Sort the rows.\n\nNotes\n-----\nStable.",  # up to the next heading
            ("argsort", "lexsort", "shop.till.count", "shop.till.Till.empty", "partition"),
        ),
        (
            "First.\n\nSee Also\n========\n\nposify: positive symbols\n\nshop.simplify.separate",
            "First.",  # to the end
            ("posify", "shop.simplify.separate"),
        ),
        (
            "See Also\n--------\n  first : One.\n    Of `several`.\n  second",
            "",
            ("first", "second"),
        ),
        (
            "    See Also\n    --------\n    a_b\nOut again.",
            "Out again.",
            ("a_b",),
        ),  # up to the end of the indentation
        (
            # in running text
            "Which to use. See also :func:`shop.sort` for\nmore. It is stable (see also `.Key`).",
            "Which to use.  It is stable .",
            ("shop.sort", "Key"),
        ),
        ("Look also at\n\n    this.", "Look also at\n\n    this.", ()),
    ],
)
def test_a_section_is_cut_as_a_whole_and_nothing_else(text, left, names):
    assert cut_see_also(text) == (left, names)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A NumPy array, as in numpy.argsort(x).", "A  array, as in argsort(x)."),
        (">>> import numpy as np\n>>> np.sum(1)", ">>> sum(1)"),
        ("import matplotlib.pyplot as plt\nplt.plot()", "plot()"),
        ("from numpy import array", "import array"),
        ("from sklearn.svm import SVC", "from svm import SVC"),
        ("scikit-learn, Scikit\nlearn and scikit_learn", ",  and"),
        ("raise NetworkXError", "raise Error"),
        ("x.to_numpy()", "x.to_()"),
        ("nx.Graph, sns, pd.Series, mpl", "Graph, , Series,"),
        ("input, span, index_np and unpd", "input, span, index_np and unpd"),
        ("PyTorch's TorchScript", "'s Script"),
    ],
)
def test_names_of_packages_go_and_other_words_stay(before, after):
    assert library.remove_names(before) == after
