"""Contextual losses: correlation between the projected views of student and contextual teacher.

This is Figure 4.6 of the thesis. Projections, small networks, first map both views to one width
(Tables 4.6 to 4.8). SoftCCA and CCA compute statistics over the batch. Contextual losses take no
mask: the mask leaves out documents beyond the structural teacher's context, and the contextual
teacher reads whole documents.

B: documents of a batch; P: width of a projected view.
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from docemb_lib.base.errors import InputError
from docemb_lib.losses.structural import MSE, Described
from docemb_lib.settings.projections import (
    ACTIVATIONS,
    BATCH_NORM,
    DROPOUT,
    NORM,
    parse_projection,
    projection_widths,
)

Reduction = Literal["mean", "sum"]
_SMALLEST_VARIANCE = 1e-9  # CCA leaves out directions of a view with less variance


class Projection(nn.Module):
    """The network that `spec` describes, from `in_features` to `out_features`.

    Layers have PyTorch's default initialisation, which draws from the global generator: seed before
    building.

    Example:
        >>> projection = Projection("8(ReLU)x4", in_features=16)
        >>> projection.widths, projection(torch.zeros(2, 16)).shape
        ((16, 8, 4), torch.Size([2, 4]))
    """

    def __init__(self, spec: str, in_features: int) -> None:
        super().__init__()
        self.spec = spec
        self.widths = projection_widths(spec, in_features)
        self.in_features = self.widths[0]
        self.out_features = self.widths[-1]
        self.layers = nn.Sequential()
        for width_in, (width, names) in zip(self.widths, parse_projection(spec), strict=False):
            self.layers.append(nn.Linear(width_in, width))
            self.layers.extend(_layer(name, width) for name in names)

    def forward(self, view: Tensor) -> Tensor:
        """Map a view, (B, in_features), to (B, out_features)."""
        return self.layers(view)


def _layer(name: str, width: int) -> nn.Module:
    """Make the layer after a linear one of this width, by its name in `parse_projection`."""
    if name == NORM:
        # The norm of each document alone: statistics of the batch would tie its documents together.
        return nn.LayerNorm(width)
    if name == BATCH_NORM:
        return nn.BatchNorm1d(width)
    if name.startswith(DROPOUT):
        return nn.Dropout(float(name.removeprefix(DROPOUT)))
    options = {"dim": -1} if name == "softmax" else {}
    return getattr(nn, str(ACTIVATIONS[name]))(**options)


def full_precision(tensor: Tensor) -> Tensor:
    """Return `tensor` in float32 at least.

    Half precision is too coarse for covariances and for small distances.
    """
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


class SDL(Described):
    """Stochastic decorrelation loss of one view's P features (Chang et al., 2018).

    It keeps a running covariance. In training step t, with batch-normalised Z::

        Sigma = Zb^T Zb / (B - 1)
        Phi_t = beta * Phi_{t-1} + Sigma
        b_t = beta * b_{t-1} + 1
        SDL = sum or mean over i != j of |Phi_t,ij / b_t|

    Gradients flow through the current batch's Sigma only, so with weight 1 / b_t, which falls to 1
    - beta. Evaluation stores nothing: the value is that of the step that would follow, with the
    running means and variances.
    """

    covariance: Tensor  # Phi, (P, P)
    normaliser: Tensor  # b, ()

    def __init__(self, dim: int, beta: float = 0.95, reduction: Reduction = "mean") -> None:
        super().__init__()
        if not 0 <= beta < 1 or reduction not in get_args(Reduction):
            needed = "beta must be at least 0 and below 1, and reduction sum or mean"
            raise InputError(f"beta, reduction: got {beta}, {reduction!r}; {needed}")
        self.beta = beta
        self.reduction = reduction
        self.normalise = nn.BatchNorm1d(dim, affine=False)
        self.register_buffer("covariance", torch.zeros(dim, dim))
        self.register_buffer("normaliser", torch.zeros(()))

    def forward(self, view: Tensor) -> Tensor:
        """Compute the loss of a view (B, P), a scalar; in training the statistics advance a step.

        Raises InputError for fewer than two documents.
        """
        B, P = view.shape
        if B < 2:
            problem = f"a covariance needs 2 documents or more, got a batch of {B}"
            raise InputError(f"{problem}: raise the batch size")
        with torch.autocast(view.device.type, enabled=False):
            Zb = self.normalise(full_precision(view))  # (B, P)
            # Phi_t = beta * Phi_{t-1} + Sigma in one product; Phi_{t-1} is a buffer, a constant to
            # autograd.
            covariance = torch.addmm(self.covariance, Zb.T, Zb, beta=self.beta, alpha=1 / (B - 1))
            normaliser = self.beta * self.normaliser + 1  # b_t, the sum of the weights in Phi_t
            if self.training:
                self.covariance.copy_(covariance.detach())
                self.normaliser.copy_(normaliser)
            # Phi is symmetric: both triangles have the sum of the upper one.
            total = 2 * covariance.triu(diagonal=1).abs().sum() / normaliser
            if self.reduction == "sum":
                return total
            return total / max(P * P - P, 1)


class SoftCCA(Described):
    """Bring two views together while decorrelating the features of each (Chang et al., 2018).

    ::

        loss_i = 1/P * sum_k (z1_ik - z2_ik)^2 + delta * (SDL(z1) + SDL(z2))

    The first term replaces the correlation of CCA by a distance, the second replaces its
    constraint, uncorrelated features in each view, by a penalty. `delta = 0.03` belongs to
    `reduction="mean"`; the thesis' formula sums over the P^2 - P off-diagonal cells, which is the
    same loss with `reduction="sum"` and `delta / (P^2 - P)`.

    Example:
        >>> z = torch.tensor([[1.0, 2.0], [1.0, -2.0], [-1.0, 2.0], [-1.0, -2.0]])
        >>> SoftCCA(dim=2)(z, z + 1)  # the features are uncorrelated, so the distance is left
        tensor([1., 1., 1., 1.])
    """

    def __init__(
        self, dim: int, delta: float = 0.03, beta: float = 0.95, reduction: Reduction = "mean"
    ) -> None:
        super().__init__()
        self.dim = dim
        self.delta = delta
        self.distance = MSE()
        self.student_decorrelation = SDL(dim, beta, reduction)
        self.teacher_decorrelation = SDL(dim, beta, reduction)

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Compute the loss of each document, (B,), from projected views (B, P), B >= 2.

        In training the statistics advance by one step. Raises InputError for views of other widths.
        """
        if student.shape[1] != self.dim or teacher.shape[1] != self.dim:
            got = f"got a student's of {student.shape[1]} and a teacher's of {teacher.shape[1]}"
            needed = f"SoftCCA was made for views of width {self.dim}"
            raise InputError(f"{needed}, {got}: change dim or the projections")
        distance = self.distance(full_precision(student), full_precision(teacher))  # (B,)
        decorrelation = self.student_decorrelation(student)  # ()
        decorrelation = decorrelation + self.teacher_decorrelation(teacher)
        return distance + self.delta * decorrelation


