"""Intervals: programs against an independent solver, estimators against the Cramer-Rao bound, coverage."""

import numpy as np
import pytest
from helpers.grids import first_alone
from helpers.mentions import assert_mentions
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


def test_programs_match_an_independent_solver():
    rng = np.random.default_rng(0)
    z = ring(12, 0.7)
    counts = rng.multinomial(3_000, rng.dirichlet(np.full(12, 0.5)) @ z)
    low, high = clopper_pearson(counts.astype(float), 3_000, 0.05 / 24)
    groups = np.vstack([np.eye(12), np.repeat(np.eye(4), 3, axis=1)])
    lower_ends, upper_ends = finite_sample(z, low, high, csr_array(groups))
    rows = np.vstack([z.T, -z.T])
    for row, h in enumerate(groups):
        for sign, value in ((1, lower_ends[row]), (-1, upper_ends[row])):
            constraints = {"A_ub": rows, "b_ub": np.r_[high, -low], "A_eq": np.ones((1, 12)), "b_eq": [1.0]}
            assert sign * linprog(sign * h, **constraints).fun == pytest.approx(value, abs=1e-6)


def test_intervals_of_groups_are_sharp():
    rng = np.random.default_rng(4)
    z = ring(200, 0.3)
    truth = np.repeat(rng.dirichlet(np.ones(4)), 50) / 50
    observed = [ReportCounts(channel=channel_of(z), counts=rng.multinomial(50_000, truth @ z))]
    groups = {str(g): np.arange(50 * g, 50 * g + 50) for g in range(4)}
    estimated = estimate(observed, EstimateOptions(), groups=groups)
    group_shares = truth.reshape(4, 50).sum(axis=1)
    assert_mentions(estimated.intervals_by, "linear programs", "linear estimators")
    assert ((estimated.low <= group_shares) & (group_shares <= estimated.high)).all()
    assert (estimated.high - estimated.low).max() < 0.25


def test_tiny_probabilities_do_not_matter():
    d = np.abs(np.subtract.outer(np.arange(40.0), np.arange(40.0)))
    z = np.exp(-d) / np.exp(-d).sum(axis=1, keepdims=True)
    truth = np.full(40, 1 / 40)
    counts = np.random.default_rng(0).multinomial(5_000, truth @ z)
    estimated = estimate([ReportCounts(channel=channel_of(z), counts=counts)], EstimateOptions())
    assert estimated.notes == ()
    assert ((estimated.low <= truth) & (truth <= estimated.high)).all()


@pytest.mark.parametrize("groups", [None, {str(g): np.array([2 * g, 2 * g + 1]) for g in range(3)}])
def test_says_if_no_crowd_sends_such_reports(groups):
    z = np.kron(np.full((3, 3), 0.2) + 0.4 * np.eye(3), np.ones((2, 1)))
    estimated = estimate(
        [ReportCounts(channel=channel_of(z), counts=np.array([10_000, 0, 0]))], EstimateOptions(), groups=groups
    )
    assert "no shares" in estimated.notes[0]
    assert groups is not None or not estimated.low.any()


def coverage(repetitions, intervals, epsilon=1.0, n=2_000):
    """Return the share of repetitions in which all intervals (finite-sample), or single ones, contain the truth."""
    rng = np.random.default_rng(7)
    z = ring(8, epsilon)
    truth = np.array([0.3, 0.25, 0.15, 0.1, 0.08, 0.06, 0.04, 0.02])
    all_count, single = 0, np.zeros(8)
    for _ in range(repetitions):
        observed = ReportCounts(channel=channel_of(z), counts=rng.multinomial(n, truth @ z))
        estimated = estimate([observed], EstimateOptions(intervals=intervals))
        is_covered = (estimated.low <= truth) & (truth <= estimated.high)
        all_count += is_covered.all()
        single += is_covered
    return all_count / repetitions, single / repetitions


def test_finite_sample_intervals_hold_together():
    assert coverage(20, "finite-sample")[0] >= 0.95


