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
# # 09 · Your own documents
#
# What is in this collection of long documents, and is the student that `docemb adapt` makes of it worth having? Name a
# folder or a data file and run all cells: neighbours of a text, groups with their words, a map, related documents, and
# where there are links or labels, scores beside what needs no student. Nothing is trained, and
# [08_adapt](08_adapt.ipynb) makes the same student step by step. Without a name the collection is installed
# documentation.

# %% tags=["parameters"]
path = None  # a folder of .txt/.md files, or a .jsonl, .csv, .tsv or .parquet file; None: installed documentation
text_field = "text"  # the field of a data file that holds the text; several: a list of names
id_field = None  # the field of a data file that holds the id; None: id, _id, …, or the number of the row
documents = 300  # most documents, drawn at random with those that they refer to; None: all
links = None  # a file with two ids a line: documents that should find each other
label = "source"  # a column that groups documents: the folder, the package, or a field of a data file
encoder = "all-MiniLM-L6-v2"  # a short encoder, which is adapted anew: a folder or a hub id
adapted = None  # the folder of a student that `docemb adapt` has made, in place of adapting the encoder
groups = 10  # how many groups the documents are sorted into
query = "fit a straight line to noisy points"  # any text, short or long
seed = 0  # of the draw, the map and the groups
save_to = None  # a new folder for the student; None: it is not saved

# %%
# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import Student, figures
from docemb_lib.base.progress import log_to_notebook

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import display

figures.use_style()
log_to_notebook()

# %% [markdown]
# ## Read

# %%
from docemb_lib.corpus.installed_docs import installed_docs
from docemb_lib.corpus.reader import Reading, local_documents, read_rows
from docemb_lib.evaluation.judged import read_links


def read():
    """A row for each document: id, text, source, see_also, and further fields of a data file."""
    if path is None:
        return pd.DataFrame(installed_docs(["networkx", "numpy", "pandas", "scipy", "sklearn"]))
    file = Path(path)
    rows = pd.DataFrame(local_documents(file, text_field=text_field, id_field=id_field))
    if links is not None:
        grades = read_links(Path(links), {*rows["id"]})
        linked = [tuple(grades.get(id, ())) for id in rows["id"]]
        rows["see_also"] = linked
    if file.is_file():
        fields = pd.DataFrame([row.fields for row in read_rows(file, Reading())])
        further = fields.columns.difference([*rows, id_field])
        rows = rows.join(fields[further])
    return rows


# %%
def draw(rows, count):
    """`count` rows at random, each followed by those to which it refers; first those that refer to others."""
    see_also = dict(zip(rows["id"], rows["see_also"], strict=True))
    drawn = {}  # in the order in which they are drawn
    for id in rows["id"].sample(frac=1, random_state=seed):
        linked = [other for other in see_also[id] if other in see_also]
        drawn |= dict.fromkeys([id, *linked])
    ids = list(drawn)[:count]
    among = set(ids)
    ids.sort(key=lambda id: among.isdisjoint(see_also[id]))
    by_id = rows.set_index("id", drop=False)
    return by_id.loc[ids].reset_index(drop=True)


everything = read()
different = everything.drop_duplicates("text")
collection = draw(different, documents or len(different))
texts = collection["text"].tolist()
repeated = len(everything) - len(different)
what = f"{repeated} with an earlier one's text left out, {len(texts)} taken"
print(f"{len(everything)} documents read, {what}")

# %% [markdown]
# ## Adapt
#
# The encoder becomes a student that reads 4,096 tokens; the beginning of a document counts more in its mean, and a half
# fitted on the words of the collection stands beside it. `adapted` names a student for which this is done; what `docemb
# adapt` has read is not read again.

# %%
from docemb_lib.runs.models import student_embeddings
from docemb_lib.student.export import encoder_pooling
from docemb_lib.teachers import LSA, SBERT

if adapted is None:
    pooling = encoder_pooling(encoder).replace("mean", "lead")
    student = Student.from_encoder(encoder, pooling=pooling, attention_window=256)
    student.adapt(texts)
    Y = student.embed(texts)
else:
    student = Student.load(adapted)
    Y = student_embeddings(Path(adapted), texts)
if save_to is not None:
    student.save(save_to)
share = float(student.words.weight)
print(f"embeddings {Y.shape}, of which {student.dim} columns are the encoder's", end="; ")
print(f"{share:.2f} of a cosine comes from the words")

