"""The store of embeddings: each text is embedded once by each model, through kills and damage."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import NotingEmbedder

from docemb_lib.base.errors import InputError
from docemb_lib.runs.embeddings import embed_once, kept_embeddings, store_of
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.models import Model

# Embeds a text as its number, so many seconds a block; says how many texts it embeds. Without a
# number of seconds it waits with each block until its input ends.
WRITER = """
import sys, time
from types import SimpleNamespace
import numpy as np
from docemb_lib.runs import embeddings
from docemb_lib.workspace import Workspace

def embed(texts):
    print(len(texts), flush=True)
    if len(sys.argv) > 2:
        time.sleep(float(sys.argv[2]))
    else:
        sys.stdin.read()
    return np.array([[int(text)] for text in texts], dtype="float32")

embeddings.BLOCK = 5
model = SimpleNamespace(label="m", fingerprint="fp", store=None, embed=embed)
embeddings.embed_once(Workspace(sys.argv[1]), model, [str(n) for n in range(20)])
"""


class Counted(NotingEmbedder):
    """An embedder as a model of a store."""

    def model(self, fingerprint="fp", store=None):
        return scored_model(Identity(Kind.STUDENT, name="m"), fingerprint, self.embed, store=store)


@pytest.fixture
def embedder():
    return Counted()


def shards_in(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("shard.json"))


def start(root, *seconds):
    command = [sys.executable, "-c", WRITER, str(root), *map(str, seconds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, text=True)


def test_only_missing_texts_are_embedded_once_for_each_model(workspace, embedder):
    model = scored_model(Identity(Kind.STUDENT, name="m"), "fp", embedder.embed)
    rows = embed_once(workspace, model, ["one", "three", "one"])
    assert rows.tolist() == [[3, 1], [5, 2], [3, 1]]  # in the order of the texts
    assert embed_once(workspace, model, ["seven", "three"]).tolist() == [[5, 2], [5, 2]]
    assert embed_once(workspace, model, ["seven", "one"]).tolist() == [[5, 2], [3, 1]]
    known = scored_model(Identity(Kind.STUDENT, name="renamed"), "fp", lambda texts: pytest.fail("the model was loaded")
    )
    assert embed_once(workspace, known, ["one"]).tolist() == [[3, 1]]
    embed_once(workspace, scored_model(Identity(Kind.STUDENT, name="m"), "another", embedder.embed), ["one"])
    assert embedder.asked == [["one", "three"], ["seven"], ["one"]]


def test_a_kill_costs_no_more_than_the_block_in_hand(workspace):
    writer = start(workspace.root, 0.3)
    for _ in range(3):  # the third block is being embedded
        assert writer.stdout.readline() == "5\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait(timeout=60)
    again = start(workspace.root, 0)
    assert again.communicate(timeout=60)[0] == "5\n5\n"
    assert not list(workspace.outputs.rglob("*.partial"))


def test_two_processes_embed_each_block_once_between_them(workspace):
    writers = [start(workspace.root, 0.1) for _ in range(2)]
    said = [writer.communicate(timeout=60)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert "".join(said) == "5\n" * 4


def test_a_block_that_another_process_embeds_is_waited_for_last(workspace):
    first = start(workspace.root)
    assert first.stdout.readline() == "5\n"  # it embeds the first block, until its input ends
    second = start(workspace.root, 0)
    assert [second.stdout.readline() for _ in range(3)] == ["5\n"] * 3
    assert second.poll() is None
    assert first.communicate(timeout=60)[0] == ""
    assert second.communicate(timeout=60)[0] == ""


@pytest.mark.parametrize("name", ["embeddings.npy", "shard.json", "artefact.json"])
def test_the_texts_of_a_damaged_shard_are_embedded_again(workspace, embedder, name):
    model = embedder.model()
    embed_once(workspace, model, ["one"])
    rows = embed_once(workspace, model, ["three", "seven"])
    shard = shards_in(workspace.outputs)[0]
    content = bytearray((shard / name).read_bytes())
    content[-3] ^= 1
    time.sleep(0.01)  # so that the file has another time
    (shard / name).write_bytes(content)
    np.testing.assert_array_equal(embed_once(workspace, model, ["three", "seven"]), rows)
    assert embed_once(workspace, model, ["one"]).tolist() == [[3, 1]]
    assert len(embedder.asked) == 3


def test_infinite_embeddings_are_refused_and_not_kept(workspace):
    broken = scored_model(Identity(Kind.STUDENT, name="m"), "fp", lambda texts: np.full((len(texts), 2), np.inf)
    )
    with pytest.raises(InputError, match="m: 2 of 2 embeddings are not finite"):
        embed_once(workspace, broken, ["a", "b"])
    assert shards_in(workspace.outputs) == []


def test_outside_of_a_workspace_embeddings_lie_beside_the_model(tmp_path, embedder):
    store = store_of(tmp_path / "mine")
    model = embedder.model(store=store)
    embed_once(None, model, ["one", "three"])
    embed_once(None, model, ["three"])
    assert store == tmp_path / "mine.embeddings"
    assert [path.parents[1] for path in shards_in(tmp_path)] == [store]
    assert embedder.asked == [["one", "three"]]


def test_embeddings_beside_a_model_are_read_in_a_workspace(workspace, tmp_path, embedder):
    model = embedder.model(store=tmp_path / "mine.embeddings")
    embed_once(None, model, ["one"])
    assert embed_once(workspace, model, ["one", "three"]).tolist() == [[3, 1], [5, 2]]
    assert embedder.asked == [["one"], ["three"]]


def test_kept_embeddings_are_those_of_the_model_and_none_of_others(workspace, embedder):
    embed_once(workspace, embedder.model(), ["one"])
    assert kept_embeddings(workspace, embedder.model())("one").tolist() == [3, 1]
    assert kept_embeddings(workspace, embedder.model())("three") is None
    assert kept_embeddings(workspace, embedder.model("another"))("one") is None
