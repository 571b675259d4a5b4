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
# The structural teacher of the thesis reads only the beginning of a long document. With the *mask*, documents longer
# than `max_structural_len` learn from the contextual teacher alone. Drafts of the thesis weigh the structural loss only,
# $\lambda_i\,L_S + L_C$: `weighting="structural"`. The notebook takes about a minute on two cores with
# the embedded default if the notebooks before have run.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents and of the projections' initial weights
structural_loss = "cosine"  # mse, cosine, max-margin, contrastive; None: contextual only
distance = "mse"  # inside max-margin: mse or cosine
gamma = 1.0  # inside max-margin: weight of the negatives, from 0
temperature = None  # inside contrastive: cosines are divided by it; None: they are not
negatives = "batch"  # of max-margin and contrastive: "batch", a number of random training documents, or "all"
contextual_teacher = "PV"  # DM, DBOW, PV (both side by side), LSA; None: structural only
contextual_loss = "soft-cca"  # soft-cca, soft-cca:covariance, mse, cosine, infonce, cca, cca:10 (the ten largest)
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
# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib import begin, figures, thesis, views, widgets

figures.use_style()
run = begin("05_weighting", globals())
thesis.settings(run)

# %% [markdown]
# ## Who learns from whom
#
# The figure shows the whole method with the settings of this run.

# %%
ax = figures.plot_training(run.profile, views.widths_of(run))

# %% [markdown]
# **How to read it.** Each frozen teacher has one loss, and the weighted losses are summed. The structural loss compares
# embeddings directly, the contextual loss compares the projections $f_S$ and $f_C$. This notebook varies the box on the
# right: the weights of the losses of a document, which $\lambda_i$ sets.
#
# ## What the mask does
#
# For which documents does the structural loss count? The figure shows the weights of both losses against the length of
# a document, with the settings of this run. The text below it gives the share of this run's training documents without
# a structural loss.

# %%
weights = views.weights_by_length(run)
ax = figures.plot_weights(weights)
run.save_figure(ax, "weights", weights)
print(f"{(weights['structural'] == 0).mean():.0%} of the {len(weights)} training documents have no structural loss")

# %% [markdown]
# **How to read it.** The step, if there is one, is the mask: of longer documents it removes the structural loss, and
# with λ the contextual loss gets its weight. With λ the two weights add up to 1, unless `weighting` is `structural`,
# where the contextual weight is 1. Without λ both weights are 1, so a
# document with both losses counts twice. With `lam_by_length` the structural weight falls gradually.

# %% [markdown]
# ## Distil
#
# The student is trained on the weighted sum of both losses.

# %%
train_history, validation_history = run.history()  # trains the student, unless it is there already
ax = figures.plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)

# %% [markdown]
# **How to read it.** The values of the two losses are not comparable, but their trends are. The structural part counts
# masked documents as zero, so with a mask the parts alone do not give the loss.
#
# ## The loss by hand
#
# The loss $L$ of this run for three validation documents, the shortest, the median and the longest: first by hand, from
# the embeddings $y$ (student), $t$ (structural teacher) and the projections $f_S(y)$ and $f_C(c)$, then by the library.
# SDL adds the covariance $\Sigma$ of the batch to the running covariance that training left,
# $\Phi_t = \beta\Phi_{t-1} + \Sigma$, and divides by $b_t = \beta b_{t-1} + 1$. Not written out here are max-margin and
# contrastive (`03_structural` does this), CCA, and a loss of your own: for these, the values of the library are taken.
# The weights of both losses are the library's, too. The loss of three documents differs from that of the whole split.

# %%
import torch
from torch.nn.functional import cosine_similarity

three = views.three_documents(run)
p, y, t, f, c = run.profile.parameters, three.y, three.t, three.f, three.c
by_name = {"mse": (y - t).square().mean(dim=1), "cosine": 1 - cosine_similarity(y, t)}
L_S = by_name.get(p.structural_loss, three.structural)
distance, off_diagonal, sdl = (f - c).square().mean(dim=1), ~torch.eye(f.shape[1]).bool(), 0
for z, running in zip((f, c), three.decorrelations, strict=False):
    Z = running.normalise(z)
    Phi, b = p.beta * running.covariance + Z.T @ Z / (3 - 1), p.beta * running.normaliser + 1
    sdl += Phi[off_diagonal].abs().sum() / b / max(off_diagonal.sum(), 1)
L_C = {"mse": distance, "soft-cca": distance + three.delta * sdl}.get(p.contextual_loss, three.contextual)
v, u = three.weights  # by length, as drawn above: λᵢ and 1 - λᵢ, or 1
print(f"by hand {(v * L_S + u * L_C).mean():.6f}, by the library {three.loss:.6f}")
print(f"weight of L_S for the documents of {three.lengths.tolist()} tokens: {[round(x, 3) for x in v.tolist()]}")

