"""Fit flows between groups of records to pairs of reports, by expectation maximisation over pairs of bumps.

Let z_ik be the probability of output k given record i. A trip from record i to record j reports outputs (k, l) with
probability z_ik z_jl, because its two reports are drawn independently. The distribution of trips is modelled as a
mixture of products of two bumps, which are smooth distributions over the records (:mod:`.smooth_shares`). The mixture's
weights form a matrix W of shape (M, M), where M is the number of bumps. The log-likelihood is concave in the weights.

Outputs that reveal almost the same information about the secret are merged into L cells, where L is at most MAX_CELLS.
The fit maximises the likelihood of the reported cells rather than the likelihood of the reported outputs.

Each round of expectation maximisation multiplies the weights, entry by entry, by D = A (C / (A' W A)) A'. The matrix A
of shape (M, L) contains the probability of each cell given each bump, and C of shape (L, L) contains the fraction of
trips with each pair of cells. The division is also entry by entry, and ``'`` marks the transpose. The log-likelihood is
below its maximum by at most ln max D per trip (see :mod:`.likelihood`). Rounds are over-relaxed: D is raised to a power
above 1 as long as the likelihood grows, which saves most of the rounds.

The rounds start from weights that link starts and ends as closely as the reports show (:mod:`.flow_links`). The number
of rounds is chosen by cross-validation, because too many rounds would fit the noise in the reports. Finally, the rows
and columns of the flows are scaled until their sums equal the separate estimates of starts and ends, which are much
more accurate.

Source:
    Salakhutdinov, Roweis, "Adaptive overrelaxed bound optimization methods", ICML 2003, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from attrs import frozen
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints
from privopt.errors import SolverError

MAX_CELLS: Final = 160
"""The maximum number of cells into which outputs are merged.

In a test with 200,000 trips between 2,032 street nodes, a flow's mean error was not much smaller with 300 cells. For
four kinds of trips, it was 3.9, 5.5, 6.6 and 40 % of the flow, compared with 3.9, 5.7, 9.1 and 39 % with 160 cells.
"""

MAX_ROUNDS: Final = 100
"""The maximum number of rounds of expectation maximisation that cross-validation can choose."""

MAX_WORSE_ROUNDS: Final = 10
"""The number of rounds without an improvement after which cross-validation stops."""

TIE: Final = 1.0
"""The largest decrease in the total held-out log-likelihood of all trips that is accepted in exchange for fewer
rounds."""

GROWTH: Final = 1.4
"""The factor by which the power of D grows after each successful round. After a failure, the power is reset to 1.

With factors of 1.2 and 2, the likelihood after 20 rounds was about the same. With other reductions after failures, it
was smaller.
"""

MIN_WEIGHT: Final = 1e-200
"""The smallest weight of a pair of bumps. A weight of 0 would remain 0 in all later rounds."""

MAX_SCALINGS: Final = 10_000
"""The maximum number of times to scale rows and columns. If their sums still differ after that, an error is raised."""

SUM_TOLERANCE: Final = 1e-10
"""The largest allowed difference between the flows' row and column sums and the estimates of starts and ends."""


@frozen(kw_only=True, eq=False)
class FlowFit:
    """Flows between G groups, fitted with M bumps and L cells.

    Bumps are smooth distributions over records, and cells are sets of similar outputs.

    Attributes:
        weights: (M, M) The weights of pairs of bumps, which sum to 1.
        cell_probabilities: (L, L) The probability of each pair of cells.
        flows: (G, G) The share of trips from each group (row) to each group (column), before the flows are scaled to
            the estimated shares of starts and ends.
        gap: A proved bound on how far the log-likelihood of the cells is below its maximum, per trip.
    """

    weights: Floats
    cell_probabilities: Floats
    flows: Floats
    gap: float


def log_likelihood_of(counts: Floats, expected: Floats) -> float:
    """Return the log-likelihood of the counts of cell pairs, given the probabilities of these pairs.

    Args:
        counts: (L, L) The number of trips for each pair of reported cells.
        expected: (L, L) The probability of each pair.
    """
    is_counted = counts > 0
    with np.errstate(divide="ignore"):  # a pair that cannot occur makes the result minus infinity
        return float(counts[is_counted] @ np.log(expected[is_counted]))


