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
# # 06 · The students on the test splits
#
# Is the student better than the model that it started from, and better than both of its teachers? What does the second
# teacher add, and does the student read a document to its end? The students of notebooks 03 to 05 are scored on the test
# splits, beside their teachers and beside what anybody has without training; paired tests on the same examples decide.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents and of the projections' initial weights
structural_loss = "profile"  # mse, cosine, max-margin, contrastive; None: contextual only
distance = "profile"  # inside max-margin: mse or cosine
gamma = "profile"  # inside max-margin: weight of the negatives, from 0
temperature = "profile"  # inside contrastive: cosines are divided by it; None: they are not
contextual_teacher = "profile"  # DM, DBOW, PV (both side by side), LSA; None: structural only
contextual_loss = "profile"  # soft-cca, soft-cca:covariance, mse, cosine, infonce, cca
delta = "profile"  # inside soft-cca: weight of the decorrelation, from 0; balance: both terms equally large
beta = "profile"  # inside soft-cca: memory of its running covariance, from 0 and below 1
student_projection = "profile"  # e.g. 768(ReLU,drop0.1,norm)x1024; must end as wide as the contextual one
contextual_projection = "profile"  # the same for the teacher's side; - is the identity
lam = "profile"  # λ, weight of the structural loss in [0, 1]; None: the plain sum of both
lam_by_length = "profile"  # "linear:FIRST:LAST": λ falls from FIRST to 0 at LAST structural tokens; None: it does not
max_structural_len = "profile"  # mask documents of more structural tokens, special ones included; None: no mask
weighting = "profile"  # of the contextual loss: complement is 1 - λ; structural is 1, as in drafts of the thesis
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
import numpy as np
import pandas as pd

# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import Student, begin, figures, thesis, views, widgets

figures.use_style()
run = begin("06_evaluation", globals())
thesis.settings(run)

# %%
print(views.taught(run))  # trains the student, unless it is there already

# %% [markdown]
# The loss says how near the student is to its teachers. Whether it is of use, tasks decide. Those with labels train a
# logistic regression on frozen embeddings; [10](10_chapter_5.ipynb) has the small network of the thesis in its place,
# and what that reads beside the meaning of a document.
#
# ## Mean average precision
#
# Retrieval trains nothing. All documents are ranked by their cosine with a query, and each relevant one that is met at
# rank $r$ counts the share of relevant ones among the first $r$.

# %%
def average_precision(X, candidates, query, relevant):
    """The mean precision at the ranks of the relevant rows. X: (N, D) of unit length.

    candidates: the rows that can be retrieved, in the order of ties.
    """
    cosines = X[candidates] @ X[query]
    order = np.argsort(-np.round(cosines, 12), kind="stable")
    ranking = candidates[order]
    hits = np.isin(ranking[ranking != query], relevant)
    ranks = np.arange(1, len(hits) + 1)
    precision = np.cumsum(hits) / ranks
    return precision[hits].mean(), precision, hits


# %%
from docemb_lib.evaluation.retrieval import unit
from docemb_lib.evaluation.tasks import Retrieval

tasks = [run.scorer.task(name) for name in run.profile.evaluation.tasks]
rankings = [task for task in tasks if isinstance(task, Retrieval)]
whole = [task for task in rankings if not any(task.splits["test"].missing)]
for task in whole[:1]:
    data = task.splits["test"]
    candidates = np.argsort(data.pool)[::-1]  # of equally near ones the last id comes first
    row_of = {id: row for row, id in enumerate(task.documents("test"))}
    embeddings = run.model.embed(task.texts("test"))
    rows = [row_of[id] for id in data.ids]
    X = unit(embeddings[rows])
    examples = list(zip(data.queries, data.relevant, strict=True))
    of_queries = [average_precision(X, candidates, *example) for example in examples]
    values = [value for value, _, _ in of_queries]

    print(f"{task.name}: X {X.shape}; three queries have {np.round(values[:3], 3)},")
    print(f"and the mean of all {len(values)}, MAP, is {np.mean(values):.4f}")
    of_library = task.score(embeddings).mean
    assert np.isclose(np.mean(values), of_library, atol=1e-6)

    value, precision, hits = max(of_queries, key=lambda each: each[2].sum())
    ranks = np.flatnonzero(hits) + 1
    ax = figures.axes(2.0)
    every_rank = np.arange(len(hits)) + 1
    ax.plot(every_rank, precision, color=figures.GREY)
    ax.plot(ranks, precision[hits], "o")
    ax.set_xlim(0, ranks[-1] + 10)
    ax.set(xlabel="rank", ylabel="precision")
    ax.set_title(f"one query: average precision {value:.3f}")
    run.save_figure(ax, "precision")

