"""Intervals by linear estimators, for groups among thousands of records: quick, and all at once.

Whatever weights h on outputs are, fixed before the reports are seen, the mean of h over the reports of n people has the
expectation pi . (Z h), which lies within [min_i (Z h - g)_i, max_i (Z h - g)_i] of the group's share g . pi, for every
distribution pi. There remains the error of a mean of n independent bounded values: the empirical Bernstein bound for
every n, or the normal quantile for many. So any weights give intervals that hold, and good weights give narrow ones:
ridge regressions, from no bias and much variance to the contrary; each group takes the narrowest. Outputs'
probabilities, by which the regressions weigh, and the choice among them are taken from a few of the reports, drawn at
random, which are not used again.

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
        Lower and upper bounds, (G,) each, in [0, 1]; None where no shares lie within.

    Notes:
        An eigendecomposition of min(N, K): 5 s at 2,032 on one core; then some 10 N K G multiplications a ridge.
    """
    used = [(channel, count) for channel, count in zip(channels, counts, strict=True) if count.any()]
    parts = [_parted(count, np.random.default_rng([SPLIT_SEED, number])) for number, (_, count) in enumerate(used)]
    groups, records = functionals.shape
    error = (1.0 - confidence) / (groups * len(used))
    bounds = _Means(used, parts, _bernstein(error) if finite else _normal(error))
    low, high = np.zeros(groups), np.ones(groups)
    ridges = RIDGES if groups * records * sum(each.shape[1] for each, _ in used) <= MUCH else RIDGES[::5]
    for part in slices(groups, records, BLOCK):
        if progress is not None:
            progress(f"intervals by linear estimators: {part.start:,} of {groups:,}", part.start, None, None)
        low[part], high[part] = bounds.narrowest(functionals[part].toarray().T, ridges)
    outside = (low > 1.0).any() or (high < 0.0).any()
    low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    all_there = bool((functionals.sum(axis=0) == 1.0).all())
    return None if outside or (all_there and (low.sum() > 1.0 or high.sum() < 1.0)) else (low, high)


