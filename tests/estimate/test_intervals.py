"""Intervals: programs against an independent solver, estimators against the Cramer-Rao bound, coverage."""

import numpy as np
import pytest
from helpers.grids import first_alone
from scipy.optimize import brentq, linprog
from scipy.sparse import csr_array
from scipy.stats import chi2, norm

from privopt.estimate.finite_sample_intervals import finite_sample
from privopt.estimate.linear_intervals import linear_intervals
from privopt.estimate.shares import EstimateOptions, ReportCounts, estimate, estimate_of_counts
from privopt.interfaces import Channel, NoisyCounts
from privopt.numbers.binomial import clopper_pearson


def ring(n, epsilon):
    d = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    z = np.exp(-epsilon * np.minimum(d, n - d))
    return z / z.sum(axis=1, keepdims=True)


def channel_of(z):
    names = [f"r{i}" for i in range(len(z))]
    return Channel(inputs=names, outputs=[f"o{k}" for k in range(z.shape[1])], probabilities=z)


def test_programs_are_those_of_an_independent_solver():
    rng = np.random.default_rng(0)
    z = ring(12, 0.7)
    counts = rng.multinomial(3_000, rng.dirichlet(np.full(12, 0.5)) @ z)
    low, high = clopper_pearson(counts.astype(float), 3_000, 0.05 / 24)
    groups = np.vstack([np.eye(12), np.repeat(np.eye(4), 3, axis=1)])
    least, most = finite_sample(z, low, high, csr_array(groups))
    rows = np.vstack([z.T, -z.T])
    for row, h in enumerate(groups):
        for sign, value in ((1, least[row]), (-1, most[row])):
            given = {"A_ub": rows, "b_ub": np.r_[high, -low], "A_eq": np.ones((1, 12)), "b_eq": [1.0]}
            assert sign * linprog(sign * h, **given).fun == pytest.approx(value, abs=1e-6)


def test_intervals_of_groups_are_sharp():
    rng = np.random.default_rng(4)
    z = ring(200, 0.3)
    truth = np.repeat(rng.dirichlet(np.ones(4)), 50) / 50
    observed = [ReportCounts(channel=channel_of(z), counts=rng.multinomial(50_000, truth @ z))]
    groups = {str(g): np.arange(50 * g, 50 * g + 50) for g in range(4)}
    found = estimate(observed, EstimateOptions(), groups=groups)
    share = truth.reshape(4, 50).sum(axis=1)
    assert found.intervals_by == "linear programs and linear estimators"
    assert ((found.low <= share) & (share <= found.high)).all()
    assert (found.high - found.low).max() < 0.25


def test_probabilities_next_to_nothing_are_no_hindrance():
    d = np.abs(np.subtract.outer(np.arange(40.0), np.arange(40.0)))
    z = np.exp(-d) / np.exp(-d).sum(axis=1, keepdims=True)
    truth = np.full(40, 1 / 40)
    counts = np.random.default_rng(0).multinomial(5_000, truth @ z)
    found = estimate([ReportCounts(channel=channel_of(z), counts=counts)], EstimateOptions())
    assert found.notes == ()
    assert ((found.low <= truth) & (truth <= found.high)).all()


@pytest.mark.parametrize("groups", [None, {str(g): np.array([2 * g, 2 * g + 1]) for g in range(3)}])
def test_reports_that_no_crowd_sends_are_said_to_be_so(groups):
    z = np.kron(np.full((3, 3), 0.2) + 0.4 * np.eye(3), np.ones((2, 1)))
    found = estimate(
        [ReportCounts(channel=channel_of(z), counts=np.array([10_000, 0, 0]))], EstimateOptions(), groups=groups
    )
    assert "no shares at all" in found.notes[0]
    assert groups is not None or not found.low.any()


