"""The tricks of 11, each beside loops, scikit-learn or what it must leave unchanged."""

import numpy as np
import papermill
import pytest
from conftest import REPOSITORY
from sklearn.decomposition import PCA

NOTEBOOK = "11_tricks.py"
N, D = 30, 6
ANISOTROPIC = np.random.default_rng(0).normal(size=(N, D)) * np.arange(1, D + 1) + 3


@pytest.fixture
def cosines():
    X = np.random.default_rng(1).normal(size=(N, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, X @ X.T


def neighbours(S, row, k):
    others = [other for other in range(len(S)) if other != row]
    return sorted(others, key=lambda other: -S[row, other])[:k]


def test_csls_is_that_of_plain_loops(defined, cosines):
    _, S = cosines
    near = [np.mean([S[row, other] for other in neighbours(S, row, 10)]) for row in range(N)]
    expected = [[2 * S[i, j] - near[i] - near[j] for j in range(N)] for i in range(N)]
    np.testing.assert_allclose(defined.csls(S), expected)


def test_smoothed_similarities_are_cosines_of_averaged_vectors(defined, cosines):
    X, S = cosines
    Y = np.array([X[row] + X[neighbours(S, row, 5)].mean(axis=0) for row in range(N)])
    Y /= np.linalg.norm(Y, axis=1, keepdims=True)
    np.testing.assert_allclose(defined.smoothed(S), Y @ Y.T)


def test_passages_rank_the_first_documents_and_leave_the_others_behind(defined, cosines):
    _, S = cosines
    rng = np.random.default_rng(2)
    passages = [rng.normal(size=(rng.integers(1, 9), 3)) for _ in range(N)]
    ranked = defined.both_ways(S, passages, first=8)
    for query in range(N):
        near = neighbours(S, query, 8)
        pool = [(row, n) for row in near for n in range(len(passages[row]))]
        votes = []
        for passage in passages[query]:
            votes.append(sorted(pool, key=lambda at: -passage @ passages[at[0]][at[1]])[:10])
        voted = {at for of_passage in votes for at in of_passage}
        for row in near:
            of_query = np.mean([row in {at[0] for at in of_passage} for of_passage in votes])
            of_row = np.mean([(row, n) in voted for n in range(len(passages[row]))])
            assert ranked[query, row] == pytest.approx(of_query * of_row + 0.01 * S[query, row])
        rest = {*range(N)} - {*near}
        assert max(ranked[query, other] for other in rest) < min(ranked[query, near])


@pytest.mark.parametrize("exponent", [0.25, 0.5])
def test_whitening_divides_standard_deviations_by_a_power_of_the_shrunken_variance(
    defined, exponent
):
    variances = PCA().fit(ANISOTROPIC).explained_variance_ * (N - 1) / N
    shrunken = variances + 0.01 * variances.mean()
    found = np.linalg.eigvalsh(np.cov(defined.whitened(ANISOTROPIC, exponent).T, bias=True))
    np.testing.assert_allclose(found, np.sort(variances * shrunken ** (-2 * exponent)))


def test_all_but_the_top_lacks_the_first_principal_direction(defined):
    pca = PCA(1).fit(ANISOTROPIC)
    expected = ANISOTROPIC - pca.inverse_transform(pca.transform(ANISOTROPIC))
    np.testing.assert_allclose(defined.all_but_the_top(ANISOTROPIC), expected, atol=1e-9)


@pytest.mark.parametrize(("size", "gamma"), [(11, 1), (20, 1), (60, 0.5)])
def test_the_knee_of_two_straight_lines_is_their_corner(defined, size, gamma):
    ratios = np.interp(np.arange(90), [0, 19, 89], [1000, 80, 10])
    variances = np.append(1 + ratios, np.ones(10))
    assert defined.exponent_of(variances, size) == (20, pytest.approx(gamma))


@pytest.mark.parametrize("tokens", [2, 7, 8, 9, 40])
def test_chunks_hold_all_tokens_once_between_the_special_ones(defined, tokens):
    found = defined.chunks(list(range(tokens)), 8)
    assert all(chunk[0] == 0 and chunk[-1] == tokens - 1 and len(chunk) <= 8 for chunk in found)
    assert [id for chunk in found for id in chunk[1:-1]] == list(range(1, tokens - 1))


@pytest.mark.slow
def test_a_brief_document_has_one_chunk_and_learnt_positions_and_all_tricks_are_tested(tmp_path):
    notebook = papermill.execute_notebook(
        str(REPOSITORY / "notebooks" / "11_tricks.ipynb"),
        str(tmp_path / "executed.ipynb"),
        parameters={
            "packages": {"plots": "seaborn"},
            "documents": 30,
            "temperature": 1.0,
            "kept": str(tmp_path / "kept"),
        },
        progress_bar=False,
    )
    vectors = {}
    for file in (tmp_path / "kept").iterdir():
        vectors |= np.load(file)
    np.testing.assert_allclose(vectors["temperature below 1"], vectors["plain"], atol=1e-5)
    brief = vectors["counts"] <= 256 // 64
    assert 0 < brief.sum() < len(brief)
    pairs = {"positions stretched": "plain", "mean of chunks": "first 256 tokens"}
    for name, other in pairs.items():
        same = np.isclose(vectors[name], vectors[other], atol=1e-5).all(axis=1)
        assert list(same) == list(brief), name
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    assert printed.count(": against ") == 16
    assert printed.count("Inside adapt ") == 14
    assert "Better inside adapt on all 1 collections: " in printed
    assert not [output for output in outputs if output.get("name") == "stderr"]
