"""Labels of Paragraph Vectors and ramps of lam are read in one place each."""

from __future__ import annotations

import pytest

from docemb_lib.settings import label_of_paragraph_vector, length_ramp, members_of


def test_a_compound_is_its_members_dm_first():
    members = members_of("DBOW;1024;None;10% + DM;100;stem;2")
    assert [label_of_paragraph_vector(**member) for member in members] == ["DM;100;stem;2", "DBOW;1024;None;10%"]
    for wrong in ("DM;100;stem;2", "DM;100;stem;2+DM;100;stem;2", "DM;1;stem;2+DBOW;9;None;2", ""):
        with pytest.raises(ValueError, match="two or more different labels"):
            members_of(wrong)


def test_a_ramp_has_two_ascending_lengths():
    assert length_ramp("linear:384:4096") == (384, 4096)
    for wrong in ("linear:9:3", "linear:3:3", "linear:3", "linear:-1:3", "log:1:2", "linear:1:2 "):
        with pytest.raises(ValueError, match="FIRST < LAST"):
            length_ramp(wrong)
