"""The forward pass of a student as one ONNX file, for programs without torch.

The exporter of transformers has no Longformer, because its stock attention depends on the length of
a batch. Here the windows of section 4.3 of the thesis are computed on padded documents by operators
that ONNX has. A document is cut into blocks as long as the window, so that a query sees keys of its
own block, of the block before and of the block after, and of no other::

    keys            block 1   block 2   block 3
    queries of 1    x x x x   x x x .   . . . .      window 3, blocks of 4
                    x x x x   x x x x   . . . .

`packing` spends nothing on padding and is what `Student.embed` runs in torch.

B: documents of a batch; T: tokens of the longest; N: blocks of a document; S: tokens of a block; H:
heads; D: width of a state.
"""

from __future__ import annotations

import copy
import logging
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docemb_lib.base.errors import InputError

if TYPE_CHECKING:
    from docemb_lib.student.student import Student

# What the softmax adds where a query must not see a key. With -inf the softmax of a block of
# padding alone would not be a number.
UNSEEN = -1e9
EXAMPLE = 3  # whole blocks of the documents that the exporter follows through the graph


class PaddedForward(nn.Module):
    """The packed forward of a student for padded documents, without dropout, in float32.

    It holds a copy of the weights, on the CPU. Raises InputError for a student that runs the stock
    forward.
    """

    def __init__(self, student: Student) -> None:
        super().__init__()
        if not student.packed:
            kind = f"pooling {student.pooling} of a {student.config.model_type}"
            problem = f"an exported forward has no global attention, and the student has {kind}"
            raise InputError(f"{problem}; take a Longformer with pooling mean, lead or first")
        model = copy.deepcopy(student.model).float().cpu().eval()
        # Without the model around them, whose properties warn an exporter that looks at each.
        self.embeddings = model.embeddings
        self.layers = model.encoder.layer
        self.padding = model.config.pad_token_id
        self.pooling = student.pooling
        windows = [layer.attention.self.one_sided_attn_window_size for layer in self.layers]
        self.block = max(windows)  # S

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Compute the embeddings of B documents, (B, D).

        input_ids, attention_mask: (B, T) int64; in the mask 1 is a token and 0 padding, which
        follows the tokens of a document.
        """
        B, T = input_ids.shape
        S = self.block
        N = (T + S - 1) // S
        ids = F.pad(input_ids, (0, N * S - T), value=self.padding)  # (B, N S), as all below
        mask = F.pad(attention_mask, (0, N * S - T)).float()

        # Positions as in the stock model, see `packed.forward`.
        is_text = ids != self.padding
        number = self.padding + is_text.long().cumsum(1)
        positions = torch.where(is_text, number, self.padding)
        embeddings = self.embeddings
        hidden = embeddings.word_embeddings(ids) + embeddings.position_embeddings(positions)
        hidden = embeddings.LayerNorm(hidden + embeddings.token_type_embeddings.weight[0])

        unseen = _with_neighbours((UNSEEN * (1 - mask)).view(B, N, S), UNSEEN)  # (B, N, 3 S)
        for layer in self.layers:
            attention = layer.attention.self
            heads = (B, N, S, attention.num_heads, attention.head_dim)
            query = attention.query(hidden).view(heads).transpose(2, 3)  # (B, N, H, S, head_dim)
            key = _with_neighbours(attention.key(hidden).view(heads)).transpose(2, 3)
            value = _with_neighbours(attention.value(hidden).view(heads)).transpose(2, 3)
            # In the numbering of a block's keys its queries are S to 2 S - 1.
            distance = torch.arange(3 * S) - torch.arange(S, 2 * S)[:, None]  # (S, 3 S)
            inside = distance.abs() <= attention.one_sided_attn_window_size
            bias = torch.where(inside, 0.0, UNSEEN) + unseen[:, :, None, None]
            query = query * attention.head_dim**-0.5
            scores = query @ key.transpose(3, 4) + bias  # (B, N, H, S, 3 S)
            context = scores.softmax(-1) @ value  # (B, N, H, S, head_dim)
            context = context.transpose(2, 3).reshape(B, N * S, -1)
            hidden = layer.ff_chunk(layer.attention.output(context, hidden))  # (B, N S, D)
        if self.pooling == "first":
            return hidden[:, 0]
        weights = mask
        if self.pooling == "lead":
            # Imported here, because it imports sentence-transformers.
            from docemb_lib.student.lexical_module import FIRST_TOKENS

            number = mask.cumsum(1)
            for first, more in FIRST_TOKENS:
                weights = weights + more * mask * (number <= first)
        return (hidden * weights[:, :, None]).sum(1) / weights.sum(1, keepdim=True)


def _with_neighbours(blocks: Tensor, outside: float = 0.0) -> Tensor:
    """Put the block before and the block after around each block, (B, N, S, …) to (B, N, 3 S, …).

    Before the first block and after the last one all is `outside`.
    """
    edge = torch.full_like(blocks[:, :1], outside)
    wide = torch.cat([edge, blocks, edge], dim=1)
    return torch.cat([wide[:, :-2], wide[:, 1:-1], wide[:, 2:]], dim=2)


def write_onnx(student: Student, file: Path) -> None:
    """Write the dense half of a student as an ONNX file.

    The graph takes `input_ids` and `attention_mask`, (B, T) int64 of any B and T, and gives
    `sentence_embedding`, (B, D) float32. The metadata hold `max_tokens`, at which the caller cuts a
    document, and the `prompt` that the caller puts before its text. The lexical half stays in the
    folder of the student. Raises InputError where the extra `onnx` is not installed, and for a
    student with global attention or of another kind than Longformer.
    """
    if find_spec("onnxscript") is None:
        mend = 'run `pip install "docemb[onnx]"`'
        raise InputError(f"the package onnxscript is not installed; {mend}")
    forward = PaddedForward(student).eval()
    # Sizes of 0 and 1 would become constants, and one tensor given twice would become one input.
    mask = torch.ones((2, EXAMPLE * forward.block + 1), dtype=torch.int64)
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
    about["prompt"] = student.prompt
    program.save(file, external_data=False)
