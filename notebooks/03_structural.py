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
# # 03 · The structural loss
#
# How strictly should the student match the structural teacher? One update is made by hand, then a student is distilled
# from this teacher alone and compared with recorded ones. That takes some minutes on two cores with the embedded
# default if `01_corpus` has run. A student of the profile `thesis` took 3 to 5 hours on a GPU, as a later revision of
# the thesis says.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents
structural_loss = "cosine"  # mse, cosine, max-margin, contrastive; or your own, module:Class
distance = "mse"  # inside max-margin: mse or cosine
gamma = 1.0  # inside max-margin: weight of the negatives, from 0
temperature = None  # inside contrastive: cosines are divided by it; None: they are not
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import begin, figures, thesis, views, widgets

figures.use_style()
run = begin("03_structural", globals())
thesis.settings(run)

# %% [markdown]
# ## One update by hand
#
# **The batch.** The first update has the first documents of a random order. They are packed end to end, without padding;
# the teacher has embedded them beforehand.

# %%
import numpy as np
import torch
import torch.nn.functional as F

from docemb_lib.student import Student

of_student = run.profile.student
training = run.training
student = Student.from_encoder(
    of_student.model,
    layers=of_student.layers,
    max_tokens=of_student.max_tokens,
    attention_window=of_student.attention_window,
    pooling=of_student.pooling,
    dropout=0.0,  # without noise, two computations of one update agree
)
parameters = run.profile.parameters
documents = run.students.training_documents(student, "train", parameters.documents)

order = np.random.default_rng((parameters.seed, 0)).permutation(len(documents))  # of epoch 0
rows = order[: training.batch_size].tolist()
batch, targets = documents.pack([rows])
t = targets.teachers["structural"]
print(f"documents of {batch.sizes} tokens; input_ids {tuple(batch.input_ids.shape)}")
print(f"teacher's embeddings t {tuple(t.shape)}")

# %% [markdown]
# **Attention inside a document.** A token sees the tokens of its document in a window around itself. Written down
# densely, that is a mask over all pairs of tokens.

# %%
from docemb_lib.packed.forward import banded_attention


def dense_attention(query, key, value, lengths, window):
    """Softmax attention of packed documents with a mask of all pairs, (T, H, head_dim)."""
    document = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    place = torch.arange(len(document))
    near = (place[:, None] - place).abs() <= window
    seen = near & (document[:, None] == document)  # (T, T)
    scores = torch.einsum("ihd,jhd->hij", query, key) / query.shape[2] ** 0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=2)
    return torch.einsum("hij,jhd->ihd", weights, value), seen


lengths = [9, 30, 17]  # of three documents
window = 8
query, key, value = torch.randn(3, sum(lengths), 4, 16)
context, seen = dense_attention(query, key, value, lengths, window)
packed = banded_attention(query, key, value, lengths, window)
torch.testing.assert_close(packed, context, rtol=1e-4, atol=1e-5)
print(f"queries {tuple(query.shape)}, context {tuple(context.shape)}, equal to the library's")

# %%
import inspect
from html import escape

import matplotlib.pyplot as plt
from IPython.display import HTML


def folded(function):
    """The source of a function, to be opened by a click."""
    source = escape(inspect.getsource(function))
    summary = f"source of {function.__name__}"
    return HTML(f"<details><summary>{summary}</summary><pre>{source}</pre></details>")


figure, ax = plt.subplots(figsize=(3.2, 3.2))
ax.imshow(torch.where(seen, 1.0, torch.nan), cmap="Blues", vmin=0, vmax=1.6)
ax.set(xlabel="key", ylabel="query")
ax.grid(visible=False)
folded(banded_attention)

# %% [markdown]
# Of three documents, only the blue pairs are seen; the library computes blocks along the diagonal and nothing else.
#
# **The embeddings.** A document's embedding $y$ is the mean of the hidden states of its tokens.

# %%
def mean_of_tokens(hidden, sizes):
    """The mean state of each document, (T, D) to (B, D)."""
    return torch.stack([states.mean(dim=0) for states in hidden.split(sizes)])


