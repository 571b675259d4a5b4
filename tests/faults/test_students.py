"""Students that were damaged are named when they are loaded, and changed ones are used."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from docemb_lib.base import files
from docemb_lib.student import Student

TEXTS = [
    f"page {n} of {'red' if n % 2 else 'blue'} with word{n % 7} and word{n % 5}" for n in range(40)
]


@pytest.fixture
def adapted(root, monkeypatch):
    """A folder as `docemb adapt` writes it."""
    monkeypatch.chdir(root)
    student = Student.from_encoder(
        str(root / "encoder"), pooling="lead", max_tokens=64, attention_window=16
    )
    student.adapt(TEXTS, dim=4)
    student.save(root / "student")
    return root / "student"


def test_every_file_of_a_student_but_its_card_is_compared(adapted, refused):
    compared = {file for file in adapted.rglob("*") if file.is_file()}
    compared -= {adapted / "README.md", adapted / "docemb.json"}
    assert len(compared) >= 9
    for file in sorted(compared):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        mend = "restore it, or remove .*docemb.json if it was changed on purpose"
        refused(f"{file} is damaged.*{mend}", Student.load, adapted)
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        files._digests.clear()
    (adapted / "README.md").write_text("another card")
    assert Student.load(adapted).words is not None
    (adapted / "modules.json").unlink()
    refused(f"modules.json is missing.*{mend}", Student.load, adapted)


def test_a_student_that_sentence_transformers_saves_over_is_used_as_it_is_then(adapted, caplog):
    stock = SentenceTransformer(str(adapted), trust_remote_code=True, device="cpu")
    with torch.no_grad():
        for parameter in stock[0].parameters():
            parameter.mul_(1.01)  # stands for a training
    stock.save_pretrained(str(adapted))
    files._digests.clear()
    changed = Student.load(adapted)
    assert "modules.json does not name docemb.json: files are not compared" in caplog.text
    np.testing.assert_allclose(
        changed.embed(TEXTS[:4], bf16=False), stock.encode(TEXTS[:4]), atol=1e-4
    )


def edit_half(folder, **tensors):
    file = folder / "3_Words/model.safetensors"
    save_file({**load_file(file), **tensors}, file)


def edit_words(folder, change):
    file = folder / "3_Words/words.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


def add_token(folder):
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["vocab"]["beyond"] = 40_000
    file.write_text(json.dumps(content))


MISFITS = {
    "no words": lambda f: (f / "3_Words/words.json").unlink(),
    "a word less": lambda f: edit_words(f, lambda words: words[:-1]),
    "a word twice": lambda f: edit_words(f, lambda words: [*words[:-1], words[0]]),
    "another shape": lambda f: edit_half(f, meaning_map=torch.zeros(7, 8)),
    "another encoder": lambda f: edit_half(
        f, meaning_map=torch.eye(6), meaning_mean=torch.zeros(6)
    ),
    "no number": lambda f: edit_half(f, weight=torch.tensor(torch.nan)),
}


@pytest.mark.parametrize("edit", MISFITS.values(), ids=MISFITS)
def test_a_half_of_words_that_does_not_fit_is_refused_at_loading(adapted, edit, refused):
    (adapted / "docemb.json").unlink()  # a student of someone else
    edit(adapted)
    refused("student: 3_Words cannot be used", Student.load, adapted)


def test_a_tokenizer_of_another_encoder_is_refused_at_loading(adapted, refused):
    (adapted / "docemb.json").unlink()
    add_token(adapted)
    refused("ids up to 40000, and its encoder has 30522", Student.load, adapted)
