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
# Does a student need teachers? Here it learns from pairs alone: which two halves belong to one document? This follows
# another paper, *SimDE: Simple Contrastive Learning for Document Embeddings* (an anonymous EMNLP submission, below *the
# paper*), which assigns each sentence to one of two sets at random. Beside it stand SimCSE, which takes the document
# twice with different dropout (`pairs = "dropout"`), and the students of [06](06_evaluation.ipynb), which are distilled
# from teachers.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents, of their halves and of hidden words
pairs = "profile"  # halves (of each document's sentences: SimDE) or dropout (the document twice: SimCSE)
pair_temperature = "profile"  # τ, from above 0: the cosines of a batch are divided by it
mlm_weight = "profile"  # weight of the loss of guessing hidden words, which doubles the time; 0: without
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
from textwrap import shorten

import numpy as np
import pandas as pd
import seaborn as sns
from IPython.display import display

# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import begin, figures, thesis, views

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
    halves = {True: "", False: ""}
    for sentence, coin in zip(sentences, in_first, strict=True):
        halves[bool(coin)] += sentence
    return halves[True], halves[False]


# %% [markdown]
# The draw depends on the seed, the document and the epoch alone, so that each epoch has new halves and a resumed
# training goes on with the same ones.

# %%
from docemb_lib.corpus.sentences import split_sentences
from docemb_lib.training.pairs import draw_halves, generator_of

size = run.training.batch_size
language = run.profile.simde.language
options = {"seed": run.profile.parameters.seed, "epoch": 0}
batch = []
for document in run.corpus.split("train"):
    sentences = split_sentences(document["text"], language=language)
    n = len(sentences)
    id = document["id"]
    if n >= 2:
        in_first = toss_coins(n, generator_of(id, **options))
        of_library = draw_halves(n, generator_of(id, **options))
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
    for row, sentence in enumerate(sentences):
        column, colour = (1, 0) if in_first[row] else (2, 5)
        text = shorten(sentence, 30, placeholder=" …")
        ax.text(0, row, text, color=figures.SERIES[colour])
        ax.text(1.1 * column, row, text, color=figures.SERIES[colour])
    for column, title in enumerate(["the document", "first half, $h$", "second half, $h^+$"]):
        ax.text(1.1 * column, -1.2, title, parse_math=True)
    ax.set_xlim(0, 3.2)
    ax.set_ylim(len(sentences), -2)
    ax.set_axis_off()


sentences, in_first = batch[0]
rows = min(len(sentences), 14)
ax = figures.axes(1 + 0.2 * rows)
plot_halves(sentences[:rows], in_first[:rows], ax)
run.save_figure(ax, "document-in-halves")

# %% [markdown]
# The columns share no sentence, but the topic and its terms. In the data sets of the paper a noun or verb comes 1.2 to
# 1.5 times in a document (its Table 4), and two sentences of one document have a mean cosine of .21 to .51, of two
# documents .06 to .35 (Table 5): that is what halves have in common.
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
of_library = InfoNCE(temperature)(h, h_plus)
torch.testing.assert_close(losses, of_library, atol=1e-4, rtol=1e-4)
print(f"h {tuple(h.shape)}, h+ {tuple(h_plus.shape)}; losses of three documents {losses[:3]}")
print(f"mean {losses.mean():.4f}, equal to the library's; at chance log B = {np.log(len(h)):.4f}")

# %%
axes = figures.axes(3, columns=2)
cosines = cosines_of(h, h_plus)
probabilities = (cosines / temperature).softmax(dim=1)
panels = {"cosines": cosines, f"probabilities, τ = {temperature}": probabilities}
for ax, title in zip(axes, panels, strict=True):
    image = ax.imshow(panels[title], cmap="Blues")
    ax.figure.colorbar(image, ax=ax)
    ax.set(title=title, xlabel="second half of document j", ylabel="first half of document i")
    ax.grid(visible=False)
run.save_figure(ax, "batch")

# %% [markdown]
# The loss is small where the diagonal stands out. The temperature makes of small differences of cosines a clear choice,
# so that only the nearest other documents count. `mlm_weight` adds the loss of guessing hidden words.
#
# ## Train
#
# The validation loss has one fixed draw of halves, and batches as large as those of training.

# %%
train_history, validation_history = run.history()  # trains the student, unless it is there already
ax = figures.axes(2.4)
figures.plot_history(train_history, validation_history, ax=ax)
run.save_figure(ax, "training", validation_history)
count = run.profile.parameters.documents
updates = int(validation_history["step"].max())
before = validation_history.iloc[0]
trained = validation_history.iloc[-1]
print(f"{updates} updates on {count:,} documents")
print(f"loss {before['loss']:.3f} → {trained['loss']:.3f}; at chance {np.log(size):.3f}")
print(f"mean cosine distance of two documents {before['spread']:.2f} → {trained['spread']:.2f}")