hidden = student.hidden(batch)
y = student(batch)
print(f"hidden states {tuple(hidden.shape)}, embeddings y {tuple(y.shape)}")
if student.pooling == "mean":
    torch.testing.assert_close(y, mean_of_tokens(hidden, batch.sizes), rtol=1e-4, atol=1e-5)

# %% [markdown]
# **Two distances** compare a student's embedding with a teacher's: MSE, $D(y,t)=\frac1d\sum_k (y_k-t_k)^2$, and
# cosine, $1-\cos(y,t)$. As losses, they take each document with its own $t$ alone.

# %%
from docemb_lib import losses


def mse(y, t):
    """The mean squared difference of each y_i and each t_j, (B, D) and (N, D) to (B, N)."""
    return (y[:, None] - t).square().mean(dim=2)


def cosine(y, t):
    """The cosine distance of each y_i and each t_j, (B, N)."""
    return 1 - F.normalize(y) @ F.normalize(t).T


three = y[:3].detach(), t[:3]
print(cosine(*three))
torch.testing.assert_close(mse(*three).diagonal(), losses.MSE()(*three), rtol=1e-4, atol=1e-5)
torch.testing.assert_close(cosine(*three).diagonal(), losses.Cosine()(*three), rtol=1e-4, atol=1e-5)

# %%
figure, axes = plt.subplots(1, 2, figsize=(figures.WIDTH, 2.8))
for ax, distance in zip(axes, (mse, cosine), strict=True):
    image = ax.imshow(distance(y.detach(), t), cmap="Blues_r")
    ax.set(title=distance.__name__, xlabel="teacher's embedding of document j")
    ax.set_ylabel("student's, document i")
    ax.grid(visible=False)
    figure.colorbar(image, ax=ax)

# %% [markdown]
# The diagonal holds the positives. All other cells are distances to other documents of the batch: the negatives, which
# the next two losses use.
#
# **Max-margin** also pushes $y_i$ away from the negatives: $D(y_i,t_i)-\gamma\,\frac1{n-1}\sum_{j\ne i}D(y_i,t_j)$.
# **Contrastive** is the cross-entropy of finding $t_i$ in the batch:
# $-\log\frac{\exp(\cos(y_i,t_i)/\tau)}{\sum_j\exp(\cos(y_i,t_j)/\tau)}$, in the thesis with $\tau=1$.

# %%
def max_margin(distances, gamma):
    """The positive distance minus gamma times the mean negative one, (B, B) to (B,)."""
    n = len(distances)
    negatives = distances[~torch.eye(n, dtype=torch.bool)].view(n, n - 1)
    return distances.diagonal() - gamma * negatives.mean(dim=1)


def contrastive(distances, temperature):
    """Minus the logarithm of the softmax of the positive, from cosine distances, (B, B) to (B,)."""
    logits = (1 - distances) / temperature
    return logits.logsumexp(dim=1) - logits.diagonal()


by_hand = max_margin(mse(*three), 0.5), contrastive(cosine(*three), 0.1)
in_library = losses.MaxMargin("mse", 0.5)(*three), losses.Contrastive(0.1)(*three)
print("max-margin ", by_hand[0], "contrastive", by_hand[1], sep="\n")
torch.testing.assert_close(by_hand, in_library, rtol=1e-4, atol=1e-5)

# %% [markdown]
# **The loss of this run** is the mean over the batch, and `backward` gives the gradient of every weight of the student.
# (Cosine stands for a loss of your own here, `module:Class`.)

# %%
def loss_of(name, y, t):
    """The loss of each document, (B,), by its name and the parameters of this run."""
    distance = {"mse": mse, "cosine": cosine}[parameters.distance]
    if name == "max-margin":
        return max_margin(distance(y, t), parameters.gamma)
    if name == "contrastive":
        return contrastive(cosine(y, t), parameters.temperature or 1.0)
    return {"mse": mse, "cosine": cosine}[name](y, t).diagonal()


WRITTEN = ("mse", "cosine", "max-margin", "contrastive")
name = parameters.structural_loss if parameters.structural_loss in WRITTEN else "cosine"
before = {key: weight.clone() for key, weight in student.state_dict().items()}
loss = loss_of(name, y, t).mean()
loss.backward()
weights = [weight for weight in student.parameters() if weight.grad is not None]
print(f"{name} loss {loss.item():.6f}; gradients of {sum(w.numel() for w in weights):,} weights")

