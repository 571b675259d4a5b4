"""The forward pass of a student compiled by OpenVINO, which is faster than torch on some CPUs.

B: documents of a batch; D: width of the dense embedding.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from docemb_lib.base.extras import import_openvino
from docemb_lib.student.onnx import PaddedForward, example_inputs
from docemb_lib.student.packing import PackedBatch

if TYPE_CHECKING:
    from docemb_lib.student.student import Student


class OpenVINOForward(nn.Module):
    """The dense half of a student on the CPU, in bfloat16 under autocast, else in float32.

    It computes with the weights that the student has now, on as many threads as torch. Raises
    InputError where the extra `openvino` is not installed, and for students that `PaddedForward`
    refuses.
    """

    device = torch.device("cpu")

    def __init__(self, student: Student) -> None:
        super().__init__()
        openvino = import_openvino()
        forward = PaddedForward(student).eval()
        self.dim = student.dim
        self.block = forward.block
        self.padding = forward.padding
        anything = ([-1, -1], openvino.Type.i64)  # any number of documents and tokens
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that transformers has deprecated
            graph = openvino.convert_model(
                forward, example_input=example_inputs(forward), input=[anything, anything]
            )
        options = {
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "PERFORMANCE_HINT": "LATENCY",  # all threads compute one batch
        }
        self._compile: Callable[[str], Any] = lambda precision: openvino.compile_model(
            graph, "CPU", options | {"INFERENCE_PRECISION_HINT": precision}
        )
        self._compiled: dict[str, Any] = {}  # by precision

    def padded(self, tokens: int) -> int:
        """Return the tokens of whole blocks, so that batches share a few shapes."""
        return -(-tokens // self.block) * self.block

    def compile_if_possible(self, run: Callable[[], object]) -> None:
        """Do nothing: the forward is compiled."""

    def forward(self, batch: PackedBatch) -> Tensor:
        """Compute the embeddings of B packed documents, (B, D) float32."""
        precision = "bf16" if torch.is_autocast_enabled("cpu") else "f32"
        if precision not in self._compiled:
            self._compiled[precision] = self._compile(precision)
        documents = list(batch.input_ids.split(batch.sizes))
        missing = self.padded(max(batch.sizes)) - len(documents[0])
        documents[0] = nn.functional.pad(documents[0], (0, missing), value=self.padding)
        ids = pad_sequence(documents, batch_first=True, padding_value=self.padding)
        mask = (torch.arange(ids.shape[1]) < batch.lengths[:, None]).long()
        return torch.from_numpy(self._compiled[precision]([ids.numpy(), mask.numpy()])[0])
