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
# SBERT, the structural teacher, reads the beginning of a document and nothing else. How much text does it miss, and are
# the documents of the tasks long enough to show it? If little lies beyond its limit, a student that reads long
# documents has nothing to gain. The documents of *the default* are the pages of Python packages; a second teacher, the
# *contextual* one, follows in 02; and a *head* is a classifier on embeddings that stay as they are. This chapter shows
# one document, the lengths of all, what two kinds of quality an embedding can have, what the models are tested on, and
# how small a difference such tests can see.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of everything random in this run; the corpus itself has its own in the profile

# %%
from html import escape
from textwrap import shorten

import numpy as np
import pandas as pd
import seaborn as sns
from IPython.display import HTML, display
from scipy.stats import mannwhitneyu
from transformers import AutoTokenizer

# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import begin, figures, thesis, views
from docemb_lib.base.pretrained import resolve

figures.use_style()
run = begin("01_corpus", globals())
thesis.settings(run)

# %% [markdown]
# ## One document
#
# The embedded corpus is documentation: a page for each module, class or function; the thesis has articles of Wikipedia
# and news. This is the training document whose length is nearest to the mean. The structural teacher reads the dark
# part; nothing of the grey one can change its embedding.

# %%
train = run.corpus.split("train")
n_structural = np.asarray(train["n_structural_tokens"][:])
from_mean = np.abs(n_structural - n_structural.mean())
row = int(from_mean.argmin())
page = train[row]["text"]

sbert = run.teachers.sbert("truncate")
limit = sbert.max_text_tokens  # without special tokens
tokenizer = AutoTokenizer.from_pretrained(resolve(sbert.model))
encoded = tokenizer(page, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
_, end = encoded["offset_mapping"][:limit][-1]  # of the last token that the teacher reads
read = page[:end]
of_read, of_page = sbert.embed([read, page])
assert np.allclose(of_read, of_page, atol=2e-2)
assert sbert.unread(page).strip() == page[end:].strip()
n_read = min(limit, n_structural[row])
print(f"{train[row]['id']}: {n_structural[row]} tokens, of which {n_read} are read")


# %%
def shown(read, rest):
    """A page as HTML: what lies beyond the teacher's last token is grey."""
    cut = "<b>⟨ here the structural teacher ends ⟩</b>"
    grey = f'<span style="opacity: 0.45">{escape(rest)}</span>'
    style = "font-size: 75%; font-family: monospace"
    return HTML(f'<pre style="{style}">{escape(read)}{cut}{grey}</pre>')


shown(read, page[end:])

# %% [markdown]
# Names of packages and the sections *See Also*, which would give answers of the tasks away, are cut from all pages, and
# of pages that begin alike one stays. What is drawn, held out and in which order follows from hashes of seed and id
# ([data.md](../docs/data.md)).
#
# ## How long documents are
#
# As in the thesis (Tables 4.1 and 5.1) tokens are those of the student, and the last two columns give the percentages of
# documents with more than 384 and 512 tokens of the structural teacher. Half of its documents are news articles of 1,200
# tokens and more.


# %%
def describe_lengths(documents):
    """The row of a split in Table 4.1, from the numbers of tokens of its documents."""
    of_student = documents["n_student_tokens"]
    of_teacher = documents["n_structural_tokens"]
    return {
        "documents": len(documents),
        "tokens": of_student.sum(),
        "mean": of_student.mean(),
        "std": of_student.std(ddof=0),
        "over_384": 100 * (of_teacher > 384).mean(),
        "over_512": 100 * (of_teacher > 512).mean(),
    }


LENGTHS = ["source", "n_student_tokens", "n_structural_tokens"]
splits = {}
here = {}
for name in ("train", "validation", "tasks"):
    splits[name] = run.corpus.split(name).select_columns(LENGTHS).to_pandas()
    here[run.profile.name, name] = describe_lengths(splits[name])
here = pd.DataFrame(here).T
of_thesis = thesis.published("corpora").set_index(["corpus", "split"])[here.columns]
lengths = pd.concat([here, of_thesis])
lengths.astype({"documents": int, "tokens": int}).round(1)

# %% [markdown]
# Documents of the thesis are twice as long as those of the default. Its teacher reads more tokens, too, so that no
# larger part of them is beyond it.

# %% tags=["picture"]
tokens = splits["train"]["n_structural_tokens"]
sources = splits["train"]["source"]
often = sources.value_counts().index[:6]
last = max(tokens.quantile(0.98), 2 * limit)
ax = figures.axes(3.2)
sns.histplot(
    x=tokens.clip(upper=last),
    hue=sources.where(sources.isin(often), "other"),
    hue_order=[*often, "other"],
    palette=figures.SERIES[:7],
    multiple="stack",
    stat="percent",
    bins=40,
    binrange=(0, last),
    linewidth=0.3,
    alpha=1,
    ax=ax,
)
ax.axvline(limit, color=figures.GREY, linestyle="--")
beyond = (tokens > limit).mean()
ax.set_title(f"{beyond:.0%} are longer than the structural teacher reads ({limit})")
ax.set(xlabel="tokens (the last bin holds all longer documents)", ylabel="documents (%)")
sns.move_legend(ax, **figures.BESIDE, title="package")
run.save_figure(ax, "lengths", splits["train"])

# %% [markdown]
# Right of the dashed line a teacher that truncates reads nothing: there the contextual teacher, which reads all, is the
# only one, and a *mask* can leave out the structural loss (`05_weighting`). All splits together (Figures 4.1 and 5.1):


# %%
def plot_shares(documents, hue, ax):
    """The share of documents up to each length, a line for each value of `hue`."""
    palette = figures.SERIES[: documents[hue].nunique()]
    sns.ecdfplot(documents, x="n_student_tokens", hue=hue, palette=palette, log_scale=2, ax=ax)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="tokens of a document", ylabel="share of documents")
    sns.move_legend(ax, **figures.BESIDE)