# %%
sbert = SBERT(encoder, long="chunks")
encoded = student.tokenize(texts)
collection["length"] = [len(ids) for ids in encoded.sequences]
edges = np.geomspace(8, student.max_tokens + 1, 40)
orange = figures.PALETTE["structural"]
ax = figures.axes(2.4)
ax.hist(collection["length"], bins=edges)
ax.axvline(sbert.max_tokens, color=orange, label="read by the encoder at once")
ax.set(xscale="log", xlabel="tokens", ylabel="documents")
ax.xaxis.set_major_formatter("{x:,.0f}")
ax.legend()
words = sum(len(text.split()) for text in texts)
unread = sum(len(sbert.unread(text).split()) for text in texts)
read_whole = len(texts) - encoded.truncated
print(f"{unread:,} of {words:,} words ({unread / words:.0%}) never reach the encoder", end="; ")
print(f"the student reads {read_whole} of these {len(texts)} documents to their end.")

# %% [markdown]
# ## Neighbours of a text


# %%
def nearest(y, k=5):
    """The k documents of highest cosine with y, (D,); rows of Y have length 1."""
    cosines = Y @ y
    rows = np.argsort(-cosines, kind="stable")[:k]
    found = pd.DataFrame({"cosine": cosines[rows], "id": collection["id"][rows]})
    on_one_line = [" ".join(texts[row].split()) for row in rows]
    found["begins"] = [text[:80] for text in on_one_line]
    return found


print(query)
(y,) = student.embed([query])
nearest(y).style.hide().format(precision=3)

# %% [markdown]
# What do these cosines mean? Below are those of all pairs of documents, and lines for the ten documents that are
# nearest to the query. A document *stands out* if it is nearer than 99% of pairs.

# %%
first, second = np.triu_indices(len(Y), k=1)
cosines = Y @ Y.T
pairs = np.sort(cosines[first, second])


def nearer_than(cosines):
    """The share of all pairs of documents that are less near, for each cosine."""
    return np.searchsorted(pairs, cosines) / len(pairs)


ten = nearest(y, k=10)["cosine"].to_numpy()
ax = figures.axes(2.4)
ax.hist(pairs, bins=100)
for cosine in ten:
    ax.axvline(cosine, color=orange)
far_right = np.quantile(pairs, 0.99)
ax.axvline(far_right, color=figures.GREY, linestyle="--", label="99% are left")
ax.set(xlabel="cosine", ylabel="pairs of documents", yscale="log")
ax.yaxis.set_major_formatter("{x:,.0f}")
ax.legend()
shares = nearer_than(ten)
standing = f"{np.count_nonzero(shares > 0.99) or 'none'} of the {len(ten)} nearest stands out"
print(f"The nearest document is nearer than {shares[0]:.2%} of pairs: {standing}.")

# %% [markdown]
# The browser sets three models beside each other: the student, the encoder averaged over chunks (common practice
# without a student), and words alone. ✓ is a neighbour with the label of its document. Documents with links come first.

# %%
from docemb_lib.evaluation.retrieval import unit
from docemb_lib.widgets import Neighbourhoods, Pool, neighbour_browser

truncated = SBERT(encoder).embed(texts)
dim = min(100, len(texts) // 3)
lsa = LSA(dim=dim).fit(texts)
models = {"student": student, "SBERT-chunks": sbert, "LSA": lsa}
spaces = {
    "student": Y,
    "SBERT-chunks": unit(sbert.embed(texts, truncated)),  # the truncated text is the first chunk
    "LSA": unit(lsa.embed(texts)),
}
label_of = collection[label].astype(str)
labels_differ = label_of.nunique() > 1  # otherwise every neighbour were right


def judge(query, row):
    """The label of a neighbour, with a sign if that of its document can tell whether it is right."""
    if query is None or not labels_differ:
        return label_of[row]
    sign = "✓" if label_of[row] == label_of[query] else "✗"
    return f"{sign} {label_of[row]}"


def embed(text):
    embedded = {}
    for name, model in models.items():
        (embedded[name],) = model.embed([text])
    return embedded


lengths = collection["length"].to_numpy()
pool = Pool(texts, lengths, spaces, collection["id"], judge)
neighbour_browser(Neighbourhoods(["documents"], lambda task: pool, embed))

# %% [markdown]
# How many of a document's ten neighbours change if the encoder reads everything, in chunks? `docemb audit` counts them
# for any model.


# %%
def neighbours(X, k=10):
    """The rows of the k nearest documents of each, (N, k); rows of X have length 1."""
    cosines = X @ X.T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1, kind="stable")[:, :k]


of_beginning = neighbours(unit(truncated))
of_chunks = neighbours(spaces["SBERT-chunks"])
both = zip(of_beginning, of_chunks, strict=True)
changed = [len(np.setdiff1d(*rows)) for rows in both]
most = collection["id"][int(np.argmax(changed))]
print(f"{np.mean(changed):.1f} in the mean, and {max(changed)} of {most}.")

