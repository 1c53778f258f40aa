"""Losses of people who stand anywhere: the matrix against closed forms, and against people drawn at random."""

import math
import warnings
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import privopt as po
from privopt.declare import load_problem
from privopt.declare.schema import File
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem, Spaces
from privopt_metric_dp.problem.distance_kinds import Euclidean, Graph, Haversine
from privopt_metric_dp.problem.loss_kinds import CostMatrix, DistanceLoss
from privopt_metric_dp.problem.loss_over_region import Spread, expected_cost, spread_evenly
from privopt_metric_dp.region.region import Plane, Streets
from privopt_metric_dp.region.snap_to_region import Snapper
from privopt_metric_dp.space.distance_table import MatrixMetric
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.space.projection import Projection, degrees_in_units

EPSILON = Fraction(3, 2)


def spread_people(region, people):
    """Return the spread of people (B, 2) at positions, as likely as each other, drawn as `apply` draws them."""
    snapped_people, streets = Snapper.of(region, EPSILON).snap(people), isinstance(region, Streets)
    return Spread(
        corners=snapped_people.corners,
        shares=snapped_people.probabilities,
        linear=snapped_people.linear,
        mass=np.full(len(people), 1.0 / len(people)),
        streets=snapped_people.streets,
        places=np.zeros((0, 2)) if streets else people,
    )


def square(side_km=1.0):
    """Two triangles."""
    km = np.array([[0, 0], [side_km, 0], [side_km, side_km], [0, side_km]])
    region = Plane(size=4, simplices=[[0, 1, 2], [0, 2, 3]], vertices=np.rint(km * 1e6))
    return region, Space(ids=tuple("abcd"), coordinates=km, kind="planar")


def cost_of(region, records, spread, outputs=None, kind=Euclidean):
    distance = kind()
    spaces = Spaces(
        records=records, outputs=outputs or records, own=outputs is None, metric=distance.metric(records, outputs)
    )
    return expected_cost(spread, region, DistanceLoss(), distance, spaces, spaces.metric.to_outputs())


def test_segment_costs_a_sixth():
    """Check z = 1 - x and the cost x: 1/6, and not the 0 that weights at the ends would give."""
    region = Streets(size=2, simplices=[[0, 1]], km=[1.0], steps=0)
    records = Space(ids=("a", "b"))
    spaces = Spaces(records=records, outputs=records, own=True, metric=MatrixMetric([[0.0, 1.0], [1.0, 0.0]]))
    spread = spread_evenly(region, EPSILON, records)
    cost = expected_cost(
        spread,
        region,
        DistanceLoss(),
        Graph(edges=File(name="roads.csv", path=None, kept=b"", in_memory={})),
        spaces,
        spaces.metric.to_outputs(),
    )
    assert np.allclose(cost, [[1 / 6, 1 / 3], [1 / 3, 1 / 6]], atol=1e-14)
    assert np.allclose(spread.vertex_masses(2), 0.5)


def test_square_costs_match_integrals():
    """The mean distance to a corner is (sqrt 2 + log(1 + sqrt 2)) / 3, to the middle half of that."""
    region, records = square()
    spread = spread_evenly(region, EPSILON, records)
    mean = (math.sqrt(2) + math.asinh(1)) / 3
    assert np.allclose(cost_of(region, records, spread).sum(axis=0), mean, rtol=1e-7)
    middle = Space(ids=("m",), coordinates=[[0.5, 0.5]], kind="planar")
    assert np.allclose(cost_of(region, records, spread, middle).sum(axis=0), mean / 2, rtol=1e-7)
    assert np.allclose(spread.vertex_masses(4), [1 / 3, 1 / 6, 1 / 3, 1 / 6])


def test_other_losses_are_linear_between_vertices(tmp_path):
    """The matrix of masses of a triangle: area / 12, twice that on the diagonal."""
    region = Plane(size=3, simplices=[[0, 1, 2]], vertices=[[0, 0], [3_000_000, 0], [0, 2_000_000]])
    records = Space(ids=tuple("abc"), coordinates=[[0, 0], [3, 0], [0, 2]], kind="planar")
    np.save(tmp_path / "c.npy", np.eye(3))
    utility = CostMatrix(file=File(name="c.npy", path=tmp_path / "c.npy"))
    spaces = Spaces(records=records, outputs=records, own=True, metric=Euclidean().metric(records, None))
    cost = expected_cost(spread_evenly(region, EPSILON, records), region, utility, Euclidean(), spaces, np.eye(3))
    assert np.allclose(cost, (np.ones((3, 3)) + np.eye(3)) / 12, atol=1e-14)


def double_areas(corners):
    first_side, second_side = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    return first_side[:, 0] * second_side[:, 1] - first_side[:, 1] * second_side[:, 0]


def mesh(seed):
    from scipy.spatial import Delaunay

    rng = np.random.default_rng(seed)
    vertices = rng.integers(0, 5_000_000, (12, 2))
    simplices = Delaunay(vertices).simplices.astype(np.int64)
    is_reversed = double_areas(vertices[simplices]) < 0
    simplices[is_reversed] = simplices[is_reversed][:, [0, 2, 1]]
    return vertices, simplices, rng


