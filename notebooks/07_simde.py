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
# # 07 · SimDE, a student without teachers
#
# How good is a student that learns without teachers, only which two halves belong to one document? This notebook
# follows another paper, *SimDE: Simple Contrastive Learning for Document Embeddings* (an anonymous EMNLP submission,
# below *the paper*). SimDE assigns each sentence to one of two sets at random; SimCSE takes the document twice, with
# different dropout (`pairs = "dropout"`).

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents, of their halves and of hidden words
pairs = "profile"  # halves (of each document's sentences: SimDE) or dropout (the document twice: SimCSE)
pair_temperature = "profile"  # τ, from above 0: the cosines of a batch are divided by it
mlm_weight = "profile"  # weight of the loss of guessing hidden words, which doubles the time; 0: without
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
from pathlib import Path
from textwrap import shorten

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from IPython.display import Markdown, display

# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import begin, figures, thesis

figures.use_style()
run = begin("07_simde", globals())
thesis.settings(run)

# %% [markdown]
# ## One document in two halves
#
# A coin decides for each sentence. The halves keep the order of sentences, and no half is empty.

# %%
def toss_coins(n, rng):
    """Which of n sentences go into the first half, (n,) bool."""
    in_first = np.zeros(n, dtype=bool)
    while in_first.all() or not in_first.any():
        in_first = rng.random(n) < 0.5
    return in_first


def halves_of(sentences, in_first):
    """The first and the second half of a document as texts."""
    first = [sentence for sentence, coin in zip(sentences, in_first, strict=True) if coin]
    second = [sentence for sentence, coin in zip(sentences, in_first, strict=True) if not coin]
    return "".join(first), "".join(second)


# %% [markdown]
# The draw depends on the seed, the document and the epoch alone, so that each epoch has new halves and a resumed training
# goes on with the same ones.

# %%
from docemb_lib.corpus.sentences import split_sentences
from docemb_lib.training.pairs import draw_halves, generator_of

size = run.training.batch_size
options = {"seed": run.profile.parameters.seed, "epoch": 0}
batch = []
for document in run.corpus.split("train"):
    sentences = split_sentences(document["text"], language=run.profile.simde.language)
    if len(sentences) >= 2:
        in_first = toss_coins(len(sentences), generator_of(document["id"], **options))
        of_library = draw_halves(len(sentences), generator_of(document["id"], **options))
        np.testing.assert_array_equal(in_first, of_library)
        batch.append((sentences, in_first))
    if len(batch) == size:
        break

pairs_of_batch = [halves_of(*document) for document in batch]
for sentences, in_first in batch[:3]:
    print(f"{len(sentences)} sentences, {in_first.sum()} in the first half, as in the library")

# %%
def plot_halves(sentences, in_first, ax):
    """A document's sentences, and each again in the column of its half (Figure 1 of SimDE)."""
    colours = np.where(in_first, figures.SERIES[0], figures.SERIES[5])  # legible on light and dark
    for row, (sentence, coin, colour) in enumerate(zip(sentences, in_first, colours, strict=True)):
        text = shorten(sentence, 30, placeholder=" …")
        ax.text(0, row, text, color=colour)
        ax.text(1.1 if coin else 2.2, row, text, color=colour)
    for column, title in enumerate(["the document", "first half, $h$", "second half, $h^+$"]):
        ax.text(1.1 * column, -1.2, title, parse_math=True)
    ax.set(xlim=(0, 3.2), ylim=(len(sentences), -2))
    ax.set_axis_off()
    return ax


sentences, in_first = batch[0]
_, ax = plt.subplots(figsize=(figures.WIDTH, 1 + 0.2 * min(len(sentences), 14)))
ax = plot_halves(sentences[:14], in_first[:14], ax)
run.save_figure(ax, "document-in-halves")

# %% [markdown]
# The columns share no sentence, but the topic and its terms. An encoder that represents the topic can match them. So
# can one that counts the rare words which both halves have: the task alone does not ask for meaning.
#
# ## InfoNCE of one batch
#
# With $h_i$ and $h_i^+$ the embeddings of the two halves of document $i$ and a temperature $\tau$:
#
# $$\ell_i=-\log\frac{\exp(\cos(h_i,h_i^+)/\tau)}{\sum_{j=1}^{B}\exp(\cos(h_i,h_j^+)/\tau)}$$