# %% [markdown]
# **Clip, then AdamW.** A gradient longer than `max_grad_norm` is shortened. AdamW keeps running means $m$ of the gradient
# and $v$ of its square, and moves each weight by $m/\sqrt v$ times the learning rate. Matrices also decay towards 0.

# %%
def clip(gradients, longest):
    """The gradients, together no longer than `longest`, and their norm before."""
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    factor = (longest / norm).clamp(max=1.0)
    return [gradient * factor for gradient in gradients], norm


@torch.no_grad()
def adamw(weight, gradient, m, v, *, step, rate, decay):
    """Move a weight and its running means in place; `step` counts from 1."""
    m.lerp_(gradient, 1 - 0.9)
    v.lerp_(gradient.square(), 1 - 0.999)
    m_hat = m / (1 - 0.9**step)  # the means began at 0
    v_hat = v / (1 - 0.999**step)
    if weight.dim() > 1:  # neither biases nor LayerNorm
        weight.mul_(1 - rate * decay)
    weight.sub_(rate * m_hat / (v_hat.sqrt() + 1e-8))


gradients, norm = clip([weight.grad for weight in weights], training.max_grad_norm)
options = {"step": 1, "rate": training.learning_rate, "decay": training.weight_decay}
for weight, gradient in zip(weights, gradients, strict=True):
    adamw(weight, gradient, torch.zeros_like(weight), torch.zeros_like(weight), **options)
with torch.no_grad():
    after = loss_of(name, student(batch), t).mean()
print(f"gradient norm {norm:.4f}; the loss of this batch goes from {loss:.6f} to {after:.6f}")

# %% [markdown]
# **The library's first update** of the same documents must give the same loss, gradient and weights. It runs in
# `transformers.Trainer`, here in fp32 and without warm-up.

# %%
import copy
from pathlib import Path
from tempfile import TemporaryDirectory

from docemb_lib.training.batches import TrainingDocuments
from docemb_lib.training.run import train_objective

trained = copy.deepcopy(student)
trained.load_state_dict(before)
settings_of_loss = {key: getattr(parameters, key) for key in ("distance", "gamma", "temperature")}
structural = losses.structural_loss(name, **settings_of_loss)
teaching = losses.Teaching("structural", "structural", structural)
tokens = [documents.tokens[row] for row in rows]
lengths = documents.n_structural_tokens[rows]
few = TrainingDocuments(tokens, lengths, teachers={"structural": t.numpy()})
once = {"precision": "fp32", "epochs": 1, "accumulation": 1, "warmup": 0.0, "log_every": 1}
settings = training.model_copy(update={**once, "compile": False, "report_to": []})
with TemporaryDirectory() as folder:
    objective = losses.Objective(trained, [teaching])
    history = train_objective(objective, few, few, settings=settings, seed=0, folder=Path(folder))

first = history.train[0]
np.testing.assert_allclose(first["loss"], loss.item(), rtol=1e-3)
np.testing.assert_allclose(first["grad_norm"], norm.item(), rtol=1e-3)
print(f"loss {first['loss']:.6f}, gradient norm {first['grad_norm']:.4f}")

# %%
def flat(state):
    """All weights of a state as one vector."""
    return torch.cat([weight.detach().cpu().flatten() for weight in state.values()])


moved = flat(student.state_dict()) - flat(before)
difference = flat(student.state_dict()) - flat(trained.state_dict())
share = difference.norm() / moved.norm()
print(f"both have moved by {moved.norm():.4f} and differ by {share:.1e} of that")
assert share < 0.05

# %% [markdown]
# ## What the negatives do
#
# Twenty documents of two topics (circles and triangles) in the plane, without a network: gradient descent moves the
# embeddings themselves. As in a network with random weights, all begin at nearly the same place.

