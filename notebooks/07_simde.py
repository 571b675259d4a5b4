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
# How good is a student that learns without teachers, only which two halves belong to one document?
#
# Distillation needs teachers, SimDE does not. It assigns each sentence of a document to one of two sets at random and
# trains the encoder to match the two halves $x_i$ and $x_i^+$ of a document among the halves of other documents. With
# $h$ an embedding, $B$ documents in a batch and the temperature $\tau$:
#
# $$\ell_i=-\log\frac{\exp(\cos(h_i,h_i^+)/\tau)}{\sum_{j=1}^{B}\exp(\cos(h_i,h_j^+)/\tau)}$$
#
# The loss adds `mlm_weight` times the masked language modelling loss on the same texts. SimCSE is closely related: its
# two texts are the same text with different dropout (`pairs = "dropout"`). The texts of such a pair have all words in
# common, while two halves share no sentence.
#
# This notebook trains one such student and compares it with recorded ones, including distilled students. With the
# embedded default `docemb run 07` makes two runs, SimCSE and SimDE.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents, of their halves and of hidden words
pairs = "profile"  # halves (of each document's sentences: SimDE) or dropout (the document twice: SimCSE)
pair_temperature = "profile"  # τ, from above 0: the cosines of a batch are divided by it
mlm_weight = "profile"  # weight of the loss of guessing hidden words, which doubles the time; 0: without
beside_teachers = "profile"  # weight of all this beside the losses of the profile's teachers; None: no teachers
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
import matplotlib.pyplot as plt

# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib import begin, figures, thesis, views

figures.use_style()
run = begin("07_simde", globals())
thesis.settings(run)

# %% [markdown]
# ## One document in two halves
#
# What does a pair look like? The table shows a training document, each sentence in the column of its half in the first
# epoch. The halves share no sentence and keep the order of sentences. Each epoch draws new halves. The draw depends on
# the seed, the document and the epoch alone, so a resumed training continues with the same halves.

# %%
views.example_halves(run).style.set_properties(**{"text-align": "left", "white-space": "normal", "width": "50%"})

# %% [markdown]
# **What to see.** Compare the columns: they share no sentence, but the topic and its terms. To match a
# half with the other half of its document, an encoder has to represent this topic.
#
# How large are the paper's data sets (Table 1), and the documents and classification tasks here?

# %%
figures.table(views.sizes_beside_paper(run), digits=0)

# %% [markdown]
# Repetition in documents can be measured. The next table shows the ratio of nouns and verbs to distinct nouns and
# verbs, by the number of words of a document: 1 is a document without repetition. The row `here` describes this run's
# first training documents, if they are English; the other rows are data sets of the paper (Table 4). Words are compared
# by their lemmas. The paper has tags and lemmas from spaCy, docemb from textblob and LemmInflect. Other tags and lemmas
# give other absolute numbers: on 300 pages of installed documentation docemb's give 2.26, and those of spaCy's small
# English model (3.8.0) 1.92.

# %%
figures.table(views.redundancy_beside_paper(run), digits=2)

# %% [markdown]
# The next table shows the mean cosine of every two sentences, of one document (`inside`) and of different documents
# (`across`), beside Table 5 of the paper, whose encoder is SimCSE. The row `here` names its encoder:
# `simde.sentence_encoder`, which is SimCSE in the profile `simde`. Without this setting, which needs a hub, it is the
# structural teacher (*SBERT truncated*) and not SimCSE: then compare the two columns, not the rows.

# %%
views.similarity_beside_paper(run).round(2)

# %% [markdown]
# **What to see.** In the paper longer documents repeat more. The exact values depend on
# the tagger: compare slopes. If two sentences of one document are more similar than sentences of different documents,
# but not equal, pairs are neither trivial nor arbitrary.
#
# ## How well the encoder matches halves before training
#
# Is there something to learn? The figure shows cosine distances from the first half of each validation document to its
# second half and to second halves of 20 other documents. AUC is the probability that the document's own half is nearer.

# %%
KINDS = {"positive": "to the other half of the document", "negative": "to halves of other documents"}
before = views.distances_of_halves(run, [run.untrained])
before = figures.named(before, figures.short_names([run.untrained], run.label))
ax = figures.plot_distances(before, distance="cosine", kinds=KINDS, ax=figures.rows_axes(1, each=0.9)[0])

# %% [markdown]
# **How to read it.** If the two distributions overlap, the encoder can learn to separate them. If they hardly overlap,
# as in a corpus of many topics, a small batch contains only easy negatives and teaches the encoder little.
#
# ## Train
#
# The student is trained on those of the first `documents` training documents that have at least two sentences. The
# validation loss uses one fixed draw of halves and batches of the same size as training.

# %%
train_history, validation_history = run.history()  # trains the student, unless it is there already
ax = figures.plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)

# %%
validation_history.drop(columns="epoch", errors="ignore").round(4)

# %% [markdown]
# **How to read it.** `contrast` is the loss above, `mlm` is the masked language modelling loss. A student at chance has
# a contrastive loss of $\log B$ with $B$ documents in a batch. `spread` is the mean cosine distance of two documents. A
# softmax over cosines pushes documents apart, so the spread should grow more than that of a distilled student.

# %%
distances = views.distances_of_halves(run, [run.untrained, run.model])
names = figures.short_names([run.untrained, run.model], run.label)
ax = figures.plot_distances(
    figures.named(distances, names), distance="cosine", kinds=KINDS, ax=figures.rows_axes(2, each=0.9)[0]
)
run.save_figure(ax, "halves", distances)