# %%
def cosines_of(first, second):
    """The cosine of each h_i and each h+_j, (B, B)."""
    first = first / first.norm(dim=1, keepdim=True)
    second = second / second.norm(dim=1, keepdim=True)
    return first @ second.T


def info_nce(first, second, temperature):
    """Minus the log-probability of a document's own second half, (B,). first, second: (B, D)."""
    logits = cosines_of(first, second) / temperature
    log_probabilities = logits - logits.logsumexp(dim=1, keepdim=True)
    return -log_probabilities.diagonal()


# %%
import torch

from docemb_lib.losses import InfoNCE

temperature = run.profile.parameters.pair_temperature
firsts, seconds = zip(*pairs_of_batch, strict=True)
embeddings = run.untrained.embed([*firsts, *seconds])
h, h_plus = torch.tensor(embeddings).chunk(2)
losses = info_nce(h, h_plus, temperature)
torch.testing.assert_close(losses, InfoNCE(temperature)(h, h_plus), atol=1e-4, rtol=1e-4)
print(f"h {tuple(h.shape)}, h+ {tuple(h_plus.shape)}; losses of three documents {losses[:3]}")
print(f"mean {losses.mean():.4f}, equal to the library's; at chance log B = {np.log(len(h)):.4f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(figures.WIDTH, 3))
cosines = cosines_of(h, h_plus)
probabilities = (cosines / temperature).softmax(dim=1)
panels = {"cosines": cosines, f"probabilities, τ = {temperature}": probabilities}
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    figure.colorbar(ax.imshow(values, cmap="Blues"), ax=ax)
    ax.set(title=title, xlabel="second half of document j", ylabel="first half of document i")
    ax.grid(visible=False)
run.save_figure(figure, "batch")

# %% [markdown]
# The loss is small where the diagonal stands out. The temperature makes of small differences of cosines a clear choice,
# so that only the nearest other documents count. `mlm_weight` adds the loss of guessing hidden words.
#
# ## The documents
#
# Sizes beside the paper's data sets (Table 1):

# %%
from docemb_lib.evaluation import Classification


def size_of(data, words, classes):
    """A row of Table 1. words: how many each document has."""
    lengths = {"mean words": float(np.mean(words)), "median words": float(np.median(words))}
    return {"data": data, "documents": float(len(words)), "classes": float(classes), **lengths}


count = run.profile.parameters.documents
rows = [size_of("here: training documents", run.corpus.split("train")["n_words"][:count], np.nan)]
for name in run.profile.evaluation.tasks:
    task = run.scorer.task(name)
    if isinstance(task, Classification):
        texts = [text for data in task.splits.values() for text in data.texts]
        words = [len(text.split()) for text in texts]
        rows.append(size_of(f"here: {name}", words, len(set(task.splits["train"].labels))))
paper = thesis.published("simde")
table_1 = paper.query("source == 'table 1'").pivot_table("value", "task", "metric", sort=False)
sizes = pd.concat([pd.DataFrame(rows).set_index("data"), table_1], join="inner")
figures.table(sizes.rename_axis("data"), digits=0)

# %% [markdown]
# Nouns and verbs per distinct noun and verb, by the words of a document (Table 4); 1 is no repetition. Compare slopes,
# because the paper's tagger is another.

# %%
import re

from lemminflect import getLemma
from textblob.en import parser

# The beginnings of Penn Treebank tags. Verbs include be, have and do; can, will and the like (MD) are "other".
TAGS = {"NN": "noun", "VB": "verb", "JJ": "adjective"}
# Tokens are cut as in the lexicon: do n't, they 're, cat 's, state-of-the-art, U.S. Every sign is a token by itself.
TOKENS = re.compile(
    r"(?:[^\W\d_]\.){2,}|\w+?(?=n['’]t\b)|n['’]t\b|['’](?:s|re|ve|ll|d|m)\b|"
    r"\w+(?:[-.]\w+)*|[^\w\s]",
    re.IGNORECASE,
)


def tag_words(text):
    """Every word of an English text in its order, and its part of speech; signs and numbers are not words."""
    words = []
    for sentence in split_sentences(text):
        tokens = TOKENS.findall(sentence)
        tagged = parser.find_tags([token.replace("’", "'") for token in tokens])
        for token, (_, tag) in zip(tokens, tagged, strict=True):
            if any(map(str.isalpha, token)):
                words.append((token, TAGS.get(tag[:2], "other")))
    return words


assert tag_words("Cats don't sleep.") == [("Cats", "noun"), ("do", "verb"), ("n't", "other"), ("sleep", "verb")]

# %%

def redundancy(text):
    """Nouns and verbs per distinct lemma of these; NaN without any."""
    lemmas = []
    for word, part in tag_words(text):
        if part in ("noun", "verb"):
            lemmas.append(getLemma(word.lower(), upos=part.upper())[0])
    return len(lemmas) / len(set(lemmas)) if lemmas else np.nan


# ships left harbour ships stayed harbour: six, and four of them differ
assert redundancy("The ships left the harbour. Two ships stayed in the harbour.") == 6 / 4

# %%
texts_read = run.corpus.split("train")["text"][: min(300, count)]
is_english = run.profile.simde.language == "en"
table_4 = paper.query("metric == 'redundancy'").pivot_table("value", "task", "words", sort=False)
if is_english:
    measured = pd.Series([redundancy(text) for text in texts_read])
    words = [len(text.split()) for text in texts_read]
    labels = table_4.columns.drop("All")
    by_length = measured.groupby(
        pd.cut(words, [0, 50, 100, 200, 300, np.inf], labels=labels), observed=False
    )
    here = by_length.mean().to_dict() | {"All": measured.mean()}
    row = pd.DataFrame(here, index=[f"here: {run.profile.corpus.source}"])
    table_4 = pd.concat([row, table_4])
else:
    print("The tagger knows English alone: no nouns and verbs are counted here.")
figures.table(table_4.rename_axis(index="data", columns="words"), digits=2)

# %% [markdown]
# Mean cosine of two sentences of one document and of different documents (Table 5). The paper's encoder is SimCSE; the
# row `here` names its own, so compare the two columns.

# %%
def mean_cosines(documents):
    """The mean cosine of two sentences inside a document and across. documents: (sentences, D)."""
    n = np.array([len(document) for document in documents])
    X = np.concatenate(documents).astype(float)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    # The squared norm of a sum of unit vectors is the sum of the cosines of all ordered pairs.
    sums = np.add.reduceat(X, n.cumsum() - n)
    inside = np.square(sums).sum()
    across = np.square(sums.sum(axis=0)).sum() - inside
    return {
        "inside": (inside - len(X)) / (n * (n - 1)).sum(),  # without each vector with itself
        "across": across / (n.sum() ** 2 - (n**2).sum()),
    }


# %%
from docemb_lib.runs.models import published_model, sbert_models
from docemb_lib.teachers.words import spaced

documents_read = []
for text in texts_read:
    split = split_sentences(text, language=run.profile.simde.language)
    distinct = dict.fromkeys(" ".join(sentence.split()) for sentence in split)
    # Shorter ones are headings, dates and signatures.
    sentences = [sentence for sentence in distinct if len(spaced(sentence).split()) >= 3]
    if len(sentences) >= 2:
        documents_read.append(sentences)
# %%
encoder = run.profile.simde.sentence_encoder
model = published_model(encoder, pooling="cls") if encoder else sbert_models(run.teachers).truncated
embeddings = model.embed([sentence for document in documents_read for sentence in document])
ends = np.cumsum([len(document) for document in documents_read])
of_documents = np.split(embeddings, ends[:-1])

# Beside a loop over two sentences of each of two documents
a, b, c, d = torch.tensor(np.concatenate([document[:2] for document in of_documents[:2]]))
slow = {"inside": [(a, b), (c, d)], "across": [(a, c), (a, d), (b, c), (b, d)]}
for kind, value in mean_cosines([document[:2] for document in of_documents[:2]]).items():
    expected = np.mean([torch.cosine_similarity(*pair, dim=0) for pair in slow[kind]])
    np.testing.assert_allclose(value, expected, atol=1e-5)

here = f"here: {run.profile.corpus.source}, by {model.label}"
table_5 = paper.query("source == 'table 5'").pivot(index="task", columns="metric", values="value")
rows = pd.concat([pd.DataFrame(mean_cosines(of_documents), index=[here]), table_5], join="inner")
rows.rename_axis(index="data", columns="mean cosine").round(2)

# %% [markdown]
# ## Train
#
# The validation loss has one fixed draw of halves, and batches as large as those of training.

# %%
train_history, validation_history = run.history()  # trains the student, unless it is there already
ax = figures.plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)

