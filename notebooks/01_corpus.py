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
# Which texts does the student learn from, and how many are too long for the structural teacher? How are scores compared?

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of everything random in this run; the corpus itself has its own in the profile

# %%
import hashlib
from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import begin, figures, records, thesis, views

figures.use_style()
run = begin("01_corpus", globals())
thesis.settings(run)

# %% [markdown]
# ## How documents are sampled
#
# **Read and filter.** The embedded corpus is documentation: a page for each module, class or function. Pages of some
# hundred words are kept; the thesis keeps news of 1,200 tokens and more. The cells below use the pages of one package.

# %%
from docemb_lib.corpus.installed_docs import WORDS, installed_docs


def long_enough(pages, fewest, most):
    """The pages of at least `fewest` and at most `most` words."""
    return [page for page in pages if fewest <= len(page.text.split()) <= most]


everything = installed_docs(["seaborn"], words=(1, 10**6))
pages = long_enough(everything, *WORDS)
for page in pages[:3]:
    print(page.id, len(page.text.split()), "words, names", len(page.see_also), "other pages")
print(f"{len(pages)} of {len(everything)} pages have {WORDS[0]} to {WORDS[1]} words")
assert {page.text for page in pages} == {page.text for page in installed_docs(["seaborn"])}

# %% [markdown]
# **Share.** Where a profile takes a part of a source, a hash of seed and id draws it: evenly from all, in any order of
# reading, and pages that are added later replace few. Several sources of a hub give equal shares.

# %%
from docemb_lib.corpus.sources import read_documents


def draw(page, seed):
    return hashlib.sha256(f"{seed}\0{page.id}".encode()).hexdigest()


def share(pages, size, seed):
    """The `size` pages with the lowest draws."""
    return sorted(pages, key=partial(draw, seed=seed))[:size]


of_corpus = run.profile.corpus
for page in pages[:3]:
    print(draw(page, of_corpus.seed)[:12], page.id)
of_package = {"source": "installed-docs", "packages": ["seaborn"], "documents": 30}
sampled = read_documents(of_corpus.model_copy(update=of_package), count_tokens=len)
drawn = share(pages, 30, of_corpus.seed)
assert {page.id for page in drawn} == {page.id for page in sampled}

# %% [markdown]
# **Order.** Pages that begin alike are copies, of which the first id stays. A second hash orders the rest.

# %%
COPY_WORDS = 60


def place(id, seed):
    return hashlib.sha256(f"{seed}:{id}".encode()).hexdigest()


def in_hash_order(pages, seed):
    """The pages without copies, in the order of a hash of seed and id."""
    first = {}
    for page in sorted(pages):
        start = " ".join(page.text.lower().split()[:COPY_WORDS])
        first.setdefault(start, page)
    distinct = {page.id: page for page in first.values()}
    return [distinct[id] for id in sorted(distinct, key=partial(place, seed=seed))]


ordered = in_hash_order(pages, of_corpus.seed)
print(f"{len(pages)} pages, {len(ordered)} of them distinct; the first three in hash order:")
print([page.id for page in ordered[:3]])

# %% [markdown]
# **Splits.** `tasks` is held out from all teachers and students. `hold_out` fills 70% of its parts (train, validation
# and test of the heads) with pages and the pages that they name, and balances the packages with the rest. The loss is
# measured on `validation`; everything else is `train`, from the end of the order, where the packages are least thinned.

# %%
from docemb_lib.corpus.build import build_corpus, hold_out


def split(ids, held, validation, *, from_end):
    """The ids in hash order as three lists."""
    rest = [id for id in ids if id not in held]
    if from_end:
        rest.reverse()
    tasks = [id for id in ids if id in held]
    return {"train": rest[validation:], "validation": rest[:validation], "tasks": tasks}


held = hold_out(ordered, size=20)
ids = [page.id for page in ordered]
splits = split(ids, held, 5, from_end=True)
print({name: len(part) for name, part in splits.items()}, Counter(held.values()))

