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
# How good is a student that learns without teachers, only which two halves belong to one document? SimDE assigns each
# sentence to one of two sets at random; SimCSE takes the document twice, with different dropout (`pairs = "dropout"`).

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents, of their halves and of hidden words
pairs = "profile"  # halves (of each document's sentences: SimDE) or dropout (the document twice: SimCSE)
pair_temperature = "profile"  # τ, from above 0: the cosines of a batch are divided by it
mlm_weight = "profile"  # weight of the loss of guessing hidden words, which doubles the time; 0: without
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown, display

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
    first = [sentence for sentence, coin in zip(sentences, in_first, strict=True) if coin]
    second = [sentence for sentence, coin in zip(sentences, in_first, strict=True) if not coin]
    return "".join(first), "".join(second)


# %% [markdown]
# The draw depends on the seed, the document and the epoch alone, so that each epoch has new halves and a resumed training
# goes on with the same ones.

# %%
from docemb_lib.corpus.rows import split_sentences
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
        text = figures.short(" ".join(sentence.split()), 40)
        ax.text(0, row, text, color=colour, fontsize=8)
        ax.text(1.1 if coin else 2.2, row, text, color=colour, fontsize=8)
    for column, title in enumerate(["the document", "first half, $h$", "second half, $h^+$"]):
        ax.text(1.1 * column, -1.2, title, parse_math=True)
    ax.set(xlim=(0, 3.2), ylim=(len(sentences), -2))
    ax.set_axis_off()
    return ax


sentences, in_first = batch[0]
_, ax = plt.subplots(figsize=(figures.WIDTH * 1.4, 1 + 0.2 * min(len(sentences), 14)))
ax = plot_halves(sentences[:14], in_first[:14], ax)
run.save_figure(ax, "document-in-halves")

# %% [markdown]
# The columns share no sentence, but the topic and its terms. To match them, an encoder has to represent the topic.
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
figure, axes = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
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
figures.table(views.sizes_beside_paper(run), digits=0)

# %% [markdown]
# Nouns and verbs per distinct noun and verb, by the words of a document (Table 4); 1 is no repetition. Compare slopes,
# because the paper's tagger is another.

# %%
figures.table(views.redundancy_beside_paper(run), digits=2)

# %% [markdown]
# Mean cosine of two sentences of one document and of different documents (Table 5). The paper's encoder is SimCSE; the
# row `here` names its own, so compare the two columns.

# %%
views.similarity_beside_paper(run).round(2)

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
KINDS = {
    "positive": "to the other half of the document",
    "negative": "to halves of other documents",
}
models = [run.untrained, run.model]
distances = views.distances_of_halves(run, models)
of_names = figures.named(distances, figures.short_names(models, run.label))
(ax,) = figures.rows_axes(2, each=0.9)
ax = figures.plot_distances(of_names, distance="cosine", kinds=KINDS, ax=ax)
run.save_figure(ax, "halves", distances)

# %% [markdown]
# Halves of validation documents. Where the two kinds hardly overlap before training, a batch has only easy negatives.
#
# ## Every model on every task
#
# Test splits, as in [06](06_evaluation.ipynb), beside recorded students.

# %%
all_rows = False  # True: also other references, and the student in its other forms

students = views.students_beside(run)
final = run.evaluate(others=students)
names = figures.short_names(run.models(), run.label)
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
figure = figures.each_task(figures.plot_task, only_rows(final.last))
run.save_figure(figure, "tasks", final.last)

# %%
comparison = only_rows(final.comparison)
figure = figures.each_task(figures.plot_differences, comparison, reference=names[final.practice])
run.save_figure(figure, "differences", final.comparison)

# %% [markdown]
# What training has added to the encoder, by task. The default's encoder has learnt from a billion pairs of texts, so that
# halves can add less than to the plain BERT of the paper.

# %%
columns = ["task", "metric", "difference", "low", "high", "verdict"]
gain = final.comparison.query("model == @final.student and reference == @run.untrained.label")
figures.table(gain[columns], digits=4)

# %%
section = """## A few examples of each class

The paper gains most with few labels. Heads learn from so many examples of each class, drawn ten
times (its Figure 2, lower half of its Table 2); bands are standard deviations."""
kinds = ("untrained", "sbert-truncated", "sbert-chunks", "published")
references = [model for model in run.references if model.kind in kinds and model.form == "saved"]
few = run.scorer.few_shot([run.model, *students, *references])
beside_paper = thesis.beside_paper(few, run.profile.evaluation.few_shot_table)
if len(few):
    display(Markdown(section))
for task in few["task"].unique():
    _, ax = plt.subplots()
    figures.plot_few_shot(figures.named(few[few["task"] == task], names), ax=ax).set_title(task)
    run.save_figure(ax, f"few-shot-{task}", few)
figures.table(beside_paper, names)

# %%
section = """## What it attends to

The attention that a kind of word gets in the last layer, relative to the mean of all words (1),
from the tokens that the student pools; in the paper from [CLS] (A.4, Figure 3), where nouns get
over 40% more than in BERT and SimCSE. The table has the change since the start."""
attention = figures.named(views.attention_of_students(run), names)
if len(attention):
    display(Markdown(section))
    (ax,) = figures.rows_axes(8)
    run.save_figure(figures.plot_attention(attention, ax=ax), "attention", attention)
by_part = attention.groupby(["model", "part"], sort=False)["relative"].mean().unstack()
figures.table(by_part / by_part.iloc[:1].to_numpy() - 1)

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
# **References.** SimDE, Tables 1, 2, 4, 5 and A.4, in [`simde.yaml`](../docemb_lib/thesis/published/simde.yaml). Gao et al.
# (2021), *SimCSE*. van den Oord et al. (2018), *Representation learning with contrastive predictive coding* (InfoNCE).
