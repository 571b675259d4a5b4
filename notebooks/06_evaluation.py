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
# # 06 · The final student, measured
#
# A student is trained for longer, with settings that were chosen on the validation splits (03 to 05), and then, once,
# the test splits are opened. Beside it: itself before distillation, its structural teacher in both forms (on truncated
# text, as the thesis does; and averaged over chunks of the whole document, as people do today), every Paragraph Vector,
# and TF-IDF as the floor that shows how far words alone go.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents and of the projections' initial weights
structural_loss = "profile"  # mse, cosine, max-margin, contrastive; None: contextual only
distance = "profile"  # inside max-margin: mse or cosine
gamma = "profile"  # inside max-margin: weight of the negatives, from 0
temperature = "profile"  # inside contrastive: cosines are divided by it; None: they are not
negatives = "profile"  # max-margin and contrastive: further documents to push away from, drawn anew for each batch
contextual_teacher = "profile"  # DM, DBOW, PV (both side by side), LSA; None: structural only
contextual_loss = "profile"  # soft-cca, mse, or cca
student_projection = "profile"  # e.g. 768(ReLU)x1024; must end as wide as the contextual one
contextual_projection = "profile"  # the same for the teacher's side; - is the identity
lam = "profile"  # λ, weight of the structural loss in [0, 1]; None: the plain sum of both
lam_by_length = "profile"  # "linear:FIRST:LAST": λ falls from FIRST to 0 at LAST structural tokens; None: it does not
max_structural_len = "profile"  # mask documents beyond so many structural tokens; None: no mask
form = "profile"  # or half_means_sum (with λ 0.5 the plain sum), contextual_full (the contextual loss always counts 1)
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
from textwrap import fill

import matplotlib.pyplot as plt
import pandas as pd

# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib.thesis.tables import deviations, table_5_7
from docemb_lib.thesis.values import published
from docemb_lib.evaluation.scoreboard import last_round, standing
from docemb_lib.thesis.tables import best_of_chapter_4
from docemb_lib.thesis.claims import claims_of_run as check_claims
from docemb_lib.experiments.final import final_evaluation, scores_by_length
from docemb_lib.thesis.tables import recorded_finals
from docemb_lib.experiments.models import SBERT_CHUNKS, SBERT_LABELS, UNTRAINED, baseline_models, student_model
from docemb_lib.widgets.neighbours import neighbourhoods_of
from docemb_lib.experiments.run import Run
from docemb_lib.views.runs import centring, final_metrics
from docemb_lib.figures import rows_axes, use_style
from docemb_lib.figures import plot_by_task, plot_retrieval, plot_retrieval_means, plot_rounds
from docemb_lib.figures import each_task, plot_by_length, plot_differences, plot_task
from docemb_lib.figures import plot_history, plot_runs
from docemb_lib.widgets import neighbour_browser

use_style()
pd.set_option("display.max_colwidth", None)  # the claims are sentences
run = Run.begin(
    "06_evaluation",
    profile=profile, seed=seed, structural_loss=structural_loss, distance=distance, gamma=gamma,
    temperature=temperature, negatives=negatives,
    contextual_teacher=contextual_teacher, contextual_loss=contextual_loss,
    student_projection=student_projection, contextual_projection=contextual_projection,
    lam=lam, lam_by_length=lam_by_length, max_structural_len=max_structural_len, form=form, documents=documents,
)  # fmt: skip
stages = run.stages
run.settings()

# %% [markdown]
# ## Distil

# %%
student = stages.trained_student()
train_history, validation_history = stages.history(student)
ax = plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)

# %% [markdown]
# ## Every model on every task
#
# Frozen embeddings. For classification and pairs a small head is trained on the task's train split, several times with
# different seeds; retrieval ranks by cosine and trains nothing. Behind each score stands its 95% interval: how far it
# would move with other test documents of the same kind (a bootstrap over test examples, or queries). The last column is
# the deviation of the mean over head seeds: how much the training of heads matters.