# %%
validation_history.drop(columns="epoch", errors="ignore").round(4)

# %% [markdown]
# `spread` is the mean cosine distance of two documents, which a softmax over cosines enlarges.

# %%
from docemb_lib.evaluation.probes import measure_distances, tidy_distances

validation = run.corpus.split("validation")
halves = []
for name, text in zip(validation["id"][:1000], validation["text"][:1000], strict=True):
    sentences = split_sentences(text, language=run.profile.simde.language)
    if len(sentences) >= 2:
        in_first = draw_halves(len(sentences), generator_of(name, **options))
        halves.append(halves_of(sentences, in_first))
firsts, seconds = zip(*halves, strict=True)

frames = []
for model in (run.untrained, run.model):
    first, second = np.split(model.embed([*firsts, *seconds]), 2)
    measured = measure_distances(first, second, distance="cosine", negatives=20)
    frames.append(tidy_distances(measured).assign(model=model.label))
distances = pd.concat(frames, ignore_index=True)

# %%
KINDS = {
    "positive": "to the other half of the document",
    "negative": "to halves of other documents",
}
of_names = figures.named(distances, figures.short_names(run))
_, ax = plt.subplots()
figures.plot_distances(of_names, distance="cosine", kinds=KINDS, ax=ax)
run.save_figure(ax, "halves", distances)