def test_asymptotic_intervals_hold_singly():
    single = coverage(10, "asymptotic")[1]
    assert 0.9 <= single.mean() <= 0.99


@pytest.mark.parametrize("trials", [9, pytest.param(30, marks=pytest.mark.slow)])
def test_asymptotic_ends_are_never_inside(trials):
    """There best shares jump as the tilt grows: no fit comes near the fall that is asked for."""
    rng = np.random.default_rng(3)
    drop = chi2.ppf(0.95, 1) / 2
    for trial in range(trials):
        count, outputs = rng.integers(2, 7, 2)
        z = rng.dirichlet(np.full(outputs, 0.5), count)
        if trial % 3 == 0:
            z[0] = z[-1]
        counts = rng.multinomial(rng.choice([1, 3, 10]), rng.dirichlet(np.full(count, 0.5)) @ z)
        estimated = estimate(
            [ReportCounts(channel=channel_of(z), counts=counts)], EstimateOptions(intervals="asymptotic")
        )
        random_shares = np.vstack([rng.dirichlet(np.full(count, power), 3_000) for power in (0.2, 1.0)])
        is_observed = counts > 0
        fallen = (
            counts[is_observed]
            @ (np.log(estimated.shares @ z[:, is_observed]) - np.log(random_shares @ z[:, is_observed] + 1e-300)).T
        )
        near_shares = random_shares[fallen <= drop]
        assert len(near_shares)
        assert (estimated.low <= near_shares.min(axis=0) + 1e-9).all()
        assert (near_shares.max(axis=0) <= estimated.high + 1e-9).all()


@pytest.mark.parametrize(("hits", "trials"), [(0, 3), (3, 10), (600_000, 2_000_000), (3 * 10**9, 10**10)])
def test_asymptotic_ends_match_the_profile(hits, trials):
    counts = np.array([hits, trials - hits])

    def profile_gap(v):
        logs = [n * np.log(v_ / (n / trials)) for n, v_ in zip(counts, (v, 1 - v), strict=True) if n]
        return sum(logs) + chi2.ppf(0.95, 1) / 2

    hit_share = hits / trials
    low = brentq(profile_gap, hit_share * 1e-9, hit_share, xtol=1e-15) if hits else 0.0
    high = brentq(profile_gap, hit_share, 0.9999, xtol=1e-15)
    for gap in (1e-9, 1e-3):
        options = EstimateOptions(intervals="asymptotic", gap=gap)
        estimated = estimate([ReportCounts(channel=channel_of(np.eye(2)), counts=counts)], options)
        assert estimated.low[0] == pytest.approx(low, abs=0.01 * (high - low))
        assert estimated.high[0] == pytest.approx(high, abs=0.01 * (high - low))
        assert estimated.low[0] <= low + 1e-4 * (high - low)
        assert estimated.high[0] >= high - 1e-4 * (high - low)


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
    first_counts = ReportCounts(channel=channel_of(first), counts=rng.multinomial(5_000, truth @ first))
    second_counts = ReportCounts(channel=channel_of(second), counts=rng.multinomial(5_000, truth @ second))
    joint_estimate = estimate([first_counts, second_counts], EstimateOptions(intervals="asymptotic"))
    single_estimate = estimate([first_counts], EstimateOptions(intervals="asymptotic"))
    assert joint_estimate.n == 10_000
    assert (joint_estimate.high - joint_estimate.low).mean() < 0.7 * (single_estimate.high - single_estimate.low).mean()


def test_intervals_of_noisy_counts_hold_together():
    rng = np.random.default_rng(5)
    ids = [str(i) for i in range(30)]
    channel = NoisyCounts(inputs=ids, reach=lambda value: -np.log(value) / 0.5)
    counts = rng.integers(0, 400, 30)
    held_count = 0
    for _ in range(200):
        estimated = estimate_of_counts(channel, counts + rng.laplace(scale=2.0, size=30), EstimateOptions())
        shares = counts / counts.sum()
        held_count += bool(((estimated.low <= shares) & (shares <= estimated.high)).all())
    assert held_count >= 190
    assert estimated.shares.sum() == pytest.approx(1)
    assert (estimated.high - estimated.low).max() < 0.02