with TemporaryDirectory() as folder:
    options = {"counters": {}, "validation": 5, "tasks": 20, "seed": of_corpus.seed}
    built = build_corpus(pages, folder=Path(folder, "parts"), copy_words=COPY_WORDS, **options)
    assert splits == {name: list(part["id"]) for name, part in built.items()}

# %% [markdown]
# The corpus of this run is stored. Its ids, put into hash order and split in the same way, are its splits.

# %%
corpus = run.corpus
stored = {name: list(corpus.split(name)["id"]) for name in ("train", "validation", "tasks")}
every = [id for part in stored.values() for id in part]
links = [len(targets) for targets in corpus.split("tasks")["see_also"]]

ids = sorted(every, key=partial(place, seed=of_corpus.seed))
again = split(ids, set(stored["tasks"]), of_corpus.validation, from_end=any(links))
assert again == stored
print({name: len(part) for name, part in stored.items()}, "and", sum(links), "links in tasks")

# %%
shares = {}
for name in stored:
    sources = corpus.split(name).select_columns("source").to_pandas()["source"]
    shares[name] = 100 * sources.value_counts(normalize=True)
table = pd.DataFrame(shares).fillna(0).sort_values("train", ascending=False)

size = (figures.WIDTH, 1 + 0.4 * len(table))
ax = table.plot.barh(figsize=size, color=figures.SERIES[:3], width=0.8)
ax.invert_yaxis()
ax.set(xlabel="percent of the documents of a split", ylabel="")
ax.legend(**figures.BESIDE)
run.save_figure(ax, "sources", table.reset_index())

# %% [markdown]
# `tasks` has more of the small sources, so that every class of the task `package` has examples.
#
# ## How long documents are
#
# As in the thesis (Tables 4.1 and 5.1), tokens are those of the student, and the last two columns are the percentages of
# documents with more than 384 and 512 tokens of the structural teacher.

# %%
statistics = views.corpus_statistics(run)
thesis.corpus_tables(statistics, run.profile.name).round(1)

# %%
import seaborn as sns


def draw_lengths(tokens, sources, longest, ax):
    """Percent of documents by length and source; the last bin holds all longer ones."""
    often = train["source"].value_counts().index[:6]
    look = {"palette": figures.SERIES[:7], "multiple": "stack", "stat": "percent", "alpha": 1}
    sns.histplot(
        x=tokens.clip(upper=longest),
        hue=sources.where(sources.isin(often), "other"),
        hue_order=[*often, "other"],
        bins=40,
        binrange=(0, longest),
        linewidth=0.3,
        **look,
        ax=ax,
    )
    ax.set(xlabel="tokens (the last bin holds all longer documents)", ylabel="documents (%)")
    sns.move_legend(ax, **figures.BESIDE)


# %%
train = corpus.split("train").select_columns(["source", "n_structural_tokens"]).to_pandas()
tokens = train["n_structural_tokens"]
limit = views.structural_limit(run)
_, ax = plt.subplots()
draw_lengths(tokens, train["source"], max(tokens.quantile(0.98), 2 * limit), ax)
ax.axvline(limit, color=figures.GREY, linestyle="--")
beyond = (tokens > limit).mean()
ax.set_title(f"{beyond:.0%} are longer than the structural teacher reads ({limit})")
run.save_figure(ax, "lengths", train.rename(columns={"n_structural_tokens": "tokens"}))

# %% [markdown]
# Beyond the dashed line a teacher that truncates reads nothing: the contextual teacher reads all, and a *mask* can
# remove the structural loss of such documents. Figures 4.1 and 5.1 compare the two splits of the loss:

# %%
def tokens_of(split):
    """The source and the number of student tokens of each document."""
    rows = corpus.split(split).select_columns(["source", "n_student_tokens"]).to_pandas()
    return rows.rename(columns={"n_student_tokens": "tokens"}).assign(split=split)


