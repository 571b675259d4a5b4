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
# The structural teacher reads the beginning of a document, the student much more of it. Paragraph Vector is the second
# teacher: it learns one vector per document that helps to predict the document's words, wherever they stand. Which
# Paragraph Vector makes a good teacher of a student that sees everything? Not always the one with the best scores, but
# the one that adds most to what the structural teacher, SBERT, tells already. This notebook builds one by hand and
# measures that.

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

short_enough = (text for text in run.corpus.teacher_texts if len(text.split()) < MAX_WORDS)
texts = [*islice(short_enough, 200)]
for how in ("none", "lowercase", "stem"):
    words = words_of(texts[0], how)
    print(f"{how:10}", len(words), "words:", *words[:9])

# %% [markdown]
# `min_count` drops rare words. It counts the occurrences of a word, as gensim does, where the thesis' text says
# documents; `"10%"` is 1% of the number of documents, as in the logs of its author.

# %%
occurrences = Counter()
in_documents = Counter()
for text in texts:
    words = words_of(text, "lowercase")
    occurrences.update(words)
    in_documents.update(set(words))

counts = pd.DataFrame({"occurrences": occurrences, "documents": in_documents})
for threshold in (2, 5):
    kept = (counts >= threshold).sum()
    print(f"min_count {threshold}: {kept['occurrences']} of {len(counts)} words are kept,", end=" ")
    print(f"by documents {kept['documents']} would be")

# %% [markdown]
# Most words occur once, so that even the least threshold drops the greater part of the vocabulary.
#
# ## A Doc2Vec with the thesis' settings
#
# Ten lines of gensim. A file holds a document in each line; for DM it is read by an iterable, because gensim's reader
# of files does not draw the size of a window.

# %%
from gensim.models.doc2vec import Doc2Vec, TaggedLineDocument

logging.getLogger("gensim").setLevel(logging.ERROR)


def doc2vec(file, settings, min_count):
    """DM or DBOW with what Table 4.5 holds fixed: window, noise words, no subsampling."""
    options = settings.model_dump(include={"dm", "vector_size", "epochs"})
    options["dbow_words"] = int(settings.dbow_words and not settings.dm)
    options |= {"window": 5, "negative": 5, "sample": 0}
    options |= {"seed": 0, "workers": 1}
    corpus = {"documents": TaggedLineDocument(file)} if settings.dm else {"corpus_file": file}
    return Doc2Vec(**corpus, min_count=min_count, **options)


folder = TemporaryDirectory()
teachers = run.profile.contextual_teachers
kinds = {"DM": teachers.DM, "DBOW": teachers.DBOW}
prepared = {}
models = {}
for kind, settings in kinds.items():
    place = Path(folder.name, kind, "words")
    words = write_words(place, texts, settings.preprocess)
    threshold = words.occurrences(settings.min_count)
    model = doc2vec(str(words.file), settings, threshold)
    prepared[kind] = words
    models[kind] = model
    print(kind, "documents", model.dv.vectors.shape, end=" ")
    print("words in", model.wv.vectors.shape, "words out", model.syn1neg.shape)

# %% [markdown]
# A document has one vector, a word two: one as context (in), one as what is predicted (out).
#
# ## A new document
#
# `infer_vector` fixes the words and learns the vector of a document by the same prediction. Its noise words are random:
# the generator is seeded from the words, so that a text has one embedding. The library trains epoch by epoch, so that a
# killed training goes on, and infers in several processes with one hash of Python, by which gensim draws the start of a
# vector; here both are inferred in this process.

# %%
from docemb_lib.teachers.paragraph_vector import ParagraphVector, infer


def embed(model, words):
    """The vector of a document, (D,)."""
    content = " ".join(words).encode(errors="surrogatepass")
    digest = hashlib.sha256(content).digest()
    model.random.seed(int.from_bytes(digest[:4]))
    return model.infer_vector(words)


def cosine(a, b):
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / norms


vectors = {}
for kind, settings in kinds.items():
    model = models[kind]
    documents = [words_of(text, settings.preprocess) for text in texts[:3]]
    vectors[kind] = np.stack([embed(model, words) for words in documents])
    once, twice = (model.infer_vector(documents[0]) for _ in range(2))
    of_two = f"cosine of two inferences without a seed: {cosine(once, twice):.4f}"
    print(kind, vectors[kind].shape, of_two)

    place = Path(folder.name, kind, "model").resolve()
    teacher = ParagraphVector(**settings.model_dump()).fit_words(prepared[kind], place)
    options = teacher.gensim_options(teacher.fitted.min_count)
    fitted = (place, teacher.fitted.weights, tuple(options.items()))
    of_library = infer(fitted, texts[:3], settings.preprocess)  # in this process
    apart = np.linalg.norm(vectors[kind] - of_library)
    assert apart < 0.01 * np.linalg.norm(of_library)

