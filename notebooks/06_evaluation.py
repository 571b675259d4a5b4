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
# # 06 · The students on the test splits
#
# Which student is better than its start, its teachers, and what a user has without training?
#
# Notebooks 03 to 05 compare students on validation splits. Here a student is scored on the test splits, once: chapter 5
# of the thesis. A student that notebooks 03 to 05 have trained with these settings is not trained again. The references
# are the student before distillation, the structural teacher on *truncated* text (as in the thesis) and over *chunks*
# of the whole document (common practice), Paragraph Vectors, search engines that use words alone (TF-IDF, LSA, BM25),
# and both side by side.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents and of the projections' initial weights
structural_loss = "profile"  # mse, cosine, max-margin, contrastive; None: contextual only
distance = "profile"  # inside max-margin: mse or cosine
gamma = "profile"  # inside max-margin: weight of the negatives, from 0
temperature = "profile"  # inside contrastive: cosines are divided by it; None: they are not
negatives = "profile"  # of max-margin and contrastive: "batch", a number of random training documents, or "all"
contextual_teacher = "profile"  # DM, DBOW, PV (both side by side), LSA; None: structural only
contextual_loss = "profile"  # soft-cca, soft-cca:covariance, mse, cosine, infonce, cca, cca:10 (the ten largest)
delta = "profile"  # inside soft-cca: weight of the decorrelation, from 0; balance: both terms equally large
beta = "profile"  # inside soft-cca: memory of its running covariance, from 0 and below 1
student_projection = "profile"  # e.g. 768(ReLU,drop0.1,norm)x1024; must end as wide as the contextual one
contextual_projection = "profile"  # the same for the teacher's side; - is the identity
lam = "profile"  # λ, weight of the structural loss in [0, 1]; None: the plain sum of both
lam_by_length = "profile"  # "linear:FIRST:LAST": λ falls from FIRST to 0 at LAST structural tokens; None: it does not
max_structural_len = "profile"  # mask documents of more structural tokens, special ones included; None: no mask
weighting = "profile"  # of the contextual loss: complement is 1 - λ; structural is 1, as in drafts of the thesis
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
from IPython.display import Markdown, display

# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib import begin, figures, thesis, views, widgets
from docemb_lib.settings.sections import HEADS

figures.use_style()
run = begin("06_evaluation", globals())
thesis.settings(run)

# %% [markdown]
# ## The student
#
# The student of the settings above.

# %%
train_history, validation_history = run.history()  # trains the student, unless it is there already
ax = figures.plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)
print(views.taught(run))

# %% [markdown]
# ## Every model on every task
#
# How good are the frozen embeddings? For classification and pairs, heads are trained on the train split of a task (in
# the embedded default logistic regressions); retrieval ranks documents by cosine and trains nothing. Each score has a
# 95% interval, a bootstrap over test examples or queries: it shows how much the score varies between samples of test
# documents. The column "fitted on" says what a model has seen: the distillation corpus, or the texts of the task
# without their labels, as a search engine has. BM25 and fused rankings can only rank, so they have no mean.

# %%
final = run.evaluate()
names = figures.short_names(run.models(), run.label)
figures.named(final.board, names)

# %%
figure = figures.each_task(figures.plot_task, figures.named(final.last, names))
run.save_figure(figure, "tasks", final.last)

# %% [markdown]
# **How to read it.** Blue is the distilled student, grey the student before distillation, orange the structural
# teacher, green what is fitted on words of the corpus (Paragraph Vectors, LSA with its width), pink what is fitted on
# words of the task. If pink is best, the task depends on particular words. ⊕ puts two embeddings side by side. A
# student with a lexical half has three rows: as saved, with the half fitted on the corpus; *adapted*, with the half
# fitted on the texts of the task; and the *dense half* alone. The comparisons below are those of the adapted student.
# Bars are 95% intervals. Two overlapping intervals do not show that two models are equal: both models are scored on the
# same documents, so paired differences are more precise.
#
# ## What is better than what
#
# Which differences are significant? Each model is compared with the structural teacher averaged over chunks, the common
# practice without a student, and the student with every reference. The interval is that of the paired difference. A
# difference is significant if a paired permutation test finds it, which swaps the two models' answers to each example
# at random. p-values are corrected for the number of tests (`p_holm`), intervals are not, so "no difference shown" can
# stand beside an interval without 0. Tests of means over tasks, on which the sentences rest, are corrected by
# themselves. "No difference shown" does not mean that two models are equal: a few hundred examples reveal large
# differences only.

