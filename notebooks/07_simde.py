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
# # 07 · SimDE, the rival without a teacher
#
# Distillation needs teachers. SimDE needs none: split a document into sentences, send each to one of two sets by the
# toss of a coin, and teach the encoder that the two halves $x_i$ and $x_i^+$ belong together and those of other
# documents do not. With $h$ an embedding, $B$ documents in a batch and the temperature $\tau$:
#
# $$\ell_i=-\log\frac{\exp(\cos(h_i,h_i^+)/\tau)}{\sum_{j=1}^{B}\exp(\cos(h_i,h_j^+)/\tau)}$$
#
# plus `mlm_weight` times the loss of guessing hidden words in the same texts. Its closest relative is SimCSE, where the
# two texts are the same one under two draws of dropout (`pairs = "dropout"`): there the words of a pair agree to the
# last one; of two halves only what the document is about.
#
# This notebook trains one student so and compares it with those recorded before, distilled ones included. With the
# embedded default `docemb run --only 07` makes two runs of it, SimCSE and SimDE.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents, of their halves and of hidden words
pairs = "profile"  # halves (of each document's sentences: SimDE) or dropout (the document twice: SimCSE)
pair_temperature = "profile"  # τ, from above 0: the cosines of a batch are divided by it
mlm_weight = "profile"  # weight of the loss of guessing hidden words, which doubles the time; 0: without
beside_teachers = "profile"  # weight of all this beside the losses of the profile's teachers; None: no teachers
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
from textwrap import fill

import matplotlib.pyplot as plt
import pandas as pd

# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib.thesis.values import published
from docemb_lib.evaluation.scoreboard import last_round, standing
from docemb_lib.experiments.final import final_evaluation
from docemb_lib.experiments.models import (
    SBERT_LABELS,
    UNTRAINED,
    baseline_models,
    sbert_models,
    student_model,
    untrained_model,
)
from docemb_lib.views.simde import beside_paper, distances_of_halves, example_halves, gain_over_start, students_beside
from docemb_lib.views.simde import attention_of_students, few_shot, redundancy_beside_paper, similarity_of_sentences
from docemb_lib.experiments.run import Run
from docemb_lib.views.runs import final_metrics
from docemb_lib.figures import rows_axes, use_style
from docemb_lib.figures import plot_distances
from docemb_lib.figures import plot_attention, plot_few_shot, plot_redundancy, plot_sentence_similarity
from docemb_lib.figures import each_task, plot_differences, plot_task
from docemb_lib.figures import plot_history

use_style()
pd.set_option("display.max_colwidth", None)  # sentences
run = Run.begin(
    "07_simde",
    profile=profile, seed=seed, pairs=pairs, pair_temperature=pair_temperature, mlm_weight=mlm_weight,
    beside_teachers=beside_teachers, documents=documents,
)  # fmt: skip
stages = run.stages
run.settings()

# %% [markdown]
# ## One document in two halves
#
# A training document, sentence by sentence, each in the half that it goes to in the first epoch. No sentence is in
# both, their order is kept, and every epoch tosses anew; the toss depends on the seed, the document and the epoch
# alone, so that a training that was killed goes on with the same halves.

# %%
example_halves(run).style.set_properties(**{"text-align": "left", "white-space": "normal", "width": "50%"})

# %% [markdown]
# **What to see.** Read the left column, then the right one: few words are in both, and still you would know that they
# belong together. What tells you is the subject, its terms, its manner. An encoder that is to find the one by the other
# among the halves of other documents has to find that too.
#
# That documents come back to what they said can be counted. On the left, nouns and verbs for each distinct one: 1 is a
# document that repeats none of them (Table 4 of the paper; lines but the first are its own data). On the right, cosines
# of sentences by the structural teacher, of one document and of two (Table 5).

# %%
repeated = redundancy_beside_paper(run)
sentences = similarity_of_sentences(run, sbert_models(stages)[0])
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
plot_redundancy(repeated, ax=left)
plot_sentence_similarity(sentences, ax=right)
run.save_figure(figure, "redundancy", repeated)

# %% [markdown]
# **What to see.** The longer a document, the more it says again, here as in the paper: its halves share what it is
# about. (How exactly depends on the tagger, and the paper does not name its own: compare the slopes.) And two sentences
# of one document are nearer than two of different ones, but far from alike: the pair is neither trivial nor arbitrary.
#
# ## How well the encoder knows that beforehand
#
# Cosine distances from the first half of each validation document to its own second half, and to those of 20 other
# documents. AUC is the chance that the own half is the nearer one of two.

# %%
KINDS = {"positive": "to the other half of the document", "negative": "to halves of other documents"}
before = distances_of_halves(run, [untrained_model(stages)])
ax = plot_distances(before, distance="cosine", kinds=KINDS, ax=rows_axes(1, each=0.9)[0])

# %% [markdown]
# **How to read it.** Where the two clouds overlap, there is something to learn. Where they hardly do, as may be in a
# corpus of many subjects, a batch of few documents asks little of the student: every other half is an easy negative.
#
# ## Train
#
# On the first `documents` training documents, as far as they have two sentences. The validation loss is that of one
# fixed draw of halves, in batches as large as those of training.

# %%
student = stages.trained_student()
train_history, validation_history = stages.history(student)
ax = plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)

# %%
validation_history.drop(columns="epoch", errors="ignore").round(4)

