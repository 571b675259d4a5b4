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
# # 11 · Tricks without training
#
# Every year brings tricks that improve embeddings of long documents without training, each measured by its authors on
# their own benchmark, and seldom with a paired test. Which of them survive one? Sixteen tricks get the same documents
# here. Each is defined in a cell, with its source, its cost and one reason why it should help, and most stand twice in
# the figure at the end: *alone*, against what it would replace, and *inside* `docemb adapt`, in the place of the step
# that it would replace there. The encoder reads each document up to four times; everything else is arithmetic on
# vectors. All of it takes about five minutes on two cores.

# %% tags=["parameters"]
encoder = "all-MiniLM-L6-v2"  # a short encoder: a folder or a hub id
packages = {"arrays": "numpy, scipy", "learning": "sklearn, pandas"}  # collections: the documentation of some packages
collections = {}  # further ones, {name: [a folder or data file of texts, a file with two ids a line]}
documents = 300  # most documents of a collection, drawn at random with those that they refer to
max_tokens = 1024  # most tokens of a document that are read
temperature = 0.8  # of the softmax in each attention; 1 changes nothing
reread = None  # the collections that are read with a temperature and stretched positions, too; None: all
kept = None  # a folder for what the encoder has read, so that it reads once; None: it reads anew
seed = 0  # of the draw of documents and of the random projection

# %%
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, combinations
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import Student, figures
from docemb_lib.base.progress import log_to_notebook, progress
from docemb_lib.corpus.document import Document
from docemb_lib.corpus.installed_docs import installed_docs
from docemb_lib.corpus.reader import local_documents
from docemb_lib.evaluation import Ranking, Retrieval
from docemb_lib.evaluation.judged import read_links

figures.use_style()
log_to_notebook()


def read(place: str | Sequence[str]) -> dict[str, Document]:
    """The documents of some packages, or of a file of texts and a file of links, by id."""
    if isinstance(place, str):
        return {page.id: page for page in installed_docs(place.split(", "))}
    texts, links = map(Path, place)
    found = {each.id: each for each in local_documents(texts)}
    for id, linked in read_links(links, found.keys()).items():
        found[id] = found[id]._replace(see_also=tuple(linked))
    return found


def draw(found: dict[str, Document]) -> Retrieval:
    """A task of some documents, each of which is to find those that it refers to."""
    drawn: dict[str, None] = {}
    for id in np.random.default_rng(seed).permutation(sorted(found)):
        linked = (other for other in found[id].see_also if other in found)
        drawn |= dict.fromkeys([str(id), *linked])
        if len(drawn) >= documents:
            break
    ids = list(drawn)[:documents]
    row_of = {id: row for row, id in enumerate(ids)}
    relevant = {}
    for id, row in row_of.items():
        rows = {row_of[other] for other in found[id].see_also if other in row_of} - {row}
        if rows:
            relevant[row] = sorted(rows)
    texts = [found[id].text for id in ids]
    return Retrieval("", {"test": Ranking(texts, [*relevant], [*relevant.values()], ids)})


tasks = {name: draw(read(place)) for name, place in {**packages, **collections}.items()}
for name, task in tasks.items():
    queries = len(task.splits["test"].queries)
    print(f"{name}: {len(task.texts())} documents, {queries} of them refer to others")

# %% [markdown]
# A document that refers to others is a query. Its score is the average precision, as in [08](08_adapt.ipynb).
#
# ## What is averaged
#
# The reference is the plain embedding: the encoder with a window of attention, its positions repeated up to 4,096, and
# the mean of the last states of all tokens. Two tricks are other means of the same states.
#
# **The beginning weighs more.** *From* [08](08_adapt.ipynb), where it is a step of `adapt`. *Cost*: none. *Why*: a
# document says first what it is about.
#
# **Rare tokens weigh more**, $a / (a + p)$ for a token of frequency $p$ in the collection. *From* Arora et al. (2017),
# SIF. *Cost*: counting. *Why*: a token that is everywhere tells no documents apart.

# %%
from docemb_lib.base.hardware import uses_bf16
from docemb_lib.packed.forward import hidden_states
from docemb_lib.packed.packing import pack

