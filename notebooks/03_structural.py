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
# How strictly should the student match the structural teacher?
#
# The structural loss compares the student's embedding $y$ of a document directly with the embedding $t$ of the
# structural teacher (SBERT). Four losses define how strictly the two must agree:
#
# * **MSE** $\frac1d\sum_k (y_k-t_k)^2$ and **cosine** $1-\cos(y,t)$ depend on the document alone;
# * **max-margin** also pushes $y_i$ away from the embeddings $t_j$ of other documents:
#   $D(y_i,t_i)-\gamma\,\frac1{n-1}\sum_{j\ne i}D(y_i,t_j)$ with $D$ one of the first two;
# * **contrastive** is a softmax over the batch: $-\log\frac{\exp\cos(y_i,t_i)}{\sum_j\exp\cos(y_i,t_j)}$.
#
# This notebook distils one student from the structural teacher alone and compares it with recorded students. It takes
# about two minutes on two cores with the embedded default if `01_corpus` has run. A student of the profile
# `thesis` took 3 to 5 hours on the thesis' GPU, with 12 GB.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents
structural_loss = "cosine"  # mse, cosine, max-margin or contrastive
distance = "mse"  # inside max-margin: mse or cosine
gamma = 1.0  # inside max-margin: weight of the negatives, from 0
temperature = None  # inside contrastive: cosines are divided by it; None: they are not
negatives = "batch"  # of max-margin and contrastive: "batch", a number of random training documents, or "all"
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib import begin, figures, thesis, views, widgets

figures.use_style()
run = begin("03_structural", globals())
thesis.settings(run)

# %% [markdown]
# ## Who learns from whom
#
# The figure shows the training of this run. Only the student is trained. The teacher has embedded all documents
# beforehand, and its embeddings are stored.

# %%
ax = figures.plot_training(run.profile, views.widths_of(run))

# %% [markdown]
# **How to read it.** The loss compares $y$ with $t$ directly, so the student must be as wide as this teacher. The box
# of a model states how much of a document it reads, and how wide its embedding is. In the embedded default the student
# starts as two of the six layers of its own teacher; the final student of `06_evaluation` has all six.
#
# What has the teacher learnt? SBERT was trained on pairs of sentences, as the next figure shows (Figure 3.2 of the
# thesis): one network embeds both, and its loss is small if sentences of one meaning are near each other.

# %%
ax = figures.plot_siamese(run.profile)

# %% [markdown]
# ## What the negatives do
#
# What does each loss do to the embeddings? The figure is a toy example in the plane: the losses act on twenty documents
# of two topics (circles and triangles). The teacher separates the topics; the student starts, like a network with
# random weights, with similar embeddings for all documents. There is no network: gradient descent moves the embeddings.
# All other documents are negatives, and $\gamma$ is the weight of pushing away from them. The panels have different
# scales.

# %%
axes = figures.plot_descents()

# %% [markdown]
# **What to see.** MSE ends at the teacher's embeddings. Cosine ends in their direction, with another norm. With
# $\gamma=0.5$ the minimum lies beyond the teacher's embedding: twice as far from the mean of the other documents as
# that embedding is. With $\gamma=1$ the loss is affine in $y_i$ and has no minimum: the gradient $\frac2d\,(\bar t_{-i}
# - t_i)$, where $\bar t_{-i}$ is the mean of the other documents, does not depend on $y_i$, so all steps are equal, the
# topics separate and norms grow without bound. With $\gamma=1.5$ the steps grow, too, and embeddings end far from the
# teacher's. Here, where each embedding moves freely, the topics still separate; the student of the thesis, a network,
# collapsed with this setting.

# %% [markdown]
# ## Distil
#
# The student is trained on the first `documents` training documents in shuffled order. The profile sets the number of
# epochs and the batch size.

# %%
train_history, validation_history = run.history()  # trains the student, unless it is there already
ax = figures.plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)

# %% [markdown]
# **How to read it.** The thick line is the loss on validation documents. The columns `norm` and `spread` of the next
# table reveal a collapse: if spread, the mean cosine distance of two documents, is near 0, all documents have nearly
# the same embedding.

# %%
validation_history.drop(columns="epoch", errors="ignore").round(4)

# %% [markdown]
# ## The loss by hand
#
# The loss of this run for three validation documents, the shortest, the median and the longest, from the embeddings of
# the trained student and of the teacher: first by hand, by the equations above, then by the library. The three
# documents are each other's negatives, so the loss differs from that of the whole split. A loss of your own
# (`module:Class`) is not written out: the library's values are taken.

# %%
import torch
import torch.nn.functional as F

three = views.three_documents(run)
p, y, t = run.profile.parameters, three.y, three.t
cosine = F.normalize(y) @ F.normalize(t).T  # cosines of y_i and t_j
D = {"mse": (y[:, None] - t).square().mean(dim=2), "cosine": 1 - cosine}
own, d, scaled = torch.eye(3).bool(), D[p.distance], cosine / (p.temperature or 1)
losses = {
    "mse": D["mse"][own],
    "cosine": D["cosine"][own],
    "max-margin": d[own] - p.gamma * d[~own].view(3, -1).mean(dim=1),
    "contrastive": scaled.logsumexp(dim=1) - scaled[own],  # -log of the softmax
}
by_hand = losses.get(p.structural_loss, three.structural).mean()
print(f"{p.structural_loss}: by hand {by_hand:.6f}, by the library {three.loss:.6f}")

