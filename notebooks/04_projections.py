# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: tags,-all
#     formats: ipynb,py:percent
#     notebook_metadata_filter: kernelspec,jupytext,-jupytext.text_representation.jupytext_version
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 04 · Projections and the contextual loss
#
# How can a student learn from an embedding space that has nothing in common with its own? The embeddings of student and
# contextual teacher pass through small networks, *projections*, and only the outputs, the *views*, must agree. This
# notebook builds the thesis' loss for them, SoftCCA, from canonical correlation analysis, and sets simpler losses
# beside it.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents and of the projections' initial weights
structural_loss = "cosine"  # mse, cosine, max-margin, contrastive; None: contextual only
distance = "mse"  # inside max-margin: mse or cosine
gamma = 1.0  # inside max-margin: weight of the negatives, from 0
temperature = None  # inside contrastive: cosines are divided by it; None: they are not
contextual_teacher = "PV"  # DM, DBOW, PV (both side by side), LSA; None: structural only
contextual_loss = "soft-cca"  # soft-cca, soft-cca:covariance, mse, cosine, infonce, cca
delta = "profile"  # inside soft-cca: weight of the decorrelation, from 0; balance: both terms equally large
beta = "profile"  # inside soft-cca: memory of its running covariance, from 0 and below 1
student_projection = "profile"  # e.g. 768(ReLU,drop0.1,norm)x1024; must end as wide as the contextual one
contextual_projection = "profile"  # the same for the teacher's side; - is the identity
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import begin, figures, sweep, thesis, views, widgets

figures.use_style()
run = begin("04_projections", globals())
thesis.settings(run)

# %% [markdown]
# ## Two spaces
#
# $y$ is the student's embedding of a document before training, $c$ that of the contextual teacher. They differ in width
# and in what they call similar, so $y$ cannot equal $c$.

# %%
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docemb_lib import losses

embeddings = [torch.from_numpy(X) for X in views.embeddings_before(run)]
y, c = embeddings
for name, X in zip("yc", embeddings, strict=True):
    unit = F.normalize(X[:3])
    cosines = (unit @ unit.T)[[0, 0, 1], [1, 2, 2]]
    print(f"{name}: {tuple(X.shape)}, cosines of three documents {cosines.numpy().round(2)}")

# %% [markdown]
# ## Canonical correlation analysis
#
# CCA looks for directions $p$ in one space and $q$ in the other along which documents lie alike: it maximises the
# correlation of $Xp$ and $Yq$. Singular value decompositions give all pairs at once.