# %% [markdown]
# The average precision is the mean height of the points: an early relevant document counts for most.
#
# ## A paired test
#
# Two models answer the same examples. If they were equally good, each example's two results could as well be swapped,
# which changes the sign of their difference. The p-value is the share of random swaps with a sum as extreme as that
# observed, which counts as a swap.

# %%
def paired_test(differences, permutations=9999):
    """The two-sided p-value, and the mean difference after each swap. differences: (N,)."""
    N = len(differences)
    draw = np.random.default_rng(1)
    sums = []
    for _ in range(permutations):
        signs = draw.choice([-1, 1], N)
        sums.append(signs @ differences)
    observed = abs(differences.sum()) - 1e-9 * N  # rounding is no difference
    extreme = np.abs(sums) >= observed
    p = (1 + extreme.sum()) / (1 + permutations)
    return p, np.array(sums) / N


# %%
from docemb_lib.evaluation.uncertainty import paired_p_values

final = run.evaluate()
scores = views.recorded(run, final)  # by short name, with the answer to each example
names = figures.short_names(run)
student = names[final.student]
sbert = names["SBERT truncated"]
task = run.profile.evaluation.tasks[-1]
of_student = scores[student][task].of_examples()
difference = of_student - scores[sbert][task].of_examples()
p, swapped = paired_test(difference)
(of_library,) = paired_p_values(difference[None])
print(f"{task}: {student} minus {sbert} on three of {len(difference)} examples {difference[:3]},")
print(f"in the mean {difference.mean():+.4f}; p {p:.4f}, by the library {of_library:.4f}")
error = np.sqrt(p * (1 - p) / len(swapped))  # of a share of random swaps
assert abs(p - of_library) < 6 * error + 1e-3

# %%
ax = figures.axes(2.0)
ax.hist(swapped, bins=50)
ax.axvline(difference.mean(), color=figures.PALETTE["structural"])
ax.set(xlabel=f"{task}: {student} minus {sbert}, after random swaps", ylabel="swaps")
run.save_figure(ax, "paired-test")

# %% [markdown]
# The line is the difference that was observed. Where it stands among the swaps, it could be chance; outside of them,
# the models differ. Several tests are corrected for their number (Holm). Scores have [95% intervals](01_corpus.ipynb),
# and two that overlap do not show models to be equal.
#
# ## Every model on every task
#
# The student; the other students that are recorded from as many documents; where it started from; its teachers; SBERT
# over all chunks of a document, the common practice; LSA, which is fitted on the texts of each task without their
# labels; and the best of all models that were scored. `final.board` has all of these.

# %%
from docemb_lib.evaluation.scoreboard import interval_board, over_tasks
from docemb_lib.evaluation.uncertainty import score_intervals

deciding = final.deciding(run.parameters["contextual_teacher"])  # labels
students = [name for name in scores if name not in names.values()]
shown = [*students, *(names[label] for label in deciding)]
intervals = score_intervals({name: scores[name] for name in shown})
means = over_tasks(intervals).set_index("model")["value"]
interval_board(intervals)

# %% [markdown]
# Rows are in the order of their means, and a mean hides much: look for models that are far ahead on one task and behind
# on another.
#
# ## The student beside each of them
#
# How far is the student ahead of each of these models?

# %% tags=["picture"]
from docemb_lib.evaluation.uncertainty import OVERALL

