"""Margins: quantiles that are never too small, against direct sums, the published figures and draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from privopt_fl_linear import quantiles
from privopt_fl_linear.margins import MarginRule, _excess_quantile, paper_margin
from privopt_fl_linear.quantiles import chernoff_quantile, upper_quantile

SIZES = np.array([1, 10, 100, 1000])


def convolve_tail(epsilon, k, t):
    """P(S > t) by repeated convolution: no formula shared with the library."""
    reach = int(60 / epsilon) + 1
    x = np.arange(-reach, reach + 1)
    density = np.exp(-epsilon * np.abs(x)) * math.tanh(epsilon / 2)
    total = np.array([1.0])
    for _ in range(k):
        total = np.convolve(total, density)
    middle = len(total) // 2
    return float(total[middle + t + 1 :].sum())


@given(st.floats(0.2, 4), st.integers(1, 6), st.floats(1e-7, 0.45))
def test_discrete_quantile_is_the_smallest(epsilon, k, beta):
    t = int(upper_quantile(k, beta, epsilon))
    assert convolve_tail(epsilon, k, t) <= beta * (1 + 1e-9)
    assert t == 0 or convolve_tail(epsilon, k, t - 1) > beta * (1 - 1e-4)


def binomial_terms(epsilon, k):
    p, q = math.exp(-epsilon), -math.expm1(-epsilon)
    return int(k * p / q + 12.0 * math.sqrt(k * p) / q + 60.0 / epsilon) + 1


def binomial_tail(epsilon, k, t):
    """P(A - B > t), A and B negative binomial: a sum of positive terms."""
    p, q = math.exp(-epsilon), -math.expm1(-epsilon)
    last = binomial_terms(epsilon, k)
    b = np.arange(last + 1.0)
    log_pmf = special.gammaln(b + k) - special.gammaln(b + 1.0) - special.gammaln(k) + k * math.log(q) - b * epsilon
    return math.fsum(np.exp(log_pmf) * special.betainc(t + b + 1.0, float(k), p))


def race_tail(k, t):
    """P(S > t) for unit scale: m of the k arrivals of one Poisson process fall before t, the others lose a race."""
    m = np.arange(float(min(k, int(t + 40 * math.sqrt(t + 1)) + 80)))
    return math.fsum(np.exp(m * math.log(t) - t - special.gammaln(m + 1.0)) * special.betainc(float(k), k - m, 0.5))


@given(st.floats(0.01, 5), st.integers(1, 3000), st.floats(-8, -0.5))
def test_discrete_quantile_matches_negative_binomials(epsilon, k, exponent):
    beta = 10.0**exponent
    if beta >= 0.5 or binomial_terms(epsilon, k) > 40_000:
        return
    t = int(upper_quantile(k, beta, epsilon))
    assert binomial_tail(epsilon, k, t) <= beta * (1 + 1e-7)
    assert t == 0 or binomial_tail(epsilon, k, t - 1) > beta * (1 - 1e-2)
    assert t <= chernoff_quantile(k, beta, epsilon)


@pytest.mark.parametrize("k", [2, 10, 300])
@pytest.mark.parametrize("beta", [1e-10, 1e-15, 1e-40])
def test_margins_grow_as_failures_get_rarer(k, beta):
    t = int(upper_quantile(k, beta, 0.3))
    assert binomial_tail(0.3, k, t) <= beta
    assert binomial_tail(0.3, k, int(t / 1.17)) > beta
    continuous = upper_quantile(k, beta, 1.0, "continuous")
    assert race_tail(k, continuous) <= beta < race_tail(k, continuous / 1.17)


def test_published_figures():
    """Check n = 1000, epsilon = alpha = .1."""
    rule = MarginRule(n=1000, epsilon=0.1)
    exact = evolve(rule, noise="continuous").margins(SIZES, 0.1)
    assert exact.round(1).tolist() == [85.2, 148.1, 330.0, 573.0]
    assert paper_margin(SIZES, 1000, 0.1, 0.1).round(1).tolist() == [198.1, 626.4, 1980.7, 6263.5]
    assert rule.margins(SIZES, 0.1).tolist() == [85.0, 148.0, 330.0, 573.0]
    paper = evolve(rule, kind="paper").margins(SIZES, 0.1)
    assert paper.tolist() == paper_margin(SIZES, 1000, 0.1, 0.1).tolist()


@given(st.integers(1, 200) | st.integers(201, 5000), st.floats(1e-12, 0.4))
@settings(max_examples=40)
def test_continuous_quantile(k, beta):
    t = upper_quantile(k, beta, 1.0, "continuous")
    if k == 1:
        assert t == pytest.approx(math.log(0.5 / beta), rel=1e-8)
    if k == 1 or beta >= 1e-9:
        assert race_tail(k, t) == pytest.approx(beta, rel=2e-5, abs=2e-11)
    assert race_tail(k, t) <= beta * (1 + 1e-7)
    assert t <= chernoff_quantile(k, beta, 1.0, "continuous")
    assert upper_quantile(k, beta, 0.01, "continuous") == pytest.approx(100 * t, rel=1e-9)


def test_continuous_tail_matches_integral():
    """Check k = 2: density (1 + |x|) exp(-|x|) / 4."""
    for t in (0.5, 2.0, 7.0):
        exact = (2 + t) * math.exp(-t) / 4
        assert quantiles.tails(2, [t], 1.0, "continuous")[0] == pytest.approx(exact, abs=1e-9)
        assert race_tail(2, t) == pytest.approx(exact, rel=1e-8)


def test_extreme_budgets():
    for epsilon in (1e-12, 1e-6, 30.0, 1000.0):
        for k in (1, 2, 1000):
            discrete, continuous = (upper_quantile(k, 0.01, epsilon, noise) for noise in ("discrete", "continuous"))
            assert 0 <= discrete <= continuous * (1 + 1e-9) + k
            if epsilon < 1e-3:
                assert discrete >= continuous * (1 - 1e-9) - k


def test_quantile_grows_with_k_and_shrinks_with_beta():
    for noise in ("discrete", "continuous"):
        by_size = [upper_quantile(k, 1e-3, 0.1, noise) for k in (1, 2, 3, 5, 10, 100, 1000, 20_000)]
        assert by_size == sorted(by_size)
        by_beta = [upper_quantile(7, 10.0**-e, 0.1, noise) for e in range(1, 14)]
        assert by_beta == sorted(by_beta)
        assert upper_quantile(5, 0.7, 0.1, noise) == 0.0


@given(st.integers(1, 400), st.floats(0.02, 3), st.sampled_from(["discrete", "continuous"]))
@settings(max_examples=40)
def test_tails_agree_with_quantiles(k, epsilon, noise):
    for beta in (1e-5, 1e-2, 0.3):
        t = upper_quantile(k, beta, epsilon, noise)
        step = 1.0 if noise == "discrete" else 1e-6 * t
        tail, previous_tail = quantiles.tails(k, np.array([t, t - step]), epsilon, noise)
        assert tail <= beta + 1e-9
        assert t == 0 or previous_tail >= beta * (1 - 1e-5) - 1e-9
    middle = quantiles.tails(k, np.array([-7.5, 7.5]), epsilon, noise)
    assert middle.sum() == pytest.approx(1.0, abs=1e-8)
    assert quantiles.tails(0, [-1.0, 0.0], epsilon, noise).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("noise", ["discrete", "continuous"])
def test_tails_of_many_points_match_single_points(noise, monkeypatch):
    points = np.linspace(-90.0, 90.0, 37)
    single_tails = [quantiles.tails(7, [point], 0.3, noise)[0] for point in points]
    for max_sines in (1, 100, 1 << 16):  # sines at once: a point at a time, some, all
        monkeypatch.setattr(quantiles, "MAX_SINES", max_sines)
        assert quantiles.tails(7, points, 0.3, noise) == pytest.approx(single_tails, rel=0, abs=1e-14)


def test_paper_margin_covers_the_exact_one():
    for n in (1, 2, 5, 100, 10_000):
        for alpha in (0.01, 0.1, 0.5):
            sizes = np.unique(np.geomspace(1, n, 6).astype(int))
            for noise in ("discrete", "continuous"):
                exact = MarginRule(n=n, epsilon=0.3, noise=noise).margins(sizes, alpha)
                assert (paper_margin(sizes, n, 0.3, alpha) >= exact).all()


@pytest.mark.parametrize("noise", ["discrete", "continuous"])
@pytest.mark.parametrize(("n", "max_sites"), [*((n, n) for n in (1, 2, 5, 6, 7, 8)), (40, 40), (40, 8)])
def test_margins_of_any_set_fail_as_promised(n, max_sites, noise, rng):
    """The worst set after the noise was seen: the locations that lose most, most first."""
    epsilon, alpha, draws = 0.5, 0.05, 20_000
    rule = MarginRule(n=n, epsilon=epsilon, noise=noise)
    line = rule.any_set(max_sites, alpha)
    if noise == "discrete":
        q = -math.expm1(-epsilon)
        lost = (rng.geometric(q, (draws, n)) - rng.geometric(q, (draws, n))).astype(float)
    else:
        lost = rng.laplace(0, 1 / epsilon, (draws, n))
    worst = -np.cumsum(np.sort(-lost, axis=1), axis=1)
    rate = (worst > line.margins(np.arange(1, n + 1)) + 1e-9).any(axis=1).mean()
    assert line.start >= 0
    assert line.margins(np.array([1]))[0] > 0
    assert rate <= alpha + 4 * math.sqrt(alpha / draws)
    if n == 40:  # not far from what it takes, and between a set that was fixed and five of one location
        assert rate > 0.5 * alpha
        five, single_margin = rule.margins(np.array([5, 1]), alpha)
        assert five < line.margins(np.array([5]))[0] < 5 * single_margin


def test_refuses_margins_that_are_no_numbers(monkeypatch):
    monkeypatch.setattr("scipy.special.bdtrc", lambda *_: np.full(1, math.nan))
    with pytest.raises(ArithmeticError, match="1 draws pass 0"):
        _excess_quantile.__wrapped__(1, 0.0, 0.1, 0.5, "discrete")


@pytest.mark.parametrize("epsilon", [1e-7, 1e-3, 0.5, 3.0])
def test_tails_of_one_draw_are_geometric(epsilon):
    """At epsilon 1e-7 too, where the Fourier sum needed minutes."""
    points = np.array([-2e7, -40.0, -1.0, -0.5, 0.0, 0.2, 1.0, 5.7, 2e7])
    tails = quantiles.tails(1, points, epsilon, "discrete")
    q = math.exp(-epsilon)
    for t, tail in zip(points.tolist(), tails.tolist(), strict=True):
        n = math.floor(t) + 1  # P(X >= n)
        one_sided = math.exp(-epsilon * abs(n if n > 0 else 1 - n)) / (1 + q)
        assert tail == pytest.approx(one_sided if n > 0 else 1 - one_sided, abs=1e-12)
