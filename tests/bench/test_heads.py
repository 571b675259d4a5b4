"""Both loops train as many heads as ours, and the usual one has the budget."""

from unittest.mock import Mock

from docemb_lib.bench import heads


def test_each_side_trains_as_many_heads_and_only_the_usual_loop_has_a_budget(monkeypatch):
    monkeypatch.setattr(heads, "HEADS", 3)
    monkeypatch.setattr(heads, "EXAMPLES", 70)
    loop = Mock(wraps=heads.train_loop)
    monkeypatch.setattr(heads, "train_loop", loop)
    report = heads.bench_heads(quick=True)
    assert [list(call.args[3]) for call in loop.call_args_list] == [[0, 1, 2]] * 2
    assert [call.kwargs for call in loop.call_args_list] == [{}, {"fused": True}]
    usual, tuned = report.rows
    assert (usual.name, usual.budget, tuned.budget) == ("3 heads against the loop", "≥ 10", "")
    assert all(row.ours > 0 for row in report.rows)
    assert (report.settings["epochs"], report.settings["repeats"]) == (1, 1)
