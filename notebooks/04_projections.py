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
# Paragraph Vector's space has nothing to do with SBERT's, so the student cannot simply *equal* both. Instead both
# sides pass through small trainable networks, and only what comes out must agree:
#
# $$L_C(y, c) = \mathrm{SoftCCA}\big(f_S(y),\, f_C(c)\big)
#   = \tfrac1n\lVert f_S(y)-f_C(c)\rVert^2 + \delta\,\big(\mathrm{SDL}(f_S(y)) + \mathrm{SDL}(f_C(c))\big)$$
#
# The first term makes the projections alike, the second (soft decorrelation) keeps their features from all being the
# same. After training the projections are thrown away. What shape should they have? `768(ReLU)x1024` is a linear
# layer to 768 features, a ReLU, and a linear layer to 1024; `-` is nothing at all. Takes about a minute on two cores
# with the embedded default, if the notebooks before have run.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents and of the projections' initial weights
structural_loss = "cosine"  # mse, cosine, max-margin, contrastive; None: contextual only
distance = "mse"  # inside max-margin: mse or cosine
gamma = 1.0  # inside max-margin: weight of the negatives, from 0
temperature = None  # inside contrastive: cosines are divided by it; None: they are not
negatives = 0  # max-margin and contrastive: further documents to push away from, drawn anew for each batch
contextual_teacher = "PV"  # DM, DBOW, PV (both side by side), LSA; None: structural only
contextual_loss = "soft-cca"  # soft-cca, mse, or cca
student_projection = "profile"  # e.g. 768(ReLU)x1024; must end as wide as the contextual one
contextual_projection = "profile"  # the same for the teacher's side; - is the identity
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
import matplotlib.pyplot as plt

# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib.thesis.comparison import scores_of_runs
from docemb_lib.views.runs import widths_of
from docemb_lib.experiments.models import contextual_models, sbert_models, student_model, untrained_model
from docemb_lib.widgets.projections import spaces_of_run
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.scores import score_models
from docemb_lib.views.runs import probes_of_teachers, projection_layers, student_metrics
from docemb_lib.figures import rows_axes, use_style
from docemb_lib.figures import plot_soft_cca
from docemb_lib.figures import plot_contextual_loss
from docemb_lib.figures import MEASURES, plot_probe
from docemb_lib.figures import plot_history, plot_runs
from docemb_lib.widgets import projection_explorer

use_style()
run = Run.begin(
    "04_projections",
    profile=profile, seed=seed, structural_loss=structural_loss, distance=distance, gamma=gamma,
    temperature=temperature, negatives=negatives,
    contextual_teacher=contextual_teacher, contextual_loss=contextual_loss,
    student_projection=student_projection, contextual_projection=contextual_projection, documents=documents,
)  # fmt: skip
stages = run.stages
run.settings()

# %% [markdown]
# ## What SoftCCA finds
#
# SDL is the mean absolute correlation between different features of a view, over the batches so far. A toy with a known
# answer shows what it is for: two views of 300 documents, four and five features wide, have two signals in common, and
# noise. How strongly, ordinary CCA tells (dotted lines). Two linear projections to two features each are trained with
# SoftCCA, without decorrelation and with it.

# %%
axes = plot_soft_cca()

# %% [markdown]
# **What to see.** Without decorrelation both features find the stronger signal, and are copies of each other (orange at
# 1). With it one finds the stronger and the other the weaker signal; orange comes back to 0 again and again, and stays
# near it when the steps are small. In both, the projected views also shrink to less than a third of their size, which
# brings them nearer without any correlation: a falling contextual loss alone proves nothing.
#
# ## The two networks of this run
#
# The contextual loss as Figure 4.6 of the thesis, with the networks of this run. A solid box is a layer.

# %%
ax = plot_contextual_loss(run.profile, widths_of(run))

# %% [markdown]
# **How to read it.** The two views $z_S = f_S(y)$ and $z_C = f_C(c)$ end equally wide, as the loss compares them number
# by number; a layer narrower than both of its neighbours is a bottleneck. Every layer with its shape and weights:

# %%
projection_layers(run)