# %%
models = [student_model(run.label, student), *baseline_models(stages)]
final = final_evaluation(stages, models, student=run.label)
final.board

# %%
scores, intervals = final.scores, last_round(final.intervals)
figure = each_task(plot_task, intervals, height=2.8)
run.save_figure(figure, "tasks", intervals)

# %% [markdown]
# **How to read it.** Blue is the distilled student, grey the same network before, orange its structural teacher. Where
# TF-IDF (pink) is ahead, the task is about particular words. Bars are 95% intervals. Two of them that overlap do not
# say that two models are alike: both were scored on the same documents, and what counts is how they differ on each.
#
# ## What is better than what
#
# Every model against the structural teacher averaged over chunks, which is what one does today without a student. The
# interval is that of the difference, example by example. A difference counts as shown where a paired test finds it (the
# two models' answers to each example are swapped at random), after a correction for all the tests made here, those of
# the student against its truncated teacher and against itself before distillation included. A model is called better
# only when it is; "no difference shown" is not to say that there is none: a few hundred examples show large ones only.

# %%
figure = each_task(plot_differences, final.comparison, reference=SBERT_CHUNKS, height=2.8)
run.save_figure(figure, "differences", final.comparison)

# %%
print(fill(standing(intervals, final.comparison, student=run.label, before=UNTRAINED, teachers=SBERT_LABELS), 110))

# %%
columns = ["reference", "task", "difference", "low", "high", "p", "p_holm", "verdict"]
final.comparison.query("model == @run.label")[columns].round(4)

# %% [markdown]
# ## Does length matter?
#
# Whether a long context helps is the question of it all. Here are the same scores by the length of what is scored: of a
# pair the longer document, of retrieval the query.

# %%
by_length = scores_by_length(stages, models)
compared = by_length[by_length["model"].isin([run.label, UNTRAINED, *SBERT_LABELS])]
figure = each_task(plot_by_length, compared, height=3.4)
run.save_figure(figure, "by-length", by_length)

# %% [markdown]
# **How to read it.** Bands are 95% intervals. The truncated teacher reads the first tokens of a document only; where it
# falls behind the student to the right, and not to the left, the length of the context is what makes the difference.
# Documents of other lengths are other documents, too: a line that falls for all models says that they are harder.
#
# ## Who is near whom
#
# Numbers of tasks say that a model is better, not at what. Pick a task and one of its documents, or write a text of
# your own: beside each other stand its nearest neighbours in the space of the student, of the structural teacher on
# truncated text and over chunks, and of the Paragraph Vectors.

# %%
neighbour_browser(neighbourhoods_of(run, student, models), by_length)

# %% [markdown]
# **How to read it.** What is bold is among the student's neighbours too; a tick marks what belongs to the document in a
# retrieval task. Look at a long document: where the truncated teacher's neighbours share its beginning alone, and the
# student's do not, the rest was read.
#
# ## Where cosines decide
#
# Distilled embeddings share a direction that says nothing of a document, so that all cosines are high. A head learns to
# look past it; a ranking by cosine cannot. Here the mean embedding of at most 200 training documents is subtracted from
# the trained student. `spread` is the mean cosine distance of two texts, 0 when all have collapsed to a point;
# retrieval is MAP, and a task of pairs is the chance that a pair that belongs together is nearer than one that does
# not.

# %%
centring(run, student).round(3)

# %% [markdown]
# **How to read it.** A larger spread by itself is no gain: it is the order of the cosines that counts. For use where
# cosines decide, `student: {centre: true}` in the profile stores the mean in the student's folder, and
# sentence-transformers subtracts it too.
#
# ## All final students, beside the thesis
#
# This run and all recorded ones that are comparable with it, as the thesis shows its own in Table 5.7: by accuracy, for
# each number of examples that the heads learn from, and by MAP. The normalised mean divides each score by the best
# model's on that task and round, so it changes with the models shown.