# %% [markdown]
# Two inferences of one text differ a little, because the learning stops early and its noise words are others.
#
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
    rows = [model.wv.key_to_index[name] for name in (word, *noise)]
    products = model.syn1neg[rows] @ hidden
    products[0] *= -1  # of the word itself
    return np.logaddexp(0, products).sum()


def loss_of_document(model, vector, words, window=2):
    """The mean loss of a document's words."""
    rng = np.random.default_rng(0)
    words = [word for word in words if word in model.wv][:500]
    losses = []
    for place, word in enumerate(words):
        before = words[max(place - window, 0) : place]
        behind = words[place + 1 : place + 1 + window]
        hidden = hidden_of(model, vector, before + behind)
        noise = rng.choice(model.wv.index_to_key, size=5)
        losses.append(loss(model, hidden, word, noise))
    return np.mean(losses)


# %%
rows = {}
for kind, model in models.items():
    words = words_of(texts[0], kinds[kind].preprocess)
    own, another, _ = vectors[kind]
    mean = model.dv.vectors.mean(axis=0)
    ahead = model.syn1neg @ (own - mean)
    best = np.argsort(-ahead)[:8]
    losses = [loss_of_document(model, vector, words) for vector in (own, another)]
    predicted = np.array(model.wv.index_to_key)[best]
    rows[kind] = [*losses, " ".join(predicted)]
    frequent = (best < 100).sum()  # the words stand in the order of their frequency
    print(f"{kind}: {frequent} of the 8 words are among the 100 most frequent ones")
columns = ["loss with its own vector", "with another document's", "words it predicts best"]
pd.DataFrame.from_dict(rows, orient="index", columns=columns).round(3)

# %% [markdown]
# The words are those that the document's vector predicts more strongly than the mean vector, most of all first.
# Frequent ones, such as *is*, *this* and *the*, tell the style of a document, not its topic. Another document's vector
# costs DBOW more than DM, where neighbouring words tell most of what comes next: DM needs its document vector less.
#
# ## This run, and the others of its plan
#
# The Paragraph Vectors of this run are trained on `train`, or on the part that the profile selects, unless they are
# there. The next cell makes the other runs of 02 in the plan of the profile. Any list can take their place, as in
# `[{"dm": False}, {"min_count": "10%"}, {"vector_size": 200}, {"preprocess": "stem"}]`; `docemb sweep 02 --grid
# paragraph-vector` makes the 45 models of Table 4.5 in the widths of this profile.

# %%
from docemb_lib.runs.plan import planned_beside

others = planned_beside(run)
if others:
    sweep(run.notebook, others, profile=profile)
print(f"{run.model.label}: an embedding is {run.model.embed(texts[:1]).shape}")

# %% [markdown]
# ## Neighbours
#
# Do near documents have a topic in common? Here are the nearest three to three held-out pages, then how often the
# nearest page is of the same package, and how often it is one that the page refers to.

# %%
from docemb_lib.evaluation.retrieval import unit

sbert, *_ = run.references
pages = run.corpus.split("tasks").to_pandas()
of_tasks = pages["text"].isin(run.scorer.texts())
pages = pages[of_tasks].reset_index(drop=True)


def neighbours(model):
    """The rows of all pages in the order of their cosine with each page, without itself: (N, N - 1)."""
    X = unit(model.embed(pages["text"]))
    cosines = X @ X.T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, kind="stable")[:, :-1]


ids = pages["id"].to_numpy()
source = pages["source"].to_numpy()
for row, nearest in enumerate(neighbours(run.model)[:3]):
    print(ids[row], "·", *ids[nearest[:3]])
for model in (run.model, sbert):
    nearest = neighbours(model)[:, 0]
    same = (source[nearest] == source).mean()
    has_links = pages["see_also"].str.len() > 0
    found = [id in cited for id, cited in zip(ids[nearest], pages["see_also"], strict=True)]
    share = np.mean(np.array(found)[has_links])
    what = f"the same package {same:.0%}, of pages with references one of these {share:.0%}"
    print(f"{model.label}: {what}")

# %% [markdown]
# Neighbours have the package in common, less often the topic: what Paragraph Vector finds first is the style of a page.
#
# ## How much of a document it reads
#
# Cut a document into five passages and exchange one of them for that of another document. How far does the embedding
# move? Here are a dozen documents of about twice the length that SBERT reads at once.

# %%
from docemb_lib.evaluation.probes import cut, exchange_passages
from docemb_lib.evaluation.scoreboard import with_interval


def exchanged(parts, of_other):
    """The document once for each passage, in whose place that of another document stands."""
    versions = []
    for k, passage in enumerate(of_other):
        version = [*parts[:k], passage, *parts[k + 1 :]]
        versions.append("".join(version))
    return versions


