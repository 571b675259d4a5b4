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
# How much should each teacher count, and for which documents?
#
# $$L = \frac1B\sum_i \lambda_i\,L_S(y_i,t_i) + (1-\lambda_i)\,L_C(y_i,c_i),
#   \qquad \lambda_i = \lambda\cdot[\mathrm{len}_i \le \texttt{max\_structural\_len}]$$
#
# The structural teacher reads only the beginning of a long document; with the *mask*, longer documents than
# `max_structural_len` learn from the contextual teacher alone.

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
for lam_of_example in (1.0, 0.5, 0.0):
    plain = weighted_loss(S, C, n_tokens, lam_of_example, None)
    masked = weighted_loss(S, C, n_tokens, lam_of_example, limit)
    print(f"λ {lam_of_example}: L = {plain:.3f}, with the mask at {limit} tokens {masked:.3f}")

# %% [markdown]
# The mask does not shrink the batch: what a long document loses of $L_S$, it gains of $L_C$.
#
# ## The weights of a document
#
# All weightings are two factors per document. `lam=None` is the plain sum $L_S + L_C$, and drafts of the thesis weigh
# the structural loss alone, $\lambda_i\,L_S + L_C$.

# %%
def document_weights(n_tokens, lam, max_structural_len=None, by_length=None, form="complement"):
    """The factors of L_S and of L_C, (B,) each, for documents of `n_tokens`, (B,)."""
    ones = torch.ones(len(n_tokens))
    v = ones if max_structural_len is None else (n_tokens <= max_structural_len).float()
    if lam is None and by_length is None:
        return v, ones  # the plain sum
    if lam is not None:
        v = v * lam
    if by_length is not None:  # "linear:FIRST:LAST"
        first, last = map(int, by_length.split(":")[1:])
        v = v * ((last - n_tokens) / (last - first)).clamp(0, 1)
    return v, ones if form == "structural" else 1 - v


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
rows = {}
for name, settings in examples.items():
    v, u = document_weights(n_tokens, *settings)
    torch.testing.assert_close((v, u), Weighting(*settings).weights(n_tokens))
    rows[name] = [f"{a:.2f} + {b:.2f}" for a, b in zip(v, u, strict=True)]
    if name.startswith("λ .5, mask"):  # Listing 4.1
        by_listing = weighted_loss(S, C, n_tokens, 0.5, limit)
        torch.testing.assert_close((v * S + u * C).mean(), by_listing)
pd.DataFrame(rows, index=[f"{n} tokens" for n in n_tokens]).T.rename_axis("L_S + L_C")

# %% [markdown]
# The same for the training documents of this run, by their length:

# %%
import matplotlib.pyplot as plt

weights = views.weights_by_length(run)
lengths = torch.tensor(weights["length"].to_numpy())
figure, axes = plt.subplots(2, 3, figsize=(figures.WIDTH, 4), sharex=True, sharey=True)
for ax, (name, settings) in zip(axes.flat, examples.items(), strict=True):
    v, u = document_weights(lengths, *settings)
    ax.step(lengths, v, where="post", color=figures.PALETTE["structural"], label="structural loss")
    look = {"color": figures.PALETTE["contextual"], "linestyle": "--"}  # equal lines are seen
    ax.step(lengths, u, where="post", **look, label="contextual loss")
    ax.set(title=name, xlabel="structural tokens", ylabel="weight of the loss")
    ax.label_outer()
ax.set(xlim=(0, weights["length"].quantile(0.95)))  # a few documents are many times longer
figure.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=2)
run.save_figure(figure, "weights", weights)

# %%
v, u = document_weights(lengths, *examples["this run"])
if len(run.roles) == 2:
    torch.testing.assert_close(v, torch.tensor(weights["structural"].to_numpy()))
print(f"{(weights['structural'] == 0).mean():.0%} of {len(weights)} documents have no L_S")

# %% [markdown]
# A step is the mask. Only in the form of the thesis does a document that loses one teacher get more of the other.
#
# ## This run

# %%
train_history, validation_history = run.history()  # trains the student, unless it is there already
ax = figures.plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)
print(views.taught(run))

# %% [markdown]
# `structural` and `contextual` are means over all documents, without λ, so they alone do not give the loss. A masked
# document counts 0 in `structural`: with a mask this part is small because it has fewer documents, not because the
# student is nearer to SBERT.
#
# ## The loss of three documents
#
# Of the shortest, the median and the longest validation document: $y$ by the student, $t$ by the structural teacher,
# $f$ and $c$ the projected views. The decorrelation is that of `04_projections`; max-margin, contrastive, CCA and a
# loss of your own take the library's values.