LEADS = ((256, 3), (64, 4), (16, 8))  # a token among so many first ones counts so many times more
A = 1e-3  # a of SIF
PASSAGE = 64  # tokens of a passage, for the matching of passages below

options = {"max_tokens": max_tokens, "attention_window": 256}
long = Student.from_encoder(encoder, pooling="mean", **options)


def states_of(student: Student, sequences: list[list[int]]) -> Sequence[Tensor]:
    """The last states of each sequence of token ids, (T, D)."""
    bf16 = torch.autocast("cpu", torch.bfloat16, enabled=uses_bf16())
    with torch.inference_mode(), bf16:
        states = hidden_states(student.model, pack(sequences)).float()
    return states.split([len(ids) for ids in sequences])


def stacked(vectors: dict[str, list[Tensor]]) -> dict[str, np.ndarray]:
    """Lists of N vectors as arrays, (N, D)."""
    return {name: torch.stack(rows).numpy() for name, rows in vectors.items()}


def read_whole(sequences: list[list[int]]) -> dict[str, np.ndarray]:
    """Three means of each document, and the means of its passages with their counts."""
    counts = Counter(chain(*sequences))
    names = ("plain", "beginning weighs more", "rare tokens weigh more")
    vectors = {name: [] for name in names}
    passages = []
    for ids in progress(sequences, desc="whole"):
        (states,) = states_of(long, [ids])
        place = torch.arange(len(ids))
        alike = torch.ones(len(ids))
        lead = alike.clone()
        for first, more in LEADS:
            lead += more * (place < first)
        often = torch.tensor([counts[id] for id in ids])
        rare = A / (A + often / counts.total())
        for name, weights in zip(names, (alike, lead, rare), strict=True):
            vectors[name].append(weights @ states / weights.sum())
        parts = [part.mean(dim=0) for part in states.split(PASSAGE)]
        passages.append(torch.stack(parts))
    sizes = np.array([len(of_one) for of_one in passages])
    return {**stacked(vectors), "passages": torch.cat(passages).numpy(), "counts": sizes}


# %% [markdown]
# **The first 256 tokens** alone. *From* common practice: it is what a sentence encoder does. *Cost*: less than plain.
# *Why*: the encoder has seen nothing longer, and the beginning says the most.
#
# **The mean of chunks**, each read alone, in which long ones count more. *From* Lyu et al. (2026), DICE, for questions
# to long documents. *Cost*: one pass. *Why*: no token stands at a position, or in a context, that the encoder has not
# been trained for.

# %%
short = Student.from_encoder(encoder, pooling="mean", max_tokens=256, attention_window=512)


def chunks(ids: list[int], size: int) -> list[list[int]]:
    """The document in chunks, each with the first and the last token, which are special."""
    first, *inner, last = ids
    room = size - 2
    parts = [inner[start : start + room] for start in range(0, len(inner), room)]
    return [[first, *part, last] for part in parts or [[]]]


def read_chunks(sequences: list[list[int]]) -> dict[str, np.ndarray]:
    """The mean of the states of the first chunk, and that of all, so that long chunks count more."""
    vectors = {"first 256 tokens": [], "mean of chunks": []}
    for ids in progress(sequences, desc="chunks"):
        of_chunks = states_of(short, chunks(ids, short.max_tokens))
        vectors["first 256 tokens"].append(of_chunks[0].mean(dim=0))
        vectors["mean of chunks"].append(torch.cat(of_chunks).mean(dim=0))
    return stacked(vectors)


# %% [markdown]
# ## How the encoder reads
#
# **A temperature below 1** sharpens the softmax of each attention. *After* Zhou et al. (2024), TempScale. *Cost*: a
# division, but a pass of its own. *Why*: among many tokens attention spreads thin, and long documents come out alike.
#
# **Positions are stretched** over a long document instead of repeated: token $t$ of $T$ gets the point $t\,/\,T$ of the
# way through the 256 learnt positions. *After* Chen et al. (2023), who train a little after it. *Cost*: a pass of its
# own. *Why*: no two tokens share a position.

# %%
cool = Student.from_encoder(encoder, pooling="mean", **options)
for layer in cool.model.encoder.layer:
    layer.attention.self.query.weight.data /= temperature  # a score is a query times a key
    layer.attention.self.query.bias.data /= temperature

