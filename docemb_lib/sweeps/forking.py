"""A process that has imported what notebooks import, and forks their kernels.

The imports of a kernel take five seconds of a processor, a fork of this process a tenth of one. A
process that executes notebooks starts this module as a program, and asks it for each kernel. The
program, and then its kernels, end when that process does.
"""

import atexit
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from docemb_lib.base.hardware import tune_environment

PARENT = "JPY_PARENT_PID"  # the variable in which jupyter_client tells a kernel its parent
# Devices of the drivers of NVIDIA, of AMD, and of Linux under Windows.
GPU_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
# What brings everything with it that a notebook imports.
IMPORTED = (
    "docemb_lib.figures.methods",
    "docemb_lib.thesis",
    "docemb_lib.training.run",
    "docemb_lib.views",
    "docemb_lib.widgets.sweep_table",
    "gensim.models.doc2vec",
    "ipykernel.kernelapp",
    "matplotlib.backends.backend_svg",
    "sentence_transformers",
)


class ForkedKernel(psutil.Process):
    """A kernel that is no child of this process, with what jupyter_client needs of a Popen."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        """None while the kernel runs; the exit code of one that has ended is not known."""
        return None if self.is_running() else 0

    def send_signal(self, number: int) -> None:
        """Do nothing to a kernel that has ended."""
        with suppress(psutil.NoSuchProcess):
            super().send_signal(number)


class Forker:
    """The program, as the process that has started it sees it."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in a terminal does not reach it
        )
        theirs.close()

    def fork(
        self, arguments: Sequence[str], name: str, environment: Mapping[str, str], folder: str
    ) -> ForkedKernel:
        """Start a kernel; raise OSError or EOFError where the program has ended.

        Args:
            arguments: of the kernel.
            name: of its process; Linux keeps 15 characters.
            environment: its variables, to which its parent is added.
            folder: in which it runs.
        """
        environment = {**environment, PARENT: str(self._process.pid)}
        self._connection.send((arguments, name, environment, folder))
        return ForkedKernel(self._connection.recv())

    def close(self) -> None:
        """End the program; the system then counts the time of all kernels as this process's."""
        self._process.terminate()  # it may import for long
        self._process.wait()


def may_fork() -> bool:
    """Whether kernels can be forks: on Linux, where no GPU is visible.

    A fork must not inherit the context of a GPU, which imports may make. torch is not asked,
    because it takes seconds to be imported.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        visible = "".join(str(driver) for driver in GPU_DRIVERS if driver.exists())
    return sys.platform == "linux" and not visible


@cache
def forker() -> Forker:
    """The program of this process, started at the first call and closed when the process ends."""
    program = Forker()
    atexit.register(program.close)
    return program


def serve(connection: Connection) -> None:
    """Fork a kernel for each request, and answer with the id of its process."""
    tune_environment()
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # as in a kernel
    for module in IMPORTED:
        import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a kernel would write to all memory that it shares
    signal.signal(signal.SIGCHLD, _reap)
    with suppress(EOFError):
        while True:
            request = connection.recv()
            kernel = os.fork()
            if not kernel:
                connection.close()
                _become_kernel(*request)
                break
            connection.send(kernel)


def _reap(*_: object) -> None:
    """Take note of the end of a kernel, which would stay as a zombie."""
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def _become_kernel(
    arguments: Sequence[str], name: str, environment: Mapping[str, str], folder: str
) -> None:
    from ipykernel.kernelapp import launch_new_instance

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    Path("/proc/self/comm").write_text(name)
    launch_new_instance(argv=arguments)


if __name__ == "__main__":
    sys.path = [place for place in sys.path if place not in ("", os.getcwd())]
    serve(Connection(int(sys.argv[1])))