# %%
generator = torch.Generator().manual_seed(0)
topics = torch.tensor([[1.2, 0.5], [-0.4, 1.2]]).repeat_interleave(10, dim=0)
teachers = topics + 0.2 * torch.randn(20, 2, generator=generator)
start = torch.tensor([2.2, -1.5]) + 0.2 * torch.randn(20, 2, generator=generator)


def descend(distance, gamma, rate=0.1, steps=40):
    """The embeddings after each step down the gradient of max-margin, (steps + 1, N, 2)."""
    path = [start]
    for _ in range(steps):
        y = path[-1].clone().requires_grad_()
        margin = max_margin(distance(y, teachers), gamma)  # with gamma 0 the distance alone
        (gradient,) = torch.autograd.grad(margin.sum(), y)
        path.append(path[-1] - rate * gradient)
    return torch.stack(path)


paths = {"MSE": descend(mse, 0.0), "cosine (steps × 10)": descend(cosine, 0.0, rate=1.0)}
paths |= {f"max-margin MSE, γ = {gamma}": descend(mse, gamma) for gamma in (0.5, 1.0, 1.5)}
steps = paths["max-margin MSE, γ = 1.0"].diff(dim=0)
torch.testing.assert_close(steps, steps[:1].expand_as(steps), rtol=1e-3, atol=1e-5)

# %%
figure, axes = plt.subplots(2, 3, figsize=(figures.WIDTH, 4.8))
*planes, norms = axes.flat
for ax, (title, path) in zip(planes, paths.items(), strict=True):
    for topic, marker in ((slice(10), "o"), (slice(10, None), "^")):
        ax.plot(*path[:, topic].unbind(dim=2), color=figures.PALETTE["student"], linewidth=0.5)
        shown = {"structural": teachers, "untrained": path[0], "student": path[-1]}
        for kind, points in shown.items():
            ax.plot(*points[topic].T, marker, color=figures.PALETTE[kind], markersize=4)
    ax.plot(0, 0, "+", color=figures.GREY)
    ax.set_title(title)
    ax.set_aspect("equal", adjustable="datalim")
    ax.locator_params(nbins=4)
    means = path.norm(dim=2).mean(dim=1)
    norms.plot(means)
    norms.text(41, means[-1], title.split(" (")[0].split(", ")[-1], va="center")
figure.suptitle("orange: the teacher; grey: the student at the start; blue: at the end")
norms.set(title="mean norm of y", xlabel="step", yscale="log", xlim=(0, 64))
norms.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
norms.minorticks_off()

# %% [markdown]
# MSE ends at the teacher's embeddings, cosine in their direction. With $\gamma=0.5$ the minimum lies beyond the teacher's
# embedding; from $\gamma=1$ norms grow without bound. With $\gamma=1.5$ the thesis' student, a network, collapsed.
#
# **Why γ = 1 is affine.** In $D(y_i,t_i)-\gamma\,\frac1{n-1}\sum_{j\ne i}D(y_i,t_j)$ with MSE, $|y_i|^2$ has the factor
# $1-\gamma$. With $\gamma=1$ it is gone, and the gradient $\frac2d(\bar t_{-i}-t_i)$, where $\bar t_{-i}$ is the mean of
# the negatives, is the same at every $y_i$.

# %%
def gradient_of_margin(y, t, gamma):
    """The gradient of max-margin MSE with respect to each y_i, (B, D)."""
    y = y.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(max_margin(mse(y, t), gamma).sum(), y)
    return gradient


y64 = y.detach().double()
t64 = t.double()
B, D = t64.shape
mean_of_others = (t64.sum(dim=0) - t64) / (B - 1)
constant = 2 / D * (mean_of_others - t64)
for place in (y64, 1000 * y64, torch.randn_like(y64)):
    torch.testing.assert_close(gradient_of_margin(place, t64, gamma=1.0), constant)
print(f"norms of the gradients of {B} documents, at any y: {constant.norm(dim=1)[:3]} …")

# %%
travelled = torch.linspace(0, 40, 81, dtype=torch.float64)
direction = -F.normalize(constant)
fig, ax = plt.subplots()
for gamma, color in zip((0.5, 1.0, 1.5), figures.SERIES[:3], strict=True):
    moved = (mse(y64 + s * direction, t64) for s in travelled)
    values = torch.stack([max_margin(distances, gamma).mean() for distances in moved])
    ax.plot(travelled, values, color=color, label=f"γ = {gamma}")
    if gamma == 1.0:
        assert values.diff(n=2).abs().max() < 1e-9  # a straight line
