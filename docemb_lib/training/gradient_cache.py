"""Gradients of a loss that compares all texts of a batch, with the activations of a few in memory (Gao et al. 2021).

Embed everything without a graph, take the loss and its gradient with regard to the embeddings, then embed a part again,
now with a graph, and hand it its share of that gradient. The second time must be like the first, dropout included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from docemb_lib.student.packing import PackedBatch


class Dice:
    """The random numbers that a forward pass on a device is about to draw, to be drawn again."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw as then; what is drawn afterwards is as if nothing had been drawn in here."""
        with torch.random.fork_rng([] if self.cuda is None else [self.device]):
            torch.set_rng_state(self.cpu)
            if self.cuda is not None:
                torch.cuda.set_rng_state(self.cuda, self.device)
            yield


class Compared(NamedTuple):
    losses: Tensor  # (B,)
    embeddings: Tensor  # (n, D) of all texts, in their order, without gradient


def compare_parts(
    embed: Callable[[PackedBatch], Tensor],
    parts: Sequence[PackedBatch],
    places: Sequence[Sequence[int]],
    losses_of: Callable[[Tensor], Tensor],
    *,
    share: float,
    backward: Callable[[Tensor], None],
) -> Compared:
    """Accumulate the gradients of `share` times the mean of `losses_of` all n texts' embeddings, part by part.

    embed: a part's texts to their embeddings, under autocast if there is to be any. places: of each part's texts among
    the n. A single part is embedded once, which gives the same.
    """
    order = torch.tensor([place for those in places for place in those]).argsort()
    if len(parts) == 1:
        embeddings = embed(parts[0])[order]
        losses = losses_of(embeddings)
        backward(losses.mean() * share)
        return Compared(losses.detach(), embeddings.detach())
    dice, embedded = [], []
    with torch.no_grad():
        for part in parts:
            dice.append(Dice(part.input_ids.device))
            embedded.append(embed(part))
    embeddings = torch.cat(embedded)[order].requires_grad_()
    losses = losses_of(embeddings)
    (gradient,) = torch.autograd.grad(losses.mean() * share, embeddings)
    for part, those, thrown in zip(parts, places, dice, strict=True):
        with thrown.again():
            again = embed(part)
        backward((again * gradient[those]).sum())
    return Compared(losses.detach(), embeddings.detach())