@frozen(kw_only=True, eq=False)
class FlowRound:
    """The state of a fit after a round of expectation maximisation, for M bumps and L cells of outputs.

    Attributes:
        weights: (M, M) The weights of pairs of bumps, which sum to 1.
        expected: (L, L) The probability of each pair of cells under these weights.
        log_likelihood: The log-likelihood of all trips.
    """

    weights: Floats
    expected: Floats
    log_likelihood: float

    @staticmethod
    def of(columns: Floats, counts: Floats, weights: Floats) -> FlowRound:
        """Create a round from weights, which are first scaled to sum to 1.

        The arguments are the same as those of :func:`improve_flows`.
        """
        scaled = np.maximum(weights / weights.sum(), MIN_WEIGHT)
        expected = columns.T @ scaled @ columns
        return FlowRound(weights=scaled, expected=expected, log_likelihood=log_likelihood_of(counts, expected))

    def factors(self, columns: Floats, counts: Floats) -> Floats:
        """Return the factors by which the next round multiplies the weights, as an array of shape (M, M).

        The factors are scaled so that the largest one is 1, which keeps their powers finite.
        """
        slope = self._slope(columns, counts)
        scaled: Floats = slope / slope.max()
        return scaled

    def gap(self, columns: Floats, counts: Floats) -> float:
        """Return an upper bound on how far the log-likelihood per trip is below its maximum.

        The bound is the logarithm of the largest derivative of the log-likelihood per trip with respect to a weight, or
        0 if the logarithm is negative.
        """
        return max(0.0, float(np.log(self._slope(columns, counts).max())))

    def _slope(self, columns: Floats, counts: Floats) -> Floats:
        """Return D, the (M, M) array of derivatives of the log-likelihood, per trip, with respect to each weight."""
        ratios = np.divide(counts / counts.sum(), self.expected, out=np.zeros_like(counts), where=counts > 0)
        slope: Floats = columns @ ratios @ columns.T
        return slope


def merge_outputs(columns: Floats, max_cells: int = MAX_CELLS) -> Ints:
    """Merge outputs that reveal almost the same information about the secret, and return each output's cell index.

    The result has shape (K,). The centres of the cells are outputs chosen by farthest-first traversal, and each output
    belongs to the cell with the nearest centre. The distance between two outputs is the Hellinger distance between the
    posterior distributions of the secret given each output, with a uniform prior.

    Args:
        columns: (N, K) The probability of each output given each record or bump.
        max_cells: The maximum number of cells.
    """
    totals = columns.sum(axis=0)
    roots = np.sqrt(columns / np.where(totals > 0, totals, 1.0)).T
    cells = np.zeros(len(roots), dtype=np.int64)
    # Among unit vectors, the one with the smallest inner product is the farthest.
    closeness = roots @ roots[int(totals.argmax())]
    # An output that no record ever reports is put in the first cell.
    closeness[totals <= 0] = 1.0
    count = 1
    # If the inner product is 1, up to rounding, an output says the same as the output at its cell's centre.
    while count < min(max_cells, len(roots)) and closeness.min() < 1.0 - 1e-12:
        products = roots @ roots[int(closeness.argmin())]
        products[totals <= 0] = 0.0
        is_closer = products > closeness
        cells[is_closer], closeness[is_closer] = count, products[is_closer]
        count += 1
    return cells


def merge_columns(columns: Floats, cells: Ints) -> Floats:
    """Sum the probabilities of the outputs in each cell, and return the probability of each cell given each record.

    Args:
        columns: (N, K) The probability of each output given each record.
        cells: (K,) The index of each output's cell.

    Returns:
        Array of shape (N, L) for L cells.
    """
    membership = csr_array((np.ones(len(cells)), (np.arange(len(cells)), cells)), shape=(len(cells), cells.max() + 1))
    merged: Floats = columns @ membership
    return merged


def improve_flows(columns: Floats, counts: Floats, weights: Floats) -> Iterator[FlowRound]:
    """Yield the initial weights, and then the weights after each round of over-relaxed expectation maximisation.

    The log-likelihood rises from each round to the next. The iteration stops when it no longer rises.

    Args:
        columns: (M, L) The matrix A, which contains the probability of each cell of outputs given each bump.
        counts: (L, L) The number of trips for each pair of reported cells, with start cells in rows.
        weights: (M, M) The initial weights of pairs of bumps, which are positive and sum to 1.
    """
    current = FlowRound.of(columns, counts, weights)
    power = 1.0
    while True:
        yield current
        factors = current.factors(columns, counts)
        following = FlowRound.of(columns, counts, current.weights * factors**power)
        # Written with "not >=" instead of "<", because a large power can give NaN.
        if power > 1.0 and not following.log_likelihood >= current.log_likelihood:
            power = 1.0
            following = FlowRound.of(columns, counts, current.weights * factors)
        else:
            power *= GROWTH
        if not following.log_likelihood > current.log_likelihood:
            return
        current = following


