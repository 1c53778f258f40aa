"""Intervals: the linear programs against an independent solver, weak duality around them, and coverage."""

import numpy as np
import pytest
from scipy.optimize import brentq, linprog
from scipy.sparse import csr_array
from scipy.stats import chi2

from privopt.estimate import finite_sample_intervals as finite
from privopt.estimate.finite_sample_intervals import finite_sample
from privopt.estimate.shares import Asked, Observed, estimate, estimate_of_counts
from privopt.interfaces import Channel, NoisyCounts
from privopt.numbers.binomial import clopper_pearson


def ring(n, epsilon):
    d = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    z = np.exp(-epsilon * np.minimum(d, n - d))
    return z / z.sum(axis=1, keepdims=True)


def channel_of(z):
    names = [f"r{i}" for i in range(len(z))]
    return Channel(inputs=names, outputs=[f"o{k}" for k in range(z.shape[1])], probabilities=z)


def test_programs_are_those_of_an_independent_solver_and_duality_is_around_them():
    rng = np.random.default_rng(0)
    z = ring(12, 0.7)
    counts = rng.multinomial(3_000, rng.dirichlet(np.full(12, 0.5)) @ z)
    low, high = clopper_pearson(counts.astype(float), 3_000, 0.05 / 24)
    groups = np.vstack([np.eye(12), np.repeat(np.eye(4), 3, axis=1)])
    least, most = finite_sample(z, np.arange(0), low, high, csr_array(groups))
    wide = finite._by_duality(z, low, high, csr_array(groups), None)
    rows = np.vstack([z.T, -z.T])
    for row, h in enumerate(groups):
        for sign, value in ((1, least[row]), (-1, most[row])):
            given = {"A_ub": rows, "b_ub": np.r_[high, -low], "A_eq": np.ones((1, 12)), "b_eq": [1.0]}
            assert sign * linprog(sign * h, **given).fun == pytest.approx(value, abs=1e-6)
    assert (wide[0] <= least + 1e-9).all()
    assert (wide[1] >= most - 1e-9).all()
    assert (wide[1] < 1).all()


def test_sets_of_outputs_make_intervals_of_groups_sharp():
    rng = np.random.default_rng(4)
    z = ring(200, 0.3)
    sets = finite.nested_sets(z)
    assert sets.shape[1] >= 126
    for left, right in zip(sets.T[2::2], sets.T[3::2], strict=True):  # halves of a set that came before
        assert left @ right == 0
        assert (left + right == sets.T).all(axis=1).any()
    truth = np.repeat(rng.dirichlet(np.ones(4)), 50) / 50
    observed = [Observed(channel=channel_of(z), counts=rng.multinomial(50_000, truth @ z))]
    groups = {str(g): np.arange(50 * g, 50 * g + 50) for g in range(4)}
    found = estimate(observed, Asked(), groups=groups)
    share = truth.reshape(4, 50).sum(axis=1)
    assert ((found.low <= share) & (share <= found.high)).all()
    assert (found.high - found.low).max() < 0.25


def test_probabilities_next_to_nothing_are_no_hindrance():
    d = np.abs(np.subtract.outer(np.arange(40.0), np.arange(40.0)))
    z = np.exp(-d) / np.exp(-d).sum(axis=1, keepdims=True)
    truth = np.full(40, 1 / 40)
    counts = np.random.default_rng(0).multinomial(5_000, truth @ z)
    found = estimate([Observed(channel=channel_of(z), counts=counts)], Asked())
    assert found.notes == ()
    assert ((found.low <= truth) & (truth <= found.high)).all()


def test_reports_that_no_crowd_sends_are_said_to_be_so():
    z = np.full((3, 3), 0.2) + 0.4 * np.eye(3)
    found = estimate([Observed(channel=channel_of(z), counts=np.array([10_000, 0, 0]))], Asked())
    assert "no shares at all" in found.notes[0]
    assert found.low.tolist() == [0, 0, 0]


def coverage(repetitions, intervals, epsilon=1.0, n=2_000):
    """The part of repetitions in which all intervals (finite-sample), and in which single ones, hold the truth."""
    rng = np.random.default_rng(7)
    z = ring(8, epsilon)
    truth = np.array([0.3, 0.25, 0.15, 0.1, 0.08, 0.06, 0.04, 0.02])
    every, single = 0, np.zeros(8)
    for _ in range(repetitions):
        observed = Observed(channel=channel_of(z), counts=rng.multinomial(n, truth @ z))
        found = estimate([observed], Asked(intervals=intervals))
        inside = (found.low <= truth) & (truth <= found.high)
        every += inside.all()
        single += inside
    return every / repetitions, single / repetitions


