"""Where a profile and parameters become corpus, teachers, students and scores, and where runs are recorded.

`runkey` says what a run is. `stages` (corpus, teachers), `students` and `scores` build what it needs, `models` are what
is compared, `run` is what a notebook calls. `plan` says which runs there are, `execution` recognises a finished run and
executes any other through papermill in one of the `kernels`, `sweeps` executes many side by side on a `cluster`.
"""
