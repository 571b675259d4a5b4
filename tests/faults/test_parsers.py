"""Any text that a user or a file may give is a value, or an InputError of one line, within a
second.
"""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from docemb_lib.base.errors import InputError
from docemb_lib.cli.commands import parse_parameters
from docemb_lib.settings.profile import Profile

NUMBERS = ["0", "4294967296", "9" * 5_000, "-1", "1.5", ".nan", "2026-13-45"]


def text_of(pieces: str, *more: str) -> st.SearchStrategy[str]:
    """Texts made of the pieces of a grammar (separated by blanks), of numbers, and of anything
    else.
    """
    known = st.sampled_from([*pieces.split(), *more, *NUMBERS, "\n", " "])
    return st.lists(known | st.text(max_size=8), max_size=12).map("".join)


KEYS = [f"{name}: " for name in (*Profile.model_fields, "seed", "lam", "layers", "path")]
YAML = text_of(
    "[ ] { } &a *a ' \" null true !!int !!set", *KEYS, "\n- ", ", ", ": ", "<<: ", "|\n "
)
NAMES = [f"{name}=" for name in ("seed", "lam", "lam_by_length", "student_projection", "compound")]
VALUE = text_of("None null true [ ] { &a *a - x (ReLU) linear: : DM;8;stem;2 + ' \" #")


def profile(text, folder):
    (folder / "p.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    Profile.load(folder / "p.yaml")


def parameter(text, folder):
    Profile(name="a").with_parameters(**parse_parameters([text]))


CASES = [
    (profile, YAML),
    (parameter, st.tuples(st.sampled_from(NAMES), VALUE).map("".join)),
]


@pytest.mark.parametrize(("parse", "texts"), CASES, ids=range(len(CASES)))
def test_any_text_is_a_value_or_an_input_error(tmp_path, parse, texts):
    @settings(
        max_examples=120,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(texts)
    def check(text):
        begun = time.process_time()
        said = ""
        try:
            parse(text, tmp_path)
        except InputError as error:
            said = str(error)
        assert time.process_time() - begun < 20  # no search that grows with powers
        assert "\n" not in said
        assert len(said) <= 1_000

    check()
