import ast
import textwrap

import pytest

from docemb_lib.corpus.docstrings import Page, read_pages, text_of

SOURCE = '''
"""The shop and its till."""

def sell(item):
    """Sell one item.

        The price is asked of the till.
    """

def undocumented(): pass

def _hidden():
    """Nobody reads this."""

try:
    def restock():
        """Fill the shelves."""
except ImportError:
    restock = None

class Till:
    """Keeps the coins."""

    def __init__(self, coins):
        """coins: those it starts with."""

    def count(self):
        """How many coins there are."""

    def _rattle(self):
        """Private noise."""

class Drawer:
    def open(self):
        """Open it, if it is not stuck."""

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


def pages_of(source, tmp_path, module="shop.front"):
    file = tmp_path / "front.py"
    file.write_text(source, encoding="utf-8")
    return read_pages(file, module)


def test_every_public_documented_object_is_one_page(tmp_path):
    assert pages_of(SOURCE, tmp_path) == [
        Page("shop.front", "", "The shop and its till.", ()),
        Page("shop.front", "sell", "Sell one item.\n\nThe price is asked of the till.", ()),
        Page("shop.front", "restock", "Fill the shelves.", ()),
        Page("shop.front", "Till", "Keeps the coins.\n\ncoins: those it starts with.", (("count", COUNT),)),
        Page("shop.front", "Drawer", "", (("open", "Open it, if it is not stuck."),)),
        Page("shop.front", "weigh", "Weigh  on ; a set is {a, b}.", ()),
        Page("shop._core", "scan", "Scan a code.", ()),
        Page("shop._core", "Scanner", "", (("beep", "Beep once."),)),
        Page("shop.front", "ring", "Ring the bell.", ()),
        Page("shop.front", "bag", "Bag %d items.", ()),
        Page("shop", "bundle", "Bundle them.", ()),
        Page("torch.Tensor", "tear", "Tear along the line.", ()),
    ]


COUNT = "How many coins there are."


def test_the_page_of_a_private_module_is_left_out_but_not_its_objects(tmp_path):
    source = '"""Notes to ourselves."""\ndef sell():\n    """Sell."""\n'
    assert pages_of(source, tmp_path, "shop._front") == [Page("shop._front", "sell", "Sell.", ())]


def test_placeholders_of_decorators_are_dropped_and_formulas_kept(tmp_path):
    source = r'''
@doc
def f():
    r"""Sum %(what)s of \frac{a}{b}.

    {parameters}
    """
'''
    (page,) = pages_of(source, tmp_path)
    assert page.doc == "Sum  of \\frac{a}{b}."


def test_a_coding_cookie_is_honoured(tmp_path):
    file = tmp_path / "old.py"
    file.write_bytes('# -*- coding: latin-1 -*-\n"""Prix en café."""\n'.encode("latin-1"))
    assert read_pages(file, "old")[0].doc == "Prix en café."


@pytest.mark.parametrize("content", [b"print 'python 2'\n", b'"""caf\xe9"""\n'])
def test_a_file_that_is_no_python_has_no_pages(tmp_path, content):
    file = tmp_path / "odd.py"
    file.write_bytes(content)
    assert read_pages(file, "odd") == []


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("'a' 'b' + 'c'", "abc"),
        ("f'a{x}b'", "ab"),
        ("'100%% of %s' % x", "100% of %s"),
        ("'a {x} {{y}}'.format(**names)", "a  {y}"),
        ("'{seealso.kdeplot} : smooth'.format()", "kdeplot : smooth"),
        ("textwrap.dedent(' a')", " a"),
        ("'a'.strip()", "a"),
        ("unknown(1)", ""),
    ],
)
def test_a_string_expression_gives_its_constant_text(expression, text):
    assert text_of(ast.parse(expression, mode="eval").body) == text


def test_the_words_of_a_page_are_those_of_its_text_and_of_its_methods_with_their_names(tmp_path):
    source = textwrap.dedent('''
        class Till:
            """Keeps the coins."""
            def count(self):
                """How many."""
    ''')
    (page,) = pages_of(source, tmp_path)
    assert page.n_words == 6  # Keeps the coins. count How many.