versions = views.documents_to_read(run)
embed_texts = run.model.embed
if versions.documents:
    parts, of_other = (cut(text, 5) for text in versions.documents[:2])
    changed = exchanged(parts, of_other)
    before, *after = embed_texts([versions.documents[0], *changed])
    moved = [1 - cosine(before, y) for y in after]
    print(f"{before.shape}; moved by {np.round(moved, 3)}")
    of_library = exchange_passages(embed_texts, versions)[0]
    assert np.allclose(moved, of_library, atol=1e-6)


# %%
def short(paragraph_vectors):
    """`DM 100`, or `PV 200` for both kinds side by side."""
    width = sum(each.vector_size for each in paragraph_vectors)
    if len(paragraph_vectors) > 1:
        return f"PV {width}"
    return f"DM {width}" if paragraph_vectors[0].dm else f"DBOW {width}"


own = short(run.paragraph_vectors)
names = figures.short_names(run) | {run.label: own}
if versions.documents:
    compared = [run.model, sbert]
    readings = views.readings(compared, versions)
    ax = figures.axes(2.6)
    figures.plot_lines(figures.named(readings, names), x="position", ax=ax)
    ax.set_xlabel("place of the passage in its document")
    run.save_figure(ax, "by-position", readings)
    endings = views.endings(compared, versions).rename(names)
    for name, *ending in endings.itertuples():
        print(f"{name}: the end counts {with_interval(*ending)} times as much as the beginning")

# %% [markdown]
# Every passage moves Paragraph Vector about equally far: it reads the whole document. SBERT reads the first half.
#
# To read is not to find. Take the last fifth of a page as a query: at which rank do all pages, ordered by their cosine
# with it, have the page itself? The pages are so long that SBERT has read nothing of this fifth.

# %%
from docemb_lib.evaluation.tasks import Score

window = run.teachers.sbert("truncate").max_text_tokens
long_enough = pages.index[pages["n_structural_tokens"] > 1.25 * window][:100]
last_fifths = []
for text in pages["text"][long_enough]:
    *_, last = cut(text, 5)
    last_fifths.append(last)


def reciprocal_ranks(model):
    """One over the rank of each long page, by the cosines of all pages with its last fifth."""
    of_fifths = unit(model.embed(last_fifths))
    cosines = of_fifths @ unit(model.embed(pages["text"])).T
    of_page = cosines[np.arange(len(long_enough)), long_enough]
    ranks = (cosines >= of_page[:, None]).sum(axis=1)
    return 1 / ranks


ENDINGS = "pages by their last fifth"
found_by_ending = {}
for model in (run.model, sbert) if len(long_enough) else ():
    ranks = reciprocal_ranks(model)
    name = names[model.label]
    found_by_ending[name] = {ENDINGS: Score({"mrr": ranks[None]})}
    print(f"{name}: mean reciprocal rank of {len(ranks)} pages {ranks.mean():.3f}")

# %% [markdown]
# SBERT finds more pages by what it has not read than Paragraph Vector by what it has: the beginning of a page tells
# what its end will be about, while the vector of a short text is learnt from few words.
#
# ## What it adds to SBERT
#
# A teacher of a student that has SBERT as its first teacher is good for what SBERT lacks. Set both side by side, each
# vector of length 1: are the scores better than those of SBERT alone? LSA of the same documents stands beside them. It
# counts words, too, takes a second to fit, and can be the contextual teacher (`contextual_teacher = "LSA"`).

# %%
from docemb_lib.runs.embeddings import Embedder
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import Model, contextual_models


def side_by_side(first, second, name):
    """A model whose embeddings are those of two others, each of length 1: (N, D + C)."""

    def embed(texts):
        both = [unit(model.embed(texts)) for model in (first, second)]
        return np.hstack(both)

    key = f"side by side/{first.fingerprint}/{second.fingerprint}"
    identity = Identity(Kind.PARAGRAPH_VECTOR, name=name)
    return Model(identity, Embedder(name, key, embed))


candidates = {own: run.model}
for record in run.comparable()[:3]:
    other = run.of_record(record)
    name = short(other.paragraph_vectors)
    candidates[other.label if name in candidates else name] = other.model
lsa = contextual_models(run.teachers).get(Kind.CORPUS_LSA)
if lsa is not None:
    candidates[f"LSA {run.profile.contextual_teachers.lsa_dim}"] = lsa

# %% tags=["picture"]
from docemb_lib.evaluation.uncertainty import OVERALL, score_intervals

start = names[sbert.label]
compared = [sbert.called(start)]
for name, model in candidates.items():
    compared.append(model.called(name))
    compared.append(side_by_side(sbert, model, f"{start} ⊕ {name}"))
