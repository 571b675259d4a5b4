"""What one run of one notebook is: its key, its stages from corpus to scores, and its record.

`key` says what a run is. `stages` (corpus, teachers), `students` and `scores` build what it needs,
`models` are what is compared, and `run` is what a notebook calls.
"""
