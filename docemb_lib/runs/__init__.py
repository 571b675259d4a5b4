"""What one run of one notebook is: its key, its stages from corpus to scores, and its record.

`key` says what a run is, and `checks` whether its parameters fit each other. `stages` (corpus,
teachers), `students` and `scores` build what it needs, and `pipeline` wires them together. `models`
are what is compared, `run` is what a notebook calls, and `records` keeps its results.
"""
