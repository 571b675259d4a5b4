"""Contextual losses: similarity between the projected views of student and contextual teacher.

This is Figure 4.6 of the thesis. Projections, small networks, first map both views to one width
(Tables 4.6 to 4.8). The thesis takes SoftCCA; CCA, the plain distance, the cosine and InfoNCE are
there to be compared with it. SoftCCA, CCA and InfoNCE read the whole batch. Contextual losses take
no mask: the mask leaves out documents beyond the structural teacher's context, and the contextual
teacher reads whole documents.

Pairs of texts, without a teacher, are learnt from by the sum of InfoNCE and masked-language
modelling (SimDE, Section 3).

B: documents of a batch; P: width of a projected view.
"""

from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docemb_lib.base.errors import InputError
from docemb_lib.losses.structural import MSE, Cosine, Described, Loss, of_settings
from docemb_lib.settings.projections import (
    ACTIVATIONS,
    DROPOUT,
    NORM,
    parse_projection,
    projection_widths,
)
from docemb_lib.settings.sections import CONTEXTUAL_LOSSES

Reduction = Literal["mean", "sum"]
Form = Literal["correlation", "covariance"]
BALANCE = "balance"  # in place of a number as the delta of SoftCCA
# Steps that set a balanced delta. As many have nine tenths of the weight in a running covariance
# with beta 0.9, and two thirds with 0.95.
BALANCED_STEPS = 20
_SMALLEST_VARIANCE = 1e-9  # CCA leaves out directions of a view with less variance
NO_LABEL = -100  # label of tokens that are not predicted, as in transformers


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
    """Soft decorrelation loss of one view's P features (thesis, Equations 4.10 to 4.14).

    It keeps a running covariance. In training step t, with the view Z of the batch::

        Sigma = Zc^T Zc / (B - 1)
        Phi_t = beta * Phi_{t-1} + Sigma
        b_t = beta * b_{t-1} + 1
        SDL = sum or mean over i != j of |Phi_t,ij / b_t|

    `form` says what Zc is: `covariance` is the thesis as printed, Z without its mean over the
    batch; `correlation` is the author's code and the paper of SoftCCA (Chang et al., 2018), Z after
    batch normalisation. A covariance falls with the square of its view, a correlation does not. The
    thesis prints the sum (`reduction`); the author's code takes the mean.

    Gradients flow through the current batch's Sigma only, so with weight 1 / b_t, which falls to 1
    - beta. Evaluation stores nothing: the value is that of the step that would follow, a
    correlation's with the running means and variances.
    """

    covariance: Tensor  # Phi, (P, P)
    normaliser: Tensor  # b, ()

    def __init__(
        self,
        dim: int,
        beta: float = 0.95,
        reduction: Reduction = "mean",
        form: Form = "correlation",
    ) -> None:
        super().__init__()
        if not 0 <= beta < 1 or reduction not in get_args(Reduction):
            raise InputError(
                f"beta, reduction: got {beta}, {reduction!r}; "
                "beta must be at least 0 and below 1, and reduction sum or mean"
            )
        if form not in get_args(Form):
            raise InputError(f"form: got {form!r}; give correlation or covariance")
        self.beta = beta
        self.reduction = reduction
        self.form = form
        is_correlation = form == "correlation"
        self.normalise = nn.BatchNorm1d(dim, affine=False) if is_correlation else _centred
        self.register_buffer("covariance", torch.zeros(dim, dim))
        self.register_buffer("normaliser", torch.zeros(()))

    def forward(self, view: Tensor) -> Tensor:
        """Compute the loss of a view (B, P), a scalar; in training the statistics advance a step.

        Raises InputError for fewer than two documents.
        """
        B, P = view.shape
        if B < 2:
            raise InputError(
                f"a covariance needs 2 documents or more, got a batch of {B}: raise the batch size"
            )
        with torch.autocast(view.device.type, enabled=False):
            Zc = self.normalise(full_precision(view))  # (B, P)
            # Phi_t = beta * Phi_{t-1} + Sigma in one product; Phi_{t-1} is a buffer, a constant to
            # autograd.
            covariance = torch.addmm(self.covariance, Zc.T, Zc, beta=self.beta, alpha=1 / (B - 1))
            normaliser = self.beta * self.normaliser + 1  # b_t, the sum of the weights in Phi_t
            if self.training:
                self.covariance.copy_(covariance.detach())
                self.normaliser.copy_(normaliser)
            # Phi is symmetric: both triangles have the sum of the upper one.
            total = 2 * covariance.triu(diagonal=1).abs().sum() / normaliser
            if self.reduction == "sum":
                return total
            return total / max(P * P - P, 1)


