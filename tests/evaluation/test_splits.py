"""What splits refuse, with task, split and numbers."""

from collections.abc import Callable

import pytest

from docemb_lib.errors import InputError
from docemb_lib.evaluation import Classification, Labelled, LabelledPairs, Pairs, Ranking, Retrieval


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Labelled(["a"], [0, 1]), r"task 't', split 'train': 1 texts and 2 labels"),
        (lambda: Labelled([], []), r"task 't', split 'train': 0 texts and 0 labels"),
        (lambda: Labelled(["a", "b"], [1, 1]), r"task 't', split 'train': all labels are 1"),
    ],
)
def test_unsound_documents_are_refused_with_task_split_and_numbers(build: Callable[[], Labelled], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Classification("t", {"train": build()})


def test_unsound_pairs_are_refused_with_task_split_and_numbers() -> None:
    good = LabelledPairs(["a", "b"], ["c", "d"], [0, 1])
    with pytest.raises(InputError, match=r"task 't', split 'test': 2 first texts, 1 second texts and 2 labels"):
        Pairs("t", {"train": good, "test": LabelledPairs(["a", "b"], ["c"], [0, 1])})


def test_a_class_that_train_does_not_have_is_refused() -> None:
    train, test = Labelled(["a", "b"], ["x", "y"]), Labelled(["c", "d", "e"], ["x", "z", "z"])
    with pytest.raises(InputError, match=r"task 't', split 'test': 2 of 3 labels are none of the 2 classes .* 'z'"):
        Classification("t", {"train": train, "test": test})


def test_a_missing_or_unknown_split_is_refused() -> None:
    data = Labelled(["a", "b"], [0, 1])
    with pytest.raises(InputError, match="no split 'train' to train heads on, only test"):
        Classification("t", {"test": data})
    with pytest.raises(InputError, match=r"some of train, validation, test, got \['train', 'dev'\]"):
        Classification("t", {"train": data, "dev": data})
    with pytest.raises(InputError, match="task 't' has no split 'test', only train"):
        Classification("t", {"train": data}).texts("test")


@pytest.mark.parametrize("rows", [[], [0], [1, 1], [3], [-1]])
def test_a_query_needs_other_rows_of_the_pool_each_once(rows: list[int]) -> None:
    with pytest.raises(InputError, match=r"task 'r', split 'test': query 0 .*rows \["):
        Retrieval("r", {"test": Ranking(["a", "b", "c"], [0], [rows])})


def test_only_candidates_are_relevant_and_queries_may_stand_behind_them() -> None:
    data = Ranking(["a", "b", "a question"], [2], [[1]], candidates=2)
    assert Retrieval("r", {"test": data}).splits["test"] == data
    with pytest.raises(InputError, match="points outside the 3 texts, or the 1 of them that may be found"):
        Retrieval("r", {"test": Ranking(["a", "b", "c"], [2], [[1]], candidates=1)})
    for candidates in (0, 4):
        with pytest.raises(InputError, match=f"{candidates} of 3 texts may be found, expected from 1 to all"):
            Retrieval("r", {"test": Ranking(["a", "b", "c"], [2], [[1]], candidates=candidates)})


def test_queries_and_their_lists_must_be_equally_many_and_the_cut_positive() -> None:
    with pytest.raises(InputError, match="1 queries and 2 lists"):
        Retrieval("r", {"test": Ranking(["a", "b"], [0], [[1], [0]])})
    with pytest.raises(InputError, match="top_k must be at least 1 or None, got 0"):
        Retrieval("r", {"test": Ranking(["a", "b"], [0], [[1]])}, top_k=0)