# %%
comparison = figures.named(final.comparison, names)
figure = figures.each_task(figures.plot_differences, comparison, reference=names[final.practice])
run.save_figure(figure, "differences", final.comparison)

# %% tags=["conclusion"]
print(thesis.conclusion(run, final))

# %%
columns = ["reference", "difference", "low", "high", "p", "p_holm", "verdict"]
figures.table(final.beside_references[columns], digits=4)  # of single tasks: differences.csv beside the figure

# %% [markdown]
# ## Does length matter?
#
# Does a long context help? The figure shows the same scores by the length of the scored example: of a pair the longer
# document, of retrieval the query.

# %%
by_length = run.stages.scores.by_length(run.models())
plain = by_length["kind"].isin(["untrained", "sbert-truncated", "sbert-chunks"]) & (by_length["form"] == "saved")
compared = by_length[plain | (by_length["model"] == final.student)]
figure = figures.each_task(figures.plot_by_length, figures.named(compared, names), height=3.4)
run.save_figure(figure, "by-length", by_length)

# %% [markdown]
# **How to read it.** Bars are 95% intervals. The truncated teacher reads only the first tokens of a document. If it is
# worse than the student on long documents but not on short ones, the longer context of the student makes the
# difference; if on short ones, too, something else does. Documents of different lengths also differ in content: if the
# lines of all models fall, long documents are harder.
#
# ## Who is near whom
#
# Scores show that a model is better, but not where. Select a task and one of its documents, or enter a text. The
# browser shows its nearest neighbours in the spaces of the student, of the structural teacher on truncated text and
# over chunks, and of the Paragraph Vectors.

# %%
widgets.neighbour_browser(widgets.neighbourhoods_of(run))

# %% [markdown]
# **How to read it.** A neighbour has its cosine, its length and its beginning; `=` marks one that is also among the
# student's. Cosines of different models cannot be compared. Select a long document: if the truncated teacher's
# neighbours resemble only its beginning and the student's neighbours do not, the student has used the rest of the text.
#
# ## All students: Table 5.7
#
# The tables and figures below are those of chapter 5. They show this student, those of all comparable recorded runs of
# this notebook, and the references, with heads that learn from few examples and from all. Students differ in the number
# of documents that they have learnt from, which their names give: compare those of one number. For the normalised mean
# each score is divided by the best model's score on the same task and in the same round, so it depends on the models
# shown. The last column has the thesis' name of a model. First the accuracy, for each number of training examples.

# %%
finals = thesis.recorded_finals(run, final)
accuracy = thesis.table_5_7(finals.compared, "accuracy")
figures.table(accuracy, names)

# %%
section = """The same with the thesis' head, an MLP of one hidden layer that trains for ten epochs (Table 5.6), on the models that
the thesis has. Where there are some hundred examples instead of its thousands, it learns less than a logistic
regression."""
head = HEADS["thesis"]
under_mlp = thesis.with_head(run, finals, head).compared if run.profile.evaluation.head != head else finals.scores.head(0)
figures.table(thesis.table_5_7(under_mlp, "accuracy"), names, section=section)

# %%
figures.table(thesis.table_5_7(finals.compared, "map"), names, section="Retrieval, by MAP; it needs no head.")

# %% [markdown]
# Table 5.7 itself has the normalised mean twice, as printed and as it follows from the rows: the printed ones are lower
# with 1,000 and 10,000 examples, and the text does not say what they are divided by.

# %%
figures.table(thesis.table("5.7"))