# %%
def cca(X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The canonical correlations of two views, (N, P) and (N, Q), and their directions p and q."""
    U1, s1, V1 = torch.linalg.svd(X - X.mean(0), full_matrices=False)
    U2, s2, V2 = torch.linalg.svd(Y - Y.mean(0), full_matrices=False)
    left, correlations, right = torch.linalg.svd(U1.T @ U2, full_matrices=False)
    p = V1.T / s1 @ left
    q = V2.T / s2 @ right.T
    return correlations, p, q


def principal(X: Tensor, k: int) -> Tensor:
    """X along its first k principal axes, (N, k); the first of them has variance 1."""
    X = X.double()
    U, s, _ = torch.linalg.svd(X - X.mean(0), full_matrices=False)
    return U[:, :k] * s[:k] / s[0] * len(X) ** 0.5


# %%
three, _, _ = cca(principal(y[:3], 2), principal(c[:3], 2))
print("three documents, two features:", three.numpy().round(3))

k = min(10, len(y) // 4, c.shape[1])
X = principal(y, k)
Y = principal(c, k)
correlations, p, q = cca(X, Y)
print(f"{len(y)} documents, {k} features:", correlations.numpy().round(2))
torch.testing.assert_close(-losses.CCA(ridge=0.0)(X, Y)[0], correlations.sum())

# %% [markdown]
# Any two views of three documents correlate perfectly along two axes. So how many documents does CCA need? The
# directions are fitted on every other document and tried on the rest.


# %%
def fitted_and_tried(X: Tensor, Y: Tensor) -> tuple[float, float]:
    """The mean correlation on the documents that the directions are fitted on, and on others."""
    correlations, p, q = cca(X[::2], Y[::2])
    a = X[1::2] @ p
    b = Y[1::2] @ q
    tried = F.cosine_similarity(a - a.mean(0), b - b.mean(0), dim=0)
    return correlations.mean().item(), tried.mean().item()


# %%
import pandas as pd

shuffled = c[torch.randperm(len(c), generator=torch.Generator().manual_seed(0))]
rows = {}
for width in (1, 2, 4, 8, 16, 32, 64, 128):
    if width < len(y) // 2 and width <= c.shape[1]:
        both = fitted_and_tried(principal(y, width), principal(c, width))
        by_chance, _ = fitted_and_tried(principal(y, width), principal(shuffled, width))
        rows[width] = (*both, by_chance)
columns = ["fitted", "on other documents", "fitted, teacher's documents shuffled"]
by_width = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
ax = by_width.plot(marker="o", logx=True, color=figures.SERIES)
ax.figure.set_layout_engine("constrained")
ax.set(xlabel="features of each view", ylabel="mean canonical correlation")
ax.set_xticks(by_width.index, by_width.index)
ax.minorticks_off()
ax.legend(**figures.BESIDE)
run.save_figure(ax, "cca-by-width", by_width.reset_index(names="width"))

# %% [markdown]
# With a feature for each document, CCA fits any two views, and what it finds does not hold on other documents. So it
# needs batches much larger than a view is wide, and a student learns from batches of six.
#
# ## From CCA to SoftCCA in five steps
#
# The thesis does this in Equations 4.4 to 4.9.
#
# **1. A distance in place of the correlation.** The *variates* $a = Xp$ and $b = Yq$ with length 1 correlate as much as
# they are near: $\sum_k \lVert a_k-b_k\rVert^2 = \sum_k (2-2\rho_k)$.

# %%
import matplotlib.pyplot as plt

a = F.normalize((X - X.mean(0)) @ p, dim=0)
b = F.normalize((Y - Y.mean(0)) @ q, dim=0)
torch.testing.assert_close((a - b).square().sum(), (2 - 2 * correlations).sum())

figure, axes = plt.subplots(1, 2, figsize=(figures.WIDTH, 3))
for pair, ax in zip((0, k - 1), axes, strict=True):
    ax.scatter(a[:, pair], b[:, pair], s=8, color=figures.SERIES[0])
    ax.set(xlabel="variate of y", ylabel="variate of c", title=f"ρ = {correlations[pair]:.2f}")
run.save_figure(figure, "variates")

# %% [markdown]
# A point is a document: the first pair of variates agrees, the last hardly does.
#
# **2. Networks in place of linear maps.** `768(ReLU)x1024` is a linear layer to 768 features, a ReLU and a linear layer
# to 1,024 features; `-` is the identity.


# %%
def projection(spec: str, width: int) -> nn.Sequential:
    """The network of a text such as 8(ReLU)x4 on embeddings of `width` features."""
    layers: list[nn.Module] = []
    for block in spec.replace("-", "").split("x"):
        features, _, activation = block.partition("(")
        if features:
            layers.append(nn.Linear(width, int(features)))
            width = int(features)
        if activation:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


torch.manual_seed(0)
f = projection("64(ReLU)x16", y.shape[1])
g = projection("16", c.shape[1])
print("three documents:", tuple(f(y[:3]).shape), tuple(g(c[:3]).shape))
torch.manual_seed(0)
library = losses.Projection("64(ReLU)x16", y.shape[1])
torch.testing.assert_close(f(y[:3]), library(y[:3]))

# %% [markdown]
# **3. No constraint.** CCA demands that the variates of a view are uncorrelated, over all documents. Without that, the
# distance of the views is left, for each document of a batch.


# %%
def squared_distance(z1: Tensor, z2: Tensor) -> Tensor:
    """The mean squared difference of two views, (B, P), of each document, (B,)."""
    return (z1 - z2).square().mean(dim=1)


z1 = f(y).detach()
z2 = g(c).detach()
print("three documents:", squared_distance(z1[:3], z2[:3]))
torch.testing.assert_close(squared_distance(z1, z2), losses.contextual_loss("mse", 16)(z1, z2))

# %% [markdown]
# **4. A penalty in place of the constraint.** Soft decorrelation (SDL) is the mean correlation, without its sign, of
# two features of a view. Six documents say little about a correlation, so a running covariance with memory $\beta$
# collects those of the batches so far (Equations 4.10 to 4.14).


# %%
class Decorrelation:
    """SDL of one view: of correlations as in the author's code, or of covariances as printed."""

    def __init__(self, memory: float = 0.95, as_printed: bool = False) -> None:
        self.memory = memory
        self.as_printed = as_printed
        self.covariance: Tensor | float = 0.0
        self.weights = 0.0

    def __call__(self, z: Tensor) -> Tensor:
        z = z - z.mean(0)
        if not self.as_printed:
            z = z / (z.var(0, correction=0) + 1e-5).sqrt()
        covariance = self.memory * self.covariance + z.T @ z / (len(z) - 1)
        self.covariance = covariance.detach()  # the past is a constant
        self.weights = self.memory * self.weights + 1
        off_diagonal = covariance.abs() / self.weights
        total = off_diagonal.sum() - off_diagonal.trace()
        P = z.shape[1]
        return total if self.as_printed else total / (P * P - P)


# %% [markdown]
# Ten batches of a view that is scaled to variance 1: with several memories, and in both forms as it is and at a tenth.

# %%
view = z1 / z1.std()
batches = torch.randint(len(y), (10, 6), generator=torch.Generator().manual_seed(0))


def over_batches(sdl, scale: float = 1.0) -> list[float]:
    """SDL after each of the batches of the scaled view."""
    return [sdl(scale * view[rows]).item() for rows in batches]


for form, reduction in (("correlation", "mean"), ("covariance", "sum")):
    ours = over_batches(Decorrelation(as_printed=form == "covariance"))
    library = losses.SDL(16, reduction=reduction, form=form)
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(over_batches(library)))

