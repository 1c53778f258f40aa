"""Extremes: streets without length, reaches beyond doubles, the antimeridian; and what is refused, by name."""

import json
from fractions import Fraction

import numpy as np
import pytest
from helpers.grids import often

import privopt as po
from privopt.errors import InputError, UsageError
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_metric_dp.region.snap_to_region import far_share, far_shares

GRAPH = ('points = "nodes.csv"', 'kind = "graph"\nedges = "roads.csv"')
KINDS = {"graph": GRAPH, "points": ('points = "points.csv"', 'kind = "euclidean"')}
FILES = {
    "roads.csv": "from,to,km\na,b,0.4\nb,c,0.7\nc,a,0.9\n",
    "nodes.csv": "id,x,y\na,0,0\nb,0.35,0\nc,0.7,0.5\n",
    "points.csv": "id,x,y\na,0,0\nb,1,0\nc,0.4,0.9\n",
}


def write(folder, records, distance, privacy="", epsilon="1.5", **files):
    for name, text in (FILES | {f"{stem}.csv": text for stem, text in files.items()}).items():
        (folder / name).write_text(text)
    problem = folder / "p.toml"
    problem.write_text(
        f"[records]\n{records}\n[distance]\n{distance}\n[privacy]\nepsilon = {epsilon}\neverywhere = true\n{privacy}\n"
        "[utility]\nkind = 'distance'\n"
    )
    return problem


def solve_streets(folder, roads, epsilon, privacy="", nodes="id\na\nb\nc\n"):
    problem = write(folder, *GRAPH, privacy, epsilon, roads=roads, nodes=nodes)
    return solve("exponential", problem, folder / "out", Options()).folder


@pytest.mark.parametrize("km", ["0", "1e-320"])
def test_streets_of_zero_length_are_equally_likely(tmp_path, km):
    folder = solve_streets(tmp_path, f"from,to,km\na,b,{km}\nb,c,{km}\n", "1.5")
    verification = verify(folder)
    assert verification.verdict == "proved", verification.complaints
    assert json.loads((folder / "result.json").read_text())["objective"]["value"] == pytest.approx(0, abs=1e-300)


@pytest.mark.parametrize(("epsilon", "km"), [("1e45", "1e9"), ("1e20", "1e20"), ("1e-3", "1e8")])
def test_reaches_beyond_doubles(tmp_path, epsilon, km):
    nodes = "id,x,y\na,0,0\nb,1,0\nc,1,1\n"
    folder = solve_streets(tmp_path, f"from,to,km\na,b,{km}\nb,c,1\n", epsilon, "split_km = 1e300", nodes)
    verification = verify(folder)
    assert verification.verdict == "proved", verification.complaints
    assert len(po.open(folder).sample(xy=(0.3, 0), count=50)) == 50


@pytest.mark.parametrize("reach", [1e3, 1e20, 1e45, 1e300, np.inf])
@pytest.mark.parametrize("steps", [1, 8, 12])
def test_shares_are_doubles_at_any_steepness(reach, steps):
    parts = np.linspace(0, 1, 33)
    shares = far_shares(parts, np.full(33, reach), steps)
    exact = [float(far_share(part, Fraction(min(reach, 1e300)), steps)) for part in map(Fraction, parts.tolist())]
    assert np.abs(shares - exact).max() < 2**-40


def test_streets_divide_at_the_antimeridian(tmp_path):
    nodes = "id,lat,lon\na,10,179.99\nb,10,-179.99\nc,10.01,-179.98\n"
    folder = solve_streets(tmp_path, "from,to,km\na,b,2.2\nb,c,1.6\n", "1.5", nodes=nodes)
    longitudes = po.open(folder).opened.problem.data.region.positions[:, 1]
    assert len(longitudes) > 3
    assert (np.abs(longitudes) > 179.97).all()
    assert len(po.open(folder).sample(at=(10.0, 180.0), count=3)) == 3


@pytest.mark.parametrize(
    ("kind", "privacy", "roads"),
    [
        ("graph", "split_km = 1e-9", {}),
        ("graph", "split_km = 1e-5", {"roads": "from,to,km\na,b,1e149\nb,c,1\n"}),
        ("points", "split_km = 1e-5", {}),
    ],
)
def test_too_many_pieces_are_a_fault(tmp_path, kind, privacy, roads):
    problem = write(tmp_path, *KINDS[kind], privacy, **roads)
    with pytest.raises(InputError) as excinfo:
        solve("exponential", problem, tmp_path / "out", Options())
    (fault,) = excinfo.value.faults
    assert fault.file == "p.toml"
    assert fault.where == "privacy.split_km"
    assert len(fault.actual) < 120


@pytest.mark.parametrize("name", ["points", "graph"])
def test_refuses_invalid_draws(tmp_path, name):
    release = po.open(solve("exponential", write(tmp_path, *KINDS[name]), tmp_path / "out", Options()).folder)
    for count in (0, -1, 1.5, True, None):
        with pytest.raises(UsageError, match="a whole number"):
            release.sample("a", count=count)
        with pytest.raises(UsageError, match="a whole number"):
            release.sample(xy=(0, 0), count=count)
    for position in ((1.0,), (1, 2, 3), 7, "xy", (None, "b"), [[1, 2]]):
        with pytest.raises(UsageError, match="two numbers"):
            release.sample(xy=position)
    assert len(release.sample("a", count=np.int64(2))) == 2


def test_mesh_needs_geojson():
    for region in (np.zeros((4, 2)), {"type": "Polygon", "coordinates": np.zeros((1, 4, 2))}):
        with pytest.raises(UsageError, match="must be GeoJSON"):
            po.mesh(region, 0.5)


@often("name", ["points", "graph"], ["graph"])
@pytest.mark.usefixtures("undrawn")
def test_report_states_the_scope_of_the_bound(tmp_path, name):
    folder = solve("optimal-lp", write(tmp_path, *KINDS[name]), tmp_path / "out", Options()).folder
    page = write_report(folder).read_text()
    assert "along every edge" in page
    assert "with this guarantee" not in page
