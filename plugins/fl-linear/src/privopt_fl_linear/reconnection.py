"""Reconnection (Algorithm 3), and its radius chosen from the noisy counts within the guarantee (``"auto"``).

Choosing is post-processing, so it is free of privacy; but the noise that chooses is the noise that may fail. With m
radii the union bound would take margins at alpha / m, which costs 5 to 18 % at small counts. Here the choice depends
on one number, the total B' of the noisy counts: radius i is used while tau_i <= B' < tau_{i+1}. Then

    P(failure) <= sum over i, v of P(S_v > t_v and tau_i <= B - S_v - Z_v < tau_{i+1}),

where S_v is what the noise takes from facility v of radius i, t_v its margin, Z_v what it takes elsewhere, independent
of S_v, and B the true total. The right side is a function of B and public data; `failure_bound` bounds its maximum over
all B from above. It takes S_v in layers and B in cells, both rounded to the safe side. `policy` lowers the level of the
margins until that maximum is at most alpha. Far from every threshold the sum is Theorem 3's; near one the events of two
radii share the probability of one, so hardly anything is lost.

The thresholds are public: the lower envelope of the lines cost_i(B) = margins_i + B / n * (cost of one client at every
location under radius i), i.e. B is taken as evenly spread.

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
"""Radii of the public grid, next to 0."""
CELLS_PER_DEVIATION = 32
"""Cells of the total to one of its standard deviations."""
TAIL_ERROR = 1e-9
"""Error of each tail that enters a failure bound, which is counted against the bound."""
EDGE_SLACK = 1e-12


def reconnect(site: Site, base: Assignment, delta: float) -> Assignment:
    """Merge facilities that are near each other (Algorithm 3).

    The independent set of G (edges at d <= 2 delta) is selected greedily by the lowest facility cost, ties by number.
    Theorem 6 fails for other maximal sets. Locations within delta of a selected facility go to it, and all others to
    the cheapest selected one. A location pays at most 2 delta more for each client than before (the paper proves 4).
    Inside a ball f_v + d(u, v) <= f_w + d(w, u) + 2 d(u, v). Outside, w has a selected neighbour x with f_x <= f_w,
    and f_x + d(u, x) <= f_w + d(u, w) + 2 delta.

    Edges have a relative slack of 1e-12, so that no two balls share a location in spite of rounding.

    Args:
        site: The locations.
        base: Their connection by `Site.connect`. A radius of 0 returns it unchanged.
        delta: Reconnection radius, >= 0, in the metric's unit.
    """
    if delta == 0.0:
        return base
    metric, cost = site.metric, site.cost
    order = base.opened[np.argsort(cost[base.opened], kind="stable")]
    centres = np.sort(metric.select_independent(order, 2.0 * delta * (1.0 + EDGE_SLACK)))
    facility = metric.cheapest(centres, cost)
    owner = metric.assign_balls(centres, delta)
    return Assignment.from_facilities(np.where(owner >= 0, owner, facility))


def grid(extent: float) -> tuple[float, ...]:
    """Return the public grid of radii: 0, and extent / 2^(j/3) for j = 0 .. 23, ascending.

    ``extent`` is half the diameter of the locations' bounding box (half the largest distance of a matrix). At that
    radius one facility remains.
    """
    return (0.0, *sorted(extent * 2.0 ** (-j / 3.0) for j in range(GRID_RADII)))


def level_cut_short(alpha: float) -> float:
    """Return the failure probability at which any choice from the grid keeps alpha, by the union bound."""
    return alpha / (GRID_RADII + 1)


@frozen(eq=False)
class Candidate:
    """One radius and its cost, a linear function of the mean count.

    Attributes:
        delta: The radius. 0 is Algorithm 2.
        assignment: The facility that serves each location.
        slope: Cost of one client at every location, sum over v of f_h(v) + d(v, h(v)).
        offset: Cost of the margins at the promised failure probability.
    """

    delta: float
    assignment: Assignment
    slope: float
    offset: float


def list_radii(site: Site, base: Assignment, rule: MarginRule, alpha: float) -> list[Candidate]:
    """Return each radius of the grid with its two costs. Radii that change nothing are omitted.

    Raises:
        OutOfTime: The innermost scope of time ended.
    """
    everyone = np.arange(site.size)
    candidates: list[Candidate] = []
    for delta in grid(site.metric.extent):
        check("all radii were tried")
        assignment = reconnect(site, base, delta)
        if candidates and np.array_equal(candidates[-1].assignment.facility, assignment.facility):
            continue
        facility = assignment.facility
        slope = math.fsum(site.cost[facility] + site.metric.distances_between(everyone, facility))
        offset = math.fsum(rule.margins(assignment.sizes, alpha) * site.cost[assignment.opened])
        candidates.append(Candidate(delta, assignment, slope, offset))
    return candidates


def choose_at_mean(choices: Sequence[Candidate], mean_clients: float) -> Candidate:
    """Return the candidate that is cheapest if every location has ``mean_clients``, which is public knowledge."""
    return min(choices, key=lambda c: (c.offset + mean_clients * c.slope, c.delta))


@frozen(eq=False)
class Policy:
    """A public rule that maps each noisy total B' to a radius.

    Attributes:
        choices: The radii, in the order of increasing totals.
        thresholds: Ascending totals. ``choices[i]`` is used from ``thresholds[i - 1]`` on.
        level: Failure probability of the margins, at most the promised one.
        bound: Proved bound on the failure probability over all true totals.
    """

    choices: tuple[Candidate, ...]
    thresholds: Floats
    level: float
    bound: float

    def choose_radius(self, total: float) -> Candidate:
        """Return the radius for a noisy total."""
        return self.choices[int(np.searchsorted(self.thresholds, total, side="right"))]


def _lower_envelope(choices: Sequence[Candidate], n: int) -> tuple[list[Candidate], list[float]]:
    """Return the candidates on the lower envelope over totals >= 0, and the totals at which they take over."""
    current = min(choices, key=lambda c: (c.offset, c.slope))
    selected = [current]
    thresholds: list[float] = []
    while True:
        flatter = [c for c in choices if c.slope < current.slope]
        if not flatter:
            return selected, thresholds
        meets = [
            (n * (c.offset - current.offset) / (current.slope - c.slope), c.slope, i) for i, c in enumerate(flatter)
        ]
        threshold, _, index = min(meets)
        current = flatter[index]
        selected.append(current)
        thresholds.append(threshold)


def _thin_envelope(choices: Sequence[Candidate], n: int, min_width: float) -> tuple[list[Candidate], list[float]]:
    """Thin the envelope until each radius is used over at least ``min_width``, because the total is that noisy."""
    choices = list(choices)
    while True:
        selected, thresholds = _lower_envelope(choices, n)
        widths = np.diff([0.0, *thresholds])
        if len(widths) == 0 or widths.min() >= min_width:
            return selected, thresholds
        choices = [c for c in selected if c is not selected[int(np.argmin(widths))]]


def _layer_masses(k: int, t: float, h: float, epsilon: float, noise: Noise) -> Floats:
    """Return P(t + l h < S <= t + (l + 1) h) for l = 0, 1, ..., where the last layer has no upper end."""
    max_excess = chernoff_quantile(k, 1e-9, epsilon, noise)
    upper_tails = np.maximum(
        tails(k, t + h * np.arange(max(1, math.ceil((max_excess - t) / h))), epsilon, noise, 1e-11), 0.0
    )
    upper_tails = np.minimum.accumulate(upper_tails + 1e-11)
    layer_count = max(1, int(np.searchsorted(-upper_tails, -1e-4 * upper_tails[0])))
    return np.append(-np.diff(upper_tails[:layer_count]), upper_tails[layer_count - 1])


def _bound_profile(
    k: int, n: int, t: float, h: float, reach: int, epsilon: float, noise: Noise
) -> tuple[Floats, Floats]:
    """Bound P(S > t and S + Z <= x) from above and below, at x = g h for g = -reach .. reach.

    S is a sum of k draws, and Z one of n - k. S is rounded to the ends of its layers.
    """
    mass = _layer_masses(k, t, h, epsilon, noise)
    points = h * np.arange(-reach - len(mass), reach + 1) - t
    lower_tails = 1.0 - tails(n - k, points, epsilon, noise, TAIL_ERROR)
    count = len(mass)
    upper = np.convolve(np.minimum(lower_tails + TAIL_ERROR, 1.0), mass)[count : count + 2 * reach + 1]
    low_mass = mass.copy()
    low_mass[-1] = 0.0  # the open layer counts for nothing from below
    lower = np.convolve(np.maximum(lower_tails - TAIL_ERROR, 0.0), low_mass)[count - 1 : count + 2 * reach]
    return upper, lower


def failure_bound(
    choices: Sequence[Candidate],
    thresholds: Sequence[float],
    added: Sequence[Floats],
    rule: MarginRule,
) -> float:
    """Bound the probability that a facility of the chosen radius overflows, for any true counts.

    Args:
        choices, thresholds: See `Policy`.
        added: Margins of each choice's facilities.
        rule: The number of locations, epsilon and the noise.
    """
    n, epsilon, noise = rule.n, rule.epsilon, rule.noise
    sigma = math.sqrt(2.0 * n) / epsilon
    h = sigma / CELLS_PER_DEVIATION
    max_margin = max(float(a.max(initial=0.0)) for a in added)
    reach = math.ceil((chernoff_quantile(n, TAIL_ERROR, epsilon, noise) + max_margin) / h) + 2
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
    steps = np.rint(np.asarray(thresholds) / h).astype(np.int64)
    cells = np.unique(np.concatenate([s + np.arange(-reach - 1, reach + 2) for s in steps])) if len(steps) else [0]
    cells = np.asarray(cells)
    total = np.zeros(len(cells))
    for i, (upper, lower) in enumerate(zip(upper_sums, lower_sums, strict=True)):
        total += upper[-1] if i == 0 else upper[np.clip(cells + 1 - steps[i - 1] + reach, 0, 2 * reach)]
        if i < len(steps):
            cell_index = cells - steps[i] + reach
            total -= np.where(cell_index >= 0, lower[np.clip(cell_index, 0, 2 * reach)], 0.0)
    return float(total.max()) + 2.0 * TAIL_ERROR * max(len(a) for a in added)


def choose_policy(choices: Sequence[Candidate], rule: MarginRule, alpha: float) -> Policy:
    """Return the public rule that maps a noisy total to a radius, with margins that keep the promise alpha.

    It takes about a millisecond for each size of a facility that occurs, a few times.

    Args:
        choices: The radii, from `list_radii`.
        rule: How margins are computed.
        alpha: Failure probability of the choice as a whole. The level of the margins is searched.
    """
    sigma = math.sqrt(2.0 * rule.n) / rule.epsilon
    selected, exact_thresholds = _thin_envelope(choices, rule.n, sigma)
    h = sigma / CELLS_PER_DEVIATION
    thresholds = [h * round(threshold / h) for threshold in exact_thresholds]
    level, bound = alpha, alpha
    if len(selected) > 1:
        for _ in range(12):
            added = [rule.margins(c.assignment.sizes, level) for c in selected]
            bound = failure_bound(selected, thresholds, added, rule)
            if bound <= alpha:
                break
            level *= 0.999 * alpha / bound
            if level <= alpha / len(selected):
                break
        if bound > alpha:  # the plain union bound always holds, at a level that needs no search
            level, bound = alpha / len(selected), alpha
    return Policy(tuple(selected), np.asarray(thresholds, dtype=np.float64), level, bound)
