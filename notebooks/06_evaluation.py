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
import matplotlib.pyplot as plt

from docemb_lib import records
from docemb_lib.evaluation.published import published
from docemb_lib.evaluation.scoreboard import last_round, standing
from docemb_lib.experiments.final import final_evaluation, scores_by_length
from docemb_lib.experiments.models import SBERT_CHUNKS, SBERT_LABELS, UNTRAINED, baseline_models, student_model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.views import centring, final_metrics
from docemb_lib.figures import use_style
from docemb_lib.figures.results import plot_by_length, plot_differences, plot_task
from docemb_lib.figures.sweeps import plot_history

use_style()
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
tasks = list(intervals["task"].unique())
figure, axes = plt.subplots(len(tasks), 1, figsize=(7.2, 2.8 * len(tasks)), layout="constrained", squeeze=False)
for task, ax in zip(tasks, axes[:, 0], strict=True):
    plot_task(intervals, task=task, ax=ax)
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
figure, axes = plt.subplots(len(tasks), 1, figsize=(7.2, 2.8 * len(tasks)), layout="constrained", squeeze=False)
for task, ax in zip(tasks, axes[:, 0], strict=True):
    plot_differences(final.comparison, task=task, reference=SBERT_CHUNKS, ax=ax)
run.save_figure(figure, "differences", final.comparison)

# %%
print(standing(intervals, final.comparison, student=run.label, before=UNTRAINED, teachers=SBERT_LABELS))

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
tasks = list(by_length["task"].unique())
figure, axes = plt.subplots(len(tasks), 1, figsize=(7.2, 3.4 * len(tasks)), layout="constrained", squeeze=False)
for task, ax in zip(tasks, axes[:, 0], strict=True):
    plot_by_length(compared, task=task, ax=ax)
run.save_figure(figure, "by-length", by_length)

# %% [markdown]
# **How to read it.** Bands are 95% intervals. The truncated teacher reads the first tokens of a document only; where it
# falls behind the student to the right, and not to the left, the length of the context is what makes the difference.
# Documents of other lengths are other documents, too: a line that falls for all models says that they are harder.
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
# ## Using the student
#
# It is a plain sentence-transformers folder.

# %%
folder = run.link_student(student, scores)  # which now stand in its model card
print(f'SentenceTransformer("{folder}")')

# %%
metrics = final_metrics(run, scores, validation_history)
run.finish(metrics, scores=scores, student=folder, tables=final.tables)

# %% [markdown]
# ## All final students so far
#
# And, for orientation, the thesis' own table (Table 5.7, heads trained on 1,000 examples): other tasks, a student eight
# times as large, a thousand times the documents.

# %%
columns = ["mean", "mean_before", "mean_sbert_truncated", "mean_sbert_chunks"]
records.frame("06_evaluation").set_index(["profile", "label"])[columns].round(3)

# %%
published("table_5_7").query("round == '1k'").pivot(index="model", columns="task", values="value")
