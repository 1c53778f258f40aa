"""Problems without a file: the same pipeline, the same checks, any kind of table."""

import re
import subprocess
import sys
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve

import privopt as po
from privopt.errors import DoesNotHoldError, InputError, UsageError
from privopt.registry import registry
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_tables.options import describe_limits

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "guide" / "in-memory.md"
NODES = {"node": ["a", "b", "c"], "north": [41.9, 41.9, 41.91], "east": [12.4, 12.41, 12.4]}
TRIPS = {"trip": [1, 2, 3], "la": [41.9, 41.9, 41.91], "lo": [12.4, 12.41, 12.4]}
KINDS = {
    "pandas": lambda columns: pd.DataFrame(columns, index=range(5, 5 + len(next(iter(columns.values()))))),
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "dict": dict,
}


def town(make=dict, **changes):
    places = po.records(make(NODES), id="node", lat="north", lon="east")
    return po.metric_problem(places, **({"distance": "haversine", "epsilon": "2/km"} | changes))


@pytest.fixture(scope="module")
def release():
    return po.solve("exponential", town())


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_kind_of_table_comes_back_without_the_secret(kind, release):
    make = KINDS[kind]
    trips = make(TRIPS)
    safe = release.apply(trips, lat="la", lon="lo")
    assert type(safe) is type(trips)
    names = {"pyarrow": lambda: safe.column_names, "dict": lambda: safe}.get(kind, lambda: safe.columns)()
    assert list(names) == ["trip", "report", "report_lat", "report_lon"]
    if kind == "pandas":
        assert list(safe.index) == [5, 6, 7]
    assert set(safe["report"].to_pylist() if kind == "pyarrow" else safe["report"]) <= set("abc")
    assert (
        po.solve("exponential", town(make)).opened.release.weights.tolist() == release.opened.release.weights.tolist()
    )


def test_what_is_wrong_is_said_in_words_of_the_call(release, tmp_path):
    with pytest.raises(po.PrivoptError, match="solve: no option foo; there are method, solver,"):
        po.solve("exponential", town(), foo=1)
    for given in ("2 parsecs", True, np.float64(-2.0)):
        with pytest.raises(UsageError, match=f"max-snap must be a finite number of km above 0, got {given}"):
            release.apply(TRIPS, lat="la", lon="lo", max_snap=given)
    folder = release.save(tmp_path / "out")
    with pytest.raises(UsageError, match=r"save: .*/out: exists already; force=True replaces it"):
        release.save(folder)
    with pytest.raises(UsageError, match=r"by must have a text for each record's id.*, \{'a': 'a', \.\.\.\}"):
        release.estimate({"report": ["a"]}, by={"id": ["a", "b", "c"], "group": ["x", "x", "y"]})
    with pytest.raises(UsageError, match=r"by must have a text .*: see \['x'\]"):
        release.estimate({"report": ["a"]}, by={"a": ["x"], "b": ["x"], "c": ["y"]})


def test_a_geodataframe_moves_to_where_reports_lie(release):
    points = gpd.points_from_xy([12.4, 12.41, None], [41.9, 41.9, None])
    trips = gpd.GeoDataFrame({"n": [1, 2, 3]}, geometry=points, crs=4326).to_crs(3857).rename_geometry("where")
    with pytest.warns(po.PrivoptWarning, match="1 of 3 rows without a report: 1 empty position"):
        safe = release.apply(trips)
    assert isinstance(safe, gpd.GeoDataFrame)
    assert (safe.crs, safe.geometry.name) == ("EPSG:4326", "where")
    assert safe["where"].isna().tolist() == [False, False, True]
    assert np.allclose(safe["where"].x[:2], safe["report_lon"][:2].astype(float))
    places = po.records(trips[:2].assign(id=["u", "v"]), geometry="where")
    problem = po.metric_problem(places, distance="haversine", epsilon=1)
    assert po.solve("exponential", problem).opened.release.records.tolist() == ["u", "v"]


