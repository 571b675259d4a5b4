"""Where a profile and parameters become corpus, teachers, students and scores, and where runs are recorded.

`stages` composes the rooms above, `run` is a notebook's handle on one run, `plan` executes notebooks through papermill.
Importing this loads no torch.
"""
