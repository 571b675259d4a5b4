"""Embeddings of task texts, each (model, text) computed once, however many tasks and splits ask for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from docemb_lib.evaluation.tasks import Embedder
from docemb_lib.workspace import MANIFEST, Workspace

KIND = "embeddings"


class Model(NamedTuple):
    """Anything that embeds texts; `load` is called only if some text has not been embedded yet."""

    label: str  # as in tables
    fingerprint: str  # equal for two models only if they embed alike
    load: Callable[[], Embedder]


def embed_once(workspace: Workspace, model: Model, texts: Sequence[str]) -> np.ndarray:
    """Float32 (N, D) in the order of `texts`.

    What is missing is embedded in one go and published as a further shard of the model's embeddings.
    """
    keys = [hashlib.sha256(text.encode()).hexdigest()[:24] for text in texts]
    known = _shards(workspace, model)
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if missing:

        def build(folder: Path) -> None:
            vectors = np.asarray(model.load().embed(list(missing.values())), dtype=np.float32)
            np.save(folder / "embeddings.npy", vectors)
            content = {"model": model.fingerprint, "label": model.label, "texts": list(missing)}
            (folder / "shard.json").write_text(json.dumps(content), encoding="utf-8")

        workspace.artefact(f"{KIND}/{_shelf(model)}", {"model": model.fingerprint, "texts": sorted(missing)}, build)
        known = _shards(workspace, model)
    return np.stack([known[key] for key in keys])


def _shards(workspace: Workspace, model: Model) -> dict[str, np.ndarray]:
    """Text key → embedding (D,), of all shards of the model."""
    found: dict[str, np.ndarray] = {}
    for manifest in sorted((workspace.outputs / "artefacts" / KIND / _shelf(model)).glob(f"*/{MANIFEST}")):
        folder = manifest.parent
        if folder.suffix:  # being built, or on its way out
            continue
        texts = json.loads((folder / "shard.json").read_text(encoding="utf-8"))["texts"]
        found.update(zip(texts, np.load(folder / "embeddings.npy", mmap_mode="r"), strict=True))
    return found


def _shelf(model: Model) -> str:
    return hashlib.sha256(model.fingerprint.encode()).hexdigest()[:16]