# %%
section = """The next table compares scores with the thesis, for the same model, round, task and metric: the difference, and
whether the thesis' score lies within the 95% interval. MAP scores the entire ordering, as section 5.3 says. The
author's code counts the first 1,000 hits alone (`evaluation.map_at: 1000`), which changes the MAP of GAMES with its
21,000 articles. All scores of the thesis are in
[`table_5_7.yaml`](../docemb_lib/thesis/published/table_5_7.yaml), which `thesis.published("table_5_7")` reads."""
figures.table(thesis.deviations(finals.scores), names, section=section)

# %% [markdown]
# ### Over tasks: Figures 5.3 to 5.6
#
# The first figure compares accuracy over tasks and rounds, as Figure 5.3 does; the next ones show each task by the
# number of training examples of the heads (5.4), the last ones retrieval by MAP and by MRR (5.5 and 5.6). Hollow
# diamonds are scores of the thesis, on its own tasks only.

# %%
shown = figures.named(finals.compared, names)
if len(accuracy):
    ax = figures.plot_rounds(shown, ax=figures.rows_axes(len(accuracy))[0])
    run.save_figure(ax, "rounds", finals.scores)

# %%
for name, rows in shown[shown["metric"] == "accuracy"].groupby("round", sort=False):
    if shown["round"].nunique() > 1:
        figure = figures.each_task(figures.plot_task, rows)
        figure.suptitle(f"heads trained on {name} examples")
        run.save_figure(figure, f"tasks-{name}", rows)

# %% [markdown]
# Figures 5.5 and 5.6 show retrieval by MAP and by MRR: a bar is the mean over tasks, and a line joins the tasks.

# %%
ranked = shown[shown["metric"].isin(["map", "mrr"])]
if len(ranked):
    ax = figures.plot_retrieval(ranked, ax=figures.rows_axes(2 * ranked["model"].nunique() + 3)[0])
    run.save_figure(ax, "retrieval", finals.scores)

# %% [markdown]
# **How to read it.** The points of a row are tasks, the triangle is their mean. A model with points far apart is good
# at some tasks only, even if its mean is good. In retrieval MRR depends on the first relevant document, MAP on all of
# them. A model that ranks higher by MRR than by MAP finds one relevant document early and ranks the others low.

# %%
section = """### The best of chapter 4

Figure 4.12 compares four students (Table 4.10) on the validation splits. Those that notebooks 03 to 05 have recorded are
shown by the thesis' names, with equally many documents. A hollow diamond is the mean in the thesis."""
best = thesis.best_of_chapter_4(run)
if len(best):
    display(Markdown(section))
    ax = figures.plot_runs(figures.named(best, names), by="model", ax=figures.rows_axes(best["model"].nunique())[0])
    run.save_figure(ax, "best-of-chapter-4", best)

# %%
figures.table(thesis.tested(thesis.claims_of_run(run, finals), profile), section=thesis.CLAIMS)

# %% [markdown]
# ## Using the student
#
# The student is a sentence-transformers folder. Its lexical half and `pooling: lead` are a small file of code in
# it, which you must allow. The next cell does not need docemb: it embeds three texts and searches them.

# %%
import transformers
from sentence_transformers import SentenceTransformer

transformers.logging.set_verbosity_error()  # a stock Longformer warns that it pads texts to its window
folder = run.link_student(final.scores)  # its model card now has the scores above
model = SentenceTransformer(str(run.workspace.root / folder), trust_remote_code=True)
texts = ["A straight line is fitted to points.", "Rows are read from a text file.", "A graph has weighted edges."]
found = model.similarity(model.encode("linear regression"), model.encode(texts))
print(run.workspace.root / folder)
for cosine, text in sorted(zip(found[0].tolist(), texts, strict=True), reverse=True):
    print(f"{cosine:.3f}  {text}")

# %% [markdown]
# **On your own documents.** In a terminal, `docemb adapt` fits the lexical half on your own documents, `docemb init
# FOLDER` makes a profile that distils and evaluates a student on them, and `docemb run 07` adds students that
# learn without teachers.

# %%
run.finish(run.metrics(final.scores), scores=final.scores, student=folder, tables=final.tables)
