"""The trainer against a plain loop; rows of the history; a loss that is not finite."""

import gc
import weakref

import numpy as np
import pytest
import torch
from transformers import Trainer


@pytest.mark.parametrize(("more", "batch_tokens"), [(False, None), (True, 1)])
def test_the_trainer_does_what_a_plain_loop_does(tmp_path, distil, plain_loop, more, batch_tokens):
    """In one pass for each update, or in one for each batch."""
    trained, _ = distil.train(tmp_path, dropout=0.0, more=more, batch_tokens=batch_tokens)
    by_hand = distil.make_objective(dropout=0.0, more=more)
    documents = distil.make_documents(50, 1, more=more)

    def loss_of(rows, _):
        batch, targets = documents.pack([rows])
        return by_hand(batch, **targets._asdict()).loss

    plain_loop(by_hand, len(documents), distil.SETTINGS, loss_of)
    torch.testing.assert_close(trained.state_dict(), by_hand.state_dict(), rtol=1e-4, atol=1e-5)


def test_rows_are_means_since_the_row_before(distil, tmp_path):
    _, every = distil.train(tmp_path / "a", dropout=0.0)
    _, fewer = distil.train(tmp_path / "b", dropout=0.0, log_every=5)
    assert [row["step"] for row in fewer.train] == [1, 5, 10, 12]
    for name in ("loss", "structural", "contextual", "norm"):
        mean = np.mean([row[name] for row in every.train[5:10]])
        assert fewer.train[2][name] == pytest.approx(mean, rel=1e-6), name


def test_the_state_of_the_optimizer_is_freed_without_a_garbage_collection(
    distil, tmp_path, monkeypatch
):
    moments = []

    def train(trainer, **options):
        _train(trainer, **options)
        moments.extend(weakref.ref(state["exp_avg"]) for state in trainer.optimizer.state.values())

    _train = Trainer.train
    monkeypatch.setattr(Trainer, "train", train)
    gc.disable()
    try:
        distil.train(tmp_path)
        alive = [moment() is not None for moment in moments]
    finally:
        gc.enable()
    assert alive
    assert not any(alive)


def test_a_loss_that_is_not_finite_names_its_documents(distil, tmp_path, monkeypatch):
    documents = distil.make_documents(50, 1)
    documents.ids = [f"page-{row}" for row in range(50)]
    documents.teachers["structural"][7] = np.nan  # after the check at construction
    monkeypatch.setattr(distil, "make_documents", lambda n, _, more: documents)
    problem = "the loss is not finite, with documents .*page-7"
    with pytest.raises(FloatingPointError, match=problem):
        distil.train(tmp_path)