class _Means:
    """Bounds by means of weights over the reports of some releases.

    Args:
        used: channel (N, K) and counts of each release.
        parts: reports that choose, and those that count, of each.
        half_width: of the error of a mean.
    """

    def __init__(
        self, used: Sequence[tuple[Floats, Ints]], parts: Sequence[tuple[Ints, Ints]], half_width: HalfWidth
    ) -> None:
        total = sum(int(rest.sum()) for _, rest in parts)
        self._parts, self._half_width = parts, half_width
        self._shares = [int(rest.sum()) / total for _, rest in parts]
        roots = [_roots(channel, apart) for (channel, _), (apart, _) in zip(used, parts, strict=True)]
        scaled = [share * used[place][0] / roots[place] for place, share in enumerate(self._shares)]
        self._roots, self._weigh = np.concatenate(roots)[:, None], _Ridges(np.hstack(scaled))
        self._cuts = np.cumsum([len(each) for each in roots])[:-1]

    def narrowest(self, groups: Floats, ridges: Sequence[float]) -> tuple[Floats, Floats]:
        """Of each group (N, G) the narrowest bounds that the reports set apart foresee, from the others."""
        count = groups.shape[1]
        widest, low, high = np.full(count, np.inf), np.zeros(count), np.ones(count)
        turned = self._weigh.turned(groups)
        for ridge in ridges:
            weights, biases = self._weigh(ridge, turned, groups)
            weights /= self._roots
            slack = ROUNDING_ERROR * (1.0 + np.abs(weights).max(axis=0))
            below, above = biases.min(axis=0) - slack, biases.max(axis=0) + slack
            means, widths = self._means(np.split(weights, self._cuts))
            foreseen = above - below + 2 * widths[0]
            better = foreseen < widest
            widest[better] = foreseen[better]
            low[better] = (means[1] - above - widths[1])[better]
            high[better] = (means[1] - below + widths[1])[better]
        return low, high

    def _means(self, weights: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Means (2, G), and how far they may be off: of the reports that choose, and of those that count."""
        means, widths = np.zeros((2, weights[0].shape[1])), np.zeros((2, weights[0].shape[1]))
        for share, h, (apart, rest) in zip(self._shares, weights, self._parts, strict=True):
            for side, reports in enumerate((apart, rest)):
                mean, variance = _moments(h, reports)
                means[side] += share * mean
                widths[side] += share * self._half_width(variance, np.ptp(h, axis=0), int(rest.sum()))
        return means, widths


def _parted(counts: Ints, chance: np.random.Generator) -> tuple[Ints, Ints]:
    """Return reports set apart at random, at least one, and the rest, at least two."""
    whole = np.rint(counts).astype(np.int64)
    n = int(whole.sum())
    some = max(0, min(math.ceil(SET_APART * n), n - 2))
    apart = chance.multivariate_hypergeometric(whole, some)
    return apart, whole - apart


def _roots(channel: Floats, apart: Ints) -> Floats:
    """(K,) roots of the outputs' probabilities, estimated from the reports set apart and uniform shares; never 0."""
    even = channel.mean(axis=0)
    likely = apart + 0.5 * len(even) * even
    roots: Floats = np.sqrt(np.maximum(likely / likely.sum(), 1e-300))
    return roots


def _moments(h: Floats, reports: Ints) -> tuple[Floats, Floats]:
    """(G,) mean and variance (n - 1 in the denominator) of weights over reports."""
    n = max(1, int(reports.sum()))
    mean = reports @ h / n
    return mean, np.maximum(reports @ h**2 / n - mean**2, 0.0) * (n / max(1, n - 1))


def _bernstein(error: float) -> HalfWidth:
    """Return the half width for a mean of bounded values, for every n: Bernstein's bound with a bound on the deviation.

    A tenth of the error is for the deviation, the rest for the two sides of the mean.
    """
    side, deviation = math.log(1 / (0.45 * error)), math.log(1 / (0.1 * error))

    def half_width(variance: Floats, span: Floats, reports: int) -> Floats:
        most = np.sqrt(variance) + span * math.sqrt(2 * deviation / max(1, reports - 1))
        return most * math.sqrt(2 * side / reports) + span * side / (3 * reports)

    return half_width


def _normal(error: float) -> HalfWidth:
    """Return the half width for a mean of many values, by the normal quantile."""
    from scipy.stats import norm

    quantile = float(norm.isf(error / 2))

    def half_width(variance: Floats, span: Floats, reports: int) -> Floats:
        return quantile * np.sqrt(variance / reports)

    return half_width


class _Ridges:
    """Solves min |A u - g|^2 + ridge |u|^2 for many groups, after one decomposition of the smaller side."""

    def __init__(self, matrix: Floats) -> None:
        from scipy.linalg import eigh

        self._matrix = matrix
        self._by_outputs = matrix.shape[1] < matrix.shape[0]
        square = matrix.T @ matrix if self._by_outputs else matrix @ matrix.T
        values, self._vectors = eigh(square, overwrite_a=True, check_finite=False)
        self._values = np.maximum(values, 0.0)

    def turned(self, groups: Floats) -> Floats:
        """Compute what every ridge needs of groups (N, G)."""
        turned: Floats = self._vectors.T @ (self._matrix.T @ groups if self._by_outputs else groups)
        return turned

    def __call__(self, ridge: float, turned: Floats, groups: Floats) -> tuple[Floats, Floats]:
        """Weights u (K, G), and biases A u - g (N, G)."""
        solved = self._vectors @ (turned / (self._values + ridge * self._values.mean())[:, None])
        weights = solved if self._by_outputs else self._matrix.T @ solved
        return weights, self._matrix @ weights - groups
