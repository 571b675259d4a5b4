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
# The embedding spaces of Paragraph Vector and SBERT are unrelated, so one student embedding cannot *equal* both. The
# contextual loss therefore compares projections: student and teacher pass through small trainable networks, and only
# the outputs must agree:
#
# $$L_C(y, c) = \mathrm{SoftCCA}\big(f_S(y),\, f_C(c)\big)
#   = \tfrac1n\lVert f_S(y)-f_C(c)\rVert^2 + \delta\,\big(\mathrm{SDL}(f_S(y)) + \mathrm{SDL}(f_C(c))\big)$$
#
# Both projections have $n$ features. The first term makes them similar. The second term, soft decorrelation loss
# (SDL), prevents features from being copies of each other. The projections are discarded after training. Which shape
# should they have? `768(ReLU)x1024` is a linear layer to 768 features, a ReLU, and a linear layer to 1024 features; `-`
# is the identity. `768(ReLU,drop0.1,norm)x1024` also has dropout and layer normalisation after the ReLU. The notebook
# takes about a minute on two cores with the embedded default if the notebooks before have run.

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
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
import matplotlib.pyplot as plt
import pandas as pd

# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib import begin, figures, thesis, views, widgets

figures.use_style()
run = begin("04_projections", globals())
thesis.settings(run)

# %% [markdown]
# SDL is the mean absolute correlation between different features of a view, over the batches so far, as in the author's
# code. Without it all features could find the strongest common signal and be copies of each other. Equations 4.10 to
# 4.14 print the sum of absolute *covariances*, which views also lower by shrinking: `contextual_loss =
# "soft-cca:covariance"`, or `training.sdl` in a profile. Sum and mean over the cells differ by a factor of $\delta$ alone.
#
# ## The two networks of this run
#
# The figure shows the training with the networks $f_S$ and $f_C$ of this run, as Figure 4.6 of the thesis does: a line
# of their boxes is a layer, with its output features and activation.

# %%
ax = figures.plot_training(run.profile, views.widths_of(run))

# %% [markdown]
# **How to read it.** The two views $z_S = f_S(y)$ and $z_C = f_C(c)$ have equal widths because the loss compares them
# component by component. A layer with fewer features than both neighbours is a bottleneck.
#
# ## Distil
#
# The loss of this notebook is the plain sum of both losses. `05_weighting` adds λ and the mask, and computes the loss
# of its run by hand, SoftCCA included.

# %%
train_history, validation_history = run.history()  # trains the student, unless it is there already
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
figures.plot_history(train_history, validation_history, ax=axes[0])
figures.plot_correlations(validation_history, ax=axes[1])
run.save_figure(figure, "training", validation_history)

# %% [markdown]
# **How to read it.** Left: the contextual loss usually falls fast at first, because the *projections* learn quickly. It
# also falls where the views shrink. `l2` and `sdl` are the two terms of SoftCCA, `sdl` without its weight δ; the thesis
# chose δ so that both are of one size, which `delta = "balance"` does. Right: the mean canonical correlation, over ten
# pairs of variates, of the two views of the validation documents, and of the embeddings $y$ and $c$ themselves, which
# large projections are said to harm. It depends neither on the scale of the views nor on SoftCCA's δ and β, so it
# compares runs that differ in them; the thesis found β critical (section 4.5.2). The variates are fitted on one half of
# the documents and correlated on the other, so views without anything in common are at 0. Views that are too wide for
# the number of documents are first mapped to their first principal components. `docemb sweep 04 --grid soft-cca-beta`
# varies δ and β. Scores and the next figure show what the student itself learns.
#
# ## What the student has learnt from its teachers
#
# How much of each teacher does the student's embedding contain? The thesis leaves this question open. A linear map
# (ridge regression) from the student's embeddings to a teacher's embeddings is fitted on at most 300 training documents
# and measured on the validation documents, for the student before and after distillation. Documents that fit into the
# window of the structural teacher and longer documents are also measured separately.

# %%
probes = views.probes_of_teachers(run)
teachers = list(probes["teacher"].unique())
names = figures.short_names([run.untrained, run.model], run.label)
size = (4.5 * len(teachers), 2.8)
figure, axes = plt.subplots(1, len(teachers), figsize=size, layout="constrained", sharey=True, squeeze=False)
for teacher, ax in zip(teachers, axes[0], strict=True):
    figures.plot_probe(figures.named(probes, names), teacher=teacher, ax=ax)
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
run.save_figure(figure, "probe", probes)

# %% [markdown]
# **How to read it.** R² = 1 means that the map predicts the teacher's embeddings exactly, 0 that it predicts only their
# mean, and below 0 that it does not generalise to new documents. The difference between the blue and the grey bar is
# due to distillation. If the bars of a teacher are equal, the student has not learnt from it, even if its loss fell.
# Bars of a bucket with few documents are uncertain.
#
# ## Other contextual losses
#
# Why SoftCCA? The figure shows the recorded students that differ from this run in the contextual loss alone, `docemb
# sweep 04 --grid contextual-losses` trains eight from the contextual teacher without a structural one. Beside each row
# stands the *spread*, the mean cosine distance of two documents.

