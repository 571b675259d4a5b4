"""A training run: precision, history, refusals, and the memory of a token counted by hand."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from docemb_lib.settings.sections import Training
from docemb_lib.student import Student
from docemb_lib.training import run


@pytest.mark.parametrize(
    ("device", "fast_bf16", "expected"),
    [
        ("cpu", True, "bf16"),
        ("cuda", True, "bf16"),
        ("cpu", False, "fp32"),
        ("cuda", False, "fp16"),
    ],
)
def test_precision_fits_the_device_unless_environment_or_settings_choose_it(
    monkeypatch, device, fast_bf16, expected
):
    monkeypatch.setattr(run, "devices_at_hand", lambda: [device])
    monkeypatch.setattr("docemb_lib.base.hardware.fast_bf16", lambda _: fast_bf16)
    monkeypatch.delenv("DOCEMB_PRECISION", raising=False)
    assert run.precision_of(None) == expected
    for asked in ("bf16", "fp32"):
        monkeypatch.setenv("DOCEMB_PRECISION", asked)
        assert run.precision_of(None) == asked
        assert run.precision_of("fp16") == "fp16"


@pytest.fixture(scope="module", params=[False, True], ids=["two teachers", "four teachers"])
def history(request, tmp_path_factory, distil):
    _, history = distil.train(tmp_path_factory.mktemp("trained"), more=request.param)
    names = {"structural", "contextual", "far", "topics"}
    return SimpleNamespace(
        train=history.train,
        validation=history.validation,
        teachers=names if request.param else names - {"far", "topics"},
        others=set() if request.param else {"far", "topics"},
    )


def test_history_has_a_row_for_each_update(history):
    assert [row["step"] for row in history.train] == list(range(1, 13))


@pytest.mark.parametrize(
    ("validations", "steps"), [(2, [0, 12]), (3, [0, 6, 12]), (6, [0, 3, 6, 9, 12])]
)
def test_validations_are_spread_over_the_updates(tmp_path, distil, validations, steps):
    _, history = distil.train(tmp_path, validations=validations, save_every=100)
    assert [row["step"] for row in history.validation] == steps


def test_rows_have_the_loss_of_each_teacher_and_signs_of_collapse(history):
    for row in (history.train[0], history.validation[0]):
        assert {"step", "loss", "norm", "spread", *history.teachers} <= set(row)
    assert "collapsed" in history.validation[0]
    for row in history.train + history.validation:
        assert not history.others & set(row)
    assert {"grad_norm", "learning_rate"} <= set(history.train[0])
    assert all(-1 <= row["cca"] <= 1 for row in history.validation)


def test_a_run_that_cannot_train_is_refused_before_it_starts(distil, tmp_path, refused):
    refused("documents: 3 training documents do not fill one batch", distil.train, tmp_path, n=3)
    assert not list(tmp_path.rglob("*.json"))


def test_a_tokens_activations_are_those_counted_by_hand(distil):
    """A layer without dropout keeps, in float32: queries, keys, values, their mixture, and twice
    what LayerNorm takes and gives (8 D), the inner layer before and after GELU, and two pairs of
    mean and deviation. Two heads keep the weights of each pair of tokens and their sums: this is a
    document of 40 tokens, of one block. The embeddings keep what their LayerNorm takes and gives,
    a pair, and two ids of 8 bytes. A document's length is a last number of 8 bytes."""
    student = distil.make_objective(dropout=0.0).student
    D = student.dim
    inner = student.config.intermediate_size
    weights = 2 * 40  # a token's share
    sums = 2
    layers = 2 * (8 * D + 2 * inner + 4 + weights + sums)
    by_hand = 4 * (layers + 2 * D + 2) + 2 * 8
    assert run.activation_bytes(student, nullcontext) == pytest.approx(by_hand, rel=0.01)


def test_a_padded_student_pads_to_whole_windows(distil):
    student = distil.make_student(0.0, window=64, pooling="cls")
    assert (student.padded(7), student.padded(65)) == (64, 128)
    assert distil.make_student(0.0).padded(7) == 7


@pytest.mark.parametrize("small", ["distil", "on_pairs"])
def test_passes_of_a_padded_student_fit_the_budget_with_their_padding(
    small, request, tmp_path, monkeypatch
):
    passes = []
    forward = Student.forward

    def recorded(student, batch):
        passes.append(batch.sizes)
        return forward(student, batch)

    monkeypatch.setattr(Student, "padded", lambda self, length: -(-length // 40) * 40)
    monkeypatch.setattr(Student, "forward", recorded)
    _, history = request.getfixturevalue(small).train(tmp_path, batch_tokens=200, n=16, epochs=1)
    assert max(map(len, passes)) == 5  # of at most 40 tokens; more would fit without padding
    assert min(row["tokens_per_second"] for row in history.train) > 0


@pytest.fixture
def student(distil):
    return distil.make_objective().student


@pytest.mark.parametrize(
    ("tokens", "processes", "budget"),
    [
        (100, 1, 64),
        (5000, 1, 4096),
        (5000, 2, 2048),  # they share the memory of one machine
        (2**40, 1, run.LARGEST["cpu"]),
    ],
)
def test_a_pass_fits_half_of_the_free_memory(student, monkeypatch, tokens, processes, budget):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    free = 2 * tokens * run.activation_bytes(student, nullcontext)
    monkeypatch.setattr(run, "free_memory", lambda _: free)
    assert run.batch_tokens_for(student, nullcontext) == budget


def test_a_pass_holds_one_document_at_least(student, monkeypatch):
    monkeypatch.setattr(run, "free_memory", lambda _: 1)
    assert run.batch_tokens_for(student, nullcontext) == student.max_tokens


@pytest.mark.parametrize(("times_longest", "needed"), [(2.1, False), (1.9, True)])
def test_checkpointing_is_on_where_the_longest_batch_would_not_fit_without(
    student, monkeypatch, times_longest, needed
):
    longest = 4 * student.max_tokens * run.activation_bytes(student, nullcontext)
    monkeypatch.setattr(run, "free_memory", lambda _: times_longest * longest)
    run.set_up(student, Training(), nullcontext, pass_documents=4)
    assert student.checkpointing is needed
