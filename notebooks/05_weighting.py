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
# # 05 · Weighting and masking
#
# How much should each teacher count, and for which documents?
#
# $$L = \frac1B\sum_i \lambda_i\,L_S(y_i,t_i) + (1-\lambda_i)\,L_C(y_i,c_i),
#   \qquad \lambda_i = \lambda\cdot[\mathrm{len}_i \le \texttt{max\_structural\_len}]$$
#
# The structural teacher has seen only the beginning of a long document. The *mask* draws the consequence: documents
# longer than `max_structural_len` learn from the contextual teacher alone. Takes about a minute on two cores with the
# embedded default, if the notebooks before have run.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents and of the projections' initial weights
structural_loss = "cosine"  # mse, cosine, max-margin, contrastive; None: contextual only
distance = "mse"  # inside max-margin: mse or cosine
gamma = 1.0  # inside max-margin: weight of the negatives, from 0
temperature = None  # inside contrastive: cosines are divided by it; None: they are not
negatives = 0  # max-margin and contrastive: further documents to push away from, drawn anew for each batch
contextual_teacher = "PV"  # DM, DBOW, PV (both side by side), LSA; None: structural only
contextual_loss = "soft-cca"  # soft-cca, mse, or cca
student_projection = "profile"  # e.g. 768(ReLU)x1024; must end as wide as the contextual one
contextual_projection = "profile"  # the same for the teacher's side; - is the identity
lam = 0.5  # λ, weight of the structural loss in [0, 1]; None: the plain sum of both
lam_by_length = None  # "linear:FIRST:LAST": λ falls from FIRST to 0 at LAST structural tokens; None: it does not
max_structural_len = "profile"  # mask documents beyond so many structural tokens; None: no mask
form = "weighted"  # or half_means_sum (with λ 0.5 the plain sum), contextual_full (the contextual loss always counts 1)
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
# No docemb_lib here? Then this kernel is of another environment: Kernel, Change Kernel, or install docemb in it.
from docemb_lib.thesis.comparison import scores_of_runs
from docemb_lib.views.runs import widths_of
from docemb_lib.experiments.models import contextual_models, sbert_models, student_model, untrained_model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.scores import score_models
from docemb_lib.views.runs import student_metrics, weights_by_length
from docemb_lib.widgets.weighting import weighting_points
from docemb_lib.figures import rows_axes, use_style
from docemb_lib.figures import plot_weights
from docemb_lib.figures import plot_training
from docemb_lib.figures import plot_mask
from docemb_lib.figures import plot_history, plot_runs, plot_weighting
from docemb_lib.widgets import run_monitor, weighting_explorer

use_style()
run = Run.begin(
    "05_weighting",
    profile=profile, seed=seed, structural_loss=structural_loss, distance=distance, gamma=gamma,
    temperature=temperature, negatives=negatives,
    contextual_teacher=contextual_teacher, contextual_loss=contextual_loss,
    student_projection=student_projection, contextual_projection=contextual_projection,
    lam=lam, lam_by_length=lam_by_length, max_structural_len=max_structural_len, form=form, documents=documents,
)  # fmt: skip
stages = run.stages
run.settings()

# %% [markdown]
# ## Who learns from whom
#
# The whole method, drawn from the settings of this run.

# %%
ax = plot_training(run.profile, widths_of(run))

# %% [markdown]
# **How to read it.** Two frozen teachers, two losses, one sum. The structural teacher is matched as it is, the
# contextual one only through the projections $f_S$ and $f_C$. This notebook is about the box on the right: what each of
# the two losses of a document counts, which $\lambda_i$ says.
#
# ## What the mask does
#
# The weight of the structural loss against a document's length, with this run's settings. The text beneath says how
# many of the run's training documents it leaves to the contextual teacher alone.

# %%
weights = weights_by_length(run)
ax = plot_weights(weights["length"].to_numpy(), weights["structural"].to_numpy())
run.save_figure(ax, "weights", weights)
print(f"{(weights['structural'] == 0).mean():.0%} of the {len(weights)} training documents have no structural loss")

