"""MPNet as a student: its biases are those of the stock model, in every form of the forward pass.

The tests of the published model need its folder, see `tests/fetch_mpnet.py`.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers

from docemb_lib.student import Student, pack
from docemb_lib.student.onnx import write_onnx

LIMIT = 300  # positions of the random model
ALONE = """
import sys
import numpy as np
from sentence_transformers import SentenceTransformer
folder, texts, out, again = sys.argv[1:]
texts = np.load(texts).tolist()
model = SentenceTransformer(folder, device="cpu", trust_remote_code=True)
model.save_pretrained(again)
np.save(out, model.encode(texts, batch_size=3))
assert "docemb_lib" not in sys.modules
try:
    SentenceTransformer(folder, device="cpu", trust_remote_code=False)
except Exception as error:
    print(error)
"""


@pytest.fixture(scope="module")
def random_mpnet(minilm, tmp_path_factory):
    """A random MPNet of two layers, and MiniLM's tokenizer with MPNet's padding id."""
    folder = tmp_path_factory.mktemp("mpnet")
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        minilm, pad_token="[unused0]", model_max_length=LIMIT
    )
    assert tokenizer.pad_token_id == 1
    config = transformers.MPNetConfig(
        vocab_size=30522,
        hidden_size=16,
        num_attention_heads=2,
        num_hidden_layers=2,
        intermediate_size=24,
        max_position_embeddings=LIMIT + 2,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    model = transformers.MPNetModel(config, add_pooling_layer=False)
    torch.nn.init.normal_(model.encoder.relative_attention_bias.weight, std=2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["random", "published"])
def mpnet(request, random_mpnet):
    """The folder of an MPNet, and how many tokens it reads."""
    if request.param == "random":
        return random_mpnet, LIMIT
    if "DOCEMB_MPNET" not in os.environ:
        mend = "`python tests/fetch_mpnet.py FOLDER`, then DOCEMB_MPNET=FOLDER pytest"
        pytest.skip(f"DOCEMB_MPNET names no folder of all-mpnet-base-v2: {mend}")
    return os.environ["DOCEMB_MPNET"], 384


def stock_model(folder):
    return transformers.MPNetModel.from_pretrained(folder, add_pooling_layer=False).eval()


def slow_hidden(stock, document, limit, window):
    """The stock model's layers on one document: dense attention with a band mask and the stock
    biases of all offsets, and positions that repeat. (T, D)
    """
    place = torch.arange(len(document))
    ids = torch.tensor([document])
    hidden = stock.embeddings(ids, position_ids=2 + place[None] % limit)
    bias = stock.encoder.compute_position_bias(hidden)
    band = torch.zeros(len(place), len(place)).to(hidden)
    band = band.masked_fill((place - place[:, None]).abs() > window, -torch.inf)
    for layer in stock.encoder.layer:
        hidden = layer(hidden, band, bias)[0]
    return hidden[0]


def test_one_window_has_the_hidden_states_of_the_stock_model(mpnet, random_documents):
    folder, _ = mpnet
    student = Student.from_encoder(folder)
    stock = stock_model(folder)
    lengths = [1, 2, 17, 129, 130, 257]
    documents = random_documents(lengths)
    with torch.no_grad():
        hidden = student.hidden(pack(documents)).split(lengths)
        for document, states in zip(documents, hidden, strict=True):
            expected = stock(torch.tensor([document])).last_hidden_state[0]
            torch.testing.assert_close(states, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("window", [8, 128, 256])
def test_longer_documents_have_those_of_dense_attention_with_a_band(
    mpnet, random_documents, window
):
    """In double precision: a band of the published model rounds more than all offsets do."""
    folder, limit = mpnet
    student = Student.from_encoder(folder, max_tokens=1024, attention_window=2 * window).double()
    stock = stock_model(folder).double()
    lengths = [900, 3, limit + 1]
    documents = random_documents(lengths)
    with torch.no_grad():
        hidden = student.hidden(pack(documents)).split(lengths)
        for document, states in zip(documents, hidden, strict=True):
            expected = slow_hidden(stock, document, limit, window)
            torch.testing.assert_close(states, expected, atol=1e-10, rtol=0)
            ids = torch.tensor([document])
            mask = torch.ones_like(ids)
            in_longformer = student.model(ids, attention_mask=mask).last_hidden_state[0]
            # Its softmax is in float32.
            torch.testing.assert_close(in_longformer, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_strip_is_trained_with_the_gradient_of_the_stock_table(
    random_mpnet, random_documents, checkpointing
):
    """The gradient of a bucket of offsets is the sum of those of its offsets."""
    student = Student.from_encoder(random_mpnet, max_tokens=512, attention_window=300).double()
    student.checkpointing = checkpointing
    stock = stock_model(random_mpnet).double()
    documents = random_documents([400, 7])
    hidden = student.hidden(pack(documents))
    weight = torch.randn(hidden.shape, dtype=torch.float64)
    (hidden * weight).sum().backward()
    states = [slow_hidden(stock, document, LIMIT, 150) for document in documents]
    (torch.cat(states) * weight).sum().backward()
    strip = dict(student.model.named_parameters())["encoder.offset_bias"]
    assert strip.shape == (2, 257)
    buckets = stock.encoder.relative_position_bucket(torch.arange(-128, 129))
    of_buckets = torch.zeros(32, 2, dtype=torch.float64).index_add(0, buckets, strip.grad.T)
    expected = stock.encoder.relative_attention_bias.weight.grad
    torch.testing.assert_close(of_buckets, expected)
    assert (expected.abs() > 1e-3).any(1).sum() == 31  # that of a later offset of 0 is not used
    torch.testing.assert_close(
        student.model.embeddings.word_embeddings.weight.grad,
        stock.embeddings.word_embeddings.weight.grad,
    )


def test_bfloat16_stays_close_to_float32_in_states_and_gradients(random_mpnet, random_documents):
    student = Student.from_encoder(random_mpnet, max_tokens=512, attention_window=64)
    strip = student.model.encoder.offset_bias
    torch.nn.init.normal_(strip)
    batch = pack(random_documents([400, 70, 3]))
    results = []
    for enabled in (False, True):
        student.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            embeddings = student(batch)
        embeddings.square().sum().backward()
        results.append((embeddings.detach().float(), strip.grad.clone()))
    for exact, rounded in zip(*results, strict=True):
        assert (exact - rounded).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize("pooling", ["mean", "lead"])
def test_a_saved_student_runs_with_the_code_of_its_folder_without_docemb(
    random_mpnet, texts, tmp_path, pooling
):
    student = Student.from_encoder(random_mpnet, pooling=pooling, max_tokens=600)
    torch.nn.init.normal_(student.model.encoder.offset_bias)  # as after training
    if pooling == "lead":
        student.adapt([f"a{n % 11} b{n % 7} c{n % 13} word{n}" for n in range(40)], dim=16)
    ours = student.embed(texts, bf16=False)
    folder = tmp_path / "student"
    student.save(folder)
    assert "trust_remote_code=True).encode" in (folder / "README.md").read_text()
    np.save(tmp_path / "texts.npy", texts)
    names = ("texts.npy", "rows.npy", "again")
    command = [sys.executable, "-c", ALONE, folder, *(tmp_path / name for name in names)]
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "trust_remote_code" in done.stdout
    np.testing.assert_allclose(np.load(tmp_path / "rows.npy"), ours, rtol=0, atol=1e-5)
    for saved in (folder, tmp_path / "again"):
        loaded = Student.load(saved)
        torch.testing.assert_close(loaded.state_dict(), student.state_dict(), atol=0, rtol=0)
        np.testing.assert_array_equal(loaded.embed(texts, bf16=False), ours)
    meaning = student.without_words().embed(texts, bf16=False)
    converted = Student.from_encoder(folder, pooling=pooling, max_tokens=600)
    np.testing.assert_array_equal(converted.embed(texts, bf16=False), meaning)


def test_an_onnx_file_gives_the_embeddings_of_torch(random_mpnet, random_documents, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="docemb[onnx] is not installed")
    pytest.importorskip("onnxscript", reason="docemb[onnx] is not installed")
    student = Student.from_encoder(
        random_mpnet, pooling="lead", max_tokens=600, attention_window=300
    )
    write_onnx(student, tmp_path / "student.onnx")
    session = runtime.InferenceSession(tmp_path / "student.onnx")
    for document in random_documents([5, 550]):
        inputs = {
            "input_ids": np.array([document]),
            "attention_mask": np.ones((1, len(document)), int),
        }
        (ours,) = session.run(None, inputs)
        with torch.no_grad():
            expected = student(pack([document])).numpy()
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
