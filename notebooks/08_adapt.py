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
# # 08 · What `docemb adapt` does, by hand
#
# `docemb adapt` makes an embedding of long documents in minutes and without training, from an encoder of short texts and
# the words of a collection. Which of its steps help? Each is a cell here, is asserted equal to the library, and adds a
# bar to the figure at the end, which says how well the pages are found that a page refers to. Each bar is tested against
# the one before it on the same pages. All of it takes three minutes of one core.
#
# $$y = \left[\sqrt{1-w}\;\frac{(x-\bar x)\,C^{-1/4}}{\lVert\cdot\rVert};\;\; \sqrt w\;\frac{z-\bar z}{\lVert\cdot\rVert}\right]$$
#
# $x$ is a weighted mean of the states of a long encoder, $C$ the covariance of $x$ in the collection, $z$ an LSA of the
# words of the document, and $w$ follows from how much the cosines of the two halves vary.

# %% tags=["parameters"]
encoder = "all-MiniLM-L6-v2"  # a short encoder: a folder or a hub id
packages = "numpy, scipy, pandas"  # installed Python packages whose documentation is the collection
documents = 200  # how many pages, drawn at random with the pages that they refer to; at most 512
seed = 0  # of the draw of pages

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.functional import cosine_similarity, normalize

# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import Student, figures
from docemb_lib.base.progress import log_to_notebook
from docemb_lib.corpus.installed_docs import installed_docs

figures.use_style()
log_to_notebook()
of_packages = installed_docs(packages.replace(" ", "").split(","))
pages = {page.id: page for page in of_packages}


def draw(ids):
    """The first ids, each followed by those of the pages that it refers to."""
    drawn = {}  # in the order in which they are drawn
    for id in ids:
        links = [other for other in pages[id].see_also if other in pages]
        drawn |= dict.fromkeys([id, *links])
    return list(drawn)[:documents]


order = np.random.default_rng(seed).permutation(sorted(pages))
ids = draw(order)
texts = [pages[id].text for id in ids]
wanted = []
for id in ids:
    links = [other for other in pages[id].see_also if other in ids]
    wanted.append([ids.index(other) for other in links])
print(f"{len(texts)} pages, {sum(map(bool, wanted))} of them refer to others")

# %% [markdown]
# ## How good is an embedding?
#
# A page that refers to others is a query. The average precision is the mean, over the pages that it refers to, of the
# share of such pages among all that are ranked as high: 1 if they come first.

# %%
bars = {}


def average_precision(cosines, relevant):
    """The average precision of one query, from its cosines with all N pages."""
    ranking = cosines.argsort(descending=True)
    is_relevant = torch.isin(ranking, torch.tensor(relevant))
    ranks = is_relevant.nonzero()[:, 0] + 1
    found = torch.arange(1, len(ranks) + 1)
    return (found / ranks).mean().item()


def add(name, X):
    """Add the bar of the embeddings X, (N, D)."""
    X = normalize(X.double())
    cosines = X @ X.T
    cosines.fill_diagonal_(-2)  # a query itself comes last
    precisions = []
    for row, relevant in enumerate(wanted):
        if relevant:
            precisions.append(average_precision(cosines[row], relevant))
    bars[name] = np.array(precisions)
    print(f"{name}: MAP {bars[name].mean():.3f}")


# %% [markdown]
# ## The short encoder, as it is
#
# This is what a sentence encoder gives: it reads the beginning of a page, and all its tokens count the same.

# %%
from docemb_lib.teachers import SBERT

truncated = SBERT(encoder)
add(f"SBERT-{truncated.max_tokens}", torch.from_numpy(truncated.embed(texts)))

# %% [markdown]
# ## 1. It reads all: positions are repeated, attention gets a window
#
# A sentence encoder has learnt as many positions as it reads. A Longformer of 4,096 tokens takes their vectors again and
# again, and each token attends to its neighbourhood alone. No weight changes (`00_one_page` has this attention in some
# lines).

# %%
from transformers import AutoModel

from docemb_lib.base.pretrained import resolve

student = Student.from_encoder(encoder, attention_window=256)
positions = AutoModel.from_pretrained(resolve(encoder)).embeddings.position_embeddings.weight
learnt = positions[: truncated.max_tokens]  # (256, D) of MiniLM
place = torch.arange(student.max_tokens)
repeated = learnt[place % len(learnt)]
of_student = student.model.embeddings.position_embeddings.weight[-student.max_tokens :]
assert torch.equal(of_student, repeated)
print(f"{len(learnt)} positions become {len(repeated)}")

# %% [markdown]
# ## 2. The beginning counts more
#
# The states of the tokens are averaged. A document says at its beginning what it is about: there a token has a larger
# weight.

