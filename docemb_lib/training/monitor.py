"""Monitoring of a training: mean losses, speed, signs of collapse, and the validation loss."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from docemb_lib.losses import Objective, ObjectiveOutput, PairObjective
from docemb_lib.losses.contextual import whitening
from docemb_lib.training.batches import Autocast, Cut
from docemb_lib.training.pairs import Documents

STATE = "monitor.pt"  # in a checkpoint
COMPONENTS = 10  # `cca` is the mean of so many canonical correlations
RIDGE = 0.01  # regularises `cca`; a share of the mean variance of a view's features
FEWEST = 20  # documents that `cca` needs
# Documents for each feature of a view. A wider view is reduced to its first principal components,
# one for each PER_COMPONENT documents.
PER_FEATURE = 2
PER_COMPONENT = 4
# A student has collapsed where its spread is below this share of the spread before training.
COLLAPSED = 1 / 20


class Means:
    """Means over documents of a loss, its parts and the norm of embeddings, and their spread."""

    def __init__(self) -> None:
        # By name, on the device: of losses and norms, of the documents' number, and of the unit
        # vectors of their embeddings, `directions`.
        self.sums: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self, output: ObjectiveOutput) -> None:
        """Add B documents."""
        embeddings = output.embeddings.double()  # (B, D)
        B = len(embeddings)
        added = {name: mean.double() * B for name, mean in output.parts.items()}
        added["loss"] = output.loss.double() * B
        added["norm"] = embeddings.norm(dim=1).sum()
        added["documents"] = embeddings.new_tensor(B)
        added["directions"] = F.normalize(embeddings, dim=1).sum(0)
        for name, sum_of_batch in added.items():
            self.sums[name] = self.sums.get(name, 0) + sum_of_batch

    def values(self) -> dict[str, float]:
        """Means over the documents, by name, and `spread`.

        `spread` is the mean cosine distance between two embeddings.
        """
        sums = dict(self.sums)
        n = sums.pop("documents").item()
        # |sum of unit vectors|^2 holds the cosine of each pair twice, and n ones.
        square = sums.pop("directions").square().sum().item()
        spread = 1 - (square - n) / (n * (n - 1)) if n > 1 else 0.0
        return {**{name: total.item() / n for name, total in sums.items()}, "spread": spread}


class Monitor(Means):
    """The rows of a training's history: means, and speed since the row before."""

    def __init__(self) -> None:
        super().__init__()
        self.start_clock()

    def start_clock(self) -> None:
        self.started = time.perf_counter()
        self.documents = 0
        self.tokens = 0

    def add_pass(self, output: ObjectiveOutput, *, tokens: int) -> None:
        """Add what was computed from so many tokens."""
        self.tokens += tokens
        self.documents += len(output.embeddings)
        self.add(output)

    def row(self) -> dict[str, float]:
        """The next row."""
        row = self.values()  # waits for the device
        seconds = max(time.perf_counter() - self.started, 1e-9)
        row["documents_per_second"] = self.documents / seconds
        row["tokens_per_second"] = self.tokens / seconds
        self.sums.clear()
        self.start_clock()
        return row

    def save(self, checkpoint: Path) -> None:
        torch.save(self.sums, checkpoint / STATE)

    def load(self, checkpoint: Path, device: torch.device) -> None:
        self.sums = torch.load(checkpoint / STATE, map_location=device, weights_only=True)


def canonical_correlation(student: Tensor, teacher: Tensor) -> float:
    """Mean correlation of the first `COMPONENTS` pairs of canonical variates of two views.

    The views are (N, P) and (N, Q). Regularised CCA (Vinod, 1976): `RIDGE` times the mean variance
    of a view's features is added to the variance of each, so directions of hardly any variance
    count as uncorrelated.

    The variates are fitted on every other document and correlated on the rest, then the other way
    round, and the mean is taken: on the documents that they are fitted on, even independent views
    correlate by nearly 1 if there are few documents for each feature. A view of more than N / 2
    features is first mapped to its N / 4 first principal components, which are fitted on the same
    half as the variates. The result is NaN for a view that is constant or not finite.
    """
    views = (student.double(), teacher.double())
    # Fitted on the even documents, then on the odd ones.
    return sum(_held_out_correlation(views, start) for start in (0, 1)) / 2


def _held_out_correlation(views: Sequence[Tensor], start: int) -> float:
    """Return the mean correlation on one half of the documents along directions of the other.

    start: the first of the documents on which the directions are fitted, 0 or 1.
    """
    fitted = []  # of each view, (n, P), with a mean variance of 1
    rest = []  # the held-out half
    for X in views:
        half, other = (part - part.mean(dim=0) for part in (X[start::2], X[1 - start :: 2]))
        if half.shape[1] > len(X) // PER_FEATURE and half.isfinite().all():
            V = torch.linalg.svd(half, full_matrices=False)[2][: len(X) // PER_COMPONENT].T
            half = half @ V
            other = other @ V
        scale = half.var(dim=0).mean().sqrt()
        if not 0 < scale < torch.inf:
            return float("nan")
        fitted.append(half / scale)
        rest.append(other / scale)
    W1, W2 = (whitening(half, RIDGE) for half in fitted)
    left, _, right = torch.linalg.svd((fitted[0] @ W1).T @ (fitted[1] @ W2), full_matrices=False)
    variates = []
    for X, directions in zip(rest, (W1 @ left, W2 @ right.T), strict=True):
        p = directions[:, :COMPONENTS]  # (P, k)
        a = X @ p / (len(X) - 1) ** 0.5  # (n, k)
        variates.append(a / (a.square().sum(dim=0) + RIDGE * p.square().sum(dim=0)).sqrt())
    return (variates[0] * variates[1]).sum(dim=0).mean().item()


@torch.no_grad()
def validate(
    objective: Objective | PairObjective,
    documents: Documents,
    cut: Cut,
    autocast: Autocast = nullcontext,
) -> dict[str, float]:
    """Return the mean loss over `documents`, its parts, `norm`, `spread` and perhaps `cca`.

    `norm` and `spread` are signs of collapse: the mean length of the student's embeddings, and the
    mean cosine distance between two. `cca` is the canonical correlation of the first contextual
    teacher's views, over all documents, and `cca_embeddings` that of the student's and that
    teacher's embeddings before their projections; both are left out where there are fewer than
    `FEWEST` documents. Pairs are those of epoch 0, which keeps the loss one function of the
    student.

    A single document left over joins the batch before.
    """
    device = next(objective.parameters()).device
    was_training = objective.training
    objective.eval()
    means = Means()
    # f(y), g(c), y and c of each pass: (B, P), (B, P), (B, D) and (B, T)
    compared: list[list[Tensor]] = []
    # The batches of a pass are the objective's groups. Only the last batch of all, which ends a
    # pass, has another size.
    for part in documents.passes(range(len(documents)), cut):
        output = part.learn(objective, device, autocast, _without_gradients)
        means.add(output)
        if output.views is not None:
            f, g, c = output.views
            compared.append([f, g, output.embeddings, c])
    objective.train(was_training)
    values = means.values()
    if not compared or len(documents) < FEWEST:
        return values
    f, g, y, c = map(torch.cat, zip(*compared, strict=True))
    values["cca"] = canonical_correlation(f, g)
    values["cca_embeddings"] = canonical_correlation(y, c)
    return values


def _without_gradients(loss: Tensor) -> None:
    """Stand for the backward pass, which a validation has not."""