tests = final.comparison.query("model == @final.student and reference in @deciding")
in_the_mean = over_tasks(tests).set_index("reference")
kinds = final.models.set_index("model")["kind"]
rows = tests[tests["task"] != OVERALL]
reference = rows["reference"]
rows = rows.assign(value=rows["difference"])
rows["model"] = reference.map(names)
rows["kind"] = reference.map(kinds)
rows["verdict"] = reference.map(in_the_mean["verdict"])
figure = figures.plot_rows(rows)
for ax in figure.axes:
    ax.axvline(0, color=figures.GREY, linewidth=0.8)
    ax.set_xlabel(f"{student} minus the model of the row")
run.save_figure(figure, "differences", tests)

# %% [markdown]
# Right of zero the student is better than the model of the row, left of it worse. Points are the mean difference over
# tasks with its 95% interval, filled where the test of the mean, corrected for their number, shows a difference; small
# marks are the tasks. In the table a word stands where a test shows a difference.

# %%
from docemb_lib.evaluation.scoreboard import test_board

tests = figures.named(tests, names)
test_board(tests)

# %% [markdown]
# ## With longer documents?
#
# SBERT reads the beginning of a document, the student more of it. If the longer context is what helps, then the student
# is the further ahead of its teacher, the longer a document is. The length is that of the longest document of an
# example: in retrieval, of the query and of the documents to find.

# %%
from itertools import pairwise

from docemb_lib.evaluation.uncertainty import bootstrap_over_tasks


def by_length(results, lengths, edges=(256, 512, 1024, 2048, 4096), least=10):
    """The mean result of examples by length, both (N,), with 95% intervals.

    Buckets end at those edges that leave `least` examples or more on either side, up to the edge before.
    """
    ends = [0]
    for edge in edges:
        longer = (lengths > edge).sum()
        between = (lengths > ends[-1]).sum() - longer
        if min(between, longer) >= least:
            ends.append(edge)
    names = [f"{low + 1}-{high}" for low, high in pairwise(ends)]
    names.append(f"> {ends[-1]}")
    bucket_of = np.searchsorted(ends[1:], lengths)
    rows = []
    for number, name in enumerate(names):
        chosen = results[bucket_of == number]
        interval = bootstrap_over_tasks([chosen[None]])[:, 0]
        rows.append((name, len(chosen), *interval))
    return pd.DataFrame(rows, columns=["bucket", "examples", "value", "low", "high"])


def longest(task, tokens):
    """The tokens of the longest document of each test example; of a query also those to find."""
    length_of = dict(zip(task.documents("test"), tokens, strict=True))
    data = task.splits["test"]
    of_columns = [[length_of[id] for id in column.ids] for column in data.columns]
    lengths = np.max(of_columns, axis=0)
    if not isinstance(task, Retrieval):
        return lengths
    examples = zip(data.queries, data.relevant, strict=True)
    longest_of = [max(lengths[[query, *found]]) for query, found in examples]
    return np.array(longest_of)


# %% [markdown]
# The test of the trend takes the slope of the differences over the logarithm of the length, and compares it with the
# slopes after random shuffles of the lengths. Over several tasks it takes the mean of their slopes.

# %%
def trend_test(tasks, permutations=9999):
    """The change of a difference with each doubling of the length, and its two-sided p-value.

    tasks: of each task the differences of its examples and their lengths, both (N,).
    """
    draw = np.random.default_rng(1)
    observed = 0
    shuffled = np.zeros(permutations)
    for gains, lengths in tasks:
        doublings = np.log2(lengths)
        doublings = doublings - doublings.mean()
        weights = doublings / (doublings @ doublings) / len(tasks)  # their sum is a slope
        observed += weights @ gains
        shuffled += [draw.permutation(weights) @ gains for _ in range(permutations)]
    extreme = np.abs(shuffled) >= abs(observed) - 1e-9
    return observed, (1 + extreme.sum()) / (1 + permutations)


