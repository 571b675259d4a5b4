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
import matplotlib.pyplot as plt

# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib import records
from docemb_lib.corpus.build import corpus_statistics
from docemb_lib.evaluation.soundness import beside_thesis
from docemb_lib.views.runs import corpus_tables, described_tasks, split_lengths
from docemb_lib.experiments.run import Run
from docemb_lib.figures import use_style
from docemb_lib.figures import plot_cumulative, plot_lengths

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
statistics.drop(columns=["over_384", "over_512"]).round(1)

# %% [markdown]
# The same beside the corpora of the thesis (Tables 4.1 and 5.1). Tokens are the student's; the last two columns are the
# percentages of documents with more than 384 and 512 tokens of the structural teacher, whichever model that is here.

# %%
corpus_tables(statistics, stages.profile.name).round(1)

# %% [markdown]
# **How to read it.** The thesis' documents are long: two thirds do not fit into SBERT's 384 tokens, as it keeps news of
# 1,200 tokens and more only. The closer the last two columns come to its 71 and 66 percent, the more there is that the
# structural teacher cannot see and a second teacher might tell.
#
# ## Lengths
#
# In the structural teacher's tokens: how long are documents, and where do they come from? Everything to the right of
# the dashed line the structural teacher sees only in part. That is why there is a second, contextual teacher, and why
# a *mask* may take the structural loss away from long documents.

# %%
train = stages.split("train").select_columns(["source", "n_structural_tokens"]).to_pandas()
lengths = train.rename(columns={"n_structural_tokens": "tokens"})
ax = plot_lengths(lengths, limit=limit)
run.save_figure(ax, "lengths", lengths)

# %% [markdown]
# **How to read it.** The bulk of the documents is short, the tail is long and thin; the label says how many lie beyond
# the dashed line. If that share is small in your own corpus, SBERT alone may do.
#
# ## Both splits
#
# As Figures 4.1 and 5.1 of the thesis, in the student's tokens: do the documents that the loss is measured on look like
# those it is lowered on?

# %%
documents = split_lengths(stages)
sources = list(documents["source"].value_counts().index)
figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharex=True, sharey=True, layout="constrained")
for ax, split in zip(axes, ("train", "validation"), strict=True):
    panel = documents[documents["split"] == split]
    plot_lengths(panel, longest=int(documents["tokens"].quantile(0.98)), sources=sources, ax=ax).set_title(split)
run.save_figure(figure, "splits", documents.groupby(["split", "source"])["tokens"].describe().reset_index())

# %% [markdown]
# **How to read it.** Both panels should have one shape; a small validation split is only rougher. In the thesis there
# are two hills: Wikipedia's at 60 tokens, with a thin tail, and on it that of the news, which begins at 1,200.
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

# %% [markdown]
# ## Tasks of the runs
#
# What runs are scored on, as Table 4.2 of the thesis: the examples that are left of each split after it is cut
# (`evaluation.limit`), the number of classes, and how even they are: mean and deviation of the classes' percentages. A
# task without a validation split is cross-validated on its train split.

# %%
tasks = described_tasks(stages)
beside_thesis(tasks.statistics, "validation", ["examples", "classes", "class_mean", "class_std"]).round(2)

# %% [markdown]
# ## Tasks of the final evaluation
#
# The whole tasks. Table 5.3: classes and their balance.

# %%
beside_thesis(tasks.statistics, "final", ["classes", "class_mean", "class_std"]).round(2)

# %% [markdown]
# Table 5.4: examples of each split, and percentages of documents (both of a pair) beyond 384 and 512 tokens of the
# structural teacher.

# %%
sizes = beside_thesis(tasks.statistics, "final", ["examples", "over_384", "over_512"])
sizes[sizes["examples"].notna()].round(2)

# %% [markdown]
# Table 5.5: retrieval. How many documents are ranked for how many queries, and how many of them are to be found.

# %%
columns = ["documents", "queries", "relevant_mean", "relevant_std", "over_384", "over_512"]
retrieval = beside_thesis(tasks.statistics, "final", columns)
retrieval[retrieval["queries"].notna()].round(2)

# %% [markdown]
# **How to read them.** A task can show what long context is worth only where its texts are long. In the thesis that is
# so in ARXIV, WINES and GAMES, and in most of PAN; the abstracts of AAN and OC fit into nearly any model.
#
# ## Lengths of the tasks' documents
#
# As Figure 5.2 of the thesis: which share of the documents has at most so many of the student's tokens?

# %%
lengths = tasks.lengths.rename(columns={"task": "data", "n_student_tokens": "tokens"})
lengths = lengths[lengths["split"].isin(["train", "test"])]
_, ax = plt.subplots()
plot_cumulative(lengths, ax=ax)
run.save_figure(ax, "tasks", lengths[["data", "split", "tokens"]])

# %% [markdown]
# **How to read it.** The further right a line rises, the longer are the documents. Train and test of one task should
# lie on each other: where they part, heads are asked about other documents than they learnt from.

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
