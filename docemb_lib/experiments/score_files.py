"""A task's scores on disk: the numbers as JSON, beside them what every test example got, for intervals and tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from docemb_lib.evaluation.tasks import Score
from docemb_lib.workspace import write_text

NUMBERS = "scores.json"  # {round: {metric, values, extra}}
EXAMPLES = "per_example.npz"  # round/metric: float32 (seeds, N)


def write_scores(folder: Path, by_round: Mapping[str, Score]) -> None:
    """Write a task's score of every round."""
    numbers = {
        name: {"metric": score.metric, "values": score.values, "extra": dict(score.extra)}
        for name, score in by_round.items()
    }
    write_text(folder / NUMBERS, json.dumps(numbers))
    examples: dict[str, Any] = {
        f"{name}/{metric}": answers for name, score in by_round.items() for metric, answers in score.per_example.items()
    }
    np.savez_compressed(folder / EXAMPLES, **examples)


def read_scores(folder: Path) -> dict[str, Score]:
    """{round: score}, as they were written."""
    numbers = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
    with np.load(folder / EXAMPLES) as stored:
        examples = {key: stored[key] for key in stored.files}
    return {
        name: Score(
            score["metric"],
            tuple(score["values"]),
            extra=score["extra"],
            per_example={
                key.removeprefix(f"{name}/"): answers for key, answers in examples.items() if key.startswith(f"{name}/")
            },
        )
        for name, score in numbers.items()
    }
