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
# # 01 · The corpus
#
# What text do we distil on, and how much of it is too long for the structural teacher? Everything later stands on
# these documents: both teachers are asked about them, the student is trained on them, and a part that nobody has
# trained on is held out for the evaluation.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of everything random in this run; the corpus itself has its own in the profile

# %%
from docemb_lib import records
from docemb_lib.corpus.statistics import corpus_statistics
from docemb_lib.experiments.run import Run
from docemb_lib.figures import use_style
from docemb_lib.figures.corpus import plot_lengths

use_style()
run = Run.begin("01_corpus", profile=profile, seed=seed)
stages = run.stages
run.settings()

# %% [markdown]
# ## Splits
#
# `train` is what the contextual teachers are fitted on; students see its first documents. `validation` measures the
# loss while training. `tasks` is held out: no teacher is fitted on it and no student trained on it. Lengths are
# counted in the student's tokens; the last two columns are the percentages of documents beyond the structural
# teacher's context and beyond the student's.

# %%
limit = stages.sbert("truncate").max_text_tokens
statistics = corpus_statistics(
    {name: stages.split(name) for name in ("train", "validation", "tasks")},
    limit=limit,
    student_limit=stages.profile.student.max_tokens,
)
statistics.round(1)

# %% [markdown]
# ## Lengths
#
# As in Figure 4.1 of the thesis, in the structural teacher's tokens: how long are documents, and where do they come
# from? Everything to the right of the dashed line the structural teacher sees only in part. That is why there is a
# second, contextual teacher, and why a *mask* may take the structural loss away from long documents.

# %%
train = stages.split("train").select_columns(["source", "n_structural_tokens"]).to_pandas()
lengths = train.rename(columns={"n_structural_tokens": "tokens"})
ax = plot_lengths(lengths, limit=limit)
run.save_figure(ax, "lengths", lengths)

# %% [markdown]
# **How to read it.** The bulk of the documents is short, the tail is long and thin; the label says how many lie beyond
# the dashed line. If that share is small in your own corpus, SBERT alone may do.
#
# ## One document
#
# The texts as the models see them. For the embedded corpus, See Also sections and the names of the packages have been
# taken out, since the evaluation asks for them.

# %%
document = stages.split("train")[0]
print(document["id"], f"({document['n_words']} words, source {document['source']})\n")
print(document["text"][:800])

# %% [markdown]
# ## Held-out documents
#
# How many there are per split of the tasks, and how many of them link to another one.

# %%
held_out = stages.split("tasks").to_pandas()
held_out.assign(links=held_out["see_also"].str.len()).groupby("split").agg(
    documents=("id", "size"), sources=("source", "nunique"), links=("links", "sum"), words=("n_words", "median")
)

# %%
run.finish(
    {
        "corpus_documents": statistics["documents"].sum(),
        "train_documents": statistics.loc[0, "documents"],
        "mean_tokens": statistics.loc[0, "mean"],
        "beyond_structural_pct": statistics.loc[0, "beyond_limit"],
    }
)

# %% [markdown]
# ## All corpora so far

# %%
records.frame("01_corpus")[["profile", "corpus_documents", "train_documents", "mean_tokens", "beyond_structural_pct"]]

# %% [markdown]
# **Next.** `02_paragraph_vector` fits the contextual teachers on `train`. To use your own documents, point
# `params/own.yaml` at them and run `docemb run --profile params/own.yaml`.
