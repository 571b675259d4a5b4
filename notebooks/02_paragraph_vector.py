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
# Which Paragraph Vector makes a good contextual teacher?
#
# Paragraph Vector learns one vector per document that helps to predict the words of the document. **DM** predicts a
# word from its neighbouring words and the document vector; **DBOW** predicts words from the document vector alone. The
# model ignores syntax, but it reads the *whole* document, while the structural teacher of the thesis truncates long
# documents.
#
# This notebook trains one such model and evaluates it by itself. It takes about a minute on the embedded corpus. With
# `compound` it concatenates the vectors of two trained models **side by side** and trains nothing.

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
from docemb_lib import begin, figures, thesis, views

figures.use_style()
run = begin("02_paragraph_vector", globals())
thesis.settings(run)

# %% [markdown]
# ## What it learns from
#
# The training objective is word prediction. For the words $w_1, w_2, \dots$ of a document with the vector $v$, DM
# maximises $\sum_i \log p(w_i \mid v, w_{i-5}, \dots, w_{i+5})$ and DBOW maximises $\sum_i \log p(w_i \mid v)$.
# Negative sampling approximates $p$: a word is compared with five random words instead of all words. For the words
# "return the shortest path lengths" and the word in the middle:
#
# ```
# DM     document vector, return, the, path, lengths  ->  mean  ->  shortest
# DBOW   document vector                                        ->  return, the, shortest, path, lengths
# ```
#
# The next figure draws both with the widths of this profile's teachers (Figures 3.3 and 3.4 of the thesis).

# %%
axes = figures.plot_paragraph_vectors(run.profile)

# %% [markdown]
# In DM the document vector is one more input next to the neighbouring words, and it adds information that they do not
# contain. In DBOW the document vector is the only input, so it summarises which words occur, in any order. The document
# vector is an input of all predictions of its document, so it collects what the words of the document have in common,
# at any length. gensim draws each window size from one to five words on each side and drops words rarer than
# `min_count`.
#
# ## Train
#
# The model is trained on `train`, or on the part of it that the profile selects, with the settings of Table 4.5: window
# 5, 5 negative samples, no subsampling, and 10 epochs unless the profile changes them. gensim ignores all words of a
# document after the 10,000th; docemb splits longer documents. `min_count="10%"` is the thesis' high threshold. Its text
# says "10 percent of the training corpus", its author's logs 1 percent: 5,000 for 500,000 documents. docemb follows the
# logs, and counts occurrences of a word, as gensim does, where the text speaks of the documents that have the word. A
# compound loads its members if their own runs have trained them, and trains them otherwise. The table is Table 4.5 in
# the widths of this profile: the values that a grid of 45 models combines, and those that are fixed.

# %%
figures.table(thesis.table("4.5", run.profile))

# %%
print(run.model.label, "·", sum(one.vector_size for one in run.stages.key.paragraph_vectors), "dimensions")

# %% [markdown]
# ## What it finds similar
#
# The table shows the nearest neighbours of three validation documents by the cosine of their inferred vectors.
# Neighbours should have the same topic. If they do not, the corpus may be too small for the model.

# %%
views.neighbours_of_validation(run)

# %% [markdown]
# ## How good it is
#
# Models are scored on the validation splits of the profile's sweep tasks. For each seed a head is trained on frozen
# embeddings; the ranking of retrieval needs no head. The references are the structural teacher on truncated text
# (`truncated`), and TF-IDF, which uses words alone. The deviation is that over head seeds.

# %%
scores = run.scores()
figures.table(scores.groupby(["model", "task", "metric"])["value"].agg(["mean", "std"]))

# %% [markdown]
# ## All runs so far
#
# How does this model compare with other settings? The figure shows all Paragraph Vectors recorded for this profile, as
# Figure 4.5 of the thesis does. A score is divided by the best score of all models shown on the same task. The points
# of a row are tasks, the triangle is their mean, and its bar is the 95% interval over validation examples. From five
# tasks on, a row has a box, as in the thesis, whose own box is dashed. `docemb sweep 02_paragraph_vector --grid
# paragraph-vector` makes the 45 models of the thesis.

# %%
runs = thesis.scores_of_runs(run, scores)
ax = figures.plot_runs(figures.named(runs), by="kind", ax=figures.rows_axes(runs["model"].nunique())[0])
run.save_figure(ax, "runs", runs)

# %% [markdown]
# **How to read it.** The best model is on top. If the points of a row are far apart, the model is good at some tasks
# only. A hollow diamond is the mean in the thesis of the same settings, or of the same place in the grid at the widths
# of this profile. Unless the profile is `thesis`, its tasks and numbers of documents are others, so compare the order
# of runs, not their values. In the thesis larger vectors are better, DBOW and DM are close, and the concatenation of
# the best two is better than either. Expect a smaller effect of the vector size with a few thousand documents.
# `04_projections` and `05_weighting` take both side by side (PV), as the thesis does, whichever is best here.

# %% [markdown]
# ## The answer so far
#
# Is this model better than the references, and which recorded run is best? The next cell compares validation scores in
# the mean over tasks. Intervals are 95%. "Better" and "worse" are the results of paired permutation tests, corrected
# for their number. With many runs, part of the lead of the best is chance.

# %% tags=["conclusion"]
print(thesis.conclusion(run))

# %%
run.finish(run.metrics(scores), scores=scores, tables=run.validation.tables)

# %%
figures.table(thesis.tested(thesis.claims_of_figures(run), profile), section=thesis.CLAIMS)

# %% [markdown]
# **Other models.** Train the other kind (DBOW as below, or DM), in a terminal, in `notebooks/`:
#
# ```
# papermill 02_paragraph_vector.ipynb ../outputs/dbow.ipynb -p dm False -p preprocess none
# ```
#
# `-p compound "DM;100;lowercase;2+DBOW;100;None;2"` concatenates both. `03_structural` distils from the structural
# teacher.