def test_drawn_people_cost_the_same_on_a_plane():
    vertices, simplices, rng = mesh(1)
    region = Plane(size=12, simplices=simplices, vertices=vertices)
    records = Space(ids=tuple(map(str, range(12))), coordinates=vertices / 1e6, kind="planar")
    even = spread_evenly(region, EPSILON, records)
    corners = vertices[simplices].astype(float)
    area = double_areas(corners)
    simplex_numbers = rng.choice(len(simplices), 40_000, p=area / area.sum())
    people = np.einsum("bv,bvc->bc", rng.dirichlet([1, 1, 1], 40_000), corners[simplex_numbers]) / 1e6
    people_spread = spread_people(region, people)
    a, b = (cost_of(region, records, spread) for spread in (even, people_spread))
    assert np.allclose(a, b, atol=6 * 5 / math.sqrt(40_000) * 0.1)
    assert np.isclose(a.sum(), b.sum(), rtol=0.01)


def test_drawn_people_cost_the_same_on_streets():
    """S-shaped shares, ways that turn in the middle of a street, a crossing without a junction."""
    rng = np.random.default_rng(2)
    places = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0.5, 2]], dtype=float)
    street_ends = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [2, 4], [0, 2]])
    km = np.hypot(*(places[street_ends[:, 0]] - places[street_ends[:, 1]]).T)
    region = Streets(size=5, simplices=street_ends, km=km, steps=8, positions=places)
    records = Space(ids=tuple(map(str, range(5))), coordinates=places, kind="planar")
    rows = [f"{a},{b},{length!r}" for (a, b), length in zip(street_ends.tolist(), km.tolist(), strict=True)]
    roads = File(name="roads.csv", path=None, kept="\n".join(["from,to,km", *rows, ""]).encode(), in_memory={})
    street = rng.choice(6, 40_000, p=km / km.sum())
    part = rng.random((40_000, 1))
    people = places[street_ends[street, 0]] * (1 - part) + places[street_ends[street, 1]] * part
    people_spread = spread_people(region, people)
    even = spread_evenly(region, EPSILON, records)
    distance = Graph(edges=roads)
    spaces = Spaces(records=records, outputs=records, own=True, metric=distance.metric(records, None))
    a, b = (
        expected_cost(spread, region, DistanceLoss(), distance, spaces, spaces.metric.to_outputs())
        for spread in (even, people_spread)
    )
    assert np.allclose(a, b, atol=0.01)
    assert np.allclose(even.vertex_masses(5), people_spread.vertex_masses(5), atol=0.01)


def test_squares_on_the_earth_weigh_by_area():
    """Two equal cells of degrees, one farther north: people are fewer there, as cos(latitude)."""
    degrees = np.array([[50, 10], [50, 11], [54, 10], [54, 11], [58, 10], [58, 11]], dtype=float)
    projection = Projection.of(degrees, "records")
    region = Plane(
        size=6,
        simplices=[[0, 1, 3], [0, 3, 2], [2, 3, 5], [2, 5, 4]],
        vertices=projection.to_plane(degrees_in_units(degrees)),
        projection=projection,
    )
    records = Space(ids=tuple("abcdef"), coordinates=degrees, kind="geographic")
    spread = spread_evenly(region, EPSILON, records)
    south = spread.mass[spread.places[:, 0] < 54].sum()
    bands = [math.sin(math.radians(b)) - math.sin(math.radians(a)) for a, b in ((50, 54), (54, 58))]
    assert south == pytest.approx(bands[0] / sum(bands), rel=1e-6)
    cost = cost_of(region, records, spread, kind=Haversine)
    assert 200 < cost.sum(axis=0).min() < cost.sum(axis=0).max() < 600


GRID = "[records]\ngrid = { rows = 3, cols = 3, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"


def loss_of(folder, utility, name="p.toml", privacy="everywhere = true\n"):
    (folder / name).write_text(f"{GRID}[privacy]\nepsilon = 1.5\n{privacy}[utility]\nkind = 'distance'\n{utility}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mesh is coarse
        return po.solve("exponential", folder / name)


def test_loss_of_release_is_what_people_lose(tmp_path):
    """Positions drawn, protected and measured one by one: the objective of result.json is their mean."""
    even = loss_of(tmp_path, "")
    square = np.random.default_rng(5).random((80_000, 2)) * 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distances = np.hypot(*(even.apply(square) - square).T)
    assert even.loss == pytest.approx(distances.mean(), abs=6 * distances.std() / math.sqrt(len(distances)))


def test_prior_means_people_on_records(tmp_path):
    ids = [f"r{r}c{c}" for r in range(3) for c in range(3)]
    pl.DataFrame({"id": ids, "p": [1.0] + [0.0] * 8}).write_csv(tmp_path / "prior.csv")
    release = loss_of(tmp_path, "prior = 'prior.csv'\n")
    matrix = release.opened.release
    coordinates = release.opened.problem.data.records.coordinates
    assert release.loss == pytest.approx(float(matrix.probabilities[0] @ np.hypot(*coordinates.T)))


def test_default_targets_are_the_records(tmp_path):
    """Not the vertices that divide streets."""
    (tmp_path / "points.csv").write_text("id\na\nb\n")
    (tmp_path / "targets.csv").write_text("id,weight\na,2\nb,2\n")
    (tmp_path / "roads.csv").write_text("from,to,km\na,b,0.8\nb,c,0.6\n")
    text = (
        "[records]\npoints = 'points.csv'\n[distance]\nkind = 'graph'\nedges = 'roads.csv'\n[privacy]\nepsilon = 2.0\n"
    )
    text += "everywhere = true\n[utility]\nkind = 'travel-cost'\n"
    costs = []
    for name, targets in (("one", ""), ("other", "targets = 'targets.csv'\n")):
        (tmp_path / f"{name}.toml").write_text(text + targets)
        problem = load_problem(MetricProblem, tmp_path / f"{name}.toml")
        costs.append(MetricInstance.of(problem, name).data.cost)
    assert len(costs[0]) > 3
    assert np.allclose(*costs)
