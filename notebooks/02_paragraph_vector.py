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
from docemb_lib.evaluation.retrieval import neighbours
from docemb_lib.experiments.comparison import scores_of_runs
from docemb_lib.experiments.models import paragraph_vector_model, sbert_models, tfidf_model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.scoring import score_models
from docemb_lib.experiments.views import own_metrics, validation_embeddings
from docemb_lib.figures import rows_axes, use_style
from docemb_lib.figures.sweeps import plot_runs

use_style()
run = Run.begin(
    "02_paragraph_vector",
    profile=profile, seed=seed, dm=dm, vector_size=vector_size, min_count=min_count, preprocess=preprocess,
    compound=compound,
)  # fmt: skip
stages = run.stages
run.settings()

# %% [markdown]
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
# **Next.** `-p dm False` trains the other kind; `-p compound "DM;100;lowercase;2+DBOW;100;None;2"` puts both side by
# side; `03_structural` turns to the other teacher.