# %%
finals = recorded_finals(run, final)
accuracy = table_5_7(finals.scores, "accuracy")
accuracy.round(3)

# %%
table_5_7(finals.scores, "map").round(3)

# %% [markdown]
# Each score that the thesis has too, of the same model, task and round: how far ours is from it, and whether its number
# lies within our 95% interval. Empty where no task here is one of the thesis'. (Its MAP looks at the first 1,000 hits
# only, ours at all articles.)

# %%
deviations(finals.scores).round(3)

# %% [markdown]
# For orientation, the table of the thesis for heads trained on 1,000 examples. Beside the embedded default it has other
# tasks, a student eight times as large, and a thousand times the documents.

# %%
table_5_7(published("table_5_7"), "accuracy").loc["1k"].round(3)

# %% [markdown]
# ### Over tasks
#
# The figures of chapter 5, for the models, tasks and rounds that are recorded. Hollow marks are the thesis' numbers,
# where its tasks are among them.

# %%
print(fill(finals.left_out, 110))

# %%
if "5.3" not in finals.not_drawn:
    ax = plot_rounds(finals.scores, ax=rows_axes(len(accuracy))[0])
    run.save_figure(ax, "rounds", finals.scores)

# %%
if "5.4" not in finals.not_drawn:
    rounds = finals.scores["round"].unique()
    figure, axes = plt.subplots(len(rounds), 1, figsize=(9, 3.4 * len(rounds)), layout="constrained", squeeze=False)
    for name, ax in zip(rounds, axes[:, 0], strict=True):
        plot_by_task(finals.scores, name=name, ax=ax)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=2, fontsize=8)
    run.save_figure(figure, "tasks-by-round", finals.scores)

# %%
if "5.5" not in finals.not_drawn:
    ax = plot_retrieval_means(finals.scores, ax=rows_axes(2 * finals.scores["model"].nunique(), each=0.18)[0])
    run.save_figure(ax, "retrieval-means", finals.scores)

# %%
if "5.6" not in finals.not_drawn:
    ax = plot_retrieval(finals.scores, ax=rows_axes(finals.scores["model"].nunique())[0])
    run.save_figure(ax, "retrieval", finals.scores)

# %% [markdown]
# **How to read it.** A box spans the tasks, each of which is a point; the triangle is their mean. A long box with a
# good mean is a model for some tasks, a short one for all. In retrieval, MRR asks for the first relevant document and
# MAP for all of them: models that change places between the two find one, or find many.
#
# ### The best of chapter 4
#
# Figure 4.12 puts the four best students of 03 to 05 (Table 4.10) beside each other, on the validation splits. They are
# runs of the grids `weighting-cosine`, `weighting-max-margin` and `structural`.

# %%
best = best_of_chapter_4(run)
if best.empty:
    print(f"None of the four is recorded: `docemb sweep 05 --grid weighting-cosine --profile {profile}` makes two.")
else:
    ax = plot_runs(best, by="model", ax=rows_axes(best["model"].nunique())[0])
    run.save_figure(ax, "best-of-chapter-4", best)

# %% [markdown]
# ### What the thesis claims
#
# Each sentence of chapter 5 that can be checked, on the thesis' own table, on its tasks as recorded here, and on this
# profile's other tasks, which tell something, but do not test it. *Holds* and *does not hold* are said only where
# paired tests show every difference that a claim is made of, or one the other way round; else it is *undecided*. Of the
# thesis' own numbers there is no test, and its column says so; counts need none. The three students of the thesis are
# the grid `final`: `docemb sweep 06 --grid final --profile …`.

# %%
check_claims(run, finals)

# %% [markdown]
# ## Using the student
#
# It is a plain sentence-transformers folder.

# %%
folder = run.link_student(student, scores)  # which now stand in its model card
print(f'SentenceTransformer("{folder}")')

# %%
metrics = final_metrics(run, scores, validation_history)
run.finish(metrics, scores=scores, student=folder, tables=final.tables)
