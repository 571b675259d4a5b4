"""Tasks of mteb's own classes over local data, and a saved student in mteb's own runner."""

from collections import Counter
from importlib.metadata import PackageNotFoundError
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from docemb_lib import pretrained
from docemb_lib.evaluation import Classification, HeadSettings, Pairs, Retrieval, evaluate, load_task
from docemb_lib.evaluation.catalogue import Outline, outline_of, task_fingerprint
from docemb_lib.evaluation.mteb import find_task, mteb_fingerprint, mteb_task
from docemb_lib.settings import Evaluation
from docemb_lib.student import Student
from docemb_lib.teachers import LSA

HEAD = HeadSettings(learning_rate=1e-2, epochs=30)


def sizes(task: Classification | Pairs) -> dict[str, Counter]:
    return {split: Counter(data.labels) for split, data in task.splits.items()}


def test_a_classification_has_mtebs_splits_or_drawn_ones_and_can_be_learnt(mteb_samples):
    task = mteb_task(mteb_samples.classification())
    assert isinstance(task, Classification)
    assert sizes(task) == {"train": dict.fromkeys("012", 12), "test": dict.fromkeys("012", 5)}
    assert task.splits["test"].texts[1] == "graph node edge path number 100"
    assert evaluate(LSA(4).fit(task.texts()), task, head=HEAD, seeds=2).values == (1.0, 1.0)
    name = mteb_samples.classification(eval_splits=["train"])
    task, expected = mteb_task(name), {"train": 8, "validation": 2, "test": 2}
    assert sizes(task) == {split: dict.fromkeys("012", n) for split, n in expected.items()}
    assert mteb_task(name) == task


@pytest.mark.parametrize("nested", [False, True])
def test_pairs_keep_their_texts_and_labels_and_no_pair_stands_in_two_splits(mteb_samples, nested):
    task, expected = mteb_task(mteb_samples.pairs(nested=nested)), {"train": 9, "validation": 3, "test": 3}
    assert isinstance(task, Pairs)
    assert sizes(task) == {split: dict.fromkeys("01", n) for split, n in expected.items()}
    rows = [row for data in task.splits.values() for row in zip(data.first, data.second, data.labels, strict=True)]
    assert len(set(rows)) == 30
    assert all((first.split()[0] == second.split()[0]) == (label == "1") for first, second, label in rows)


def test_queries_of_a_retrieval_task_are_no_hits(mteb_samples, caplog):
    task = mteb_task(mteb_samples.retrieval(missing=True))
    assert isinstance(task, Retrieval)
    test, validation = task.splits["test"], task.splits["validation"]
    assert test.candidates == 18
    assert test.texts[6:8] == ["graph node edge path number 0", "graph graph node edge path number 1"]  # title, text
    assert [test.texts[query] for query in test.queries] == ["node edge path", "axis bar colour"]
    assert list(test.relevant) == [[6, 7, 8, 9], [12, 13, 14, 15]]  # what scores 0 is not relevant
    assert [validation.texts[query] for query in validation.queries] == ["bow string sound"]
    assert caplog.messages == ["task mteb:Local: 1 relevant documents are left out: the corpus has no such id"]


class Noise:
    """Embeddings from nothing but the text, for us and, with its protocol, for mteb."""

    def embed(self, texts: list[str]) -> np.ndarray:
        return np.array([np.random.default_rng(list(text.encode())).normal(size=4) for text in texts])


@pytest.mark.parametrize("queries_are_documents", [False, True])
def test_rankings_score_as_in_mtebs_own_runner(mteb_samples, queries_are_documents):
    import mteb
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    class NoiseInMteb(AbsEncoder):
        mteb_model_meta = ModelMeta.create_empty()

        def encode(self, inputs: Any, **kwargs: Any) -> np.ndarray:
            return Noise().embed([text for batch in inputs for text in batch["text"]])

    name = mteb_samples.retrieval(queries_are_documents=queries_are_documents)
    (found,) = mteb.evaluate(NoiseInMteb(), find_task(name), cache=None, show_progress_bar=False).task_results
    task = mteb_task(name)
    for here, in_mteb in (("test", "test"), ("validation", "dev")):
        score = evaluate(Noise(), task, split=here)
        expected = found.scores[in_mteb][0]
        assert score.mean == pytest.approx(expected["map_at_1000"], abs=1e-5)
        assert score.extra["mrr"] == pytest.approx(expected["mrr_at_1000"], abs=1e-5)
        assert 0 < score.mean < 1