# %% [markdown]
# The loss falls within the first updates, and documents move apart: a softmax over cosines enlarges their distances.
#
# ## Shortcuts
#
# What does a model need to match halves? The topic would do, but so do the rare words that both halves share, such as a
# name. Tutorials on contrastive learning of images show the same trap: two crops of one picture can be matched by their
# colours alone, unless the colours are changed at random. Here TF-IDF, which counts words, matches the halves of
# held-out documents beside the student. AUC is the share of pairs of a distance to the other half and one to another
# document in which the former is smaller.

# %%
from docemb_lib.evaluation.probes import measure_distances, tidy_distances
from docemb_lib.evaluation.retrieval import tfidf

held_out = run.corpus.split("tasks").to_pandas()[:200]
halves = []
for document in held_out.itertuples():
    sentences = split_sentences(document.text, language=language)
    if len(sentences) >= 2:
        in_first = draw_halves(len(sentences), generator_of(document.id, **options))
        halves.append(halves_of(sentences, in_first))
firsts, seconds = zip(*halves, strict=True)
names = figures.short_names(run)
student = names[run.label]
start = names[run.untrained.label]
texts = [*firsts, *seconds]
embeddings = {start: run.untrained.embed(texts)}
embeddings[student] = run.model.embed(texts)
embeddings["TF-IDF"] = tfidf(texts).toarray()

# %%
from sklearn.metrics import roc_auc_score

frames = []
auc = {}
for name, X in embeddings.items():
    others = len(halves) - 1
    measured = measure_distances(*np.split(X, 2), distance="cosine", negatives=others)
    tidy = tidy_distances(measured).assign(model=name)
    auc[name] = roc_auc_score(tidy["kind"] == "negative", tidy["value"])
    nearest = measured[:, 0] < measured[:, 1:].min(axis=1)  # first the other half
    frames.append(tidy)
    print(f"{name}: AUC {auc[name]:.4f}", end=", ")
    print(f"{nearest.mean():.0%} of {len(halves)} halves are nearest to their other half")
distances = pd.concat(frames, ignore_index=True)
KINDS = {"positive": "to the other half", "negative": "to other documents"}
ax = figures.axes(3.2)
figures.plot_distances(distances, distance="cosine", kinds=KINDS, ax=ax)
run.save_figure(ax, "halves")

# %% [markdown]
# TF-IDF matches halves better than the student: the task alone does not ask for meaning, and a low loss is no proof of
# it. Only other tasks show what has been learnt.
#
# ## Beside distillation
#
# Test splits, as in 06, with its recorded students, which the teachers have taught.

# %% tags=["picture"]
from docemb_lib.evaluation.uncertainty import OVERALL, score_intervals
from docemb_lib.runs.kinds import Form, Kind

final = run.evaluate()
scores = views.recorded(run, final)
references = figures.short_names(run, run.references)
SHOWN = (Kind.UNTRAINED, Kind.SBERT_TRUNCATED, Kind.SBERT_CHUNKS, Kind.TASK_LSA)
saved = [each for each in run.references if each.form == Form.SAVED]
shown = [references[each.label] for each in saved if each.kind in SHOWN]


def learns_from(name):
    """Who taught a model, for the colours of the figure."""
    if name in shown:
        return "no training here"
    return "pairs" if name.startswith(("SimDE", "SimCSE")) else "teachers"


students = [name for name in scores if name not in references.values()]
students = [name for name in students if "centred" not in name]
compared = {name: scores[name] for name in [*students, *shown]}
intervals = score_intervals(compared)
intervals = intervals[intervals["task"] != OVERALL]
intervals["teaching"] = intervals["model"].map(learns_from)
figure = figures.plot_rows(intervals, hue="teaching", by="learns from")
figure.axes[0].set_xlabel("mean score of the test splits")
run.save_figure(figure, "beside-distillation", intervals)
finals = map(run.of_record, run.comparable("06_evaluation"))
sizes = sorted({each.counting["documents"] for each in finals})
learnt = " and ".join(f"{size:,}" for size in sizes)
print(f"{student} has learnt from {count:,} documents, those of teachers from {learnt or 'none'}.")

# %% [markdown]
# The points are means over the tasks, which have a mark each: compare blue, which learns from pairs of halves, with
# yellow, which is distilled from teachers, and both with green, which is not trained here.
#
# The encoder has learnt from a billion pairs of texts before, so that halves can add less to it than to the plain BERT of
# the paper.
#
# ## A few examples of each class
#
# The paper gains most with few labels. Heads learn from so many examples of each class, drawn ten times (its Figure 2).

# %%
from collections import Counter
from itertools import product