every = pd.concat(splits, names=["split"]).reset_index("split")
ax = figures.axes(2.4)
plot_shares(every, "split", ax)
run.save_figure(ax, "splits", every)

# %% [markdown]
# A line further right is a split of longer documents. Training and validation documents are drawn alike; `tasks` holds
# linked pages first and then balances the packages, so its lengths may differ.
#
# ## Two qualities of an embedding
#
# Chapter 1 of the thesis asks for two. The *structural* one: an embedding should depend on how the words are put
# together, so that the same words in another order can say something else. The *contextual* one: a sentence means what
# its surroundings make of it, however far away they are. Each has its test here. The words of a beginning are put into
# another order; and one sentence, which could be of image processing, statistics or operating systems, is followed by
# the words of two different pages, right after it or behind the page above. Each number says how far the embedding
# moves: 1 is as far as two different beginnings are apart, 0 is not at all. *Start* is the student before it learns,
# DBOW a Paragraph Vector, fitted on 500 documents, which takes a text as a bag of its words.

# %%
from docemb_lib.teachers import ParagraphVector

SENTENCE = "The kernel is an argument, and has to be chosen with care."
rng = np.random.default_rng(0)
beginnings = [text.split()[:80] for text in run.corpus.texts("validation", 20)]
texts = {
    "beginnings": [" ".join(words) for words in beginnings],
    "other order": [" ".join(rng.permutation(words)) for words in beginnings],
    "near": [" ".join([SENTENCE, *words]) for words in beginnings],
    "far": [" ".join([page, SENTENCE, *words]) for words in beginnings],
}


def distance(X, Y):
    """The mean cosine distance of the rows of X and Y, (N, D)."""
    norms = np.linalg.norm(X, axis=1) * np.linalg.norm(Y, axis=1)
    cosines = (X * Y).sum(axis=1) / norms
    return 1 - cosines.mean()