memories = {f"β {memory:g}": over_batches(Decorrelation(memory)) for memory in (0, 0.5, 0.95)}
forms = {}
for name, as_printed in (("correlation", False), ("as printed", True)):
    for scale in (1, 0.1):
        forms[f"{name}, view × {scale:g}"] = over_batches(Decorrelation(0.95, as_printed), scale)

# %%
figure, axes = plt.subplots(1, 2, figsize=(figures.WIDTH, 3))
for lines, ax in zip((memories, forms), axes, strict=True):
    pd.DataFrame(lines, index=range(1, 11)).plot(marker="o", ax=ax, color=figures.SERIES)
    ax.set(xlabel="batch", ylabel="SDL of the student's view")
everywhere = Decorrelation()(view).item()
axes[0].axhline(everywhere, color=figures.GREY, linestyle="--", label="all documents")
axes[1].set_yscale("log")
axes[1].yaxis.set_major_formatter("{x:g}")
for ax in axes:
    ax.legend(**figures.BESIDE)
run.save_figure(figure, "sdl")

# %% [markdown]
# Left: without memory, SDL is mostly the chance of six documents; with it, it comes down towards the dashed line.
# Right: SDL as printed also falls when the view shrinks, the correlation hardly changes, which is why it is used
# (`training.sdl` in a profile, or `contextual_loss = "soft-cca:covariance"`).
#
# **5. The sum.** $\delta$ weighs SDL against the distance.


# %%
def soft_cca(z1: Tensor, z2: Tensor, sdl1, sdl2, weight: float = 0.03) -> Tensor:
    """SoftCCA of each document, (B,), from two views (B, P) and the SDL of either."""
    return squared_distance(z1, z2) + weight * (sdl1(z1) + sdl2(z2))


gradients = []
library = losses.SoftCCA(16, delta=0.03)
for loss in (library, lambda z1, z2: soft_cca(z1, z2, Decorrelation(), Decorrelation())):
    student = z1[:6].clone().requires_grad_()
    values = loss(student, z2[:6])
    values.mean().backward()
    gradients.append((values.detach(), student.grad))
torch.testing.assert_close(*gradients)
print("six documents:", values.detach().numpy().round(4))

# %% [markdown]
# ## How large is δ?
#
# By the thesis' rule, both terms have "roughly equal" ranges. `delta = "balance"` sets δ so: the distances of the
# batches so far, at most the first 20, divided by their SDL. Here are ten.

