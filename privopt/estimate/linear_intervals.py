"""Simultaneous intervals by linear estimators, fast even for groups among thousands of records.

Let pi be the true shares of the records, Z the channel (Z_ik is the probability of output k given record i), and g have
a 1 for each record of a group, so that g . pi is the group's share. Give each output k a weight h_k, fixed before the
reports are seen. The mean of the weights of n people's reports has the expectation pi . (Z h). Its bias, the
expectation less g . pi, lies between min_i (Z h - g)_i and max_i (Z h - g)_i for every pi. The remaining error is that
of a mean of n independent bounded values: the empirical Bernstein bound covers it for every n, and a normal quantile
for large n. So any weights give valid intervals, and good weights give narrow ones.

The weights come from ridge regressions of g on the columns of Z: a larger ridge (the factor of the penalty on h) gives
more bias and less variance. For each group, the regression whose interval is predicted to be the narrowest is used. For
this choice, a few of the reports are set apart at random, and not used for the bounds.

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
"""Fraction of the reports that are set apart to choose weights. With 200,000 reports over 2,032 places in 64 groups, a
tenth made intervals 3 % wider; a fiftieth, which gives worse weights, made them 1 % wider
(tests/bench/bench_intervals.py, 2026-11-26)."""

RIDGES: Final = tuple(10.0 ** (power / 3) for power in range(-24, 7))
"""The ridges that are tried: the factor of a regression's penalty, relative to the mean eigenvalue of its matrix."""

MUCH: Final = 2 * 10**9
"""The product of the numbers of groups, records and outputs above which only every fifth ridge is tried. Over 700
single records, intervals were then 0.2 % wider on average, with the same median. Over 2,032 records, it took 10.5 s of
one core instead of 36 s."""

BLOCK: Final = 1 << 24
"""The largest number of entries of ``functionals`` that are converted to a dense matrix at once."""

SPLIT_SEED: Final = 20260329
"""Seed of the draw that sets reports apart, so that the same reports give the same intervals."""

ROUNDING_ERROR: Final = 1e-11
"""Bound on the rounding error of a bias, relative to 1 plus the largest weight."""

HalfWidth = Callable[[Floats, Floats, int], Floats]
"""Returns half widths (G,) from variances (G,), ranges (G,) of the weights, and the number of reports."""


