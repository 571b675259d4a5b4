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
# # 02 · Paragraph Vector, the contextual teacher
#
# Which Paragraph Vector makes a good contextual teacher? It learns one vector per document that helps to predict the
# words of the document. It ignores syntax, and reads the *whole* document.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the model's initial vectors and samples
dm = True  # True: DM; False: DBOW
vector_size = 100  # dimensions; the thesis tries 100, 768 and 1024
min_count = 2  # drop words that occur less often, or "10%" for the thesis' high threshold
preprocess = "lowercase"  # none, lowercase, or stem (Porter)
compound = None  # labels of two models joined by +, e.g. "DM;100;lowercase;2+DBOW;100;None;2"; None: one model

# %%
import hashlib
import logging
from collections import Counter
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import begin, figures, sweep, thesis, views

figures.use_style()
run = begin("02_paragraph_vector", globals())
thesis.settings(run)

# %% [markdown]
# ## What it predicts
#
# **DM** predicts a word from the mean of the document vector and the vectors of the words around it. **DBOW** predicts
# each word from the document vector alone, so word order is lost (Figures 3.4 and 3.3 of the thesis).
#
# The words are what white space separates, as they are, in lower case, or stemmed. The cells below use 200 documents.

# %%
from docemb_lib.teachers.words import MAX_WORDS, write_words
from docemb_lib.teachers.words import preprocess as words_of

candidates = islice(run.corpus.teacher_texts, 300)
texts = [text for text in candidates if len(text.split()) < MAX_WORDS][:200]
for how in ("none", "lowercase", "stem"):
    words = words_of(texts[0], how)
    print(f"{how:10}", len(words), "words:", *words[:9])

# %% [markdown]
# ## A Doc2Vec with the thesis' settings
#
# Ten lines of gensim. A file holds a document in each line; for DM it is read by an iterable, because gensim's reader of
# files does not draw the size of a window.

# %%
from gensim.models.doc2vec import Doc2Vec, TaggedLineDocument

logging.getLogger("gensim").setLevel(logging.ERROR)


def doc2vec(file, settings, min_count):
    """DM or DBOW with what Table 4.5 holds fixed: window, noise words, no subsampling."""
    options = settings.model_dump(include={"dm", "vector_size", "epochs"})
    options |= {"dbow_words": int(settings.dbow_words and not settings.dm)}
    options |= {"window": 5, "negative": 5, "sample": 0, "seed": 0, "workers": 1}
    corpus = {"documents": TaggedLineDocument(file)} if settings.dm else {"corpus_file": file}
    return Doc2Vec(**corpus, min_count=min_count, **options)


folder = TemporaryDirectory()
teachers = run.profile.contextual_teachers
kinds = {"DM": teachers.DM, "DBOW": teachers.DBOW}
prepared = {}
models = {}
for kind, settings in kinds.items():
    words = write_words(Path(folder.name, kind, "words"), texts, settings.preprocess)
    model = doc2vec(str(words.file), settings, words.occurrences(settings.min_count))
    prepared[kind] = words
    models[kind] = model
    print(kind, "documents", model.dv.vectors.shape, "words in", model.wv.vectors.shape, end=" ")
    print("words out", model.syn1neg.shape)

# %% [markdown]
# ## A new document
#
# `infer_vector` fixes the words and learns the vector of a document by the same prediction. Its noise words are random:
# the generator is seeded from the words, so that a text has one embedding.

# %%
def embed(model, words):
    """The vector of a document, (D,)."""
    content = " ".join(words).encode(errors="surrogatepass")
    model.random.seed(int.from_bytes(hashlib.sha256(content).digest()[:4]))
    return model.infer_vector(words)


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


vectors = {}
for kind, model in models.items():
    documents = [words_of(text, kinds[kind].preprocess) for text in texts[:3]]
    vectors[kind] = np.stack([embed(model, words) for words in documents])
    once, twice = (model.infer_vector(documents[0]) for _ in range(2))
    print(kind, vectors[kind].shape, end=" ")
    print(f"cosine of two inferences without a seed: {cosine(once, twice):.4f}")

# %% [markdown]
# The library trains epoch by epoch, so that a killed training goes on, and infers in several processes. It gives the
# same vectors.

# %%
from docemb_lib.teachers.paragraph_vector import ParagraphVector, infer

for kind, settings in kinds.items():
    place = Path(folder.name, kind, "model").resolve()
    teacher = ParagraphVector(**settings.model_dump()).fit_words(prepared[kind], place)
    options = teacher.gensim_options(teacher.fitted.min_count)
    key = (place, teacher.fitted.weights, tuple(options.items()))
    library = infer(key, texts[:3], settings.preprocess)
    assert np.linalg.norm(vectors[kind] - library) < 0.01 * np.linalg.norm(library)