# %% [markdown]
# ## Positives and negatives
#
# A good student is close to the teacher's embedding of the *same* document (positive) and far from the teacher's
# embeddings of *other* documents (negatives). Both distances are measured on the validation documents. Each document
# has 20 negatives, drawn once and equal for all students. Two numbers summarise the separation:
#
# * **AUC**: the probability that a positive is nearer than a negative; 0.5 is chance, 1 is perfect separation.
# * **max-margin**: positive minus γ times the mean negative, as in the equation above, for the distance and the γ of
#   the controls. Minus this loss is the margin, the pink bar of a row: γ moves its right end.
#
# The controls select students, the distance, the number of negatives and the lengths of documents. `pair` walks through
# the ten pairs of documents that the selected student confuses most (with all losses selected: the student of this
# run). Both documents are printed below, and how much nearer the wrong teacher embedding is; sometimes they are
# near-duplicates.
# An executed notebook shows the first setting as a static figure. Run the cell to get the controls.

# %%
distances = widgets.distances_to_teacher(run, views.students_of_runs(run))
widgets.distance_explorer(distances)

# %% [markdown]
# The next figure shows both distances without controls, as Figure 4.4 of the thesis does for eight students: those of
# the recorded students and of this run. `docemb sweep 03_structural --grid structural` makes the thesis' students.

# %%
shown = distances.tidy()
left, right = figures.rows_axes(shown["model"].nunique(), columns=2, each=0.6)
figures.plot_distances(shown[shown["distance"] == "cosine"], distance="cosine", ax=left)
figures.plot_distances(shown[shown["distance"] == "mse"], distance="mse", ax=right).get_legend().remove()
run.save_figure(left.figure, "distances", shown)

# %% [markdown]
# **How to read it.** Compare each student with the first row, the student before distillation. A structural loss should
# move positives to the left, and negatives less. A small distance alone is no success: the gap between positives and
# negatives counts, and AUC measures it. It measures agreement with the teacher; a higher AUC need not mean better
# scores on tasks, which the next figure shows. The right axis is logarithmic because max-margin lets norms grow.
#
# ## All runs so far
#
# How does this loss compare with other losses? The figure shows scores on the validation splits of the sweep tasks, as
# Figure 4.3 of the thesis does. A score is divided by the best score of all models shown on the same task. The points
# of a row are tasks, the triangle is their mean, and its bar is the 95% interval over validation examples. From five
# tasks on, a row has a box, as in the thesis, whose own box is dashed.

# %%
scores = run.scores()
names = figures.short_names(run.models(), run.label)
runs = thesis.scores_of_runs(run, scores)
(ax,) = figures.rows_axes(runs["model"].nunique())
figures.plot_runs(figures.named(runs, names), by="loss", ax=ax)
run.save_figure(ax, "runs", runs)

# %% [markdown]
# **How to read it.** The best model is on top; grey rows are baselines. A hollow diamond is the mean in the thesis of
# the same loss. Unless the profile is `thesis`, its tasks, student and number of documents are others, so compare the
# order of losses, not their values. In the thesis max-margin MSE is best with γ = 1, followed by max-margin cosine with
# γ = 0.5 and by cosine, and it collapses with γ = 1.5.

# %% [markdown]
# The next figure is Figure 4.2 of the thesis: recorded students of the two losses without negatives, the student before
# distillation and its teacher. Scores are divided by the best of these models, so they differ from those above.

# %%
plain = thesis.scores_of_runs(run, scores, "figure 4.2")
(ax,) = figures.rows_axes(plain["model"].nunique())
figures.plot_runs(figures.named(plain, names), by="loss", ax=ax)
run.save_figure(ax, "plain-losses", plain)

# %% [markdown]
# **How to read it.** In the thesis cosine is better than both baselines, and MSE is worse than both.
#
# ## How many negatives
#
# Max-margin and contrastive have five negatives in the thesis, the other documents of a batch. It proposes many more as
# future work (section 5.4): the teacher's embeddings lie on disk, so `negatives` takes K random ones for each update, or
# all. A mean distance to all of them needs only their mean and mean square. The figure shows the score against K of
# recorded runs that differ from this one in nothing else; `docemb sweep 03_structural --grid negatives` makes them.

# %%
by_negatives = views.scores_by_negatives(run)
if by_negatives["negatives"].nunique() > 1:
    run.save_figure(figures.plot_negatives(by_negatives), "negatives", by_negatives)
else:
    print("No recorded runs differ from this one in their negatives alone.")

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

# %%
figures.table(thesis.tested(thesis.claims_of_figures(run), profile), section=thesis.CLAIMS)

# %% [markdown]
# **Other students.** Provoke a collapse, in a terminal, in `notebooks/`, and look at `norm` and `spread`:
#
# ```
# papermill 03_structural.ipynb ../outputs/gamma.ipynb -p structural_loss max-margin -p gamma 1.5
# ```
#
# `04_projections` adds the contextual teacher.
