"""Embeddings on disk: a model embeds a text once, whichever command or notebook asks for it.

The embeddings of a model are artefacts of one kind, `embeddings/<model>`, each with the float32
rows of some texts; the inputs in its manifest are the digests of these texts. Outside of a working
folder, commands leave them beside the student, see `kept_beside`. Of a student the half of meaning
is kept, which does not depend on the collection that it was adapted to.

N: texts; D: width of an embedding.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from filelock import Timeout

from docemb_lib.base.errors import InputError
from docemb_lib.base.files import MANIFEST, fingerprint_of, hash_of
from docemb_lib.base.prompts import Query
from docemb_lib.base.tokenizing import batched
from docemb_lib.runs.store import cached, is_whole, shelf_of
from docemb_lib.settings.files import sources_of
from docemb_lib.teachers import Compound, Teacher

# Texts of an artefact: a kill costs the embeddings of so many. A student sorts as many by length.
BLOCK = 512
ROWS = "embeddings.npy"


class Embedder(NamedTuple):
    """A model that embeds texts."""

    label: str  # for messages
    fingerprint: str  # equal for two models only if they embed alike
    # Gives (N, D) for N texts, and loads what it needs. It is called only for texts that have not
    # been embedded yet.
    embed: Callable[[list[str]], np.ndarray]


def embed_once(model: Embedder, texts: Sequence[str]) -> np.ndarray:
    """Return the embeddings of the texts by the model, float32 (N, D), in the order of `texts`.

    Texts without an embedding are embedded, and kept in artefacts of `BLOCK`. Equal texts share an
    embedding, unless one is a `Query`. Raises InputError for embeddings that are not finite.
    """
    keys = [hash_of("\0" * isinstance(text, Query) + text)[:24] for text in texts]
    kind = f"embeddings/{fingerprint_of({'model': model.fingerprint})}"
    known = _rows_of(kind)
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    # Runs side by side need the same references: each takes blocks that no other is writing, and
    # waits for the rest at the end.
    for wait in (False, True):
        for block in batched(missing, BLOCK):
            write = partial(_write, model, [missing[key] for key in block])
            with suppress(Timeout):
                cached(kind, {"texts": block}, write, wait=wait)
    if missing:
        known = _rows_of(kind)
    return np.stack([known[key] for key in keys])


def teacher_embedder(teacher: Teacher) -> Embedder:
    """The teacher as an embedder. A compound embeds a text through its members, each once."""
    identity = f"teacher/{teacher.fingerprint}"
    sources = sources_of(type(teacher))
    if sources:  # the file of a class of one's own
        identity = fingerprint_of({"teacher": identity, "sources": sources})
    label = getattr(teacher, "label", type(teacher).__name__)
    if not isinstance(teacher, Compound):
        return Embedder(label, identity, teacher.embed)
    members = [teacher_embedder(member) for member in teacher.members]

    def embed(texts: list[str]) -> np.ndarray:
        return np.concatenate([embed_once(member, texts) for member in members], axis=1)

    return Embedder(label, identity, embed)


def _write(model: Embedder, texts: list[str], folder: Path) -> None:
    vectors = np.asarray(model.embed(texts), dtype=np.float32)
    broken = int((~np.isfinite(vectors).all(axis=1)).sum())
    if broken:
        problem = f"{broken} of {len(vectors)} embeddings are not finite"
        mend = "restore the model's files, or train it again"
        raise InputError(f"{model.label}: {problem}; {mend}")
    np.save(folder / ROWS, vectors)


def _rows_of(kind: str) -> Mapping[str, np.ndarray]:
    """The embeddings of all artefacts of a kind, (D,) each, by the digests of their texts."""
    rows: dict[str, np.ndarray] = {}
    for folder in sorted(shelf_of(kind).glob("*")):
        if not folder.suffix and is_whole(folder):  # `.partial`: not published yet
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            vectors = np.load(folder / ROWS, mmap_mode="r")
            rows.update(zip(manifest["inputs"]["texts"], vectors, strict=True))
    return rows