from docemb_lib.evaluation.tasks import Classification, predict, score_predictions
from docemb_lib.settings.sections import HEADS


def draw_per_class(labels, number, draw):
    """The rows of `number` examples of each class; a larger number keeps those of a smaller one."""
    rng = np.random.default_rng(draw)
    chosen = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        chosen += [*rng.permutation(members)[:number]]
    return np.sort(chosen)


def few_shot_scores(task, X, per_class, draws=10):
    """Test scores of a head for each number of examples and draw. X: (N, D), of `task.texts()`."""
    head = HEADS["few-shot"]
    train, test = task.head_inputs(X, "test", head)
    drawn = [*product(per_class, range(draws))]
    jobs = []
    for number, draw in drawn:
        jobs.append((draw_per_class(train.labels, number, draw), draw))  # rows and a seed
    predicted = predict(train, test, jobs, head)
    frame = pd.DataFrame(drawn, columns=["per_class", "draw"])
    frame = frame.assign(**score_predictions(predicted, test.labels).by_seed)
    return frame.melt(["per_class", "draw"], var_name="metric")


# %%
from docemb_lib.runs.models import student_model

beginners = {names[run.label]: run.model}
for record in (*run.comparable(), *run.comparable("06_evaluation")):
    key = run.of_record(record)
    is_beginner = key.name in ("SimDE", "SimCSE", "S (cosine)") and key.name in scores
    if is_beginner and record.student_folder:
        beginners.setdefault(key.name, student_model(key.name, record.student_folder))
for model in run.references:
    if model.kind in (Kind.UNTRAINED, Kind.SBERT_TRUNCATED):
        beginners[references[model.label]] = model

frames = []
for task in map(run.scorer.task, run.profile.evaluation.tasks):
    if not isinstance(task, Classification):
        continue
    sizes = Counter(task.splits["train"].labels)
    smallest = min(sizes.values())
    numbers = [number for number in run.profile.evaluation.few_shot if number <= smallest]
    for name, model in beginners.items() if numbers else ():
        X = model.embed(task.texts("test"))
        of_model = few_shot_scores(task, X, per_class=numbers)
        frames.append(of_model.assign(task=task.name, model=name))

# %%
none = pd.DataFrame(columns=["task", "model", "metric", "per_class", "value"])
few = pd.concat(frames or [none], ignore_index=True)
look = {"hue": "model", "style": "model", "markers": True, "errorbar": None}
for task, of_task in few.groupby("task", sort=False):
    f1 = of_task[of_task["metric"] == "f1_macro"]
    ax = figures.axes(2.8)
    look["palette"] = figures.series_colors(f1["model"])
    sns.lineplot(f1, x="per_class", y="value", **look, ax=ax)
    ax.set(xlabel="training examples of each class", ylabel="macro-F1 (ten draws)", title=task)
    sns.move_legend(ax, **figures.BESIDE)
    run.save_figure(ax, f"few-shot-{task}", of_task)
    means = f1.groupby(["per_class", "model"])["value"].mean()
    least = f1["per_class"].min()
    means = means[least]
    print(f"{task}, {least} of each class: {student} {means[student]:.3f}", end=", ")
    print(f"{means[student] - means[start]:+.3f} beside its start")

# %% [markdown]
# With few labels what an embedding holds on its own counts more, so that models lie further apart than with all of
# them.
#
# ## What it attends to
#
# The paper says that in the last layer [CLS] attends to nouns over 40% more than in BERT and SimCSE (A.4, Figure 3).
# Here it is the attention that a kind of word gets from the tokens that the student pools, relative to the mean of all
# words (1). A tagger tells the kinds of English words.

# %%
import re

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
        plain = [token.replace("’", "'") for token in tokens]
        tagged = parser.find_tags(plain)
        for token, (_, tag) in zip(tokens, tagged, strict=True):
            if any(map(str.isalpha, token)):
                words.append((token, TAGS.get(tag[:2], "other")))
    return words


print(tag_words("Cats don't sleep."))


