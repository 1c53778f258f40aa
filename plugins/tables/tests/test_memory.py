"""Problems without a file: the same pipeline, the same checks, any kind of table."""

import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve
from helpers.mentions import assert_mentions

import privopt as po
from privopt.errors import DoesNotHoldError, InputError, UsageError
from privopt.registry import registry
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_tables.options import describe_limits

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "in-memory.md"
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
def test_returns_the_same_kind_of_table(kind, release):
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


@pytest.mark.parametrize(
    "make",
    [
        lambda texts: pa.array(texts, pa.string_view()),
        lambda texts: pa.array([text.encode() for text in texts], pa.binary_view()),
        lambda texts: pa.RunEndEncodedArray.from_arrays([1, 2, 3], texts),
        lambda texts: pl.Series(texts, dtype=pl.Object),
    ],
)
def test_columns_of_rare_types_are_read(make, release):
    cells = make(["41.9", "41.9", "41.91"])
    is_arrow, is_number = isinstance(cells, pa.Array), pa.binary_view() != getattr(cells, "type", None)
    table = (pa.table if is_arrow else pl.DataFrame)(TRIPS | {"cells": cells})
    # As a column that stays, and as the column of the secret.
    safe = release.apply(table, lat="la", lon="lo", keep=["cells"])
    assert [str(cell) for cell in (safe["cells"].to_pylist() if is_arrow else safe["cells"])] == list(
        map(str, cells.to_pylist() if is_arrow else cells)
    )
    if is_number:
        safe = release.apply(table, lat="cells", lon="lo")
        assert set(safe["report"].to_pylist() if is_arrow else safe["report"]) <= set("abc")


def test_errors_use_the_words_of_the_call(release, tmp_path):
    with pytest.raises(TypeError, match="foo"):
        po.solve("exponential", town(), foo=1)
    for limit in ("2 parsecs", True, np.float64(-2.0)):
        with pytest.raises(UsageError, match=rf"max-snap must .*{limit}"):
            release.apply(TRIPS, lat="la", lon="lo", max_snap=limit)
    folder = release.save(tmp_path / "out")
    with pytest.raises(UsageError, match=r"/out: exists.*force=True"):
        release.save(folder)
    with pytest.raises(UsageError, match=r"by must have .*\{'a': 'a', \.\.\.\}"):
        release.estimate({"report": ["a"]}, by={"id": ["a", "b", "c"], "group": ["x", "x", "y"]})
    with pytest.raises(UsageError, match=r"by must have .*\['x'\]"):
        release.estimate({"report": ["a"]}, by={"a": ["x"], "b": ["x"], "c": ["y"]})


def test_geodataframe_moves_to_the_reports(release):
    points = gpd.points_from_xy([12.4, 12.41, None], [41.9, 41.9, None])
    trips = gpd.GeoDataFrame({"n": [1, 2, 3]}, geometry=points, crs=4326).to_crs(3857).rename_geometry("where")
    with pytest.warns(po.PrivoptWarning, match="1 of 3 rows"):
        safe = release.apply(trips)
    assert isinstance(safe, gpd.GeoDataFrame)
    assert (safe.crs, safe.geometry.name) == ("EPSG:4326", "where")
    assert safe["where"].isna().tolist() == [False, False, True]
    assert np.allclose(safe["where"].x[:2], safe["report_lon"][:2].astype(float))
    places = po.records(trips[:2].assign(id=["u", "v"]), geometry="where")
    problem = po.metric_problem(places, distance="haversine", epsilon=1)
    assert po.solve("exponential", problem).opened.release.records.tolist() == ["u", "v"]