# %% [markdown]
# *Why* is a document near to the query? Their cosine is the sum of all pairs of passages, which count by their states
# in context, and of all words. The greatest contributions:

# %%
if student.pooling in ("mean", "lead"):  # others average no states
    found = nearest(y).index[0]
    contributions = student.explain(query, texts[found])
    display(contributions.head(10))

# %% [markdown]
# ## Groups
#
# A word describes a group if it is frequent there and rare elsewhere: class TF-IDF, as in BERTopic.

# %%
import regex
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import CountVectorizer

WORD = regex.compile(r"\p{L}[\p{L}\p{M}]{2,}")  # letters with their marks
counter = CountVectorizer(
    stop_words="english", tokenizer=WORD.findall, token_pattern=None, min_df=2
)


def class_tfidf(group_of, words=6):
    """The words of each group, best first. group_of: (N,), a group from 0 for each document."""
    counts = counter.fit_transform(texts)  # (N, V)
    vocabulary = counter.get_feature_names_out()
    members = group_of == np.unique(group_of)[:, None]  # (G, N)
    per_group = members.astype(float) @ counts  # (G, V)
    of_group = per_group.sum(axis=1, keepdims=True)
    frequency = per_group / np.maximum(of_group, 1)
    rarity = np.log1p(of_group.mean() / per_group.sum(axis=0))
    best = np.argsort(-frequency * rarity, axis=1)[:, :words]
    return [", ".join(vocabulary[row]) for row in best]


kmeans = KMeans(min(groups, len(texts)), n_init=10, random_state=seed)
kmeans.fit(Y)
described = class_tfidf(kmeans.labels_)
collection["group"] = [f"{group}: {described[group]}" for group in kmeans.labels_]
summary = {"documents": ("id", "size"), "example": ("id", "first")}
summary["tokens"] = ("length", "median")
collection.groupby("group").agg(**summary)

# %% [markdown]
# ## Map
#
# Near documents stay near in t-SNE; large distances mean little. Three words of each group stand at its middle; the
# outermost per cent of the documents lies outside.

# %%
from ipywidgets import Dropdown
from matplotlib.figure import Figure
from sklearn.manifold import TSNE

from docemb_lib.widgets import explore

perplexity = min(30, (len(texts) - 1) / 3)
tsne = TSNE(perplexity=perplexity, metric="cosine", init="random", random_state=seed)
plane = tsne.fit_transform(Y)  # (N, 2)
low, high = np.quantile(plane, [0.005, 0.995], axis=0)
margin = 0.05 * (high - low)
limits = np.stack([low - margin, high + margin])


def draw_map(colour):
    """The documents in the plane, coloured by a column."""
    figure = Figure(figsize=(figures.WIDTH, 4.5))
    ax = figure.subplots()
    points = collection.assign(first=plane[:, 0], second=plane[:, 1])
    figures.plot_plane(points, colour=colour, legend=colour != "group", ax=ax)
    look = {"ha": "center", "va": "center", "weight": "bold"}
    for group, words in enumerate(described if colour == "group" else ()):
        middle = np.median(plane[kmeans.labels_ == group], axis=0)
        three = words.split(", ")[:3]
        ax.text(*middle, "\n".join(three), **look)
    ax.set(xlim=limits[:, 0], ylim=limits[:, 1])
    return [figure]


fields = collection.drop(columns=["id", "text", "see_also", "length"])
values = fields.astype(str).nunique()
few = values.index[(values > 1) & (values <= 30)]
colours = sorted([*few, "length"], key=lambda name: name != "group")
explore(draw_map, colour=Dropdown(options=colours))

# %% [markdown]
# ## Related documents


# %%
def close_pairs(count=10):
    """The closest pairs of documents, copies first."""
    first, second = np.triu_indices(len(Y), k=1)
    ids = collection["id"].to_numpy()
    pairs = pd.DataFrame({"first": ids[first], "second": ids[second]})
    pairs.insert(0, "cosine", (Y @ Y.T)[first, second])
    return pairs.nlargest(count, "cosine")


close_pairs().style.hide().format(precision=3)

# %% [markdown]
# The closest pairs show what may be a copy.
#
# ## How good is it?
#
# Links and labels can answer. Related pages: are linked documents near (MAP)? The label: does a logistic regression
# find it, in five folds (accuracy)?

# %%
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from docemb_lib.evaluation import Ranking, Retrieval, Score