def test_finite_sample_intervals_hold_all_at_once():
    assert coverage(60, "finite-sample")[0] >= 0.95


def test_asymptotic_intervals_hold_one_by_one():
    single = coverage(100, "asymptotic")[1]
    assert 0.9 <= single.mean() <= 0.99


def test_asymptotic_ends_of_few_reports_are_found_and_never_inside():
    """There best shares jump as the tilt grows: no fit comes near the fall that is asked for."""
    rng = np.random.default_rng(3)
    drop = chi2.ppf(0.95, 1) / 2
    for trial in range(60):
        count, outputs = rng.integers(2, 7, 2)
        z = rng.dirichlet(np.full(outputs, 0.5), count)
        if trial % 3 == 0:
            z[0] = z[-1]
        counts = rng.multinomial(rng.choice([1, 3, 10]), rng.dirichlet(np.full(count, 0.5)) @ z)
        found = estimate([Observed(channel=channel_of(z), counts=counts)], Asked(intervals="asymptotic"))
        some = np.vstack([rng.dirichlet(np.full(count, power), 3_000) for power in (0.2, 1.0)])
        seen = counts > 0
        fallen = counts[seen] @ (np.log(found.shares @ z[:, seen]) - np.log(some @ z[:, seen] + 1e-300)).T
        near = some[fallen <= drop]
        assert len(near)
        assert (found.low <= near.min(axis=0) + 1e-9).all()
        assert (near.max(axis=0) <= found.high + 1e-9).all()


@pytest.mark.parametrize(("hits", "trials"), [(0, 3), (3, 10), (600_000, 2_000_000), (3 * 10**9, 10**10)])
def test_asymptotic_ends_are_those_of_the_profile_whatever_gap_is_asked_for(hits, trials):
    counts = np.array([hits, trials - hits])

    def above(v):
        logs = [n * np.log(v_ / (n / trials)) for n, v_ in zip(counts, (v, 1 - v), strict=True) if n]
        return sum(logs) + chi2.ppf(0.95, 1) / 2

    share = hits / trials
    low = brentq(above, share * 1e-9, share, xtol=1e-15) if hits else 0.0
    high = brentq(above, share, 0.9999, xtol=1e-15)
    for gap in (1e-9, 1e-3):
        asked = Asked(intervals="asymptotic", gap=gap)
        found = estimate([Observed(channel=channel_of(np.eye(2)), counts=counts)], asked)
        assert found.low[0] == pytest.approx(low, abs=0.01 * (high - low))
        assert found.high[0] == pytest.approx(high, abs=0.01 * (high - low))
        assert found.low[0] <= low + 1e-4 * (high - low)
        assert found.high[0] >= high - 1e-4 * (high - low)


@pytest.mark.slow
def test_coverage_over_four_hundred_repetitions():
    """Show 2 of the step."""
    assert coverage(400, "finite-sample")[0] >= 0.95
    single = coverage(400, "asymptotic", n=20_000)[1]
    assert 0.93 <= single.mean() <= 0.97


def test_several_releases_say_more_than_one():
    rng = np.random.default_rng(2)
    truth = rng.dirichlet(np.ones(8))
    first, second = ring(8, 0.5), ring(8, 2.0)
    one = Observed(channel=channel_of(first), counts=rng.multinomial(5_000, truth @ first))
    two = Observed(channel=channel_of(second), counts=rng.multinomial(5_000, truth @ second))
    both = estimate([one, two], Asked(intervals="asymptotic"))
    alone = estimate([one], Asked(intervals="asymptotic"))
    assert both.n == 10_000
    assert (both.high - both.low).mean() < 0.7 * (alone.high - alone.low).mean()


def test_noisy_counts_have_intervals_that_hold_all_at_once():
    rng = np.random.default_rng(5)
    ids = [str(i) for i in range(30)]
    channel = NoisyCounts(inputs=ids, reach=lambda share: -np.log(share) / 0.5)
    counts = rng.integers(0, 400, 30)
    held = 0
    for _ in range(200):
        found = estimate_of_counts(channel, counts + rng.laplace(scale=2.0, size=30), Asked())
        shares = counts / counts.sum()
        held += bool(((found.low <= shares) & (shares <= found.high)).all())
    assert held >= 190
    assert found.shares.sum() == pytest.approx(1)
    assert (found.high - found.low).max() < 0.02
