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
# Which student is better than its start, its teachers, and what a user has without training? Students that notebooks 03
# to 05 have trained are scored on the test splits: chapter 5 of the thesis.

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
from pathlib import Path

from IPython.display import Markdown, display

# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import Student, begin, figures, thesis, views, widgets

figures.use_style()
run = begin("06_evaluation", globals())
thesis.settings(run)

# %% [markdown]
# ## The student
#
# A student that is trained already is loaded.

# %%
train_history, validation_history = run.history()  # trains the student, unless it is there already
ax = figures.plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)
print(views.taught(run))

# %% [markdown]
# ## A head
#
# Embeddings stay as they are. For a task with labels, a small network, the head, learns to tell the classes from them:
# a hidden layer with dropout, and a cross-entropy with smoothed labels (Table 5.6).

# %%
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR


def new_head(D, C, head, seed):
    """From embeddings, (N, D), to a number for each class, (N, C)."""
    torch.manual_seed(seed)
    hidden = [nn.Linear(D, head.hidden), nn.ReLU(), nn.Dropout(head.dropout)]
    return nn.Sequential(*hidden, nn.Linear(head.hidden, C))


# %%
def train_head(net, X, y, head):
    """Train a head on X, (N, D), and class numbers y, (N,); yield the loss of each update."""
    optimizer = AdamW(net.parameters(), head.learning_rate, weight_decay=head.weight_decay)
    schedule = CosineAnnealingLR(optimizer, head.epochs * -(-len(X) // head.batch_size))
    for _ in range(head.epochs):
        for rows in torch.randperm(len(X)).split(head.batch_size):
            loss = F.cross_entropy(net(X[rows]), y[rows], label_smoothing=head.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), head.max_grad_norm)
            optimizer.step()
            schedule.step()
            yield loss.item()


# %% [markdown]
# It learns from at most 1,000 examples of the first such task here, the smallest round of the thesis.

# %%
import matplotlib.pyplot as plt

from docemb_lib.evaluation.heads import one_thread, train_stack
from docemb_lib.evaluation.tasks import HeadTask, Retrieval, downsample
from docemb_lib.settings.sections import HEADS

HEAD = HEADS["thesis"]
tasks = [run.scorer.task(name) for name in run.profile.evaluation.tasks]


def embeddings_of(task):
    """The embeddings of a task's documents by the student, (N, D)."""
    return run.model.embed(task.texts("test"))


# %%
with_labels = [task for task in tasks if isinstance(task, HeadTask)][:1]
for task in with_labels:
    train, test = task.head_inputs(embeddings_of(task), "test", HEAD)
    rows = downsample(train.labels, 1000)
    X = torch.tensor(train.features[rows]).float()
    y = torch.tensor(train.labels[rows])
    C = int(y.max()) + 1
    net = new_head(X.shape[1], C, HEAD, seed=0)
    with one_thread():  # faster, because a step is short
        losses = list(train_head(net, X, y, HEAD))

    print(f"{task.name}: X {tuple(X.shape)}, y {tuple(y.shape)}, logits {tuple(net(X[:3]).shape)}")
    logits = net.eval()(torch.tensor(test.features).float())
    right = logits.argmax(dim=1).numpy() == test.labels
    print(f"right {right[:3]}, accuracy {right.mean():.3f}")
    _, ax = plt.subplots(figsize=(figures.WIDTH, 2.4))
    ax.plot(losses)
    ax.axhline(np.log(C), color=figures.GREY, linestyle=":")
    ax.set(xlabel="update", ylabel="loss", title="a head learns (dotted: chance)")
    run.save_figure(ax, "head")

# %% [markdown]
# The library trains many heads at once. Without dropout, which it draws differently, both end with the same weights.

# %%
plain = HEAD.model_copy(update={"dropout": 0.0})
if with_labels:
    net = new_head(X.shape[1], C, plain, seed=0)
    for layer in (net[0], net[3]):  # a matrix of the library has a row for each input
        W = layer.weight.data
        layer.weight.data = W.view(W.T.shape).T.contiguous()
    with one_thread():
        losses = list(train_head(net, X, y, plain))
    X, y = torch.tensor(train.features).float(), torch.tensor(train.labels)
    of_library = train_stack(X, y, [(rows, 0)], plain)  # rows and a seed
    ours = [net[0].weight.T, net[0].bias[None], net[3].weight.T, net[3].bias[None]]
    for weight, stacked in zip(ours, of_library, strict=True):
        torch.testing.assert_close(weight.detach(), stacked[0], atol=1e-3, rtol=0)

# %% [markdown]
# Ten epochs of few examples are few updates, so that the accuracy stays low. Where a profile has few, its heads are
# therefore logistic regressions, the same without the hidden layer, trained to the end.
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
    ranking = candidates[np.argsort(-np.round(X[candidates] @ X[query], 12), kind="stable")]
    hits = np.isin(ranking[ranking != query], relevant)
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return precision[hits].mean(), precision, hits


# %%
rankings = [task for task in tasks if isinstance(task, Retrieval)]
for task in [task for task in rankings if not any(task.splits["test"].missing)][:1]:
    data = task.splits["test"]
    pool = data.pool  # ids; of equally near documents that with the last one comes first
    candidates = np.array(sorted(range(len(pool)), key=pool.__getitem__, reverse=True))
    row_of = {id: row for row, id in enumerate(task.documents("test"))}
    X = embeddings_of(task)[[row_of[id] for id in data.ids]].astype(np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    examples = list(zip(data.queries, data.relevant, strict=True))
    values = [average_precision(X, candidates, *example)[0] for example in examples]
    print(f"{task.name}: X {X.shape}; of three queries {np.round(values[:3], 3)}", end=", ")
    print(f"MAP of {len(values)} {np.mean(values):.4f}")
    np.testing.assert_allclose(np.mean(values), task.score(embeddings_of(task)).mean, atol=1e-6)

    most = int(np.argmax([len(rows) for rows in data.relevant]))
    value, precision, hits = average_precision(X, candidates, *examples[most])
    ranks = np.flatnonzero(hits) + 1
    _, ax = plt.subplots(figsize=(figures.WIDTH, 2.4))
    ax.plot(np.arange(1, len(hits) + 1), precision, color=figures.GREY)
    ax.plot(ranks, precision[hits], "o")
    ax.set(xlim=(0, ranks[-1] + 10), xlabel="rank", ylabel="precision")
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
    swapped = [draw.choice([-1, 1], N) @ differences for _ in range(permutations)]
    extreme = np.abs(swapped) >= abs(differences.sum()) - 1e-9 * N
    return (1 + extreme.sum()) / (1 + permutations), np.array(swapped) / N


# %%
from docemb_lib.evaluation.uncertainty import paired_p_values
from docemb_lib.runs.kinds import Kind

teacher = next(model for model in run.references if model.kind == Kind.SBERT_TRUNCATED)
*_, scores = run.scorer.by_round([run.model, teacher]).values()
task = tasks[-1]
metric = scores[run.label][task.name].metric
student, sbert = (scores[model.label][task.name].of_examples() for model in (run.model, teacher))
difference = student - sbert
p, swapped = paired_test(difference)
print(f"{task.name}: results {student.shape}; of three examples {student[:3]} − {sbert[:3]}")
(of_library,) = paired_p_values(difference[None])
print(f"difference {difference.mean():+.4f}, p {p:.4f}, by the library {of_library:.4f}")
error = np.sqrt(p * (1 - p) / len(swapped))  # of a share of random swaps
assert abs(p - of_library) < 6 * error + 1e-3

# %%
_, ax = plt.subplots(figsize=(figures.WIDTH, 2.4))
ax.hist(swapped, bins=50)
ax.axvline(difference.mean(), color=figures.PALETTE["structural"])
ax.set(xlabel=f"{task.name}, {metric}: student minus {teacher.label}", ylabel="swaps")
run.save_figure(ax, "paired-test")

# %% [markdown]
# A difference (line) among the swaps could be chance. The library corrects p for the number of tests (Holm).
# Scores have [95% intervals](01_corpus.ipynb); two that overlap do not show models to be equal.
#
# ## Every model on every task
#
# Rows are the student, its start, its teachers and the models that the conclusion names.

# %%
all_rows = False  # True: also other references, and the student in its other forms

final = run.evaluate()
names = figures.short_names(run)
said = thesis.conclusion(run, final)
named = " ".join(said.split())
teachers = {Kind.UNTRAINED, Kind.SBERT_TRUNCATED, run.parameters["contextual_teacher"]}
rows = [final.student]
for model, kind in zip(final.models["model"], final.models["kind"], strict=True):
    is_named = kind != Kind.STUDENT and (kind in teachers or model in named)
    if is_named or all_rows:
        rows.append(model)


def only_rows(frame):
    """The rows of the models that are compared here, with their names in figures."""
    return figures.named(frame[frame["model"].isin(rows)], names)


board = final.board
only_rows(board.reset_index()).set_index(board.index.names)

# %%
figure = figures.plot_rows(only_rows(final.last), panel="task")
run.save_figure(figure, "tasks", final.last)

# %% [markdown]
# Blue is the student, grey its start, orange SBERT, green and pink what counts words.

# %%
comparison = only_rows(final.comparison)
figure = figures.plot_differences(comparison, reference=names[final.practice])
run.save_figure(figure, "differences", final.comparison)

# %%
columns = ["reference", "difference", "low", "high", "p", "p_holm", "verdict"]
tests = final.beside_references
figures.table(tests.loc[tests["reference"].isin(rows), columns], names, digits=4)

# %%
section = "The other metrics of retrieval: MAP decides, and `all_rows = True` shows these."
further = only_rows(final.further_board.reset_index()).set_index("model")
figures.table(further if all_rows else further.head(0), section=section)

# %%
from itertools import pairwise

from docemb_lib.evaluation.uncertainty import bootstrap_over_tasks


def by_length(results, lengths, edges=(256, 384, 512, 1024, 2048, 4096), least=10):
    """The score of examples by length, both (N,), with 95% intervals.

    Buckets end at those edges that leave `least` examples or more on either side, up to the edge before.
    """
    ends = [0]
    for edge in edges:
        sides = ((lengths > ends[-1]) & (lengths <= edge), lengths > edge)
        if min(side.sum() for side in sides) >= least:
            ends.append(edge)
    names = [f"{low + 1}-{high}" for low, high in pairwise(ends)] + [f"> {ends[-1]}"]
    rows = []
    for number, name in enumerate(names):
        chosen = results[np.searchsorted(ends[1:], lengths) == number]
        rows.append((name, len(chosen), *bootstrap_over_tasks([chosen[None]])[:, 0]))
    return pd.DataFrame(rows, columns=["bucket", "examples", "value", "low", "high"])


def longest(task, tokens):
    """The tokens of the longest document of each test example; of a query also those to find."""
    length_of = dict(zip(task.documents("test"), tokens, strict=True))
    data = task.splits["test"]
    lengths = np.max([[length_of[id] for id in column.ids] for column in data.columns], axis=0)
    if not isinstance(task, Retrieval):
        return lengths
    examples = zip(data.queries, data.relevant, strict=True)
    return np.array([lengths[[query, *found]].max() for query, found in examples])


# %%
section = """**By length.** Where the truncated teacher is worse than the student on long documents
and not on short ones, the longer context makes the difference. The length is that of the longest
document of an example: in retrieval, of the query and the documents to find."""
plain = (Kind.UNTRAINED, Kind.SBERT_TRUNCATED, Kind.SBERT_CHUNKS)
of_plain = [model for model in run.references if model.kind in plain and model.form == "saved"]
compared = [final.model(final.student), *of_plain]
*_, scores = run.scorer.by_round(compared).values()
frames = []
for task in tasks:
    tokens = run.teachers.structural.count_tokens(task.texts("test"))
    lengths = longest(task, tokens)
    for model in compared:
        score = scores[model.label][task.name]
        frame = by_length(score.of_examples(), lengths)
        described = {"task": task.name, "metric": score.metric, "kind": model.kind.value}
        frames.append(frame.assign(model=model.label, **described))
lengthwise = figures.named(pd.concat(frames, ignore_index=True), names)
if lengthwise["bucket"].nunique() > 1:
    display(Markdown(section))
    by_task = lengthwise.groupby("task", sort=False)
    size = (figures.WIDTH, 2.6 * len(by_task))
    figure, axes = plt.subplots(len(by_task), figsize=size, squeeze=False)
    for ax, (task, rows_of_task) in zip(axes.flat, by_task, strict=True):
        figures.plot_lines(rows_of_task, x="bucket", ax=ax).set_title(task)
    ax.set_xlabel("length in tokens of the structural teacher")
    run.save_figure(figure, "by-length", lengthwise)

# %% [markdown]
# ## Who is near whom
#
# Select a long document: do the truncated teacher's neighbours resemble only its beginning, and which are right?

# %%
neighbourhoods = widgets.neighbourhoods_of(run)
widgets.neighbour_browser(neighbourhoods)

# %% [markdown]
# *Why* are the first document and its nearest one near? Their cosine is the sum of all pairs of passages and of all
# words. A passage counts by its states in context; the mean that centres is spread over tokens and words. The greatest
# contributions:

# %%
from textwrap import shorten

student = Student.load(run.student)
if student.pooling in ("mean", "lead"):  # others average no states
    pool = neighbourhoods.pool(neighbourhoods.tasks[0])
    of_student, *_ = pool.neighbours(0, 1).values()
    parts = student.explain(pool.texts[0], pool.texts[of_student.index[0]]).head(10)
    for side in ("of A", "of B"):
        parts[side] = [shorten(text, 120, placeholder=" …") for text in parts[side]]
    display(figures.table(parts))

# %% [markdown]
# ## Conclusion

# %% tags=["conclusion"]
print(said)

# %%
folder = run.link_student(final.scores)  # its model card has the scores
if final.adapted is None:
    print(f"{folder} holds the student in the form that is scored above.")
else:
    print(f"{folder} holds the student with words of the corpus; scored above is the adapted one,")
    print("with words of a task's texts, which `docemb adapt` gives you for your own documents.")
print("Tables and figures:", Path(run.figures[0]).parent)

# %% [markdown]
# [`10_chapter_5`](10_chapter_5.ipynb) puts all recorded students beside chapter 5 of the thesis.
#
# **References.** D. Burian: *Document embedding using Transformers*. Master thesis, Institute of Formal and Applied
# Linguistics, Charles University, Prague 2023 (chapter 5). Dror et al. (2018), *The hitchhiker's guide to testing
# statistical significance in natural language processing*. Holm (1979), *A simple sequentially rejective multiple test
# procedure*.

# %%
run.finish(run.metrics(final.scores), scores=final.scores, student=folder, tables=final.tables)