# --- by linear estimators -------------------------------------------------------------------------------


def districts(records, groups, epsilon, seed):
    """Return a channel over places of a square, groups of cells, and shares that lie mostly in a few of them."""
    rng = np.random.default_rng(seed)
    grid_side = round(groups**0.5)
    places = rng.uniform(0, 1, (records, 2)) * grid_side
    distances = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    z = np.exp(-epsilon * distances)
    z /= z.sum(axis=1, keepdims=True)
    cell = np.minimum(places.astype(int), grid_side - 1) @ [grid_side, 1]
    members = (cell[None] == np.arange(groups)[:, None]).astype(float)
    truth = rng.dirichlet(np.full(records, 0.3)) * np.exp(-((places - grid_side / 3) ** 2).sum(axis=1) / grid_side)
    return z, members, truth / truth.sum()


def count_misses(z, members, truth, n, repetitions, *, finite, seed):
    """In how many repetitions an interval misses its share."""
    rng = np.random.default_rng(seed)
    group_shares, count = members @ truth, 0
    for counts in rng.multinomial(n, truth @ z, size=repetitions):
        bounds = linear_intervals([z], [counts], csr_array(members), 0.95, finite=finite)
        count += bounds is None or not ((bounds[0] <= group_shares) & (group_shares <= bounds[1])).all()
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
def test_linear_intervals_hold_together(records, groups, n, repetitions, finite):
    z, members, truth = districts(records, groups, 2.0, 1)
    bound = 0.05 * repetitions + 3 * (0.05 * 0.95 * repetitions) ** 0.5
    assert count_misses(z, members, truth, n, repetitions, finite=finite, seed=2) <= bound


@first_alone("record", [17, 0])
def test_linear_intervals_hold_for_few_reports(record):
    """A normal quantile fails there: all reports may be alike."""
    z, members, _ = districts(40, 4, 3.0, 5)
    assert count_misses(z, members, np.eye(40)[record], 5, 100, finite=True, seed=record) <= 11


def test_linear_widths_are_near_cramer_rao():
    z, members, truth = districts(300, 16, 6.0, 3)
    n, outputs = 200_000, truth @ z
    counts = np.random.default_rng(4).multinomial(n, outputs)
    scaled = z / np.sqrt(outputs)
    group_shares = members @ truth
    min_variances = np.einsum("gi,ig->g", members, np.linalg.solve(scaled @ scaled.T, members.T)) - group_shares**2
    quantile = norm.isf(0.05 / (2 * len(members)))
    bound = 2 * quantile * np.sqrt(min_variances / n)
    for finite, times in ((True, 1.5), (False, 1.1)):
        low, high = linear_intervals([z], [counts], csr_array(members), 0.95, finite=finite)
        assert np.median(((high - low) / bound)[group_shares > 0.01]) <= times


def test_intervals_of_two_releases_are_narrower():
    z, members, truth = districts(60, 9, 2.0, 7)
    other_weights = districts(60, 9, 4.0, 7)[0]
    rng = np.random.default_rng(8)
    group_shares, miss_count = members @ truth, 0
    for _ in range(100):
        counts = [rng.multinomial(2_000, truth @ z), rng.multinomial(2_000, truth @ other_weights)]
        low, high = linear_intervals([z, other_weights], counts, csr_array(members), 0.95, finite=True)
        miss_count += not ((low <= group_shares) & (group_shares <= high)).all()
    assert miss_count <= 12


def test_few_and_impossible_outputs():
    z, members, truth = districts(50, 4, 2.0, 9)
    merged_weights = np.hstack([z[:, :20] + z[:, 20:40], z[:, 40:] + 0.0, np.zeros((50, 3))])
    merged_weights /= merged_weights.sum(axis=1, keepdims=True)
    counts = np.random.default_rng(1).multinomial(5_000, truth @ merged_weights)
    low, high = linear_intervals([merged_weights], [counts], csr_array(members), 0.95, finite=True)
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
