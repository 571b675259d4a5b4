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
# Which texts does the student learn from, and how many of them are too long for the structural teacher? All later
# notebooks use these documents. Both teachers embed them, the student is trained on them, and a part is held out for
# the evaluation.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of everything random in this run; the corpus itself has its own in the profile

# %%
import matplotlib.pyplot as plt
import pandas as pd

# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib import begin, figures, records, thesis, views

figures.use_style()
run = begin("01_corpus", globals())
thesis.settings(run)

# %% [markdown]
# ## Splits
#
# The contextual teachers are fitted on `train` or a part of it, and students are trained on its first documents (the
# parameter `documents` of later notebooks). The loss on `validation` is measured during training. `tasks` is held out:
# it is used neither to fit a teacher nor to train a student. Where the profile takes a part of what its sources have,
# the part is drawn evenly from all of it: all rows are read, and those with the lowest hashes of seed and id are kept.
# Lengths are in tokens of the student. The last two columns are the percentages of documents that are longer than the
# context of the structural teacher and than that of the student.

# %%
statistics = views.corpus_statistics(run)
statistics.drop(columns=["over_384", "over_512"]).round(1)

# %% [markdown]
# The next table compares this corpus with the corpora of the thesis (Tables 4.1 and 5.1). Lengths are in tokens of the
# student. The last two columns are the percentages of documents with more than 384 and 512 tokens of the structural
# teacher of this profile.

# %%
thesis.corpus_tables(statistics, run.profile.name).round(1)

# %% [markdown]
# **How to read it.** The documents of the thesis are long: 71% have more than the 384 tokens that SBERT reads,
# because the thesis keeps only news articles of 1,200 tokens and more. The higher the last two columns are, the more
# text is hidden from a teacher that truncates. That of this profile may read fewer tokens than that of the thesis.
#
# ## Lengths
#
# How long are the documents, and which source do they come from? Lengths are in tokens of the structural teacher. The
# dashed line is the number of tokens that this teacher reads at once: its limit without two special tokens. The teacher
# of the thesis truncates longer documents. For this reason there is a second, contextual teacher, and a *mask* can
# remove the structural loss of long documents. With `long: chunks` in the profile the structural teacher averages over
# chunks of the whole document.

# %%
corpus = run.stages.corpus
train = corpus.split("train").select_columns(["source", "n_structural_tokens"]).to_pandas()
lengths = train.rename(columns={"n_structural_tokens": "tokens"})
ax = figures.plot_lengths(lengths, limit=views.structural_limit(run))
run.save_figure(ax, "lengths", lengths)

# %% [markdown]
# **How to read it.** The label gives the share of documents beyond the dashed line. If this share is small in your own
# corpus, SBERT alone may be enough.
#
# ## Both splits
#
# Do the documents of the validation loss resemble the training documents? The figure corresponds to Figures 4.1 and 5.1
# of the thesis; lengths are in tokens of the student.

# %%
read = {split: corpus.split(split).select_columns(["source", "n_student_tokens"]) for split in ("train", "validation")}
documents = pd.concat({split: rows.to_pandas() for split, rows in read.items()}, names=["split"]).reset_index("split")
documents = documents.rename(columns={"n_student_tokens": "tokens"})
sources, longest = list(documents["source"].value_counts().index), int(documents["tokens"].quantile(0.98))
figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharex=True, sharey=True, layout="constrained")
for ax, split in zip(axes, ("train", "validation"), strict=True):
    panel = documents[documents["split"] == split]
    figures.plot_lengths(panel, longest=longest, sources=sources, ax=ax).set_title(split)
axes[0].get_legend().remove()
run.save_figure(figure, "splits", documents.groupby(["split", "source"])["tokens"].describe().reset_index())

# %% [markdown]
# **How to read it.** Both panels should have the same shape; a small validation split gives a rougher one. The figures
# of the thesis have two peaks: one for Wikipedia at 60 tokens, with a thin tail, and one for news, which starts at
# 1,200 tokens. The mean of Table 4.1 is 1,371 tokens.
#
# ## One document
#
# The next cell prints the beginning of a document as the models read it.

# %%
document = corpus.split("train")[0]
print(document["id"], f"({document['n_words']} words, source {document['source']})\n")
print(document["text"][:800])

# %% [markdown]
# ## Held-out documents
#
# The next table shows, for each split of the tasks, the number of documents and of links from one document to another.

# %%
held_out = corpus.split("tasks").to_pandas()
held_out.assign(links=held_out["see_also"].str.len()).groupby("split").agg(
    documents=("id", "size"), sources=("source", "nunique"), links=("links", "sum"), words=("n_words", "median")
)