moved = {}
bag = ParagraphVector(dm=False, dbow_words=False, seed=seed)
bag.fit(run.corpus.texts("train", 500))
models = {"start": run.untrained, "SBERT": sbert, "DBOW": bag}
for name, model in models.items():
    X = {kind: model.embed(of_kind) for kind, of_kind in texts.items()}  # (20, D) each
    others = {kind: np.roll(rows, 1, axis=0) for kind, rows in X.items()}  # of other documents
    unit = distance(X["beginnings"], others["beginnings"])
    moved[name] = {
        "words in another order": distance(X["beginnings"], X["other order"]) / unit,
        "a sentence in two contexts": distance(X["near"], others["near"]) / unit,
        "… behind a page": distance(X["far"], others["far"]) / unit,
    }
moved = pd.DataFrame(moved).T
moved.round(3)

# %%
order = moved["words in another order"]
behind = moved["… behind a page"]
print(
    f"Another order moves the start by {order['start']:.2f}, SBERT by {order['SBERT']:.2f}", end=" "
)
print(f"and DBOW by {order['DBOW']:.2f}.")
print(f"What stands behind a page moves the start by {behind['start']:.2f},", end=" ")
print(f"SBERT by {behind['SBERT']:.2f} and DBOW by {behind['DBOW']:.2f}.")

# %% [markdown]
# The second test asks only whether far words are read, which a bag of words does best, and what a new order moves DBOW
# is the noise of its inference. What moves a teacher and hardly moves the start, the teacher can teach: SBERT the
# order, which DBOW does not know, and DBOW what stands far away. The start does see it, but as a few of many tokens in
# a mean.
#
# ## What the models are tested on
#
# The tasks are made of held-out pages, and packages' names and *See Also* serve as answers. One query of the task of
# related pages is solved by hand. All candidates are ranked by the words that they share with it, rare ones first
# (TF-IDF). The average precision is the mean, over its relevant pages, of the share of relevant pages among those that
# are ranked as high. Of the queries with three relevant pages or more, the one below has a typical result.

# %%
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import average_precision_score

from docemb_lib.evaluation import Retrieval


def shared_words(words, query):
    """The cosine of each text with the query, (N,), from words, (N, words)."""
    cosines = (words @ words[query].T).toarray()[:, 0]
    cosines[query] = -1  # the query itself comes last
    return cosines


def solve(cosines, relevant, texts):
    """The average precision of one query by hand."""
    precisions = []
    for row in sorted(relevant, key=cosines.__getitem__, reverse=True):
        rank = (cosines >= cosines[row]).sum()
        found = (cosines[relevant] >= cosines[row]).sum()
        precisions.append(found / rank)
        print(f"rank {rank:>3}: {found}/{rank:<3}", shorten(texts[row], 85))
    return np.mean(precisions)


tasks = [run.scorer.task(name) for name in run.profile.evaluation.tasks]
rankings = [task.splits["test"] for task in tasks if isinstance(task, Retrieval)]
for ranking in rankings[:1]:  # a profile may have no such task
    words = TfidfVectorizer().fit_transform(ranking.texts)
    rows = np.arange(len(ranking.texts))
    results = {}
    for number, query in enumerate(ranking.queries):
        is_relevant = np.isin(rows, ranking.relevant[number])
        cosines = shared_words(words, query)
        results[number] = average_precision_score(is_relevant, cosines)
    results = pd.Series(results)
    several = [len(relevant) >= 3 for relevant in ranking.relevant]
    chosen = results[several] if any(several) else results
    typical = (chosen - results.mean()).abs().idxmin()
    query = ranking.queries[typical]

    print("query       ", shorten(ranking.texts[query], 85))
    cosines = shared_words(words, query)
    by_hand = solve(cosines, ranking.relevant[typical], ranking.texts)
    assert np.isclose(by_hand, results[typical])
    print(f"average precision {by_hand:.3f}, among {len(cosines) - 1} candidates")
    print(f"mean of all {len(results)} queries: {results.mean():.3f}")