def test_nothing_beside_the_table_tells_the_secret(release, tmp_path):
    points = gpd.points_from_xy([12.4, 12.41], [41.9, 41.9])
    frame = gpd.GeoDataFrame({"id": ["a", "b"], "geometry": ["one", "two"]}).assign(geom=points)
    frame = frame.set_geometry("geom", crs=4326)
    frame.attrs["corner"] = [41.9, 12.4]
    with pytest.warns(po.PrivoptWarning, match="column geometry stays as it is and is named like positions"):
        safe = release.apply(frame, id="id")
    assert (safe.geometry.name, safe["geometry"].tolist(), safe.attrs) == ("geom", ["one", "two"], {})
    assert np.allclose(safe.geometry.y, safe["report_lat"])
    with pytest.raises(InputError, match=r"column second: expected .*, got geometries that would stay"):
        release.apply(frame.assign(second=frame.geometry), id="id")
    with pytest.raises(InputError, match=r"column geom: expected .*, got points without a reference system"):
        release.apply(frame.set_crs(None, allow_override=True), geometry="geom")
    with pytest.raises(UsageError, match="index id"):
        release.apply(pd.DataFrame({"id": ["a"]}).set_index("id", drop=False), id="id")
    frame.drop(columns="geometry").to_parquet(tmp_path / "t.parquet", write_covering_bbox=True)
    arrow = pq.read_table(tmp_path / "t.parquet")
    safe = release.apply(arrow, geometry="geom")
    assert safe.schema.metadata is None
    assert safe.column_names == ["id", "report", "report_lat", "report_lon"]
    with pytest.raises(InputError, match=r"column bbox: expected .*, got boxes"):
        release.apply(pl.from_arrow(arrow), geometry="geom")
    with pytest.raises(InputError, match=r"column bbox: expected .*, got boxes"):
        release.apply(arrow.to_pandas(ignore_metadata=True), geometry="geom")


def test_a_release_that_promises_less_says_so():
    near = po.solve("exponential", town(neighbours_within="1.2 km"))
    with pytest.warns(po.PrivoptWarning, match="between records up to 1.2 km apart: nothing is promised beyond"):
        near.apply({"id": ["a"]}, id="id")
    none = evolve(near.guarantee, kind="none")
    assert describe_limits(none) == ("nothing holds: reports of this release may reveal what they were drawn for",)


