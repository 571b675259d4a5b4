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
# The structural teacher (SBERT) is matched directly: the student's embedding $y$ of a document should be the
# teacher's $t$. How strictly, and in what sense, is the choice of the loss:
#
# * **MSE** $\frac1d\sum_k (y_k-t_k)^2$ and **cosine** $1-\cos(y,t)$ look at the document alone;
# * **max-margin** also pushes $y_i$ away from the other documents' $t_j$:
#   $D(y_i,t_i)-\gamma\,\frac1{n-1}\sum_{j\ne i}D(y_i,t_j)$ with $D$ one of the two;
# * **contrastive** is a softmax over the batch: $-\log\frac{\exp\cos(y_i,t_i)}{\sum_j\exp\cos(y_i,t_j)}$.
#
# This notebook distils one student from the structural teacher alone and compares it with those recorded before. Takes
# about a minute on two cores with the embedded default, if `01_corpus` has run; the thesis profile takes a GPU and
# hours.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents
structural_loss = "cosine"  # mse, cosine, max-margin or contrastive
distance = "mse"  # inside max-margin: mse or cosine
gamma = 1.0  # inside max-margin: weight of the negatives, from 0
temperature = None  # inside contrastive: cosines are divided by it; None: they are not
negatives = 0  # max-margin and contrastive: further documents to push away from, drawn anew for each batch
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib.thesis.comparison import scores_of_runs
from docemb_lib.views.runs import widths_of
from docemb_lib.experiments.models import sbert_models, student_model, untrained_model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.scores import score_models
from docemb_lib.widgets.distances import distances_to_teacher
from docemb_lib.views.runs import in_figure_4_4, student_metrics, students_of_runs
from docemb_lib.figures import rows_axes, use_style
from docemb_lib.figures import plot_descents
from docemb_lib.figures import plot_training
from docemb_lib.figures import plot_distances
from docemb_lib.figures import plot_max_margin
from docemb_lib.figures import plot_history, plot_runs
from docemb_lib.widgets import distance_explorer

use_style()
run = Run.begin(
    "03_structural",
    profile=profile, seed=seed,
    structural_loss=structural_loss, distance=distance, gamma=gamma,
    temperature=temperature, negatives=negatives, documents=documents,
)  # fmt: skip
stages = run.stages
run.settings()

# %% [markdown]
# ## Who learns from whom
#
# The training of this run, drawn from its settings. Only the student is trained; the teacher has embedded all documents
# beforehand, and what it said is stored beside the corpus.

# %%
ax = plot_training(run.profile, widths_of(run))

# %% [markdown]
# **How to read it.** The loss compares the embeddings $y$ and $t$ number by number, without a projection,
# so the student must be as wide as this teacher. Each box says how much of a document a model reads.
#
# ## What the negatives do
#
# A toy in the plane: three teacher embeddings (squares), and the direction in which each loss would move a student's
# embedding that belongs to the blue one, from wherever it is. With the squared distance and $\gamma=1$ the arrow has
# the same length everywhere: the loss is affine in $y$ and has no lowest point, so embeddings may grow without end.

# %%
ax = plot_max_margin(gamma=run.profile.parameters.gamma)

# %% [markdown]
# ## Two clouds
#
# The same losses at work: twenty documents of two topics (circles, triangles). The teacher tells the topics apart; the
# student begins, as untrained ones do, with all documents alike. There is no network here: gradient descent moves the
# embeddings themselves, and all other documents are negatives. Mind that each picture has its own scale.

# %%
axes = plot_descents()

# %% [markdown]
# **What to see.** MSE ends at the teacher. Cosine ends in its direction, at a length of its own. With $\gamma=0.5$ the
# goal lies beyond the teacher, twice as far from the other documents' mean as the teacher is. With $\gamma=1$ there is
# no goal: the gradient $\frac2d\,(\bar t_{-i} - t_i)$, with $\bar t_{-i}$ the others' mean, does not depend on $y_i$,
# each step is as the one before, the topics part and norms grow without end. With $\gamma=1.5$ even the steps grow: all
# embeddings run off to one side, which is not the teacher's. The thesis' student collapsed there.