# %%
def decorrelation(z, running, beta):
    """SDL of a view z, (B, P), after the batches whose statistics are in `running`."""
    Z = running.normalise(z)
    Phi = beta * running.covariance + Z.T @ Z / (len(Z) - 1)  # (P, P)
    b = beta * running.normaliser + 1
    off_diagonal = ~torch.eye(len(Phi)).bool()
    return Phi[off_diagonal].abs().sum() / b / max(off_diagonal.sum(), 1)


# %%
from torch.nn.functional import cosine_similarity

three = views.three_documents(run)
structural = {
    "mse": (three.y - three.t).square().mean(dim=1),
    "cosine": 1 - cosine_similarity(three.y, three.t),
}
L_S = structural.get(p.structural_loss, three.structural)  # (3,)
distance = (three.f - three.c).square().mean(dim=1)
soft_cca = distance
for view, running in zip((three.f, three.c), three.decorrelations, strict=False):
    soft_cca = soft_cca + three.delta * decorrelation(view, running, p.beta)
L_C = {"mse": distance, "soft-cca": soft_cca}.get(p.contextual_loss, three.contextual)

v, u = document_weights(
    three.lengths, p.lam, p.max_structural_len, p.lam_by_length, p.weighting
)
if p.structural_loss is None or p.contextual_teacher is None:  # one teacher: no λ
    v, u = three.weights
by_hand = (v * L_S + u * L_C).mean()
print(f"by hand {by_hand:.6f}, by the library {three.loss:.6f}")
assert abs(by_hand - three.loss) < 1e-4 * max(1, abs(three.loss))
pd.DataFrame({"tokens": three.lengths, "L_S": L_S, "L_C": L_C, "v": v, "u": u}).round(3)

# %% [markdown]
# ## Which loss moves the student?
#
# λ weighs values, but a student follows gradients. Two backward passes on one batch give the gradient of each loss, at
# the embeddings $y$ and at the parameters of the encoder.

# %%
def losses_by_role(objective, y, teachers):
    """The losses of B documents by role, (B,) each, from their embeddings y, (B, D)."""
    losses = {}
    for teaching in objective.teachings:
        view, target = teaching.views(y, teachers[teaching.name])
        of_teacher = teaching.weight * teaching.loss(view, target)
        losses[teaching.role] = losses.get(teaching.role, 0) + of_teacher
    return losses


def gradients(objective, batch, teachers):
    """By role: the gradients of its mean loss at y, (B, D), and at the encoder, (parameters,)."""
    encoder = [weight for weight in objective.student.parameters() if weight.requires_grad]
    y = objective.student(batch)
    by_role = {}
    for role, losses in losses_by_role(objective, y, teachers).items():
        at_y, *at_encoder = torch.autograd.grad(
            losses.mean(), [y, *encoder], retain_graph=True, materialize_grads=True
        )
        by_role[role] = (at_y, torch.cat([gradient.flatten() for gradient in at_encoder]))
    return by_role


# %%
stage = run.students
B = min(run.training.batch_size, p.documents)
training_documents = stage.training_documents(stage.objective().student, "train", p.documents)
batch, targets = training_documents.pack([range(B)])

objectives = views.objectives_of(run)
rows = []
for name, objective in objectives.items():
    by_role = gradients(objective.train(), batch, targets.teachers)
    for place, at in enumerate(("embeddings", "encoder")):
        norms = {role: both[place].norm().item() for role, both in by_role.items()}
        rows.append({"objective": name, "at": at, "structural": 0.0, "contextual": 0.0, **norms})
norms = pd.DataFrame(rows)
figures.table(norms.set_index(["objective", "at"]), digits=4)

# %% [markdown]
# The weighted sum of both is the gradient that the library follows:

# %%
trained = stage.objective()
by_role = gradients(trained, batch, targets.teachers)
half = 1 / len(by_role)  # λ = 1/2; a single teacher has no weight
by_hand = half * sum(at_encoder for _, at_encoder in by_role.values())

