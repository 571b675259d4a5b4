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
# # 02 · Paragraph Vector, the contextual teacher
#
# Paragraph Vector learns one vector per document that helps to predict the document's words. **DM** predicts a word
# from its neighbours and the document's vector; **DBOW** predicts the words from the document's vector alone. It
# knows nothing of syntax, but it sees the *whole* document, however long: what the structural teacher lacks.
#
# This notebook trains one of them and asks how good it is by itself. Takes about a minute on the embedded corpus. With
# `compound` it puts trained ones **side by side** instead: their vectors are concatenated, nothing is trained again.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the model's initial vectors and samples
dm = True  # True: DM; False: DBOW
vector_size = 100  # dimensions; the thesis tries 100, 768 and 1024
min_count = 2  # drop words that occur less often, or "10%" for the thesis' high threshold
preprocess = "lowercase"  # none, lowercase, or stem (Porter)
compound = None  # labels of two models joined by +, e.g. "DM;100;lowercase;2+DBOW;100;None;2"; None: one model

# %%
# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib.evaluation.retrieval import neighbours
from docemb_lib.thesis.comparison import scores_of_runs
from docemb_lib.views.runs import opening_words
from docemb_lib.experiments.models import paragraph_vector_model, sbert_models, tfidf_model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.scores import score_models
from docemb_lib.views.runs import own_metrics, validation_embeddings
from docemb_lib.figures import rows_axes, use_style
from docemb_lib.figures import plot_paragraph_vectors, plot_windows
from docemb_lib.figures import plot_runs

use_style()
run = Run.begin(
    "02_paragraph_vector",
    profile=profile, seed=seed, dm=dm, vector_size=vector_size, min_count=min_count, preprocess=preprocess,
    compound=compound,
)  # fmt: skip
stages = run.stages
run.settings()

# %% [markdown]
# ## What it learns from
#
# Guessing words. For the words $w_1, w_2, \dots$ of a document with the vector $v$, DM makes
# $\sum_i \log p(w_i \mid v, w_{i-5}, \dots, w_{i+5})$ large and DBOW $\sum_i \log p(w_i \mid v)$, where $p$ is not
# measured against all words but against five random ones. Here are both on how the first training document begins;
# what is guessed has a dashed frame.

# %%
words = opening_words(run)
ax = plot_paragraph_vectors(words)

# %% [markdown]
# **How to read it.** In DM the document's vector is one more neighbour, and must add what the other words do not tell.
# In DBOW it has to do alone, so it becomes a summary of which words occur, whatever their order.

# %%
ax = plot_windows(words, dm=dm)

# %% [markdown]
# **How to read it.** Each row is one guess of the kind that `dm` names; filled is what it reads. The first column is
# filled everywhere: whatever the document's words have in common ends up in its vector, however long it is. gensim
# draws the size of each window anew, from one to five words on each side, and leaves out words rarer than `min_count`;
# the picture has the largest windows and all words.
#
# ## Train
#
# On `train` (or as much of it as the profile says) with the settings of Table 4.5: window 5, 5 negative samples, no
# subsampling, 10 epochs unless the profile says otherwise. gensim ignores every word
# of a document past the 10,000th; longer ones are cut into pieces here. The members of a compound are the
# models that their own runs would train, taken from there where they are.

# %%
model = paragraph_vector_model(stages)
print(model.label, "·", model.load().dim, "dimensions")

# %% [markdown]
# ## What it finds similar
#
# The nearest neighbours of three validation documents by the cosine of their inferred vectors. They should be about
# the same thing; where they are not, the model has seen too little text, or is too large for it.

# %%
neighbours(validation_embeddings(stages, model), stages.split("validation")["id"][:], queries=range(3), k=3)

# %% [markdown]
# ## How good it is
#
# The profile's sweep tasks, on their validation splits; a head is trained per seed on the frozen embeddings.
# Beside it: the structural teacher on truncated text, and TF-IDF, which is words alone.

# %%
scores = score_models(stages, [model, sbert_models(stages)[0], tfidf_model(stages)], final=False)
scores.groupby(["model", "task", "metric"])["value"].agg(["mean", "std"]).round(3)

# %% [markdown]
# ## All runs so far
#
# Every Paragraph Vector recorded for this profile, drawn as Figure 4.5 of the thesis. A score is divided by that of the
# best model shown on its task; a row's box and points are its tasks, the triangle is their mean, its bar the
# deviation over head seeds. `docemb sweep 02_paragraph_vector --grid paragraph-vector` fills the figure with the
# thesis' 45 models.

# %%
runs = scores_of_runs(run, scores)
ax = plot_runs(runs, by="kind", ax=rows_axes(runs["model"].nunique())[0])
run.save_figure(ax, "runs", runs)

# %% [markdown]
# **How to read it.** The best model is at the bottom; a row whose points lie far apart is good at one task only. A
# hollow diamond is the thesis' own mean of the same setting, or of the same place in its grid at this profile's
# widths: over six other tasks, on half a million documents, so compare the order of the runs and not the sizes. In the
# thesis larger vectors win, DBOW and DM are close, and concatenating the best of both is better than either. On a few
# thousand documents do not expect the size to matter as much.

# %%
run.finish(own_metrics(run, scores), scores=scores)

# %% [markdown]
# **What to try next.** In a terminal, in `notebooks/`, the other kind:
#
# ```
# papermill 02_paragraph_vector.ipynb ../outputs/dbow.ipynb -p dm False -p preprocess none
# ```
#
# `-p compound "DM;100;lowercase;2+DBOW;100;None;2"` puts both side by side; `03_structural` turns to the other teacher.
