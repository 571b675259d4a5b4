"""Many runs: which there are, and how they are executed.

`grids` are sets of parameters, and `plan` resolves plans and grids. `execution` recognises a
finished run, and executes any other through papermill in one of the `kernels`. `sweep` executes
many side by side, on the workers of a `cluster`, and shows their `progress`.
"""