class SoftCCA(Loss):
    """Bring two views together while decorrelating the features of each (Chang et al., 2018).

    ::

        loss_i = 1/P * sum_k (z1_ik - z2_ik)^2 + delta * (SDL(z1) + SDL(z2))

    The first term, L2, replaces the correlation of CCA by a distance, the second replaces its
    constraint, uncorrelated features in each view, by a penalty. `delta = 0.03` belongs to
    `reduction="mean"`; the thesis' formula sums over the P^2 - P off-diagonal cells, which is the
    same loss with `reduction="sum"` and `delta / (P^2 - P)`.

    `delta="balance"` is the rule of the thesis, by which "the ranges of L2 and SDL are roughly
    equal" (4.5.2): delta is the mean of L2 over the first `BALANCED_STEPS` batches of the training,
    divided by that of the two SDL, and stays as it is after them. Until then, it is that of the
    batches so far. Its sums are buffers, so that a checkpoint has them.

    Example:
        >>> z = torch.tensor([[1.0, 2.0], [1.0, -2.0], [-1.0, 2.0], [-1.0, -2.0]])
        >>> SoftCCA(dim=2)(z, z + 1)  # the features are uncorrelated, so the distance is left
        tensor([1., 1., 1., 1.])
    """

    balance: Tensor  # (3,): the steps that have set a balanced delta, their sums of L2 and of SDL

    def __init__(
        self,
        dim: int,
        delta: float | Literal["balance"] = 0.03,
        beta: float = 0.95,
        reduction: Reduction = "mean",
        form: Form = "correlation",
    ) -> None:
        super().__init__()
        self.dim = dim
        self.delta = delta
        self.distance = MSE()
        self.student_decorrelation = SDL(dim, beta, reduction, form)
        self.teacher_decorrelation = SDL(dim, beta, reduction, form)
        if delta == BALANCE:
            self.register_buffer("balance", torch.zeros(3))

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Compute the loss of each document, (B,), from projected views (B, P), B >= 2.

        In training the statistics advance by one step. Raises InputError for views of other widths.
        """
        return self.with_parts(student, teacher)[0]

    def with_parts(self, *views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss with its parts: `l2`, `sdl` and a balanced `delta`.

        `sdl` is the sum of both SDL without delta. It is of the batch, and so is delta.
        """
        student, teacher = views
        if student.shape[1] != self.dim or teacher.shape[1] != self.dim:
            raise InputError(
                f"SoftCCA was made for views of width {self.dim}, got a student's of "
                f"{student.shape[1]} and a teacher's of {teacher.shape[1]}: change dim or the "
                "projections"
            )
        distance = self.distance(full_precision(student), full_precision(teacher))  # (B,)
        decorrelation = self.student_decorrelation(student)  # ()
        decorrelation = decorrelation + self.teacher_decorrelation(teacher)
        parts = {"l2": distance, "sdl": decorrelation.expand_as(distance)}
        delta: float | Tensor
        if self.delta == BALANCE:
            delta = self._balanced(distance.detach().mean(), decorrelation.detach())
            parts["delta"] = delta.expand_as(distance)
        else:
            delta = float(self.delta)
        return distance + delta * decorrelation, parts

    def _balanced(self, l2: Tensor, sdl: Tensor) -> Tensor:
        """Return delta, (), from the sums so far and those of this batch."""
        # A factor instead of a branch, which would wait for the device: 0 after the first steps.
        counts = (self.balance[0] < BALANCED_STEPS).to(l2)
        balance = self.balance + counts * torch.stack([torch.ones_like(l2), l2, sdl])
        if self.training:
            self.balance.copy_(balance)
        # Views of one feature have no SDL, and so any finite delta.
        return balance[1] / balance[2].clamp(min=1e-12)


