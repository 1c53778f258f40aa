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

    The independent set of G (edges at d <= 2 delta) is taken greedily by the lowest facility cost, ties by number:
    Theorem 6 fails for other maximal sets. Balls of radius delta then go to their centre, all other locations to the
    cheapest facility left. A location pays at most 2 delta more for each client than before (the paper proves 4).
    Inside a ball f_v + d(u, v) <= f_w + d(w, u) + 2 d(u, v). Outside, w has a neighbour x with f_x <= f_w that was
    kept, and f_x + d(u, x) <= f_w + d(u, w) + 2 delta.

    Edges are read with a relative slack of 1e-12, so that in doubles, too, no two balls share a location.

    Args:
        site: the locations.
        base: their connection by `Site.connect`; 0 radii leave it as it is.
        delta: reconnection radius, >= 0, in the metric's unit.
    """
    if delta == 0.0:
        return base
    metric, cost = site.metric, site.cost
    order = base.opened[np.argsort(cost[base.opened], kind="stable")]
    kept = np.sort(metric.independent(order, 2.0 * delta * (1.0 + EDGE_SLACK)))
    facility = metric.cheapest(kept, cost)
    owner = metric.balls(kept, delta)
    return Assignment.from_facilities(np.where(owner >= 0, owner, facility))


def grid(extent: float) -> tuple[float, ...]:
    """Return the public grid of radii: 0, and extent / 2^(j/3) for j = 0 .. 23, ascending.

    ``extent`` is half the diameter of the locations' bounding box (half the largest distance of a matrix): there one
    facility is left.
    """
    return (0.0, *sorted(extent * 2.0 ** (-j / 3.0) for j in range(GRID_RADII)))


def level_cut_short(alpha: float) -> float:
    """Return the failure probability under which any choice from the grid keeps alpha: the union bound."""
    return alpha / (GRID_RADII + 1)


@frozen(eq=False)
class Candidate:
    """One radius, and what it costs.

    Attributes:
        delta: the radius; 0 is Algorithm 2.
        assignment: who is served by whom.
        slope: cost of one client at every location, sum over v of f_h(v) + d(v, h(v)).
        offset: cost of the margins at the failure probability promised.
    """

    delta: float
    assignment: Assignment
    slope: float
    offset: float


def list_radii(site: Site, base: Assignment, rule: MarginRule, alpha: float) -> list[Candidate]:
    """Return each radius of the grid with its two costs; radii that change nothing are omitted.

    Raises:
        OutOfTime: the innermost scope of time ended.
    """
    everyone = np.arange(site.size)
    found: list[Candidate] = []
    for delta in grid(site.metric.extent):
        check("all radii were tried")
        assignment = reconnect(site, base, delta)
        if found and np.array_equal(found[-1].assignment.facility, assignment.facility):
            continue
        facility = assignment.facility
        slope = math.fsum(site.cost[facility] + site.metric.between(everyone, facility))
        offset = math.fsum(rule.margins(assignment.sizes, alpha) * site.cost[assignment.opened])
        found.append(Candidate(delta, assignment, slope, offset))
    return found


def choose_at_mean(choices: Sequence[Candidate], mean_clients: float) -> Candidate:
    """Return the candidate that is cheapest where every location has ``mean_clients`` (public knowledge)."""
    return min(choices, key=lambda c: (c.offset + mean_clients * c.slope, c.delta))


@frozen(eq=False)
class Policy:
    """Which radius each noisy total B' leads to.

    Attributes:
        choices: the radii used, from the one for the smallest totals on.
        thresholds: ascending totals; ``choices[i]`` holds from ``thresholds[i - 1]`` on.
        level: failure probability that the margins are computed for, at most the one promised.
        bound: proved bound on the failure probability, over all true totals.
    """

    choices: tuple[Candidate, ...]
    thresholds: Floats
    level: float
    bound: float

    def choose(self, total: float) -> Candidate:
        """Return the radius for a noisy total."""
        return self.choices[int(np.searchsorted(self.thresholds, total, side="right"))]


def _envelope(choices: Sequence[Candidate], n: int) -> tuple[list[Candidate], list[float]]:
    """Return the candidates on the lower envelope over totals from 0 on, and where each takes over."""
    now = min(choices, key=lambda c: (c.offset, c.slope))
    kept = [now]
    thresholds: list[float] = []
    while True:
        flatter = [c for c in choices if c.slope < now.slope]
        if not flatter:
            return kept, thresholds
        meets = [(n * (c.offset - now.offset) / (now.slope - c.slope), c.slope, i) for i, c in enumerate(flatter)]
        at, _, index = min(meets)
        now = flatter[index]
        kept.append(now)
        thresholds.append(at)


def _spaced(choices: Sequence[Candidate], n: int, min_width: float) -> tuple[list[Candidate], list[float]]:
    """Return the envelope thinned until each radius holds over at least ``min_width``: the total resolves no finer."""
    choices = list(choices)
    while True:
        kept, thresholds = _envelope(choices, n)
        widths = np.diff([0.0, *thresholds])
        if len(widths) == 0 or widths.min() >= min_width:
            return kept, thresholds
        choices = [c for c in kept if c is not kept[int(np.argmin(widths))]]


def _layers(k: int, t: float, h: float, epsilon: float, noise: Noise) -> Floats:
    """Return P(t + l h < S <= t + (l + 1) h) for l = 0, 1, ..., the last open above."""
    beyond = chernoff_quantile(k, 1e-9, epsilon, noise)
    above = np.maximum(tails(k, t + h * np.arange(max(1, math.ceil((beyond - t) / h))), epsilon, noise, 1e-11), 0.0)
    above = np.minimum.accumulate(above + 1e-11)
    keep = max(1, int(np.searchsorted(-above, -1e-4 * above[0])))
    return np.append(-np.diff(above[:keep]), above[keep - 1])


def _profile(k: int, n: int, t: float, h: float, reach: int, epsilon: float, noise: Noise) -> tuple[Floats, Floats]:
    """Bound P(S > t and S + Z <= x) from above and below.

    At x = g h, g = -reach .. reach; S is a sum of k draws, Z of n - k.
    """
    mass = _layers(k, t, h, epsilon, noise)
    points = h * np.arange(-reach - len(mass), reach + 1) - t
    below = 1.0 - tails(n - k, points, epsilon, noise, TAIL_ERROR)
    count = len(mass)
    high = np.convolve(np.minimum(below + TAIL_ERROR, 1.0), mass)[count : count + 2 * reach + 1]
    low_mass = mass.copy()
    low_mass[-1] = 0.0  # the open layer counts for nothing from below
    low = np.convolve(np.maximum(below - TAIL_ERROR, 0.0), low_mass)[count - 1 : count + 2 * reach]
    return high, low


def failure_bound(
    choices: Sequence[Candidate],
    thresholds: Sequence[float],
    added: Sequence[Floats],
    rule: MarginRule,
) -> float:
    """Bound the probability that a facility of the radius chosen overflows, whatever the true counts are.

    Args:
        choices, thresholds: as in `Policy`.
        added: the margins of each choice's facilities.
        rule: for n, epsilon and the noise.
    """
    n, epsilon, noise = rule.n, rule.epsilon, rule.noise
    sigma = math.sqrt(2.0 * n) / epsilon
    h = sigma / CELLS_PER_DEVIATION
    far = max(float(a.max(initial=0.0)) for a in added)
    reach = math.ceil((chernoff_quantile(n, TAIL_ERROR, epsilon, noise) + far) / h) + 2
    known: dict[tuple[int, float], tuple[Floats, Floats]] = {}
    tops, bottoms = [], []
    for choice, margin in zip(choices, added, strict=True):
        pairs, counts = np.unique(np.column_stack([choice.assignment.sizes, margin]), axis=0, return_counts=True)
        top, bottom = np.zeros(2 * reach + 1), np.zeros(2 * reach + 1)
        for (size, t), count in zip(pairs.tolist(), counts.tolist(), strict=True):
            if (size, t) not in known:
                known[size, t] = _profile(int(size), n, t, h, reach, epsilon, noise)
            top += count * known[size, t][0]
            bottom += count * known[size, t][1]
        tops.append(top)
        bottoms.append(bottom)
    steps = np.rint(np.asarray(thresholds) / h).astype(np.int64)
    cells = np.unique(np.concatenate([s + np.arange(-reach - 1, reach + 2) for s in steps])) if len(steps) else [0]
    cells = np.asarray(cells)
    total = np.zeros(len(cells))
    for i, (top, bottom) in enumerate(zip(tops, bottoms, strict=True)):
        total += top[-1] if i == 0 else top[np.clip(cells + 1 - steps[i - 1] + reach, 0, 2 * reach)]
        if i < len(steps):
            at = cells - steps[i] + reach
            total -= np.where(at >= 0, bottom[np.clip(at, 0, 2 * reach)], 0.0)
    return float(total.max()) + 2.0 * TAIL_ERROR * max(len(a) for a in added)


def choose_policy(choices: Sequence[Candidate], rule: MarginRule, alpha: float) -> Policy:
    """Return the public rule that turns a noisy total into a radius, with margins that keep the promise alpha.

    Args:
        choices: from `list_radii`.
        rule: how margins are made.
        alpha: failure probability of the chosen radius as a whole; the level of the margins is searched.

    Cost: about a millisecond for each size of a facility that occurs, a few times.
    """
    sigma = math.sqrt(2.0 * rule.n) / rule.epsilon
    kept, raw = _spaced(choices, rule.n, sigma)
    h = sigma / CELLS_PER_DEVIATION
    thresholds = [h * round(at / h) for at in raw]
    level, bound = alpha, alpha
    if len(kept) > 1:
        for _ in range(12):
            added = [rule.margins(c.assignment.sizes, level) for c in kept]
            bound = failure_bound(kept, thresholds, added, rule)
            if bound <= alpha:
                break
            level *= 0.999 * alpha / bound
            if level <= alpha / len(kept):
                break
        if bound > alpha:  # the plain union bound always holds, at a level that needs no search
            level, bound = alpha / len(kept), alpha
    return Policy(tuple(kept), np.asarray(thresholds, dtype=np.float64), level, bound)
