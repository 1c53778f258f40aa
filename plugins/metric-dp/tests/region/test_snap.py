"""Shares of vertices are the exact rationals, wherever a position lies; vertices are drawn with exactly these."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.exact_places import nearest as first_nearest
from helpers.exact_places import rim_of, triangle_finder
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from scipy.spatial import Delaunay, QhullError
from scipy.stats import chisquare

from privopt.numbers.sampling import choose
from privopt_metric_dp.region.locate import Sides, Triangles
from privopt_metric_dp.region.region import street_growth
from privopt_metric_dp.region.snap_to_region import Snapper, far_share, far_shares, read_positions
from privopt_metric_dp.space.projection import Projection

SIZES = (30, 10**6, 2**31 - 5, 2**40)  # beyond 2^31 mm Python's integers decide


@st.composite
def meshes(draw):
    size = draw(st.sampled_from(SIZES))
    point = st.tuples(*[st.integers(-size, size)] * 2)
    points = np.array(draw(st.lists(point, min_size=3, max_size=12, unique=True)), dtype=np.int64)
    try:
        simplices = Delaunay(points.astype(float)).simplices.astype(np.int64)
    except QhullError:  # all on one line
        reject()
    a, b, c = (points[simplices[:, k]].astype(object) for k in range(3))
    area = (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]
    simplices[area < 0] = simplices[area < 0][:, [0, 2, 1]]
    simplices = simplices[area != 0]
    assume(len(simplices))
    is_kept = draw(st.lists(st.booleans(), min_size=len(simplices), max_size=len(simplices)))
    kept_simplices = simplices[np.array(is_kept)] if any(is_kept) else simplices  # holes, several parts
    return points, kept_simplices, size


def point_of(snapped_positions, row, vertices):
    shares = snapped_positions.exact(row)
    return tuple(
        sum(s * int(vertices[c, k]) for s, c in zip(shares, snapped_positions.corners[row], strict=True))
        for k in (0, 1)
    )


def nearest(position, tails, heads):
    """Return the least squared distance to sides, as a rational."""
    best = None
    for (ax, ay), (bx, y_b) in zip(tails.tolist(), heads.tolist(), strict=True):
        length = (bx - ax) ** 2 + (y_b - ay) ** 2
        part = Fraction((position[0] - ax) * (bx - ax) + (position[1] - ay) * (y_b - ay), length) if length else 0
        part = min(max(part, 0), 1)
        squared_distance = (ax + part * (bx - ax) - position[0]) ** 2 + (ay + part * (y_b - ay) - position[1]) ** 2
        best = squared_distance if best is None else min(best, squared_distance)
    return best


@given(meshes(), st.data())
def test_position_is_the_mixture_of_its_corners(mesh, data):
    """Inside it is that very point; outside it is a nearest one of the rim; on vertices, borders, in holes too."""
    vertices, simplices, size = mesh
    free = st.tuples(*[st.integers(-3 * size, 3 * size)] * 2)
    on = st.sampled_from([tuple(v) for v in vertices.tolist()])
    middle = st.sampled_from([tuple(((vertices[s[0]] + vertices[s[1]]) // 2).tolist()) for s in simplices])
    positions = np.array(data.draw(st.lists(free | on | middle, min_size=1, max_size=8)), dtype=np.int64)
    snapper = Snapper(vertices=vertices, simplices=simplices)
    snapped_positions = snapper.exactly(positions)
    triangle_numbers, _ = snapper._triangles.locate(positions)
    vertex_list, triangles = list(map(tuple, vertices.tolist())), list(map(tuple, simplices.tolist()))
    find, rim = triangle_finder(vertex_list, triangles), rim_of(triangles)
    for row, position in enumerate(positions.tolist()):
        shares = snapped_positions.exact(row)
        corners, parts = find(tuple(position)) or ((), ())
        if not corners:  # the checker's: the same mixture
            n, part = first_nearest(tuple(position), [(vertex_list[a], vertex_list[b]) for a, b in rim])
            corners, parts = rim[n], (1 - part, part)
        mixture = {
            v: Fraction(part_share, sum(parts)) for v, part_share in zip(corners, parts, strict=True) if part_share
        }
        assert mixture == {v: s for v, s in zip(snapped_positions.corners[row].tolist(), shares, strict=True) if s}
        assert sum(shares) == 1
        assert min(shares) >= 0
        x, y = point_of(snapped_positions, row, vertices)
        if triangle_numbers[row] >= 0:
            assert (x, y) == tuple(position)
            assert snapped_positions.away[row] == 0
            continue
        squared_distance = (x - position[0]) ** 2 + (y - position[1]) ** 2
        assert squared_distance == nearest(position, snapper._sides.tails, snapper._sides.heads)
        assert squared_distance > 0
        assert np.isclose(
            snapped_positions.away[row] * 1e6, float(squared_distance) ** 0.5, rtol=1e-9, atol=1e-12 * size
        )
    assert np.allclose(
        snapped_positions.probabilities, [[float(s) for s in snapped_positions.exact(r)] for r in range(len(positions))]
    )


@given(meshes(), st.data())
def test_locates_exactly_the_triangles(mesh, data):
    vertices, simplices, size = mesh
    point = st.tuples(*[st.integers(-size, size)] * 2)
    positions = np.array(data.draw(st.lists(point, min_size=1, max_size=20)), dtype=np.int64)
    triangle_numbers, shares = Triangles(vertices=vertices, simplices=simplices).locate(positions)
    for row, (x, y) in enumerate(positions.tolist()):
        is_inside = []
        for s in simplices:
            (ax, ay), (bx, y_b), (cx, cy) = (vertices[k].tolist() for k in s)
            u = (bx - x) * (cy - y) - (y_b - y) * (cx - x)
            v = (cx - x) * (ay - y) - (cy - y) * (ax - x)
            w = (ax - x) * (y_b - y) - (ay - y) * (bx - x)
            is_inside.append(min(u, v, w) >= 0)
        assert (triangle_numbers[row] >= 0) == any(is_inside)
        assert triangle_numbers[row] < 0 or (is_inside[triangle_numbers[row]] and sum(map(int, shares[row])) > 0)


@given(
    st.lists(st.tuples(*[st.integers(-50, 50) | st.integers(-1, 1)] * 4), min_size=1, max_size=30),
    st.lists(st.tuples(*[st.integers(-200, 200)] * 2), min_size=1, max_size=10),
    st.sampled_from([1, 10**7, 10**11]),
)
def test_finds_the_nearest_street(streets, positions, scale):
    """Crossings, points, parallels, and positions that are equally near to many: the first, as the checker has it."""
    street_ends = np.array(streets, dtype=np.int64) * scale
    sides = Sides(tails=street_ends[:, :2], heads=street_ends[:, 2:])
    query_points = np.array(positions, dtype=np.int64) * scale
    lines = [((a, b), (c, d)) for a, b, c, d in street_ends.tolist()]
    side_numbers, shares, distances = sides.nearest(query_points)
    for row, position in enumerate(query_points.tolist()):
        (ax, ay), (bx, y_b) = sides.tails[side_numbers[row]].tolist(), sides.heads[side_numbers[row]].tolist()
        part = Fraction(int(shares[row][1]), int(shares[row].sum()))
        squared_distance = (ax + part * (bx - ax) - position[0]) ** 2 + (ay + part * (y_b - ay) - position[1]) ** 2
        assert squared_distance == nearest(position, sides.tails, sides.heads)
        assert np.isclose(distances[row], float(squared_distance) ** 0.5, rtol=1e-9, atol=1e-12 * 200 * scale)
        assert first_nearest(tuple(position), lines) == (side_numbers[row], part)


@given(st.fractions(0, 1), st.fractions(0, 40, max_denominator=10**6), st.integers(0, 12))
def test_curve_keeps_its_promise(part, reach, steps):
    """Between two points of a street no mixture of rows that differ by 1 + a changes by more than exp(reach d)."""
    assert far_share(Fraction(0), reach, steps) == 0
    assert far_share(part, reach, steps) == 1 - far_share(1 - part, reach, steps)
    if reach:
        a = street_growth(reach, 1.0, steps)
        step = Fraction(1, 10**9)
        share_at, share_beyond = (far_share(p, reach, steps) for p in (part * (1 - step), part * (1 - step) + step))
        for low, high in ((1, 1 + a), (1 + a, 1)):
            z = [low + s * (high - low) for s in (share_at, share_beyond)]
            slope = (z[1] - z[0]) / step
            assert abs(slope) <= reach * min(z) * (1 + reach * step)
    assert (
        abs(far_shares(np.array([float(part)]), np.array([float(reach)]), steps)[0] - far_share(part, reach, steps))
        < 2**-40
    )


def test_vertices_are_drawn_with_their_shares():
    vertices = np.array([[0, 0], [1000, 0], [0, 1000], [1000, 1000]])
    snapper = Snapper(vertices=vertices, simplices=np.array([[0, 1, 2], [1, 3, 2]]))
    snapped_positions = snapper.exactly(np.tile([[250, 125]], (200_000, 1)))
    counts = np.bincount(snapped_positions.draw(), minlength=4)
    assert counts[3] == 0
    assert chisquare(counts[:3], np.array([0.625, 0.25, 0.125]) * 200_000).pvalue > 1e-6
    streets = Snapper(vertices=vertices, simplices=np.array([[0, 1]]), reaches=[Fraction(8)], steps=2)
    counts = np.bincount(streets.exactly(np.tile([[250, 900]], (100_000, 1))).draw(), minlength=4)
    assert chisquare(counts[:2], np.array([7, 1]) / 8 * 100_000).pvalue > 1e-6


@given(st.fractions(0, 1, max_denominator=1000), st.binary(min_size=0, max_size=3))
def test_rationals_decide_bits_at_a_cut(cut, tail):
    """Random bytes that spell the cut itself, so that doubles cannot tell; then more bits until they part."""
    digits, remainder = [], cut
    for _ in range(3):
        remainder *= 2**64
        digit = min(remainder.numerator // remainder.denominator, 2**64 - 1)
        digits.append(digit)
        remainder -= digit
    stream = b"".join(d.to_bytes(8, "little") for d in digits) + tail + bytes(4000)
    offset = 0

    def source(count):
        nonlocal offset
        offset += count
        return stream[offset - count : offset]

    chosen_number = choose(np.array([[float(cut)]]), lambda row: [cut], source=source)[0]
    number = sum(Fraction(int.from_bytes(stream[8 * k : 8 * k + 8], "little"), 2 ** (64 * k + 64)) for k in range(400))
    if 0 < cut < 1:
        assert chosen_number == (number >= cut)
    else:
        assert chosen_number == (cut == 0)


def test_zero_shares_are_never_drawn():
    """Even where all bits are 0 or 1."""
    for byte in (b"\x00", b"\xff"):
        corners = np.array([[0, 0], [9, 0], [0, 9]])
        snapped_corners = Snapper(vertices=corners, simplices=np.array([[0, 1, 2]])).exactly(corners)
        assert snapped_corners.draw(lambda count, byte=byte: byte * count).tolist() == [0, 1, 2]


@pytest.mark.parametrize(("km", "mm"), [(0.1234567, 123457), (-0.0000005, 0), (1e300, 2**50)])
def test_positions_are_read_to_the_millimetre(km, mm):
    assert read_positions(np.array([[km, 0.0]]), None)[0, 0] == mm


@pytest.mark.parametrize(("geographic", "max_shift"), [(False, 1.4143), (True, 17.2)])
def test_reading_moves_positions_by_little(geographic, max_shift):
    rng = np.random.default_rng(3)
    projection = Projection.of(np.array([[0.0, 7.0], [0.01, 7.01]]), "records") if geographic else None
    unit = 1e-7 if geographic else 1e-6
    grid_points = rng.integers(1, 5, size=(40_000, 2, 2))
    written_points = (grid_points + rng.choice([0.4999, 0.5001, 0.5], size=grid_points.shape)) * unit
    if projection is not None:
        written_points[..., 1] += 7.0
    read = np.stack([read_positions(written_points[:, end], projection) for end in (0, 1)], axis=1)
    scale = np.array([1.0, 1.0]) * 1e6
    if projection is not None:
        scale = np.array([projection.north, projection.east]) * 1e7 / 2.0**24
    meant = np.hypot(*((written_points[:, 0] - written_points[:, 1]) * scale).T)
    farther = np.hypot(*(read[:, 0] - read[:, 1]).T.astype(float)) - meant
    assert 0.8 * max_shift < farther.max() < max_shift
