from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privopt_photo_censor.album import Album
from privopt_photo_censor.rank import exact_sign, protected_k, rank
from privopt_photo_censor.solver.single import reach

doubles = st.floats(-1e6, 1e6, allow_nan=False, width=64) | st.sampled_from([0.1, 0.2, 0.3, -0.1, 1.0, 1e-300, 5e-324])


@given(st.lists(st.tuples(doubles, doubles), min_size=1, max_size=12), st.sampled_from([0.0, 0.1, 1e-9, 0.3]))
def test_sign_matches_fractions(pairs, theta):
    score, true = (list(values) for values in zip(*pairs, strict=True))
    total = sum(Fraction(a) - Fraction(b) - Fraction(theta) for a, b in pairs)
    expected = (total > 0) - (total < 0)
    assert exact_sign(score, true, theta) == expected


def test_sums_may_claim_a_false_tie():
    score, true = [1.0] + [0.0] * 9, [0.1] * 10
    assert sum(np.array(score)) >= np.float64(np.float32(1.0))
    assert np.sum(score) - np.sum(true) >= 0  # what rounding says
    assert exact_sign(score, true, 0.0) < 0  # ten times the double .1 is more than 1


def test_huge_scores_do_not_overflow():
    assert exact_sign([1.7e308, 1.7e308, 1.0], [1.7e308, 1.7e308, 0.5], 0.0) == 1


def test_ranks_by_hand():
    scores = np.log([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    album = Album(scores=scores, true=0)
    assert rank(album) == 2  # .1 against .09 and .1: a tie, which protects
    assert rank(album, np.array([True, False])) == 1
    assert rank(album, np.array([False, True])) == 3
    assert protected_k(album, np.array([False, False])) == 2


def test_impossible_places():
    scores = np.array([[-np.inf, -1.0, -np.inf], [-1.0, -2.0, -1.0]])
    assert protected_k(Album(scores=scores, true=0)) == 2  # the true place is impossible: all tie or beat it
    assert protected_k(Album(scores=scores, true=1)) == 0
    assert protected_k(Album(scores=scores, true=1), np.array([False, True])) == 2


def test_reach_is_exact(draw_album, truth):
    rng = np.random.default_rng(3)
    for _ in range(80):
        album = draw_album(rng, 7)
        if album.rules_out_true:
            continue
        for index, max_photos in enumerate(reach(album.alternates)):
            two_places = Album(
                scores=album.scores[:, [album.true, album.alternates.location[index]]],
                true=0, keep=album.keep, keep_at_least=0, margin=album.margin,
            )  # fmt: skip
            exact = truth(two_places)
            expected = max(
                (m.bit_count() for m in range(1, 1 << album.photos)
                 if exact.above[m] and all(m >> i & 1 for i in np.flatnonzero(album.keep))),
                default=-1 if album.keep.any() else 0,
            )  # fmt: skip
            assert max_photos == expected