def linear_intervals(
    channels: Sequence[Floats],
    counts: Sequence[Ints],
    functionals: csr_array,
    confidence: float,
    *,
    finite: bool,
    progress: Progress | None = None,
) -> tuple[Floats, Floats] | None:
    """Return bounds on the share of each group, which hold simultaneously with the given confidence.

    Args:
        channels: For each release, the probability (N, K) of each output given each record.
        counts: For each release, how often each output was reported, (K,).
        functionals: (G, N) ones where a record belongs to a group, sparse.
        confidence: Confidence in (0, 1); its complement is divided evenly among groups, releases and sides.
        finite: Whether the intervals hold for every number of reports, or only for many.
        progress: Called with the step that is being done.

    Returns:
        Lower and upper bounds, (G,) each, in [0, 1]; None if no shares lie within them.

    Notes:
        The eigendecomposition of order min(N, K) takes 5 s for 2,032 on one core. Each ridge then takes about 10 N K G
        multiplications.
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
    """Bounds by weighted means over the reports of several releases, each in proportion to its number of reports.

    Attributes:
        _parts, _half_width: As given to the constructor.
        _shares: For each release, its fraction of the reports that are used for the bounds.
        _probability_roots: (K, 1) square roots of the estimated probabilities of all releases' outputs.
        _weigh: The ridge regressions, which return the weights of the outputs.
        _cuts: Where the weights of one release end and those of the next begin.
    """

    def __init__(
        self, releases: Sequence[tuple[Floats, Ints]], parts: Sequence[tuple[Ints, Ints]], half_width: HalfWidth
    ) -> None:
        """Prepare the regressions.

        Args:
            releases: Channel (N, K) and counts (K,) of each release.
            parts: For each release, the counts (K,) of the reports that choose the weights, and of those used for the
                bounds.
            half_width: Returns the half widths of the errors of means; see :data:`HalfWidth`.
        """
        total = sum(int(counted_reports.sum()) for _, counted_reports in parts)
        self._parts, self._half_width = parts, half_width
        self._shares = [int(counted_reports.sum()) / total for _, counted_reports in parts]
        roots = [
            _probability_roots(channel, reports_apart)
            for (channel, _), (reports_apart, _) in zip(releases, parts, strict=True)
        ]
        # Divided by the roots of the outputs' probabilities, the ridge penalises the variance of the mean.
        scaled = [share * releases[number][0] / roots[number] for number, share in enumerate(self._shares)]
        self._probability_roots, self._weigh = np.concatenate(roots)[:, None], _Ridges(np.hstack(scaled))
        self._cuts = np.cumsum([len(release_roots) for release_roots in roots])[:-1]

    def find_narrowest(self, groups: Floats, ridges: Sequence[float]) -> tuple[Floats, Floats]:
        """Return the lower and upper bounds (G,) of each group, from the regression that predicts the narrowest.

        The prediction uses the reports set apart, whereas the bounds themselves use the other reports.

        Args:
            groups: (N, G) ones where a record belongs to a group.
            ridges: The ridges to try.
        """
        count = groups.shape[1]
        best_widths, low, high = np.full(count, np.inf), np.zeros(count), np.ones(count)
        projected = self._weigh.project_groups(groups)
        for ridge in ridges:
            weights, biases = self._weigh(ridge, projected, groups)
            weights /= self._probability_roots
            # The bias is widened by its rounding error, so that the interval is not too narrow.
            slack = ROUNDING_ERROR * (1.0 + np.abs(weights).max(axis=0))
            min_biases, max_biases = biases.min(axis=0) - slack, biases.max(axis=0) + slack
            means, widths = self._estimate_means(np.split(weights, self._cuts))
            expected_widths = max_biases - min_biases + 2 * widths[0]
            # Chosen by the reports set apart only: the others are independent of the choice, so that the bound stays
            # valid.
            is_better = expected_widths < best_widths
            best_widths[is_better] = expected_widths[is_better]
            low[is_better] = (means[1] - max_biases - widths[1])[is_better]
            high[is_better] = (means[1] - min_biases + widths[1])[is_better]
        return low, high

    def _estimate_means(self, weights: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Return the means of weights over reports, and the half widths of their errors, (2, G) each.

        The first row is for the reports that choose the weights, the second for those used for the bounds.

        Args:
            weights: For each release, the weights (K, G) of the outputs.
        """
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
    """Split reports at random into those that choose weights and those used for the bounds; return counts (K,) of each.

    Of three or more reports, at least one is in the first part and at least two are in the second.

    Args:
        counts: (K,) how often each output was reported.
        chance: The random generator, whose seed is fixed.
    """
    rounded = np.rint(counts).astype(np.int64)
    n = int(rounded.sum())
    # A variance needs two reports.
    apart_count = max(0, min(math.ceil(SET_APART * n), n - 2))
    reports_apart = chance.multivariate_hypergeometric(rounded, apart_count)
    return reports_apart, rounded - reports_apart


def _probability_roots(channel: Floats, reports_apart: Ints) -> Floats:
    """Return the square roots of the outputs' estimated probabilities (K,), never 0.

    The estimate combines the reports set apart with half a pseudo-count per output, distributed as under uniform
    shares.

    Args:
        channel: (N, K) probability of each output given each record.
        reports_apart: (K,) how often each output occurs in the reports set apart.
    """
    uniform_probabilities = channel.mean(axis=0)
    smoothed_counts = reports_apart + 0.5 * len(uniform_probabilities) * uniform_probabilities
    roots: Floats = np.sqrt(np.maximum(smoothed_counts / smoothed_counts.sum(), 1e-300))
    return roots