class CCA(Described):
    """Minus the sum of the `components` largest canonical correlations of a batch (None: of all).

    With centred views X1, X2, S_ab = Xa^T Xb / (B - 1) and `ridge` added to the diagonals of S11
    and S22, these are the singular values s of A = S11^{-1/2} S12 S22^{-1/2}; for all of them the
    loss is A's nuclear norm. At most B - 1 correlations exist. Without ridge, all are 1 where B - 1
    <= P: CCA needs batches larger than the width of the views. On views that trained networks
    project, this loss is DCCA (Andrew et al., 2013).

    The gradient is written down rather than left to the decompositions, whose own gradients divide
    by differences of eigenvalues and fail where B < P. With the canonical variates a = X1 p and b =
    X2 q at fixed p, q and s, it is that of `sum_k ( <a_k, b_k> - s_k/2 (|a_k|^2 + |b_k|^2) ) / (B -
    1)` (the Lagrangian at its optimum).

    Example:
        >>> z = torch.tensor([[1.0], [2.0], [4.0]])
        >>> CCA(ridge=0.0)(z, -3 * z).round(decimals=4)  # one pair of variates, of correlation 1
        tensor([-1., -1., -1.])
    """

    def __init__(self, components: int | None = None, ridge: float = 1e-3) -> None:
        super().__init__()
        self.components = components
        self.ridge = ridge

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Compute the loss of the batch, the same number B times, (B,).

        student: (B, P), teacher: (B, Q), B >= 2; P and Q may differ. Raises InputError for fewer
        than two documents.
        """
        B = len(student)
        if B < 2:
            problem = f"a correlation needs 2 documents or more, got a batch of {B}"
            raise InputError(f"{problem}: raise the batch size")
        with torch.autocast(student.device.type, enabled=False):
            X1 = _centred(student)  # (B, P)
            X2 = _centred(teacher)  # (B, Q)
            # SVD fails on NaN. Return NaN instead, which the training reports.
            if not (X1.isfinite().all() and X2.isfinite().all()):
                return (X1.sum() * float("nan")).expand(B)
            with torch.no_grad():
                W1 = _whitening(X1, self.ridge)  # (P, R)
                W2 = _whitening(X2, self.ridge)  # (Q, R)
                A = (X1 @ W1).T @ (X2 @ W2) / (B - 1)  # (R, R)
                left, s, right = torch.linalg.svd(A, full_matrices=False)
                k = min(self.components or B - 1, B - 1, len(s))
                s = s[:k]  # the canonical correlations, largest first
                p = W1 @ left[:, :k]  # (P, k)
                q = W2 @ right[:k].T  # (Q, k)
            a = X1 @ p  # canonical variates of the student, (B, k)
            b = X2 @ q  # those of the teacher, (B, k)
            lagrangian = (a * b - s / 2 * (a.square() + b.square())).sum() / (B - 1)
            # The value is -sum(s); the difference is zero and contributes the Lagrangian's
            # gradient.
            return -(s.sum() + lagrangian - lagrangian.detach()).expand(B)


def _centred(view: Tensor) -> Tensor:
    view = full_precision(view)
    return view - view.mean(dim=0)


def _whitening(X: Tensor, ridge: float) -> Tensor:
    """Return W (P, R) such that W^T (X^T X / (B - 1) + ridge I) W = I, R <= min(B, P).

    X is centred, (B, P). W is S^{-1/2} restricted to the row space of X, from the singular values
    of X: forming X^T X would halve the digits.
    """
    _, s, Vh = torch.linalg.svd(X, full_matrices=False)
    variances = s.square() / (len(X) - 1) + ridge  # (R,)
    return Vh.T * torch.where(variances > _SMALLEST_VARIANCE, variances.rsqrt(), 0)


def contextual_loss(
    name: str,
    dim: int,
    *,
    delta: float = 0.03,
    beta: float = 0.95,
    reduction: Reduction = "mean",
    ridge: float = 1e-3,
) -> nn.Module:
    """Make the loss that the parameter `contextual_loss` names, for views of width `dim`.

    name: `soft-cca`; `mse`, which is SoftCCA's distance alone; `cca`, which sums all canonical
    correlations; or `cca:10`, which sums the first ten. delta, beta, reduction: of soft-cca; delta
    is that of the mean form, the sum takes delta / (P^2 - P). ridge: of cca. Raises InputError for
    another name.
    """
    if name == "mse":
        return MSE()
    if name == "soft-cca":
        cells = max(dim * dim - dim, 1) if reduction == "sum" else 1
        return SoftCCA(dim, delta / cells, beta, reduction)
    kind, colon, components = name.partition(":")
    if kind == "cca" and not colon:
        return CCA(None, ridge)
    if kind == "cca" and components.isdecimal():
        return CCA(int(components), ridge)
    raise InputError(f"contextual_loss must be one of soft-cca, mse, cca, cca:10, got {name!r}")
