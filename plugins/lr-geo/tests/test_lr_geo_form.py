"""The exponential form across users: where its truncation must be centred (Theorem 4.4), and random maps."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.numbers.sampling import TOTAL
from privopt_lr_geo.messages import Package, Terms
from privopt_lr_geo.program import assemble
from privopt_lr_geo.rows import ColumnWeights, steady_exp

points = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=3, max_size=9, unique=True)


def distances(places):
    xy = np.array(places, dtype=float)
    return np.hypot(*(xy[:, None] - xy[None, :]).transpose(2, 0, 1))


def excess(rows, d, epsilon):
    """Greatest log z_ik - log z_jk - epsilon d_ij over rows (record, log z)."""
    worst = -np.inf
    for i, a in rows:
        for j, b in rows:
            worst = max(worst, float((a - b).max() - epsilon * d[i, j]))
    return worst


def published_exponents(d, user, f, epsilon, r_obf):
    """Equation (19) as section 4.1.2 reads: full form inside the circle around the user, constant outside it."""
    is_inside = d[user] <= r_obf
    return -epsilon * f * np.where(is_inside, d, r_obf)


def corrected_exponents(d, f, epsilon, r_obf):
    return -epsilon * f * np.minimum(d, r_obf)


def test_published_centring_violates_theorem_4_4():
    """Two users share a location; the outputs around one of them are not those around the other."""
    d = distances([(x, 0) for x in range(9)])
    epsilon, f, r_obf = 1.0, 0.5, 2.0
    exponents_of_2, exponents_of_4 = (
        published_exponents(d, 2, f, epsilon, r_obf),
        published_exponents(d, 4, f, epsilon, r_obf),
    )
    # the same place: the rows should be equal
    assert excess([(3, exponents_of_2[3]), (3, exponents_of_4[3])], d, epsilon) > 0.4
    corrected = corrected_exponents(d, f, epsilon, r_obf)
    assert excess([(i, corrected[i]) for i in range(9)], d, epsilon) <= 1e-12


@given(points, st.sampled_from([0.5, 1.0]), st.sampled_from([0.3, 1.0, 4.0]), st.integers(1, 6))
def test_corrected_centring_keeps_theorem_4_4(places, f, epsilon, r_obf):
    d = distances(places)
    corrected = corrected_exponents(d, f, epsilon, float(r_obf))
    assert excess([(i, corrected[i]) for i in range(len(places))], d, epsilon) <= 1e-9


@given(points, st.integers(1, 5), st.integers(0, 3))
def test_tied_program_entries_keep_theorem_4_4(places, r_obf, r_exp):
    """The coefficients that the server uses, for two users with overlapping sets."""
    d = distances(places)
    n = len(places)
    sets = (np.arange(0, (2 * n) // 3 + 1), np.arange(n // 3, n))
    packages = [
        Package(distances=d[np.ix_(s, s)], reach=d[s], costs=d[s] + 0.1, free=d[s] <= min(r_exp, r_obf)) for s in sets
    ]
    central = assemble(packages, Terms(epsilon=1.3, within=None, obfuscation_radius=float(r_obf), exponent=1.0))
    for s, piece in zip(sets, central.pieces, strict=True):
        for t, central_piece in zip(sets, central.pieces, strict=True):
            for a, i in enumerate(s):
                for b, j in enumerate(t):
                    is_shared = (piece.mass[a] > 0) & (central_piece.mass[b] > 0)
                    ratio = np.log(piece.mass[a, is_shared]) - np.log(central_piece.mass[b, is_shared])
                    assert (ratio <= 1.3 * d[i, j] + 1e-9).all()


@given(st.lists(st.floats(-700, 0), min_size=1, max_size=50))
def test_exponential_is_numerically_steady(values):
    x = np.array(values)
    assert np.allclose(steady_exp(x), np.exp(x), rtol=2e-15, atol=0)


@settings(max_examples=30)
@given(points, st.integers(0, 2**32 - 1))
def test_rows_sum_to_the_total(places, seed):
    chance = np.random.default_rng(seed)
    d = distances(places)
    n = len(places)
    public = ColumnWeights(
        weights=chance.random(n) + 1e-3, serves=chance.integers(0, n, n), outputs=n, rate=0.9, cap=20.0
    )
    rows = public.rows(d)
    assert [sum(row) for row in rows.tolist()] == [TOTAL] * n
    assert np.array_equal(public.rows(d[1:2])[0], rows[1])  # a row by itself is the same row