# %% [markdown]
# ## Distil
#
# Over the first `documents` training documents in a shuffled order; the profile says how often and how many at a time.

# %%
student = stages.trained_student()
train_history, validation_history = stages.history(student)
ax = plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)

# %% [markdown]
# **How to read it.** The thick line is the loss on validation documents. `norm` and `spread` below watch for collapse:
# a spread (mean cosine distance of two documents) near 0 means that all documents have become one point.

# %%
validation_history.drop(columns="epoch", errors="ignore").round(4)

# %% [markdown]
# ## Positives and negatives
#
# Distances of the students' embeddings to the teacher's embedding of the *same* document (positives) and of *other*
# documents (negatives), on the validation documents. Each document has 20 others, drawn once and the same for every
# student. A good student keeps the two apart. Three numbers say how well:
#
# * **AUC**: the chance that a positive is nearer than a negative; 0.5 is chance, 1 is apart.
# * **overlap**: 1 minus the largest gap between the two distribution functions, which is what densities that cross once
#   have in common; 1 is alike, 0 is apart.
# * **max-margin loss**: positive minus γ times the mean negative, the loss of the equation above, for the γ you choose.
#
# Move the controls: which student, which distance, how many negatives, how long documents are. `pair` lists the pairs
# that the student (of all losses: this run's) takes for each other the most, with how much nearer the wrong teacher
# embedding is; the two documents stand below. Sometimes the student is right: two pages that say nearly the same. (In a
# notebook that was executed without a person, the first setting stands as a plain figure; run the cell to get the
# controls.)

# %%
distances = distances_to_teacher(run, students_of_runs(run, student))
distance_explorer(distances)

# %% [markdown]
# Both distances as a plain figure, as Figure 4.4 of the thesis: its eight students as far as they are recorded, and
# this one. `docemb sweep 03_structural --grid structural` makes those that are missing.

# %%
shown = in_figure_4_4(run, distances.tidy())
left, right = rows_axes(shown["model"].nunique(), columns=2, each=0.6)
plot_distances(shown[shown["distance"] == "cosine"], distance="cosine", ax=left)
plot_distances(shown[shown["distance"] == "mse"], distance="mse", ax=right).get_legend().remove()
run.save_figure(left.figure, "distances", shown)

# %% [markdown]
# **How to read it.** Compare each student with the undistilled one (first row): a structural loss should move the
# positives to the left and leave the negatives behind. A small distance alone is no success: what counts is the gap,
# which the AUC measures. Squared differences stand on a logarithmic axis: max-margin lets norms grow. After few
# documents it may well shrink: the student first learns the one direction that all teacher embeddings share, and a
# falling loss is not yet a better student.
#
# ## All runs so far
#
# The sweep tasks on their validation splits, drawn as Figure 4.3 of the thesis. A score is divided by that of the best
# model shown on its task; a row's box and points are its tasks, the triangle is their mean, its bar the deviation
# over head seeds.

# %%
models = [student_model(run.label, student), untrained_model(stages), sbert_models(stages)[0]]
scores = score_models(stages, models, final=False)
runs = scores_of_runs(run, scores)
ax = plot_runs(runs, by="loss", ax=rows_axes(runs["model"].nunique())[0])
run.save_figure(ax, "runs", runs)

# %% [markdown]
# **How to read it.** The best model is at the bottom, grey rows are baselines. A hollow diamond is the thesis' own mean
# of the same loss: other tasks, a student eight times as large, a hundred times the documents, so compare orders only.
# There max-margin MSE with γ = 1 is the best and collapses at γ = 1.5; plain cosine is close behind.

# %%
metrics = student_metrics(run, scores, validation_history)
run.finish(metrics, scores=scores, student=run.link_student(student))

# %% [markdown]
# **What to try next.** In a terminal, in `notebooks/`, and then watch `norm` and `spread`:
#
# ```
# papermill 03_structural.ipynb ../outputs/gamma.ipynb -p structural_loss max-margin -p gamma 1.5
# ```
#
# `04_projections` brings in the contextual teacher.