documents = pd.concat([tokens_of("train"), tokens_of("validation")])
longest = documents["tokens"].quantile(0.98)
figure, axes = plt.subplots(1, 2, sharex=True, sharey=True)
for ax, (name, panel) in zip(axes, documents.groupby("split"), strict=True):
    draw_lengths(panel["tokens"], panel["source"], longest, ax)
    ax.set(title=name, xlabel="tokens")
axes[0].get_legend().remove()
summary = documents.groupby(["split", "source"])["tokens"].describe().reset_index()
run.save_figure(figure, "splits", summary)

# %% [markdown]
# Both splits are drawn alike, but a small one, such as the 40 documents of the embedded default, is too few to compare
# shapes. In the thesis there are two peaks: Wikipedia between 0 and 500 tokens, news from 1,200 on.
#
# ## What the models are tested on
#
# A labelled pair, and a query with its relevant documents, as the models read them: names of packages and See Also
# sections are removed.

# %%
def first_task(kind):
    """The first task of this kind among those of the profile, with its name."""
    for name in run.profile.evaluation.tasks:
        task = run.scorer.task(name)
        if isinstance(task, kind):
            return name, task
    return None, None


def opening(text, words=25):
    first = " ".join(islice(text.split(), words))
    return "".join(c for c in first if c.isprintable()) + " …"  # no control characters of others


# %%
from docemb_lib.evaluation import Pairs, Retrieval

name, task = first_task(Pairs)
if task is not None:
    pairs = task.splits["test"]
    print(f"{name}: label {pairs.labels[0]}")
    print("·", opening(pairs.first[0]))
    print("·", opening(pairs.second[0]))

# %%
name, task = first_task(Retrieval)
if task is not None:
    ranking = task.splits["test"]
    print(f"{name}: query")
    print("·", opening(ranking.texts[ranking.queries[0]]))
    print("relevant documents")
    for row in ranking.relevant[0]:
        print("·", opening(ranking.texts[row]))

# %% [markdown]
# All tasks, each with the one of the same name in the thesis, if there is one (Tables 5.3 to 5.5): examples and classes
# of heads, documents and queries of retrieval, relevant documents of a query, percentages of texts of more than 384
# tokens and of more than the structural teacher reads.

# %%
columns = ["examples", "classes", "documents", "queries", "relevant_mean", "over_384"]
tasks, lengths = views.described_tasks(run)
table = views.tasks_beside_thesis(tasks, columns)

limit = views.structural_limit(run)
longer = lengths.assign(of="here", beyond=100.0 * (lengths["n_structural_tokens"] > limit))
beyond = longer.groupby(["task", "split", "of"])["beyond"].mean()
table = table.join(beyond.rename("beyond teacher"))
figures.table(table, digits=1)

# %%
lengths = lengths.rename(columns={"task": "data", "n_student_tokens": "tokens"})
lengths = lengths[lengths["split"] == "test"]
_, ax = plt.subplots()
sns.ecdfplot(lengths, x="tokens", hue="data", palette=figures.SERIES, log_scale=2, ax=ax)
ax.xaxis.set_major_formatter("{x:g}")
ax.set(xlabel="tokens of a test document", ylabel="share of documents")
sns.move_legend(ax, **figures.BESIDE)
run.save_figure(ax, "tasks", lengths[["data", "split", "tokens"]])

# %% [markdown]
# The further right a line rises (Figure 5.2), the longer are the texts, and only long texts can show what a long
# context is worth.
#
# ## How scores are compared
#
# All later notebooks use three terms. A **normalised score** is a score divided by the best of all models on the same
# task, so that easy and hard tasks weigh alike in a mean. Here are those of the thesis' Table 5.7, for heads that learn
# from all examples. Of its students *only-MSE* learns from SBERT alone, *MSE-contextual* from DM, too, and
# *cosine-masked* from SBERT and PV with a mask; DM and PV are Paragraph Vectors.

# %%
def normalise(scores):
    """Each score (models x tasks) divided by the best of its task."""
    return scores / scores.max()