# %% [markdown]
# Halves of validation documents. Where the two kinds hardly overlap before training, a batch has only easy negatives.
#
# ## Every model on every task
#
# Test splits, as in [06](06_evaluation.ipynb), beside recorded students.

# %%
from docemb_lib.runs.models import student_model
from docemb_lib.thesis.comparison import short_labels

all_rows = False  # True: also other references, and the student in its other forms

recorded = {}  # students of this notebook, then of the final evaluation
for record in (*run.comparable("07_simde"), *run.comparable("06_evaluation")):
    if record.label != run.label and record.student_folder:
        student = student_model(record.label, record.student_folder)
        recorded.setdefault(record.label, student)
students = list(recorded.values())
final = run.evaluate(others=students)
keys = {record.label: run.of_record(record) for record in run.comparable("06_evaluation")}
names = short_labels(keys) | figures.short_names(run)
said = thesis.conclusion(run, final)
named = " ".join(said.split())
rows = [final.student, *(model.label for model in students), run.untrained.label]
if all_rows:
    rows += final.models["model"].tolist()
else:
    rows += [model for model in final.models["model"] if model in named]


def only_rows(frame):
    """The rows of the models that are compared here, with their names in figures."""
    return figures.named(frame[frame["model"].isin(rows)], names)


board = final.board
only_rows(board.reset_index()).set_index(board.index.names)

# %%
figure = figures.plot_rows(only_rows(final.last), panel="task")
run.save_figure(figure, "tasks", final.last)

# %%
comparison = only_rows(final.comparison)
figure = figures.plot_differences(comparison, reference=names[final.practice])
run.save_figure(figure, "differences", final.comparison)

# %% [markdown]
# What training has added to the encoder, by task. The default's encoder has learnt from a billion pairs of texts, so
# that halves can add less than to the plain BERT of the paper. There 200 documents without a teacher end in the mean
# where 2,000 documents of distillation from SBERT alone do (.800 and .799, not tested;
# [06](../outputs/published/embedded/README.md#scores-on-the-test-splits)).

# %%
columns = ["task", "metric", "difference", "low", "high", "verdict"]
gain = final.comparison.query("model == @final.student and reference == @run.untrained.label")
figures.table(gain[columns], digits=4)

# %%
from collections import Counter

from docemb_lib.evaluation.tasks import predict, score_predictions
from docemb_lib.settings.sections import HEADS


def draw_per_class(labels, number, draw):
    """The rows of `number` examples of each class; a larger number keeps those of a smaller one."""
    rng = np.random.default_rng(draw)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return np.sort(np.concatenate([rng.permutation(rows)[:number] for rows in members]))


def few_shot_scores(task, X, per_class, draws=10):
    """Test scores of a head for each number of examples and draw. X: (N, D), of `task.texts()`."""
    head = HEADS["few-shot"]
    train, test = task.head_inputs(X, "test", head)
    drawn = [(number, draw) for number in per_class for draw in range(draws)]
    jobs = [(draw_per_class(train.labels, number, draw), draw) for number, draw in drawn]
    scores = score_predictions(predict(train, test, jobs, head), test.labels).by_seed
    frame = pd.DataFrame(drawn, columns=["per_class", "draw"]).assign(**scores)
    return frame.melt(["per_class", "draw"], var_name="metric")