# %%
balanced = losses.SoftCCA(16, delta="balance")
sums = torch.zeros(2)
sdl1 = Decorrelation()
sdl2 = Decorrelation()
for rows in batches:
    l2 = squared_distance(z1[rows], z2[rows]).mean()
    sums += torch.stack([l2, sdl1(z1[rows]) + sdl2(z2[rows])])
    _, parts = balanced.with_parts(z1[rows], z2[rows])  # l2, sdl and delta, (B,) each
torch.testing.assert_close(parts["delta"][0], sums[0] / sums[1])
print(f"balanced after ten batches: δ = {parts['delta'][0]:.4f}; in this run: {run.parameters['delta']}")

# %% [markdown]
# ## What keeps documents apart
#
# Two further losses compare directions alone. InfoNCE, which the thesis does not have, also pushes a document's
# view away from the teacher's views of the other five.


# %%
def cosine(z1: Tensor, z2: Tensor) -> Tensor:
    """The cosine distance of both views of each document, (B,)."""
    return 1 - F.cosine_similarity(z1, z2)


def infonce(z1: Tensor, z2: Tensor) -> Tensor:
    """The cross-entropy of finding a document's second view by its first, in the batch, (B,)."""
    cosines = F.normalize(z1) @ F.normalize(z2).T
    return F.cross_entropy(cosines / 0.05, torch.arange(len(z1)), reduction="none")


for loss in (cosine, infonce):
    library = losses.contextual_loss(loss.__name__, 16)
    torch.testing.assert_close(loss(z1[:6], z2[:6]), library(z1[:6], z2[:6]))
    print(f"{loss.__name__}, three documents: {loss(z1[:3], z2[:3]).numpy().round(2)}")

# %% [markdown]
# The library can also minimise CCA. The gradient of a decomposition divides by differences that may be 0, so it is
# written down.

# %%
import inspect

from IPython.display import Code, Markdown, display

Code(inspect.getsource(losses.CCA.forward), language="python")

# %% [markdown]
# What does each loss do to the student's view? The next cells train its projection alone, towards 64 features of the
# teacher. The *spread* of a view is the mean cosine distance of two documents.


# %%
def spread(z: Tensor) -> float:
    """The mean cosine distance of two different documents of a view, (N, P)."""
    unit = F.normalize(z.detach())
    n = len(unit)
    return (1 - (unit.sum(0).square().sum() - n) / (n * n - n)).item()


def train_projection(loss, teacher: Tensor, updates: int = 200) -> list[float]:
    """The spread of the student's view before each update of its projection."""
    torch.manual_seed(0)
    f = projection(f"64(ReLU)x{teacher.shape[1]}", y.shape[1])
    optimizer = torch.optim.AdamW(f.parameters(), lr=1e-3)
    spreads = []
    for rows in torch.randint(len(y), (updates, 6)):
        spreads.append(spread(f(y)))
        optimizer.zero_grad()
        loss(f(y[rows]), teacher[rows]).mean().backward()
        optimizer.step()
    return spreads


# %%
features = c[:, :64]
standardised = (features - features.mean(0)) / features.std(0)
figure, axes = plt.subplots(1, 2, figsize=(figures.WIDTH, 3.2), sharey=True)
for teacher, ax in zip((features, standardised), axes, strict=True):
    lines = {"squared distance": train_projection(squared_distance, teacher)}
    lines["SoftCCA"] = train_projection(losses.SoftCCA(teacher.shape[1]), teacher)
    lines["cosine"] = train_projection(cosine, teacher)
    lines["InfoNCE"] = train_projection(infonce, teacher)
    pd.DataFrame(lines).plot(ax=ax, logy=True, color=figures.SERIES, legend=ax is axes[1])
    share = teacher.mean(0).square().sum() / teacher.square().mean(0).sum()
    ax.set(xlabel="updates of the projection", title=f"{share:.0%} of the teacher is its mean")
    ax.yaxis.set_major_formatter("{x:g}")
axes[0].set_ylabel("spread of the student's view")
axes[1].legend(**figures.BESIDE)
run.save_figure(figure, "spread")

# %% [markdown]
# Where a line falls, documents become alike: the teacher's mean is a good first answer, better the larger its share in
# the title (of the mean squared length). SDL does not prevent this, because correlations do not depend on how much a
# view differs: the line of SoftCCA is nearly that of the squared distance, its first term. A student that stays there
# has *collapsed*. Right, the mean is removed and all features have variance 1.
#
# ## This run
#
# The student learns from the plain sum of its losses; `05_weighting` adds λ and the mask.

