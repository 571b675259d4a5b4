import numpy as np
import pytest

from docemb_lib.errors import InputError
from docemb_lib.teachers import Compound, ParagraphVector


@pytest.fixture(scope="module")
def dbow(pages) -> ParagraphVector:
    return ParagraphVector(dm=False, vector_size=5, epochs=1, preprocess="none", min_count=3).fit(pages)


def test_a_compound_is_dm_then_dbow_whatever_their_order(dm, dbow, pages):
    compound = Compound([dbow, dm])
    embeddings = compound.embed(pages[:4])
    np.testing.assert_array_equal(embeddings[:, :12], dm.embed(pages[:4]))
    np.testing.assert_array_equal(embeddings[:, 12:], dbow.embed(pages[:4]))
    assert compound.dim == 17
    assert compound.label == "DM;12;lowercase;2+DBOW;5;None;3"
    assert compound.fingerprint == Compound([dm, dbow]).fingerprint


def test_members_trained_on_different_texts_are_refused_naming_both(dm, pages):
    other = ParagraphVector(dm=False, vector_size=5, epochs=1).fit(pages[:-1])
    with pytest.raises(
        InputError,
        match=f"DM;12;lowercase;2 was trained on texts {dm.fitted.texts}, DBOW;5;lower.*{other.fitted.texts}",
    ):
        Compound([dm, other])


def test_members_are_two_and_trained(dm):
    with pytest.raises(InputError, match="got 1 members, give two or more"):
        Compound([dm])
    with pytest.raises(InputError, match="DBOW;100;lowercase;2: not trained"):
        Compound([dm, ParagraphVector(dm=False)])