ax.set(xlabel="distance that the embeddings have gone against the gradient", ylabel="loss")
legend = ax.legend()

# %% [markdown]
# Only below 1 is there a minimum; at 1 the loss falls along a straight line, and above 1 ever faster. A student still
# learns from such a loss, because its training ends: in the thesis after 2,500 updates, with a learning rate that falls
# to 0.
#
# ## Distil
#
# In the thesis the student starts from Longformer, which has nothing of its teacher. In the embedded default it starts
# from two layers of its teacher, and is nearer to the teacher's embedding of its own document than to others before any
# training.
#
# The first `documents` training documents are seen in random order; the profile sets epochs and batch size. The first
# recorded loss is the one above, unless precision, dropout, accumulation or a loss of your own make it another.

# %%
train_history, validation_history = run.history()  # trains the student, unless it is there already
recorded = train_history["loss"].iloc[0]
print(f"loss of the first update: {recorded:.4f} recorded, {loss.item():.4f} by hand ({name})")
ax = figures.plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)

# %% [markdown]
# **Norms and cosines through training.** If all documents get nearly the same embedding, the student has collapsed: the
# mean cosine of two documents, 1 minus the recorded `spread`, is near 1.

# %%
def cosines(y, t):
    """The cosines of student and teacher: own documents, (N,), and others, (N (N - 1),)."""
    matrix = 1 - cosine(torch.as_tensor(y), torch.as_tensor(t))
    return matrix.diagonal(), matrix[~torch.eye(len(matrix), dtype=torch.bool)]


corpus = run.corpus
teachers = run.teachers
n_held_out = len(corpus.split("validation"))
t_held_out = teachers.embeddings(teachers.structural, "validation", n_held_out)
for model in (run.untrained, run.model):
    y_held_out = views.validation_embeddings(corpus, model)
    t_held_out = np.array(t_held_out[: len(y_held_out)], dtype=np.float32)
    positives, of_others = cosines(y_held_out, t_held_out)
    means = f"own t {positives.mean():.3f}, with others {of_others.mean():.3f}"
    print(f"{model.label}: cosine with its {means}")

# %%
fig, (norms, alike, last) = plt.subplots(1, 3, figsize=(figures.WIDTH, 2.6))
updates = validation_history["step"]
solid = {"color": figures.PALETTE["student"]}
norms.plot(updates, validation_history["norm"], "o-", **solid)
norms.set(title="norm of y (dashed: of t)", xlabel="updates")
alike.plot(updates, 1 - validation_history["spread"], "o-", **solid)
alike.set(title="cosine of two documents", xlabel="updates")

dashed = {"color": figures.PALETTE["structural"], "linestyle": "--"}
norms.axhline(np.linalg.norm(t_held_out, axis=1).mean(), **dashed)
alike.axhline(cosines(t_held_out, t_held_out)[1].mean(), **dashed)
for values, kind in ((positives, "positive"), (of_others, "negative")):
    options = {"bins": 30, "density": True, "alpha": 0.7, "color": figures.PALETTE[kind]}
    last.hist(values, label=kind, **options)
last.set(title="cosine of y and t, trained", yticks=[])
last.legend()
run.save_figure(fig, "norms-and-cosines", validation_history)

# %% [markdown]
# A good student is near the teacher's embedding of the same document (positive) and far from those of others (negative);
# the dashed lines are the teacher's own.
#
# **Explore** both distances on validation documents, 20 negatives each. AUC is the probability that a positive is
# nearer than a negative; γ moves the pink bar, which is the margin: minus the max-margin loss.

# %%
distances = widgets.distances_to_teacher(run, views.students_of_runs(run))
widgets.distance_explorer(distances)

# %% [markdown]
# The same for all recorded students of as many documents, as Figure 4.4 of the thesis: the gap between the two counts,
# not a small distance. The right axis is logarithmic because max-margin, where such a student is recorded, lets norms
# grow.

