"""The pairs of mechanism.npz: each once, and those that follow from the problem are not there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.mended_sums import edit, rewrite
from hypothesis import given
from hypothesis import strategies as st

from privopt import checker
from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release, verify
from privopt_metric_dp.matrix import release as release_module
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem import metric_data

PAIR = st.tuples(st.integers(0, 5), st.integers(0, 5))


def write_release(folder: Path, pairs: np.ndarray) -> Path:
    """Write a matrix of six records over these pairs."""
    ids, weights = np.array(list("abcdef")), np.full((6, 2), 2**62, dtype=np.uint64)
    path = folder / "mechanism.npz"
    np.savez(path, weights=weights, records=ids, outputs=ids[:2], pairs=pairs, distances=np.ones(len(pairs)))
    return path


@given(st.lists(PAIR, max_size=9))
def test_refuses_and_names_duplicate_pairs(tmp_path_factory, pairs):
    sorted_pairs = [tuple(sorted(pair)) for pair in pairs]
    duplicates = sorted(pair for pair in set(sorted_pairs) if sorted_pairs.count(pair) > 1)
    path = write_release(tmp_path_factory.mktemp("pairs"), np.array(pairs, dtype=np.int64).reshape(-1, 2))
    if not duplicates:
        assert MatrixRelease.load(path).pairs.tolist() == [list(pair) for pair in pairs]
        return
    with pytest.raises(InputError, match="each pair once") as excinfo:
        MatrixRelease.load(path)
    assert f"{list(duplicates[0])} more than once" in str(excinfo.value)


PROBLEM = """[records]
vectors = "words.npy"
[distance]
kind = "euclidean"
[privacy]
epsilon = 2.0
{near}
[utility]
kind = "distance"
"""


def solve_words(folder: Path, mechanism: str = "exponential", method: str = "exponential", limit_key: str = "") -> Path:
    """Solve over twelve words of sixteen dimensions."""
    folder.mkdir()
    np.save(folder / "words.npy", np.random.default_rng(3).normal(size=(12, 16)) / 4)
    (folder / "words.toml").write_text(PROBLEM.format(near=limit_key))
    return solve(mechanism, folder / "words.toml", folder / "out", Options(method=method)).folder


@pytest.fixture
def few_stored(monkeypatch):
    """All required pairs are too many to be written, or to look for those that imply the others."""
    monkeypatch.setattr(release_module, "MAX_STORED_PAIRS", 0)
    monkeypatch.setattr(metric_data, "MAX_REDUCED_PAIRS", 0)


@pytest.mark.parametrize(
    ("mechanism", "method", "limit_key"),
    [
        ("exponential", "exponential", ""),
        ("exponential", "calibrated", ""),
        ("optimal-lp", "auto", ""),
        ("exponential", "calibrated", "neighbours_within = 1.4"),
    ],
)
def test_many_pairs_are_checked_without_storage(tmp_path, few_stored, mechanism, method, limit_key):
    folder = solve_words(tmp_path / "in", mechanism, method, limit_key)
    with np.load(folder / "mechanism.npz") as arrays:
        assert arrays["pairs"].shape == (0, 2)
        assert arrays["distances"].shape == arrays["implied"].shape == (0,)
        weights = arrays["weights"]
    release = load_release(folder)
    assert release.release.pairs is release.problem.data.pairs
    pairs = len(release.release.pairs)
    assert json.loads((folder / "result.json").read_text())["certificate"]["checked"] == 12 * pairs
    lines: list[str] = []
    assert verify(folder).complaints == ()
    assert checker.check(folder, lines.append) == 0, lines
    i, j = release.release.pairs[0].tolist()
    weights[i], weights[j] = 0, 0
    weights[i, 0] = weights[j, 1] = 2**63
    rewrite(folder, weights=weights)
    assert any(f"records {i} and {j}" in line for line in verify(folder).complaints)
    assert checker.check(folder, str) == 1


def test_stored_pairs_are_read_and_required(tmp_path):
    folder = solve_words(tmp_path / "in")
    with np.load(folder / "mechanism.npz") as arrays:
        pairs, distances = arrays["pairs"], arrays["distances"]
        assert "implied" not in arrays
    assert verify(folder).complaints == ()
    rewrite(folder, pairs=pairs[:0], distances=distances[:0])
    edit(folder, lambda result: result["certificate"].update(checked=0, worst=0.0))
    assert any("neither" in line or "nor implied" in line for line in verify(folder).complaints)
    assert checker.check(folder, str) == 1


@pytest.mark.parametrize("stored_rows", [slice(None), slice(0, 1)])
def test_refuses_pairs_beside_their_rule(tmp_path, stored_rows):
    folder = solve_words(tmp_path / "in")
    with np.load(folder / "mechanism.npz") as arrays:
        pairs, distances = arrays["pairs"][stored_rows], arrays["distances"][stored_rows]
    rewrite(folder, pairs=pairs, distances=distances, implied=np.zeros(0, dtype=np.int64))
    with pytest.raises(InputError, match="no pairs"):
        verify(folder)
    assert checker.check(folder, str) == 2
    rewrite(folder, pairs=pairs[:0], distances=distances[:0])
    assert verify(folder).complaints == ()  # what is claimed holds over all pairs
    with pytest.raises(InputError, match="with its problem"):
        MatrixRelease.load(folder / "mechanism.npz").pairs  # noqa: B018
    rewrite(folder, implied=np.ones(1, dtype=np.int64))
    with pytest.raises(InputError, match="implied"):
        verify(folder)
    assert checker.check(folder, str) == 2
