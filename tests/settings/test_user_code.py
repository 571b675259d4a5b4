"""Code of one's own: what counts in a key, and what is loaded."""

import hashlib
import os
from importlib.metadata import version

import pytest
from conftest import write_files

from docemb_lib.settings.user_code import load_class, sources_of, sources_of_object

FILES = {
    "my_losses.py": "from my_helpers.scale import BY\nclass Loss:\n    by = BY\n",
    "my_helpers/__init__.py": "",
    "my_helpers/scale.py": "from . import sizes\nBY = sizes.SIZE\n",
    "my_helpers/sizes.py": "SIZE = 41\n",
    "my_helpers/unrelated.py": "",
    "other.py": "",
}
IMPORTED = ["my_helpers/__init__.py", "my_helpers/scale.py", "my_helpers/sizes.py", "my_losses.py"]


@pytest.fixture
def notebooks(workspace_root):
    return write_files(workspace_root / "notebooks", FILES)


def test_sources_are_the_files_that_a_module_imports_with_their_hashes(notebooks):
    expected = {name: hashlib.sha256(FILES[name].encode()).hexdigest() for name in sorted(IMPORTED)}
    assert sources_of("my_losses:Loss") == expected


@pytest.mark.parametrize("name", IMPORTED)
def test_sources_differ_once_a_file_is_edited_that_is_imported(notebooks, name):
    before = sources_of("my_losses:Loss")
    with (notebooks / name).open("a") as file:
        file.write("# edited\n")
    after = sources_of("my_losses:Loss")
    assert {place for place in after if after[place] != before[place]} == {name}


@pytest.mark.parametrize("name", ["my_helpers/unrelated.py", "other.py"])
def test_sources_stay_where_a_file_is_edited_that_is_not_imported(notebooks, name):
    before = sources_of("my_losses:Loss")
    (notebooks / name).write_text("# edited\n")
    assert sources_of("my_losses:Loss") == before


def test_an_edited_helper_is_loaded_anew_also_with_equal_size_and_time(notebooks):
    assert load_class("my_losses:Loss").by == 41
    helper = notebooks / "my_helpers/sizes.py"
    stat = helper.stat()
    helper.write_text("SIZE = 42\n")
    os.utime(helper, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert load_class("my_losses:Loss").by == 42


def test_a_class_of_an_installed_package_has_the_version_of_the_package(notebooks):
    assert sources_of("torch.nn:HuberLoss") == {"torch": version("torch")}


def test_a_module_that_is_nowhere_is_refused(notebooks, refused):
    refused("nowhere:L: there is no module nowhere; put its file into", sources_of, "nowhere:L")


def test_an_object_of_ones_own_has_the_sources_of_its_class(notebooks):
    assert sources_of_object(load_class("my_losses:Loss")()) == sources_of("my_losses:Loss")


def test_objects_of_docemb_and_of_the_language_have_no_sources():
    from docemb_lib.losses import MSE

    assert [sources_of_object(value) for value in (MSE(), [], "text")] == [{}, {}, {}]