# %% [markdown]
# ## Tasks of the runs
#
# In the embedded default four tasks are made of held-out documents: which `package` is a page from (classification)?
# Does one page name the other in its See Also section (`see-also-pairs`)? Are two texts `halves` of one document
# (pairs)? Which other pages does a page name (`see-also-retrieval`)? Names of packages and See Also sections are
# removed from the texts.
#
# Runs are compared on the validation splits of the profile's `sweep_tasks`, in the embedded default `package` and
# `see-also-retrieval`. The table shows all tasks for which heads are trained, as Table 4.2 of the thesis does: the
# examples of each split after it is cut to `evaluation.limit`, the number of classes, and the mean and standard
# deviation of the percentages of examples per class. Retrieval tasks are described below. A task without a validation
# split is cross-validated on its train split.
#
# These tables show numbers of the thesis beside tasks of the profile that the thesis has, too. All of them are in
# [`tasks.yaml`](../docemb_lib/thesis/published/tasks.yaml), which `thesis.published("tasks")` reads.

# %%
tasks, lengths = views.described_tasks(run)
columns = ["examples", "classes", "class_mean", "class_std"]
figures.table(views.tasks_beside_thesis(tasks, "validation", columns), digits=2)

# %% [markdown]
# ## Tasks of the final evaluation
#
# The final evaluation uses all examples of a task's splits. Tasks that are made of held-out documents take at most
# `evaluation.texts` texts; a half of a document is one. The first table shows the classes and their balance (Table 5.3).

# %%
figures.table(views.tasks_beside_thesis(tasks, "final", columns[1:]), digits=2)

# %% [markdown]
# The second table shows the examples of each split and the percentages of documents with more than 384 and 512 tokens
# of the structural teacher (Table 5.4). Both documents of a pair are counted.

# %%
sizes = views.tasks_beside_thesis(tasks, "final", ["examples", "over_384", "over_512"])
figures.table(sizes[sizes["examples"].notna()], digits=2)

# %%
columns = ["documents", "queries", "relevant_mean", "relevant_std", "over_384", "over_512"]
retrieval = views.tasks_beside_thesis(tasks, "final", columns)
section = """The third table describes retrieval tasks: the number of ranked documents, of queries, and of relevant documents per
query (Table 5.5)."""
figures.table(retrieval[retrieval["queries"].notna()], digits=2, section=section)

# %% [markdown]
# A task can show the benefit of a long context only if its texts are long. In the thesis this is true of ARXIV, WINES
# and GAMES and of most of PAN; the abstracts of AAN and OC fit into the context of nearly any model. The last table
# shows the percentages of documents that are longer than the structural teacher of this profile reads at once.

# %%
longer = lengths.assign(longer=100.0 * (lengths["n_structural_tokens"] > views.structural_limit(run)))
figures.table(longer.pivot_table(index="task", columns="split", values="longer", sort=False), digits=0)

# %% [markdown]
# ## Lengths of the tasks' documents
#
# Which share of a task's documents has at most a given number of tokens? The figure corresponds to Figure 5.2 of the
# thesis; lengths are in tokens of the student.

# %%
lengths = lengths.rename(columns={"task": "data", "n_student_tokens": "tokens"})
lengths = lengths[lengths["split"].isin(["train", "test"])]
_, ax = plt.subplots()
figures.plot_cumulative(lengths, ax=ax)
run.save_figure(ax, "tasks", lengths[["data", "split", "tokens"]])

# %% [markdown]
# **How to read it.** The further right a line rises, the longer the documents are. The lines of train and test of one
# task should be close. Where they differ, heads are tested on documents of other lengths than they were trained on.

# %% [markdown]
# ## The answer
#
# How long are the documents, and how much of them do the models read? If the structural teacher reads nearly all of the
# text, a long-document model has little to add.

# %% tags=["conclusion"]
print(views.seen_by_models(run))
print(views.held_out_lengths(run))

# %%
run.finish(
    {
        "corpus_documents": int(statistics["documents"].sum()),
        "train_documents": int(statistics.loc[0, "documents"]),
        "mean_tokens": statistics.loc[0, "mean"],
        "beyond_structural_pct": statistics.loc[0, "beyond_limit"],
    }
)

# %% [markdown]
# ## All corpora so far
#
# The last table lists the recorded runs of this notebook.

# %%
columns = ["profile", "corpus_documents", "train_documents", "mean_tokens", "beyond_structural_pct"]
figures.table(records.frame("01_corpus")[columns].convert_dtypes(), digits=1)

# %% [markdown]
# **Next.** `02_paragraph_vector` fits the contextual teachers on `train`. `docemb init FOLDER` writes a profile for
# your own documents.