# %% [markdown]
# ## All runs so far
#
# How do other weights compare? The figure shows scores on the validation splits of the sweep tasks, as Figures 4.10 and
# 4.11 of the thesis do. A score is divided by the best score of all models shown on the same task. The points of a row
# are tasks, the triangle is their mean, and its bar is the 95% interval over validation examples. From five tasks on, a
# row has a box, as in the thesis, whose own box is dashed. The recorded structural-only student of `03_structural` is
# shown, too. The grids are `weighting-cosine` and `weighting-max-margin`, for example `docemb sweep 05_weighting --grid
# weighting-cosine`. Each has the runs of Table 4.9, in the widths of this profile:

# %%
figures.table(thesis.table("4.9", run.profile))

# %%
scores = run.scores()
names = figures.short_names(run.models(), run.label)
for name, runs in thesis.runs_by_figure(run, scores).items():
    (ax,) = figures.rows_axes(runs["model"].nunique())
    figures.plot_runs(figures.named(runs, names), by="λ" + name.removeprefix("runs"), ax=ax)
    run.save_figure(ax, name.replace(", figure ", "-"), runs)

# %% [markdown]
# **How to read it.** The best model is on top; grey rows are baselines. A hollow diamond is the mean in the thesis of
# the same place in the grid. Unless the profile is `thesis`, tasks and models are others: compare the order of runs
# within one structural loss. Means of Figures 4.10 and 4.11 have different divisors: if there are runs of both, each
# has a picture of its own, with diamonds, below that of all runs.
#
# The next figure shows the runs that differ from this one in λ and mask alone: the mean of their scores against λ.
# There is one line per mask; a dotted line is the plain sum of both losses. λ = 1 is the structural-only student of
# `03_structural`. Bars are 95% intervals over validation examples.

# %%
points = widgets.weighting_points(run)
ax = figures.plot_weighting(points)
run.save_figure(ax, "lambda", points)

# %% [markdown]
# **How to read it.** A bar is the uncertainty of one run. All runs are scored on the same examples, so that their
# differences are more certain than the bars: "The answer so far" tests them. In the thesis masking at λ = 0.5 is
# slightly better for the cosine loss and worse for max-margin. With the mask, long documents lose the structural loss
# and keep only a correlation of projections, which is little to learn from if there are few documents and most are
# long. If the structural teacher averages over chunks of the whole document (`long: chunks`), it truncates nothing, and
# the mask has no purpose.
#
# ## Between the points
#
# Which λ and mask suit a single task? The explorer shows the same figure for each task, and the scores at the selected
# λ and mask. Without a recorded run there is no score, and the command that makes the run is printed.

# %%
widgets.weighting_explorer(run, points, profile=profile)

# %% [markdown]
# ## What each teacher prevents
#
# Drafts of the thesis suppose that without the contextual loss a student forgets the endings of documents, and that
# without the structural loss all embeddings become alike. `ending` compares how far a document moves if its last third
# is exchanged for another document's with how far it moves if its first third is: at 0 the ending does not count, at 1
# as much as the beginning. `spread` is the mean cosine distance of two documents.

# %%
views.hypotheses_of_students(run).round(3)

# %% [markdown]
# ## The answer so far
#
# Is this student better than the references, and which recorded run is best? The next cell compares validation scores
# in the mean over tasks. Intervals are 95%. "Better" and "worse" are the results of paired permutation tests, corrected
# for their number. With many runs, part of the lead of the best is chance.

# %% tags=["conclusion"]
print(thesis.conclusion(run))

# %%
run.finish(run.metrics(scores), scores=scores, student=run.link_student(), tables=run.validation.tables)

# %% [markdown]
# ## Watching a sweep
#
# `docemb sweep 05_weighting --grid weighting-cosine`, run in a terminal, makes the missing runs. The monitor shows
# active runs and their progress, finished runs, and failed runs with the reason. It reads all of this from disk, so the
# tab can be closed at any time.

# %%
widgets.run_monitor("05_weighting")

# %%
figures.table(thesis.tested(thesis.claims_of_figures(run), profile), section=thesis.CLAIMS)

# %% [markdown]
# **Other students.** Use a weight that falls with the length instead of a mask, in a terminal, in `notebooks/`:
#
# ```
# papermill 05_weighting.ipynb ../outputs/ramp.ipynb -p lam_by_length linear:256:2048 -p max_structural_len None
# ```
#
# `-p lam None` takes the plain sum of both losses. `06_evaluation` trains the final student and compares it with all
# baselines.