# %%
from docemb_lib.packed.forward import hidden_states
from docemb_lib.packed.packing import pack

LEADS = ((256, 3), (64, 4), (16, 8))  # a token among so many first ones counts so many times more


def token_weights(tokens):
    """The weight of each token of a document, (T,): 16 for the first, 1 beyond the 256th."""
    place = torch.arange(tokens)
    return 1.0 + sum(more * (place < first) for first, more in LEADS)


of_all = []
of_beginning = []
with torch.inference_mode():
    for encoding in student.encodings(texts):
        packed = pack([encoding.ids])
        states = hidden_states(student.model, packed).float()  # (T, D)
        weights = token_weights(len(states))
        of_all.append(states.mean(dim=0))
        of_beginning.append(weights @ states / weights.sum())
plain = torch.stack(of_all)
leading = torch.stack(of_beginning)  # x, (N, D)
student = Student.from_encoder(encoder, pooling="lead", attention_window=256)
of_library = torch.from_numpy(student.embed(texts))
assert cosine_similarity(leading, of_library).min() > 0.999
add("1 reads all", plain)
add("2 weighs beginning", leading)

# %% [markdown]
# Both bars come from the same states; only the weights of the mean differ.

# %% [markdown]
# ## 3. What all documents share is taken away
#
# The mean embedding of the collection is subtracted. Then the map $C^{-1/4}$ shrinks the directions in which documents
# vary most: it lies halfway between leaving the embedding alone and whitening it, $C^{-1/2}$.

# %%
from docemb_lib.student.words import partial_whitening


def quarter_root(X):
    """C^(-1/4) of the covariance of X, (N, D), with a hundredth of the mean variance added."""
    centred = (X - X.mean(dim=0)).double()
    variances, directions = torch.linalg.eigh(centred.T @ centred / len(X))
    variances = variances.clamp(min=0) + 0.01 * variances.mean()
    root = (directions * variances**-0.25) @ directions.T
    return root.float()


centred = leading - leading.mean(dim=0)
root = quarter_root(leading)
meaning = normalize(centred @ root)
assert torch.allclose(root, partial_whitening(leading), atol=1e-3, rtol=1e-3)
add("3 centred", centred)
add("4 whitened", meaning)

# %% [markdown]
# Directions that all pages share say nothing about which of them belong together; taking them away needs no labels.

# %% [markdown]
# ## 4. The words of the collection
#
# A word counts by the square root of how often a document has it, more at the beginning, times how unevenly the
# documents of the collection share it: one minus the entropy of its counts, divided by that of an even spread. The
# leading directions of this table, partially whitened too, give the second half.

# %%
from scipy.sparse import diags
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize as of_length_1

counter = CountVectorizer(min_df=2, token_pattern=r"\w\w+")
counts = counter.fit_transform(texts).astype(float)  # (N, words)
for first, more in ((10, 10), (150, 2)):
    beginnings = [" ".join(text.split()[:first]) for text in texts]
    counts += more * counter.transform(beginnings)

total = np.asarray(counts.sum(axis=0))[0]  # of each word
shares = counts @ diags(1 / total)  # of each document in a word
logs = shares.copy()
logs.data = np.log(logs.data)
terms = shares.multiply(logs)
entropy = -np.asarray(terms.sum(axis=0))[0]
evenness = entropy / np.log(len(texts))  # 1: the word is spread over all documents alike
weighted = counts.sqrt() @ diags((1 - evenness) ** 1.5)

order = np.argsort(evenness)
names = counter.get_feature_names_out()
often = order[total[order] > np.quantile(total, 0.9)]
print("frequent words that weigh most: ", *names[often[:8]])
print("frequent words that weigh least:", *names[often[-8:]])

# %% [markdown]
# Words of one subject weigh most; those of all pages, which no list of stop words has to name, weigh least.

# %%
from docemb_lib.teachers import LSA

DIM = len(texts) // 3  # a third as many directions as documents
table = of_length_1(weighted).toarray()
_, values, words_of = np.linalg.svd(table, full_matrices=False)
values = values[:DIM]
scale = values**1.5 / (values**2 + 3)  # fades the directions of few documents
by_words = of_length_1(weighted @ words_of[:DIM].T * scale)  # z, (N, DIM)
lsa = LSA(DIM).fit(texts).embed(texts)
np.testing.assert_allclose(by_words @ by_words.T, lsa @ lsa.T, atol=2e-3)
z = torch.from_numpy(by_words)
words = normalize(z - z.mean(dim=0))
add("5 words alone", words)

# %% [markdown]
# ## 5. Both halves side by side
#
# A half whose cosines vary little would not be heard. Each counts by the spread of the other's cosines, so that both add
# equally to how the cosines of the whole vary.