def _weighted_moments(h: Floats, reports: Ints) -> tuple[Floats, Floats]:
    """Return the mean and the variance (n - 1 in the denominator) of weights over reports, (G,) each.

    Args:
        h: (K, G) weights of the outputs.
        reports: (K,) how often each output was reported.
    """
    n = max(1, int(reports.sum()))
    mean = reports @ h / n
    # Rounding can make a variance of 0 negative.
    return mean, np.maximum(reports @ h**2 / n - mean**2, 0.0) * (n / max(1, n - 1))


def _bernstein_half_width(error: float) -> HalfWidth:
    """Return a function for the half widths of means of bounded values, which fail with probability at most ``error``.

    The half widths hold for every number of values. They are Bernstein's bound with an upper bound on the standard
    deviation (Maurer and Pontil 2009, Theorem 10). A tenth of the error probability is spent on the deviation, the rest
    on the two sides of the mean.
    """
    side_log, deviation_log = math.log(1 / (0.45 * error)), math.log(1 / (0.1 * error))

    def half_width(variance: Floats, span: Floats, reports: int) -> Floats:
        """Return the half widths (G,), from variances (G,), ranges (G,) of the values, and the number of reports."""
        deviation_bound = np.sqrt(variance) + span * math.sqrt(2 * deviation_log / max(1, reports - 1))
        return deviation_bound * math.sqrt(2 * side_log / reports) + span * side_log / (3 * reports)

    return half_width


def _normal_half_width(error: float) -> HalfWidth:
    """Return a function for the half widths of means of many values, which fail with probability ``error``.

    Each half width is the standard error times a quantile of the normal distribution.
    """
    from scipy.stats import norm

    quantile = float(norm.isf(error / 2))

    def half_width(variance: Floats, span: Floats, reports: int) -> Floats:
        """Return the half widths (G,), from variances (G,) and the number of reports; the ranges are not used."""
        return quantile * np.sqrt(variance / reports)

    return half_width


class _Ridges:
    """Solves min |A u - g|^2 + ridge |u|^2 for many g and ridges, after one eigendecomposition.

    Attributes:
        _matrix: A, (N, K).
        _by_outputs: Whether A'A was decomposed, because it is the smaller one, instead of AA'.
        _values, _vectors: Its eigenvalues, and its eigenvectors in columns.
    """

    def __init__(self, matrix: Floats) -> None:
        """Compute the eigendecomposition of A'A or AA', whichever is smaller; ``matrix`` is A, shape (N, K)."""
        from scipy.linalg import eigh

        self._matrix = matrix
        self._by_outputs = matrix.shape[1] < matrix.shape[0]
        square = matrix.T @ matrix if self._by_outputs else matrix @ matrix.T
        values, self._vectors = eigh(square, overwrite_a=True, check_finite=False)
        # Rounding can make an eigenvalue of 0 negative.
        self._values = np.maximum(values, 0.0)

    def project_groups(self, groups: Floats) -> Floats:
        """Return the groups (N, G) projected onto the eigenvectors; the projection can be used for all ridges."""
        projected: Floats = self._vectors.T @ (self._matrix.T @ groups if self._by_outputs else groups)
        return projected

    def __call__(self, ridge: float, projected: Floats, groups: Floats) -> tuple[Floats, Floats]:
        """Return the weights u (K, G) and the biases A u - g (N, G) for one ridge.

        Args:
            ridge: Weight of the penalty, relative to the mean eigenvalue.
            projected: The projected groups.
            groups: (N, G) the right-hand sides g.
        """
        solved = self._vectors @ (projected / (self._values + ridge * self._values.mean())[:, None])
        weights = solved if self._by_outputs else self._matrix.T @ solved
        return weights, self._matrix @ weights - groups
