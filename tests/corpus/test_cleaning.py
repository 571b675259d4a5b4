import pytest

from docemb_lib.corpus.docstrings import cut_see_also, remove_names

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


def test_a_numpydoc_section_is_cut_up_to_the_next_heading():
    text, cited = cut_see_also(NUMPYDOC)
    assert text == "Sort the rows.\n\nNotes\n-----\nStable."
    assert cited == ("argsort", "lexsort", "shop.till.count", "shop.till.Till.empty", "partition")


@pytest.mark.parametrize(
    ("block", "names"),
    [
        ("See Also:\n    keymap\n    itemmap", ("keymap", "itemmap")),
        ("See also\n`keymap`, `itemmap`", ("keymap", "itemmap")),
        (".. seealso::\n\n    :func:`shop.norm` computes a norm.", ("shop.norm",)),
        (".. seealso::\n\n:func:`shop.norm` computes a norm.\n:func:`shop.cond` too.", ("shop.norm", "shop.cond")),
        (".. seealso:: :class:`shop.A` and :class:`shop.B`", ("shop.A", "shop.B")),
        ("See also: :func:`shop.fork`.", ("shop.fork",)),
        ("See also: fork, join_all.", ("fork", "join_all")),
        ("See also the :py:meth:`~shop.classify` docstring for\nmore on hints.", ("shop.classify",)),
        (":seealso: ``Index.find``", ("Index.find",)),
    ],
)
def test_other_forms_are_cut_too(block, names):
    text, cited = cut_see_also(f"First.\n\n{block}\n\nLast.")
    assert text == "First.\n\nLast."
    assert cited == names


def test_a_section_without_a_heading_after_it_runs_to_the_end():
    block = "See Also\n========\n\nposify: positive symbols\n\nshop.simplify.separate"
    assert cut_see_also(f"First.\n\n{block}") == ("First.", ("posify", "shop.simplify.separate"))


def test_entries_may_be_indented_below_their_heading():
    assert cut_see_also("See Also\n--------\n  first : One.\n    Of `several`.\n  second").cited == ("first", "second")


def test_a_reference_in_running_text_is_cut_to_the_end_of_its_sentence():
    text, cited = cut_see_also(
        "Which sort to use. See also :func:`shop.sort` for\nmore. It is stable (see also `.Key`)."
    )
    assert " ".join(text.split()) == "Which sort to use. It is stable ."
    assert cited == ("shop.sort", "Key")


def test_a_section_ends_where_the_indentation_does():
    text, cited = cut_see_also("    See Also\n    --------\n    a_b\nOut again.")
    assert (text, cited) == ("Out again.", ("a_b",))


def test_words_of_prose_are_no_names():
    assert cut_see_also("See also the functions for the mean.").cited == ()


def test_a_text_without_references_stays_as_it_is():
    assert cut_see_also("Look also at\n\n    this.") == ("Look also at\n\n    this.", ())


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
    assert remove_names(before) == after
