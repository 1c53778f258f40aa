"""The certificate of a guarantee between any two points of a region: |grad z_k| <= epsilon min z_k on every simplex.

On a street that is z_b <= (1 + a) z_a in both directions. On a triangle let p = z_B - z_A, q = z_C - z_A, D twice its
area, and the dash a quarter turn. The gradient of the linear function through its corners' probabilities is (p AC' - q
AB') / D. With integer weights and millimetres all these are whole numbers, and so are both sides of the inequality
between its square and (epsilon D min z)^2. Doubles with bounds on their roundings decide nearly all inequalities, whole
numbers the others. Proof that this is enough, and necessary: docs/guide/everywhere.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final, cast

import numpy as np

from privopt.arrays import Floats, Ints, Unsigned
from privopt.errors import UsageError
from privopt.execution.compiled import jit
from privopt.numbers.exp_log_bounds import ball_of, float_down, float_up, rational_of_ball
from privopt_metric_dp.matrix.certify import (
    RATIO_MARGIN,
    Failure,
    Measurements,
    exact_ratio,
    make_failure,
    max_ratios,
    rows_with_wrong_sum,
)
from privopt_metric_dp.region.region import MM_PER_KM, Plane, Region, Streets, street_growth

__all__ = ["certify_everywhere", "steepest", "steepest_output"]

_MAX_SHOWN: Final = 8
_MAX_EXACT_RATIOS: Final = 4_096
"""Inequalities that are evaluated exactly in search of the worst; of more the bounds in doubles are taken."""

Worst = tuple[float, tuple[int, int] | None]


def certify_everywhere(weights: Unsigned, region: Region, epsilon: Fraction) -> Measurements:
    """Prove or refute that integer weights keep epsilon between any two points of a region, snapped at random.

    Args:
        weights: (N, K) uint64, a row a vertex; probability = weight / 2**63.
        region: with N vertices.
        epsilon: exact, above 0, per km of path inside the region.

    Returns:
        The verdict; ``checked`` is simplices times outputs; ``worst`` on a plane the greatest |grad z_k| / min z_k per
        km, on streets the least epsilon whose factors 1 + a cover all ratios, each rounded up.
    """
    weights = np.ascontiguousarray(weights)
    if weights.ndim != 2 or weights.dtype != np.uint64:
        raise UsageError(f"weights must be uint64 of shape (N, K), got {weights.dtype} of shape {weights.shape}")
    if len(weights) != region.size:
        found = f"nothing: {len(weights)} rows for {region.size} vertices"
        return Measurements(holds=False, worst=math.inf, allowed=float(epsilon), checked=0, arithmetic=found)
    measure = _on_plane if isinstance(region, Plane) else _on_streets
    failures, failed, exact, (worst, at) = measure(weights, cast("Any", region), epsilon)
    wrong = rows_with_wrong_sum(weights)
    checked = len(region.simplices) * weights.shape[1]
    return Measurements(
        holds=not failed and not len(wrong),
        worst=worst if failed else min(worst, float_up(epsilon)),
        allowed=float(epsilon),
        checked=checked,
        arithmetic=(
            f"row sums by exact integers; {checked - exact} simplices and outputs by doubles with bounds on their "
            f"roundings, {exact} by exact integers"
        ),
        worst_pair=at,
        failures=tuple(failures),
        failed=failed,
        wrong_rows=tuple(wrong[:_MAX_SHOWN].tolist()),
    )


def _on_streets(weights: Unsigned, region: Streets, epsilon: Fraction) -> tuple[list[Failure], int, int, Worst]:
    """First failures, simplices that fail, inequalities decided by integers, and the worst."""
    ratios = max_ratios(weights, region.simplices)
    factors = [1 + street_growth(epsilon, km, region.steps) for km in region.km.tolist()]
    low = np.array([float_down(min(factor, Fraction(2**1000))) for factor in factors])
    failures: list[Failure] = []
    failed = exact = 0
    for s in np.flatnonzero(~(ratios * RATIO_MARGIN <= low)).tolist():
        if ratios[s] > low[s] * (1.0 + 2.0**-48) and len(failures) == _MAX_SHOWN:
            failed += 1  # beyond doubt, and enough are named
            continue
        a, b = region.simplices[s].tolist()
        above, below = np.maximum(weights[a], weights[b]), np.minimum(weights[a], weights[b])
        doubt = np.flatnonzero(above.astype(np.float64) * RATIO_MARGIN > below.astype(np.float64) * low[s]).tolist()
        exact += len(doubt)
        top, bottom = factors[s].numerator, factors[s].denominator
        broken = [k for k in doubt if int(above[k]) * bottom > int(below[k]) * top]
        failed += bool(broken)
        failures += [make_failure(weights, a, b, k) for k in broken[: max(0, _MAX_SHOWN - len(failures))]]
    return failures, failed, exact, _worst_street(weights, region, ratios)


def _unequal(weights: Unsigned, region: Streets) -> Ints:
    """Return the streets whose ends have different rows."""
    tails, heads = region.simplices.T
    return np.flatnonzero((weights[tails] != weights[heads]).any(axis=1))


def _worst_street(weights: Unsigned, region: Streets, ratios: Floats) -> Worst:
    """Return the least epsilon whose factors cover all ratios, rounded up, and the ends of the street where it is."""
    unequal = _unequal(weights, region)
    if not unequal.size:
        return 0.0, None
    ends, km = region.simplices[unequal], region.km[unequal]
    endless = np.flatnonzero((km == 0) | (ratios[unequal] > 2.0**100))
    if endless.size:
        a, b = ends[endless[0]].tolist()
        return math.inf, (a, b)
    upper, lower = (
        _rates(ratio, km, region.steps) for ratio in (ratios[unequal] * RATIO_MARGIN, ratios[unequal] / RATIO_MARGIN)
    )
    near = np.flatnonzero(upper * (1.0 + 2.0**-40) >= lower.max() * (1.0 - 2.0**-40))
    near = near[np.argsort(-upper[near], kind="stable")]
    rates = [
        _rate_up(exact_ratio(weights[ends[s, 0]], weights[ends[s, 1]]), float(km[s]), region.steps)
        for s in near[:_MAX_EXACT_RATIOS].tolist()
    ]
    best = int(np.argmax(rates))
    value = rates[best]
    if len(near) > _MAX_EXACT_RATIOS:
        value = max(value, float(upper[near[_MAX_EXACT_RATIOS:]].max()) * (1.0 + 2.0**-40))
    a, b = ends[near[best]].tolist()
    return value, (a, b)


def steepest(weights: Unsigned, region: Region, epsilon: Fraction) -> float:
    """Return the least epsilon between any two points of a region, as positions are snapped for a claimed one.

    On a plane that is the certificate's worst. On streets the curve of
    :func:`privopt_metric_dp.region.snap_to_region.far_share` goes by the claimed epsilon, whatever rows are: the
    greatest |dz_k / dx| / min z_k over the pieces of each street, rounded up. It may be much more than the epsilon for
    which another curve would do, which the certificate calls worst.

    Args:
        weights: (N, K) uint64, a row a vertex; probability = weight / 2**63.
        region: with N vertices.
        epsilon: the claimed one, per km of way, by which positions are snapped.
    """
    measured = certify_everywhere(weights, region, epsilon)
    if not isinstance(region, Streets) or not region.steps or not 0 < measured.worst < math.inf:
        return measured.worst
    ratios = max_ratios(weights, region.simplices) * RATIO_MARGIN
    unequal = _unequal(weights, region).tolist()
    found = max(_street_slope(Fraction(ratios[s]) - 1, float(region.km[s]), region.steps, epsilon) for s in unequal)
    return float_up(min(found, epsilon) if measured.holds else found)


def steepest_output(weights: Unsigned, region: Region, pair: tuple[int, int]) -> int:
    """Return the output that changes most, to its least probability, on the simplices with two vertices."""
    values = weights[list(pair)]
    if not isinstance(region, Plane):
        top, low = values.max(axis=0).astype(np.float64), values.min(axis=0).astype(np.float64)
        return int(np.argmax(np.divide(top, low, out=np.where(top > 0, np.inf, 0.0), where=low > 0)))
    sides = np.ascontiguousarray(region.vertices[region.simplices][:, 1:] - region.vertices[region.simplices][:, :1])
    both = [(region.simplices == end).any(axis=1) for end in pair]
    above = np.zeros(weights.shape[1])
    for s in np.flatnonzero(both[0] & both[1]).tolist():
        above = np.maximum(above, _steepness(weights, region, sides, s))
    return int(np.argmax(above))


def _street_slope(grown: Fraction, km: float, steps: int, epsilon: Fraction) -> Fraction:
    """Return the greatest |dz / dx| / z on a street with z at one end and 1 + ``grown`` times z at the other.

    On piece j of the half next to the lesser end z rises by grown (1 + t)^j epsilon / a and starts at
    1 + grown ((1 + t)^j - 1) / a. Where grown <= a their ratio is greatest on the last of them, else on the first;
    on the other half it is less.
    """
    a, t = street_growth(epsilon, km, steps), epsilon * Fraction(km) / (2 * steps)
    power = (1 + t) ** (steps - 1) if grown <= a else Fraction(1)
    return epsilon * grown * power / (a + grown * (power - 1))


def _rates(ratios: Floats, km: Floats, steps: int) -> Floats:
    """Return the epsilon whose factor over a length is a ratio, in doubles."""
    grown = np.maximum(ratios - 1.0, 0.0)
    rates: Floats = (grown if steps == 0 else 2 * steps * np.expm1(np.log1p(grown / 2) / steps)) / km
    return rates


def _rate_up(ratio: Fraction, km: float, steps: int) -> float:
    """Return the least epsilon whose factor covers a ratio over a length, rounded up."""
    if steps == 0:
        return float_up((ratio - 1) / Fraction(km))
    import flint

    with flint.ctx.workprec(320):
        root = (ball_of((ratio + 1) / 2).log() / steps).exp()
        high = (2 * steps * (root - 1) / flint.arb(km)).upper()
    return float_up(rational_of_ball(high))


def _on_plane(weights: Unsigned, region: Plane, epsilon: Fraction) -> tuple[list[Failure], int, int, Worst]:
    """First failures, simplices that fail, inequalities decided by integers, and the worst."""
    corners = region.vertices[region.simplices]
    sides = np.ascontiguousarray(corners[:, 1:] - corners[:, :1])  # AB and AC
    upper, lower = np.zeros(len(sides)), np.zeros(len(sides))
    _gradients(weights, region.simplices, sides, upper, lower)
    per_mm = epsilon / MM_PER_KM
    top, over = float_down(per_mm), float_up(per_mm)
    failures: list[Failure] = []
    failed = exact = 0
    for s in np.flatnonzero(~(upper <= top)).tolist():
        if lower[s] > over and len(failures) == _MAX_SHOWN:
            failed += 1  # beyond doubt, and enough are named
            continue
        columns = np.flatnonzero(~(_steepness(weights, region, sides, s) <= top)).tolist()
        exact += len(columns)
        broken = [k for k in columns if not _keeps(weights, region, sides, s, k, per_mm)]
        failed += bool(broken)
        for k in broken[: max(0, _MAX_SHOWN - len(failures))]:
            here = weights[region.simplices[s], k]
            i, j = region.simplices[s, int(here.argmax())], region.simplices[s, int(here.argmin())]
            failures.append(Failure(i=int(i), j=int(j), k=k))
    return failures, failed, exact, _worst_triangle(weights, region, sides, upper, float(lower.max(initial=0.0)))


@jit()
def _gradients(weights, simplices, sides, upper, lower):  # type: ignore[no-untyped-def]
    """Bounds of max over k of |grad z_k| / min z_k on each triangle, per millimetre.

    Differences of weights are exact before they become doubles, so p and q are off by 2^-53 of themselves, each product
    by little more: the sum of their sizes times 2^-49 covers all of it.
    """
    for s in range(len(simplices)):
        a, b, c = simplices[s]
        bx, by, cx, cy = sides[s, 0, 0] * 1.0, sides[s, 0, 1] * 1.0, sides[s, 1, 0] * 1.0, sides[s, 1, 1] * 1.0
        twice = float(sides[s, 0, 0] * sides[s, 1, 1] - sides[s, 0, 1] * sides[s, 1, 0])
        for k in range(weights.shape[1]):
            za, zb, zc = weights[a, k], weights[b, k], weights[c, k]
            p = float(zb - za) if zb >= za else -float(za - zb)
            q = float(zc - za) if zc >= za else -float(za - zc)
            if p == 0.0 and q == 0.0:
                continue
            least = min(za, min(zb, zc))
            if least == 0:
                upper[s] = lower[s] = np.inf
                break
            gx, gy = p * cy - q * by, q * bx - p * cx
            size = np.sqrt(gx * gx + gy * gy)
            room = 2.0**-49 * (abs(p) * (abs(cx) + abs(cy)) + abs(q) * (abs(bx) + abs(by)))
            scale = 1.0 / (twice * float(least))
            upper[s] = max(upper[s], (size + room) * scale * (1.0 + 2.0**-48))
            lower[s] = max(lower[s], (size - room) * scale * (1.0 - 2.0**-48))


def _steepness(weights: Unsigned, region: Plane, sides: Ints, s: int) -> Floats:
    """(K,) bounds from above of |grad z_k| / min z_k on one triangle, per millimetre."""
    columns = np.ascontiguousarray(weights[region.simplices[s]].T)
    above, below = np.zeros(len(columns)), np.zeros(len(columns))
    corner = np.arange(3 * len(columns), dtype=np.int64).reshape(-1, 3)
    _gradients(columns.reshape(-1, 1), corner, np.repeat(sides[s : s + 1], len(columns), axis=0), above, below)
    return above


def _exactly(weights: Unsigned, region: Plane, sides: Ints, s: int, k: int) -> tuple[int, int]:
    """Return the squares of D grad z_k, and of D times the least z_k, on one triangle, in units of the weights."""
    za, zb, zc = (int(w) for w in weights[region.simplices[s], k])
    (bx, by), (cx, cy) = sides[s].tolist()
    p, q, twice = zb - za, zc - za, bx * cy - by * cx
    return (p * cy - q * by) ** 2 + (q * bx - p * cx) ** 2, (twice * min(za, zb, zc)) ** 2


def _keeps(weights: Unsigned, region: Plane, sides: Ints, s: int, k: int, per_mm: Fraction) -> bool:
    gradient, least = _exactly(weights, region, sides, s, k)
    return gradient * per_mm.denominator**2 <= least * per_mm.numerator**2


def _worst_triangle(weights: Unsigned, region: Plane, sides: Ints, upper: Floats, lower: float) -> Worst:
    """Return the greatest |grad z_k| / min z_k per km, rounded up, and two corners of the triangle where it is."""
    if math.isinf(lower):
        a, b = region.simplices[int(np.argmax(upper)), :2].tolist()
        return math.inf, (a, b)
    best, at, left = Fraction(0), None, _MAX_EXACT_RATIOS
    over = 0.0
    for s in np.flatnonzero(upper >= lower).tolist() if lower > 0 or upper.any() else []:
        columns = np.flatnonzero(_steepness(weights, region, sides, s) >= max(lower, 2.0**-1000)).tolist()
        if len(columns) > left:
            over = max(over, float(upper[s]))
            continue
        left -= len(columns)
        for k in columns:
            rate = Fraction(*_exactly(weights, region, sides, s, k))
            if rate > best or at is None:
                best, at = rate, tuple(region.simplices[s, :2].tolist())
    value = max(_root_up(best * MM_PER_KM**2), over * MM_PER_KM * (1.0 + 2.0**-50))
    return value, cast("tuple[int, int] | None", at)


def _root_up(square: Fraction) -> float:
    """Return the least double that is at least a square root, or its neighbour."""
    bits = 256
    root = math.isqrt((square.numerator << bits) // square.denominator) + (square > 0)
    return float_up(Fraction(root, 1 << (bits // 2)))
