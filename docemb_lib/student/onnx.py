"""The forward pass of a student as one ONNX file, for programs without torch.

The exporter of transformers has no Longformer, because its stock attention depends on the length of
a batch. Without global attention, a Longformer is a RoBERTa whose tokens see those inside their
window (section 4.2 of the thesis). So the layers of a stock RoBERTa are exported with a mask for
each window, to which MPNet's biases are added. They compute all scores of a document: time and
memory grow with the square of its length.

`packing` spends nothing on padding and is what `Student.embed` runs in torch.

B: documents of a batch; T: tokens of the longest; D: width of a state.
"""

from __future__ import annotations

import logging
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import RobertaConfig, RobertaModel

from docemb_lib.base.errors import InputError
from docemb_lib.packed.relative import FARTHEST
from docemb_lib.student.loading import SHARED_FIELDS

if TYPE_CHECKING:
    from docemb_lib.student.student import Student

UNSEEN = -1e9  # added to scores; with -inf, the softmax of padding alone would not be a number
EXAMPLE = 9  # tokens of the documents that the exporter follows through the graph


class PaddedForward(nn.Module):
    """The packed forward of a student for padded documents, without dropout, in float32.

    It holds a copy of the weights, on the CPU. Raises InputError for a student that runs the stock
    forward.
    """

    strip: Tensor

    def __init__(self, student: Student) -> None:
        super().__init__()
        if not student.packed:
            kind = f"pooling {student.pooling} of a {student.config.model_type}"
            problem = f"an exported forward has no global attention, and the student has {kind}"
            raise InputError(f"{problem}; take a Longformer with pooling mean, lead or first")
        names = (*SHARED_FIELDS, "num_hidden_layers", "max_position_embeddings")
        config = RobertaConfig(**{name: getattr(student.config, name) for name in names})
        self.model = RobertaModel(config, add_pooling_layer=False).eval()
        # Only the biases and the projections for global attention are left out.
        self.model.load_state_dict(student.model.state_dict(), strict=False)
        strip = getattr(student.model.encoder, "offset_bias", torch.zeros(1, 2 * FARTHEST + 1))
        self.register_buffer("strip", strip.detach().float().cpu())
        layers = student.model.encoder.layer
        self.windows = [layer.attention.self.one_sided_attn_window_size for layer in layers]
        self.pooling = student.pooling
        self.leads = student.leads

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Compute the embeddings of B documents, (B, D).

        input_ids, attention_mask: (B, T) int64; in the mask 1 is a token and 0 padding, which
        follows the tokens of a document.
        """
        place = torch.arange(input_ids.shape[1])
        offset = place - place[:, None]  # (T, T)
        bias = self.strip[:, offset.clamp(-FARTHEST, FARTHEST) + FARTHEST]  # (1 or H, T, T)
        hidden = self.model.embeddings(input_ids)  # (B, T, D)
        for layer, window in zip(self.model.encoder.layer, self.windows, strict=True):
            seen = (offset.abs() <= window) & (attention_mask[:, None, None] == 1)  # (B, 1, T, T)
            hidden = layer(hidden, torch.where(seen, bias, UNSEEN))
        if self.pooling == "first":
            return hidden[:, 0]
        weights = attention_mask * (1 + sum(more * (place < first) for first, more in self.leads))
        return (hidden * weights[:, :, None]).sum(1) / weights.sum(1, keepdim=True)


def write_onnx(student: Student, file: Path) -> None:
    """Write the half of meaning of a student as an ONNX file.

    The graph takes `input_ids` and `attention_mask`, (B, T) int64 of any B and T, and gives
    `sentence_embedding`, (B, D) float32. The metadata hold `max_tokens`, at which the caller cuts a
    document, and the `prompt` that the caller puts before its text (before a query: `query_prompt`,
    unless it is empty). The half of words stays in the folder of the student. Raises InputError
    where the extra `onnx` is not installed, and for a student with global attention or of another
    kind than Longformer.
    """
    if find_spec("onnxscript") is None:
        mend = 'run `pip install "docemb[onnx]"`'
        raise InputError(f"the package onnxscript is not installed; {mend}")
    forward = PaddedForward(student).eval()
    # Sizes of 0 and 1 would become constants, and one tensor given twice would become one input.
    mask = torch.ones((2, EXAMPLE), dtype=torch.int64)
    dynamic = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it lists what it skips
    with warnings.catch_warnings(action="ignore"):  # of names that torch has deprecated and uses
        program = torch.onnx.export(
            forward,
            (mask.clone(), mask),
            input_names=["input_ids", "attention_mask"],
            output_names=["sentence_embedding"],
            dynamic_shapes=[dynamic, dynamic],
            verbose=False,
        )
    assert program is not None  # that of the exporter which torch takes by default
    about = program.model.metadata_props
    about["max_tokens"] = str(student.max_tokens)
    about["pooling"] = student.pooling
    about["prompt"] = student.prompts.document
    about["query_prompt"] = student.prompts.query
    program.save(file, external_data=False)