# %% [markdown]
# Shared words go a long way in such pages. All tasks of the default, and below them those of the thesis (Tables 5.3 to
# 5.5): examples and classes of heads, documents and queries of retrieval, relevant documents of a query, and the
# percentage of texts with more than 384 tokens.

# %%
columns = ["examples", "classes", "documents", "queries", "relevant_mean", "over_384"]
statistics, task_lengths = views.described_tasks(run)
here = statistics.pivot(index=["task", "split"], columns="statistic", values="value")
of_thesis = pd.concat([thesis.table("5.4"), thesis.table("5.5")])
of_thesis["classes"] = thesis.table("5.3")["classes"]
both = pd.concat({"here": here, "thesis": of_thesis}, names=["of"])
test = both[columns].xs("test", level="split").convert_dtypes()
figures.table(test, digits=1)

# %%
for number in ("4.2", "5.3", "5.4", "5.5"):
    printed = thesis.table(number).to_html(na_rep="", float_format="{:g}".format)
    display(HTML(f"<details><summary>Table {number} of the thesis</summary>{printed}</details>"))

# %% [markdown]
# Heads of the thesis learn from more examples, its retrieval has fewer queries, and the texts of half of its tasks are
# short: in AAN, OC and IMDB three quarters of them and more fit into its teacher.

# %%
of_tests = task_lengths[task_lengths["split"] == "test"]
ax = figures.axes(2.4)
plot_shares(of_tests, "task", ax)
ax.axvline(limit, color=figures.GREY, linestyle="--")
run.save_figure(ax, "tasks", of_tests)

# %% [markdown]
# Only what lies right of the dashed line can show what a long context is worth (Figure 5.2).
#
# ## How scores are compared
#
# A **normalised score** is a score divided by the best of all models on the same task, so that easy and hard tasks weigh
# alike in a mean. Here are those of the thesis' Table 5.7, for heads that learn from all examples. *only-MSE* learns
# from SBERT alone, *MSE-contextual* from DM, too, and *cosine-masked* from SBERT and PV with a mask.

# %%
from docemb_lib.evaluation.scoreboard import normalised


def normalise(scores):
    """Each score (models x tasks) divided by the best of its task."""
    return scores / scores.max()


published = thesis.published("table_5_7").query("metric == 'accuracy' and round == 'all'")
scores = published.pivot(index="model", columns="task", values="value")
ours = normalise(scores)
library = normalised(published).pivot(index="model", columns="task", values="normalised")
pd.testing.assert_frame_equal(ours, library)
ours["mean"] = ours.mean(axis=1)
ours.sort_values("mean", ascending=False).round(3)

# %% [markdown]
# **In the thesis itself SBERT (.969), which reads 384 tokens, leads all students** (the best has .962) once heads learn
# from all examples. With 1,000 and 10,000 examples, and in retrieval, a student leads: only-MSE, which has no contextual
# teacher (`10_chapter_5`).
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


def eighty_percent(examples):
    """So many answers, (N,), 80% of them right."""
    return (np.arange(examples) < 0.8 * examples).astype(float)


for examples in (50, 100, 500, 2000):
    answers = eighty_percent(examples)
    low, high = interval(answers)
    print(f"80% of {examples:5,} examples: .800 [{low:.3f}, {high:.3f}]")
    _, *bounds = bootstrap_over_tasks([answers[None]])
    assert np.allclose([low, high], np.ravel(bounds))

# %% [markdown]
# Two models that differ by .03 cannot be told apart by 100 examples, if each has its own. Later chapters therefore test
# both models on the same ones (`06_evaluation` defines the test).
#
# A **claim** of the thesis is a list of differences. The p-values of their tests are corrected for their number (Holm).

# %%
from docemb_lib.evaluation.uncertainty import holm
from docemb_lib.thesis.claims import verdict


