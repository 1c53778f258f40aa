"""Guarantees between any two points: what is certified holds at points drawn anywhere, and what leaks is refused."""

import math
import random
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy.spatial import Delaunay, QhullError

from privopt.errors import InputError
from privopt_metric_dp.kit.check_region import _draw_pairs, greatest_excess, street_share
from privopt_metric_dp.matrix.certify_region import certify_everywhere, max_snapping_epsilon
from privopt_metric_dp.matrix.repair import repair
from privopt_metric_dp.region.mesh import lattice, plane_of, refine_plane
from privopt_metric_dp.region.region import MM_PER_KM, Plane, Streets, street_growth
from privopt_metric_dp.region.triangles import common_factors, prove_ratios, sufficient_ratios
from privopt_metric_dp.space.places import Space, grid_points

TOTAL = 2**63
EPSILONS = [Fraction(1, 100), Fraction(1), Fraction(7, 3), Fraction(40)]
LENGTHS = [1e-6, 0.013, 0.2, 1.0, 1 / 3, 7.0]


@st.composite
def planes(draw):
    """Meshes with slivers, holes, several parts, or a single triangle."""
    size = draw(st.sampled_from([40, 10**5, 3 * 10**6, 10**8]))
    point = st.tuples(*[st.integers(-size, size)] * 2)
    points = np.array(draw(st.lists(point, min_size=3, max_size=9, unique=True)), dtype=np.int64)
    try:
        simplices = Delaunay(points.astype(float)).simplices.astype(np.int64)
    except QhullError:
        reject()
    first_side, second_side = (
        points[simplices[:, 1]] - points[simplices[:, 0]],
        points[simplices[:, 2]] - points[simplices[:, 0]],
    )
    double_area = first_side[:, 0] * second_side[:, 1] - first_side[:, 1] * second_side[:, 0]
    simplices[double_area < 0] = simplices[double_area < 0][:, [0, 2, 1]]
    simplices = simplices[double_area != 0]
    is_kept = np.array(draw(st.lists(st.booleans(), min_size=len(simplices), max_size=len(simplices))), dtype=bool)
    return Plane(size=len(points), simplices=simplices[is_kept] if is_kept.any() else simplices, vertices=points)


@st.composite
def meshes(draw):
    """Return planes of points or grids and lattices over polygons, some of them refined."""
    kind = draw(st.sampled_from(["points", "grid", "lattice"]))
    if kind == "lattice":
        angles = np.sort(draw(st.lists(st.floats(0, 6), min_size=3, max_size=5, unique=True)))
        ring = np.column_stack([np.cos(angles), np.sin(angles)]) * draw(st.sampled_from([2e4, 1.5e6]))
        vertices, triangles = lattice([[np.concatenate([ring, ring[:1]])]], np.ptp(ring, axis=0).max() + 100.0)
        plane = Plane(size=len(vertices), simplices=triangles, vertices=vertices)
    elif kind == "grid":
        rows, cols = draw(st.integers(2, 3)), draw(st.integers(2, 3))
        plane = plane_of(grid_points(rows, cols, draw(st.sampled_from([1e-3, 1.0]))))
    else:
        point = st.tuples(*[st.integers(-9, 9)] * 2)
        points = draw(st.lists(point, min_size=3, max_size=8, unique=True))
        try:
            plane = plane_of(Space(ids=range(len(points)), coordinates=points, kind="planar"))
        except InputError:  # in one line
            reject()
    edge_points = plane.vertices[plane.edges].astype(float)
    longest = np.linalg.norm(edge_points[:, 0] - edge_points[:, 1], axis=1).max()
    return refine_plane(plane, longest * draw(st.sampled_from([0.6, 1.0, 1.0])))[0]


