"""Runs that are killed or stopped and resumed end in the same bits; what is no checkpoint of a run
is refused.
"""

import random
import signal

import pytest

from docemb_lib.base.integrity import MARKER
from docemb_lib.losses import Weighting
from docemb_lib.training.trainer import remove_checkpoints

# 50 documents in 12 batches of 4, two a step, two epochs; of 45 with two sentences, 11 batches
UPDATES = 12
RUNS = [
    ("distil", 0, {}),
    ("distil", 1, {"more": True}),
    ("distil", 2, {"negatives": 7}),
    ("distil", 3, {"negatives": "all"}),
    ("on_pairs", 0, {}),
    ("on_pairs", 1, {"taught": True}),
    ("on_pairs", 2, {"pairs": "dropout", "mlm": False}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed", "settings"), RUNS)
def test_a_run_killed_anywhere_and_resumed_ends_in_the_same_bits(
    tmp_path, request, interrupt, steps, logged, assert_same_run, name, seed, settings
):
    train, at = request.getfixturevalue(name).train, random.Random(seed).randrange(3, UPDATES)
    unbroken = train(tmp_path / "unbroken", **settings)
    interrupt(name, tmp_path / "killed", settings, at=at, signal=signal.SIGKILL)
    assert list((tmp_path / "killed" / "checkpoints").glob(f"*/{MARKER}"))
    steps.clear()
    resumed = train(tmp_path / "killed", **settings)
    assert steps == list(range(steps[0], UPDATES + 1))
    assert 1 < steps[0] <= at + 1  # resumed rather than started anew
    assert_same_run(unbroken, resumed)
    assert logged(tmp_path / "killed") == logged(tmp_path / "unbroken")


def test_a_run_stopped_by_sigterm_saves_first_and_resumes_to_the_same_bits(
    tmp_path, distil, interrupt, assert_same_run
):
    settings = {"save_every": 100, "log_every": 5}
    unbroken = distil.train(tmp_path / "unbroken", **settings)
    status = interrupt("distil", tmp_path / "stopped", settings, at=4, signal=signal.SIGTERM)
    assert status == -signal.SIGTERM  # the signal's usual effect
    saved = [
        path.parent.name for path in (tmp_path / "stopped" / "checkpoints").glob(f"*/{MARKER}")
    ]
    assert len(saved) == 1
    assert int(saved[0].removeprefix("checkpoint-")) in (4, 5)
    assert_same_run(unbroken, distil.train(tmp_path / "stopped", **settings))


def test_a_checkpoint_of_another_run_is_refused_and_a_torn_one_skipped(
    distil, tmp_path, caplog, refused, monkeypatch
):
    distil.train(tmp_path)
    of_another = (
        "this checkpoint is from a run with other settings, documents, versions "
        "or number of processes"
    )
    for change in ({"learning_rate": 2e-3}, {"n": 49}):
        refused(of_another, distil.train, tmp_path, **change)
    with monkeypatch.context() as patched:
        patched.setattr("transformers.TrainingArguments.world_size", 3)
        refused(of_another, distil.train, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(distil, "Weighting", lambda **given: Weighting(**given | {"lam": 0.2}))
        refused(of_another, distil.train, tmp_path)
    (tmp_path / "checkpoints" / "checkpoint-12" / "optimizer.pt").write_bytes(b"torn")
    _, history = distil.train(
        tmp_path, save_every=100, log_every=5
    )  # these may differ, and then hold
    assert [row["step"] for row in history.train if row["step"] > 10] == [12]
    assert "checkpoint-12 is incomplete or damaged" in caplog.text
    assert [path.name for path in (tmp_path / "checkpoints").glob("*-*")] == [
        "checkpoint-10"
    ]  # none at the end alone
    remove_checkpoints(tmp_path)
    assert not (tmp_path / "checkpoints").exists()