# %%
train_history, validation_history = run.history()  # trains the student, unless it is there already
panels = 1 + ("cca" in validation_history)  # few validation documents have no correlation
figure, axes = plt.subplots(panels, figsize=(figures.WIDTH, 2.8 * panels), squeeze=False)
figures.plot_history(train_history, validation_history, ax=axes[0, 0])
for ax in axes[1:, 0]:
    names_of = {"cca": "views", "cca_embeddings": "embeddings"}
    lines = validation_history.set_index("step")[[*names_of]].rename(columns=names_of)
    lines.plot(ax=ax, style="o-", xlabel="updates", ylabel="mean canonical correlation")
    ax.legend(**figures.BESIDE)
run.save_figure(figure, "training", validation_history)

# %% [markdown]
# Above: `l2` and `sdl` are SoftCCA's terms, `sdl` without δ. Below, unless there are too few documents: the mean canonical
# correlation of validation documents, fitted on one half and measured on the other as above, of the views and of the
# embeddings $y$ and $c$ themselves, which large projections are said to harm. Wide views are first mapped to principal
# axes.
#
# How much of each teacher is in the student's embedding? A linear map to the teacher's embeddings is fitted on documents
# of the tasks and measured on validation documents, before and after distillation; between them stands the recorded
# student of the same structural loss alone, the control.

# %%
import seaborn as sns

probes = views.probes_of_teachers(run)
named = figures.named(probes, figures.short_names(run))
named["bucket"] += "\n" + named["documents"].astype(str) + " documents"
teachers = named.groupby("teacher", sort=False)
size = (figures.WIDTH, 2.2 * len(teachers))
figure, axes = plt.subplots(len(teachers), figsize=size, squeeze=False)
for ax, (teacher, rows) in zip(axes.flat, teachers, strict=True):
    look = {"palette": figures.series_colors(rows["model"]), "saturation": 1}
    sns.barplot(rows, x="bucket", y="r2", hue="model", **look, ax=ax)
    for bars in ax.containers:
        ax.bar_label(bars, fmt="{:z.2f}", padding=2)
    ax.margins(y=0.2)
    ax.set(title=teacher, xlabel="", ylabel="R²")
    sns.move_legend(ax, **figures.BESIDE)
run.save_figure(figure, "probe", probes)

# %% [markdown]
# R² = 1: the map predicts the teacher exactly; 0: no better than its mean; below 0: worse. The structural loss alone may
# lose what the untrained encoder had of the contextual teacher: compare with the control, not with the start. Other
# relations a linear map does not see. The scores below decide what the teacher is worth.
#
# ## Other students
#
# The sweep trains the students of this notebook in the profile's plan that are not recorded. With
# `grid("contextual-losses", run.profile)` in place of `planned`, it would train eight from the contextual teacher
# alone, one for each contextual loss.

# %%
from docemb_lib.runs.plan import planned_beside

planned = planned_beside(run)
if planned:
    students = sweep("04_projections", planned, profile=profile)

# %%
section = """**Contextual losses.** Recorded students that differ in the contextual loss alone, with the
spread of their embeddings. A student with less than a twentieth of the spread before training is
called collapsed; its scores mean nothing. The grid `soft-cca-beta` varies δ and β, which the thesis
calls critical (4.5.2)."""
scores = run.scores()
groups = views.contextual_losses(run, scores).groupby("group", sort=False)
if len(groups):
    display(Markdown(section))
for number, (title, of_group) in enumerate(groups):
    rows = of_group.assign(low=float("nan"), high=float("nan"))
    rows["model"] = rows["loss"] + rows["spread"].map(", spread {:.2g}".format)
    rows["student"] = rows["collapsed"].map({0: "has not collapsed", 1: "collapsed"})
    figure = figures.plot_rows(rows, hue="student", by=f"validation, {title}")
    run.save_figure(figure, f"contextual-losses-{number}", of_group)

# %% [markdown]
# ## Which projections?
#
# Tables 4.6 to 4.8 of the thesis: without a structural loss, beside cosine and beside max-margin. There both projections
# end as wide as the larger of the two embeddings (4.5.2); in the embedded default those of PV end as wide as PV, which is
# narrower than the student.