@st.composite
def networks(draw):
    """Street networks: bridges, parallel streets, streets that end where they begin, long and tiny ones."""
    nodes = draw(st.integers(2, 6))
    end = st.integers(0, nodes - 1)
    streets = draw(st.lists(st.tuples(end, end, st.sampled_from(LENGTHS)), min_size=1, max_size=9))
    simplices, km = [street[:2] for street in streets], [street[2] for street in streets]
    return Streets(size=nodes, simplices=simplices, km=km, steps=draw(st.sampled_from([0, 1, 3, 8])))


def make_private_weights(region, epsilon, lengths, seed, outputs=3):
    """Integer weights held to epsilon over the edges at some lengths; near a random matrix with zeros."""
    chance = np.random.default_rng(seed)
    z = chance.random((region.size, outputs)) ** chance.choice([1, 9]) * (chance.random((region.size, outputs)) < 0.8)
    return repair(z, region.edges, lengths, epsilon).weights


def rows_of(weights):
    return [[int(w) for w in row] for row in weights]


def brute(weights, region, epsilon):
    """Whether every gradient keeps epsilon, and the greatest rate squared, simplex by simplex in rationals."""
    worst, is_kept = Fraction(0), True
    for s, corners in enumerate(region.simplices.tolist()):
        for k in range(weights.shape[1]):
            z = [int(weights[c, k]) for c in corners]
            if isinstance(region, Streets):
                factor = 1 + street_growth(epsilon, float(region.km[s]), region.steps)
                is_kept &= max(z) <= factor * min(z)
                continue
            (ax, ay), (bx, y_b), (cx, cy) = region.vertices[corners].tolist()
            double_area = (bx - ax) * (cy - ay) - (y_b - ay) * (cx - ax)
            gx = Fraction((z[1] - z[0]) * (cy - ay) - (z[2] - z[0]) * (y_b - ay), double_area)
            gy = Fraction((z[2] - z[0]) * (bx - ax) - (z[1] - z[0]) * (cx - ax), double_area)
            squared = gx**2 + gy**2
            if squared and not min(z):
                return False, None
            if squared:
                worst = max(worst, squared / min(z) ** 2 * MM_PER_KM**2)
    return (is_kept if isinstance(region, Streets) else worst <= epsilon**2), worst


def check_kept(region, epsilon, seed, tries):
    weights = make_private_weights(region, epsilon, region.lengths(epsilon), seed)
    measurement = certify_everywhere(weights, region, epsilon)
    assert measurement.holds, measurement
    assert measurement.worst <= float(epsilon) * (1 + 2**-50)
    assert measurement.checked == len(region.simplices) * 3
    assert greatest_excess(rows_of(weights), region, epsilon, random.Random(seed), tries) is None


@settings(max_examples=20)
@given(planes() | meshes(), st.sampled_from(EPSILONS), st.integers(0, 999))
def test_rows_over_triangle_edges_keep_every_point(region, epsilon, seed):
    check_kept(region, epsilon, seed, 15)


@given(networks(), st.sampled_from(EPSILONS), st.integers(0, 999))
def test_rows_over_street_edges_keep_every_point(region, epsilon, seed):
    check_kept(region, epsilon, seed, 15)


@pytest.mark.slow
@settings(max_examples=1_000)
@given(planes() | meshes() | networks(), st.sampled_from(EPSILONS), st.integers(0, 999))
def test_thousand_regions_keep_every_point(region, epsilon, seed):
    check_kept(region, epsilon, seed, 40)


