"""The certificate of metric DP between any two points of a region: |grad z_k| <= epsilon min z_k on every simplex.

Here z_k is the probability of output k at a point. Its value at a vertex A is written z_A, without the index k. On a
street with ends A and B, the condition is z_B <= (1 + a) z_A, and the same with A and B exchanged, where a is the
street's growth (:func:`privopt_metric_dp.region.region.street_growth`). On a triangle ABC, let p = z_B - z_A and q =
z_C - z_A, let D be twice the area, and let a prime denote rotation by 90 degrees. The linear function that interpolates
the probabilities at the corners has the gradient (p AC' - q AB') / D.

Weights are integers, and so are coordinates in millimetres, so both sides of the condition become integers once it is
squared and its denominators are cleared. Floating-point arithmetic with error bounds decides nearly all inequalities,
and exact integer arithmetic decides the rest. A proof that the condition is necessary and sufficient is in
docs/guide/everywhere.md.
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

__all__ = ["certify_everywhere", "find_steepest_output", "max_snapping_epsilon"]

_MAX_SHOWN: Final = 8
"""The maximum number of violated inequalities, and of rows with a wrong sum, to list."""
_MAX_EXACT_RATIOS: Final = 4_096
"""The maximum number of inequalities to evaluate exactly in the search for the worst one.

