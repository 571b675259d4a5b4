"""Runs that are killed or stopped and resumed end in the same bits; what is no checkpoint of a run
is refused.
"""

import importlib
import random
import signal
from contextlib import contextmanager
from functools import cache

import pytest

from docemb_lib.base.errors import Stopped
from docemb_lib.base.files import MARKER
from docemb_lib.losses import Weighting
from docemb_lib.training import trainer
from docemb_lib.training.trainer import remove_checkpoints

# 50 documents in 12 batches of 4, two a step, two epochs; of 45 with two sentences, 11 batches
UPDATES = 12
RUNS = [("distil", 1, {"more": True}), ("on_pairs", 0, {})]


FEW = {"save_every": 100, "log_every": 5}  # no checkpoint but that of a stop


@pytest.fixture(scope="module")
def unbroken_few(tmp_path_factory):
    """Trains with few checkpoints and without a stop, once under each name."""

    @cache
    def train(name):
        return importlib.import_module(name).train(tmp_path_factory.mktemp("unbroken"), **FEW)

    return train


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed", "settings"), RUNS)
def test_a_run_killed_anywhere_and_resumed_ends_in_the_same_bits(
    tmp_path, request, interrupt, steps, assert_same_run, name, seed, settings
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


def test_a_run_stopped_by_sigterm_saves_first_and_resumes_to_the_same_bits(
    tmp_path, distil, interrupt, unbroken_few, assert_same_run
):
    status = interrupt("distil", tmp_path / "stopped", FEW, at=4, signal=signal.SIGTERM)
    assert status == -signal.SIGTERM  # the signal's usual effect
    saved = [
        path.parent.name for path in (tmp_path / "stopped" / "checkpoints").glob(f"*/{MARKER}")
    ]
    assert len(saved) == 1
    assert int(saved[0].removeprefix("checkpoint-")) in (4, 5)
    assert_same_run(unbroken_few("distil"), distil.train(tmp_path / "stopped", **FEW))


@pytest.fixture
def pressed(monkeypatch):
    """A block in which a training gets Ctrl-C after its update `at`, or in a validation there."""

    @contextmanager
    def block(at, *, times=1, in_validation=False):
        owner, name = (trainer.Flow, "on_step_end")
        if in_validation:
            owner, name = (trainer.StudentTrainer, "log")
        original = getattr(owner, name)

        def press(self, *arguments, **options):
            state = self.state if in_validation else arguments[1]
            is_there = not in_validation or "eval_loss" in arguments[0]
            for _ in range(times if is_there and state.global_step == at else 0):
                signal.raise_signal(signal.SIGINT)
            return original(self, *arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(owner, name, press)
            yield

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield block
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def saved():
    """The names of the complete checkpoints of a training; there must be no others."""

    def names(folder):
        folders = [*(folder / "checkpoints").glob("checkpoint-*")]
        assert all((each / MARKER).is_file() for each in folders)
        return [each.name for each in folders]

    return names


@pytest.mark.parametrize(("name", "at"), [("distil", 1), ("distil", UPDATES), ("on_pairs", 7)])
def test_a_run_stopped_by_ctrl_c_goes_on_from_there_to_the_same_bits(
    tmp_path, request, unbroken_few, pressed, steps, saved, assert_same_run, name, at
):
    train = request.getfixturevalue(name).train
    with pressed(at), pytest.raises(Stopped, match=f"^stopped after {at} of {UPDATES} updates; "):
        train(tmp_path / "stopped", **FEW)
    assert saved(tmp_path / "stopped") == [f"checkpoint-{at}"]
    steps.clear()
    resumed = train(tmp_path / "stopped", **FEW)
    assert steps == list(range(at + 1, UPDATES + 1))
    assert_same_run(unbroken_few(name), resumed)


@pytest.mark.parametrize(("at", "done"), [(0, 1), (UPDATES, UPDATES)])
def test_a_run_stopped_while_it_validates_keeps_its_updates(
    tmp_path, distil, unbroken_few, pressed, saved, assert_same_run, at, done
):
    with pressed(at, in_validation=True), pytest.raises(Stopped, match=f"after {done} of"):
        distil.train(tmp_path / "stopped", **FEW)
    assert saved(tmp_path / "stopped") == [f"checkpoint-{done}"]
    assert_same_run(unbroken_few("distil"), distil.train(tmp_path / "stopped", **FEW))


def test_a_second_ctrl_c_ends_at_once_and_the_run_goes_on_from_its_last_checkpoint(
    tmp_path, distil, pressed, saved, assert_same_run, monkeypatch
):
    settings = FEW | {"save_every": 4}
    unbroken = distil.train(tmp_path / "unbroken", **settings)
    monkeypatch.setattr(trainer, "AGAIN", 0.0)
    with pressed(7, times=2), pytest.raises(Stopped, match=r"at once; .* after 4 of 12 updates"):
        distil.train(tmp_path / "stopped", **settings)
    assert saved(tmp_path / "stopped") == ["checkpoint-4"]
    assert_same_run(unbroken, distil.train(tmp_path / "stopped", **settings))


def test_an_echo_of_ctrl_c_from_a_launcher_is_no_second_one(tmp_path, distil, pressed, saved):
    with pressed(2, times=2), pytest.raises(Stopped, match="stopped after 2 of 12 updates"):
        distil.train(tmp_path, **FEW)
    assert saved(tmp_path) == ["checkpoint-2"]


def test_a_process_that_ignores_ctrl_c_trains_to_the_end(tmp_path, distil, pressed, steps):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with pressed(2):
        distil.train(tmp_path, **FEW)
    assert steps[-1] == UPDATES


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