# %%
size = (figures.WIDTH, 1.2 + 0.6 * distances["model"].nunique())
figure, (left, right) = plt.subplots(1, 2, figsize=size, sharey=True)
for distance, ax in (("cosine", left), ("mse", right)):
    rows_of_distance = distances[distances["distance"] == distance]
    figures.plot_distances(rows_of_distance, distance=distance, ax=ax)
right.get_legend().remove()
run.save_figure(figure, "distances", distances)

# %% [markdown]
# ## All runs so far
#
# Scores of recorded losses on the validation splits (Figure 4.3 of the thesis; the diamond is the thesis' mean). In the
# thesis max-margin MSE is best with γ = 1, then max-margin cosine with γ = 0.5, then cosine. In the embedded default it
# is the other way round: of the students from 600 documents cosine is ahead of max-margin MSE with γ = 1 (.800 and
# .744, [validation scores](../outputs/published/embedded/README.md#scores-on-validation)).

# %%
from IPython.display import Markdown, display

scores = run.scores()
names = figures.short_names(run)
runs = thesis.scores_of_runs(run, scores)
figure = figures.plot_runs(figures.named(runs, names), by="loss")
run.save_figure(figure, "runs", runs)

# %%
plain = thesis.scores_of_runs(run, scores, "figure 4.2")
if plain.loc[plain["own"], "group"].nunique() > 1:
    display(Markdown("**Without negatives**, as Figure 4.2: divided by the best of these models."))
    figure = figures.plot_runs(figures.named(plain, names), by="loss")
    run.save_figure(figure, "plain-losses", plain)

# %%
figure = thesis.in_figure(run, "figure 4.3")
plain = thesis.in_figure(run, "figure 4.2")
start = ["Longformer", "SBERT"]


def margins(distance, *gammas):
    return [f"max-margin;{distance};γ={gamma}" for gamma in gammas]


claims = [
    thesis.better(figure, "Cosine is better than MSE and the start.", ["cosine"], ["MSE", *start]),
    thesis.better(
        figure,
        "Max-margin MSE is better than MSE, but for γ 1.5.",
        margins("MSE", 0.1, 0.5, 1.0),
        ["MSE"],
        margins("MSE", 1.5),
    ),
    thesis.better(
        figure,
        "Only with γ 1 it is better than Longformer and SBERT.",
        margins("MSE", 1.0),
        start,
        margins("MSE", 0.1, 0.5, 1.5),
    ),
    thesis.better(
        figure,
        "Of those with cosines only max-margin with γ .5 is better than cosine.",
        margins("cosine", 0.5),
        ["cosine"],
        [*margins("cosine", 0.1, 1.0, 1.5), "contrastive"],
    ),
    thesis.better(plain, "MSE is worse than Longformer.", ["Longformer"], ["MSE"]),
    thesis.better(plain, "SBERT is better than both.", ["SBERT"], ["Longformer", "MSE"]),
]
figures.table(thesis.claim_table(claims), section=thesis.CLAIMS)

# %% [markdown]
# ## Conclusion

# %% tags=["conclusion"]
print(thesis.conclusion(run))

# %%
student_folder = run.link_student()
tables = run.evaluation.tables
numbers = run.finish(run.metrics(scores), scores=scores, student=student_folder, tables=tables)
print(f"figures: {Path(run.figures[0]).parent}\nstudent: {student_folder}")
numbers

# %% [markdown]
# ## References
#
# * D. Burian: *Document embedding using Transformers*. Master thesis, Institute of Formal and Applied Linguistics,
#   Charles University, Prague 2023 (section 4.4).
# * N. Reimers, I. Gurevych: *Sentence-BERT*. EMNLP 2019 (the structural teacher).
# * I. Beltagy, M. Peters, A. Cohan: *Longformer*. 2020 (attention in a window).
# * I. Loshchilov, F. Hutter: *Decoupled Weight Decay Regularization*. ICLR 2019 (AdamW).
#
# **Other students.** Change a parameter and run all cells, or let `docemb sweep 03_structural --grid structural` make the
# thesis' students. `04_projections` adds the contextual teacher.