def test_what_a_profile_names_is_found_and_outlined_without_loading(mteb_samples, monkeypatch):
    name = mteb_samples.retrieval()
    settings = Evaluation(tasks=[name])
    assert isinstance(load_task(name, settings), Retrieval)
    monkeypatch.setattr("mteb.abstasks.AbsTaskRetrieval.load_data", None)
    assert outline_of(name, settings) == Outline(["validation", "test"], None, ranks=True)
    fingerprint = task_fingerprint(name, settings)
    assert fingerprint == task_fingerprint(name, settings)
    monkeypatch.setattr("docemb_lib.evaluation.mteb.version", lambda _: "9.9")
    assert task_fingerprint(name, settings) != fingerprint
    assert outline_of(mteb_samples.classification(), settings) == Outline(["train", "test"], None, ranks=False)


def test_a_subset_is_named_where_there_are_several(mteb_samples, refused):
    name = mteb_samples.classification(eval_langs={"en": ["eng-Latn"], "de": ["deu-Latn"]})
    assert find_task(f"{name}/de").hf_subsets == ["de"]
    for other in (name, f"{name}/fr"):
        refused(f"^task {other}: has the subsets en, de; name one, as in mteb:Local/en$", find_task, other)


@pytest.mark.parametrize(("name", "message"), [
    ("mteb:Banking7Classification", "unknown to mteb .*Did you mean: 'Banking77Classification'"),
    ("mteb:STS12", "is STS of text; take one of text, of the kind Classification, PairClassification, Retrieval"),
    ("mteb:MNIST", "is ImageClassification of image"),
])  # fmt: skip
def test_tasks_that_have_no_place_here_are_refused(name, message, refused):
    pytest.importorskip("mteb")
    refused(message, find_task, name)


def test_without_network_or_data_there_is_one_line(mteb_samples, refused):
    message = r"^task mteb:Banking77Classification: cannot be loaded \(.*Hub.*\); look at the network, or leave it out$"
    refused(message, mteb_task, "mteb:Banking77Classification")
    name = mteb_samples.classification()
    mteb_samples.write("test.jsonl", [{"body": "a", "label": 1}])
    refused(r"^task mteb:Local", mteb_task, name)


def test_without_mteb_the_mend_is_named(monkeypatch, refused):
    monkeypatch.setattr("docemb_lib.evaluation.mteb.version", Mock(side_effect=PackageNotFoundError))
    refused(r'^task mteb:STS12: mteb is not installed; run pip install -e "\.\[mteb\]"$', mteb_fingerprint, "mteb:STS12")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("students") / "small"
    minilm = pretrained.resolve("all-MiniLM-L6-v2")
    Student.from_encoder(minilm, layers=[0], max_tokens=64, attention_window=32).save(place)  # a stock one pads to it
    return place


def test_a_saved_student_scores_in_mtebs_own_runner_as_a_stock_model(mteb_samples, folder):
    import mteb

    name = mteb_samples.retrieval()
    stock = SentenceTransformer(str(folder), device="cpu")
    (found,) = mteb.evaluate(stock, find_task(name), cache=None, show_progress_bar=False).task_results
    score = evaluate(Student.load(folder), mteb_task(name))
    assert score.mean == pytest.approx(found.scores["test"][0]["map_at_1000"], abs=1e-4)
    assert score.extra["mrr"] == pytest.approx(found.scores["test"][0]["mrr_at_1000"], abs=1e-4)
