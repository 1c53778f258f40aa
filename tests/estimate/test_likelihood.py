"""The maximum of the likelihood against independent methods, and what is proved of how near it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from privopt.estimate.likelihood import fit
from privopt.estimate.smooth_shares import make_bumps, resolved_fit


@st.composite
def cases(draw, most=25):
    n, k = draw(st.integers(1, most)), draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    z = rng.dirichlet(np.full(k, draw(st.sampled_from([0.05, 0.3, 1.0, 10.0]))), n)
    chances = rng.dirichlet(np.full(n, 0.3)) @ z
    counts = rng.multinomial(10 ** draw(st.integers(0, 6)), chances / chances.sum())
    seen = counts > 0
    return np.ascontiguousarray(z[:, seen]), counts[seen] / counts.sum()


def em(columns, parts, steps):
    """Return the iterative Bayesian update, written out here."""
    p = np.full(len(columns), 1 / len(columns))
    for _ in range(steps):
        p = p * (columns @ (parts / (p @ columns)))
    return p


@settings(max_examples=60)
@given(cases(), st.sampled_from([1e-5, 1e-6, 1e-8]))
def test_nothing_beats_the_fit_by_more_than_its_gap(case, gap):
    columns, parts = case
    found = fit(columns, parts, gap=gap)
    assert found.shares.sum() == pytest.approx(1)
    assert (found.shares >= 0).all()
    assert found.gap <= gap
    again = parts @ np.log(em(columns, parts, 300) @ columns)
    assert again <= found.log_likelihood + gap + 1e-12


@settings(max_examples=20)
@given(cases(most=6))
def test_it_is_the_maximum_of_a_convex_solver(case):
    columns, parts = case
    n = len(columns)
    found = fit(columns, parts, gap=1e-8)
    done = minimize(
        lambda p: -parts @ np.log(p @ columns),
        np.full(n, 1 / n),
        jac=lambda p: -columns @ (parts / (p @ columns)),
        bounds=[(1e-12, 1)] * n,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(n)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    shares = np.clip(done.x, 0, None) / np.clip(done.x, 0, None).sum()
    assert parts @ np.log(shares @ columns) <= found.log_likelihood + 1e-8
    assert found.log_likelihood == pytest.approx(-done.fun, abs=1e-6)


def test_well_posed_shares_are_those_of_em():
    rng = np.random.default_rng(3)
    z = 0.6 * np.eye(8) + 0.4 * rng.dirichlet(np.ones(8), 8)
    counts = rng.multinomial(50_000, rng.dirichlet(np.ones(8)) @ z)
    found = fit(z, counts / counts.sum(), gap=1e-9)
    assert found.shares == pytest.approx(em(z, counts / counts.sum(), 5_000), abs=1e-6)


def test_of_many_maxima_a_central_one_is_found():
    z = np.ones((5, 1))
    assert fit(z, np.ones(1)).shares == pytest.approx(np.full(5, 0.2), abs=1e-6)


def line(n):
    return np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / 20.0


def test_a_smooth_crowd_is_found_better_by_smooth_shares():
    d = line(400)
    z = np.exp(-2 * d)
    z /= z.sum(axis=1, keepdims=True)
    truth = sum(np.exp(-(((np.arange(400) / 20.0 - at) / 1.5) ** 2) / 2) for at in (4.0, 13.0))
    truth /= truth.sum()
    counts = np.random.default_rng(1).multinomial(20_000, truth @ z)
    seen = counts > 0
    given = {"columns": np.ascontiguousarray(z[:, seen]), "parts": counts[seen] / 20_000, "reports": 20_000}
    smooth = resolved_fit(**given, rows=lambda i: d[i], resolution=None, gap=1e-6)
    rough = resolved_fit(**given, rows=lambda i: d[i], resolution=0.0, gap=1e-6)
    off = [np.abs(found.shares - truth).sum() / 2 for found in (smooth, rough)]
    assert smooth.resolution > 0
    assert off[0] < 0.1 < off[1]
    assert rough.whole_gap <= 1e-6
    value = rough.log_likelihood - smooth.log_likelihood
    assert -1e-9 <= value <= smooth.whole_gap


def test_few_places_are_found_without_smoothing():
    d = line(400)
    z = np.exp(-12 * d)
    z /= z.sum(axis=1, keepdims=True)
    truth = np.zeros(400)
    truth[[40, 160, 300]] = 1 / 3
    counts = np.random.default_rng(1).multinomial(100_000, truth @ z)
    seen = counts > 0
    columns = np.ascontiguousarray(z[:, seen])
    found = resolved_fit(columns, counts[seen] / 1e5, 100_000, lambda i: d[i], resolution=None, gap=1e-6)
    assert found.resolution == 0
    assert np.abs(found.shares - truth).sum() / 2 < 0.05


def test_every_record_has_a_bump_within_the_resolution():
    d = line(100)
    made = make_bumps(lambda i: d[i], 100, 1.0)
    assert made.sum(axis=1) == pytest.approx(np.ones(len(made)))
    centres = made.argmax(axis=1)
    assert (d[centres].min(axis=0) <= 1.0).all()


def test_bumps_next_to_nothing_wide_are_single_records():
    """And no warning of an overflow."""
    d = line(20)
    assert (make_bumps(lambda i: d[i], 20, 1e-300).sum(axis=0) == 1).all()