stretched = Student.from_encoder(encoder, pooling="mean", **options)
positions = stretched.model.embeddings.position_embeddings.weight.data[-long.max_tokens :]
learnt = positions[: short.max_tokens].clone()  # (256, D)


def stretch(tokens: int) -> None:
    """Spread the learnt positions over so many tokens, if they are more."""
    size = max(tokens, len(learnt))
    spread_out = nn.functional.interpolate(learnt.T[None], size=size, mode="linear")[0].T
    positions[:size] = spread_out  # written into the model


def read_otherwise(sequences: list[list[int]]) -> dict[str, np.ndarray]:
    """The means of all states of the two changed encoders."""
    changed = {"temperature below 1": cool, "positions stretched": stretched}
    vectors = {name: [] for name in changed}
    for ids in progress(sequences, desc="otherwise"):
        stretch(len(ids))
        for name, student in changed.items():
            (states,) = states_of(student, [ids])
            vectors[name].append(states.mean(dim=0))
    return stacked(vectors)


# %% [markdown]
# All passes, and for a few documents what the library gives:

# %%
from docemb_lib.base.files import hash_of
from docemb_lib.teachers import SBERT


def stored(read_pass: Callable, sequences: list[list[int]]) -> dict[str, np.ndarray]:
    """What a pass gives for some documents, from the folder `kept` if it is there."""
    key = hash_of(f"{encoder} {temperature} {sequences}")[:16]
    file = Path(kept or ".", f"{read_pass.__name__}-{key}.npz")
    if kept and file.exists():
        return dict(np.load(file))
    arrays = read_pass(sequences)
    if kept:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, **arrays)
    return arrays


vectors = {}
for name, task in tasks.items():
    sequences = [encoding.ids for encoding in long.encodings(task.texts())]
    vectors[name] = stored(read_whole, sequences) | stored(read_chunks, sequences)
    if reread is None or name in reread:
        vectors[name] |= stored(read_otherwise, sequences)
first = next(iter(tasks))
of_first = vectors[first]
lengths = map(len, long.encodings(tasks[first].texts()))
few = [row for row, length in enumerate(lengths) if length < max_tokens][:8]  # read to their end
texts = [tasks[first].texts()[row] for row in few]
leading = Student.from_encoder(encoder, pooling="lead", **options)
by_library = {
    "plain": long.embed(texts),
    "beginning weighs more": leading.embed(texts),
    "first 256 tokens": SBERT(encoder).embed(texts),
    "mean of chunks": SBERT(encoder, long="chunks").embed(texts),
}
for name, of_library in by_library.items():
    ours = torch.from_numpy(of_first[name][few])
    cosine = nn.functional.cosine_similarity(ours, torch.from_numpy(of_library))
    assert cosine.min() > 0.999, name
print(*(f"{name} {X.shape}" for name, X in of_first.items()), sep=", ")

# %% [markdown]
# ## The cloud of vectors
#
# The next five move all plain vectors of a collection at once. They cost an eigenvalue decomposition and read no link.
#
# **Centred**: the mean is taken away. *From* 08. *Why*: what all documents share tells none apart.
#
# **All but the top**: so are the first $D/100$ principal directions. *From* Mu and Viswanath (2018). *Why*: they hold
# frequency, hardly meaning.
#
# **Whitened**, $C^{-1/2}$: *from* Su et al. (2021). *Why*: cosines assume directions that vary alike. **Half
# whitened**, $C^{-1/4}$: *from* 08, where it is a step of `adapt`. *Why*: the weakest directions are noise, which
# whitening blows up.

# %%
from docemb_lib.student.words import partial_whitening


def centred(X: np.ndarray) -> np.ndarray:
    """X without its mean, (N, D)."""
    return X - X.mean(axis=0)