@given(planes() | networks(), st.sampled_from(EPSILONS), st.sampled_from(EPSILONS), st.integers(0, 999))
def test_certificate_matches_rationals(region, solved_epsilon, target_epsilon, seed):
    """Whatever the weights: what holds, and the worst, are those of every gradient in rationals."""
    weights = make_private_weights(
        region,
        solved_epsilon,
        region.lengths(solved_epsilon) * random.Random(seed).choice([1.0, 1.0 + 1e-12, 1.3]),
        seed,
    )
    measurement = certify_everywhere(weights, region, target_epsilon)
    is_kept, worst = brute(weights, region, target_epsilon)
    assert measurement.holds == is_kept
    if isinstance(region, Plane) and worst is not None:
        true = math.sqrt(worst)
        assert true * (1 - 1e-14) <= measurement.worst <= true * (1 + 1e-13) + 1e-300
    if isinstance(region, Streets) and math.isfinite(measurement.worst):
        worst_epsilon = Fraction(measurement.worst) if measurement.worst else Fraction(1, 10**30)
        assert brute(weights, region, worst_epsilon)[0]
        assert measurement.worst == 0 or not brute(weights, region, worst_epsilon * (1 - Fraction(1, 10**9)))[0]


@given(networks(), st.sampled_from(EPSILONS), st.sampled_from(EPSILONS), st.integers(0, 999))
def test_street_epsilon_is_its_steepest_piece(region, solved_epsilon, target_epsilon, seed):
    """Of every piece of every street in rationals, by the curve for the claimed epsilon: more than worst may say."""
    weights = make_private_weights(region, solved_epsilon, region.lengths(solved_epsilon), seed)
    max_epsilon = max_snapping_epsilon(weights, region, target_epsilon)
    true, pieces = Fraction(0), 2 * max(region.steps, 1)
    for (a, b), km in zip(region.simplices.tolist(), region.km.tolist(), strict=True):
        reach = target_epsilon * Fraction(km)
        shares = [street_share(Fraction(j, pieces), reach, region.steps) for j in range(pieces + 1)]
        for weight, next_weight in zip(rows_of(weights)[a], rows_of(weights)[b], strict=True):
            z = [weight + fraction * (next_weight - weight) for fraction in shares]
            if weight != next_weight and not weight * next_weight:
                assert math.isinf(max_epsilon)
                return
            steps = pairwise(z)
            true = max([true, *(abs(y - x) / min(x, y) * pieces / Fraction(km) for x, y in steps if x != y)])
    assert true <= Fraction(max_epsilon)
    assert float(true) * (1 + 1e-12) + (2**-45 / min(region.km.tolist()) if true else 0) >= max_epsilon
    assert not certify_everywhere(weights, region, target_epsilon).holds or max_epsilon <= target_epsilon * (
        1 + Fraction(1, 2**50)
    )


