"""Any model is evaluated as itself: students as docemb runs them, others as sentence-transformers
does.
"""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from conftest import docemb, succeed, write_files, write_own_task

from docemb_lib.runs import models
from docemb_lib.runs.kinds import TITLES, Form, Identity, Kind
from docemb_lib.runs.references import recorded_baselines
from docemb_lib.runs.run import Run
from docemb_lib.runs.store import link
from docemb_lib.settings.profile import Profile

TEXTS = ["A graph is a set of nodes and edges.", "Violins show a distribution. " * 80, "One."]


def test_a_student_is_run_by_docemb_and_one_trained_here_is_the_notebooks_own(workspace_root):
    run = Run("06_evaluation", Profile.load("small"))
    untrained = run.untrained
    folder = run.students.untrained
    copied = workspace_root / "copy"
    shutil.copytree(folder, copied)
    for path in (folder, link("students", "it", folder), copied):
        (model,) = models.forms_at(str(path)).models
        assert (model.label, model.fingerprint) == (path.name, untrained.fingerprint)
    documents = workspace_root / "d.jsonl"
    out = workspace_root / "e.npy"
    documents.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    done = docemb("embed", copied, documents, "-o", out)
    assert done.stdout == f"3 documents, 384 dimensions each: {out}\n"
    assert "/3 documents" in done.stderr
    np.testing.assert_allclose(np.load(out), untrained.embed(TEXTS), atol=1e-2)


@pytest.mark.parametrize("changed", [False, True])
def test_baselines_are_those_of_the_newest_comparable_evaluation(workspace_root, changed):
    for seed in range(2):
        run = Run.of("06_evaluation", Profile.load("small"), seed=seed)
        rows = [(Kind.STUDENT, form, run.label, f"own {form}") for form in Form]
        rows.append((Kind.UNTRAINED, Form.SAVED, "", f"before {seed}"))
        rows.append((Kind.TFIDF, Form.SAVED, "", "words"))
        described = pd.DataFrame(rows, columns=["kind", "form", "name", "fingerprint"])
        labels = [Identity(kind, form, name).label for kind, form, name, _ in rows]
        described = described.assign(model=labels, **{"fitted on": "task", "ranks_only": False})
        run.finish({}, tables={"models": described})
    if changed:
        path = workspace_root / "params" / "small.yaml"
        path.write_text(path.read_text().replace("hidden: 0,", "hidden: 4,"))
    found = [
        (model.label, model.fingerprint) for model in recorded_baselines(Profile.load("small"))
    ]
    baselines = [("student before distillation", "before 1"), ("TF-IDF", "words")]
    assert found == ([] if changed else baselines)


def test_a_model_is_scored_alone_beside_untrained_or_beside_recorded_references(workspace_root):
    rows = [{"text": f"about {label}, {n}", "label": label} for n in range(20) for label in "xy"]
    write_own_task(workspace_root / "params", rows)

    def scored(*options):
        return pd.DataFrame(json.loads(docemb(*command, "--json", *options).stdout)["models"])

    _, name, *_ = command = ("evaluate", "all-MiniLM-L6-v2", "--profile", "mine")
    assert [*scored("--alone")["model"]] == [name]
    found = scored()
    kinds = (Kind.SBERT_TRUNCATED, Kind.SBERT_CHUNKS, Kind.TFIDF)
    assert {name, *(TITLES[kind] for kind in kinds)} <= {*found["model"]}
    assert {"published", *kinds} <= {*found["kind"]}
    recorded = found[found["model"].isin([name, "TF-IDF"])]  # of its settings' `beside`, say
    Run.of("06_evaluation", Profile.load("mine")).finish({}, tables={"models": recorded})
    assert [*scored()["model"]] == [name, "TF-IDF"]


def test_a_folder_of_beir_is_a_task_whose_deciding_metric_is_chosen(workspace_root):
    documents = [{"_id": f"d{n}", "text": f"about topic{n}, page {n}"} for n in range(20)]
    queries = [{"_id": f"q{n}", "text": f"which page is on topic{n}?"} for n in range(20)]
    qrels = "query-id\tcorpus-id\tscore\n"
    qrels += "".join(f"q{n}\td{n}\t2\nq{n}\td{(n + 1) % 20}\t1\n" for n in range(20))
    files = {"corpus.jsonl": documents, "queries.jsonl": queries, "qrels/test.tsv": qrels}
    write_files(workspace_root / "beir", files)
    task = ("--texts", "beir", "--metric", "ndcg@10")
    found = json.loads(succeed("evaluate", "all-MiniLM-L6-v2", *task, "--json").stdout)
    assert found["intervals"][0]["metric"] == "ndcg@10"
    assert {row["metric"] for row in found["comparison"]} == {"ndcg@10"}
    shown = docemb("evaluate", "all-MiniLM-L6-v2", *task).stdout
    assert "Test scores (nDCG@10) with 95% intervals" in shown
    (row,) = (row for row in found["comparison"] if row["reference"] == "TF-IDF")
    assert f"{row['difference']:+.3f}".replace("0.", ".") in shown.partition("Paired tests")[2]