def spectrum(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The variances of X along its K principal directions, largest first, and these, (D, K)."""
    X = centred(X).astype(np.float64)
    variances, directions = np.linalg.eigh(X.T @ X / len(X))
    K = min(len(X) - 1, X.shape[1])  # N documents vary in N - 1 directions at most
    return variances[::-1][:K], directions[:, ::-1][:, :K]


def all_but_the_top(X: np.ndarray) -> np.ndarray:
    """X without its mean and its first D / 100 principal directions."""
    top = spectrum(X)[1][:, : max(1, X.shape[1] // 100)]
    return centred(X) - centred(X) @ top @ top.T


def whitened(X: np.ndarray, exponent: float) -> np.ndarray:
    """X times a power of its covariance, with a hundredth of the mean variance added."""
    variances, directions = spectrum(X)
    variances = variances + 0.01 * variances.sum() / X.shape[1]
    return centred(X) @ (directions * variances**-exponent) @ directions.T


X = of_first["plain"]
of_library = centred(X) @ partial_whitening(torch.from_numpy(X)).numpy()
np.testing.assert_allclose(whitened(X, 1 / 4), of_library, rtol=1e-2, atol=1e-2)

# %% [markdown]
# **The exponent by the spectrum**: half of the directions are kept and scaled by $\lambda^{-\gamma/2}$. With the noise
# $\sigma^2$, the mean of the last tenth of the variances, a direction has the signal-to-noise ratio $\lambda_k/\sigma^2
# - 1$; $\gamma$ is that of the last kept direction, divided by that at the knee of the curve. *After* Li et al. (2026),
# SpecTemp, who compress. *Why*: how much whitening is good depends on how noisy the weakest direction is.


# %%
def exponent_of(variances: np.ndarray, size: int) -> tuple[int, float]:
    """The number of the direction at the knee, and gamma, if `size` directions are kept."""
    tail = round(0.9 * len(variances))
    noise = variances[tail:].mean()
    ratio = variances[:tail] / noise - 1
    height = (ratio - ratio[-1]) / (ratio[0] - ratio[-1])
    below = 1 - np.linspace(0, 1, tail) - height  # how far the curve lies below its chord
    knee = int(below.argmax())
    return knee + 1, min(1.0, float(ratio[size - 1] / ratio[knee]))


def by_spectrum(X: np.ndarray) -> np.ndarray:
    """X on half of its directions, (N, K / 2), with the exponent that the spectrum gives."""
    variances, directions = spectrum(X)
    size = len(variances) // 2
    _, gamma = exponent_of(variances, size)
    return centred(X) @ directions[:, :size] * variances[:size] ** (-gamma / 2)


for name, of_name in vectors.items():
    variances, _ = spectrum(of_name["plain"])
    knee, gamma = exponent_of(variances, len(variances) // 2)
    print(f"{name}: the knee is direction {knee}, gamma is {gamma:.2f}")

# %% [markdown]
# 1 would whiten and 0 leave the variances alone: the spectrum asks for much less than half whitening, which is 0.5.
#
# ## Neighbours
#
# Two tricks change the similarities $S$ of $N$ documents by their neighbours. They cost $N^2$ numbers.
#
# **CSLS**: from each cosine the mean cosine of both documents with their ten nearest is taken. *From* Conneau et al.
# (2018); local scaling against hubs is older (Schnitzer et al. 2012). *Why*: a few documents, the hubs, are near to
# all.
#
# **Neighbours averaged**: the mean of its five nearest is added to a document. *From* image search (Arandjelović and
# Zisserman 2012). *Why*: what a document leaves out, its neighbours may say.


# %%
def cosines(X: np.ndarray) -> np.ndarray:
    """The cosines of all rows, (N, N)."""
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    return X @ X.T


def nearest(S: np.ndarray, k: int) -> np.ndarray:
    """The k other documents that are nearest to each, (N, k)."""
    others = np.where(np.eye(len(S), dtype=bool), -np.inf, S)
    return np.argsort(-others, axis=1, kind="stable")[:, :k]


def csls(S: np.ndarray, k: int = 10) -> np.ndarray:
    """S without how near each of both documents is to its surroundings."""
    density = np.take_along_axis(S, nearest(S, k), axis=1).mean(axis=1)  # (N,)
    return 2 * S - density[:, None] - density


def smoothed(S: np.ndarray, k: int = 5) -> np.ndarray:
    """The cosines of documents to which the mean of their neighbours is added."""
    mix = np.eye(len(S))
    np.put_along_axis(mix, nearest(S, k), 1 / k, axis=1)
    products = mix @ S @ mix.T
    norms = np.sqrt(np.diag(products))
    return products / norms / norms[:, None]


def largest_hub(S: np.ndarray) -> int:
    """For how many documents the greatest hub is among the ten nearest."""
    return np.bincount(nearest(S, 10).ravel()).max()


for name, of_name in vectors.items():
    S = cosines(of_name["plain"])
    hubs = f"the greatest hub is near to {largest_hub(S)} of {len(S)} documents"
    print(f"{name}: {hubs}, by CSLS to {largest_hub(csls(S))}")

# %% [markdown]
# In the mean a document is near to ten others. CSLS does what it promises, hubs shrink; whether rankings gain is
# another question.
#
# ## Passages and words
#
# **Passages in both directions**: the first fifty documents are ranked anew. Each passage of the query votes for its
# ten nearest passages among all of theirs; a document counts by the share of the query's passages that have voted for
# it, times the share of its own that have got a vote. *After* RPRS (Askari et al. 2023), there with sentences. *Cost*:
# vectors of passages, kept. *Why*: a document may share a part only.


# %%
def both_ways(S: np.ndarray, passages: list[np.ndarray], first: int = 50) -> np.ndarray:
    """S, in which the first so many of each row are ranked by their passages. passages: (n_i, D)."""
    ranked = S - 2  # below all that are ranked anew
    for query, near in enumerate(nearest(S, first)):
        counts = [len(passages[row]) for row in near]
        owner = np.repeat(np.arange(len(near)), counts)
        pool = np.concatenate([passages[row] for row in near])
        similar = passages[query] @ pool.T
        votes = np.argsort(-similar, axis=1)[:, :10]  # (n, 10)
        voted = np.isin(np.arange(len(pool)), votes)
        for place, row in enumerate(near):
            of_query = (owner[votes] == place).any(axis=1).mean()
            of_row = voted[owner == place].mean()
            # The old order decides in ties.
            ranked[query, row] = of_query * of_row + 0.01 * S[query, row]
    return ranked


# %% [markdown]
# **Fused with BM25**, by reciprocal ranks, against BM25 alone. *From* Cormack et al. (2009). *Cost*: an index of words.
# *Why*: words and meaning err on different documents.

# %%
from scipy.stats import rankdata

from docemb_lib.evaluation import retrieval


def fused(S: np.ndarray, T: np.ndarray) -> np.ndarray:
    """The sum of 1 / (60 + rank) in both orders, in which a query itself has rank 0."""
    total = np.zeros(S.shape)
    for each in (S, T):
        others = np.where(np.eye(len(S), dtype=bool), np.inf, each)
        total += 1 / (60 + rankdata(-others, axis=1) - 1)
    return total


S = cosines(X)
T = cosines(of_first["mean of chunks"])
of_library = retrieval.fused(lambda rows: S[rows], lambda rows: T[rows])([*range(len(S))])
np.testing.assert_allclose(fused(S, T), of_library)

# %% [markdown]
# **A sketch beside LSA**, against LSA alone: all words, each weighted by its rarity (idf), are projected on 2,048
# random signs. *After* the tables of Weller et al. (2025), where words find what no embedding finds, and Achlioptas
# (2003). *Cost*: a product. *Why*: LSA keeps the directions that many documents share, and drops a word that two of
# them do.
#
# In a collection that is made for it this is true. As in LIMIT each query is one word that two documents hold, among 44
# others, and no other document has it:

# %%
from docemb_lib.teachers import LSA


def sketch(texts: list[str], fitted: int | None = None, width: int = 2048) -> np.ndarray:
    """Random projections of TF-IDF, (N, width); the first `fitted` texts give the idf."""
    words = retrieval.tfidf(texts, fitted)  # (N, words)
    signs = np.random.default_rng(seed).choice([-1, 1], (words.shape[1], width))
    return words @ signs.astype(np.float32)


def limit(others: int) -> tuple[list[str], list[str], np.ndarray]:
    """Texts, queries and the two rows that each query is to find."""
    pairs = np.array([*combinations(range(46), 2)])
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(others):
        words = rng.choice(850, 45, replace=False)
        texts.append(" ".join(f"w{n}" for n in words))
    for row in range(46):  # last, so that a tie with the others is no hit
        words = np.flatnonzero((pairs == row).any(axis=1))
        texts.append(" ".join(f"q{n}" for n in words))
    return texts, [f"q{n}" for n in range(len(pairs))], others + pairs


def recall(of_texts: np.ndarray, of_queries: np.ndarray) -> float:
    """The share of wanted texts among the first hundred of each query."""
    similar = of_queries @ retrieval.unit(of_texts).T
    first = np.argsort(-similar, axis=1, kind="stable")[:, :100]
    found = [np.isin(pair, row).mean() for pair, row in zip(pairs, first, strict=True)]
    return float(np.mean(found))


texts, queries, pairs = limit(5000)
lsa = LSA(512).fit(texts)
by_lsa = recall(lsa.embed(texts), lsa.embed(queries))
everything = sketch([*texts, *queries], len(texts))
by_sketch = recall(everything[: len(texts)], everything[len(texts) :])
print(f"{len(queries)} queries, {len(texts)} texts; the share found among the first hundred:")
print(f"LSA of 512 numbers {by_lsa:.2f}, the sketch of 2,048 numbers {by_sketch:.2f}")

# %% [markdown]
# The sketch finds what LSA loses once each of its 512 directions has more documents behind it than a rare word has.
# Whether real collections are like this is seen below.
#
# ## Alone and inside `adapt`
#
# `adapt` sets words beside meaning: the cosines of both halves are added, each weighted by the spread of the other's. A
# trick inside takes the place of its counterpart in there: another mean that of the weighted beginning, another map
# that of half whitening; what changes similarities changes those of the whole.

# %%
from docemb_lib.student.words import balance

POOLINGS = ("first 256 tokens", "mean of chunks", "beginning weighs more", "rare tokens weigh more")
POOLINGS += ("temperature below 1", "positions stretched")
HALF = partial(whitened, exponent=1 / 4)
MAPS = {
    "centred": centred,
    "all but the top": all_but_the_top,
    "half whitened": HALF,
    "whitened": partial(whitened, exponent=1 / 2),
    "exponent by spectrum": by_spectrum,
}
SIMILARITIES = ("CSLS", "neighbours averaged", "passages both ways")
WORDS = ("fused with BM25", "sketch beside LSA")
ROWS = [*POOLINGS, *MAPS, *SIMILARITIES, *WORDS]  # in the order of the figure


def spread(S: np.ndarray) -> float:
    """The standard deviation of the similarities of different documents."""
    return S[~np.eye(len(S), dtype=bool)].std()


def share(S: np.ndarray, T: np.ndarray) -> float:
    """The weight of T beside S with which both vary alike."""
    return spread(S) / (spread(S) + spread(T))


def beside(S: np.ndarray, T: np.ndarray) -> np.ndarray:
    """The cosines of two embeddings side by side."""
    weight = share(S, T)
    return (1 - weight) * S + weight * T


of_both = [torch.from_numpy(retrieval.unit(of_first[name])) for name in POOLINGS[:2]]
S, T = (cosines(X.numpy()) for X in of_both)
assert abs(share(S, T) - balance(*of_both)) < 1e-3

Pairs = dict[str, tuple[np.ndarray, np.ndarray]]  # similarities by a trick, and by its counterpart


def trials(of_texts: dict[str, np.ndarray], texts: list[str]) -> tuple[Pairs, Pairs]:
    """Each trick alone and inside `adapt`, with its counterpart."""
    unit = retrieval.unit(of_texts["passages"])
    passages = np.split(unit, of_texts["counts"].cumsum()[:-1])
    bm25 = retrieval.bm25(texts)([*range(len(texts))])
    lsa = LSA(len(texts) // 3).fit(texts)
    words = cosines(centred(lsa.embed(texts)))
    with_rare = beside(words, cosines(sketch(texts)))

    plain = cosines(of_texts["plain"])
    lead = of_texts["beginning weighs more"]
    dense = cosines(HALF(lead))
    adapt = beside(dense, words)
    alone = {"sketch beside LSA": (with_rare, words)}
    inside = {"sketch beside LSA": (beside(dense, with_rare), adapt)}
    for name in [*of_texts.keys() & {*POOLINGS}]:
        X = of_texts[name]
        alone[name] = cosines(X), plain
        inside[name] = beside(cosines(HALF(X)), words), adapt
    for name, moved in MAPS.items():
        alone[name] = cosines(moved(of_texts["plain"])), plain
        inside[name] = beside(cosines(moved(lead)), words), adapt
    for S, into in ((plain, alone), (adapt, inside)):
        into["CSLS"] = csls(S), S
        into["neighbours averaged"] = smoothed(S), S
        into["passages both ways"] = both_ways(S, passages), S
    alone["fused with BM25"] = fused(plain, bm25), bm25
    inside["fused with BM25"] = fused(adapt, bm25), adapt
    return alone, inside


# %%
from docemb_lib.evaluation.uncertainty import bootstrap_over_tasks, holm, paired_p_values



def precisions(task: Retrieval, S: np.ndarray) -> np.ndarray:
    """The average precision of each query."""
    return task.score(lambda rows: S[rows]).of_examples()


rows = []
for name, task in tasks.items():
    alone, inside = trials(vectors[name], task.texts())
    compared = [("alone", trick, pair) for trick, pair in alone.items()]
    compared += [("inside", trick, pair) for trick, pair in inside.items()]
    for place, trick, (by_trick, by_counterpart) in compared:
        gain = precisions(task, by_trick) - precisions(task, by_counterpart)
        (difference,), (low,), (high,) = bootstrap_over_tasks([gain[None]])
        (p,) = paired_p_values(gain[None])
        rows.append((trick, name, place, difference, low, high, p))
columns = ["trick", "collection", "place", "difference", "low", "high", "p"]
tests = pd.DataFrame(rows, columns=columns)
steps = ["beginning weighs more", "half whitened"]  # of `adapt` itself
is_step = tests["trick"].isin(steps) & (tests["place"] == "inside")
tests = tests[~is_step]
tests["p"] = tests.groupby("place")["p"].transform(holm)
tests["shown"] = np.sign(tests["difference"]).where(tests["p"] < 0.05, 0)

# %% [markdown]
# Each trick is compared with its counterpart on the same queries. Holm's correction counts all tricks on all
# collections, alone and inside apart.

# %%
from docemb_lib.evaluation.scoreboard import listed
from docemb_lib.thesis.comparison import LINES

COUNTERPARTS = {"fused with BM25": "BM25", "sketch beside LSA": "LSA"}
VERDICTS = {1: "better", -1: "worse", 0: "not shown to differ"}


def told(of_trick: pd.DataFrame) -> str:
    """Where a trick is shown to be better or worse, with differences."""
    clauses = []
    for shown, verdict in VERDICTS.items():
        cases = of_trick[of_trick["shown"] == shown]
        where = [f"{row.collection} ({row.difference:+.3f})" for row in cases.itertuples()]
        if where:
            clauses.append(f"{verdict} on {listed(where)}")
    return "; ".join(clauses)


tricks = [trick for trick in ROWS if trick in set(tests["trick"])]
for trick in tricks:
    of_trick = dict(iter(tests[tests["trick"] == trick].groupby("place")))
    against = COUNTERPARTS.get(trick, "plain")
    print(LINES.fill(f"{trick}: against {against} {told(of_trick['alone'])}."))
    if "inside" in of_trick:
        print(LINES.fill(f"  Inside adapt {told(of_trick['inside'])}."))

# %% [markdown]
# **Shortcuts.** Means, covariances, frequencies, idf and neighbours are those of the very documents that are ranked, as
# a search engine has them; none has seen a link, but a document that comes later would be moved by what others gave.
# Chunks count by their tokens because a plain mean, in which a last chunk of few tokens counts as much as a full one,
# lost .14 on documentation in a trial. $k$, the temperature and the shrinkage are their authors' or a first guess, and
# were chosen on no collection here. The weights of the beginning and the exponent of a quarter were chosen on pages
# like these. Whoever picks the best of sixteen rows and quotes its score picks luck, too: that is what Holm's
# correction is for.
#
# ## What was found

# %% tags=["picture"]
COLOURS = {1: figures.PALETTE["positive"], -1: figures.PALETTE["structural"], 0: figures.GREY}
EDGE = 0.12  # differences beyond it stand at the edge

size = (figures.WIDTH, 1 + 0.31 * len(tricks))
figure, axes = plt.subplots(1, len(tasks), figsize=size, sharex=True, sharey=True, squeeze=False)
for ax, name in zip(axes[0], tasks, strict=True):
    ax.axvline(0, color=figures.GREY, linewidth=0.8)
    ax.set_title(name)
    for row in tests[tests["collection"] == name].itertuples():
        inside = row.place == "inside"
        height = tricks.index(row.trick) + (0.2 if inside else -0.2)
        colour = COLOURS[row.shown]
        low, point, high = np.clip([row.low, row.difference, row.high], -EDGE, EDGE)
        ax.plot([low, high], [height, height], color=colour, linewidth=1)
        filling = colour if row.shown else "none"
        marker = "D" if inside else "o"
        look = {"color": colour, "markerfacecolor": filling, "markersize": 3.5}
        ax.plot(point, height, marker, clip_on=False, **look)
ax.set_yticks(range(len(tricks)), tricks)
ax.set(xlim=(-EDGE, EDGE), xticks=[-0.1, 0, 0.1])
ax.invert_yaxis()
figure.supxlabel("average precision minus that of the counterpart; circle: alone, diamond: inside adapt")
plt.show()

# %% [markdown]
# Blue is shown to be better, orange to be worse, a hollow point is not shown to differ. What lies beyond .12 is at the
# edge, and what `reread` left out is missing. Bars are single 95% intervals, and colours are decided after Holm's
# correction. With about a hundred queries a gain of .03 can hardly be shown: not shown does not mean worthless.

# %% tags=["found"]
for place, title in (("alone", "Alone"), ("inside", "Inside adapt")):
    of_place = tests[tests["place"] == place]
    shown = of_place.groupby("trick")["shown"]
    order = [trick for trick in tricks if trick in set(of_place["trick"])]
    worst = shown.min()[order]
    best = shown.max()[order]
    everywhere = (worst == 1) & (shown.count()[order] == len(tasks))
    kinds = {
        "better on every collection": everywhere,
        "better on some and worse on none": (best == 1) & (worst >= 0) & ~everywhere,
        "worse on some": worst == -1,
        "not shown to differ on any": (best == 0) & (worst == 0),
    }
    clauses = [f"{title}, {(of_place['shown'] != 0).sum()} of {len(of_place)} differences are shown"]
    for kind, of in kinds.items():
        if of.any():
            clauses.append(f"{kind}: {listed(list(of.index[of]))}")
    print(LINES.fill("; ".join(clauses) + "."))
survivors = [*everywhere.index[everywhere]]  # inside
stands = listed(survivors) if survivors else "no trick, so that its steps stand"
print(f"Better inside adapt on all {len(tasks)} collections: {stands}.")

# %% [markdown]
# ## Try it
#
# * `encoder = "all-mpnet-base-v2"` (from a hub; six times as long): is another encoder worth more than a trick?
# * `limit(2000)` in place of `limit(5000)` (seconds): why does LSA find the rare words now?
# * `collections = {"mine": ["my_texts", "links.tsv"]}` (a minute for 100,000 words): which trick helps on yours?
#
# **References.** Achlioptas (2003), *Database-friendly random projections*. Arandjelović and Zisserman (2012), *Three
# things everyone should know to improve object retrieval*. Arora, Liang and Ma (2017), *A simple but tough-to-beat
# baseline for sentence embeddings*. Askari, Verberne, Abolghasemi, Kraaij and Pasi (2023), *Retrieval for extremely
# long queries and documents with RPRS*. Chen et al. (2023), *Extending context window of large language models via
# positional interpolation*. Conneau et al. (2018), *Word translation without parallel data*. Cormack, Clarke and
# Büttcher (2009), *Reciprocal rank fusion*. Li, Eustratiadis and Kanoulas (2026), *Spectral tempering for embedding
# compression in dense passage retrieval*, arXiv 2603.19339. Lyu et al. (2026), *Lost in a single vector: improving
# long-document retrieval with chunk evidence aggregation*, arXiv 2606.18781. Mu and Viswanath (2018),
# *All-but-the-top*. Schnitzer et al. (2012), *Local and global scaling reduce hubs in space*. Su et al. (2021),
# *Whitening sentence representations for better semantics and faster retrieval*. Weller et al. (2025), *On the
# theoretical limitations of embedding-based retrieval*: LIMIT. Zhou et al. (2024), *Length-induced embedding collapse*,
# arXiv 2410.24200.