# %%
def spread(X):
    """The standard deviation of the cosines between different rows of unit length."""
    different = ~torch.eye(len(X), dtype=torch.bool)
    cosines = X @ X.T
    return cosines[different].std().item()


w = spread(meaning) / (spread(meaning) + spread(words))
halves = [(1 - w) ** 0.5 * meaning, w**0.5 * words.float()]
whole = torch.cat(halves, dim=1)
student.adapt(texts)
of_library = torch.from_numpy(student.embed(texts))
assert abs(w - float(student.words.weight)) < 0.01
cosines = cosine_similarity(whole @ whole.T, of_library @ of_library.T)
assert cosines.min() > 0.999
print(f"{w:.2f} of a cosine comes from the words")
add("6 both: adapt", whole)

# %% [markdown]
# **Shortcuts.** Links between pages of documentation follow names: a page refers to others whose titles share its words,
# which favours the words and the beginning. A collection whose links follow the subject may turn the order around. No
# step has seen a link, but each was chosen where links could be counted, on pages such as these.
#
# ## What was found

# %% tags=["picture"]
from docemb_lib.evaluation.uncertainty import bootstrap_over_tasks

ax = figures.axes(2.6)
kinds = ["structural", *["student"] * 4, "floor", "positive"]
for (name, precisions), kind in zip(bars.items(), kinds, strict=True):
    mean, low, high = bootstrap_over_tasks([precisions[None]])[:, 0]
    ax.barh(name, mean, color=figures.PALETTE[kind], alpha=0.8)
    ax.plot([low, high], [name, name], color="black")
    ax.text(0.005, name, f"{mean:.3f}", color="white", va="center")
ax.invert_yaxis()
ax.set(xlabel="mean average precision of related pages, 95% intervals")
plt.show()

# %% [markdown]
# Each bar has one step more than the one above it: orange is the encoder as it is, blue the long encoder after each
# step, pink the words alone. Intervals of neighbours overlap even where a test on the same pages, which compares page by
# page, tells them apart.

# %% tags=["found"]
from itertools import pairwise

from docemb_lib.evaluation.scoreboard import listed, p_value
from docemb_lib.evaluation.uncertainty import holm, paired_p_values
from docemb_lib.thesis.comparison import LINES

short, long, lead, centre, white, half_of_words, adapted = bars
in_order = [short, long, lead, centre, white, adapted]
steps = [*pairwise(in_order), (half_of_words, adapted)]
differences = [bars[after] - bars[before] for before, after in steps]
differences = np.array(differences)  # (6, queries)
p_values = holm(paired_p_values(differences))
kinds = {"Shown to help": [], "Shown to harm": [], "Not shown to matter": []}
for (before, after), gains, p in zip(steps, differences, p_values, strict=True):
    difference = gains.mean()
    kind = "Shown to help" if difference > 0 else "Shown to harm"
    if p >= 0.05:
        kind = "Not shown to matter"
    tested = f"{after!r} after {before!r} ({difference:+.3f}, {p_value(p)})"
    kinds[kind].append(tested)
sentences = [f"{kind}: {listed(tested)}." for kind, tested in kinds.items() if tested]
print(LINES.fill(" ".join(sentences)))

gain = bars[adapted] - bars[short]
(p,) = paired_p_values(gain[None])
relation = "not shown to differ from"
if p < 0.05:
    relation = "better than" if gain.mean() > 0 else "worse than"
means = f"{bars[adapted].mean():.3f}, {bars[short].mean():.3f}; {gain.mean():+.3f}, {p_value(p)}"
print(f"The adapted student is {relation} the encoder alone ({means}).")
print(f"All tests compare the same {len(gain)} queries; those of steps are corrected (Holm).")

# %% [markdown]
# ## Conclusion
#
# Steps 2 to 4 cost no time and need no labels, so they stay, even where these pages do not show what they are worth;
# [evaluation.md](../docs/evaluation.md) measures the adapted student on other collections. [09](09_own_documents.ipynb)
# makes one of documents of your own.
#
# ## Try it
#
# * `pages[id].text.split("\n", 1)[-1]` for `pages[id].text`, three minutes: what do titles give to the beginning?
# * `w = 0`, `.5` and `1` with `student.adapt(texts, weight=w)`, a minute each: which is best? Could one know without links?
# * `packages = "sklearn"`, three minutes: which half leads there?
#
# **References.** Arora, Liang and Ma (2017), *A simple but tough-to-beat baseline for sentence embeddings*: what
# embeddings share. Dumais (1991), *Improving the retrieval of information from external sources*: entropy weights.
# Beltagy, Peters and Cohan (2020), *Longformer*: repeated positions.