row_of = {id: row for row, id in enumerate(collection["id"])}
linked = []
for row, see_also in enumerate(collection["see_also"]):
    rows_of_links = {row_of[id] for id in see_also if id in row_of}
    linked.append(sorted(rows_of_links - {row}))
queries = [row for row, wanted in enumerate(linked) if wanted]
classes = collection[label].astype(str).to_numpy()
sizes = pd.Series(classes).value_counts()
labelled = np.isin(classes, sizes.index[sizes >= 10])  # two or more in each fold


# %%
def score_links(X):
    """MAP of embeddings, (N, D): each document with links is a query."""
    ranking = Ranking(texts, queries, [linked[row] for row in queries])
    return Retrieval("related pages", {"test": ranking}).score(X)


def score_labels(X):
    """The accuracy of a logistic regression on embeddings, (N, D), in five folds."""
    y = classes[labelled]
    head = LogisticRegression(C=10, max_iter=1000)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    right = cross_val_predict(head, unit(X[labelled]), y, cv=folds) == y
    return Score({"accuracy": right[None].astype(np.float32)})


scorers = {"related pages": score_links} if queries else {}
if len(set(classes[labelled])) > 1:
    scorers[label] = score_labels


# %% [markdown]
# Differences are those of the student minus another model, as `docemb evaluate` prints them, with 95% intervals and
# paired permutation tests, corrected for their number.

# %% tags=["picture"]
from docemb_lib.evaluation.scoreboard import interval_board, told
from docemb_lib.evaluation.uncertainty import differences, score_intervals, verdicts
from docemb_lib.runs.kinds import Kind

KINDS = {
    "SBERT-chunks": Kind.SBERT_CHUNKS,
    "LSA": Kind.TASK_LSA,
    f"SBERT-{sbert.max_tokens}": Kind.SBERT_TRUNCATED,
    "meaning alone": Kind.UNTRAINED,
}
compared = [*spaces.values(), truncated, Y[:, : student.dim]]
scores = {}
for name, X in zip(["student", *KINDS], compared, strict=True):
    scores[name] = {task: score(X) for task, score in scorers.items()}
if scorers:
    frames = []
    for name in KINDS:
        beside = {each: scores[each] for each in ("student", name)}
        frames.append(differences(beside, name))
    tests = verdicts(pd.concat(frames, ignore_index=True))
    rows = tests.rename(columns={"difference": "value"})
    rows["model"] = rows["reference"]
    rows["kind"] = rows["model"].map(KINDS)
    figure = figures.plot_rows(rows, panel="task")
    for ax in figure.axes:
        ax.axvline(0, color=figures.GREY, linewidth=0.8)
        ax.set_xlabel("student minus this model")
    plt.show()
    intervals = score_intervals(scores)
    display(interval_board(intervals))
else:
    print("There are neither links nor labels: give links=FILE or label=FIELD.")
    print("Without them no measure chooses a model reliably; the student has words and meaning.")

# %% [markdown]
# Right of zero the student is better than the model of the row, by its links, by its label and in the mean of both; a
# hollow point is not shown to differ.
#
# **Shortcuts.** A label such as a package can be told from a few names that its documents share; links inside a package
# ask for more. **Without labels** no measure chose the best model reliably
# ([tried](../outputs/published/archive/proxies.md)).
#
# ## Try it
#
# * `documents = 1000` (three times as long): does the student's lead over LSA grow with the collection?
# * `encoder` another sentence encoder, such as a multilingual one (as long): do the groups keep their words?
# * `label` another field, or a file of `links` (as long): is the student still ahead?
#
# ## What was found

# %% tags=["found"]
from docemb_lib.thesis.comparison import LINES

for name in ("SBERT-chunks", "LSA") if scorers else ():
    of_name = tests[tests["reference"] == name]
    print(LINES.fill(f"Beside {name} the student is {told(of_name)}."))
largest = collection["group"].mode()[0].partition(": ")[2]
print(f"The words of the largest of {len(described)} groups are {largest}.")

# %% [markdown]
# **References.** Burian (2023), *Document embedding using Transformers*, master thesis, Institute of Formal and Applied
# Linguistics, Charles University, Prague, which 00 to 06 follow. Beltagy et al. (2020), *Longformer*. Grootendorst
# (2022), *BERTopic: Neural topic modeling with a class-based TF-IDF procedure*. van der Maaten and Hinton (2008),
# *Visualizing data using t-SNE*.
#
# `docemb adapt`, `docemb embed` and `docemb evaluate` do the same in a terminal ([own
# documents](../docs/own-documents.md)); BERTopic takes the same embeddings.
