"""Reconnection (Algorithm 3), and the automatic choice of its radius from the noisy counts (``"auto"``).

The choice is post-processing, so it does not affect privacy. It does, however, depend on the noise that the margins
have to cover. With m radii, the union bound would require margins at level alpha / m, which would make the plan
5 to 18 % more expensive for small counts. Here the choice depends on only one number, the total B' of the noisy counts.
Radius i is used if tau_i <= B' < tau_{i+1}, where the tau_i are public thresholds. Then

    P(failure) <= sum over i, v of P(S_v > t_v and tau_i <= B - S_v - Z_v < tau_{i+1}).

Here v is a facility for radius i, t_v is its margin, and B is the true total. The noise lowers the count of v by S_v,
and all other counts by Z_v, which is independent of S_v. The right-hand side depends only on B and public data.
`failure_bound` returns an upper bound on its maximum over all B. It divides the values of S_v into intervals called
layers and the values of B into intervals called cells, and rounds both to the safe side. `choose_policy` lowers the
level of the margins until the bound is at most alpha. Far from every threshold, the sum equals the one in Theorem 3.
Near a threshold, two radii are possible, but each is chosen only part of the time, so the level can stay close to
alpha.

The thresholds are read from the lower envelope of the lines cost_i(B) = margins_i + B / n * (cost of one client at
every location under radius i). These lines assume that the B clients are spread evenly over the n locations.

Source of Algorithm 3: Pfisterer, Hillebrand, Suppakitpaisarn, section 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.execution.clock import check
from privopt_fl_linear.margins import MarginRule
from privopt_fl_linear.quantiles import Noise, chernoff_quantile, tails
from privopt_fl_linear.site import Assignment, Site

__all__ = [
    "Candidate",
    "Policy",
    "choose_at_mean",
    "choose_policy",
    "failure_bound",
    "grid",
    "level_cut_short",
    "list_radii",
    "reconnect",
]

GRID_RADII = 24
"""The number of radii in the public grid in addition to 0."""
CELLS_PER_DEVIATION = 32
"""The number of cells per standard deviation of the noisy total."""
TAIL_ERROR = 1e-9
"""The absolute error of the tail probabilities used to compute a failure bound. The bound allows for this error."""
EDGE_SLACK = 1e-12
"""The relative amount added to the distance 2 delta so that rounding cannot make two balls share a location."""


def reconnect(site: Site, base: Assignment, delta: float) -> Assignment:
    """Merge facilities that are close together (Algorithm 3), and return the new assignment of locations.

    Consider the graph G that joins any two facilities at a distance d <= 2 delta. A maximal independent set of G is
    selected greedily in ascending order of the facility cost f, with ties broken by location index. Locations within
    delta of a selected facility are assigned to it, and all others to their cheapest selected facility.

    Reconnection raises the cost of a client at location u, previously served by facility w, by at most 2 delta (the
    paper proves 4 delta). If u is within delta of a selected facility v, then f_v + d(u, v) <= f_w + d(w, u) + 2 d(u,
    v). Otherwise w is selected itself or has a selected neighbour x with f_x <= f_w, and f_x + d(u, x) <= f_w + d(u, w)
    + 2 delta.

    Args:
        site: The locations.
        base: The assignment made by `Site.connect`.
        delta: The non-negative reconnection radius, in the metric's unit. If 0, ``base`` is returned unchanged.
    """
    if delta == 0.0:
        return base
    metric, cost = site.metric, site.cost
    # Cheaper facilities come first, because Theorem 6 does not hold for other maximal independent sets
    # (docs/papers/fl-linear.md).
    order = base.opened[np.argsort(cost[base.opened], kind="stable")]
    centres = np.sort(metric.select_independent(order, 2.0 * delta * (1.0 + EDGE_SLACK)))
    facility = metric.cheapest(centres, cost)
    owner = metric.assign_balls(centres, delta)
    return Assignment.from_facilities(np.where(owner >= 0, owner, facility))


def grid(extent: float) -> tuple[float, ...]:
    """Return the public grid of radii in ascending order: 0 and extent / 2^(j/3) for j = 0 to 23.

    ``extent`` is half the diagonal of the locations' bounding box or, if there is a matrix, half the largest distance.
    With a radius of ``extent``, only one facility remains.
    """
    return (0.0, *sorted(extent * 2.0 ** (-j / 3.0) for j in range(GRID_RADII)))


def level_cut_short(alpha: float) -> float:
    """Return a failure probability at which margins remain valid whichever radius of the public grid is used.

    This is alpha divided by the number of radii. By the union bound, the total failure probability is then at most
    alpha, however the radius is chosen. It is used if the time limit expires before all radii have been tried.
    """
    return alpha / (GRID_RADII + 1)


@frozen(eq=False)
class Candidate:
    """A reconnection radius and the resulting plan, whose cost is offset + slope * mean for a given mean count.

    Attributes:
        delta: The radius, which is 0 if nothing is reconnected (Algorithm 2).
        assignment: The facility that serves each location.
        slope: The cost of one client at every location, excluding margins. This is the sum of the facility cost f_h(v)
            and the distance d(v, h(v)) over all locations v, where h(v) is the facility of v.
        offset: The cost of the margins at the promised failure probability.
    """

    delta: float
    assignment: Assignment
    slope: float
    offset: float


def list_radii(site: Site, base: Assignment, rule: MarginRule, alpha: float) -> list[Candidate]:
    """Return a candidate for each radius of the grid, in ascending order of the radius.

    A radius is omitted if it leads to the same assignment as the next smaller one.

    Args:
        site: The locations.
        base: The assignment before reconnection.
        rule: The rule for computing margins.
        alpha: The total failure probability of the margins.

    Raises:
        OutOfTime: The enclosing time limit expired.
    """
    everyone = np.arange(site.size)
    candidates: list[Candidate] = []
    for delta in grid(site.metric.extent):
        check("all radii were tried")  # raises OutOfTime, with a message that time ended before this
        assignment = reconnect(site, base, delta)
        # Adjacent radii often lead to the same connections, for which one candidate is enough.
        if candidates and np.array_equal(candidates[-1].assignment.facility, assignment.facility):
            continue
        facility = assignment.facility
        # A client at v costs a unit of capacity at its facility and the distance to it.
        slope = math.fsum(site.cost[facility] + site.metric.distances_between(everyone, facility))
        offset = math.fsum(rule.margins(assignment.sizes, alpha) * site.cost[assignment.opened])
        candidates.append(Candidate(delta, assignment, slope, offset))
    return candidates


def choose_at_mean(choices: Sequence[Candidate], mean_clients: float) -> Candidate:
    """Return the candidate with the lowest cost for a publicly known mean count of ``mean_clients`` per location."""
    return min(choices, key=lambda c: (c.offset + mean_clients * c.slope, c.delta))


@frozen(eq=False)
class Policy:
    """A public rule that determines the reconnection radius from the total B' of all noisy counts.

    Attributes:
        choices: The candidates, in the order of the totals at which they are used.
        thresholds: The totals at which the candidate changes, in clients and in ascending order. ``choices[i]`` is used
            if ``thresholds[i - 1] <= B' < thresholds[i]``.
        level: The failure probability for which margins are computed, which is at most the promised one.
        bound: The proved upper bound on the failure probability, for any true total.
    """

    choices: tuple[Candidate, ...]
    thresholds: Floats
    level: float
    bound: float

    def choose_radius(self, total: float) -> Candidate:
        """Return the candidate to use for a noisy total, given in clients."""
        return self.choices[int(np.searchsorted(self.thresholds, total, side="right"))]


def _lower_envelope(choices: Sequence[Candidate], n: int) -> tuple[list[Candidate], list[float]]:
    """Return the candidates that are cheapest at some total B >= 0, and the totals at which the cheapest one changes.

    For n locations, the cost of a candidate at a total of B clients is the line offset + B / n * slope. The result
    describes the lower envelope of these lines. Both lists are in ascending order of B.
    """
    # At a total of 0, only the margins have a cost. If there is a tie, the line with the smallest slope is the lowest
    # from there on.
    current = min(choices, key=lambda c: (c.offset, c.slope))
    selected = [current]
    thresholds: list[float] = []
    while True:
        flatter = [c for c in choices if c.slope < current.slope]
        if not flatter:
            return selected, thresholds
        # The totals at which the flatter lines meet the current one. The first to meet it is the next line of the
        # envelope. Ties go to the smallest slope.
        meets = [
            (n * (c.offset - current.offset) / (current.slope - c.slope), c.slope, i) for i, c in enumerate(flatter)
        ]
        threshold, _, index = min(meets)
        current = flatter[index]
        selected.append(current)
        thresholds.append(threshold)


def _thin_envelope(choices: Sequence[Candidate], n: int, min_width: float) -> tuple[list[Candidate], list[float]]:
    """Return the lower envelope without candidates that are cheapest over a range of less than ``min_width`` clients.

    ``min_width`` is the standard deviation of the noise in the total. If a candidate's range is narrower than this, it
    would mainly be chosen or missed by chance. The two lists are as described in `_lower_envelope`.
    """
    choices = list(choices)
    while True:
        selected, thresholds = _lower_envelope(choices, n)
        widths = np.diff([0.0, *thresholds])
        if len(widths) == 0 or widths.min() >= min_width:
            return selected, thresholds
        # The radius with the narrowest range is dropped, and the envelope of the others is computed again. The last
        # radius is never dropped, because its range is unbounded.
        choices = [c for c in selected if c is not selected[int(np.argmin(widths))]]


def _layer_masses(k: int, t: float, h: float, epsilon: float, noise: Noise) -> Floats:
    """Return the probability of each layer above the margin t for a sum S of k noise draws.

    Layer l = 0, 1, ... is the event t + l h < S <= t + (l + 1) h. The last layer has no upper limit.

    Args:
        k: The number of draws of Laplace(1/epsilon) noise.
        t, h: The margin and the height of a layer, in clients.
        epsilon, noise: The rate and the kind of the noise.
    """
    # S exceeds this value with a probability of at most 1e-9, so no layers are needed above it.
    max_excess = chernoff_quantile(k, 1e-9, epsilon, noise)
    upper_tails = np.maximum(
        tails(k, t + h * np.arange(max(1, math.ceil((max_excess - t) / h))), epsilon, noise, 1e-11), 0.0
    )
    # Computed tails may be too small by 1e-11, so this is added. They are also made non-increasing, so that no layer
    # has a negative probability.
    upper_tails = np.minimum.accumulate(upper_tails + 1e-11)
    # Layers beyond the point where the tail has fallen to 1e-4 of the first one are merged into the last, open layer.
    layer_count = max(1, int(np.searchsorted(-upper_tails, -1e-4 * upper_tails[0])))
    return np.append(-np.diff(upper_tails[:layer_count]), upper_tails[layer_count - 1])


def _bound_profile(
    k: int, n: int, t: float, h: float, reach: int, epsilon: float, noise: Noise
) -> tuple[Floats, Floats]:
    """Return upper and lower bounds on P(S > t and S + Z <= x) at the points x = g h for g from -reach to reach.

    S is the amount by which the noise lowers the count of one facility, a sum of k draws. The facility fails if S > t.
    Z is the amount by which the noise lowers all other counts, a sum of n - k draws. The values of S above t are
    divided into layers of height h, and S is rounded to the upper or the lower end of its layer.

    Args:
        k, n: The number of locations that the facility serves, and the number of all locations.
        t, h: The facility's margin and the step between the points x, in clients.
        reach: The number of steps on either side of 0.
        epsilon, noise: The rate and the kind of the noise.

    Returns:
        The upper bounds and the lower bounds, both of shape (2 reach + 1,).
    """
    mass = _layer_masses(k, t, h, epsilon, noise)
    points = h * np.arange(-reach - len(mass), reach + 1) - t
    cumulative = 1.0 - tails(n - k, points, epsilon, noise, TAIL_ERROR)  # P(Z <= point), up to TAIL_ERROR
    # The event is likeliest if S is at the lower end t + l h of its layer, which gives the upper bounds. The slices of
    # the convolutions contain the sums over l of mass[l] * P(Z <= g h - t - l h), and for the lower bounds the same
    # with l + 1 in place of l.
    count = len(mass)
    upper = np.convolve(np.minimum(cumulative + TAIL_ERROR, 1.0), mass)[count : count + 2 * reach + 1]
    low_mass = mass.copy()
    low_mass[-1] = 0.0  # the last layer has no upper end, so it adds nothing to the lower bounds
    lower = np.convolve(np.maximum(cumulative - TAIL_ERROR, 0.0), low_mass)[count - 1 : count + 2 * reach]
    return upper, lower


def failure_bound(
    choices: Sequence[Candidate],
    thresholds: Sequence[float],
    added: Sequence[Floats],
    rule: MarginRule,
) -> float:
    """Return an upper bound on the probability that at least one facility overflows, whatever the true counts are.

    The radius is determined by the total of all noisy counts. The bound is the maximum over all true totals of a sum
    over all radii and their facilities (see the formula in the module docstring). Each term is the probability that the
    radius is chosen and the noise exceeds the facility's margin.

    Args:
        choices: The candidates, in the order of the totals at which they are used.
        thresholds: The totals, in clients and ascending order. ``choices[i]`` is used from ``thresholds[i - 1]`` on.
        added: The margins of each choice's facilities, in clients.
        rule: The number of locations, epsilon and the kind of noise.
    """
    n, epsilon, noise = rule.n, rule.epsilon, rule.noise
    sigma = math.sqrt(2.0 * n) / epsilon
    h = sigma / CELLS_PER_DEVIATION
    max_margin = max(float(a.max(initial=0.0)) for a in added)
    # If the true total is more than this many cells away from a threshold, the noise carries the noisy total across it
    # with a probability of at most TAIL_ERROR. Two more cells make up for rounding to cells.
    reach = math.ceil((chernoff_quantile(n, TAIL_ERROR, epsilon, noise) + max_margin) / h) + 2
    # A profile is a pair of bounds from `_bound_profile`, which takes a millisecond to compute. Facilities of the same
    # size and margin share one.
    profiles: dict[tuple[int, float], tuple[Floats, Floats]] = {}
    upper_sums, lower_sums = [], []
    for choice, margin in zip(choices, added, strict=True):
        pairs, counts = np.unique(np.column_stack([choice.assignment.sizes, margin]), axis=0, return_counts=True)
        upper, lower = np.zeros(2 * reach + 1), np.zeros(2 * reach + 1)
        for (size, t), count in zip(pairs.tolist(), counts.tolist(), strict=True):
            if (size, t) not in profiles:
                profiles[size, t] = _bound_profile(int(size), n, t, h, reach, epsilon, noise)
            upper += count * profiles[size, t][0]
            lower += count * profiles[size, t][1]
        upper_sums.append(upper)
        lower_sums.append(lower)
    # Cell c covers the totals B from c h to (c + 1) h. Only cells near a threshold are examined, because profiles are
    # constant elsewhere.
    steps = np.rint(np.asarray(thresholds) / h).astype(np.int64)
    cells = np.unique(np.concatenate([s + np.arange(-reach - 1, reach + 2) for s in steps])) if len(steps) else [0]
    cells = np.asarray(cells)
    total = np.zeros(len(cells))
    for i, (upper, lower) in enumerate(zip(upper_sums, lower_sums, strict=True)):
        # Radius i is used while thresholds[i - 1] <= B' < thresholds[i]. Its term is the upper profile at B -
        # thresholds[i - 1] minus the lower profile at B - thresholds[i]. The first radius has no lower threshold. To be
        # on the safe side, the upper profile is evaluated at the upper end of the cell, and the lower profile at its
        # lower end.
        total += upper[-1] if i == 0 else upper[np.clip(cells + 1 - steps[i - 1] + reach, 0, 2 * reach)]
        if i < len(steps):
            cell_index = cells - steps[i] + reach
            total -= np.where(cell_index >= 0, lower[np.clip(cell_index, 0, 2 * reach)], 0.0)
    # The second term accounts for the tails beyond `reach`, for every facility of the largest choice.
    return float(total.max()) + 2.0 * TAIL_ERROR * max(len(a) for a in added)


def choose_policy(choices: Sequence[Candidate], rule: MarginRule, alpha: float) -> Policy:
    """Return a public rule that chooses a radius for each noisy total, with a failure probability of at most alpha.

    The level of the margins is lowered until `failure_bound` is at most alpha, in at most 12 attempts. Each attempt
    takes about a millisecond per distinct facility size. If none succeeds, the level is derived from the union bound
    over the radii.

    Args:
        choices: The candidates from `list_radii`.
        rule: The rule for computing margins.
        alpha: The total failure probability, taking the choice of the radius into account.
    """
    sigma = math.sqrt(2.0 * rule.n) / rule.epsilon
    selected, exact_thresholds = _thin_envelope(choices, rule.n, sigma)
    h = sigma / CELLS_PER_DEVIATION
    # Thresholds are rounded to ends of cells, so that no threshold is inside a cell of `failure_bound`. Any thresholds
    # are valid as long as they are public.
    thresholds = [h * round(threshold / h) for threshold in exact_thresholds]
    level, bound = alpha, alpha
    if len(selected) > 1:
        for _ in range(12):
            added = [rule.margins(c.assignment.sizes, level) for c in selected]
            bound = failure_bound(selected, thresholds, added, rule)
            if bound <= alpha:
                break
            # The bound is nearly proportional to the level. Once the level is as low as that of the union bound, there
            # is nothing more to gain.
            level *= 0.999 * alpha / bound
            if level <= alpha / len(selected):
                break
        if bound > alpha:  # the union bound over the radii is valid at this level
            level, bound = alpha / len(selected), alpha
    return Policy(tuple(selected), np.asarray(thresholds, dtype=np.float64), level, bound)