trained.weighting = Weighting(lam=0.5)
trained.group_size = None  # one batch
encoder = [weight for weight in trained.student.parameters() if weight.requires_grad]
loss = trained(batch, **targets._asdict()).loss
of_library = torch.autograd.grad(loss, encoder, materialize_grads=True)
by_library = torch.cat([gradient.flatten() for gradient in of_library])
assert (by_hand - by_library).norm() < 1e-3 * by_library.norm()

# %%
from docemb_lib.settings.labels import typeset

shares = torch.linspace(0.001, 0.999, 101)  # with one loss, neither end has a gradient
_, ax = plt.subplots()
colours = figures.series_colors(norms["objective"])
for row in norms.itertuples():
    structural = shares * row.structural
    of_structural = structural / (structural + (1 - shares) * row.contextual)
    style = "-" if row.at == "embeddings" else "--"
    look = {"color": colours[row.objective], "linestyle": style}
    ax.plot(shares, of_structural, **look, label=f"{typeset(row.objective)}, {row.at}")
ax.plot([0, 1], [0, 1], color=figures.GREY, linestyle=":", label="equal gradients")
ax.set(xlabel="λ (weight of the structural loss)", ylabel="its share of the gradient")
ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
run.save_figure(ax, "gradients", norms)
for row in norms[norms["at"] == "encoder"].itertuples():
    share = row.structural / (row.structural + row.contextual)
    print(f"{row.objective}: {share:.0%} of the encoder's gradient is of L_S at λ = .5")

# %% [markdown]
# Above the dotted line the structural loss has the larger gradient, below it the contextual loss: λ = .5 balances them
# only on the line. In the embedded default the cosine loss has most of the gradient, and max-margin MSE the smaller
# part, although the thesis says that max-margin presses harder (4.5.2).
#
# ## A sweep over λ
#
# Table 4.9 of the thesis, beside cosine (Figure 4.10) and beside max-margin (Figure 4.11):

# %%
figures.table(thesis.table("4.9"))

# %% [markdown]
# The next cell makes the other runs of 05 in the plan of this profile, unless they are recorded. Any list can take
# their place, as in `[{"lam": 0.1}, {"lam": 0.9}]`. Without a mask λ = .5 is half the plain sum, and AdamW, which
# divides by the size of gradients, hardly sees a factor of the whole loss: in the embedded default both end alike
# beside max-margin (.748).

# %%
from docemb_lib import sweep
from docemb_lib.runs.plan import planned_beside

others = planned_beside(run)
swept = sweep(run.notebook, others, profile=profile) if others else pd.DataFrame()
columns = ["label", "contextual_teacher", "documents", "seconds", "validation"]
figures.table(swept.reindex(columns=columns))

# %% [markdown]
# ## All runs so far
#
# Scores on the validation splits of the sweep tasks, as in Figures 4.10 and 4.11 of the thesis, whose means are hollow
# diamonds (`01_corpus` explains normalised scores and intervals).

# %%
scores = run.scores()
names = figures.short_names(run)
for name, runs in thesis.runs_by_figure(run, scores).items():
    figure = figures.plot_runs(figures.named(runs, names), by="λ" + name.removeprefix("runs"))
    run.save_figure(figure, name.replace(", figure ", "-"), runs)

# %% [markdown]
# The runs that differ from this one in λ and mask alone; λ = 1 is the structural-only student of `03_structural`. Two
# points, as in the embedded default, are no curve: `[{"lam": 0.2}, {"lam": 0.8}]` in the sweep above adds others.

# %%
points = widgets.weighting_points(run)
shown = points[points["task"] == points["task"].iloc[-1]]  # the mean, if there are several
masks = shown["max_structural_len"].map("mask {:.0f}".format).replace("mask nan", "no mask")
_, ax = plt.subplots()
for (mask, line), color in zip(shown.groupby(masks), figures.SERIES, strict=False):
    line = line.sort_values("lam")
    reach = [line["value"] - line["low"], line["high"] - line["value"]]
    ax.errorbar(line["lam"], line["value"], yerr=reach, fmt="o-", color=color, label=mask)
    for value in line.loc[line["lam"].isna(), "value"]:
        ax.axhline(value, color=color, linestyle=":", label=f"plain sum, {mask}")
ax.set(xlabel="λ (weight of the structural loss)", ylabel=shown["task"].iloc[0])
ax.legend(**figures.BESIDE)
run.save_figure(ax, "lambda", points)

# %%
widgets.weighting_explorer(run, points)