# %% [markdown]
# ## What the vector predicts
#
# Negative sampling compares a word $w$ with five noise words $n$: the loss is
# $-\log\sigma(u_w \cdot h) - \sum_n \log\sigma(-u_n \cdot h)$, where $h$ is the mean of DM or the document vector.

# %%
def hidden_of(model, vector, context):
    """What predicts a word, (D,)."""
    if model.dm:
        return np.mean([vector, *model.wv[context]], axis=0)
    return vector


def loss(model, hidden, word, noise):
    rows = model.syn1neg[[model.wv.key_to_index[name] for name in (word, *noise)]]
    signs = np.array([1] + len(noise) * [-1])
    return np.logaddexp(0, -signs * (rows @ hidden)).sum()


def loss_of_document(model, vector, words, window=2):
    """The mean loss of a document's words."""
    rng = np.random.default_rng(0)
    words = [word for word in words if word in model.wv][:500]
    losses = []
    for place, word in enumerate(words):
        context = words[max(place - window, 0) : place] + words[place + 1 : place + 1 + window]
        noise = rng.choice(model.wv.index_to_key, size=5)
        losses.append(loss(model, hidden_of(model, vector, context), word, noise))
    return np.mean(losses)


# %%
rows = {}
for kind, model in models.items():
    words = words_of(texts[0], kinds[kind].preprocess)
    first, second, _ = vectors[kind]
    ahead = model.syn1neg @ (first - model.dv.vectors.mean(axis=0))
    best = [model.wv.index_to_key[row] for row in np.argsort(-ahead)[:8]]
    losses = [loss_of_document(model, vector, words) for vector in (first, second)]
    rows[kind] = [*losses, " ".join(best)]
columns = ["loss with its own vector", "with another document's", "words it predicts best"]
pd.DataFrame.from_dict(rows, orient="index", columns=columns).round(3)

# %% [markdown]
# The words are those that the document's vector predicts more strongly than the mean vector, most of all first. Where
# they are words such as *is*, *this* and *the*, the vector says more of a document's style than of its topic. Another
# document's vector costs DBOW more than DM, where neighbouring words tell most of what comes next.
#
# ## Which words are kept
#
# `min_count` counts the occurrences of a word, as gensim does, where the thesis' text says documents; `"10%"` is 1% of
# the number of documents, as in its author's logs, which is 2 for these 200.

# %%
occurrences = Counter()
in_documents = Counter()
for text in texts:
    words = words_of(text, "lowercase")
    occurrences.update(words)
    in_documents.update(set(words))

counted = write_words(Path(folder.name, "counted"), texts, "lowercase")
for threshold in (2, 5, "10%"):
    least = counted.occurrences(threshold)
    kept = sum(count >= least for count in occurrences.values())
    rarer = sum(count >= least for count in in_documents.values())
    print(f"min_count {threshold} ({least}): {kept} of {len(occurrences)} words are kept,", end=" ")
    print(f"by documents {rarer} would be")
    assert kept == counted.kept_words(threshold)

# %% [markdown]
# ## This run
#
# It is trained on `train`, or on the part that the profile selects, or loads what an earlier run has trained. Do the
# neighbours by cosine of three validation documents have the same topic? In the embedded default not all of them have.

# %%
widths = [settings.vector_size for settings in run.paragraph_vectors]
print(run.model.label, "·", sum(widths), "dimensions")
Y = views.validation_embeddings(run.corpus, run.model)
ids = run.corpus.split("validation")["id"]
for row in range(3):
    cosines = Y @ Y[row] / np.maximum(np.linalg.norm(Y, axis=1), 1e-9)
    cosines[row] = -np.inf
    print(ids[row], "·", *[ids[int(near)] for near in np.argsort(-cosines, kind="stable")[:3]])

# %% [markdown]
# ## How much of a document it reads
#
# Cut a document into five passages and exchange one of them for that of another document. How far does the embedding
# move? Here are a dozen documents of about twice the length that the structural teacher reads at once.

# %%

from docemb_lib.evaluation.probes import cut, exchange_passages


def exchanged(parts, of_other):
    """The document once for each passage, in whose place that of another document stands."""
    return ["".join([*parts[:k], of_other[k], *parts[k + 1 :]]) for k in range(len(parts))]