def test_a_release_that_changed_on_disk_is_not_saved(release, tmp_path):
    release.save(tmp_path / "one")
    again = po.open(tmp_path / "one")
    told = tmp_path / "one" / "result.json"
    told.write_text(told.read_text().replace("exponential", "Exponential"))
    with pytest.raises(DoesNotHoldError, match=r"result\.json"):
        again.save(tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_files_outside_a_problems_folder_are_not_left_out(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "points.csv").write_text("id,x,y\na,0,0\n")
    text = "a" * 400
    (tmp_path / "in" / "p.toml").write_text(f'[records]\npoints = "../points.csv"\nwhy = "{text}"\n')
    problem = po.read_problem(tmp_path / "in" / "p.toml")
    with pytest.raises(UsageError, match=r"must be inside its folder .*, got \.\./points\.csv"):
        problem.write(tmp_path / "out")


def test_tables_that_are_none_are_refused(release):
    for table, words in (
        ({"id": ["a"], "n": [1, 2]}, "the same number of rows in each column, got 1 to 2 rows"),
        (pd.DataFrame([["a"]]), "texts as names of columns, got 0"),
        (pd.DataFrame([["a", 1, 2]], columns=["id", "n", "n"]), "columns that differ in name, got n twice"),
    ):
        with pytest.raises(UsageError, match=words):
            release.apply(table, id="id")
    with pytest.raises(UsageError, match="seed must be a whole number of at least 0, got -1"):
        release.apply({"id": ["a"]}, id="id", seed=-1)


def test_arrays_come_back_as_arrays(release):
    positions = np.array([[41.9, 12.4], [41.91, 12.4]])
    reported = release.apply(positions)
    with pytest.warns(po.PrivoptWarning, match="this table: seeded, not private"):
        release.apply(np.array(["a"]), seed=1)
    with pytest.raises(UsageError, match="max-snap"):
        release.apply(np.array(["a"]), max_snap=1.0)
    assert reported.shape == (2, 2)
    assert {tuple(row) for row in reported.tolist()} <= {(41.9, 12.4), (41.9, 12.41), (41.91, 12.4)}
    assert set(release.apply(np.array(["a", "c"])).tolist()) <= set("abc")
    for more in ({"text": "id"}, {"prefix": "end"}, {"positions": {"end": ["id"]}}):
        with pytest.raises(UsageError, match="must be omitted with an array: they name columns"):
            release.apply(np.array(["a"]), **more)
    with pytest.raises(UsageError, match=r"shape \(3, 3\)"):
        release.apply(np.zeros((3, 3)))


def test_a_problem_in_memory_is_the_problem_in_files(tmp_path, release):
    problem = town(prior={"a": 2, "b": 1, "c": 1}, neighbours_within="1.5 km")
    path = problem.write(tmp_path / "written")
    back = po.read_problem(path)
    assert (back.toml, dict(back.source.in_memory)) == (problem.toml, dict(problem.source.in_memory))
    solved = solve("exponential", path, tmp_path / "out")
    one, two = (MatrixRelease.read(solved.folder, None), po.solve("exponential", problem).opened.release)
    assert (one.weights == two.weights).all()
    with pytest.raises(UsageError, match=r"problem\.toml"):
        problem.write(tmp_path / "written")


def test_a_release_is_saved_whole_and_opened_again(tmp_path, release):
    folder = release.save(tmp_path / "out")
    assert verify(folder).verdict == "proved"
    again = po.open(folder)
    assert (again.loss, again.bound, again.guarantee) == (release.loss, release.bound, release.guarantee)
    assert again.meaning == release.meaning
    assert "twice as likely" in again.promise
    assert set(again.sample("a", 20)) <= set("abc")
    assert again.audit()["epsilon"]["claimed"] == 2.0
    with pytest.raises(UsageError, match="exists already"):
        release.save(folder)
    release.save(folder, force=True)


@pytest.mark.parametrize(
    ("changes", "nodes", "words"),
    [
        (
            {},
            {"north": [41.9, "x", 41.9]},
            "records.csv: row 3, column north: expected a finite number (degrees), got x",
        ),
        ({}, {"node": ["a", "", "c"]}, "records.csv: row 3, column node: expected an id, got nothing"),
        ({}, {"node": ["a", "a", "c"]}, "records.csv: row 3, column node: expected ids that differ, got a again"),
        (
            {"epsilon": -1},
            {},
            "problem.toml: privacy.epsilon: expected a number above 0 (per unit of distance), got -1",
        ),
        (
            {"distance": "euclidian"},
            {},
            "problem.toml: distance.kind: expected one of euclidean, haversine, graph, matrix, got 'euclidian'",
        ),
        ({"prior": {"a": 1.0}}, {}, "prior.csv: expected one row for each record, got no row for 2 records (b, ...)"),
        ({"lr_geo": {"user": 1}, "epsilon": "x"}, {}, "epsilon must be a number with a unit, such as '3/km', got 'x'"),
        ({"prior": [1, 2]}, {}, "prior: expected 3, one for each record, got 2 weights"),
        ({"prior": [1, 2, -1]}, {}, "prior: id c: expected a finite weight of at least 0, got -1.0"),
        ({"prior": {"a": 1, "b": "much", "c": 1}}, {}, "prior: id b: expected a finite weight of at least 0, got nan"),
        ({"outputs": NODES}, {}, "outputs must be privopt.records of a table"),
    ],
)
def test_faults_have_the_lines_of_problem_files(changes, nodes, words):
    def solved():
        places = po.records(NODES | nodes, id="node", lat="north", lon="east")
        return po.solve("exponential", po.metric_problem(places, **({"distance": "haversine", "epsilon": 1} | changes)))

    with pytest.raises((InputError, UsageError), match=re.escape(words)):
        solved()


def test_numbers_that_are_text_and_tables_in_places_of_others_are_refused_by_name(release):
    places = po.grid(1, 2, 1.0)
    with pytest.raises(UsageError, match=r"places must be privopt.records.*, got ndarray"):
        po.metric_problem(np.zeros((3, 2)), distance="euclidean", epsilon=1)
    plain = po.metric_problem(places, distance="euclidean", epsilon=1)
    for name, given in (("seed", -1), ("time_limit", "5"), ("gap", "x"), ("jobs", 1.5), ("memory", True)):
        with pytest.raises(UsageError, match=f"{name} must be a.*, got {given!r}"):
            po.solve("exponential", plain, **{name: given})
    for name in ("seed", "time_limit"):
        with pytest.raises(UsageError, match=f"{name} must be .*, got 1000"):
            po.solve("exponential", plain, **{name: 10**400})
    assert po.solve("exponential", plain, seed=np.int64(3), time_limit=np.float32(60)).result.seed == 3
    with pytest.raises(UsageError, match=r"gap must be .*, got 'x'"):
        po.certify(np.eye(2), plain, gap="x")
    with pytest.raises(UsageError, match=r"confidence must be a finite number, got '0.95'"):
        release.estimate(["a"], confidence="0.95")
    for by in ({1: "x", "a": "y"}, pd.DataFrame(NODES)):
        with pytest.raises(UsageError, match=r"^by must "):
            release.estimate(["a"], by=by)
    with pytest.raises(UsageError, match="table must have a list or an array for each column"):
        release.apply({"id": "a"}, id="id")


@pytest.mark.parametrize("series", [pd.Series, pl.Series])
def test_a_series_is_taken_where_a_list_is(release, series):
    assert release.estimate(series(["a", "b"])).n == 2
    given = {"distance": "euclidean", "epsilon": 1}
    text, plain = (po.metric_problem(po.grid(1, 2, 1.0), prior=of([1.0, 3.0]), **given) for of in (series, list))
    assert text.source.in_memory == plain.source.in_memory


def test_ids_that_are_whole_doubles_are_the_same_everywhere(tmp_path):
    frame = pl.DataFrame({"id": [7.0, 8.0], "lat": [41.9, 41.91], "lon": [12.0, 12.0]})
    frame.write_parquet(tmp_path / "p.parquet")
    text = '[records]\npoints = "p.parquet"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = 1.0\n'
    (tmp_path / "p.toml").write_text(text + '[utility]\nkind = "distance"\n')
    problem = po.metric_problem(
        po.records(frame.to_pandas(), lat="lat", lon="lon"), distance="haversine", epsilon=1, prior={7.0: 1, 8.0: 1}
    )
    for given in (tmp_path / "p.toml", problem):
        release = po.solve("exponential", given)
        assert release.opened.release.records.tolist() == ["7", "8"]
        for table in (frame.select("id"), frame.select("id").to_pandas(), {"id": [7, 8]}):
            assert len(release.apply(table, id="id")["report"]) == 2
        assert release.estimate(np.array([7.0, 8.0])).n == 2


def test_ids_of_vectors_are_one_line_each():
    for name in ("a\nb", "a\u2028b", "a\x85", "\r"):
        with pytest.raises(InputError, match=r"expected ids of one line each.*, got the end of a line inside it"):
            po.vectors(np.eye(2), [name, "c"])
    problem = po.metric_problem(po.vectors(np.eye(2), [1.0, 2.0]), distance="euclidean", epsilon=1)
    assert po.solve("exponential", problem).opened.release.records.tolist() == ["1", "2"]


def test_a_table_without_the_column_is_refused_by_name():
    with pytest.raises(InputError, match=r"records: header: expected one of node, north, east.*, got no column 'lat'"):
        po.records(NODES, id="node", lat="lat", lon="east")
    with pytest.raises(InputError, match=r"roads: header: expected .*, got no column 'km'"):
        po.roads({"from": ["a"], "to": ["b"]})
    with pytest.raises(UsageError, match="collected first"):
        po.records(pl.LazyFrame(NODES), id="node", lat="north", lon="east")


def test_records_and_outputs_may_both_be_tables():
    outputs = po.records({"id": ["u", "v"], "lat": [41.9, 41.95], "lon": [12.4, 12.45]}, lat="lat", lon="lon")
    safe = po.solve("exponential", town(outputs=outputs)).apply({"at": ["a"]}, id="at")
    assert safe["report"][0] in ("u", "v")


def test_a_notebook_shows_loss_and_promise(release):
    shown = release._repr_html_()
    for words in (f"{release.loss:.6g} km", "twice as likely", "proved: ", "best guess"):
        assert words in shown


def test_importing_privopt_loads_nothing_heavy():
    heavy = "numpy scipy polars narwhals sympy mip highspy numba matplotlib networkx pandas attrs click"
    code = f"import sys, privopt; print([m for m in {heavy.split()!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert set(po.__all__) <= set(dir(po))
    with pytest.raises(AttributeError):
        _ = po.nothing_of_the_kind


CALLS = re.findall(r"^\| `([a-z-]+)` \| `(po\.solve\(.*)` \|$", PAGE.read_text("utf-8"), re.MULTILINE)


def test_the_page_calls_every_mechanism_that_is_registered():
    ours = {name for name, found in registry().mechanisms.items() if found.plugin.startswith("privopt")}
    assert {name for name, _ in CALLS} == ours


@pytest.fixture(scope="module")
def defined():
    """Return the names that the page defines before its table."""
    text = PAGE.read_text("utf-8")
    block = re.findall(r"```python\n(.*?)```", text[text.index("## Every mechanism") :], re.DOTALL)[0]
    names = {"po": po, "pd": pd, "np": np}
    exec(block, names)
    return names


@pytest.mark.filterwarnings("ignore::privopt.api.released.PrivoptWarning")
@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
def test_each_call_of_the_page_gives_a_certified_release(name, call, defined):
    release = eval(call, defined)
    assert release.result.mechanism == name
    assert verify(release.opened.folder).verdict in ("proved", "declared")
    assert release.promise