def fit_flows(columns: Floats, counts: Floats, groups: Floats, weights: Floats, *, gap: float, rounds: int) -> FlowFit:
    """Fit flows between groups in at most ``rounds`` rounds, stopping early once the gap is reached.

    Args:
        columns: (M, L) The probability of each cell of outputs given each bump.
        counts: (L, L) The number of trips for each pair of reported cells, with start cells in rows.
        groups: (M, G) The fraction of each bump that lies in each group.
        weights: (M, M) The initial weights of pairs of bumps, which are positive and sum to 1.
        gap: The fit stops once its log-likelihood per trip is proved to be within this distance of the maximum. This is
            tested before the first round and after every tenth one.
        rounds: The maximum number of rounds.
    """
    for number, current in enumerate(improve_flows(columns, counts, weights)):
        if number == rounds or (number % 10 == 0 and current.gap(columns, counts) <= gap):
            break
    return FlowFit(
        weights=current.weights,
        cell_probabilities=current.expected,
        flows=groups.T @ current.weights @ groups,
        gap=current.gap(columns, counts),
    )


def choose_rounds(
    columns: Floats, counts: Floats, groups: Floats, link: Callable[[Floats], Floats], rng: np.random.Generator
) -> int:
    """Return the number of rounds with the best held-out likelihood in two-fold cross-validation.

    Trips are split at random into two halves, and flows are fitted to each half. After each round, the flows are scored
    on the other half using two likelihoods: the likelihood of the reported cells, and the likelihood of the groups that
    the reports most likely belong to. With many cells, the first likelihood alone would favour flows that are too
    uniform, even if there are enough trips per group to show differences. For each likelihood, the smallest number of
    rounds that is about as good as the best is determined, and the larger of these two numbers is returned.

    Args:
        columns: (M, L) The probability of each cell of outputs given each bump.
        counts: (L, L) The number of trips for each pair of reported cells, with start cells in rows.
        groups: (M, G) The fraction of each bump that lies in each group.
        link: A function that takes counts of shape (L, L) and returns initial weights of shape (M, M).
        rng: The random number generator used to split the trips.
    """
    first = rng.binomial(counts.astype(np.int64), 0.5).astype(np.float64)
    halves = [first, counts - first]
    if min(half.sum() for half in halves) == 0:
        return 0
    # Shape (L, G), with a 1 for the group that each cell's reports most likely belong to under uniform shares.
    group_indicators = np.eye(groups.shape[1])[(columns.T @ groups).argmax(axis=1)]

    def by_group(values: Floats) -> Floats:
        """Sum an (L, L) array of values for pairs of cells to obtain a (G, G) array of values for pairs of groups."""
        sums: Floats = group_indicators.T @ values @ group_indicators
        return sums

    # The log-likelihoods of cells and of groups after each number of rounds.
    values: list[tuple[float, float]] = []
    paths = [improve_flows(columns, half, link(half)) for half in halves]
    for steps in zip(*paths, strict=False):
        held_out = list(zip(reversed(halves), (step.expected for step in steps), strict=True))
        values.append(
            (
                sum(log_likelihood_of(half, expected) for half, expected in held_out),
                sum(log_likelihood_of(by_group(half), by_group(expected)) for half, expected in held_out),
            )
        )
        rounds = len(values) - 1
        if rounds == MAX_ROUNDS or rounds - np.argmax(values, axis=0).max() >= MAX_WORSE_ROUNDS:
            break
    # Find the smallest number of rounds that is about as good as the best for each likelihood, and take the larger one.
    is_best = np.array(values) >= np.max(values, axis=0) - TIE
    return int(is_best.argmax(axis=0).max())


def scale_to_sums(flows: Floats, starts: Floats, ends: Floats) -> Floats:
    """Scale the rows and columns of flows until they have the given sums (iterative proportional fitting).

    Args:
        flows: (G, G) The non-negative flows.
        starts: (G,) The required row sums, which sum to 1.
        ends: (G,) The required column sums, which sum to 1. All sums are positive.

    Raises:
        SolverError: The sums still differ after :data:`MAX_SCALINGS` scalings.
    """
    # A flow rounded to 0 could make the required sums impossible.
    scaled: Floats = np.maximum(flows, 1e-15)
    for _ in range(MAX_SCALINGS):
        scaled *= (starts / scaled.sum(axis=1))[:, None]
        scaled *= ends / scaled.sum(axis=0)
        if np.abs(scaled.sum(axis=1) - starts).max() <= SUM_TOLERANCE:
            return scaled
    raise SolverError("flows could not be scaled to the shares of their starts and ends")