versions = views.documents_to_read(run)
embed_texts = run.model.embed
if versions.documents:
    parts, of_other = (cut(text, 5) for text in versions.documents[:2])
    before, *after = embed_texts([versions.documents[0], *exchanged(parts, of_other)])
    moved = [1 - cosine(before, y) for y in after]
    print(f"{before.shape}; moved by {np.round(moved, 3)}")
    assert np.allclose(moved, exchange_passages(embed_texts, versions)[0], atol=1e-6)

# %%
truncated = [model for model in run.references if model.kind == "sbert-truncated"]
compared = [run.model, *truncated]
if versions.documents:
    readings = views.readings(compared, versions)
    names = figures.short_names(run)
    _, ax = plt.subplots()
    figures.plot_lines(figures.named(readings, names), x="position", ax=ax)
    ax.set_xlabel("place of the passage in its document")
    run.save_figure(ax, "by-position", readings)
    print(views.counted_endings(views.endings(compared, versions), versions))

# %% [markdown]
# Distances at one height mean that a model reads the *whole* document; SBERT reads its first half. To read is not to
# find: with the last fifth of a page as the query, Paragraph Vector finds the page with a mean reciprocal rank of .42,
# and SBERT, which has not read that fifth, with .64 ([measured](../outputs/published/reading.md)).
#
# ## A sweep
#
# Table 4.5 of the thesis. `docemb sweep 02 --grid paragraph-vector` makes its 45 models in the widths of this profile.
# The embedded default fits DBOW without word vectors (`dbow_words: false`): with them, 512 dimensions take 70 s on 2,000
# documents in place of 13 s. What they add to scores was not measured.

# %%
figures.table(thesis.table("4.5"))

# %% [markdown]
# The next cell makes the other runs of 02 in the plan of this profile, unless they are recorded. Any list can take their
# place, as in `[{"dm": False}, {"min_count": "10%"}, {"vector_size": 200}, {"preprocess": "stem"}]`.

# %%
from docemb_lib.runs.plan import planned_beside

others = planned_beside(run)
if others:
    swept = sweep(run.notebook, others, profile=profile)

# %% [markdown]
# ## All runs so far
#
# Validation scores as in Figure 4.5, whose means are hollow diamonds (`01_corpus` explains normalised scores, intervals
# and claims). SBERT with the number of its tokens is the structural teacher; TF-IDF uses words alone.

# %%
scores = run.scores()
runs = thesis.scores_of_runs(run, scores)
figure = figures.plot_runs(figures.named(runs, figures.short_names(run)), by="kind")
run.save_figure(figure, "runs", runs)

# %% [markdown]
# In the thesis larger vectors are better, DBOW and DM are close, and both side by side are better than either. In the
# embedded default DBOW of 512 features is far ahead of both DMs of 100, and TF-IDF is ahead of all.

# %%
figure = thesis.in_figure(run, "figure 4.5")
sizes = [[{"vector_size": size}] for size in (1024, 768, 100)]
stem, lowercase, as_they_are = ([{"preprocess": name}] for name in ("stem", "lowercase", "none"))
compounds = [{"kind": "DM+DBOW"}]
claims = [
    thesis.better(figure, "Larger vectors are better on average.", *sizes, of="mean"),
    thesis.better(
        figure, "A small min_count is.", [{"min_count": 2}], [{"min_count": "10%"}], of="mean"
    ),
    thesis.better(figure, "Lower case is better than none.", lowercase, as_they_are, of="mean"),
    thesis.better(figure, "Stems are better than whole words.", stem, as_they_are, of="mean"),
    thesis.better(
        figure,
        "Each compound is better than each single model.",
        compounds,
        [{"kind": "DM"}, {"kind": "DBOW"}],
    ),
]
figures.table(thesis.claim_table(claims), section=thesis.CLAIMS)

# %% [markdown]
# ## Conclusion

# %% tags=["conclusion"]
print(thesis.conclusion(run))

# %%
numbers = run.finish(run.metrics(scores), scores=scores, tables=run.evaluation.tables)
print("tables and figures:", Path(run.figures[0]).parent)
numbers

# %% [markdown]
# ## References
#
# * D. Burian: *Document embedding using Transformers*. Master thesis, Institute of Formal and Applied Linguistics,
#   Charles University, Prague 2023 (Figures 3.3, 3.4 and 4.5, Table 4.5).
# * Q. Le, T. Mikolov: *Distributed Representations of Sentences and Documents*. ICML 2014.
# * J. Lau, T. Baldwin: *An Empirical Evaluation of doc2vec*. RepL4NLP 2016 (the settings of DBOW).
#
# **Other models.** Change a parameter and run all cells. `03_structural` distils from the structural teacher.