def test_nothing_beside_the_table_reveals_the_secret(release, tmp_path):
    points = gpd.points_from_xy([12.4, 12.41], [41.9, 41.9])
    frame = gpd.GeoDataFrame({"id": ["a", "b"], "geometry": ["one", "two"]}).assign(geom=points)
    frame = frame.set_geometry("geom", crs=4326)
    frame.attrs["corner"] = [41.9, 12.4]
    with pytest.warns(po.PrivoptWarning, match=r"column geometry stays.*positions"):
        safe = release.apply(frame, id="id")
    assert (safe.geometry.name, safe["geometry"].tolist(), safe.attrs) == ("geom", ["one", "two"], {})
    assert np.allclose(safe.geometry.y, safe["report_lat"])
    with pytest.raises(InputError, match=r"column second: .*geometries"):
        release.apply(frame.assign(second=frame.geometry), id="id")
    with pytest.raises(InputError, match=r"column geom: .*reference system"):
        release.apply(frame.set_crs(None, allow_override=True), geometry="geom")
    with pytest.raises(UsageError, match="index id"):
        release.apply(pd.DataFrame({"id": ["a"]}).set_index("id", drop=False), id="id")
    frame.drop(columns="geometry").to_parquet(tmp_path / "t.parquet", write_covering_bbox=True)
    arrow = pq.read_table(tmp_path / "t.parquet")
    safe = release.apply(arrow, geometry="geom")
    assert safe.schema.metadata is None
    assert safe.column_names == ["id", "report", "report_lat", "report_lon"]
    with pytest.raises(InputError, match=r"column bbox: .*boxes"):
        release.apply(pl.from_arrow(arrow), geometry="geom")
    with pytest.raises(InputError, match=r"column bbox: .*boxes"):
        release.apply(arrow.to_pandas(ignore_metadata=True), geometry="geom")


def test_weaker_release_says_so():
    near_release = po.solve("exponential", town(neighbours_within="1.2 km"))
    with pytest.warns(po.PrivoptWarning, match=r"up to 1.2 km"):
        near_release.apply({"id": ["a"]}, id="id")
    no_guarantee = evolve(near_release.guarantee, kind="none")
    assert [line.partition(":")[0] for line in describe_limits(no_guarantee)] == ["no guarantee"]