# %% [markdown]
# Document by document, for twelve of them between the shortest and the longest:

# %%
ax = plot_mask(weights, max_structural_len=run.profile.parameters.max_structural_len)

# %% [markdown]
# **How to read it.** A row is a document. With λ both weights add up to 1 (unless `form` says otherwise); without it
# each is 1, so that a document with both losses counts for two. Beneath the dashed line, if there is one, the mask has
# taken the structural loss away, and with λ the contextual loss takes its place. With `lam_by_length` the share falls
# gradually instead.

# %% [markdown]
# ## Distil

# %%
student = stages.trained_student()
train_history, validation_history = stages.history(student)
ax = plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)

# %% [markdown]
# **How to read it.** The sizes of the two parts are not comparable; their trends are. Where a mask is on, the
# structural part counts the masked documents as zero.
#
# ## All runs so far
#
# The sweep tasks on their validation splits, drawn as Figures 4.10 and 4.11 of the thesis: a score is divided by that
# of the best model shown on its task; a row's box and points are its tasks, the triangle is their mean, its bar the
# deviation over head seeds. The structural-only student of `03_structural` stands beside them. The grids are
# `weighting-cosine` and `weighting-max-margin`, as in `docemb sweep 05_weighting --grid weighting-cosine`.

# %%
models = [student_model(run.label, student), untrained_model(stages), sbert_models(stages)[0]]
scores = score_models(stages, [*models, *contextual_models(stages)], final=False)
runs = scores_of_runs(run, scores)
ax = plot_runs(runs, by="λ", ax=rows_axes(runs["model"].nunique())[0])
run.save_figure(ax, "runs", runs)

# %% [markdown]
# The runs that differ from this one in λ and mask alone, as the plain mean of their scores against λ. There is a line
# per mask; a dotted line is the plain sum of both losses.

# %%
siblings = runs[runs["sibling"]]
ax = plot_weighting(siblings)
run.save_figure(ax, "lambda", siblings)

# %% [markdown]
# **How to read it.** Look first at whether the differences are larger than the bars. A hollow diamond is the thesis'
# own mean of the same place in its grid, with other tasks and models: compare orders within one structural loss. There
# masking at λ = 0.5 helped the cosine loss a little, and hurt max-margin. With few documents, most of them long, it is
# to be expected to hurt: the mask takes the strict loss away from every long document and leaves it a projected
# correlation. Where the structural teacher averages over chunks of the whole document (`long: chunks`), the mask has
# nothing to hide.
#
# ## Between the points
#
# Move λ and the mask over the same runs, task by task. Bars are 95% intervals over the validation examples, circles are
# the scores at the line. Where no run is recorded, none is shown, and the command that would make it stands beneath;
# `interpolate` draws a straight line between the nearest runs instead, which is a guess and says so.

# %%
weighting_explorer(run, weighting_points(run, student), profile=profile)

# %%
metrics = student_metrics(run, scores, validation_history)
run.finish(metrics, scores=scores, student=run.link_student(student))

# %% [markdown]
# ## Watching a sweep
#
# `docemb sweep 05_weighting --grid weighting-cosine`, typed in a terminal, makes the runs that are missing. Here is how
# it stands: what is at work and how far, what is done, what has failed and why. All of it is read from disk, so close
# the tab and come back. `run_monitor("05", "weighting-cosine")` tells of the runs that wait, too, and of the time left.

# %%
run_monitor("05_weighting")

# %% [markdown]
# **What to try next.** In a terminal, in `notebooks/`, a weight that falls with the length instead of a mask:
#
# ```
# papermill 05_weighting.ipynb ../outputs/ramp.ipynb -p lam_by_length linear:256:2048 -p max_structural_len None
# ```
#
# `-p lam None` adds both losses plainly; `06_evaluation` trains a student for longer and compares it with everything
# else.