def decide(differences, p):
    """The verdict on a claim whose differences should all be positive."""
    significant = holm(p) < 0.05
    if any(significant & (differences < 0)):
        return "does not hold"
    return "holds" if all(significant) else "undecided"


cases = (0.01, 0.02), (0.01, 0.30), (-0.01, 0.02)  # the second difference and its p-value
for difference, p in cases:
    case = np.array([0.02, difference]), np.array([0.01, p])
    decision = decide(*case)
    assert decision == verdict(*case)
    print(*case, decision)

# %% [markdown]
# A claim holds only if each of its differences is shown, and it fails if the reverse of one is.
#
# **Shortcuts.** Pages of a package look alike: a layout, a phrase or a length may betray the package, and a shared name
# the related page, without any understanding. Models that count words (`06_evaluation` has several) show how far this
# goes.
#
# ## What was found

# %% tags=["found"]
from docemb_lib.evaluation.scoreboard import p_value
from docemb_lib.thesis.comparison import LINES

held_out = splits["tasks"]["n_structural_tokens"]
of_teacher = np.minimum(tokens, limit).sum() / tokens.sum()
_, p = mannwhitneyu(held_out, tokens)  # two-sided, of ranks
relation = "not shown to be longer or shorter than"
if p < 0.05:
    relation = "longer than" if held_out.median() > tokens.median() else "shorter than"
of_tests = test.loc["here"]
of_tasks = of_tests["examples"].fillna(of_tests["queries"])
examples = int(of_tasks.min())
low, high = interval(eighty_percent(examples))
sentences = [
    f"{beyond:.0%} of the {len(tokens)} training documents are longer than the {limit} tokens that",
    f"the structural teacher reads; their beginnings hold {of_teacher:.0%} of all text.",
    f"The {len(held_out)} documents of the tasks are {relation} those of training (median",
    f"{held_out.median():.0f} tokens against {tokens.median():.0f}, {p_value(p)}), and",
    f"{(held_out > limit).mean():.0%} are beyond the teacher: these can show what a long context",
    f"is worth. The smallest task has {examples} test examples, from which a score of .800 is",
    f"known to [{low:.3f}, {high:.3f}].",
]
print(LINES.fill(" ".join(sentences)))

# %% [markdown]
# ## Conclusion

# %% tags=["conclusion"]
n_student = splits["train"]["n_student_tokens"]
max_tokens = run.profile.student.max_tokens
of_student = np.minimum(n_student, max_tokens).sum() / n_student.sum()
print(f"The student, with {max_tokens} tokens, reads {of_student:.0%} of the text,", end=" ")
print(f"the structural teacher {of_teacher:.0%}: the difference is what there is to gain.")

# %%
numbers = {
    "corpus_documents": len(every),
    "train_documents": len(tokens),
    "mean_tokens": n_student.mean(),
    "beyond_structural_pct": 100 * beyond,
}
run.finish(numbers)

# %% [markdown]
# ## Try it
#
# * `limit = 510` below the first page, ten seconds: how much of the text would a teacher of 512 tokens still miss?
# * `SENTENCE = "Returns a new array."`, ten seconds: does a sentence that is at home everywhere move as far?
# * `TfidfVectorizer(use_idf=False)`, ten seconds: what do frequent words do to the precision?
#
# ## References
#
# * D. Burian: *Document embedding using Transformers*. Master thesis, Institute of Formal and Applied Linguistics,
#   Charles University, Prague 2023 (chapter 1, Tables 4.1, 4.2, 5.1, 5.3 to 5.7).
# * B. Efron and R. J. Tibshirani: *An Introduction to the Bootstrap*. Chapman and Hall, 1993.
# * S. Holm: *A Simple Sequentially Rejective Multiple Test Procedure*. Scandinavian Journal of Statistics 1979.
#
# `docemb init FOLDER` writes a profile for documents of your own. `02_paragraph_vector` fits contextual teachers.
