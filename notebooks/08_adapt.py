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
# `docemb adapt` makes an embedding of long documents of a short encoder and of the words of a collection, in minutes and
# without training. Which of its steps helps? Each is a cell of some lines here, is asserted equal to the library, and
# adds a bar to the last figure: how well the embedding finds the pages that a page refers to.
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
import pandas as pd
import torch
from torch import Tensor, nn

# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import Student, figures
from docemb_lib.corpus.installed_docs import installed_docs

figures.use_style()
pages = {page.id: page for page in installed_docs([name.strip() for name in packages.split(",")])}
drawn: dict[str, None] = {}
for id in np.random.default_rng(seed).permutation(sorted(pages)):
    drawn |= dict.fromkeys([id, *(other for other in pages[id].see_also if other in pages)])
    if len(drawn) >= documents:
        break
chosen = [pages[id] for id in list(drawn)[:documents]]
texts = [page.text for page in chosen]
row_of = {page.id: row for row, page in enumerate(chosen)}
wanted = [[row_of[id] for id in page.see_also if id in row_of] for page in chosen]
print(f"{len(texts)} pages, {sum(map(bool, wanted))} of them refer to others")

# %% [markdown]
# ## How good is an embedding?
#
# A page that refers to others is a query. The average precision is the mean, over the pages that it refers to, of the
# share of such pages among all that are ranked as high: 1 if they come first.

# %%
bars = {}


def average_precisions(X: Tensor) -> np.ndarray:
    """The average precision of each query by cosine, for embeddings of N pages, (N, D)."""
    X = nn.functional.normalize(X.double())
    results = []
    for row, relevant in enumerate(wanted):
        if relevant:
            cosines = X @ X[row]
            cosines[row] = -2  # the query itself comes last
            place = torch.empty(len(X), dtype=torch.long)
            place[cosines.argsort(descending=True)] = torch.arange(1, len(X) + 1)
            ranks = place[relevant].sort().values
            results.append((torch.arange(1, len(ranks) + 1) / ranks).mean().item())
    return np.array(results)


def add(name: str, X: Tensor) -> None:
    bars[name] = average_precisions(X)
    print(f"{name}: MAP {bars[name].mean():.3f}")


# %% [markdown]
# ## The short encoder, as it is

# %%
from docemb_lib.teachers import SBERT

