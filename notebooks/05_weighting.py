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
# # 05 · Weighting and masking
#
# How much should each teacher count, and for which documents? The structural teacher, SBERT, reads only the beginning
# of a long document, so a student that matches it may stop reading the end; the contextual teacher, Paragraph Vector,
# has learnt to predict the words of the whole document, and knows less of what they mean. This chapter weighs one loss
# against the other and measures what each weight does to the scores of a student, and to what it reads.
#
# $$L = \frac1B\sum_i \lambda_i\,L_S(y_i,t_i) + (1-\lambda_i)\,L_C(y_i,c_i),
#   \qquad \lambda_i = \lambda\cdot[\mathrm{len}_i \le \texttt{max\_structural\_len}]$$
#
# With the *mask*, documents longer than `max_structural_len` learn from the contextual teacher alone.

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
lam = "profile"  # λ, weight of the structural loss in [0, 1]; None: the plain sum of both
lam_by_length = None  # "linear:FIRST:LAST": λ falls from FIRST to 0 at LAST structural tokens; None: it does not
max_structural_len = "profile"  # mask documents of more structural tokens, special ones included; None: no mask
weighting = "complement"  # of the contextual loss: complement is 1 - λ; structural is 1, as in drafts of the thesis
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import begin, figures, thesis, views, widgets

figures.use_style()
run = begin("05_weighting", globals())
thesis.settings(run)

# %% [markdown]
# ## Listing 4.1
#
# The only code that the thesis prints is this weighted sum. `S` and `C` are the losses of the documents of a batch.

# %%
import torch


def weighted_loss(S, C, n_tokens, lam, max_structural_len):
    """S, C, n_tokens: losses and structural tokens of B documents, (B,) each. Returns L, ()."""
    keep = torch.ones_like(S)
    if max_structural_len is not None:
        keep = (n_tokens <= max_structural_len).to(S)
    lam_i = lam * keep  # (B,), 0 for a masked document
    return (lam_i * S + (1 - lam_i) * C).mean()

# %% [markdown]
# Three documents, the last of them longer than the structural teacher reads, all with $L_S$ .4 and $L_C$ .1:

# %%
limit = run.profile.structural_teacher.max_tokens
n_tokens = torch.tensor([limit // 4, limit, 3 * limit])
S = torch.full((3,), 0.4)
C = torch.full((3,), 0.1)
losses = (S, C, n_tokens)
for weight in (1.0, 0.5, 0.0):
    plain = weighted_loss(*losses, weight, None)
    masked = weighted_loss(*losses, weight, limit)
    print(f"λ {weight}: L = {plain:.3f}, with the mask at {limit} tokens {masked:.3f}")
kept = (n_tokens <= limit).to(S)
print(f"part `structural`: {S.mean():.3f}, with the mask {(kept * S).mean():.3f}")

# %% [markdown]
# The mask does not shrink the batch: what a long document loses of $L_S$, it gains of $L_C$. The *parts* of a loss in
# histories are means over all documents without λ, where a masked document counts 0: with a mask, `structural` is small
# because few documents have it, not because the student is near to SBERT.
#
# ## The weights of a document
#
# All weightings are two factors per document. `lam=None` is the plain sum $L_S + L_C$, and drafts of the thesis weigh
# the structural loss alone, $\lambda_i\,L_S + L_C$.

# %%
def document_weights(n_tokens, lam, max_structural_len=None, by_length=None, form="complement"):
    """The factors of L_S and of L_C, (B,) each, for documents of `n_tokens`, (B,)."""
    ones = torch.ones(len(n_tokens))
    v = ones
    if max_structural_len is not None:
        v = (n_tokens <= max_structural_len).float()
    if lam is None and by_length is None:
        return v, ones  # the plain sum
    if lam is not None:
        v = v * lam
    if by_length is not None:  # "linear:FIRST:LAST"
        _, first, last = by_length.split(":")
        span = int(last) - int(first)
        left = (int(last) - n_tokens) / span
        v = v * left.clamp(0, 1)
    return v, ones if form == "structural" else 1 - v

# %% [markdown]
# The weights of the training documents of this run, which the assertion finds equal to the library's:

# %%
import pandas as pd

from docemb_lib.losses import Weighting

p = run.profile.parameters
examples = {
    "λ .5": (0.5, None, None, "complement"),
    f"λ .5, mask {limit}": (0.5, limit, None, "complement"),
    "λ .5, falling": (0.5, None, f"linear:{limit}:{4 * limit}", "complement"),
    "plain sum": (None, None, None, "complement"),
    f"drafts, λ .5, mask {limit}": (0.5, limit, None, "structural"),
    "this run": (p.lam, p.max_structural_len, p.lam_by_length, p.weighting),
}
lengths = torch.from_numpy(run.teachers.structural_lengths("train", p.documents))
lengths, _ = lengths.sort()
orange = figures.PALETTE["structural"]
green = figures.PALETTE["contextual"]
axes = figures.axes(2.3, rows=2, columns=3, sharex=True, sharey=True)
for ax, name in zip(axes.flat, examples, strict=True):
    settings = examples[name]
    v, u = document_weights(lengths, *settings)
    of_library = Weighting(*settings).weights(lengths)
    torch.testing.assert_close((v, u), of_library)
    ax.step(lengths, v, color=orange, label="structural loss")
    ax.step(lengths, u, "--", color=green, label="contextual loss")  # equal lines are seen
    ax.set(title=name, xlabel="structural tokens", ylabel="weight")
    ax.label_outer()
ax.set_xlim(0, lengths.double().quantile(0.95))  # a few documents are many times longer
handles, labels = ax.get_legend_handles_labels()
ax.figure.legend(handles, labels, loc="outside upper left", ncols=2)
weights = pd.DataFrame({"length": lengths, "structural": v, "contextual": u})
run.save_figure(ax, "weights", weights)
share = (lengths > limit).double().mean()
print(f"{share:.0%} of the documents have more than {limit} tokens.")

# %% [markdown]
# A step is the mask. Only in the form of the thesis does a document that loses one teacher get more of the other.

# %%
train_history, validation_history = run.history()  # trains the student, unless it is there already
print(views.taught(run))

# %% [markdown]
# ## Which loss moves the student?
#
# λ weighs values, but a student follows gradients. The thesis gives the student a *strict* structural loss, at its
# embeddings, and a *forgiving* contextual one, behind projections, so that the two need not push against each other
# (3.1). Both can be measured. The norms of the two gradients say which loss moves the student; the cosine between them
# says whether they pull in one direction (1), do not meet (0) or push against each other (-1).

# %%
def gradient_of(loss, student):
    """The gradient of a loss at all trained parameters of a student, (parameters,)."""
    weights = [weight for weight in student.parameters() if weight.requires_grad]
    parts = torch.autograd.grad(loss, weights, retain_graph=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])


def gradients(teachings, student, batch, targets):
    """The gradient of each mean loss at the parameters of the student, (parameters,), by name."""
    y = student(batch)
    by_name = {}
    for name, teaching in teachings.items():
        views_of_both = teaching.views(y, targets.teachers[teaching.name])
        loss = teaching.loss(*views_of_both).mean()
        by_name[name] = gradient_of(loss, student)
    return by_name


def beside(structural, contextual):
    """The norms of two gradients, the share of the first, and the cosine between them."""
    S = structural.norm().item()
    C = contextual.norm().item()
    cosine = torch.cosine_similarity(structural, contextual, dim=0)
    norms = {"norm of L_S": S, "norm of L_C": C}
    return {**norms, "share of L_S": S / (S + C), "cosine": cosine.item()}


# %% [markdown]
# The structural losses are the two of the thesis' final students. The contextual loss stands behind the projections of
# this run, then behind a linear one, and is at last as strict as a structural loss: the MSE behind a linear projection.
# All begin with the student before training, in the first two batches.

# %%
from docemb_lib import Run

both = {**run.parameters, "structural_loss": p.structural_loss or "cosine"}
both["contextual_teacher"] = p.contextual_teacher or "PV"
stage = Run.of(run.notebook, run.profile, **both).students


def teachings_with(**changes):
    """Both losses with their projections as training begins, with other parameters."""
    other = Run.of(run.notebook, run.profile, **(both | changes))
    objective = other.students.objective(trained=False)
    return objective.train().teachings


width = p.student_projection.split("x")[-1]
behind = {
    "projections of this run": {},
    "linear": {"student_projection": width},
    "linear, MSE": {"student_projection": width, "contextual_loss": "mse"},
}
structural = {}
for loss in ("cosine", "max-margin"):
    structural[loss], _ = teachings_with(structural_loss=loss)
contextual = {}
for name, changes in behind.items():
    _, teaching = teachings_with(**changes)
    contextual[name] = teaching
    weights = sum(weight.numel() for weight in teaching.parameters())
    print(f"{name}: {weights:,} weights are trained with the student and then left out")

# %%
from itertools import product

student = stage.objective(trained=False).student
documents_of_run = stage.training_documents(student, "train", p.documents)
size = min(run.training.batch_size, p.documents // 2)
rows = []
for first in (0, size):
    batch, targets = documents_of_run.pack([range(first, first + size)])
    of_losses = gradients(structural | contextual, student, batch, targets)
    for loss, name in product(structural, contextual):
        numbers = beside(of_losses[loss], of_losses[name])
        rows.append({"structural": loss, "contextual": name, **numbers})
of_pairs = pd.DataFrame(rows).groupby(["structural", "contextual"], sort=False)
means = of_pairs.mean()
figures.table(means)

# %% [markdown]
# All numbers are means over the two batches, and the share is that at λ = .5. What they say of two statements of the
# thesis:

# %%
from docemb_lib.thesis.comparison import LINES

numbers = means.xs("projections of this run", level="contextual")
share = numbers["share of L_S"]
holds = "holds" if share["max-margin"] > share["cosine"] else "does not hold"
said = f"""At λ = .5 the cosine loss has {share["cosine"]:.0%} of the gradient and max-margin
{share["max-margin"]:.0%}: that max-margin exerts more pressure than cosine (4.5.2) {holds} here."""
print(LINES.fill(said))

of_strict = means["cosine"].groupby("structural", sort=False).mean()
for loss, cosine in of_strict.items():
    meet = "push against each other" if cosine < 0 else "pull in one direction"
    print(f"Here {loss} and the contextual losses {meet} (mean cosine {cosine:+.2f}).")

norms = means["norm of L_C"]["cosine"]
times = norms["linear"] / norms["projections of this run"]
cosines = of_pairs["cosine"]
between_batches = (cosines.max() - cosines.min()).max()
by_loss = means["cosine"].groupby("structural")
between_losses = (by_loss.max() - by_loss.min()).max()
said = f"""The projections of this run make the contextual gradient {times:.1f} times smaller than a
linear one does. The cosine differs by {between_losses:.2f} at most among the three contextual
losses, by {between_batches:.2f} between the two batches."""
print(LINES.fill(said))

# %% [markdown]
# Projections forgive by taking up a part of the loss; the encoder gets the rest. After training, half of the sum of
# both gradients is what the library follows at λ = .5:

# %%
trained = run.students.objective()
of_roles = {teaching.role: teaching for teaching in trained.teachings}
by_role = gradients(of_roles, trained.student, batch, targets)
by_hand = sum(by_role.values()) / len(by_role)  # a single teacher has no weight

trained.weighting = Weighting(lam=0.5)
trained.group_size = None  # one batch
loss = trained(batch, **targets._asdict()).loss
by_library = gradient_of(loss, trained.student)
assert (by_hand - by_library).norm() < 1e-3 * by_library.norm()

of_both = [by_role.get(role, by_hand) for role in ("structural", "contextual")]
after = beside(*of_both)
said = f"{after['share of L_S']:.0%} of the gradient is of L_S, the cosine is {after['cosine']:+.2f}"
print(f"This run, trained: {said}.")

# %% [markdown]
# At a minimum of the weighted sum the two gradients would be opposite (-1).
#
# ## A factor of the whole loss
#
# At λ = .5 the loss is half of the plain sum, and the thesis explains the difference of their students by halved
# gradients (4.5.3). AdamW divides a gradient by its own size, so a factor of the whole loss cancels, unless gradients
# are clipped in between. A regression that is not yet solved shows it:

# %%
def weights_after(factor, optimizer, max_norm=float("inf"), updates=50):
    """The weights of a regression after updates by `factor` times its loss."""
    random = torch.Generator().manual_seed(0)
    w = torch.zeros(8, requires_grad=True)
    of_w = optimizer([w], lr=0.01)
    for _ in range(updates):
        X = torch.randn(6, 8, generator=random)
        errors = X @ w - X.sum(dim=1)
        loss = factor * errors.square().mean()
        of_w.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([w], max_norm)
        of_w.step()
    return w.detach()


optimizers = {
    "SGD": (torch.optim.SGD,),
    "AdamW": (torch.optim.AdamW,),
    "AdamW, clipped": (torch.optim.AdamW, 3.0),
}
for name, settings in optimizers.items():
    whole = weights_after(1, *settings)
    half = weights_after(0.5, *settings)
    change = (whole - half).norm() / whole.norm()
    print(f"{name}: half of the loss changes the weights by {change:.1e}")

clipped = (train_history["grad_norm"] > run.training.max_grad_norm).mean()
print(f"In the training of this run {clipped:.0%} of the updates were clipped.")
in_thesis = {}
for number in (10, 11):
    in_thesis[number] = thesis.in_figure(run, f"figure 4.{number}")
for number, of_figure in in_thesis.items():
    there = of_figure.published["value"]
    difference = there["None;λ=0.5"] - there["no-weighting"]
    print(f"In the thesis' Figure 4.{number} λ = .5 is {difference:+.4f} beside the plain sum.")

# %% [markdown]
# SGD sees the factor, AdamW does not, and clipped updates see a little of it. So λ = .5 without a mask and the plain sum
# are one student but for seeds and clipped updates, and their differences in the thesis have both signs, as those of two
# seeds have. From here on the plain sum stands for λ = .5.
#
# ## A sweep over λ
#
# The students that differ from this one in λ and mask alone. λ = 1 is *S (cosine)*, the student of SBERT alone
# (`03_structural`), λ = 0 is *C (PV)*, that of the contextual teacher alone through the same projections
# (`04_projections`).

# %%
from docemb_lib.evaluation.scoreboard import listed, main_rows, over_tasks, with_interval
from docemb_lib.evaluation.uncertainty import score_intervals

run.scores()  # of this student, too
students = views.by_weighting(run)
models = [each.model for each in students.values()]
of_students = run.scorer.recorded(models)
points = main_rows(score_intervals(of_students))
weighted = [students[name] for name in points["model"]]
points["lam"] = [each.lam for each in weighted]
masks = [each.max_structural_len for each in weighted]
points["mask"] = [f"mask at {mask}" if mask else "no mask" for mask in masks]
points = points.sort_values("lam", kind="stable")
tasks = dict(iter(points.groupby("task", sort=False)))
axes = figures.axes(2.1, columns=len(tasks), squeeze=False).flat
for ax, task in zip(axes, tasks, strict=True):
    of_task = tasks[task]
    lines = of_task.groupby("mask", sort=False)
    for number, (mask, line) in enumerate(lines):
        color = figures.SERIES[number]
        places = line["lam"] + 0.03 * number  # equal scores are seen
        ax.plot(places, line["value"], "o-", color=color, label=mask)
        ax.vlines(places, line["low"], line["high"], color=color)
    of_sbert = of_task[of_task["lam"] > 0]
    floor = of_sbert["low"].min() - 0.02
    ax.set(title=task, xlabel="λ")
    ax.set(xlim=(-0.1, 1.1), ylim=(floor, None))
ax.legend(**figures.BESIDE)
run.save_figure(ax, "lambda", points)

# %% [markdown]
# Each point is one training, with the 95% interval over examples; the line at λ = 0 leads to a score below the axes. The
# explorer compares two students on the same examples.

# %%
widgets.weighting_explorer(of_students)

# %% [markdown]
# ## Does the student read the end?
#
# Drafts of the thesis suppose that without the contextual loss a student forgets the endings of documents, and that
# without the structural loss all embeddings become alike. `ending` is how far another last fifth moves a document,
# divided by how far another first fifth does (`02_paragraph_vector` defines it), with its 95% interval: 0 is a model
# that does not read the end, 1 one that reads it like the beginning. `spread` is the mean cosine distance of two
# documents.

# %%
from itertools import cycle, pairwise

from docemb_lib.evaluation.probes import spread
from docemb_lib.runs.kinds import Kind
from docemb_lib.runs.models import CONTEXTUAL_KINDS, on_task_models, sbert_models, student_model

sbert = sbert_models(run.teachers)
on_task = on_task_models(sbert, None)
lead, *_ = (each for each in on_task if each.kind == Kind.SBERT_LEAD)
known = [*run.references, sbert.chunks, lead]
names = figures.short_names(run, known)
readers = []
for name, each in students.items():
    if each.folder:
        readers.append(student_model(name, each.folder))
for model in known:
    if model.kind not in CONTEXTUAL_KINDS or model.kind == both["contextual_teacher"]:
        readers.append(model.called(names[model.label]))

reading = views.endings(readers, views.documents_to_read(run))
of_readers = run.scorer.by_round(readers)[run.scorer.largest_round]
intervals = main_rows(score_intervals(of_readers))
reading["mean"] = intervals.groupby("model")["value"].last()
embedded = [views.validation_embeddings(run.corpus, model) for model in readers]
reading["spread"] = [*map(spread, embedded)]
spreads = reading["spread"].sort_values()
alike = [f"{name} {value:.3f}" for name, value in spreads.items()]
print(LINES.fill(f"Spread, from the most alike on: {'; '.join(alike)}."))

# %% tags=["picture"]
kinds = {model.label: model.kind for model in readers}
ax = figures.axes(2.9)
floor = reading["mean"][names[run.untrained.label]] - 0.03
lams = {n: each.lam for n, each in students.items() if each.max_structural_len is None}
along = reading[reading.index.isin(lams)]
along = along[along["mean"] > floor].sort_values("ending")
blue = figures.PALETTE["student"]
ax.plot(along["ending"], along["mean"], color=blue, linewidth=0.7)
for row, marker in zip(reading.itertuples(), cycle("osD^vP*X<>"), strict=False):
    color = figures.colour_of(kinds[row.Index])
    height = max(row.mean, floor)
    label = row.Index if height == row.mean else f"{row.Index}: {row.mean:.2f} ↓"
    ax.hlines(height, row.low, row.high, color=color, alpha=0.4)
    ax.plot(row.ending, height, marker, color=color, label=label)
ax.legend(**figures.BESIDE)
ax.axvline(1, color=figures.GREY, linestyle=":")
ax.set_xscale("symlog", linthresh=0.02)
ax.set_xticks([0, 0.01, 0.1, 1], ["0", ".01", ".1", "1"])
ax.minorticks_off()
ax.set(xlim=(-0.005, 6), xlabel="how much the end counts beside the beginning")
ax.set_ylabel("mean validation score")
run.save_figure(ax, "endings", reading.rename_axis("model").reset_index())

# %% [markdown]
# Left of the dotted line the end of a document counts less than its beginning, at the left edge it is not read at all;
# the higher a point, the better are the scores. Students are blue, and the thin line joins those without a mask, from
# SBERT alone at its left end on. SBERT itself is orange, PV green, the start grey; bars are 95% intervals of the ending.

# %%
at = {}
for name, each in students.items():
    at[each.lam, each.max_structural_len is None] = name
alone = at.get((1, True))
plain = at.get((0.5, True))
masked = at.get((0.5, False))

chain = [names[run.untrained.label], alone, plain, masked]
chain = [reading.loc[name] for name in chain if name in reading.index]
counts = []
for row in chain:
    interval = with_interval(row["ending"], row["low"], row["high"])
    counts.append(f"{row.name} {interval}")
steps = []
for before, after in pairwise(chain):
    word = "more" if after["low"] > before["high"] else "neither more nor less"
    word = "less" if after["high"] < before["low"] else word
    steps.append(f"{word} for {after.name} than for {before.name}")
does_it_count = f"by these intervals it counts {listed(steps)}" if steps else "alone here"
print(LINES.fill(f"The end of a document: {does_it_count}."))

# %%
cosine, margin = in_thesis.values()
with_mask = [f"384;λ={weight}" for weight in (0.2, 0.5, 0.8, 0.95)]
without_mask = [name.replace("384", "None") for name in with_mask]
with_half = "384;λ=0.5"
weighted = [with_half, "None;λ=0.2", "None;λ=0.8", "no-weighting"]
teachers = ["Longformer", "SBERT", "PV;2048d"]
unweighted = "only-structural;mm-MSE"
claims = [
    thesis.better(cosine, "Beside cosine weighted students beat teachers.", weighted, teachers),
    thesis.better(cosine, "The mask at λ .5 beats the plain sum.", [with_half], ["no-weighting"]),
    thesis.better(margin, "The mask hurts max-margin at any λ.", without_mask, with_mask),
    thesis.better(margin, "Max-margin alone beats λ .5.", [unweighted], ["None;λ=0.5"]),
]
figures.table(thesis.claim_table(claims), section=thesis.CLAIMS)

# %% [markdown]
# This run and the recorded students of Figures 4.10 (beside cosine) and 4.11 (beside max-margin): means in the thesis, on
# its own tasks and normalised by the best model, and mean validation scores here. A mask is at 384 tokens there.

# %%
import numpy as np

rows = []
for number, of_figure in in_thesis.items():
    for name, row in of_figure.published.iterrows():
        if row["kind"] != "baseline" and name in of_figure.scores:
            of_tasks = of_figure.scores[name].values()
            here = np.mean([score.mean for score in of_tasks])
            rows.append((f"4.{number}", name, row["value"], here))
recorded_here = pd.DataFrame(rows, columns=["figure", "model", "thesis", "here"])
figures.table(recorded_here.set_index(["figure", "model"]))

# %% [markdown]
# ## Shortcuts
#
# `ending` is a ratio. A model that is moved little by any passage can have a large one, as *C (PV)* has, whose embeddings
# are alike; so read it beside `mean` and `spread`. And reading the end is not understanding it:
# pages of one package may repeat its names to the end, which helps on `package` without any topic.
#
# ## What was found

# %% tags=["found"]
read = f"How much the end of a document counts beside its beginning: {listed(counts)}"
print(LINES.fill(f"{read}; {does_it_count}."))

unmasked = {name: of_students[name] for name in lams}
if alone in unmasked and plain in unmasked:
    means = over_tasks(score_intervals(unmasked)).set_index("model")["value"]
    best = means.idxmax()
    tried = [f"{weight:g}" for weight in sorted(lams.values())]
    other = plain if best == alone else best
    said = views.compared(of_students, other, alone)
    second = means.drop(best).idxmax()
    if second not in (other, alone):
        said += f" {views.compared(of_students, best, second)}"
    said = f"Of λ = {listed(tried)}, {lams[best]:g} has the best mean; {said}"
    print(LINES.fill(said.replace(" 0.", " .")))
if plain and masked:
    print(LINES.fill(f"As to the mask, {views.compared(of_students, masked, plain)}"))

# %% [markdown]
# ## This run beside its start and its teachers

# %% tags=["conclusion"]
print(thesis.conclusion(run))

# %%
print(run.record_scores())

# %% [markdown]
# ## Try it
#
# Change a value in the first cell and execute all cells; a run takes two minutes or so.
#
# - `lam = 0.1`: does the end count more than at λ .2, and what does `see-also-retrieval` lose?
# - `max_structural_len = 512`, `lam = 0.5`: the mask hides fewer documents. Does the student still read the end?
# - `lam_by_length = "linear:256:1024"`: λ falls with the length. Does it keep both the end and the scores?
#
# More points of λ at once, which the figures above show when this notebook is executed again:
#
# ```python
# from docemb_lib import sweep
#
# sweep("05_weighting", [{"lam": 0.1}, {"lam": 0.9}], profile="tiny")
# ```
#
# With other seeds (`docemb sweep 05 --grid weighting-teachers -p seed=1`), `thesis.over_recorded_seeds(run)` tests this
# student beside that of the structural loss alone over seeds and examples.
#
# ## References
#
# - D. Burian: *Document embedding using Transformers*. Master thesis, Institute of Formal and Applied Linguistics,
#   Charles University, Prague 2023 (Listing 4.1, Table 4.9, Figures 4.10 and 4.11).
# - Chen, Badrinarayanan, Lee and Rabinovich (2018): *GradNorm: Gradient Normalization for Adaptive Loss Balancing in Deep
#   Multitask Networks*, which balances losses by the norms of their gradients.
# - Yu et al. (2020): *Gradient Surgery for Multi-Task Learning*, which measures conflicts by the cosine between gradients.
#
# Tables, figures and executed copies are in `outputs/runs/05_weighting/`.