def coverage(repetitions, intervals, epsilon=1.0, n=2_000):
    """Return the share of repetitions in which all intervals (finite-sample), or single ones, contain the truth."""
    rng = np.random.default_rng(7)
    z = ring(8, epsilon)
    truth = np.array([0.3, 0.25, 0.15, 0.1, 0.08, 0.06, 0.04, 0.02])
    every, single = 0, np.zeros(8)
    for _ in range(repetitions):
        observed = ReportCounts(channel=channel_of(z), counts=rng.multinomial(n, truth @ z))
        found = estimate([observed], EstimateOptions(intervals=intervals))
        inside = (found.low <= truth) & (truth <= found.high)
        every += inside.all()
        single += inside
    return every / repetitions, single / repetitions


def test_finite_sample_intervals_hold_all_at_once():
    assert coverage(20, "finite-sample")[0] >= 0.95


def test_asymptotic_intervals_hold_one_by_one():
    single = coverage(10, "asymptotic")[1]
    assert 0.9 <= single.mean() <= 0.99


@pytest.mark.parametrize("trials", [9, pytest.param(30, marks=pytest.mark.slow)])
def test_asymptotic_ends_of_few_reports_are_found_and_never_inside(trials):
    """There best shares jump as the tilt grows: no fit comes near the fall that is asked for."""
    rng = np.random.default_rng(3)
    drop = chi2.ppf(0.95, 1) / 2
    for trial in range(trials):
        count, outputs = rng.integers(2, 7, 2)
        z = rng.dirichlet(np.full(outputs, 0.5), count)
        if trial % 3 == 0:
            z[0] = z[-1]
        counts = rng.multinomial(rng.choice([1, 3, 10]), rng.dirichlet(np.full(count, 0.5)) @ z)
        found = estimate([ReportCounts(channel=channel_of(z), counts=counts)], EstimateOptions(intervals="asymptotic"))
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
        asked = EstimateOptions(intervals="asymptotic", gap=gap)
        found = estimate([ReportCounts(channel=channel_of(np.eye(2)), counts=counts)], asked)
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
    one = ReportCounts(channel=channel_of(first), counts=rng.multinomial(5_000, truth @ first))
    two = ReportCounts(channel=channel_of(second), counts=rng.multinomial(5_000, truth @ second))
    both = estimate([one, two], EstimateOptions(intervals="asymptotic"))
    alone = estimate([one], EstimateOptions(intervals="asymptotic"))
    assert both.n == 10_000
    assert (both.high - both.low).mean() < 0.7 * (alone.high - alone.low).mean()


def test_noisy_counts_have_intervals_that_hold_all_at_once():
    rng = np.random.default_rng(5)
    ids = [str(i) for i in range(30)]
    channel = NoisyCounts(inputs=ids, reach=lambda share: -np.log(share) / 0.5)
    counts = rng.integers(0, 400, 30)
    held = 0
    for _ in range(200):
        found = estimate_of_counts(channel, counts + rng.laplace(scale=2.0, size=30), EstimateOptions())
        shares = counts / counts.sum()
        held += bool(((found.low <= shares) & (shares <= found.high)).all())
    assert held >= 190
    assert found.shares.sum() == pytest.approx(1)
    assert (found.high - found.low).max() < 0.02


# --- by linear estimators -------------------------------------------------------------------------------


def districts(records, groups, epsilon, seed):
    """Return a channel over places of a square, groups of cells, and shares that lie mostly in a few of them."""
    rng = np.random.default_rng(seed)
    side = round(groups**0.5)
    places = rng.uniform(0, 1, (records, 2)) * side
    apart = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    z = np.exp(-epsilon * apart)
    z /= z.sum(axis=1, keepdims=True)
    cell = np.minimum(places.astype(int), side - 1) @ [side, 1]
    members = (cell[None] == np.arange(groups)[:, None]).astype(float)
    truth = rng.dirichlet(np.full(records, 0.3)) * np.exp(-((places - side / 3) ** 2).sum(axis=1) / side)
    return z, members, truth / truth.sum()