# %%
by_number = {number: thesis.table(number) for number in ("4.6", "4.7", "4.8")}
pd.concat(by_number, names=["table"])

# %% [markdown]
# The next figures show the recorded runs, as Figures 4.7 to 4.9 do; the grids are `projections-contextual`,
# `projections-cosine` and `projections-max-margin`. [01](01_corpus.ipynb) explains the scores.

# %%
names = figures.short_names(run)
for name, runs in thesis.runs_by_figure(run, scores).items():
    by = "dimensions of the contextual teacher" + name.removeprefix("runs")
    figure = figures.plot_runs(figures.named(runs, names), by=by)
    run.save_figure(figure, name.replace(", figure ", "-"), runs)

# %% [markdown]
# A hollow diamond is the mean in the thesis of the same place in the grid. There, larger student projections are better
# and bottlenecks harmful, and a small contextual projection or none is best without a structural loss (4.5.2). In the
# embedded default the linear student projection is ahead of that with a ReLU: without a structural loss (.600 and .404,
# which has collapsed) and beside max-margin (.776 and .748) ([validation
# scores](../outputs/published/embedded/README.md#scores-on-validation)).

# %%
alone, cosine, margin = (thesis.in_figure(run, f"figure 4.{number}") for number in (7, 8, 9))
of_cosine, of_margin = "only-structural;cosine", "only-structural;mm-MSE"
best = "2048d;S:768(ReLU)x4096(ReLU)x2048;C:-"
of_dm, of_dbow, of_pv = ([{"contextual_teacher": name}] for name in ("DM", "DBOW", "PV"))
large = [{"student_projection": f"768(ReLU)x4096(ReLU)x{width}"} for width in (1024, 2048)]
claims = [
    thesis.better(
        alone,
        "The structural loss alone is better than any contextual loss alone.",
        [of_cosine],
        thesis.others(alone, of_cosine),
    ),
    thesis.better(
        alone, "DM is better than DBOW, and DBOW than PV, by the best.", of_dm, of_dbow, of_pv, of="best"
    ),
    thesis.better(alone, "PV itself is better than SBERT.", ["PV;2048d"], ["SBERT"]),
    thesis.better(cosine, "Beside cosine PV helps.", [best], [of_cosine]),
    thesis.better(
        cosine, "Beside cosine large student projections are best.",
        large,
        thesis.others(cosine, *large), of="best"
    ),
    thesis.better(
        margin,
        "Beside max-margin MSE every contextual loss hurts.",
        [of_margin],
        thesis.others(margin, of_margin),
    ),
]
figures.table(thesis.claim_table(claims), section=thesis.CLAIMS)

# %% [markdown]
# ## The spaces
#
# The validation documents and some of training in two spaces, each along its own first two principal axes, so that
# neighbourhoods can be compared and positions cannot. Coloured by `length`, a space that sorts by length more than by
# topic shows it.

# %%
widgets.projection_explorer(widgets.spaces_of_run(run))

# %% [markdown]
# ## Conclusion

# %% tags=["conclusion"]
print(thesis.conclusion(run), views.kept_of_teachers(probes), sep="\n")

# %% [markdown]
# ## References
#
# * D. Burian: *Document embedding using Transformers*. Master thesis, Institute of Formal and Applied Linguistics,
#   Charles University, Prague 2023 (section 4.5.2).
# * Hotelling (1936), Relations between two sets of variates. Biometrika 28: CCA.
# * Andrew, Arora, Bilmes and Livescu (2013), Deep canonical correlation analysis. ICML: networks in place of linear
#   maps.
# * Chang, Xiang and Hospedales (2018), Scalable and effective deep CCA via soft decorrelation. CVPR: SoftCCA.
# * van den Oord, Li and Vinyals (2018), Representation learning with contrastive predictive coding: InfoNCE.
#
# [05](05_weighting.ipynb) varies the weights of the two teachers.

# %%
from pathlib import Path

folder = run.link_student()
tables = run.evaluation.tables
numbers = run.finish(run.metrics(scores), scores=scores, student=folder, tables=tables)
print(f"tables and figures: {Path(run.figures[0]).parent}\nstudent: {folder}")
numbers