# %%
scores = run.scores()
losses = views.contextual_losses(run, scores)
if len(losses):
    (ax,) = figures.rows_axes(losses["loss"].nunique())
    figures.plot_contextual_losses(losses, ax=ax)
    run.save_figure(ax, "contextual-losses", losses)

# %% [markdown]
# **How to read it.** A student whose spread is below a twentieth of that before training has *collapsed*: all documents
# have nearly the same embedding, and its scores mean nothing. Without a structural loss SoftCCA can do so. Its distance
# shrinks with its views, its decorrelation of correlations does not, and towards `-` the mean of the teacher's
# embeddings is a good first answer. `contextual_teachers.standardise: true` in a profile removes this mean.
#
# ## The spaces themselves
#
# Do both views arrange documents alike? The figure shows the same documents in two spaces, first in the two *views*,
# the projections that the contextual loss compares. The controls select others: the student's space before and after
# distillation, and the teachers' spaces. Each space is drawn along its own first two principal axes, so positions in
# different panels cannot be compared, but neighbourhoods can. Move the pointer over a point to see its document. Colour
# by `length`: if length is a direction of a space, the space separates long from short documents more than topics.

# %%
widgets.projection_explorer(widgets.spaces_of_run(run))

# %% [markdown]
# **How to read it.** If the share of variance in the plane is small, most of the space is not visible. The contextual
# loss rewards two views that look alike. If the points of a view lie on a line, its other dimensions have collapsed.
#
# ## All runs so far
#
# How do other projections compare? The figure shows scores on the validation splits of the sweep tasks, as Figures 4.7
# to 4.9 of the thesis do. A score is divided by the best score of all models shown on the same task. The points of a
# row are tasks, the triangle is their mean, and its bar is the 95% interval over validation examples. From five tasks
# on, a row has a box, as in the thesis, whose own box is dashed. Recorded structural-only students of `03_structural`
# are shown, too. The grids are `projections-contextual`, `projections-cosine` and `projections-max-margin`, for example
# `docemb sweep 04_projections --grid projections-cosine`. The table has the projections of all three (Tables 4.6 to
# 4.8) in the widths of this profile.

# %%
numbers = {"none": "4.6", "cosine": "4.7", "max-margin MSE": "4.8"}
tables = {loss: thesis.table(number, run.profile) for loss, number in numbers.items()}
pd.concat(tables, names=["structural loss"])

# %% [markdown]
# The next figure compares the runs.

# %%
names = figures.short_names(run.models(), run.label)
for name, runs in thesis.runs_by_figure(run, scores).items():
    (ax,) = figures.rows_axes(runs["model"].nunique())
    by = "dimensions of the contextual teacher" + name.removeprefix("runs")
    figures.plot_runs(figures.named(runs, names), by=by, ax=ax)
    run.save_figure(ax, name.replace(", figure ", "-"), runs)

# %% [markdown]
# **How to read it.** The best model is on top; grey rows are baselines. A hollow diamond is the mean in the thesis of
# the same place in the grid, relative to the models of *that* figure. If there are runs of several figures, each has a
# picture of its own, with diamonds, below that of all runs. Compare the order of runs within one structural loss. In
# the thesis a small contextual projection or none is best without a structural loss, while strong ones perform very
# well beside max-margin (section 4.5.2); in its own Figure 4.9 the weaker one wins three of five pairs (claim p6). The
# thesis also concludes that larger student projections are better and bottlenecks harmful; `docemb results --claims`
# checks this on its own figures.

# %% [markdown]
# ## The answer so far
#
# Is this student better than the references, and which recorded run is best? The next cell compares validation scores
# in the mean over tasks. Intervals are 95%. "Better" and "worse" are the results of paired permutation tests, corrected
# for their number. With many runs, part of the lead of the best is chance.

# %% tags=["conclusion"]
print(thesis.conclusion(run))
print(views.learnt(probes))

# %%
run.finish(run.metrics(scores), scores=scores, student=run.link_student(), tables=run.validation.tables)

# %%
figures.table(thesis.tested(thesis.claims_of_figures(run), profile), section=thesis.CLAIMS)

# %% [markdown]
# **Other students.** A sweep of one of the grids above compares projections. Or distil from the contextual teacher
# alone, in a terminal, in `notebooks/`:
#
# ```
# papermill 04_projections.ipynb ../outputs/contextual.ipynb -p structural_loss None
# ```
#
# Or end both projections in 16 features, so narrow that 40 validation documents show their canonical correlation, and
# vary SoftCCA's memory:
#
# ```
# papermill 04_projections.ipynb ../outputs/narrow.ipynb -p beta 0.5 \
#     -p student_projection "384(ReLU)x16" -p contextual_projection 16
# ```
#
# `05_weighting` varies the weights of the two teachers.