# %%
section = """## A few examples of each class

The paper gains most with few labels. Heads learn from so many examples of each class, drawn ten
times (its Figure 2, lower half of its Table 2); bands are standard deviations."""
kinds = ("untrained", "sbert-truncated", "sbert-chunks", "published")
references = [model for model in run.references if model.kind in kinds and model.form == "saved"]
frames = []
for name in run.profile.evaluation.tasks:
    task = run.scorer.task(name)
    if not isinstance(task, Classification):
        continue
    smallest = min(Counter(task.splits["train"].labels).values())
    numbers = [number for number in run.profile.evaluation.few_shot if number <= smallest]
    for model in [run.model, *students, *references] if numbers else []:
        scores = few_shot_scores(task, model.embed(task.texts("test")), per_class=numbers)
        frames.append(scores.assign(task=name, model=model.label, kind=model.kind.value))
columns = ["task", "model", "kind", "metric", "per_class", "value"]
few = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
beside_paper = thesis.beside_paper(few, run.profile.evaluation.few_shot_table)
if len(few):
    display(Markdown(section))
shown = figures.named(few[few["metric"] == "f1_macro"], names)
look = {"hue": "model", "style": "model", "markers": True, "errorbar": "sd"}
for task, of_task in shown.groupby("task", sort=False):
    _, ax = plt.subplots()
    palette = figures.series_colors(of_task["model"])
    sns.lineplot(of_task, x="per_class", y="value", **look, palette=palette, ax=ax)
    ax.set(xlabel="training examples of each class", ylabel="macro-F1", title=task)
    sns.move_legend(ax, **figures.BESIDE)
    run.save_figure(ax, f"few-shot-{task}", few)
figures.table(beside_paper, names)

# %% [markdown]
# ## What it attends to
#
# The attention that a kind of word gets in the last layer, relative to the mean of all words (1), from the tokens that
# the student pools; in the paper from [CLS] (A.4, Figure 3), where nouns get over 40% more than in BERT and SimCSE. The
# table has the change since the start: about half of that for nouns in the embedded default (.20).