# %%
def token_attention(student, text):
    """What each token receives in the last layer of a Longformer, (T,), and its characters (T, 2)."""
    limit = {"truncation": True, "max_length": student.max_tokens, "return_offsets_mapping": True}
    encoding = student.tokenizer(text, return_tensors="pt", **limit)
    encoding = encoding.to(student.model.device)
    is_global = torch.zeros_like(encoding["input_ids"])
    is_global[0, 0] = student.pooling == "cls"
    with torch.inference_mode():
        output = student.model(
            encoding["input_ids"], global_attention_mask=is_global, output_attentions=True
        )
    T = is_global.shape[1]
    if student.pooling == "cls":
        of_heads = output.global_attentions[-1][0, :, :T, 0]
        received = of_heads.mean(dim=0)
    else:
        queries = 1 if student.pooling == "first" else T
        # Each query has a row of its window, in whose middle it is; sums are over rows side by side.
        of_heads = output.attentions[-1][0, :, :queries]
        rows = of_heads.mean(dim=0)
        width = rows.shape[1]
        around = rows.new_zeros(T + width)
        for query, row in enumerate(rows):
            around[query : query + width] += row
        received = around[width // 2 :][:T] / queries
    offsets = encoding["offset_mapping"][0]
    return received.double().cpu().numpy(), offsets.cpu().numpy()


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
from transformers.utils.logging import set_verbosity_error

from docemb_lib.student import Student

set_verbosity_error()  # transformers would say that it pads a text to a multiple of the window
validation = run.corpus.split("validation")["text"][:12]
frames = []
places = {start: run.students.untrained, student: run.student}
for name, place in places.items():
    loaded = Student.load(place)
    is_longformer = loaded.model.config.model_type == "longformer"
    if language == "en" and is_longformer:
        frames.append(attention_by_part(loaded, validation).assign(model=name))
if frames:
    parts = [*TAGS.values(), "other"]
    attention = pd.concat(frames, ignore_index=True)
    colours = {start: figures.PALETTE["untrained"], student: figures.PALETTE["student"]}
    ax = figures.axes(2.4)
    bars = {"x": "part", "y": "relative", "hue": "model"}
    look = {"palette": colours, "saturation": 1, "err_kws": {"linewidth": 1}}
    sns.barplot(attention, **bars, **look, order=parts, seed=0, ax=ax)
    ax.axhline(1, color=figures.GREY, linewidth=0.8, linestyle="--")
    ax.set(xlabel="", ylabel="attention to a word\n(1: as to any word)")
    ax.legend(**figures.BESIDE)
    run.save_figure(ax, "attention", attention)
    means = attention.groupby(["model", "part"])["relative"].mean()
    change = means[student] / means[start] - 1
    print("change by training:", *[f"{part} {change[part]:+.0%}" for part in parts])
else:
    print("Only a Longformer gives attentions here, and only English is tagged.")

# %% [markdown]
# Nouns gain and words without content lose, as the paper says, but the nouns gain less than the 40% there.
#
# ## Beside the paper
#
# The paper trains on 6.2 million Wikipedia articles. From BERT, its SimDE is 3.9% better than SimCSE in macro-F1 with
# all examples, and 12.0% with few (Table 2). Are halves better pairs than a document twice here, too? Where tasks of
# the paper are among those of the profile, unlike in the default, a table has both scores.

# %%
print(views.compared(scores, "SimDE", "SimCSE"))
of_few = thesis.beside_paper(few, run.profile.evaluation.few_shot_table)
for table in (thesis.beside_paper(final.scores), of_few):
    if len(table):
        display(figures.table(table, names))

# %% [markdown]
# A document twice shares every word, so that perhaps its two embeddings are near from the start and little is left to
# learn; halves have to be matched.
#
# ## Try it
#
# * `docemb run 07 -p documents=2000` (ten times as long as with 200): do more pairs help, or has the encoder all that
#   halves can teach?
# * `docemb run 07 -p pair_temperature=0.5` (as long as before): do documents still move apart, and does AUC fall?
# * `docemb run 07 -p mlm_weight=0.1` (twice as long): does guessing hidden words, as in the paper, change retrieval?
#
# ## What was found

# %% tags=["found"]
from docemb_lib.thesis.comparison import LINES

begins = f"From {count:,} documents in {updates} updates, without a teacher, beside students of more:"
print(LINES.fill(f"{begins} {views.compared(scores, student, 'S (cosine)')}"))
print(views.compared(scores, student, "S+PV"))
words = f"TF-IDF, which counts words, {auc['TF-IDF']:.4f}"
print(LINES.fill(f"In matching halves {student} has an AUC of {auc[student]:.4f}, and {words}."))

# %% [markdown]
# ## Conclusion

# %% tags=["conclusion"]
print(thesis.conclusion(run, final))

# %%
print(run.record_scores(final))

# %% [markdown]
# **References.** *SimDE: Simple Contrastive Learning for Document Embeddings*, an anonymous EMNLP submission: Tables 2,
# 4 and 5, Figures 1 to 3 and A.4, in [`simde.yaml`](../docemb_lib/thesis/published/simde.yaml). Gao et al.
# (2021), *SimCSE*. van den Oord et al. (2018), *Representation learning with contrastive predictive coding* (InfoNCE).
# P. Lippe, *UvA Deep Learning Tutorials*, 17: self-supervised contrastive learning (shortcuts of images). The other
# notebooks follow D. Burian (2023), *Document embedding using Transformers*. Master thesis, Institute of Formal and
# Applied Linguistics, Charles University, Prague.