(scores,) = run.scorer.by_round(compared).values()  # validation splits have one round
intervals = score_intervals(scores)
intervals = intervals[intervals["task"] != OVERALL]
is_beside = intervals["model"].str.contains("⊕")
intervals["group"] = is_beside.map({True: f"beside {start}", False: "alone"})

figure = figures.plot_rows(intervals, hue="group")
figure.axes[0].set_xlabel("mean score of the validation splits")
run.save_figure(figure, "beside-sbert", intervals)

# %% [markdown]
# Yellow beside the blue SBERT: to its right stand the teachers that add something. Those that count words are far apart
# alone and close together beside SBERT: most of what they are good for, SBERT is good for, too.
#
# **Why not LSA or TF-IDF?** By this measure LSA is the better teacher here. The thesis did not try it, so 04 to 06
# take PV, DM and DBOW side by side, as the thesis does. TF-IDF has a feature for each word, some ten thousands of them,
# so that no projection of a student's embedding ends as wide.
#
# **Shortcuts.** The pages of a package share names and phrases (`>>>`, *Parameters*, `torch`), so that `package` can be
# told from a few words without any topic. `see-also-retrieval` asks for the topic within a package: compare the marks
# of both tasks in the figure.
#
# ## Beside the thesis
#
# Validation scores as in Figure 4.5, whose means are hollow diamonds (`01_corpus` explains normalised scores and
# intervals). TF-IDF uses words alone.

# %%
validation = run.scores()
runs = thesis.scores_of_runs(run, validation)
labels = {candidate.label: name for name, candidate in candidates.items()}
figure = figures.plot_runs(figures.named(runs, names | labels), by="kind")
run.save_figure(figure, "runs", runs)

# %%
figure = thesis.in_figure(run, "figure 4.5")
sizes = [[{"vector_size": size}] for size in (1024, 768, 100)]
compounds = [{"kind": "DM+DBOW"}]
single = [{"kind": "DM"}, {"kind": "DBOW"}]
says = "Each compound is better than each single model."
claims = [
    thesis.better(figure, "Larger vectors are better on average.", *sizes, of="mean"),
    thesis.better(figure, says, compounds, single),
]
figures.table(thesis.claim_table(claims), section=thesis.CLAIMS)

# %% [markdown]
# In the thesis DBOW and DM are close, and both side by side are better than either. It compares them by their scores
# alone, not by what they add to SBERT.
#
# ## Try it
#
# * `docemb run 02 -p dm=False -p vector_size=100 -p preprocess=none` (20 s): does DBOW of 100 dimensions add less to
#   SBERT than that of 512?
# * `docemb run 02 -p min_count=10%` (20 s): DM without the words that occur less than 20 times; does it lose on both
#   tasks?
# * `docemb run 05 -p contextual_teacher=DBOW -p "student_projection=384(ReLU)x2048(ReLU)x512"` (two minutes): is the
#   student of DBOW 512 better than that of PV 200?
#
# ## What was found

# %% tags=["found"]
from docemb_lib.evaluation.scoreboard import UNCLEAR, listed, over_tasks, p_value
from docemb_lib.evaluation.uncertainty import differences, verdicts
from docemb_lib.thesis.comparison import LINES



def gains(reference):
    """What each teacher beside SBERT has in the mean beyond a reference, by paired tests (Holm)."""
    others = [name for name in scores if "⊕" in name and name != reference]
    compared = {name: scores[name] for name in (reference, *others)}
    tests = over_tasks(verdicts(differences(compared, reference)))
    said = []
    for test in tests.itertuples():
        name = test.model.partition("⊕ ")[2]
        shown = ", not shown" if test.verdict == UNCLEAR else ""
        said.append(f"{name} {test.difference:+.3f} ({p_value(test.p_holm)}{shown})")
    return listed(said)


print(LINES.fill(f"In the mean over tasks, a teacher adds to {start}: {gains(start)}."))
if len(candidates) > 1:
    changes = gains(f"{start} ⊕ {own}")
    print(LINES.fill(f"Another teacher in the place of {own} changes this mean: {changes}."))
if found_by_ending:
    print(views.compared(found_by_ending, own, start))

# %% [markdown]
# ## Conclusion

# %% tags=["conclusion"]
print(thesis.conclusion(run))

# %%
print(run.record_scores())

# %% [markdown]
# ## References
#
# * D. Burian: *Document embedding using Transformers*. Master thesis, Institute of Formal and Applied Linguistics,
#   Charles University, Prague 2023 (Figures 3.3, 3.4 and 4.5, Table 4.5).
# * Q. Le, T. Mikolov: *Distributed Representations of Sentences and Documents*. ICML 2014.
# * J. Lau, T. Baldwin: *An Empirical Evaluation of doc2vec*. RepL4NLP 2016 (the settings of DBOW).
#
# `03_structural` distils from the structural teacher.
