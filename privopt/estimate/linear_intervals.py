"""Simultaneous confidence intervals for groups' shares, from linear estimators that stay fast for thousands of records.

Let pi be the true shares of the records, and Z the channel: Z_ik is the probability of output k given record i. Let g
be the vector with a 1 for each record in a group and 0 elsewhere, so that g . pi is the group's share.

The share is estimated by averaging weights. Each output k has a weight h_k, which is fixed before the reports are seen.
The mean weight of the reports from n people has expectation pi . (Z h). Its bias is the expectation minus g . pi, and
lies between min_i (Z h - g)_i and max_i (Z h - g)_i for every pi. The remaining error is that of a mean of n
independent bounded values. It is bounded using the empirical Bernstein inequality, which holds for any n, or a normal
quantile, which requires a large n. Therefore any weights give valid intervals, and good weights give narrow ones.

The weights come from ridge regressions of g on the columns of Z. A larger ridge penalty on h gives more bias and less
variance. For each group, several penalties are tried, and the regression with the narrowest predicted interval is used.
A random sample of the reports is held out for this choice, and is not used for the bounds.

Source:
    Maurer, Pontil, "Empirical Bernstein bounds and sample variance penalization", COLT 2009, Theorem 10; Donoho,
    "Statistical estimation and optimal recovery", Annals of Statistics 1994, for the trade-off between bias and
    variance.
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
"""The fraction of reports held out for choosing the weights.

With 200,000 reports over 2,032 places in 64 groups, holding out a tenth made intervals 3 % wider. Holding out a
fiftieth, which gives worse weights, made them 1 % wider (tests/bench/bench_intervals.py, 2026-11-26).
"""

RIDGES: Final = tuple(10.0 ** (power / 3) for power in range(-24, 7))
"""The ridge penalties to try, relative to the regression matrix's mean eigenvalue."""

MUCH: Final = 2 * 10**9
"""The product of the numbers of groups, records and outputs above which only every fifth ridge penalty is tried.

For 700 individual records, this made intervals 0.2 % wider on average, with the same median width. For 2,032 records,
the computation took 10.5 s on one core instead of 36 s.
"""

BLOCK: Final = 1 << 24
"""The largest number of entries in ``functionals`` that are converted to a dense matrix at a time."""

SPLIT_SEED: Final = 20260329
"""The seed used to select the held-out reports. It is fixed so that the same reports always give the same intervals."""

ROUNDING_ERROR: Final = 1e-11
"""A bound on the rounding error of a bias, relative to 1 plus the largest weight."""

HalfWidth = Callable[[Floats, Floats, int], Floats]
"""A function that returns half widths, given the weights' variances and ranges, and the number of reports.

All arrays have shape (G,).
"""


def linear_intervals(
    channels: Sequence[Floats],
    counts: Sequence[Ints],
    functionals: csr_array,
    confidence: float,
    *,
    finite: bool,
    progress: Progress | None = None,
) -> tuple[Floats, Floats] | None:
    """Return lower and upper bounds on each group's share, which hold simultaneously with the given confidence.

    Args:
        channels: For each release, an (N, K) array with the probability of each output given each record.
        counts: For each release, a (K,) array with the number of times each output was reported.
        functionals: Sparse matrix of shape (G, N) with a 1 where a record belongs to a group.
        confidence: The confidence level, in (0, 1). The error probability, 1 - confidence, is divided evenly among
            groups and releases.
        finite: Whether the intervals must hold for any number of reports (True), or only for many reports (False).
        progress: A function to call with the current step, or None.

    Returns:
        The lower and upper bounds, as two (G,) arrays with entries in [0, 1], or None if no shares satisfy all the
        bounds.

    Notes:
        The matrix to decompose has order min(N, K). Its eigendecomposition takes 5 s on one core for order 2,032. Each
        ridge penalty then takes about 10 N K G multiplications.
    """
    releases = [(channel, count) for channel, count in zip(channels, counts, strict=True) if count.any()]
    split_counts = [
        _split_reports(count, np.random.default_rng([SPLIT_SEED, number])) for number, (_, count) in enumerate(releases)
    ]
    groups, records = functionals.shape
    # The error probability for each group's mean in each release. By a union bound, all intervals then hold with the
    # given confidence.
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
    # If every record is in exactly one group, the groups' shares add up to 1.
    covers_all_records = bool((functionals.sum(axis=0) == 1.0).all())
    return None if is_outside or (covers_all_records and (low.sum() > 1.0 or high.sum() < 1.0)) else (low, high)