class InfoNCE(Loss):
    """Cross-entropy of finding the second text of a pair by its first, in the batch.

    ::

        loss_i = -log( exp(cos(h_i, h+_i) / temperature) / sum_j exp(cos(h_i, h+_j) / temperature) )

    The negatives, which the SimDE paper leaves open, are the second texts of the other pairs. As a
    contextual loss, h_i and h+_i are the two views of a document.
    """

    def __init__(self, temperature: float = 0.05) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Compute the loss of each pair, (B,). first, second: (B, D), row i of both is a pair.

        Raises InputError for shapes that differ and for fewer than two pairs.
        """
        if first.shape != second.shape or len(first) < 2:
            raise InputError(
                "first and second must have one shape, of two pairs or more: got "
                f"{tuple(first.shape)} and {tuple(second.shape)}"
            )
        cosines = F.normalize(first, dim=1) @ F.normalize(second, dim=1).T  # (B, B)
        diagonal = torch.arange(len(first), device=first.device)  # where the positives stand
        return F.cross_entropy(cosines / self.temperature, diagonal, reduction="none")


class CCA(Loss):
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
            raise InputError(
                f"a correlation needs 2 documents or more, got a batch of {B}: raise the batch size"
            )
        with torch.autocast(student.device.type, enabled=False):
            X1 = _centred(student)  # (B, P)
            X2 = _centred(teacher)  # (B, Q)
            # SVD fails on NaN. Return NaN instead, which the training reports.
            if not (X1.isfinite().all() and X2.isfinite().all()):
                return (X1.sum() * float("nan")).expand(B)
            with torch.no_grad():
                W1 = whitening(X1, self.ridge)  # (P, R)
                W2 = whitening(X2, self.ridge)  # (Q, R)
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


def whitening(X: Tensor, ridge: float) -> Tensor:
    """Return W (P, R) such that W^T (X^T X / (B - 1) + ridge I) W = I, R <= min(B, P).

    X is centred, (B, P). W is S^{-1/2} restricted to the row space of X, from the singular values
    of X: forming X^T X would halve the digits.
    """
    _, s, Vh = torch.linalg.svd(X, full_matrices=False)
    variances = s.square() / (len(X) - 1) + ridge  # (R,)
    return Vh.T * torch.where(variances > _SMALLEST_VARIANCE, variances.rsqrt(), 0)


CLASSES = {kind.__name__: kind for kind in (SoftCCA, MSE, Cosine, InfoNCE, CCA)}


def contextual_loss(
    name: str,
    dim: int,
    *,
    delta: float | Literal["balance"] = 0.03,
    beta: float = 0.95,
    reduction: Reduction = "mean",
    form: Form = "correlation",
    ridge: float = 1e-3,
) -> Loss:
    """Make the loss that the parameter `contextual_loss` names, for views of width `dim`.

    name: of `CONTEXTUAL_LOSSES`; `mse` is SoftCCA's distance alone, and `cca` sums all canonical
    correlations. delta, beta, reduction, form: of soft-cca; delta is that of the mean, the sum
    takes delta / (P^2 - P). ridge: of cca.
    """
    if reduction == "sum" and delta != BALANCE:
        delta = float(delta) / max(dim * dim - dim, 1)
    return of_settings(
        CLASSES[CONTEXTUAL_LOSSES[name].kind],
        dim=dim,
        delta=delta,
        beta=beta,
        reduction=reduction,
        form=name.partition(":")[2] or form,
        ridge=ridge,
    )


class MaskedLanguageHead(nn.Module):
    """Map hidden states to scores of all V words.

    A layer, GELU and LayerNorm precede the product with the word embeddings. These belong to the
    encoder and are an argument: held here they would be stored twice, which safetensors refuses.
    """

    def __init__(self, dim: int, vocabulary: int, *, norm_eps: float = 1e-12) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=norm_eps)
        self.bias = nn.Parameter(self.dense.weight.new_zeros(vocabulary))

    def forward(self, hidden: Tensor, words: Tensor) -> Tensor:
        """Compute the scores, (M, V). hidden: (M, D), words: (V, D)."""
        return F.linear(self.norm(F.gelu(self.dense(hidden))), words, self.bias)

    def loss(self, hidden: Tensor, labels: Tensor, words: Tensor) -> Tensor:
        """Sum the cross-entropies over the labelled tokens, (). hidden: (T, D), labels: (T,)."""
        labelled = labels != NO_LABEL
        scores = full_precision(self(hidden[labelled], words))  # (M, V)
        return F.cross_entropy(scores, labels[labelled], reduction="sum")


class PairObjective(Described):
    """`L = mean over i of InfoNCE_i + mlm_weight * MLM`.

    MLM is the mean cross-entropy over the masked tokens of all texts of the batch; without a head
    there is none. The student reads each text twice, as it is and masked.
    """

    student: Any  # a `Student`, or another module with what the caller needs of one

    def __init__(
        self,
        student: nn.Module,
        *,
        contrast: InfoNCE,
        head: MaskedLanguageHead | None = None,
        mlm_weight: float = 0.1,
    ) -> None:
        super().__init__()
        self.student = student
        self.contrast = contrast
        self.head = head
        self.mlm_weight = mlm_weight if head is not None else 0.0