# %% [markdown]
# **What to see.** The figure shows the training objective on new documents. An improvement here does not imply better
# embeddings for other tasks, which the next table shows.
#
# ## Every model on every task
#
# Is the student useful for other tasks? The models are scored on the test splits, as in `06_evaluation`: this student,
# recorded students of this notebook and distilled ones of `06_evaluation`, the encoder that all students start from
# (*student before distillation*), SBERT on truncated text and over chunks, Paragraph Vectors and TF-IDF.

# %%
students = views.students_beside(run)
final = run.evaluate(beside=students)
names = figures.short_names(run.models(), run.label)
figures.named(final.board, names)

# %%
figure = figures.each_task(figures.plot_task, figures.named(final.last, names))
run.save_figure(figure, "tasks", final.last)

# %% [markdown]
# **How to read it.** Students are blue, the encoder before training is grey. Bars are 95% intervals over test examples.
#
# ## Is it better than the encoder that it started from?
#
# The next table compares paired answers, as in `06_evaluation`: the difference, its 95% interval, and the verdict of
# the paired test with a correction for the number of comparisons.

# %%
columns = ["task", "metric", "difference", "low", "high", "verdict"]
gain = final.comparison.query("model == @final.student and reference == @run.untrained.label")
figures.table(gain[columns], digits=4)

# %%
comparison = figures.named(final.comparison, names)
figure = figures.each_task(figures.plot_differences, comparison, reference=names[final.practice])
run.save_figure(figure, "differences", final.comparison)

# %% tags=["conclusion"]
print(thesis.conclusion(run, final))

# %% [markdown]
# **How to read it.** Only the verdict *better* shows that a difference generalises to other test documents. Intervals
# are not corrected for the number of tests, verdicts are. A comparison with SimCSE shows whether halves are better
# pairs. A comparison with a distilled student, which is in the table if `06_evaluation` was run with this profile,
# shows the benefit of teachers. Consider the initial encoder, too: the embedded default starts from layers of
# all-MiniLM-L6-v2, which was trained on a billion pairs of texts, so halves can add less than to the plain BERT of the
# paper.
#
# ## A few examples of each class
#
# Does the student help if labels are scarce? The paper finds the largest gains with few training examples: five of each
# class, ten in FakeNews and arXiv. The figures show the profile's classification tasks with few examples
# (`evaluation.few_shot`), drawn ten times, as the paper's Figure 2 does, which prints no numbers. Bands are standard
# deviations over draws. There is no figure if the profile has no classification task, or if a class has fewer examples.
# Heads are MLPs that train for 300 epochs, whatever `evaluation.head` is: ten epochs of so few examples leave a head at
# chance level, and the paper gives no number. The table below the figures compares means with the paper's (lower half
# of its Table 2) on common tasks, for the numbers of examples in `evaluation.few_shot_table`, if `evaluation.few_shot`
# has them, too.

# %%
kinds = ("untrained", "sbert-truncated", "sbert-chunks", "published")
references = [model for model in run.references if model.kind in kinds and model.form == "saved"]
few = run.stages.scores.few_shot([run.model, *students, *references])
for task in few["task"].unique():
    _, ax = plt.subplots()
    figures.plot_few_shot(figures.named(few[few["task"] == task], names), ax=ax).set_title(task)
    run.save_figure(ax, f"few-shot-{task}", few)
figures.table(thesis.beside_paper(few, run.profile.evaluation.few_shot_table), names)

# %% [markdown]
# ## What it attends to
#
# Which words does the student use? The figure repeats the paper's study (A.4, Figure 3): the attention that a noun, a
# verb, an adjective or another word of a validation document gets in the last layer, relative to the mean of all words
# (1). The paper measures the attention of [CLS], here of the tokens that the student pools, and claims that it is over
# 40% higher on nouns than in BERT and SimCSE. Tags are textblob's. The table has the change since the start.

# %%
attention = figures.named(views.attention_of_students(run), names)
if len(attention):
    ax = figures.plot_attention(attention, ax=figures.rows_axes(8)[0])
    run.save_figure(ax, "attention", attention)
by_part = attention.groupby(["model", "part"], sort=False)["relative"].mean().unstack()
figures.table(by_part / by_part.iloc[:1].to_numpy() - 1)

# %%
section = """## Beside the paper

The next table compares scores with the paper's on common tasks: name `20news` or another task of the paper in
`evaluation.tasks`. The paper trains BERT and Longformer on 6.2 million Wikipedia articles. Its SimCSE is the
published model; its SimCSE_long is SimCSE on the same articles, as a run here with `pairs = "dropout"`. On average
over its five tasks SimDE is 3.9% better than SimCSE and 9.4% better than Longformer, in macro F1 of heads trained on
all examples. All its scores are in [`simde.yaml`](../docemb_lib/thesis/published/simde.yaml), which
`thesis.published("simde")` reads."""
figures.table(thesis.beside_paper(final.scores), names, section=section)

# %% [markdown]
# The paper's claims, checked on its own Table 2 and on the recorded students of this notebook. A student that reads more
# than 512 tokens stands for the paper's Longformer, the others for its BERT. Claims about single numbers have no test,
# and the last column has the number that was measured here. The study of attention prints no numbers to check.

# %%
figures.table(thesis.claims_of_paper(run, final, few))

# %%
folder = run.link_student(final.scores)
run.finish(run.metrics(final.scores), scores=final.scores, student=folder, tables=final.tables)

# %% [markdown]
# **Another student.** Train a student on teachers and halves at once, in a terminal, in `notebooks/`. All later runs
# show it in their tables.
#
# ```
# papermill 07_simde.ipynb ../outputs/both.ipynb -p beside_teachers 0.1 -p documents 200
# ```