# %% [markdown]
# **How to read it.** `contrast` is the loss above, `mlm` that of hidden words. A student that knows nothing has a
# loss of $\log B$ with $B$ documents in a batch. `spread` is the mean cosine distance of two documents: a softmax
# over cosines pushes documents apart, so it should grow where a distilled student's hardly moves.

# %%
distances = distances_of_halves(run, [untrained_model(stages), student_model(run.label, student)])
ax = plot_distances(distances, distance="cosine", kinds=KINDS, ax=rows_axes(2, each=0.9)[0])
run.save_figure(ax, "halves", distances)

# %% [markdown]
# **What to see.** This is the very task that SimDE trains, on documents that it has not seen. That it gets better at
# it says little yet: whether what it has learnt is of use elsewhere, the next table tells.
#
# ## Every model on every task
#
# The test splits, as in `06_evaluation`. Beside this student: the recorded ones of this notebook and the distilled ones
# of `06_evaluation`; the encoder that all of them started from (it is called *student before distillation* throughout);
# SBERT on truncated text and over chunks; the Paragraph Vectors; TF-IDF.

# %%
others = [model for model in baseline_models(stages) if model.label != UNTRAINED]
students = students_beside(run, student)
models = [*students, *others]
final = final_evaluation(stages, models, student=run.label)
final.board

# %%
scores, intervals = final.scores, last_round(final.intervals)
figure = each_task(plot_task, intervals, height=3.2)
run.save_figure(figure, "tasks", intervals)

# %% [markdown]
# **How to read it.** Students are blue, the encoder before is grey. Bars are 95% intervals over test examples.
#
# ## Is it better than the encoder that it started from?
#
# Example by example, as in `06_evaluation`: the difference, its 95% interval, what the paired test says after the
# correction for all its comparisons, and how much the student's score moves with the seed of the heads.

# %%
gain_over_start(scores, final.comparison, student=run.label).round(4)

# %%
figure = each_task(plot_differences, final.comparison, reference=SBERT_LABELS[-1], height=3.0)
run.save_figure(figure, "differences", final.comparison)

# %%
print(fill(standing(intervals, final.comparison, student=run.label, before=UNTRAINED, teachers=SBERT_LABELS), 110))

# %% [markdown]
# **How to read it.** A difference beyond `head_seeds` is more than the luck of the heads; that it would be there with
# other test documents too is said by *better* alone, and not by an interval that holds 0. The embedded default has the
# first and not the second in the mean over tasks: 200 documents made the classes easier to tell apart, retrieval
# somewhat better and pairs on the whole no better, and over a few hundred test examples that is not shown to be a gain
# throughout.
# Two things to keep apart: against SimCSE the question is whether halves are the better pairs; against a distilled
# student, what a teacher is worth. And mind where the student starts: the embedded default from layers of
# all-MiniLM-L6-v2, which has learnt from a billion pairs of texts already. Halves have less to add to it than to the
# plain BERT of the paper.
#
# ## A few examples of each class
#
# The paper finds the largest gains where a head learns from five or ten examples of a class. The profile's
# classification tasks with so few, drawn ten times; bands are the deviation over draws. (Empty where the profile has no
# such task, or a class has fewer.)

# %%
compared = [model for model in models if model in students or model.label in SBERT_LABELS]
few = few_shot(run, compared)
for task in few["task"].unique() if len(few) else ():
    _, ax = plt.subplots()
    plot_few_shot(few[few["task"] == task], ax=ax).set_title(task)
    run.save_figure(ax, f"few-shot-{task}", few)

# %% [markdown]
# ## What it attends to
#
# How much attention a noun, a verb, an adjective and any other word of a validation document gets in the last layer,
# beside a word of whatever kind (1). In the paper SimDE turns BERT towards nouns and verbs, which halves have in
# common; it looks at the first token, here it is the mean over all tokens where the student pools so. (No figure where
# documents are not English, and for a student that gives no attentions.)

# %%
attention = attention_of_students(run, {UNTRAINED: stages.untrained_student, run.label: student})
if len(attention):
    ax = plot_attention(attention)
    run.save_figure(ax, "attention", attention)

# %% [markdown]
# **What to see.** Whether the bars of nouns and verbs have grown, and by more than their intervals. In the embedded
# default nouns gain much in a few updates, and verbs lose: pages of documentation have their names in common, not what
# is done with them.
#
# ## Beside the paper
#
# Where a task here is one of the paper's, our scores and its own. Empty where there is none, as with the embedded
# tasks: name 20News or its other tasks in `evaluation.tasks` to fill it.

# %%
beside_paper(scores).round(3)

# %% [markdown]
# For orientation, the paper's macro F1 of heads trained on all examples: BERT and Longformer trained on 6.2 million
# articles of Wikipedia. SimDE is ahead of SimCSE by 3.9% in the mean, of Longformer by 9.4%.

# %%
paper = published("simde").query("source == 'table 2' and round == 'all' and metric == 'f1_macro'")
paper.pivot_table(index="model", columns="task", values="value", sort=False).round(3)

# %%
metrics = final_metrics(run, scores, validation_history)
run.finish(metrics, scores=scores, student=run.link_student(student, scores), tables=final.tables)

# %% [markdown]
# **What to try next.** In a terminal, in `notebooks/`: the student that learns from its teachers and from halves at
# once, which then stands in the table of every later run.
#
# ```
# papermill 07_simde.ipynb ../outputs/both.ipynb -p beside_teachers 0.1 -p documents 200
# ```
