"""A training run: updates, history, what is refused before it starts; memory of a token counted by
hand; precision.
"""

import pytest
import torch

from docemb_lib.settings.sections import Training
from docemb_lib.student import Student
from docemb_lib.training import run


def test_precision_fits_the_device(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    monkeypatch.delenv("DOCEMB_PRECISION", raising=False)
    for fast, expected in ((True, ("bf16", "bf16")), (False, ("fp32", "fp16"))):
        monkeypatch.setattr(run, "fast_bf16", lambda _, fast=fast: fast)
        assert (run.precision_of(None, cpu), run.precision_of(None, gpu)) == expected
    assert run.precision_of("fp32", gpu) == "fp32"


@pytest.mark.parametrize("asked", ["bf16", "fp32"])
def test_the_environment_chooses_the_precision_of_training_unless_the_settings_do(
    monkeypatch, asked
):
    monkeypatch.setenv("DOCEMB_PRECISION", asked)
    for fast in (True, False):
        monkeypatch.setattr(run, "fast_bf16", lambda _, fast=fast: fast)
        for device in (torch.device("cpu"), torch.device("cuda")):
            assert run.precision_of(None, device) == asked
            assert run.precision_of("fp16", device) == "fp16"


@pytest.mark.parametrize("more", [False, True])
def test_history_has_a_row_per_update_and_validation_from_first_to_last(
    tmp_path, distil, logged, more
):
    _, history = distil.train(tmp_path, more=more)
    assert [row["step"] for row in history.train] == list(range(1, 13))
    steps = [row["step"] for row in history.validation]
    assert (steps[0], steps[-1]) == (0, 12)
    assert steps == sorted(set(steps))  # none twice
    teachers = {"structural", "contextual", *(("far", "topics") if more else ())}
    for rows in history:
        assert all(("far" in row) == more for row in rows)
        assert {"step", "loss", "norm", "spread", *teachers} <= set(rows[0])
    assert {"grad_norm", "learning_rate"} <= set(history.train[0])
    assert all(-1 <= row["cca"] <= 1 for row in history.validation)
    assert logged(tmp_path) == ({"title": "student", "updates": 12}, list(range(1, 13)))


def test_a_run_that_cannot_train_is_refused_before_it_starts(distil, tmp_path, refused):
    refused("documents: 3 training documents do not fill one batch", distil.train, tmp_path, n=3)
    assert not list(tmp_path.rglob("*.json"))


def test_a_compiler_that_fails_is_reported_and_not_used(distil, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("Cannot find a working triton installation\nwith a long explanation")

    student = distil.make_objective().student
    monkeypatch.setattr("docemb_lib.student.longformer._compile", broken)
    assert not run.compiles(student, None)
    assert "without torch.compile: Cannot find a working triton installation" in caplog.text


def test_a_tokens_activations_are_those_counted_by_hand_and_counting_leaves_no_trace(distil):
    """A layer without dropout keeps, in float32: queries, keys, values, their mixture, and twice
    what LayerNorm takes and gives (8 D), the inner layer before and after GELU, and two pairs of
    mean and deviation. The embeddings keep what their LayerNorm takes and gives, a pair, and two
    ids of 8 bytes."""
    student = distil.make_objective(dropout=0.0).student
    D, inner, layers = student.dim, student.config.intermediate_size, 2
    by_hand = 4 * (layers * (8 * D + 2 * inner + 4) + 2 * D + 2) + 2 * 8
    assert run.activation_bytes(student, dtype=None) == by_hand
    student = distil.make_objective(dropout=0.3).student.eval()
    before = torch.get_rng_state()
    run.activation_bytes(student, dtype=torch.bfloat16)
    assert torch.equal(before, torch.get_rng_state())
    assert not student.training
    assert all(parameter.grad is None for parameter in student.parameters())


def test_a_padded_students_activations_are_those_of_padded_tokens(distil):
    student = distil.make_student(0.0, window=64, pooling="cls")
    assert (student.padded(7), student.padded(65), distil.make_student(0.0).padded(7)) == (
        64,
        128,
        7,
    )
    two_more = run._saved(student, [7, 40, 33], None) - run._saved(student, [40], None)
    assert run.activation_bytes(student, dtype=None) == pytest.approx(two_more / 128, rel=0.1)


@pytest.mark.parametrize("small", ["distil", "on_pairs"])
def test_passes_of_a_padded_student_fit_the_budget_with_their_padding(
    small, request, tmp_path, monkeypatch
):
    passes, forward = [], Student.forward
    monkeypatch.setattr(Student, "padded", lambda self, length: -(-length // 40) * 40)
    monkeypatch.setattr(
        Student, "forward", lambda self, batch: passes.append(batch.sizes) or forward(self, batch)
    )
    _, history = request.getfixturevalue(small).train(tmp_path, batch_tokens=200, n=16, epochs=1)
    assert max(map(len, passes)) == 5  # of at most 40 tokens; more would fit without padding
    assert min(row["tokens_per_second"] for row in history.train) > 0


def test_budget_and_checkpointing_fit_half_of_the_free_memory(distil, monkeypatch):
    student = distil.make_objective().student
    cost = run.activation_bytes(student, dtype=None)
    for tokens in (100, 5000):
        monkeypatch.setattr(run, "free_memory", lambda _, tokens=tokens: 2 * tokens * cost)
        assert (
            run.batch_tokens_for(student, dtype=None, processes=1) == {100: 64, 5000: 4096}[tokens]
        )
    assert (
        run.batch_tokens_for(student, dtype=None, processes=2) == 2048
    )  # they share the memory of one machine
    monkeypatch.setattr(run, "free_memory", lambda _: 1)
    assert (
        run.batch_tokens_for(student, dtype=None, processes=1) == student.max_tokens
    )  # one document at least
    monkeypatch.setattr(run, "free_memory", lambda _: 2**60)
    assert run.batch_tokens_for(student, dtype=None, processes=1) == run.LARGEST["cpu"]
    everything = run.activation_bytes(student, dtype=None)
    student.checkpointing = True
    assert run.activation_bytes(student, dtype=None) < everything / 2
    longest = 4 * student.max_tokens * everything
    for free, needed in ((2.1 * longest, False), (1.9 * longest, True)):
        monkeypatch.setattr(run, "free_memory", lambda _, free=free: free)
        run.set_up(student, Training(), None, processes=1, pass_documents=4)
        assert student.checkpointing is needed
