"""The pairs of mechanism.npz: each once, and those that follow from the problem are not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privopt.errors import InputError
from privopt_metric_dp.matrix.release import MatrixRelease

PAIR = st.tuples(st.integers(0, 5), st.integers(0, 5))


def written(folder: Path, pairs: np.ndarray) -> Path:
    """Write a matrix of six records over these pairs."""
    ids, weights = np.array(list("abcdef")), np.full((6, 2), 2**62, dtype=np.uint64)
    path = folder / "mechanism.npz"
    np.savez(path, weights=weights, records=ids, outputs=ids[:2], pairs=pairs, distances=np.ones(len(pairs)))
    return path


@given(st.lists(PAIR, max_size=9))
def test_a_pair_that_is_there_twice_is_refused_by_its_name(tmp_path_factory, pairs):
    seen = [tuple(sorted(pair)) for pair in pairs]
    twice = sorted(pair for pair in set(seen) if seen.count(pair) > 1)
    path = written(tmp_path_factory.mktemp("pairs"), np.array(pairs, dtype=np.int64).reshape(-1, 2))
    if not twice:
        assert MatrixRelease.load(path).pairs.tolist() == [list(pair) for pair in pairs]
        return
    with pytest.raises(InputError, match="each pair once") as refused:
        MatrixRelease.load(path)
    assert f"{list(twice[0])} more than once" in str(refused.value)