# %%
frames = []
ahead_of_sbert = {}
for task in tasks:
    tokens = run.teachers.structural.count_tokens(task.texts("test"))
    lengths = longest(task, np.array(tokens))
    of_sbert = scores[sbert][task.name].of_examples()
    for name, kind in ((student, "student"), ("SBERT-chunks", "sbert-chunks")):
        ahead = scores[name][task.name].of_examples() - of_sbert
        frame = by_length(ahead, lengths).assign(task=task.name, metric="mean")
        frames.append(frame.assign(model=name, kind=kind))
        if name == student:
            ahead_of_sbert[task.name] = (ahead, lengths)
lengthwise = pd.concat(frames, ignore_index=True)

# %%
by_task = lengthwise.groupby("task", sort=False)
height = 0.4 + 1.7 * len(by_task)
axes = figures.axes(height, rows=len(by_task), squeeze=False)
for ax, each in zip(axes.flat, by_task, strict=True):
    task, of_task = each
    figures.plot_lines(of_task, x="bucket", ax=ax)
    ax.axhline(0, color=figures.GREY, linewidth=0.8)
    ax.set(title=task, ylabel=f"minus {sbert}")
ax.set_xlabel("length in tokens of the structural teacher")
run.save_figure(ax, "by-length", lengthwise)

# %%
from docemb_lib.evaluation.scoreboard import p_value

for name, part in ahead_of_sbert.items():
    slope, p_trend = trend_test([part])
    print(f"{name}: {slope:+.3f} with each doubling of the length ({p_value(p_trend)})")
slope, p_trend = trend_test([*ahead_of_sbert.values()])
print(f"in the mean over tasks: {slope:+.3f} ({p_value(p_trend)})")

# %% [markdown]
# A line that rises, with a small p-value, is what a longer context looks like; SBERT over chunks reads everything. The
# mean decides: single tasks have few long documents.
#
# ## Longer context, or other supervision?
#
# The thesis explains by both that students are better than SBERT: they read more, and they were taught otherwise
# (section 4.4). The same student, cut at the tokens that SBERT reads, separates the two. Nothing is trained.

# %%
import logging

from docemb_lib.runs.embeddings import Embedder
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import Model

limit = run.profile.structural_teacher.max_tokens or run.profile.student.max_tokens


def embed_beginnings(texts):
    """Embed texts by the student, cut at the tokens that SBERT reads."""
    logging.getLogger("docemb_lib.student").setLevel("ERROR")  # it warns of texts that are cut
    trained = Student.load(run.student)
    trained.tokenizer.model_max_length = limit
    return trained.embed(texts)


cut_name = f"{student} cut at {limit}"
embedder = Embedder(cut_name, f"{run.model.fingerprint}/{limit} tokens", embed_beginnings)
cut = Model(Identity(Kind.STUDENT, name=cut_name), embedder)
by_round = run.scorer.by_round([cut])
scores |= by_round[run.scorer.largest_round]

# %%
print(views.compared(scores, student, cut_name))
print(views.compared(scores, cut_name, sbert))

# %% [markdown]
# The first sentence is the worth of the longer context. In the second both models have read the same words, but the
# student has been taught otherwise, and where the profile leaves out layers, it has fewer of them.
#
# ## Does it read the end?
#
# `ending` is how far a document moves when its last fifth is exchanged for another, divided by how far it moves for its
# first fifth: 0 where a model does not read the end, 1 where both count alike. The last column is the mean of the board;
# [05](05_weighting.ipynb) shows which teacher keeps a student reading.

# %%
from docemb_lib.evaluation.scoreboard import with_interval
from docemb_lib.settings.labels import student_name

read = [*views.students_of_runs(run).values(), run.untrained]
for model in run.references:
    if isinstance(model.embedder, Embedder) and model.label in deciding:
        read.append(model)
versions = views.documents_to_read(run)
endings = views.endings(read, versions).rename(names)
endings = endings.sort_values("ending")
said = {name: with_interval(*row) for name, *row in endings.itertuples()}
table = pd.DataFrame({"mean": means, "ending": said})
figures.table(table.loc[endings.index])

# %% [markdown]
# SBERT has not seen the end, so that a student which matches it by the cosine learns to disregard the end; max-margin,
# by which it matches loosely, asks for less. Reading to the end is no quality by itself: what comes first is often what
# a document is about.
#
# ## Who is near whom
#
# Do the truncated teacher's neighbours resemble only the beginning of a document, and which neighbours are right (✓)?

