"""The steps of `docemb adapt` by hand, each of which the notebook asserts to be the library's."""

import re

import pytest

NAMES = (
    "SBERT-256",
    "1 reads all",
    "2 weighs beginning",
    "3 centred",
    "4 whitened",
    "5 words alone",
    "6 both: adapt",
)


@pytest.mark.slow
def test_every_step_is_that_of_the_library_and_has_a_score(execute_alone, tmp_path):
    printed = execute_alone("08_adapt", tmp_path, packages="seaborn", documents=30).stdout
    assert printed.count(": MAP ") == 7
    assert "The adapted student is " in printed
    said = " ".join(printed.split())  # its lines are wrapped
    steps = re.findall(r"'(\d [^']+)' after '([^']+)' \([+-]\d\.\d{3}", said)
    assert len(steps) == 6
    assert {after for after, _ in steps} == {*NAMES[1:5], NAMES[6]}
    assert {before for _, before in steps} == {*NAMES[:6]}