# %% [markdown]
# ## What each teacher prevents
#
# Drafts of the thesis suppose that without the contextual loss a student forgets the endings of documents, and that
# without the structural loss all embeddings become alike. `ending` is how far another last fifth moves a document,
# divided by how far another first fifth does (`02_paragraph_vector` defines it), with its 95% interval; `spread` is the
# mean cosine distance of two documents. The students are those of equally many documents, with that of the structural
# loss alone (`03_structural`), and those of the contextual loss alone (`04_projections`) from any number of documents.
#
# In the embedded default **a student of SBERT alone, which reads 256 tokens, stops reading the end of a document**:
# `ending` is 1.75 before training and .01 after it. Paragraph Vector keeps a little (.09, plain sum); the mask keeps
# more (1.42), and costs related pages ([the same on more pages](../outputs/published/reading.md)).

# %%
reading = views.hypotheses_of_students(run, scores)
reading.round(3)

# %%
from textwrap import fill

_, ax = plt.subplots()
shown = figures.named(reading.reset_index(names="model"), names)
for row, color in zip(shown.itertuples(), figures.series_colors(shown["model"]).values(), strict=True):
    ax.plot([row.low, row.high], [row.mean] * 2, color=color)
    ax.plot(row.ending, row.mean, "o", color=color, label=fill(row.model, 34))
ax.legend(**figures.BESIDE)
ax.set(xlabel="how much the ending counts beside the beginning", ylabel="mean validation score")
run.save_figure(ax, "endings", reading.reset_index(names="model"))

# %% [markdown]
# At the left stand the models that have stopped reading the end; lines are 95% intervals of the ending. A good score may
# stand anywhere: reading to the end is not quality by itself.

# %%
section = """**The training, or the luck of one?** This run minus the student of the structural loss
alone, over all recorded seeds of both (`docemb sweep 05 --grid weighting-teachers -p seed=1`):
intervals and p-values beyond these seeds and these examples, which three seeds or more make
trustworthy."""
figures.table(thesis.over_recorded_seeds(run).set_index("task"), section=section, digits=4)

# %%
cosine, margin, four = (thesis.in_figure(run, f"figure 4.{number}") for number in (10, 11, 12))
baselines = ["Longformer", "SBERT", "PV;2048d"]
lams = (0.2, 0.5, 0.8, 0.95)
masked, unmasked = ([f"{mask};λ={lam}" for lam in lams] for mask in (384, None))
best_of_cosine = ["masked-cosine;λ=0.5", "cosine;no-weighting"]
alone = "only-structural;mm-MSE"
every = [*masked, *unmasked, "no-weighting"]
claims = [
    thesis.better(cosine, "Beside cosine every weighting is better than a teacher.", every, baselines),
    thesis.better(
        cosine, "The mask helps cosine at λ .5.", ["384;λ=0.5"], ["None;λ=0.5"]
    ),
    *(
        thesis.better(margin, f"The mask hurts max-margin at λ {lam}.", [f"None;λ={lam}"], [f"384;λ={lam}"])
        for lam in lams
    ),
    thesis.better(margin, "With the mask, the larger λ, the worse.", *([name] for name in masked)),
    thesis.better(margin, "λ .5 is better than the plain sum.", ["None;λ=0.5"], ["no-weighting"]),
    thesis.better(
        margin, "Any weighting of max-margin is worse than none.", [alone], thesis.others(margin, alone)
    ),
    thesis.better(
        four, "Max-margin's best are ahead of cosine's.", [alone, "mm-MSE;λ=0.5"], best_of_cosine
    ),
]
figures.table(thesis.claim_table(claims), section=thesis.CLAIMS)

# %% [markdown]
# ## Conclusion

# %% tags=["conclusion"]
print(thesis.conclusion(run))

# %%
tables = run.evaluation.tables
run.finish(run.metrics(scores), scores=scores, student=run.link_student(), tables=tables)

# %% [markdown]
# ## References
#
# - D. Burian: *Document embedding using Transformers*. Master thesis, Institute of Formal and Applied Linguistics,
#   Charles University, Prague 2023 (Listing 4.1, Table 4.9, Figures 4.10 to 4.12).
# - Chen, Badrinarayanan, Lee and Rabinovich (2018): *GradNorm: Gradient Normalization for Adaptive Loss Balancing in Deep
#   Multitask Networks*, which balances losses by the norms of their gradients.
#
# Tables, figures and executed copies are in `outputs/runs/05_weighting/`.