truncated = SBERT(encoder)
add(f"the encoder, first {truncated.max_tokens} tokens", torch.from_numpy(truncated.embed(texts)))

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
repeated = learnt.repeat(-(-student.max_tokens // len(learnt)), 1)[: student.max_tokens]
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


def token_weights(tokens: int) -> Tensor:
    """The weight of each token of a document, (T,): 16 for the first, 1 beyond the 256th."""
    place = torch.arange(tokens)
    return 1.0 + sum(more * (place < first) for first, more in LEADS)


plain = []
leading = []
with torch.inference_mode():
    for encoding in student.encodings(texts):
        states = hidden_states(student.model, pack([encoding.ids])).float()  # (T, D)
        weights = token_weights(len(states))
        plain.append(states.mean(dim=0))
        leading.append(weights @ states / weights.sum())
plain = torch.stack(plain)
leading = torch.stack(leading)  # x, (N, D)
student = Student.from_encoder(encoder, pooling="lead", attention_window=256)
of_library = nn.functional.normalize(torch.from_numpy(student.embed(texts)))
assert nn.functional.cosine_similarity(leading, of_library).min() > 0.999
add("1. a long encoder, mean of all tokens", plain)
add("2. the beginning counts more", leading)

# %% [markdown]
# ## 3. What all documents share is taken away
#
# The mean embedding of the collection is subtracted. Then the map $C^{-1/4}$ shrinks the directions in which documents
# vary most: it lies halfway between leaving the embedding alone and whitening it, $C^{-1/2}$.

# %%
from docemb_lib.student.lexical import partial_whitening


def quarter_root(X: Tensor) -> Tensor:
    """C^(-1/4) of the covariance of X, (N, D), with a hundredth of the mean variance added."""
    centred = (X - X.mean(dim=0)).double()
    variances, directions = torch.linalg.eigh(centred.T @ centred / len(X))
    variances = variances.clamp(min=0) + 0.01 * variances.mean()
    return (directions @ torch.diag(variances**-0.25) @ directions.T).float()


centred = leading - leading.mean(dim=0)
dense = nn.functional.normalize(centred @ quarter_root(leading))
assert torch.allclose(quarter_root(leading), partial_whitening(leading), atol=1e-3, rtol=1e-3)
add("3. centred", centred)
add("4. partially whitened", dense)

# %% [markdown]
# ## 4. The words of the collection
#
# A word counts by the square root of how often a document has it, more at the beginning, times how unevenly the
# documents of the collection share it: one minus the entropy of its counts, divided by that of an even spread. The
# leading directions of this table, partially whitened too, give the second half.

# %%
from scipy.sparse import diags
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

from docemb_lib.teachers import LSA

DIM = len(texts) // 3  # a third as many directions as documents
counter = CountVectorizer(min_df=2, token_pattern=r"\w\w+")
counts = counter.fit_transform(texts).astype(float)  # (N, words)
for first, more in ((10, 10), (150, 2)):
    beginnings = [" ".join(text.split()[:first]) for text in texts]
    counts += more * counter.transform(beginnings)
shares = counts @ diags(1 / np.asarray(counts.sum(axis=0))[0])  # of each document in a word
logs = shares.copy()
logs.data = np.log(logs.data)
entropy = -np.asarray(shares.multiply(logs).sum(axis=0))[0]
weight = (1 - entropy / np.log(len(texts))) ** 1.5
X = normalize(counts.sqrt() @ diags(weight))
documents_of, values, words_of = np.linalg.svd(X.toarray(), full_matrices=False)
scale = values[:DIM] ** 1.5 / (values[:DIM] ** 2 + 3)  # fades the directions of few documents
lexical = normalize(counts.sqrt() @ diags(weight) @ words_of[:DIM].T * scale)  # z, (N, DIM)
lsa = LSA(DIM).fit(texts).embed(texts)
np.testing.assert_allclose(lexical @ lexical.T, lsa @ lsa.T, atol=2e-3)
z = torch.from_numpy(lexical)
words = nn.functional.normalize(z - z.mean(dim=0))
add("5. the words alone", words)

# %% [markdown]
# ## 5. Both halves side by side
#
# A half whose cosines vary little would not be heard. Each counts by the spread of the other's cosines, so that both add
# equally to how the cosines of the whole vary.


# %%
def spread(X: Tensor) -> float:
    """The standard deviation of the cosines between different rows of unit length."""
    different = ~torch.eye(len(X), dtype=torch.bool)
    return (X @ X.T)[different].std().item()


w = spread(dense) / (spread(dense) + spread(words))
whole = torch.cat([(1 - w) ** 0.5 * dense, w**0.5 * words.float()], dim=1)
student.adapt(texts)
of_library = torch.from_numpy(student.embed(texts))
assert abs(w - float(student.lexical.weight)) < 0.01
assert nn.functional.cosine_similarity(whole @ whole.T, of_library @ of_library.T).min() > 0.999
print(f"{w:.2f} of a cosine comes from the words")
add("6. both halves: docemb adapt", whole)

# %% [markdown]
# ## What was found

# %%
from docemb_lib.evaluation.uncertainty import bootstrap_over_tasks, paired_p_values

rows = [bootstrap_over_tasks([values[None]])[:, 0] for values in bars.values()]
table = pd.DataFrame(rows, index=list(bars), columns=["MAP", "low", "high"])
figure, ax = plt.subplots(figsize=(8, 2.8), layout="constrained")
reach = np.abs(table[["low", "high"]].to_numpy().T - table["MAP"].to_numpy())
ax.barh(
    table.index[::-1], table["MAP"][::-1], xerr=reach[:, ::-1], color=figures.PALETTE["structural"]
)
ax.set(xlabel="mean average precision of related pages, 95% intervals")
plt.show()

# %% tags=["conclusion"]
first, *_, last = bars
best_half = max(("4. partially whitened", "5. the words alone"), key=lambda name: bars[name].mean())
for name in (first, best_half):
    difference = bars[last] - bars[name]
    (p,) = paired_p_values(difference[None])
    shown = "is shown to differ" if p < 0.05 else "is not shown to differ"
    print(f"docemb adapt beside {name!r}: {difference.mean():+.3f}, p {p:.3f}: it {shown}.")

# %% [markdown]
# **Try.** What does the beginning give, if titles are cut off (`page.text.split("\n", 1)[1]`)? Set $w$ to 0, .5 and 1:
# where lies the best, and can it be known without links? Take `packages = "sklearn"`: which half leads there?
#
# [09](09_own_documents.ipynb) does this for documents of your own. **References.** Arora, Liang and Ma (2017), *A simple
# but tough-to-beat baseline for sentence embeddings*: what embeddings share. Dumais (1991), *Improving the retrieval of
# information from external sources*: entropy weights. Beltagy, Peters and Cohan (2020), *Longformer*: repeated positions.