def test_equal_rows_on_a_plane_are_worst_0():
    weights = np.full((4, 2), TOTAL // 2, dtype=np.uint64)
    worst = certify_everywhere(weights, plane_of(grid_points(2, 2, 1.0)), Fraction(1)).worst
    assert (worst, math.copysign(1.0, worst)) == (0.0, 1.0)


def test_long_street_achieves_more_than_its_worst():
    """What another curve, for a lesser epsilon, would do is not what positions are snapped by."""
    street = Streets(size=2, simplices=[[0, 1]], km=[8.0], steps=8)
    weights = np.array([[TOTAL // 6, TOTAL - TOTAL // 6], [TOTAL // 2, TOTAL // 2]], dtype=np.uint64)
    worst = certify_everywhere(weights, street, Fraction(1)).worst
    assert worst < max_snapping_epsilon(weights, street, Fraction(1)) * 0.6


@given(st.integers(0, 1000), st.integers(-30, 1000), st.sampled_from(LENGTHS), st.integers(1, TOTAL - 1))
def test_zero_beside_a_positive_weight_is_refused(steps, exponent, km, weight):
    """A zero counts as 2**-200 in doubles, and the factor of a long street can be above the ratio to that number."""
    street = Streets(size=2, simplices=[[0, 1]], km=[km], steps=steps)
    weights = np.array([[TOTAL, 0], [TOTAL - weight, weight]], dtype=np.uint64)
    measured = certify_everywhere(weights, street, Fraction(2) ** exponent)
    assert measured.holds is False
    assert measured.worst == math.inf


@settings(max_examples=20)
@given(planes(), st.sampled_from(EPSILONS), st.data())
def test_ratios_along_sides_bound_the_gradient(region, epsilon, data):
    """The least value at any corner, the others as far above it as the sides let them be."""
    corners = region.vertices[region.simplices]
    allowed_ratios = sufficient_ratios(corners, epsilon)
    per_mm = epsilon / MM_PER_KM
    for triangle, ratios in zip(corners.tolist(), allowed_ratios.tolist(), strict=True):
        parts = data.draw(st.tuples(*[st.fractions(0, 1, max_denominator=50)] * 2))
        for a in range(3):
            b, c = (a + 1) % 3, (a + 2) % 3
            z = {a: Fraction(1), b: 1 + parts[0] * Fraction(ratios[c]), c: 1 + parts[1] * Fraction(ratios[b])}
            if max(z[b], z[c]) > (1 + Fraction(ratios[a])) * min(z[b], z[c]):
                continue
            (bx, y_b), (cx, cy) = ([triangle[n][axis] - triangle[a][axis] for axis in (0, 1)] for n in (b, c))
            p, q, double_area = z[b] - 1, z[c] - 1, bx * cy - y_b * cx
            assert (p * cy - q * y_b) ** 2 + (q * bx - p * cx) ** 2 <= (per_mm * double_area) ** 2


@pytest.mark.parametrize("exponent", [170, 300, 315])
def test_ratios_at_tiny_epsilons(exponent):
    """Squares of such epsilons underflow in doubles, so a search at the epsilon itself would start far too high."""
    epsilon = Fraction(1, 10**exponent)
    corners = np.array([[[0, 0], [10**6, 0], [0, 10**6]]])
    ratios = sufficient_ratios(corners, epsilon)[0] / float(epsilon)
    assert ratios == pytest.approx([1.0, math.sqrt(0.5), math.sqrt(0.5)], rel=1e-2)


def test_a_ratio_of_zero_on_one_side_proves_nothing_by_itself():
    sides = [[-1000, 1000], [0, -1000], [1000, 0]]
    assert not prove_ratios(sides, np.array([0.0, 5.0, 5.0]), Fraction(1, 10**6))
    assert prove_ratios(sides, np.zeros(3), Fraction(1, 10**6))
    assert not prove_ratios(sides, np.array([-1.0, 0.0, 0.0]), Fraction(1, 10**6))


@pytest.mark.parametrize(
    ("corners", "factor"),
    [
        ([[0, 0], [2 * 10**6, 0], [10**6, 1_732_051]], math.sqrt(0.75)),
        ([[0, 0], [10**6, 0], [0, 10**6]], math.sqrt(0.5)),
    ],
)
def test_common_factors_of_even_triangles(corners, factor):
    points = np.array([corners])
    sides = points[:, [2, 0, 1]] - points[:, [1, 2, 0]]
    assert common_factors(sides, 1e-9)[0] == pytest.approx(factor, abs=1e-6)


@settings(max_examples=20)
@given(planes(), st.sampled_from(EPSILONS))
def test_common_factors_lie_between_their_bounds(region, epsilon):
    points = region.vertices[region.simplices]
    sides = points[:, [2, 0, 1]] - points[:, [1, 2, 0]]
    factors = common_factors(sides, float(epsilon) / MM_PER_KM)
    lengths = np.hypot(sides[..., 0], sides[..., 1])
    backward_sides, forward_sides = -sides[:, [1, 2, 0]], sides[:, [2, 0, 1]]
    angles = np.arccos(
        np.clip((backward_sides * forward_sides).sum(axis=2) / (lengths[:, [1, 2, 0]] * lengths[:, [2, 0, 1]]), -1, 1)
    )
    assert (factors >= np.sin(angles.min(axis=1)) * (1 - 1e-6)).all()
    assert (factors <= np.cos(angles.max(axis=1) / 2) * (1 + 1e-6) + 1e-7).all()


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_privacy_between_records_is_not_everywhere(epsilon):
    """Rows held over the real lengths, then snapped at random: caught by the certificate and by points alike."""
    even = Plane(
        size=4,
        simplices=[[0, 1, 2], [1, 3, 2]],
        vertices=[[0, 0], [10**6, 0], [500_000, 866_025], [1_500_000, 866_025]],
    )
    street = Streets(size=2, simplices=[[0, 1]], km=[1.0], steps=8)
    for region in (even, street):
        edges = region.edges
        lengths = np.ones(len(edges))
        weights = make_private_weights(region, epsilon, lengths, 5)
        measurement = certify_everywhere(weights, region, epsilon)
        assert not measurement.holds
        assert measurement.worst > epsilon
        assert measurement.failures
        assert greatest_excess(rows_of(weights), region, epsilon, random.Random(1), 400) is not None


def test_finds_vertex_on_a_foreign_side():
    """Gradients are small on each triangle, and yet the middle of a side has one row from below and one from above."""
    vertices = [[0, 0], [2 * 10**6, 0], [10**6, -(10**6)], [10**6, 0], [10**6, 10**6]]
    region = Plane(size=5, simplices=[[0, 2, 1], [0, 3, 4], [3, 1, 4]], vertices=vertices)
    weights = [[round(fraction * 1000), 1000 - round(fraction * 1000)] for fraction in (0.5, 0.5, 0.5, 0.7, 0.55)]
    excess = greatest_excess(weights, region, Fraction(1), random.Random(1))
    assert excess is not None
    assert {excess.first[0], excess.second[0]} & {1, 2}
    assert 0 in (excess.first[0], excess.second[0])


def test_compares_streets_across_their_ends():
    """A walk of two streets tells more than either where the middle node's row is another's."""
    street = Streets(size=3, simplices=[[0, 1], [1, 2]], km=[1.0, 1.0], steps=8)
    pairs = list(_draw_pairs(street, Fraction(1), random.Random(3), 200))
    assert any(position[0] != next_position[0] for position, next_position, _ in pairs)
    assert all(0 <= squared <= 36 for _, _, squared in pairs)


def test_keeps_long_streets():
    """A street longer than the way around asks for more than that way does (mathematics C2)."""
    around = Streets(size=3, simplices=[[0, 1], [1, 2]], km=[1.0, 1.0], steps=0)
    all_streets = Streets(size=3, simplices=[[0, 1], [1, 2], [0, 2]], km=[1.0, 1.0, 2.0], steps=0)
    assert all_streets.lengths(Fraction(1))[1] < around.lengths(Fraction(1)).sum()
    first = [TOTAL // 10, 2 * (TOTAL // 10), 4 * (TOTAL // 10)]
    weights = np.array([[w, TOTAL - w] for w in first], dtype=np.uint64)
    assert certify_everywhere(weights, around, Fraction(1)).holds
    assert not certify_everywhere(weights, all_streets, Fraction(1)).holds
    assert greatest_excess(rows_of(weights), all_streets, Fraction(1), random.Random(2), 300) is not None


@pytest.mark.parametrize("tiny", [1e-9, 1e-4, 0.4])
def test_slack_suffices_for_any_edge(tiny):
    region = Streets(size=4, simplices=[[0, 1], [1, 2], [2, 3], [3, 0]], km=[tiny, 1.0, 30.0, tiny * 2], steps=8)
    weights = make_private_weights(region, Fraction(3, 2), region.lengths(Fraction(3, 2)), 2)
    assert certify_everywhere(weights, region, Fraction(3, 2)).holds


def test_rows_of_other_vertices_prove_nothing():
    region = Streets(size=2, simplices=[[0, 1]], km=[1.0], steps=8)
    measurement = certify_everywhere(np.full((1, 2), TOTAL // 2, dtype=np.uint64), region, Fraction(1))
    assert not measurement.holds
    assert math.isinf(measurement.worst)