def missed(z, members, truth, n, repetitions, *, finite, seed):
    """In how many repetitions an interval misses its share."""
    rng = np.random.default_rng(seed)
    share, count = members @ truth, 0
    for counts in rng.multinomial(n, truth @ z, size=repetitions):
        bounds = linear_intervals([z], [counts], csr_array(members), 0.95, finite=finite)
        count += bounds is None or not ((bounds[0] <= share) & (share <= bounds[1])).all()
    return count


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize(
    ("records", "groups", "n", "repetitions"),
    [
        (60, 9, 3_000, 100),
        pytest.param(60, 9, 3_000, 2_000, marks=pytest.mark.slow),
        pytest.param(400, 64, 50_000, 200, marks=pytest.mark.slow),
    ],
)
def test_intervals_by_linear_estimators_hold_all_at_once(records, groups, n, repetitions, finite):
    z, members, truth = districts(records, groups, 2.0, 1)
    bound = 0.05 * repetitions + 3 * (0.05 * 0.95 * repetitions) ** 0.5
    assert missed(z, members, truth, n, repetitions, finite=finite, seed=2) <= bound


@first_alone("record", [17, 0])
def test_they_hold_for_a_handful_of_reports_of_one_record(record):
    """A normal quantile fails there: all reports may be alike."""
    z, members, _ = districts(40, 4, 3.0, 5)
    assert missed(z, members, np.eye(40)[record], 5, 100, finite=True, seed=record) <= 11


def test_their_widths_are_near_the_cramer_rao_bound():
    z, members, truth = districts(300, 16, 6.0, 3)
    n, outputs = 200_000, truth @ z
    counts = np.random.default_rng(4).multinomial(n, outputs)
    scaled = z / np.sqrt(outputs)
    share = members @ truth
    least = np.einsum("gi,ig->g", members, np.linalg.solve(scaled @ scaled.T, members.T)) - share**2
    quantile = norm.isf(0.05 / (2 * len(members)))
    bound = 2 * quantile * np.sqrt(least / n)
    for finite, times in ((True, 1.5), (False, 1.1)):
        low, high = linear_intervals([z], [counts], csr_array(members), 0.95, finite=finite)
        assert np.median(((high - low) / bound)[share > 0.01]) <= times


def test_two_releases_tell_more_than_one_and_their_intervals_hold():
    z, members, truth = districts(60, 9, 2.0, 7)
    other = districts(60, 9, 4.0, 7)[0]
    rng = np.random.default_rng(8)
    share, wrong = members @ truth, 0
    for _ in range(100):
        counts = [rng.multinomial(2_000, truth @ z), rng.multinomial(2_000, truth @ other)]
        low, high = linear_intervals([z, other], counts, csr_array(members), 0.95, finite=True)
        wrong += not ((low <= share) & (share <= high)).all()
    assert wrong <= 12


def test_fewer_outputs_than_records_and_outputs_that_never_come():
    z, members, truth = districts(50, 4, 2.0, 9)
    few = np.hstack([z[:, :20] + z[:, 20:40], z[:, 40:] + 0.0, np.zeros((50, 3))])
    few /= few.sum(axis=1, keepdims=True)
    counts = np.random.default_rng(1).multinomial(5_000, truth @ few)
    low, high = linear_intervals([few], [counts], csr_array(members), 0.95, finite=True)
    share = members @ truth
    assert ((low <= share) & (share <= high)).all()
    assert (high - low < 1).any()


def test_a_large_channel_has_groups_with_sharp_intervals():
    z, members, truth = districts(600, 64, 3.0, 6)
    counts = np.random.default_rng(5).multinomial(200_000, truth @ z)
    groups = {str(g): np.flatnonzero(row) for g, row in enumerate(members)}
    found = estimate(
        [ReportCounts(channel=channel_of(z), counts=counts)], EstimateOptions(resolution=0.0), groups=groups
    )
    share = members @ truth
    assert found.intervals_by == "linear estimators"
    assert ((found.low <= share) & (share <= found.high)).all()
    assert np.median((found.high - found.low)[share > 0.01]) < 0.2
