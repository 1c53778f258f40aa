"""Intervals by linear estimators, for groups among thousands of records: quick, and all at once.

For any weights h on outputs that are fixed before the reports are seen, the mean of h over the reports of n people has
the expectation pi . (Z h). This lies within [min_i (Z h - g)_i, max_i (Z h - g)_i] of the group's share g . pi, for
every distribution pi. The remaining error is that of a mean of n independent bounded values: the empirical Bernstein
bound for every n, or the normal quantile for many. So any weights give valid intervals, and good weights give narrow
ones. The weights come from ridge regressions that trade bias for variance, and each group takes the narrowest interval.
A few of the reports, drawn at random and not used again, choose among the regressions and weight their outputs.

Without a bias the weights of least variance reach the Cramer-Rao bound of all unbiased estimators.

Source:
    Maurer, Pontil, "Empirical Bernstein bounds and sample variance penalization", COLT 2009, Theorem 10; Donoho,
    "Statistical estimation and optimal recovery", Annals of Statistics 1994, for the trade of bias and variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints, slices
from privopt.interfaces import Progress

SET_APART: Final = 0.05
"""Share of the reports by which weights are chosen. Of 200,000 reports over 2,032 places in 64 groups a tenth made
intervals 3 % wider, a fiftieth 1 % wider, for worse weights (tests/bench/bench_intervals.py, 2026-11-26)."""

RIDGES: Final = tuple(10.0 ** (power / 3) for power in range(-24, 7))
"""Of the regressions, relative to the mean eigenvalue."""

MUCH: Final = 2 * 10**9
"""Groups times records times outputs above which a fifth of the ridges are tried. Over 700 single records that made
intervals 0.2 % wider on average, and none of the medians; over 2,032 it took 10.5 s of one core, with all 36 s."""

BLOCK: Final = 1 << 24
"""Entries of the groups that are worked on at once."""

SPLIT_SEED: Final = 20260329
"""Of the draw that sets reports apart: the same reports give the same intervals."""

ROUNDING_ERROR: Final = 1e-11
"""What rounding may add to a bias, relative to the greatest weight."""

HalfWidth = Callable[[Floats, Floats, int], Floats]
"""From variances (G,), ranges (G,) of the weights, and the number of reports."""


def linear_intervals(
    channels: Sequence[Floats],
    counts: Sequence[Ints],
    functionals: csr_array,
    confidence: float,
    *,
    finite: bool,
    progress: Progress | None = None,
) -> tuple[Floats, Floats] | None:
    """Bound the share of each group, all at once with the confidence.

    Args:
        channels: (N, K) probability of each output given each record, of each release.
        counts: (K,) how often each output was reported, of each release.
        functionals: (G, N) ones where a record belongs to a group, sparse.
        confidence: in (0, 1); shared out evenly among groups, releases and sides.
        finite: whether the intervals hold for every number of reports, or for many.
        progress: called with what is being done.

    Returns:
        Lower and upper bounds, (G,) each, in [0, 1]; None if no shares lie within.

    Notes:
        An eigendecomposition of min(N, K): 5 s at 2,032 on one core; then some 10 N K G multiplications a ridge.
    """
    releases = [(channel, count) for channel, count in zip(channels, counts, strict=True) if count.any()]
    split_counts = [
        _split_reports(count, np.random.default_rng([SPLIT_SEED, number])) for number, (_, count) in enumerate(releases)
    ]
    groups, records = functionals.shape
    # A union bound: all intervals hold at once if each fails with at most this probability.
    error = (1.0 - confidence) / (groups * len(releases))
    bounds = _Means(releases, split_counts, _bernstein_half_width(error) if finite else _normal_half_width(error))
    low, high = np.zeros(groups), np.ones(groups)
    ridges = (
        RIDGES
        if groups * records * sum(probabilities.shape[1] for probabilities, _ in releases) <= MUCH
        else RIDGES[::5]
    )
    for part in slices(groups, records, BLOCK):
        if progress is not None:
            progress(f"intervals by linear estimators: {part.start:,} of {groups:,}", part.start, None, None)
        low[part], high[part] = bounds.find_narrowest(functionals[part].toarray().T, ridges)
    is_outside = (low > 1.0).any() or (high < 0.0).any()
    low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    # If the groups cover every record once, their shares add up to 1.
    covers_all_records = bool((functionals.sum(axis=0) == 1.0).all())
    return None if is_outside or (covers_all_records and (low.sum() > 1.0 or high.sum() < 1.0)) else (low, high)


class _Means:
    """Bounds by weighted means over the reports of some releases.

    Args:
        releases: channel (N, K) and counts of each release.
        parts: reports that choose, and those that count, of each.
        half_width: of the error of a mean.
    """

    def __init__(
        self, releases: Sequence[tuple[Floats, Ints]], parts: Sequence[tuple[Ints, Ints]], half_width: HalfWidth
    ) -> None:
        total = sum(int(counted_reports.sum()) for _, counted_reports in parts)
        self._parts, self._half_width = parts, half_width
        self._shares = [int(counted_reports.sum()) / total for _, counted_reports in parts]
        roots = [
            _probability_roots(channel, reports_apart)
            for (channel, _), (reports_apart, _) in zip(releases, parts, strict=True)
        ]
        scaled = [share * releases[number][0] / roots[number] for number, share in enumerate(self._shares)]
        self._probability_roots, self._weigh = np.concatenate(roots)[:, None], _Ridges(np.hstack(scaled))
        self._cuts = np.cumsum([len(release_roots) for release_roots in roots])[:-1]

    def find_narrowest(self, groups: Floats, ridges: Sequence[float]) -> tuple[Floats, Floats]:
        """Return the bounds of each group (N, G) that the reports set apart predict to be narrowest.

        The bounds themselves come from the other reports.
        """
        count = groups.shape[1]
        best_widths, low, high = np.full(count, np.inf), np.zeros(count), np.ones(count)
        projected = self._weigh.project_groups(groups)
        for ridge in ridges:
            weights, biases = self._weigh(ridge, projected, groups)
            weights /= self._probability_roots
            slack = ROUNDING_ERROR * (1.0 + np.abs(weights).max(axis=0))
            min_biases, max_biases = biases.min(axis=0) - slack, biases.max(axis=0) + slack
            means, widths = self._estimate_means(np.split(weights, self._cuts))
            expected_widths = max_biases - min_biases + 2 * widths[0]
            is_better = expected_widths < best_widths
            best_widths[is_better] = expected_widths[is_better]
            low[is_better] = (means[1] - max_biases - widths[1])[is_better]
            high[is_better] = (means[1] - min_biases + widths[1])[is_better]
        return low, high

    def _estimate_means(self, weights: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Return the means (2, G) and their half widths, of the reports that choose and of those that count."""
        means, widths = np.zeros((2, weights[0].shape[1])), np.zeros((2, weights[0].shape[1]))
        for release_share, h, (reports_apart, counted_reports) in zip(self._shares, weights, self._parts, strict=True):
            for part, reports in enumerate((reports_apart, counted_reports)):
                mean, variance = _weighted_moments(h, reports)
                means[part] += release_share * mean
                # The predicted width is that of as many reports as the interval will use.
                widths[part] += release_share * self._half_width(
                    variance, np.ptp(h, axis=0), int(counted_reports.sum())
                )
        return means, widths


