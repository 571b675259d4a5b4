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
# # 04 · Projections and the contextual loss
#
# Paragraph Vector's space has nothing to do with SBERT's, so the student cannot simply *equal* both. Instead both
# sides pass through small trainable networks, and only what comes out must agree:
#
# $$L_C(y, c) = \mathrm{SoftCCA}\big(f_S(y),\, f_C(c)\big)
#   = \tfrac1n\lVert f_S(y)-f_C(c)\rVert^2 + \delta\,\big(\mathrm{SDL}(f_S(y)) + \mathrm{SDL}(f_C(c))\big)$$
#
# The first term makes the projections alike, the second (soft decorrelation) keeps their features from all being the
# same. After training the projections are thrown away. What shape should they have? `768(ReLU)x1024` is a linear
# layer to 768 features, a ReLU, and a linear layer to 1024; `-` is nothing at all.

# %% tags=["parameters"]
profile = "tiny"  # which corpus, teachers, student and sizes: a name in params/ or the path of a .yaml file
seed = 0  # of the order of documents and of the projections' initial weights
structural_loss = "cosine"  # mse, cosine, max-margin, contrastive; None: contextual only
distance = "mse"  # inside max-margin: mse or cosine
gamma = 1.0  # inside max-margin: weight of the negatives, from 0
contextual_teacher = "PV"  # DM, DBOW, PV (both side by side), LSA; None: structural only
contextual_loss = "soft-cca"  # soft-cca, mse, or cca
student_projection = "profile"  # e.g. 768(ReLU)x1024; must end as wide as the contextual one
contextual_projection = "profile"  # the same for the teacher's side; - is the identity
documents = "profile"  # how many training documents; "profile": as many as the profile says

# %%
from docemb_lib.evaluation.published import published
from docemb_lib.experiments.models import contextual_models, sbert_models, student_model, untrained_model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.scoring import score_models
from docemb_lib.experiments.views import means_of_runs, projection_layers, student_metrics
from docemb_lib.figures import use_style
from docemb_lib.figures.losses import plot_decorrelation
from docemb_lib.figures.sweeps import plot_history, plot_runs

use_style()
run = Run.begin(
    "04_projections",
    profile=profile, seed=seed, structural_loss=structural_loss, distance=distance, gamma=gamma,
    contextual_teacher=contextual_teacher, contextual_loss=contextual_loss,
    student_projection=student_projection, contextual_projection=contextual_projection, documents=documents,
)  # fmt: skip
stages = run.stages
run.settings()

# %% [markdown]
# ## What decorrelation asks for
#
# Two features of 200 toy documents, correlated on the left, not on the right. SDL is the mean absolute correlation
# between different features: large on the left, near 0 on the right.

# %%
ax = plot_decorrelation()

# %% [markdown]
# ## The two networks of this run
#
# Every layer with its shape and number of weights.

# %%
projection_layers(run)

# %% [markdown]
# ## Distil
#
# Both losses, plainly added: no λ and no mask here, which are the subject of the next notebook.

# %%
student = stages.trained_student()
train_history, validation_history = stages.history(student)
ax = plot_history(train_history, validation_history)
run.save_figure(ax, "training", validation_history)

# %% [markdown]
# **How to read it.** The contextual loss usually falls fast at first, because the *projections* learn quickly; what
# the student itself gains shows only in the scores.
#
# ## All runs so far

# %%
models = [student_model(run.label, student), untrained_model(stages), sbert_models(stages)[0]]
scores = score_models(stages, [*models, *contextual_models(stages)], final=False)
means = means_of_runs(run, scores)
ax = plot_runs(means)
run.save_figure(ax, "runs", means)

# %% [markdown]
# **How to read it.** In the thesis (below, its best and worst four with the cosine loss, Figure 4.8) the contextual
# projection should be small or absent, the student's large, and bottlenecks are bad.

# %%
thesis = published("projections").query("source == 'figure 4.8' and kind == 'student'").sort_values("value")
thesis.iloc[[0, 1, 2, 3, -4, -3, -2, -1]][["label", "value"]].set_index("label")

# %%
metrics = student_metrics(run, scores, validation_history)
run.finish(metrics, scores=scores, student=run.link_student(student))

# %% [markdown]
# **Next.** `-p structural_loss None` leaves the contextual teacher alone; `05_weighting` asks how much each of the two
# should count.