class _Means:
    """An estimator that bounds groups' shares using the mean weights of the reports from several releases.

    Each output has a weight for each group. Each release is weighted in proportion to its number of reports.

    Attributes:
        _parts, _half_width: The constructor's arguments ``parts`` and ``half_width``.
        _shares: Each release's fraction of the reports that are used for the bounds.
        _probability_roots: (K, 1) The square roots of the estimated probabilities of all releases' outputs.
        _weigh: The ridge regressions, which return the outputs' weights.
        _cuts: The indices at which one release's weights end and the next release's weights begin.
    """

    def __init__(
        self, releases: Sequence[tuple[Floats, Ints]], parts: Sequence[tuple[Ints, Ints]], half_width: HalfWidth
    ) -> None:
        """Prepare the regressions.

        Args:
            releases: For each release, the (N, K) channel and the (K,) counts.
            parts: For each release, two arrays of counts of shape (K,): one for the reports used to choose the weights,
                and one for the reports used to compute the bounds.
            half_width: The function that returns the half widths around the means, as described under
                :data:`HalfWidth`.
        """
        total = sum(int(counted_reports.sum()) for _, counted_reports in parts)
        self._parts, self._half_width = parts, half_width
        self._shares = [int(counted_reports.sum()) / total for _, counted_reports in parts]
        roots = [
            _probability_roots(channel, reports_apart)
            for (channel, _), (reports_apart, _) in zip(releases, parts, strict=True)
        ]
        # Dividing the channels by the roots of the outputs' probabilities makes the ridge penalise the mean's variance.
        scaled = [share * releases[number][0] / roots[number] for number, share in enumerate(self._shares)]
        self._probability_roots, self._weigh = np.concatenate(roots)[:, None], _Ridges(np.hstack(scaled))
        self._cuts = np.cumsum([len(release_roots) for release_roots in roots])[:-1]

    def find_narrowest(self, groups: Floats, ridges: Sequence[float]) -> tuple[Floats, Floats]:
        """Return lower and upper bounds on each group's share, as two (G,) arrays.

        For each group, the bounds come from the ridge regression with the narrowest predicted interval. The predictions
        are based on the held-out reports, and the bounds on the other reports.

        Args:
            groups: (N, G) The groups' vectors g, with a 1 where a record belongs to a group.
            ridges: The ridge penalties to try.
        """
        count = groups.shape[1]
        best_widths, low, high = np.full(count, np.inf), np.zeros(count), np.ones(count)
        projected = self._weigh.project_groups(groups)
        for ridge in ridges:
            weights, biases = self._weigh(ridge, projected, groups)
            weights /= self._probability_roots
            # Allow for the rounding errors of the biases, so that the interval is not too narrow.
            slack = ROUNDING_ERROR * (1.0 + np.abs(weights).max(axis=0))
            min_biases, max_biases = biases.min(axis=0) - slack, biases.max(axis=0) + slack
            means, widths = self._estimate_means(np.split(weights, self._cuts))
            expected_widths = max_biases - min_biases + 2 * widths[0]
            # The choice depends only on the held-out reports. The other reports are independent of it, so the bounds
            # stay valid.
            is_better = expected_widths < best_widths
            best_widths[is_better] = expected_widths[is_better]
            low[is_better] = (means[1] - max_biases - widths[1])[is_better]
            high[is_better] = (means[1] - min_biases + widths[1])[is_better]
        return low, high

    def _estimate_means(self, weights: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Return the mean weights of the reports and the half widths around these means, each as a (2, G) array.

        The first row of each array is for the reports used to choose the weights, and the second for the reports used
        to compute the bounds.

        Args:
            weights: For each release, an array of shape (K, G) with its outputs' weights.
        """
        means, widths = np.zeros((2, weights[0].shape[1])), np.zeros((2, weights[0].shape[1]))
        for release_share, h, (reports_apart, counted_reports) in zip(self._shares, weights, self._parts, strict=True):
            for part, reports in enumerate((reports_apart, counted_reports)):
                mean, variance = _weighted_moments(h, reports)
                means[part] += release_share * mean
                # Both widths are computed for the number of reports that the interval will use, because one predicts
                # the other.
                widths[part] += release_share * self._half_width(
                    variance, np.ptp(h, axis=0), int(counted_reports.sum())
                )
        return means, widths


def _split_reports(counts: Ints, chance: np.random.Generator) -> tuple[Ints, Ints]:
    """Split reports at random into two parts, and return a (K,) array of counts for each part.

    The first part is used to choose the weights, and the second part to compute the bounds. If there are three or more
    reports, the first part has at least one, and the second part has at least two.

    Args:
        counts: (K,) The number of times each output was reported.
        chance: The random number generator used to draw the split.
    """
    rounded = np.rint(counts).astype(np.int64)
    n = int(rounded.sum())
    # A variance needs at least two reports.
    apart_count = max(0, min(math.ceil(SET_APART * n), n - 2))
    reports_apart = chance.multivariate_hypergeometric(rounded, apart_count)
    return reports_apart, rounded - reports_apart


def _probability_roots(channel: Floats, reports_apart: Ints) -> Floats:
    """Return the square roots of the outputs' estimated probabilities, as a (K,) array without zeros.

    The estimate combines the held-out reports with K / 2 pseudo-counts in total, distributed like reports under uniform
    shares.

    Args:
        channel: (N, K) The probability of each output given each record.
        reports_apart: (K,) The number of times each output occurs in the held-out reports.
    """
    uniform_probabilities = channel.mean(axis=0)
    smoothed_counts = reports_apart + 0.5 * len(uniform_probabilities) * uniform_probabilities
    roots: Floats = np.sqrt(np.maximum(smoothed_counts / smoothed_counts.sum(), 1e-300))
    return roots


def _weighted_moments(h: Floats, reports: Ints) -> tuple[Floats, Floats]:
    """Return the mean and sample variance (with divisor n - 1) of the reports' weights, each as a (G,) array.

    Args:
        h: (K, G) The outputs' weights.
        reports: (K,) The number of times each output was reported.
    """
    n = max(1, int(reports.sum()))
    mean = reports @ h / n
    # Rounding can make a variance of 0 negative.
    return mean, np.maximum(reports @ h**2 / n - mean**2, 0.0) * (n / max(1, n - 1))


def _bernstein_half_width(error: float) -> HalfWidth:
    """Return a function that computes half widths around means of bounded values, valid for any number of values.

    An interval with this half width misses the expectation with probability at most ``error``. The half widths follow
    from Bernstein's bound, with an upper bound on the standard deviation (Maurer and Pontil 2009, Theorem 10). A tenth
    of the error probability is allotted to the standard deviation, and the rest to the two sides of the mean.
    """
    side_log, deviation_log = math.log(1 / (0.45 * error)), math.log(1 / (0.1 * error))

    def half_width(variance: Floats, span: Floats, reports: int) -> Floats:
        """Return the (G,) half widths for means of ``reports`` values with the given variances and ranges."""
        deviation_bound = np.sqrt(variance) + span * math.sqrt(2 * deviation_log / max(1, reports - 1))
        return deviation_bound * math.sqrt(2 * side_log / reports) + span * side_log / (3 * reports)

    return half_width


def _normal_half_width(error: float) -> HalfWidth:
    """Return a function that computes the half-widths of confidence intervals around means of many values.

    Asymptotically, an interval with this half-width misses the expectation with probability ``error``. Each half-width
    is the standard error times a quantile of the normal distribution.
    """
    from scipy.stats import norm

    quantile = float(norm.isf(error / 2))

    def half_width(variance: Floats, span: Floats, reports: int) -> Floats:
        """Return the (G,) half widths for means of ``reports`` values with the given variances.

        ``span`` is not used.
        """
        return quantile * np.sqrt(variance / reports)

    return half_width


class _Ridges:
    """Ridge regressions that share a matrix A, so that its eigendecomposition is computed only once.

    Each regression finds the weights u that minimise |A u - g|^2 + ridge |u|^2, for a right-hand side g and a ridge
    penalty.

    Attributes:
        _matrix: (N, K) The matrix A.
        _by_outputs: Whether A'A was decomposed rather than AA'. The smaller of the two is decomposed.
        _values, _vectors: The eigenvalues of the decomposed matrix, and its eigenvectors as columns.
    """

    def __init__(self, matrix: Floats) -> None:
        """Compute the eigendecomposition of A'A or AA', whichever is smaller, for the (N, K) matrix A."""
        from scipy.linalg import eigh

        self._matrix = matrix
        self._by_outputs = matrix.shape[1] < matrix.shape[0]
        square = matrix.T @ matrix if self._by_outputs else matrix @ matrix.T
        values, self._vectors = eigh(square, overwrite_a=True, check_finite=False)
        # Rounding can make an eigenvalue of 0 negative.
        self._values = np.maximum(values, 0.0)

    def project_groups(self, groups: Floats) -> Floats:
        """Project the groups, given as an (N, G) array, onto the eigenvectors.

        The result does not depend on the ridge penalty, so it can be reused for all penalties.
        """
        projected: Floats = self._vectors.T @ (self._matrix.T @ groups if self._by_outputs else groups)
        return projected

    def __call__(self, ridge: float, projected: Floats, groups: Floats) -> tuple[Floats, Floats]:
        """Return the (K, G) weights u and the (N, G) biases A u - g for one ridge penalty.

        Args:
            ridge: The ridge penalty, relative to the mean eigenvalue.
            projected: The projected groups, as returned by :meth:`project_groups`.
            groups: (N, G) The right-hand sides g.
        """
        solved = self._vectors @ (projected / (self._values + ridge * self._values.mean())[:, None])
        weights = solved if self._by_outputs else self._matrix.T @ solved
        return weights, self._matrix @ weights - groups