# %% [markdown]
# ## Distil
#
# Both losses, plainly added: no λ and no mask here, which are the subject of the next notebook.

# %%
student = stages.trained_student()
train_history, validation_history = stages.history(student)
ax = plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)

# %% [markdown]
# **How to read it.** The contextual loss usually falls fast at first, because the *projections* learn quickly; what
# the student itself gains shows in the scores, and in what can be read off it.
#
# ## What the student knows of its teachers
#
# The first question that the thesis leaves open. A linear map (ridge regression) from the student's embedding to each
# teacher's is fitted on at most 300 training documents and judged on the validation documents, for the student before
# and after distillation: apart for documents that fit into one window of the structural teacher and for longer ones.

# %%
probes = probes_of_teachers(run, student)
teachers = list(probes["teacher"].unique())
figure, axes = plt.subplots(
    len(teachers), 2, figsize=(9, 2.6 * len(teachers)), layout="constrained", sharex=True, sharey="col", squeeze=False
)
for teacher, row in zip(teachers, axes, strict=True):
    for measure, ax in zip(MEASURES, row, strict=True):
        plot_probe(probes, teacher=teacher, measure=measure, ax=ax)
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
run.save_figure(figure, "probe", probes)

# %% [markdown]
# **How to read it.** R² = 1 means that all of the teacher's embedding can be read off the student's, 0 that nothing but
# its mean can, below 0 that the map does not hold for new documents: it has few to be fitted on. The right column asks
# only who is near whom: the share of a document's ten nearest neighbours that are the same in what was read and in the
# teacher's space (by chance 10 of all others: 0.17 where there are 60 documents). Distillation taught the student what
# the blue bar is above the grey one; a teacher whose bars do not move was not learnt, whatever its loss did. Few
# documents stand behind the shorter bucket.
#
# ## The spaces themselves
#
# The same documents in the student's space, before and after, in the teachers', and as the contextual loss sees them:
# the two *views* that the projections make of student and teacher. Each space is drawn along its own two principal
# axes, so places in two pictures cannot be compared, but who stands with whom can. Colour by `length`: a space in which
# length is a direction tells long documents from short ones before it tells what they are about. Choose a task's
# documents to colour by its labels.

# %%
projection_explorer(spaces_of_run(run, student), probes)

# %% [markdown]
# **How to read it.** Small shares of variance in the plane mean that most of the space is not in the picture. Two
# views that look alike are what the contextual loss asks for; a view whose points lie on a line has lost its other
# dimensions.
#
# ## All runs so far
#
# The sweep tasks on their validation splits, drawn as Figures 4.7 to 4.9 of the thesis: a score is divided by that of
# the best model shown on its task; a row's box and points are its tasks, the triangle is their mean, its bar the
# deviation over head seeds. Structural-only students of `03_structural` stand beside them. The grids are
# `projections-contextual`, `projections-cosine` and `projections-max-margin`, as in
# `docemb sweep 04_projections --grid projections-cosine`.

# %%
models = [student_model(run.label, student), untrained_model(stages), sbert_models(stages)[0]]
scores = score_models(stages, [*models, *contextual_models(stages)], final=False)
runs = scores_of_runs(run, scores)
ax = plot_runs(runs, by="dimensions of the contextual teacher", ax=rows_axes(runs["model"].nunique())[0])
run.save_figure(ax, "runs", runs)

# %% [markdown]
# **How to read it.** The best model is at the bottom, grey rows are baselines. A hollow diamond is the thesis' own mean
# of the same place in its grid, relative to the models of *its* figure: compare orders within one structural loss. In
# the thesis the contextual projection should be small or absent, the student's large, and bottlenecks are bad.

# %%
metrics = student_metrics(run, scores, validation_history)
run.finish(metrics, scores=scores, student=run.link_student(student))

# %% [markdown]
# **What to try next.** In a terminal, in `notebooks/`, the contextual teacher alone:
#
# ```
# papermill 04_projections.ipynb ../outputs/contextual.ipynb -p structural_loss None
# ```
#
# `05_weighting` asks how much each of the two teachers should count.