def _split_reports(counts: Ints, chance: np.random.Generator) -> tuple[Ints, Ints]:
    """Split reports at random: at least one is set apart, and at least two remain."""
    rounded = np.rint(counts).astype(np.int64)
    n = int(rounded.sum())
    apart_count = max(0, min(math.ceil(SET_APART * n), n - 2))
    reports_apart = chance.multivariate_hypergeometric(rounded, apart_count)
    return reports_apart, rounded - reports_apart


def _probability_roots(channel: Floats, reports_apart: Ints) -> Floats:
    """Return the roots of the outputs' estimated probabilities (K,), never 0.

    The estimate combines the reports set apart with half a pseudo-count per output, spread as by uniform shares.
    """
    uniform_probabilities = channel.mean(axis=0)
    smoothed_counts = reports_apart + 0.5 * len(uniform_probabilities) * uniform_probabilities
    roots: Floats = np.sqrt(np.maximum(smoothed_counts / smoothed_counts.sum(), 1e-300))
    return roots


def _weighted_moments(h: Floats, reports: Ints) -> tuple[Floats, Floats]:
    """Return the mean and variance (n - 1 in the denominator) of weights over reports, (G,) each."""
    n = max(1, int(reports.sum()))
    mean = reports @ h / n
    return mean, np.maximum(reports @ h**2 / n - mean**2, 0.0) * (n / max(1, n - 1))


def _bernstein_half_width(error: float) -> HalfWidth:
    """Return the half width for a mean of bounded values, valid for every n.

    It is Bernstein's bound with a bound on the standard deviation. A tenth of the error is spent on the deviation, the
    rest on the two sides of the mean.
    """
    side_log, deviation_log = math.log(1 / (0.45 * error)), math.log(1 / (0.1 * error))

    def half_width(variance: Floats, span: Floats, reports: int) -> Floats:
        deviation_bound = np.sqrt(variance) + span * math.sqrt(2 * deviation_log / max(1, reports - 1))
        return deviation_bound * math.sqrt(2 * side_log / reports) + span * side_log / (3 * reports)

    return half_width


def _normal_half_width(error: float) -> HalfWidth:
    """Return the half width for a mean of many values, by the normal quantile."""
    from scipy.stats import norm

    quantile = float(norm.isf(error / 2))

    def half_width(variance: Floats, span: Floats, reports: int) -> Floats:
        return quantile * np.sqrt(variance / reports)

    return half_width


class _Ridges:
    """Solves min |A u - g|^2 + ridge |u|^2 for many groups, after one eigendecomposition of the smaller side."""

    def __init__(self, matrix: Floats) -> None:
        from scipy.linalg import eigh

        self._matrix = matrix
        self._by_outputs = matrix.shape[1] < matrix.shape[0]
        square = matrix.T @ matrix if self._by_outputs else matrix @ matrix.T
        values, self._vectors = eigh(square, overwrite_a=True, check_finite=False)
        self._values = np.maximum(values, 0.0)

    def project_groups(self, groups: Floats) -> Floats:
        """Project groups (N, G) onto the eigenvectors, once for all ridges."""
        projected: Floats = self._vectors.T @ (self._matrix.T @ groups if self._by_outputs else groups)
        return projected

    def __call__(self, ridge: float, projected: Floats, groups: Floats) -> tuple[Floats, Floats]:
        """Return the weights u (K, G) and the biases A u - g (N, G)."""
        solved = self._vectors @ (projected / (self._values + ridge * self._values.mean())[:, None])
        weights = solved if self._by_outputs else self._matrix.T @ solved
        return weights, self._matrix @ weights - groups