# %%
def token_attention(student, text):
    """What each token receives in the last layer of a Longformer, (T,), and its characters (T, 2)."""
    limit = {"truncation": True, "max_length": student.max_tokens, "return_offsets_mapping": True}
    encoding = student.tokenizer(text, return_tensors="pt", **limit).to(student.model.device)
    is_global = torch.zeros_like(encoding["input_ids"])
    is_global[0, 0] = student.pooling == "cls"
    with torch.inference_mode():
        output = student.model(
            encoding["input_ids"], global_attention_mask=is_global, output_attentions=True
        )
    T = is_global.shape[1]
    if student.pooling == "cls":
        received = output.global_attentions[-1][0, :, :T, 0].mean(dim=0)
    else:
        queries = 1 if student.pooling == "first" else T
        # Each query has a row of its window, in whose middle it is; sums are over rows side by side.
        rows = output.attentions[-1][0, :, :queries].mean(dim=0)
        around = rows.new_zeros(T + rows.shape[1])
        for query, row in enumerate(rows):
            around[query : query + len(row)] += row
        received = around[rows.shape[1] // 2 :][:T] / queries
    return received.double().cpu().numpy(), encoding["offset_mapping"][0].cpu().numpy()


# %%
def attention_by_part(student, texts):
    """Columns document, part (of speech) and relative: 1 is the mean over words of a document."""
    rows = []
    for document, text in enumerate(texts):
        weights, offsets = token_attention(student, text)
        ends = offsets[:, 1]
        end = 0
        for word, part in tag_words(text[: ends.max()]):
            start = text.index(word, end)
            end = start + len(word)
            of_word = (start < ends) & (ends <= end)  # a token may begin with the space before it
            if of_word.any():
                rows.append((document, part, weights[of_word].sum()))
    words = pd.DataFrame(rows, columns=["document", "part", "attention"])
    means = words.groupby("document")["attention"].transform("mean")
    words["relative"] = words["attention"] / means
    return words.groupby(["document", "part"], as_index=False)["relative"].mean()


# %%
def slow_attention(student, text):
    """`token_attention` of a text shorter than half a window, by queries and keys."""
    ids = student.tokenizer(text, return_tensors="pt")["input_ids"].to(student.model.device)
    kind = "_global" if student.pooling == "cls" else ""
    is_global = torch.zeros_like(ids)
    is_global[0, 0] = student.pooling == "cls"
    options = {"global_attention_mask": is_global, "output_hidden_states": True}
    hidden = student.model(ids, **options).hidden_states[-2][0, : ids.shape[1]]
    layer = student.model.encoder.layer[-1].attention.self
    q = getattr(layer, f"query{kind}")(hidden).unflatten(1, (layer.num_heads, -1))
    k = getattr(layer, f"key{kind}")(hidden).unflatten(1, (layer.num_heads, -1))
    logits = torch.einsum("qhd,khd->hqk", q, k) / layer.head_dim**0.5
    received = logits.softmax(dim=-1).mean(dim=0)
    return received.mean(dim=0) if student.pooling == "mean" else received[0]


# %%
from transformers.utils.logging import set_verbosity_error

from docemb_lib.student import Student

set_verbosity_error()  # transformers would say that it pads a text to a multiple of the window
folders = {run.untrained.label: run.students.untrained, run.label: run.student}
for record in run.comparable():
    if record.student_folder:
        folders.setdefault(record.label, record.student_folder)
frames = []
for label, folder in folders.items():
    student = Student.load(folder)
    if is_english and student.model.config.model_type == "longformer":
        two = "Two ships left. One ship stayed."
        with torch.inference_mode():
            expected = slow_attention(student, two).cpu()
        np.testing.assert_allclose(token_attention(student, two)[0], expected, atol=1e-4)
        by_part = attention_by_part(student, validation["text"][:12])
        frames.append(by_part.assign(model=label))
    else:
        print(f"{label}: only a Longformer gives attentions here, and only English is tagged")

# %%

if frames:
    parts = [*TAGS.values(), "other"]
    attention = figures.named(pd.concat(frames, ignore_index=True), names)
    untrained, *others = attention["model"].unique()
    colours = {untrained: figures.PALETTE["untrained"]} | figures.series_colors(others)
    _, ax = plt.subplots()
    bars = {"x": "part", "y": "relative", "hue": "model", "order": parts, "palette": colours}
    sns.barplot(attention, **bars, saturation=1, seed=0, err_kws={"linewidth": 1}, ax=ax)
    ax.axhline(1, color=figures.GREY, linewidth=0.8, linestyle="--")
    ax.set(xlabel="", ylabel="attention to a word\n(1: as to any word)")
    ax.legend(**figures.BESIDE)
    run.save_figure(ax, "attention", attention)
    by_part = attention.groupby(["model", "part"], sort=False)["relative"].mean().unstack()
    display(figures.table(by_part[parts] / by_part[parts].iloc[:1].to_numpy() - 1))

# %%
section = """## Beside the paper

Scores on common tasks, which `evaluation.tasks` may name. The paper trains BERT and Longformer on
6.2 million Wikipedia articles; its SimCSE_long is a run with `pairs = "dropout"`."""
figures.table(thesis.beside_paper(final.scores), names, section=section)

# %%
section = """The paper's claims, on its Table 2 and on this run's models. A student that reads more
than 512 tokens stands for the paper's Longformer, the others for its BERT:"""
claims = []
for name in ("all", "few-shot"):
    table = thesis.in_paper(run, final, round_=name)
    says = f"From BERT, SimDE is better than SimCSE ({name} examples)."
    claims.append(thesis.better(table, says, ["SimDE_bert"], ["SimCSE"]))
    says = f"From Longformer, it is better than Longformer ({name} examples)."
    claims.append(thesis.better(table, says, ["SimDE_long"], ["Longformer"]))
figures.table(thesis.claim_table(claims), section=section)

# %% [markdown]
# ## Conclusion

# %% tags=["conclusion"]
print(said)

# %%
folder = run.link_student(final.scores)
print("The student:", folder)
print("Tables and figures:", Path(run.figures[0]).parent)
run.finish(run.metrics(final.scores), scores=final.scores, student=folder, tables=final.tables)

# %% [markdown]
# **References.** *SimDE: Simple Contrastive Learning for Document Embeddings*, an anonymous EMNLP submission: Tables 1,
# 2, 4, 5 and A.4, in [`simde.yaml`](../docemb_lib/thesis/published/simde.yaml). Gao et al. (2021), *SimCSE*. van den
# Oord et al. (2018), *Representation learning with contrastive predictive coding* (InfoNCE). The other notebooks follow
# D. Burian (2023), *Document embedding using Transformers*. Master thesis, Institute of Formal and Applied Linguistics,
# Charles University, Prague.
