"""Embeddings on disk: a model embeds a text once, whichever command or notebook asks for it.

The embeddings of a model lie on a shelf, a folder that is named by the model's fingerprint. It
holds shards, each an artefact: the embeddings of some texts, and the digests of these texts. In a
working folder the shelves are among the artefacts. Elsewhere, `docemb adapt` leaves them beside
the student that it makes, in `<student>.embeddings`: inside, people would upload them with it. Of a
student the dense half is kept, which does not depend on the collection that it was adapted to.

N: texts; D: width of an embedding.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.base.integrity import is_whole
from docemb_lib.base.tokenizing import batched
from docemb_lib.workspace import VERSION, Workspace, fingerprint_of, is_locked, publish

# Texts of a shard: a kill costs the embeddings of so many. A student sorts as many by length.
BLOCK = 512


class Embedder(Protocol):
    """A model that embeds texts; `Model` is one."""

    @property
    def label(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """Equal for two models only if they embed alike."""

    @property
    def embed(self) -> Callable[[list[str]], np.ndarray]:
        """Gives (N, D) for N texts; called only for texts without an embedding."""

    @property
    def store(self) -> Path | None:
        """A folder of shelves besides those of the workspace; None: there is none."""


def store_of(student: Path) -> Path:
    """The folder of the embeddings that `docemb adapt` leaves beside a student's folder."""
    return student.absolute().with_name(f"{student.absolute().name}.embeddings")


def embed_once(workspace: Workspace | None, model: Embedder, texts: Sequence[str]) -> np.ndarray:
    """The embeddings of the texts by the model, float32 (N, D), in the order of `texts`.

    Texts without an embedding are embedded, and kept in shards of `BLOCK`. Equal texts share an
    embedding.

    workspace: where new ones are kept; None: beside the model.
    """
    keys = [_key_of(text) for text in texts]
    known = _embeddings(workspace, model)
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    shards: dict[Path, Callable[[], None]] = {}
    for block in batched(missing, BLOCK):
        few = {key: missing[key] for key in block}
        inputs = {"model": model.fingerprint, "texts": sorted(few)}
        shard = _shelves(workspace, model)[0] / fingerprint_of(inputs)
        write = partial(_write, model=model, texts=few)
        name = f"embeddings of {model.label}"
        shards[shard] = partial(publish, shard, write, inputs=inputs, name=name)
    # Runs side by side need the same references: each takes shards that no other is writing, and
    # waits for the rest at the end.
    for ends in (False, True):
        for shard, make in shards.items():
            if not is_whole(shard) and (ends or not is_locked(shard)):
                make()
    if missing:
        known = _embeddings(workspace, model)
    return np.stack([known[key] for key in keys])


def kept_embeddings(
    workspace: Workspace | None, model: Embedder
) -> Callable[[str], np.ndarray | None]:
    """A function that gives the embedding of a text by the model, (D,); None where it has none."""
    known = _embeddings(workspace, model)
    return lambda text: known.get(_key_of(text))


def _key_of(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]


def _write(folder: Path, *, model: Embedder, texts: Mapping[str, str]) -> None:
    """Write a shard. texts: by key."""
    vectors = np.asarray(model.embed([*texts.values()]), dtype=np.float32)
    broken = int((~np.isfinite(vectors).all(axis=1)).sum())
    if broken:
        problem = f"{broken} of {len(vectors)} embeddings are not finite"
        mend = "restore the model's files, or train it again"
        raise InputError(f"{model.label}: {problem}; {mend}")
    np.save(folder / "embeddings.npy", vectors)
    content = {"model": model.fingerprint, "label": model.label, "texts": [*texts]}
    (folder / "shard.json").write_text(json.dumps(content), encoding="utf-8")


def _embeddings(workspace: Workspace | None, model: Embedder) -> dict[str, np.ndarray]:
    """The embeddings, (D,) each, of all shards of the model, by the keys of their texts."""
    embeddings: dict[str, np.ndarray] = {}
    for shelf in _shelves(workspace, model):
        for folder in sorted(shelf.glob("*")):
            if folder.suffix or not is_whole(folder):  # `.partial`: not published yet
                continue
            keys = json.loads((folder / "shard.json").read_text(encoding="utf-8"))["texts"]
            vectors = np.load(folder / "embeddings.npy", mmap_mode="r")
            embeddings.update(zip(keys, vectors, strict=True))
    return embeddings


def _shelves(workspace: Workspace | None, model: Embedder) -> list[Path]:
    """The model's shelves, of which the first takes new shards."""
    folders = [] if workspace is None else [workspace.outputs / "artefacts" / "embeddings"]
    if model.store is not None:
        folders.append(model.store)
    name = fingerprint_of({"model": model.fingerprint, "version": VERSION})
    return [folder / name for folder in folders]
