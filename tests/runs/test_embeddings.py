"""Embeddings on disk: each text is embedded once by each model, through kills and damage."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import NotingEmbedder

from docemb_lib.base.errors import InputError
from docemb_lib.base.prompts import Query
from docemb_lib.runs import store
from docemb_lib.runs.embeddings import ROWS, Embedder, embed_once

# Embeds a text as its number, so many seconds a block; says how many texts it embeds. Without a
# number of seconds it waits with each block until its input ends.
WRITER = """
import sys, time
from pathlib import Path
import numpy as np
from docemb_lib.runs import embeddings, store

def embed(texts):
    print(len(texts), flush=True)
    if len(sys.argv) > 2:
        time.sleep(float(sys.argv[2]))
    else:
        sys.stdin.read()
    return np.array([[int(text)] for text in texts], dtype="float32")

embeddings.BLOCK = 5
model = embeddings.Embedder("m", "fp", embed)
texts = [str(n) for n in range(20)]
with store.kept_beside(Path(sys.argv[1])):
    rows = embeddings.embed_once(model, texts)
assert rows[:, 0].tolist() == list(range(20))
"""


@pytest.fixture
def embedder(workspace_root):
    return NotingEmbedder()


def model_of(embedder, fingerprint="fp"):
    return Embedder("m", fingerprint, embedder.embed)


def start(root, *seconds):
    command = [sys.executable, "-c", WRITER, str(root / "m"), *map(str, seconds)]
    pipes = {"cwd": root, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, text=True)


def test_only_missing_texts_are_embedded_once_for_each_model(embedder):
    model = model_of(embedder)
    rows = embed_once(model, ["one", "three", "one"])
    assert rows.tolist() == [[3, 1], [5, 2], [3, 1]]  # in the order of the texts
    assert rows.dtype == np.float32
    assert embed_once(model, ["seven", "three"]).tolist() == [[5, 2], [5, 2]]
    known = Embedder("renamed", "fp", lambda texts: pytest.fail("the model was loaded"))
    assert embed_once(known, ["seven", "one"]).tolist() == [[5, 2], [3, 1]]
    embed_once(model_of(embedder, "another"), ["one"])
    assert embedder.asked == [["one", "three"], ["seven"], ["one"]]


def test_a_query_and_a_document_of_one_text_have_embeddings_of_their_own(workspace_root):
    model = Embedder("m", "fp", lambda texts: np.array([[isinstance(t, Query)] for t in texts]))
    for texts in (["one", Query("one"), "two"], ["one", Query("one"), Query("two")]):
        expected = [[isinstance(text, Query)] for text in texts]
        assert embed_once(model, texts).tolist() == expected


def test_a_kill_costs_no_more_than_the_block_in_hand(tmp_path):
    writer = start(tmp_path, 0.3)
    for _ in range(3):  # the third block is being embedded
        assert writer.stdout.readline() == "5\n"
    writer.kill()
    writer.communicate(timeout=60)
    again = start(tmp_path, 0)
    assert again.communicate(timeout=60)[0] == "5\n5\n"
    assert not list(tmp_path.rglob("*.partial"))


def test_two_processes_share_blocks_and_wait_for_each_other_last(tmp_path):
    first = start(tmp_path)
    assert first.stdout.readline() == "5\n"  # it embeds the first block, until its input ends
    second = start(tmp_path, 0)
    assert [second.stdout.readline() for _ in range(3)] == ["5\n"] * 3
    assert second.poll() is None
    assert first.communicate(timeout=60)[0] == ""
    assert second.communicate(timeout=60)[0] == ""
    assert [first.returncode, second.returncode] == [0, 0]


def test_infinite_embeddings_are_refused_and_not_kept(workspace_root):
    broken = Embedder("m", "fp", lambda texts: np.full((len(texts), 2), np.inf))
    with pytest.raises(InputError, match="m: 2 of 2 embeddings are not finite"):
        embed_once(broken, ["a", "b"])
    assert not list(workspace_root.rglob(ROWS))


def test_outside_of_a_working_folder_embeddings_lie_beside_the_model(
    tmp_path, embedder, monkeypatch
):
    with store.kept_beside(Path("mine")):
        assert store.outputs() == tmp_path / "workspace" / "outputs"
    monkeypatch.chdir(tmp_path)
    with store.kept_beside(Path("mine")):
        for texts in (["one", "three"], ["three"]):
            embed_once(model_of(embedder), texts)
    with pytest.raises(InputError, match="no working folder"):  # it lasts no longer
        store.outputs()
    assert embedder.asked == [["one", "three"]]
    assert len(list((tmp_path / "mine.embeddings").rglob(ROWS))) == 1