# %%
widgets.neighbour_browser(widgets.neighbourhoods_of(run))

# %% [markdown]
# ## Shortcuts
#
# Where a student starts from layers of its structural teacher, as in the embedded default, it is near to this teacher
# before it has learnt anything: compare it with its start. LSA has seen the texts of a task, without labels, and counts
# their words, and pages of one package share words. P-values speak of other examples, not of other seeds of the training
# ([05](05_weighting.ipynb) has both). Whoever chooses among students by this board has used up the test splits.
#
# ## Try it
#
# - `contextual_teacher = None`: half a minute; without its second teacher, is the student still better than SBERT?
# - `lam = 0.5`, `max_structural_len = 256`: half a minute; does the ending count more, and which task pays for it?
# - `limit = 64` in the cell that cuts: ten seconds; how many tokens does the student need to be as good as with all?
#
# ## What was found

# %% tags=["found"]
from docemb_lib.evaluation.scoreboard import UNCLEAR, WORSE, listed, told, told_of_means
from docemb_lib.evaluation.uncertainty import differences, verdicts
from docemb_lib.thesis.comparison import LINES


def against(name, reference):
    """The paired tests of a model against another, see `verdicts`."""
    both = {each: scores[each] for each in (name, reference)}
    return verdicts(differences(both, reference))


p = run.profile.parameters
teachers = [final.label(Kind.SBERT_TRUNCATED), final.label(p.contextual_teacher)]
asked = [names[label] for label in (final.before, *teachers) if label is not None]
of_asked = told_of_means(tests[tests["reference"].isin(asked)])
print(LINES.fill(f"{student}, this student, is in the mean {of_asked}."), end="\n\n")
ahead = in_the_mean.index[in_the_mean["verdict"] == WORSE].map(names)
if len(ahead):
    print(LINES.fill(f"It is worse than {listed(ahead)}."), end="\n\n")
if len(run.roles) == 2:
    structural = p.model_copy(update={"contextual_teacher": None, "max_structural_len": None})
    alone = student_name(structural)
    masked = student_name(p.model_copy(update={"max_structural_len": limit}))
    print(views.compared(scores, student, alone), end="\n\n")
    if {alone, masked} <= {*scores}:
        of_mask = against(masked, alone)
        shown = told(of_mask[of_mask["verdict"] != UNCLEAR])
        said = f"Beside {alone}, {masked} is {shown or 'not shown to differ'}."
        print(LINES.fill(said), end="\n\n")
beyond = over_tasks(against(student, cut_name)).iloc[0]
worth = f"{beyond['difference']:+.3f} ({p_value(beyond['p'])})"
end = with_interval(*endings.loc[names[run.model.label]])
start = with_interval(*endings.loc["start"])
said = f"What {student} reads beyond the first {limit} tokens is worth {worth}, and with each doubling"
said += f" of the length it gains {slope:+.3f} on {sbert} ({p_value(p_trend)}); the end of a document"
said += f" counts {end} times as much as the beginning (before training {start})."
said = said.replace("+0.", "+.").replace("-0.", "-.")
print(LINES.fill(said))

# %% [markdown]
# ## This run beside all references

# %% tags=["conclusion"]
print(thesis.conclusion(run, final))
layers = run.profile.student.layers
if layers is not None:
    said = f"The students of this profile are small on purpose ({len(layers)} layers, {p.documents:,}"
    said += " documents); `docemb adapt` makes one from a whole encoder for documents of your own."
    print(LINES.fill(said))

# %%
print(run.record_scores(final))

# %% [markdown]
# [`10_chapter_5`](10_chapter_5.ipynb) puts all recorded students beside chapter 5 of the thesis.
#
# **References.** D. Burian: *Document embedding using Transformers*. Master thesis, Institute of Formal and Applied
# Linguistics, Charles University, Prague 2023 (chapter 5). Dror et al. (2018), *The hitchhiker's guide to testing
# statistical significance in natural language processing*. Holm (1979), *A simple sequentially rejective multiple test
# procedure*.