from docemb_lib.evaluation.scoreboard import normalised

published = thesis.published("table_5_7").query("metric == 'accuracy' and round == 'all'")
scores = published.pivot(index="model", columns="task", values="value")
ours = normalise(scores)
library = normalised(published).pivot(index="model", columns="task", values="normalised")
pd.testing.assert_frame_equal(ours, library)
ours.assign(mean=ours.mean(axis=1)).sort_values("mean", ascending=False).round(3)

# %% [markdown]
# SBERT is ahead of all students here. With 1,000 and 10,000 examples the students are ahead (`06_evaluation`).
#
# A **95% interval** says how far a score could move with other test examples: draw as many examples with replacement,
# 2,000 times, and leave out the outer 5% of the means.

# %%
from docemb_lib.evaluation.uncertainty import bootstrap_over_tasks


def interval(answers, resamples=2000):
    """Low and high bound of the mean of 0 (wrong) and 1 (right)."""
    rng = np.random.default_rng(0)
    drawn = rng.choice(answers, size=(resamples, len(answers)))
    return np.quantile(drawn.mean(axis=1), [0.025, 0.975])


for examples in (50, 100, 500, 2000):
    answers = (np.arange(examples) < 0.8 * examples).astype(float)
    low, high = interval(answers)
    print(f"80% of {examples:5,} examples: .800 [{low:.3f}, {high:.3f}]")
    _, *bounds = bootstrap_over_tasks([answers[None]])
    assert np.allclose([low, high], np.ravel(bounds))

# %% [markdown]
# Two models that differ by .03 cannot be told apart by 100 examples.
#
# A **claim** of the thesis is a list of differences. Each is tested on the answers of both models to the same examples
# (`06_evaluation` defines the test), and the p-values are corrected for their number (Holm).

# %%
from docemb_lib.evaluation.uncertainty import holm
from docemb_lib.thesis.claims import verdict


def decide(differences, p):
    """The verdict on a claim whose differences should all be positive."""
    significant = holm(p) < 0.05
    if any(significant & (differences < 0)):
        return "does not hold"
    return "holds" if all(significant) else "undecided"


cases = [([0.02, 0.01], [0.01, 0.02]), ([0.02, 0.01], [0.01, 0.30]), ([0.02, -0.01], [0.01, 0.02])]
for differences, p in cases:
    decision = decide(np.array(differences), np.array(p))
    assert decision == verdict(np.array(differences), np.array(p))
    print(differences, p, decision)

# %% [markdown]
# ## Conclusion
#
# If the structural teacher reads nearly all of the text, a long-document model has little to add.

# %% tags=["conclusion"]
print(views.seen_by_models(run))
print(views.held_out_lengths(run))

# %%
of_train = statistics.loc[0]
numbers = {
    "corpus_documents": int(statistics["documents"].sum()),
    "train_documents": int(of_train["documents"]),
    "mean_tokens": of_train["mean"],
    "beyond_structural_pct": of_train["beyond_limit"],
}
finished = run.finish(numbers)
print("tables and figures:", Path(run.figures[0]).parent)
finished

# %% [markdown]
# All recorded runs of this notebook:

# %%
columns = ["profile", "corpus_documents", "train_documents", "mean_tokens", "beyond_structural_pct"]
figures.table(records.frame("01_corpus")[columns].convert_dtypes(), digits=1)

# %% [markdown]
# ## References
#
# * D. Burian: *Document embedding using Transformers*. Master thesis, Institute of Formal and Applied Linguistics,
#   Charles University, Prague 2023 (Tables 4.1, 5.1 and 5.3 to 5.7).
# * B. Efron and R. J. Tibshirani: *An Introduction to the Bootstrap*. Chapman and Hall, 1993.
# * S. Holm: *A Simple Sequentially Rejective Multiple Test Procedure*. Scandinavian Journal of Statistics 1979.
#
# **Your own documents.** `docemb init FOLDER` writes a profile for them. `02_paragraph_vector` fits contextual teachers.