Floating-point bounds are used for any further candidates.
"""

Worst = tuple[float, tuple[int, int] | None]
"""The largest epsilon required by any simplex, rounded up, and two vertices of that simplex (None if epsilon is 0)."""


def certify_everywhere(weights: Unsigned, region: Region, epsilon: Fraction) -> Measurements:
    """Prove or refute that integer weights satisfy metric DP between any two points of a region.

    To draw a report, a position is first snapped to a random vertex of its simplex (a street or triangle). The report
    is then drawn from the row of that vertex.

    Args:
        weights: A uint64 array of shape (N, K), with one row per vertex. A weight w stands for the probability w /
            2**63.
        region: A region with N vertices.
        epsilon: The exact epsilon per km of path inside the region, which must be positive.

    Returns:
        The measurements. ``checked`` is the number of simplices times the number of outputs. ``worst`` is rounded up.
        On a plane, it is the largest |grad z_k| / min z_k per km, where z_k is the probability of output k. On streets,
        it is the smallest epsilon for which the ratio of the weights at the two ends of every street is at most 1 + a,
        where a is the street's growth (:func:`street_growth`). If there are not exactly N rows, nothing is checked and
        ``holds`` is False.

    Raises:
        UsageError: ``weights`` is not a two-dimensional uint64 array.
    """
    weights = np.ascontiguousarray(weights)
    if weights.ndim != 2 or weights.dtype != np.uint64:
        raise UsageError(f"weights must be uint64 of shape (N, K), got {weights.dtype} of shape {weights.shape}")
    if len(weights) != region.size:
        reason = f"nothing was checked: {len(weights)} rows for {region.size} vertices"
        return Measurements(holds=False, worst=math.inf, allowed=float(epsilon), checked=0, arithmetic=reason)
    measure = _certify_plane if isinstance(region, Plane) else _certify_streets
    failures, failed, exact_count, (worst, steepest_pair) = measure(weights, cast("Any", region), epsilon)
    wrong_row_numbers = rows_with_wrong_sum(weights)
    checked = len(region.simplices) * weights.shape[1]
    return Measurements(
        holds=not failed and not len(wrong_row_numbers),
        # If nothing failed, epsilon is proved, so `worst` can exceed it only by rounding and is capped.
        worst=worst if failed else min(worst, float_up(epsilon)),
        allowed=float(epsilon),
        checked=checked,
        arithmetic=(
            f"row sums by exact integers; {checked - exact_count} simplices and outputs by doubles with bounds on "
            f"their roundings, {exact_count} by exact integers"
        ),
        worst_pair=steepest_pair,
        failures=tuple(failures),
        failed=failed,
        wrong_rows=tuple(wrong_row_numbers[:_MAX_SHOWN].tolist()),
    )


def _certify_streets(weights: Unsigned, region: Streets, epsilon: Fraction) -> tuple[list[Failure], int, int, Worst]:
    """Decide whether z_B <= (1 + a) z_A on each street AB in both directions, for every output.

    Here z is the weight of the output at an end of the street, and a is the street's growth (:func:`street_growth`).

    Args:
        weights: Array of shape (N, K) with the weights at the vertices.
        region: The street network.
        epsilon: The exact epsilon per km.

    Returns:
        The first few failures; the number of streets that fail; the number of inequalities that had to be decided in
        exact integer arithmetic; and the largest epsilon required by any street, together with the street's ends.
    """
    ratios = max_ratios(weights, region.simplices)
    factors = [1 + street_growth(epsilon, km, region.steps) for km in region.km.tolist()]
    # Factors are rounded down and capped at 2**100. No ratio of a positive weight to 0 passes, because only these
    # exceed the cap. A factor that is too small merely causes more streets to be decided exactly.
    lower_factors = np.array([float_down(min(factor, Fraction(2**100))) for factor in factors])
    failures: list[Failure] = []
    failed = exact_count = 0
    for s in np.flatnonzero(~(ratios * RATIO_MARGIN <= lower_factors)).tolist():
        if ratios[s] > lower_factors[s] * (1.0 + 2.0**-48) and len(failures) == _MAX_SHOWN:
            failed += 1  # certainly violated, and enough failures are listed
            continue
        a, b = region.simplices[s].tolist()
        larger, smaller = np.maximum(weights[a], weights[b]), np.minimum(weights[a], weights[b])
        # Doubles with a margin for rounding prove the inequality for most outputs. The rest are compared as integers.
        undecided = np.flatnonzero(
            larger.astype(np.float64) * RATIO_MARGIN > smaller.astype(np.float64) * lower_factors[s]
        ).tolist()
        exact_count += len(undecided)
        numerator, denominator = factors[s].numerator, factors[s].denominator
        failing = [k for k in undecided if int(larger[k]) * denominator > int(smaller[k]) * numerator]
        failed += bool(failing)
        failures += [make_failure(weights, a, b, k) for k in failing[: max(0, _MAX_SHOWN - len(failures))]]
    return failures, failed, exact_count, _find_worst_street(weights, region, ratios)


def _streets_with_unequal_ends(weights: Unsigned, region: Streets) -> Ints:
    """Return the indices of the streets whose two ends have different rows of weights.

    All other streets satisfy their privacy constraints at every epsilon.
    """
    tails, heads = region.simplices.T
    return np.flatnonzero((weights[tails] != weights[heads]).any(axis=1))


def _find_worst_street(weights: Unsigned, region: Streets, ratios: Floats) -> Worst:
    """Find the smallest epsilon at which every street's ratio of weights is at most 1 + a.

    Here a is the street's growth (:func:`street_growth`).

    Args:
        weights: Array of shape (N, K) with the weights at the vertices.
        region: The streets to search.
        ratios: Array of shape (S,) with the largest ratio between the rows at the two ends of each street, in doubles.

    Returns:
        The epsilon, rounded up, and the two ends of the street that requires it. If all streets have equal rows at
        their two ends, the epsilon is 0 and the ends are None.
    """
    unequal = _streets_with_unequal_ends(weights, region)
    if not unequal.size:
        return 0.0, None
    endpoints, km = region.simplices[unequal], region.km[unequal]
    # No epsilon is large enough if rows at distance 0 differ or if exactly one of two weights is 0.
    unbounded_streets = np.flatnonzero((km == 0) | (ratios[unequal] > 2.0**100))
    if unbounded_streets.size:
        a, b = endpoints[unbounded_streets[0]].tolist()
        return math.inf, (a, b)
    upper, lower = (
        _estimate_rates(ratio, km, region.steps)
        for ratio in (ratios[unequal] * RATIO_MARGIN, ratios[unequal] / RATIO_MARGIN)
    )
    # The worst street's upper estimate is at least the largest lower estimate. The margins cover rounding errors in the
    # rates.
    candidates = np.flatnonzero(upper * (1.0 + 2.0**-40) >= lower.max() * (1.0 - 2.0**-40))
    candidates = candidates[np.argsort(-upper[candidates], kind="stable")]
    rates = [
        _round_rate_up(exact_ratio(weights[endpoints[s, 0]], weights[endpoints[s, 1]]), float(km[s]), region.steps)
        for s in candidates[:_MAX_EXACT_RATIOS].tolist()
    ]
    worst_candidate = int(np.argmax(rates))
    value = rates[worst_candidate]
    # Candidates that were not evaluated exactly count with their upper estimates.
    if len(candidates) > _MAX_EXACT_RATIOS:
        value = max(value, float(upper[candidates[_MAX_EXACT_RATIOS:]].max()) * (1.0 + 2.0**-40))
    a, b = endpoints[candidates[worst_candidate]].tolist()
    return value, (a, b)


def max_snapping_epsilon(weights: Unsigned, region: Region, epsilon: Fraction) -> float:
    """Return the epsilon satisfied by a release for a region if points are snapped according to the claimed epsilon.

    On a plane, this is the certificate's ``worst``. On streets, positions are snapped along the curve of
    :func:`privopt_metric_dp.region.snap_to_region.far_share`, which depends only on the claimed epsilon. The result is
    then the largest |dz_k / dx| / min z_k over the pieces of all streets, rounded up, where z_k is the probability of
    output k at distance x from an end of a street. It may be much larger than the certificate's ``worst``, which
    assumes the curve that suits the weights best.

    Args:
        weights: Array of shape (N, K) and type uint64, with one row per vertex.
        region: A region with N vertices.
        epsilon: The claimed epsilon per km of path.
    """
    measurements = certify_everywhere(weights, region, epsilon)
    # Linear snapping (on a plane or with 0 steps) does not depend on epsilon, and a `worst` of 0 or infinity is the
    # same for every curve.
    if not isinstance(region, Streets) or not region.steps or not 0 < measurements.worst < math.inf:
        return measurements.worst
    ratios = max_ratios(weights, region.simplices) * RATIO_MARGIN
    unequal = _streets_with_unequal_ends(weights, region).tolist()
    # The margin turns the ratios into upper bounds, from which the slopes are computed exactly.
    slope = max(_max_street_slope(Fraction(ratios[s]) - 1, float(region.km[s]), region.steps, epsilon) for s in unequal)
    return float_up(min(slope, epsilon) if measurements.holds else slope)


def find_steepest_output(weights: Unsigned, region: Region, pair: tuple[int, int]) -> int:
    """Return the index of the output whose probability changes most, in relative terms, near a pair of vertices.

    On a plane, the relative change is the largest |grad z_k| / min z_k over all triangles that contain both vertices,
    where z_k is the probability of output k. On streets, it is the ratio between the weights at the two vertices.

    Args:
        weights: Array of shape (N, K) with the weights at the vertices.
        region: The region that contains the vertices.
        pair: The indices of two vertices of the same simplex, such as the worst pair in a certificate.
    """
    values = weights[list(pair)]
    if not isinstance(region, Plane):
        max_weights, min_weights = values.max(axis=0).astype(np.float64), values.min(axis=0).astype(np.float64)
        return int(
            np.argmax(
                # If only the smaller weight is 0, the ratio is infinite. If both are 0, it is set to 0.
                np.divide(max_weights, min_weights, out=np.where(max_weights > 0, np.inf, 0.0), where=min_weights > 0)
            )
        )
    # The vectors AB and AC of each triangle.
    sides = np.ascontiguousarray(region.vertices[region.simplices][:, 1:] - region.vertices[region.simplices][:, :1])
    has_vertex = [(region.simplices == end).any(axis=1) for end in pair]
    max_steepness = np.zeros(weights.shape[1])
    for s in np.flatnonzero(has_vertex[0] & has_vertex[1]).tolist():
        max_steepness = np.maximum(max_steepness, _bound_steepness(weights, region, sides, s))
    return int(np.argmax(max_steepness))


def _max_street_slope(growth: Fraction, km: float, steps: int, epsilon: Fraction) -> Fraction:
    """Return the largest |dz / dx| / z on a street, where z is an output's probability at distance x from one end.

    Each half of the street is divided into n pieces, on which z is linear. Let x be 0 at the end where z is smaller,
    and scale z so that it is 1 there. Let t = epsilon km / (2 n), and let a be the value of :func:`street_growth`. On
    piece j, counted from 0, z starts at 1 + growth ((1 + t)^j - 1) / a and rises at the rate growth (1 + t)^j epsilon /
    a. The ratio of rate to value is largest on the last piece of the first half if growth <= a, and on the first piece
    otherwise. In the second half of the street, it is smaller.

    Args:
        growth: The ratio of the larger to the smaller probability at the two ends, minus 1.
        km: The length of the street in km.
        steps: n, the number of pieces in each half of the street, which must be at least 1.
        epsilon: The claimed epsilon per km, which determines how positions are snapped.
    """
    a, t = street_growth(epsilon, km, steps), epsilon * Fraction(km) / (2 * steps)
    power = (1 + t) ** (steps - 1) if growth <= a else Fraction(1)
    return epsilon * growth * power / (a + growth * (power - 1))


def _estimate_rates(ratios: Floats, km: Floats, steps: int) -> Floats:
    """Estimate, in floating point, the epsilon at which each street's ratio of weights equals 1 + a.

    Here a is the street's growth (:func:`street_growth`).

    Args:
        ratios: Array of shape (S,) with the largest ratio between the weights at the two ends of each street.
        km: Array of shape (S,) with the length of each street in km.
        steps: n, the number of pieces of the S-shaped snapping curve in each half of a street. If it is 0, snapping is
            linear and a = epsilon km.
    """
    growth = np.maximum(ratios - 1.0, 0.0)
    # a = 2 ((1 + t)^n - 1) with t = epsilon km / (2 n), solved for epsilon.
    rates: Floats = (growth if steps == 0 else 2 * steps * np.expm1(np.log1p(growth / 2) / steps)) / km
    return rates


def _round_rate_up(ratio: Fraction, km: float, steps: int) -> float:
    """Return the smallest epsilon, rounded up, at which 1 plus a street's growth is at least the given ratio.

    Args:
        ratio: The exact ratio of weights, which must be at least 1.
        km: The length of the street in km, which must be positive.
        steps: n, the number of pieces of the S-shaped snapping curve in each half of the street, or 0 for linear
            snapping.
    """
    if steps == 0:
        return float_up((ratio - 1) / Fraction(km))
    import flint

    with flint.ctx.workprec(320):
        # A ball encloses the n-th root of (ratio + 1) / 2 at a precision of 320 bits. The upper end of the result is
        # rounded up.
        root = (ball_of((ratio + 1) / 2).log() / steps).exp()
        upper = (2 * steps * (root - 1) / flint.arb(km)).upper()
    return float_up(rational_of_ball(upper))


def _certify_plane(weights: Unsigned, region: Plane, epsilon: Fraction) -> tuple[list[Failure], int, int, Worst]:
    """Decide whether |grad z_k| <= epsilon min z_k on each triangle of a plane region for every output k.

    Args:
        weights: Array of shape (N, K) with the weights at the vertices.
        region: The plane region.
        epsilon: The exact epsilon per km.

    Returns:
        The first few failures; the number of triangles that fail; the number of inequalities that had to be decided in
        exact integer arithmetic; and the largest epsilon required by any triangle, together with two of the triangle's
        corners.
    """
    corners = region.vertices[region.simplices]
    sides = np.ascontiguousarray(corners[:, 1:] - corners[:, :1])  # AB and AC
    upper, lower = np.zeros(len(sides)), np.zeros(len(sides))
    _bound_gradients(weights, region.simplices, sides, upper, lower)
    per_mm = epsilon / MM_PER_KM
    lower_epsilon, upper_epsilon = float_down(per_mm), float_up(per_mm)
    failures: list[Failure] = []
    failed = exact_count = 0
    # The comparison is negated so that NaN counts as undecided.
    for s in np.flatnonzero(~(upper <= lower_epsilon)).tolist():
        if lower[s] > upper_epsilon and len(failures) == _MAX_SHOWN:
            failed += 1  # the inequality is certainly violated, and enough failures are already listed
            continue
        columns = np.flatnonzero(~(_bound_steepness(weights, region, sides, s) <= lower_epsilon)).tolist()
        exact_count += len(columns)
        failing = [k for k in columns if not _satisfies_epsilon(weights, region, sides, s, k, per_mm)]
        failed += bool(failing)
        for k in failing[: max(0, _MAX_SHOWN - len(failures))]:
            corner_weights = weights[region.simplices[s], k]
            i, j = region.simplices[s, int(corner_weights.argmax())], region.simplices[s, int(corner_weights.argmin())]
            failures.append(Failure(i=int(i), j=int(j), k=k))
    return (
        failures,
        failed,
        exact_count,
        _find_worst_triangle(weights, region, sides, upper, float(lower.max(initial=0.0))),
    )


@jit()
def _bound_gradients(weights, simplices, sides, upper, lower):  # type: ignore[no-untyped-def]
    """Compute bounds on each triangle's largest |grad z_k| / min z_k over all outputs k, per millimetre.

    The differences p = z_B - z_A and q = z_C - z_A are computed exactly and then converted to doubles, so their
    relative errors are at most 2^-53, and their products have slightly larger relative errors. All rounding errors
    together are covered by 2^-49 times the sum of the products' absolute values.

    Args:
        weights: Array of shape (N, K) and type uint64 with the weights at the vertices.
        simplices: Array of shape (S, 3) with the corners A, B and C of each triangle.
        sides: Array of shape (S, 2, 2) with the vectors AB and AC in integer millimetres.
        upper, lower: Arrays of S zeros, to which the upper and lower bounds are written. Both bounds are infinite if an
            output's weight is 0 at one corner and positive at another.
    """
    for s in range(len(simplices)):
        a, b, c = simplices[s]
        bx, by, cx, cy = sides[s, 0, 0] * 1.0, sides[s, 0, 1] * 1.0, sides[s, 1, 0] * 1.0, sides[s, 1, 1] * 1.0
        double_area = float(sides[s, 0, 0] * sides[s, 1, 1] - sides[s, 0, 1] * sides[s, 1, 0])
        for k in range(weights.shape[1]):
            za, zb, zc = weights[a, k], weights[b, k], weights[c, k]
            # Weights are unsigned, so the smaller one must be subtracted, or the difference would wrap around.
            p = float(zb - za) if zb >= za else -float(za - zb)
            q = float(zc - za) if zc >= za else -float(za - zc)
            if p == 0.0 and q == 0.0:
                continue
            min_weight = min(za, min(zb, zc))
            if min_weight == 0:
                upper[s] = lower[s] = np.inf
                break
            gx, gy = p * cy - q * by, q * bx - p * cx
            norm = np.sqrt(gx * gx + gy * gy)
            error_bound = 2.0**-49 * (abs(p) * (abs(cx) + abs(cy)) + abs(q) * (abs(bx) + abs(by)))
            scale = 1.0 / (double_area * float(min_weight))
            upper[s] = max(upper[s], (norm + error_bound) * scale * (1.0 + 2.0**-48))
            lower[s] = max(lower[s], (norm - error_bound) * scale * (1.0 - 2.0**-48))


def _bound_steepness(weights: Unsigned, region: Plane, sides: Ints, s: int) -> Floats:
    """Return an upper bound on |grad z_k| / min z_k on one triangle for each output k, per millimetre.

    Args:
        weights: Array of shape (N, K) with the weights at the vertices.
        region: The plane region that contains the triangle.
        sides: Array of shape (S, 2, 2) with the vectors AB and AC of each triangle in integer millimetres.
        s: The index of the triangle.

    Returns:
        Array of shape (K,) with the upper bounds.
    """
    # The kernel computes one bound per triangle. To get one per output, each output is passed as a separate triangle
    # with its own corners and a single column.
    columns = np.ascontiguousarray(weights[region.simplices[s]].T)
    upper_bounds, lower_bounds = np.zeros(len(columns)), np.zeros(len(columns))
    corners = np.arange(3 * len(columns), dtype=np.int64).reshape(-1, 3)
    _bound_gradients(
        columns.reshape(-1, 1), corners, np.repeat(sides[s : s + 1], len(columns), axis=0), upper_bounds, lower_bounds
    )
    return upper_bounds


def _exact_squares(weights: Unsigned, region: Plane, sides: Ints, s: int, k: int) -> tuple[int, int]:
    """Return the squares of D |grad z_k| and D min z_k on triangle s, where D is twice the triangle's area.

    Args:
        weights: Array of shape (N, K) with the weights at the vertices.
        region: The plane region that contains the triangle.
        sides: Array of shape (S, 2, 2) with the vectors AB and AC of each triangle in integer millimetres.
        s, k: The indices of the triangle and of the output.

    Returns:
        The two squares as integers. Their ratio is the square of |grad z_k| / min z_k, per square millimetre.
    """
    za, zb, zc = (int(w) for w in weights[region.simplices[s], k])
    (bx, by), (cx, cy) = sides[s].tolist()
    p, q, double_area = zb - za, zc - za, bx * cy - by * cx
    return (p * cy - q * by) ** 2 + (q * bx - p * cx) ** 2, (double_area * min(za, zb, zc)) ** 2


def _satisfies_epsilon(weights: Unsigned, region: Plane, sides: Ints, s: int, k: int, per_mm: Fraction) -> bool:
    """Decide exactly whether |grad z_k| <= epsilon min z_k on a triangle.

    Args:
        weights: Array of shape (N, K) with the weights at the vertices.
        region: The plane region that contains the triangle.
        sides: Array of shape (S, 2, 2) with the vectors AB and AC of each triangle in integer millimetres.
        s, k: The indices of the triangle and of the output.
        per_mm: The exact epsilon per millimetre.
    """
    gradient, min_square = _exact_squares(weights, region, sides, s, k)
    # Integers are compared, because both sides are squared and multiplied by the squared denominator.
    return gradient * per_mm.denominator**2 <= min_square * per_mm.numerator**2


def _find_worst_triangle(weights: Unsigned, region: Plane, sides: Ints, upper: Floats, lower: float) -> Worst:
    """Find the largest |grad z_k| / min z_k over all triangles and outputs.

    Args:
        weights: Array of shape (N, K) with the weights at the vertices.
        region: The plane region whose triangles are searched.
        sides: Array of shape (S, 2, 2) with the vectors AB and AC of each triangle in integer millimetres.
        upper: Array of shape (S,) with the upper bounds per millimetre from `_bound_gradients`.
        lower: The largest lower bound of any triangle, per millimetre.

    Returns:
        The largest value per km, rounded up, and two corners of the triangle that attains it. The corners are None if
        all rows are equal on every triangle.
    """
    if math.isinf(lower):
        a, b = region.simplices[int(np.argmax(upper)), :2].tolist()
        return math.inf, (a, b)
    max_square, worst_pair, remaining_count = Fraction(0), None, _MAX_EXACT_RATIOS
    uncounted_rate = 0.0
    # The worst triangle's upper bound is at least the largest lower bound. If all bounds are 0, so is every gradient,
    # and there is no worst triangle.
    for s in np.flatnonzero(upper >= lower).tolist() if lower > 0 or upper.any() else []:
        # The tiny number excludes outputs whose gradient is 0 if `lower` is 0.
        columns = np.flatnonzero(_bound_steepness(weights, region, sides, s) >= max(lower, 2.0**-1000)).tolist()
        # There are too few exact evaluations left for this triangle, so its upper bound is used instead.
        if len(columns) > remaining_count:
            uncounted_rate = max(uncounted_rate, float(upper[s]))
            continue
        remaining_count -= len(columns)
        for k in columns:
            rate = Fraction(*_exact_squares(weights, region, sides, s, k))
            if rate > max_square or worst_pair is None:
                max_square, worst_pair = rate, tuple(region.simplices[s, :2].tolist())
    value = max(_round_root_up(max_square * MM_PER_KM**2), uncounted_rate * MM_PER_KM * (1.0 + 2.0**-50))
    return value, cast("tuple[int, int] | None", worst_pair)


def _round_root_up(square: Fraction) -> float:
    """Return the square root of a non-negative rational, rounded up to the next double or the one after it."""
    bits = 256
    # isqrt rounds down, so 1 is added unless the square is 0.
    root = math.isqrt((square.numerator << bits) // square.denominator) + (square > 0)
    return float_up(Fraction(root, 1 << (bits // 2)))