def test_changed_release_is_not_saved(release, tmp_path):
    release.save(tmp_path / "one")
    opened = po.open(tmp_path / "one")
    result_file = tmp_path / "one" / "result.json"
    result_file.write_text(result_file.read_text().replace("exponential", "Exponential"))
    with pytest.raises(DoesNotHoldError, match=r"result\.json"):
        opened.save(tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_problem_files_must_be_in_its_folder(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "points.csv").write_text("id,x,y\na,0,0\n")
    text = "a" * 400
    (tmp_path / "in" / "p.toml").write_text(f'[records]\npoints = "../points.csv"\nwhy = "{text}"\n')
    problem = po.read_problem(tmp_path / "in" / "p.toml")
    with pytest.raises(UsageError, match=r"inside its folder.*\.\./points\.csv"):
        problem.write(tmp_path / "out")


def test_refuses_invalid_tables(release):
    for table, words in (
        ({"id": ["a"], "n": [1, 2]}, "the same number of rows in each column, got 1 to 2 rows"),
        (pd.DataFrame([["a"]]), "texts as names of columns, got 0"),
        (pd.DataFrame([["a", 1, 2]], columns=["id", "n", "n"]), "columns that differ in name, got n twice"),
    ):
        with pytest.raises(UsageError, match=words):
            release.apply(table, id="id")
    with pytest.raises(UsageError, match=r"seed must.*-1"):
        release.apply({"id": ["a"]}, id="id", seed=-1)


def test_arrays_return_as_arrays(release):
    positions = np.array([[41.9, 12.4], [41.91, 12.4]])
    reported = release.apply(positions)
    with pytest.warns(po.PrivoptWarning, match="seeded, not private"):
        release.apply(np.array(["a"]), seed=1)
    with pytest.raises(UsageError, match="max-snap"):
        release.apply(np.array(["a"]), max_snap=1.0)
    assert reported.shape == (2, 2)
    assert {tuple(row) for row in reported.tolist()} <= {(41.9, 12.4), (41.9, 12.41), (41.91, 12.4)}
    assert set(release.apply(np.array(["a", "c"])).tolist()) <= set("abc")
    for options in ({"text": "id"}, {"prefix": "end"}, {"positions": {"end": ["id"]}}):
        with pytest.raises(UsageError, match="with an array"):
            release.apply(np.array(["a"]), **options)
    with pytest.raises(UsageError, match=r"shape \(3, 3\)"):
        release.apply(np.zeros((3, 3)))


def test_keys_may_be_outside_any_table(tmp_path):
    votes = pd.DataFrame({"choice": ["tea", "water"], "votes": [1, 2]})
    made = po.problem(privacy={"epsilon": 1.0}, most_votes=2, choices=["tea", "water"], votes=votes)
    values = tomllib.loads(made.toml)
    assert values == {
        "privacy": {"epsilon": 1.0},
        "most_votes": 2,
        "choices": ["tea", "water"],
        "votes": "votes.csv",
    }
    assert (made.write(tmp_path / "made").parent / "votes.csv").read_text() == "choice,votes\ntea,1\nwater,2\n"


def test_memory_problem_equals_file_problem(tmp_path, release):
    problem = town(prior={"a": 2, "b": 1, "c": 1}, neighbours_within="1.5 km")
    path = problem.write(tmp_path / "written")
    read_back = po.read_problem(path)
    assert (read_back.toml, dict(read_back.source.in_memory)) == (problem.toml, dict(problem.source.in_memory))
    release_of_file = solve("exponential", path, tmp_path / "out")
    file_matrix, memory_matrix = (
        MatrixRelease.read(release_of_file.folder, None),
        po.solve("exponential", problem).opened.release,
    )
    assert (file_matrix.weights == memory_matrix.weights).all()
    with pytest.raises(UsageError, match=r"problem\.toml"):
        problem.write(tmp_path / "written")


def test_release_is_saved_and_opened_again(tmp_path, release):
    folder = release.save(tmp_path / "out")
    assert verify(folder).verdict == "proved"
    opened = po.open(folder)
    assert (opened.loss, opened.bound, opened.guarantee) == (release.loss, release.bound, release.guarantee)
    assert opened.meaning == release.meaning
    assert "twice as likely" in opened.promise
    assert set(opened.sample("a", 20)) <= set("abc")
    assert opened.audit()["epsilon"]["claimed"] == 2.0
    with pytest.raises(UsageError, match="exists already"):
        release.save(folder)
    release.save(folder, force=True)


@pytest.mark.parametrize(
    ("changes", "nodes", "words"),
    [
        (
            {},
            {"north": [41.9, "x", 41.9]},
            "records.csv: row 3, column north",
        ),
        ({}, {"node": ["a", "", "c"]}, "records.csv: row 3, column node"),
        ({}, {"node": ["a", "a", "c"]}, "ids that differ"),
        (
            {"epsilon": -1},
            {},
            "problem.toml: privacy.epsilon: expected",
        ),
        (
            {"distance": "euclidian"},
            {},
            "distance.kind: expected one",
        ),
        ({"prior": {"a": 1.0}}, {}, "2 records (b,"),
        ({"lr_geo": {"user": 1}, "epsilon": "x"}, {}, "such as '3/km'"),
        ({"prior": [1, 2]}, {}, "got 2 weights"),
        ({"prior": [1, 2, -1]}, {}, "prior: id c"),
        ({"prior": {"a": 1, "b": "much", "c": 1}}, {}, "prior: id b"),
        ({"outputs": NODES}, {}, "outputs must be"),
    ],
)
def test_faults_name_file_row_and_column(changes, nodes, words):
    def solve_nodes():
        places = po.records(NODES | nodes, id="node", lat="north", lon="east")
        return po.solve("exponential", po.metric_problem(places, **({"distance": "haversine", "epsilon": 1} | changes)))

    with pytest.raises((InputError, UsageError), match=re.escape(words)):
        solve_nodes()


def test_names_arguments_of_wrong_type(release):
    places = po.grid(1, 2, 1.0)
    with pytest.raises(UsageError, match=r"places must be .*ndarray"):
        po.metric_problem(np.zeros((3, 2)), distance="euclidean", epsilon=1)
    problem_of_places = po.metric_problem(places, distance="euclidean", epsilon=1)
    for name, value in (("seed", -1), ("time_limit", "5"), ("gap", "x"), ("jobs", 1.5), ("memory", True)):
        with pytest.raises(UsageError, match=rf"{name} must be a.*{value!r}"):
            po.solve("exponential", problem_of_places, **{name: value})
    for name in ("seed", "time_limit"):
        with pytest.raises(UsageError, match=f"{name} must be .*, got 1000"):
            po.solve("exponential", problem_of_places, **{name: 10**400})
    assert po.solve("exponential", problem_of_places, seed=np.int64(3), time_limit=np.float32(60)).result.seed == 3
    with pytest.raises(UsageError, match=r"gap must be .*'x'"):
        po.certify(np.eye(2), problem_of_places, gap="x")
    with pytest.raises(UsageError, match=r"confidence must be .*'0.95'"):
        release.estimate(["a"], confidence="0.95")
    for mapping in ({1: "x", "a": "y"}, pd.DataFrame(NODES)):
        with pytest.raises(UsageError, match=r"^by must "):
            release.estimate(["a"], by=mapping)
    with pytest.raises(UsageError, match="for each column"):
        release.apply({"id": "a"}, id="id")


@pytest.mark.parametrize("series", [pd.Series, pl.Series])
def test_series_work_like_lists(release, series):
    assert release.estimate(series(["a", "b"])).n == 2
    options = {"distance": "euclidean", "epsilon": 1}
    text, list_problem = (
        po.metric_problem(po.grid(1, 2, 1.0), prior=of([1.0, 3.0]), **options) for of in (series, list)
    )
    assert text.source.in_memory == list_problem.source.in_memory


def test_whole_number_ids_are_equal_everywhere(tmp_path):
    frame = pl.DataFrame({"id": [7.0, 8.0], "lat": [41.9, 41.91], "lon": [12.0, 12.0]})
    frame.write_parquet(tmp_path / "p.parquet")
    text = '[records]\npoints = "p.parquet"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = 1.0\n'
    (tmp_path / "p.toml").write_text(text + '[utility]\nkind = "distance"\n')
    problem = po.metric_problem(
        po.records(frame.to_pandas(), lat="lat", lon="lon"), distance="haversine", epsilon=1, prior={7.0: 1, 8.0: 1}
    )
    for source in (tmp_path / "p.toml", problem):
        release = po.solve("exponential", source)
        assert release.opened.release.records.tolist() == ["7", "8"]
        for table in (frame.select("id"), frame.select("id").to_pandas(), {"id": [7, 8]}):
            assert len(release.apply(table, id="id")["report"]) == 2
        assert release.estimate(np.array([7.0, 8.0])).n == 2


def test_ids_of_vectors_are_one_line():
    for name in ("a\nb", "a\u2028b", "a\x85", "\r"):
        with pytest.raises(InputError, match="of one line"):
            po.vectors(np.eye(2), [name, "c"])
    problem = po.metric_problem(po.vectors(np.eye(2), [1.0, 2.0]), distance="euclidean", epsilon=1)
    assert po.solve("exponential", problem).opened.release.records.tolist() == ["1", "2"]


def test_names_the_missing_column():
    with pytest.raises(InputError, match=r"records: header: .*'lat'"):
        po.records(NODES, id="node", lat="lat", lon="east")
    with pytest.raises(InputError, match=r"roads: header: .*'km'"):
        po.roads({"from": ["a"], "to": ["b"]})
    with pytest.raises(UsageError, match="collected first"):
        po.records(pl.LazyFrame(NODES), id="node", lat="north", lon="east")


def test_records_and_outputs_may_be_tables():
    outputs = po.records({"id": ["u", "v"], "lat": [41.9, 41.95], "lon": [12.4, 12.45]}, lat="lat", lon="lon")
    safe = po.solve("exponential", town(outputs=outputs)).apply({"at": ["a"]}, id="at")
    assert safe["report"][0] in ("u", "v")


def test_notebook_shows_loss_and_promise(release):
    html = release._repr_html_()
    for words in (f"{release.loss:.6g} km", "twice as likely", "proved: ", "times in 100"):
        assert words in html


def test_public_objects_are_shown_in_one_line(release):
    problem = town()
    shown_objects = [
        release,
        release.result,
        release.estimate({"report": ["a", "b"]}),
        problem,
        po.Cost(epsilon="1", unit="per km"),
    ]
    for shown in map(repr, shown_objects):
        assert shown.count("\n") == 0
        assert len(shown) < 240, shown
    assert_mentions(repr(release), "exponential", f"{release.loss:.6g} km", "metric-dp", "per km", "proved")


def test_release_writes_its_page_and_draws_its_maps(release, tmp_path):
    page = release.report(tmp_path / "page.html")
    assert "exponential: " in page.read_text("utf-8")
    with pytest.raises(UsageError, match=r"exists"):
        release.report(page)
    loss_map, reports_map = release.map(), release.map("a")
    assert loss_map.axes[1].get_xlabel() == "average loss (km)"
    assert "from a" in reports_map.axes[1].get_xlabel()
    drawn_values = reports_map.axes[0].collections[0].get_array()
    assert np.allclose(np.sort(drawn_values), np.sort(release.opened.release.probabilities[0]))
    with pytest.raises(UsageError, match="no record is called 'zz'; known: a, b, c"):
        release.map("zz")


def test_release_is_verified_again_from_its_files(release, tmp_path):
    assert release.verify().holds
    saved = po.open(release.save(tmp_path / "saved"))
    (tmp_path / "saved" / "result.json").write_text("{}")
    verdict = saved.verify()
    assert not verdict.holds
    assert_mentions(verdict.complaints[0], "result.json")


def test_estimate_is_a_table(release):
    estimate = release.estimate({"report": ["a", "b", "a"]})
    frame = estimate.to_frame()
    assert frame.columns == ["id", "share", "low", "high"]
    assert frame["id"].to_list() == ["a", "b", "c"]
    assert math.isclose(frame["share"].sum(), 1)
    assert all(word in estimate._repr_html_() for word in ("maximum-likelihood", "share", "low", "high"))


def test_import_loads_nothing_heavy():
    heavy = "numpy scipy polars narwhals sympy mip highspy numba matplotlib networkx pandas attrs click"
    code = f"import sys, privopt; print([m for m in {heavy.split()!r} if m in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"
    assert set(po.__all__) <= set(dir(po))
    with pytest.raises(AttributeError):
        _ = po.nothing_of_the_kind


CALLS = re.findall(r"^\| `([a-z-]+)` \| `(po\.solve\(.*)` \|$", PAGE.read_text("utf-8"), re.MULTILINE)


def test_page_calls_every_mechanism():
    own_mechanisms = {name for name, entry in registry().mechanisms.items() if entry.plugin.startswith("privopt")}
    assert {name for name, _ in CALLS} == own_mechanisms


@pytest.fixture(scope="module")
def page_names():
    """Return the names that the page defines before its table."""
    text = PAGE.read_text("utf-8")
    block = re.findall(r"```python\n(.*?)```", text[text.index("## Every mechanism") :], re.DOTALL)[0]
    names = {"po": po, "pd": pd, "np": np}
    exec(block, names)
    return names


@pytest.mark.filterwarnings("ignore::privopt.api.released.PrivoptWarning")
@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
def test_calls_of_the_page_certify(name, call, page_names):
    release = eval(call, page_names)
    assert release.result.mechanism == name
    assert verify(release.opened.folder).verdict in ("proved", "declared")
    assert release.promise
