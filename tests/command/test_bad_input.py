"""A corpus of bad inputs: each is exit code 2, one line a fault, naming file and key or row; nothing written."""

import io

import numpy as np
import pytest
from click.testing import CliRunner

from privopt.command.cli import cli
from privopt.testing.checks.inputs import INTERNALS

POINTS = "id,x,y\na,0,0\nb,1,0\nc,0,1\n"
GEO = "id,lat,lon\na,41,12\nb,41.01,12\nc,41,12.01\n"
ROADS = "from,to,km\na,b,1\nb,c,1\na,c,1.5\n"
PRIOR = "id,p\na,0.2\nb,0.3\nc,0.5\n"
TARGETS = "id,weight\na,1\nb,2\n"


def npy(array):
    stream = io.BytesIO()
    np.save(stream, np.asarray(array))
    return stream.getvalue()


def pickled_array():
    stream = io.BytesIO()
    np.save(stream, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return stream.getvalue()


D = np.array([[0, 1, 1.0], [1, 0, 1.5], [1, 1.5, 0]])
C = np.ones((3, 3))


def toml(
    records='points = "p.csv"',
    distance='kind = "euclidean"',
    privacy="epsilon = 1",
    utility='kind = "distance"',
    settings="",
):
    return f"[records]\n{records}\n[distance]\n{distance}\n[privacy]\n{privacy}\n[utility]\n{utility}\n{settings}"


BASE = {
    "p.csv": POINTS,
    "g.csv": GEO,
    "r.csv": ROADS,
    "prior.csv": PRIOR,
    "t.csv": TARGETS,
    "d.npy": npy(D),
    "c.npy": npy(C),
}
GRAPH = 'kind = "graph"\nedges = "r.csv"'
MATRIX = 'kind = "matrix"\nmatrix = "d.npy"'
COUNT = "count = 3"
PRIORED = 'kind = "distance"\nprior = "prior.csv"'
TRAVEL = 'kind = "travel-cost"\ntargets = "t.csv"'
COST = 'kind = "matrix"\ncost = "c.npy"'
GEOJSON = toml('points = "g.geojson"', 'kind = "haversine"')


def changed(array, index, value):
    copy = np.array(array, dtype=float)
    copy[index] = value
    return npy(copy)


CORPUS = {
    # the problem file
    "empty file": ("", {}, "records"),
    "no records": (toml().replace('points = "p.csv"', ""), {}, "records"),
    "two kinds of records": (toml('points = "p.csv"\ncount = 3'), {}, "records"),
    "records as text": ("records = 'a'\n" + toml().replace('[records]\npoints = "p.csv"\n', ""), {}, "records"),
    "unknown key": (toml('points = "p.csv"\npoint = 1'), {}, "records.point"),
    "unknown table": (toml(settings="[utilty]\na = 1"), {}, "utilty"),
    "no epsilon": (toml(privacy=""), {}, "privacy.epsilon"),
    "epsilon zero": (toml(privacy="epsilon = 0"), {}, "privacy.epsilon"),
    "epsilon negative": (toml(privacy="epsilon = -2.5"), {}, "privacy.epsilon"),
    "epsilon nan": (toml(privacy="epsilon = nan"), {}, "privacy.epsilon"),
    "epsilon inf": (toml(privacy="epsilon = inf"), {}, "privacy.epsilon"),
    "epsilon text": (toml(privacy='epsilon = "1"'), {}, "privacy.epsilon"),
    "epsilon true": (toml(privacy="epsilon = true"), {}, "privacy.epsilon"),
    "epsilon list": (toml(privacy="epsilon = [1]"), {}, "privacy.epsilon"),
    "epsilon beyond doubles": (toml(privacy="epsilon = 1e999"), {}, "privacy.epsilon"),
    "epsilon twice": (toml(privacy="epsilon = 1\nepsilon = 2"), {}, "TOML"),
    "within zero": (toml(privacy="epsilon = 1\nneighbours_within = 0"), {}, "neighbours_within"),
    "within negative": (toml(privacy="epsilon = 1\nneighbours_within = -1"), {}, "neighbours_within"),
    "within below the least distance": (
        toml(privacy="epsilon = 1\nneighbours_within = 0.99"),
        {},
        "neighbours_within: expected at least 1.0, so that records have neighbours, "
        "got 0.99 km, less than the smallest",
    ),
    "within where no road joins": (
        toml(distance=GRAPH, privacy="epsilon = 1\nneighbours_within = 2", utility=COST),
        {"p.csv": "id\na\nc\n", "c.npy": npy(np.eye(2)), "r.csv": "from,to,km\na,b,1\nc,d,1\n"},
        "neighbours_within: expected roads that connect records, got 2.0 km, with no road",
    ),
    "within nan": (toml(privacy="epsilon = 1\nneighbours_within = nan"), {}, "neighbours_within"),
    "distance kind": (toml(distance='kind = "manhattan"'), {}, "distance.kind"),
    "no distance kind": (toml(distance=""), {}, "distance.kind"),
    "utility kind": (toml(utility='kind = "best"'), {}, "utility.kind"),
    "a ragged table with a cell of 200,000 characters": (
        toml(),
        {"p.csv": "id,x,y\n" + "a" * 200_000 + ",0,0\nb,1,2,3\n"},
        "p.csv",
    ),
    "no utility kind": (toml(utility=""), {}, "utility.kind"),
    "distance kind that is a list": (toml(distance="kind = [[1]]"), {}, "distance.kind"),
    "utility kind that is a table": (toml(utility="kind = {}"), {}, "utility.kind"),
    "notion that is a list": (toml(privacy="epsilon = 1\nkind = []"), {}, "privacy.kind"),
    "directed as number": (toml(utility='kind = "distance"\ndirected = 1'), {}, "utility.directed"),
    "directed without edges": (toml(utility='kind = "distance"\ndirected = true'), {}, "utility.directed"),
    "not TOML": ("[records", {}, "TOML"),
    "latin-1 problem": ("# é\n".encode("latin-1") + toml().encode(), {}, "UTF-8"),
    "nul in problem": (toml() + "\0", {}, "TOML"),
    "a number of 5000 digits": (toml(settings="x = " + "9" * 5000), {}, "TOML"),
    "an exponent of 5000 digits": (toml(settings="x = 1e" + "9" * 5000), {}, "TOML"),
    "a hexadecimal number of 5000 digits": (toml(settings="x = [{ y = 0x" + "f" * 5000 + "}]"), {}, "too many digits"),
    "epsilon of 5000 digits": (toml(privacy="epsilon = 1." + "3" * 5000), {}, "a number of 5,002 digits"),
    "lists too deep": (toml(settings="x = " + "[" * 5000 + "]" * 5000), {}, "deeply"),
    "a path with a nul": (toml('points = "p\\u0000.csv"'), {}, "records.points"),
    "a long path": (toml(f'points = "{"p" * 5000}"'), {}, "records.points"),
    "points missing": (toml('points = "q.csv"'), {}, "records.points"),
    "points a folder": (toml('points = "."'), {}, "records.points"),
    "points empty name": (toml('points = ""'), {}, "records.points"),
    "points a number": (toml("points = 3"), {}, "records.points"),
    # grids
    "grid without rows": (toml("grid = { cols = 2, cell_km = 1 }"), {}, "records.grid.rows"),
    "grid rows zero": (toml("grid = { rows = 0, cols = 2, cell_km = 1 }"), {}, "records.grid.rows"),
    "grid rows fraction": (toml("grid = { rows = 1.5, cols = 2, cell_km = 1 }"), {}, "records.grid.rows"),
    "grid without end": (toml("grid = { rows = 99999, cols = 99999, cell_km = 1 }"), {}, "10,000,000"),
    "grid rows without end": (toml("grid = { rows = 1000000000000, cols = 2, cell_km = 1 }"), {}, "records.grid.rows"),
    "grid cell zero": (toml("grid = { rows = 2, cols = 2, cell_km = 0 }"), {}, "records.grid.cell_km"),
    "grid cell negative": (toml("grid = { rows = 2, cols = 2, cell_km = -1 }"), {}, "records.grid.cell_km"),
    "grid corner of three": (
        toml("grid = { rows = 2, cols = 2, cell_km = 1, south_west = [1, 2, 3] }"),
        {},
        "south_west",
    ),
    "grid corner off the earth": (
        toml("grid = { rows = 2, cols = 2, cell_km = 1, south_west = [95, 2] }"),
        {},
        "south_west",
    ),
    "grid over the pole": (
        toml("grid = { rows = 99, cols = 2, cell_km = 10, south_west = [89, 2] }", 'kind = "haversine"'),
        {},
        "grid",
    ),
    "geographic grid, planar distance": (
        toml("grid = { rows = 2, cols = 2, cell_km = 1, south_west = [41, 2] }"),
        {},
        "euclidean",
    ),
    "planar grid, haversine": (
        toml("grid = { rows = 2, cols = 2, cell_km = 1 }", 'kind = "haversine"'),
        {},
        "haversine",
    ),
    "grid unknown key": (toml("grid = { rows = 2, cols = 2, cell_km = 1, size = 3 }"), {}, "records.grid.size"),
    # points
    "points empty": (toml(), {"p.csv": ""}, "p.csv"),
    "points header only": (toml(), {"p.csv": "id,x,y\n"}, "p.csv"),
    "points without id": (toml(), {"p.csv": "name,x,y\na,0,0\n"}, "id"),
    "points without y": (toml(), {"p.csv": "id,x\na,0\n"}, "x,y"),
    "points of both kinds": (toml(), {"p.csv": "id,x,y,lat,lon\na,0,0,1,1\n"}, "one of these"),
    "points duplicate id": (toml(), {"p.csv": POINTS + "a,2,2\n"}, "row 5"),
    "points of control characters": (toml(), {"p.csv": POINTS + "d,\x1b[2J,2\n"}, "row 5, column x"),
    "points empty id": (toml(), {"p.csv": POINTS + ",2,2\n"}, "row 5"),
    "points text for x": (toml(), {"p.csv": POINTS + "d,two,2\n"}, "row 5, column x"),
    "points nan": (toml(), {"p.csv": POINTS + "d,nan,2\n"}, "row 5, column x"),
    "points inf": (toml(), {"p.csv": POINTS + "d,inf,2\n"}, "row 5, column x"),
    "points beyond doubles": (toml(), {"p.csv": POINTS + "d,1e400,2\n"}, "row 5, column x"),
    "points missing value": (toml(), {"p.csv": POINTS + "d,,2\n"}, "row 5, column x"),
    "points short row": (toml(), {"p.csv": POINTS + "d,1\n"}, "row 5"),
    "points long row": (toml(), {"p.csv": POINTS + "d,1,2,3\n"}, "row 5"),
    "points latin-1": (toml(), {"p.csv": "id,x,y\né,0,0\n".encode("latin-1")}, "row 2"),
    "points utf-16": (toml(), {"p.csv": POINTS.encode("utf-16")}, "UTF-16"),
    "points binary": (toml(), {"p.csv": b"id,x,y\na\0,0,0\n"}, "row 2"),
    "points semicolons": (toml(), {"p.csv": POINTS.replace(",", ";")}, "header"),
    "points lat over 90": (toml('points = "g.csv"', 'kind = "haversine"'), {"g.csv": GEO + "d,91,0\n"}, "g.csv"),
    "points lon over 360": (toml('points = "g.csv"', 'kind = "haversine"'), {"g.csv": GEO + "d,0,361\n"}, "g.csv"),
    "geographic, euclidean": (toml('points = "g.csv"'), {}, "euclidean"),
    "planar, haversine": (toml(distance='kind = "haversine"'), {}, "haversine"),
    "decimal commas": (toml(), {"p.csv": 'id,x,y\na,"0,5",0\n'}, "row 2, column x"),
    "features too deep": (
        GEOJSON,
        {"g.geojson": "[" * 100_000},
        "g.geojson: expected a FeatureCollection of points in longitude and latitude, "
        "got text that is not JSON (nested too deeply)",
    ),
    "a feature of 5000 digits": (GEOJSON, {"g.geojson": '{"a": ' + "9" * 5000 + "}"}, "too many digits"),
    "features that are a number": (GEOJSON, {"g.geojson": '{"features": 7}'}, "JSON of another form"),
    # vectors
    "vectors text": (toml('vectors = "v.npy"'), {"v.npy": "no array"}, "v.npy"),
    "vectors of objects": (toml('vectors = "v.npy"'), {"v.npy": pickled_array()}, "v.npy"),
    "vectors of one dimension": (toml('vectors = "v.npy"'), {"v.npy": npy([1.0, 2])}, "v.npy"),
    "vectors nan": (toml('vectors = "v.npy"'), {"v.npy": npy([[1.0, np.nan]])}, "row 0, column 1"),
    "vectors complex": (toml('vectors = "v.npy"'), {"v.npy": npy([[1j, 2]])}, "complex"),
    "vectors of text": (toml('vectors = "v.npy"'), {"v.npy": npy([["a", "b"]])}, "v.npy"),
    "vectors empty": (toml('vectors = "v.npy"'), {"v.npy": npy(np.zeros((0, 3)))}, "v.npy"),
    "vectors after a zip's mark": (toml('vectors = "v.npy"'), {"v.npy": b"PK\x03\x04" + npy(np.eye(3))}, "v.npy"),
    "vectors with an open header": (
        toml('vectors = "v.npy"'),
        {"v.npy": npy(np.eye(3)).replace(b"}", b"(", 1)},
        "v.npy",
    ),
    "vectors cut short": (toml('vectors = "v.npy"'), {"v.npy": npy(np.ones((9, 3)))[:150]}, "v.npy"),
    "ids without vectors": (toml('points = "p.csv"\nids = "i.txt"'), {"i.txt": "a\n"}, "records"),
    "too few ids": (toml('vectors = "v.npy"\nids = "i.txt"'), {"v.npy": npy(np.eye(3)), "i.txt": "a\nb\n"}, "i.txt"),
    "ids twice": (toml('vectors = "v.npy"\nids = "i.txt"'), {"v.npy": npy(np.eye(2)), "i.txt": "a\na\n"}, "row 2"),
    "ids empty line": (toml('vectors = "v.npy"\nids = "i.txt"'), {"v.npy": npy(np.eye(2)), "i.txt": "a\n\n"}, "row 2"),
    # matrices
    "count with euclidean": (toml(COUNT), {}, "records.count"),
    "count without end": (toml("count = 1000000000000000000000", MATRIX), {}, "records.count"),
    "count zero": (toml("count = 0", MATRIX), {}, "records.count"),
    "matrix missing": (toml(COUNT, 'kind = "matrix"'), {}, "distance.matrix"),
    "matrix wrong size": (toml(COUNT, MATRIX), {"d.npy": npy(np.zeros((4, 4)))}, "d.npy"),
    "matrix not square": (toml(COUNT, MATRIX), {"d.npy": npy(np.zeros((3, 4)))}, "d.npy"),
    "matrix not symmetric": (toml(COUNT, MATRIX), {"d.npy": changed(D, (0, 1), 7)}, "row 0, column 1"),
    "matrix diagonal": (toml(COUNT, MATRIX), {"d.npy": changed(D, (1, 1), 7)}, "row 1, column 1"),
    "matrix negative": (toml(COUNT, MATRIX), {"d.npy": changed(D, (0, 1), -1)}, "row 0, column 1"),
    "matrix nan": (toml(COUNT, MATRIX), {"d.npy": changed(D, (2, 1), np.nan)}, "row 2, column 1"),
    "matrix inf": (toml(COUNT, MATRIX), {"d.npy": changed(D, (2, 1), np.inf)}, "row 2, column 1"),
    "matrix beside euclidean": (toml(distance='kind = "euclidean"\nmatrix = "d.npy"'), {}, "distance.matrix"),
    "output matrix without outputs": (toml(COUNT, MATRIX + '\noutput_matrix = "d.npy"'), {}, "output_matrix"),
    "outputs without output matrix": (toml(COUNT, MATRIX, settings="[outputs]\ncount = 2"), {}, "output_matrix"),
    "as many outputs as records, without output matrix": (
        toml(COUNT, MATRIX, settings="[outputs]\ncount = 3"),
        {},
        "output_matrix",
    ),
    "output matrix wrong size": (
        toml(COUNT, MATRIX + '\noutput_matrix = "o.npy"', settings="[outputs]\ncount = 2"),
        {"o.npy": npy(D)},
        "o.npy",
    ),
    # roads
    "edges missing": (toml(distance='kind = "graph"'), {}, "distance.edges"),
    "edges beside euclidean": (toml(distance='kind = "euclidean"\nedges = "r.csv"'), {}, "distance.edges"),
    "edges negative": (toml(distance=GRAPH), {"r.csv": ROADS + "a,b,-1\n"}, "row 5, column km"),
    "edges nan": (toml(distance=GRAPH), {"r.csv": ROADS + "a,b,nan\n"}, "row 5, column km"),
    "edges without km": (toml(distance=GRAPH), {"r.csv": "from,to\na,b\n"}, "km"),
    "edges empty node": (toml(distance=GRAPH), {"r.csv": ROADS + ",b,1\n"}, "row 5, column from"),
    "record that is no node": (toml(distance=GRAPH), {"p.csv": POINTS + "z,0,0\n"}, "'z'"),
    "disconnected roads": (toml(distance=GRAPH), {"r.csv": "from,to,km\na,b,1\nc,d,1\n"}, "edges"),
    "vectors with a graph": (toml('vectors = "v.npy"', GRAPH), {"v.npy": npy(np.eye(3))}, "vectors"),
    # utility
    "prior sum": (toml(utility=PRIORED), {"prior.csv": "id,p\na,0.2\nb,0.3\nc,0.4\n"}, "sum"),
    "prior negative": (toml(utility=PRIORED), {"prior.csv": "id,p\na,-0.2\nb,0.7\nc,0.5\n"}, "row 2, column p"),
    "prior missing record": (toml(utility=PRIORED), {"prior.csv": "id,p\na,0.5\nb,0.5\n"}, "prior.csv"),
    "prior unknown record": (toml(utility=PRIORED), {"prior.csv": PRIOR.replace("c,", "z,")}, "row 4"),
    "a name without end": (toml(), {"p.csv": "id,x,y," + "z" * 200_000 + "\na,0,0,0\n"}, "a name without end"),
    "column twice": (toml(), {"p.csv": "id,x,y, x \na,0,0,0\nb,1,0,0\nc,2,0,0\n"}, "column 'x' twice"),
    "prior twice": (toml(utility=PRIORED), {"prior.csv": "id,p\na,0.5\na,0.5\nc,0\n"}, "row 3"),
    "prior nan": (toml(utility=PRIORED), {"prior.csv": "id,p\na,nan\nb,0.5\nc,0.5\n"}, "row 2, column p"),
    "prior all zero": (toml(utility=PRIORED), {"prior.csv": "id,p\na,0\nb,0\nc,0\n"}, "sum"),
    "cost missing": (toml(utility='kind = "matrix"'), {}, "utility.cost"),
    "cost wrong size": (toml(utility=COST), {"c.npy": npy(np.ones((3, 2)))}, "c.npy"),
    "cost nan": (toml(utility=COST), {"c.npy": changed(C, (0, 2), np.nan)}, "row 0, column 2"),
    "cost inf": (toml(utility=COST), {"c.npy": changed(C, (0, 2), np.inf)}, "row 0, column 2"),
    "cost beyond squares": (toml(utility=COST), {"c.npy": changed(C, (0, 2), 1e308)}, "row 0, column 2"),
    "cost beside distance": (toml(utility='kind = "distance"\ncost = "c.npy"'), {}, "utility.cost"),
    "targets beside distance": (toml(utility='kind = "distance"\ntargets = "t.csv"'), {}, "utility.targets"),
    "targets unknown": (toml(utility=TRAVEL), {"t.csv": "id,weight\nz,1\n"}, "z"),
    "targets negative": (toml(utility=TRAVEL), {"t.csv": "id,weight\na,-1\n"}, "row 2, column weight"),
    "targets zero": (toml(utility=TRAVEL), {"t.csv": "id,weight\na,0\n"}, "weight"),
    "targets twice": (toml(utility=TRAVEL), {"t.csv": "id,weight\na,1\na,2\n"}, "row 3"),
    "targets unknown on roads": (toml(distance=GRAPH, utility=TRAVEL), {"t.csv": "id,weight\nz,1\n"}, "'z'"),
    "one-way dead end": (
        toml(utility=TRAVEL + '\nedges = "o.csv"\ndirected = true'),
        {"o.csv": "from,to,km\na,b,1\nb,c,1\n", "t.csv": "id,weight\na,1\n"},
        "edges",
    ),
}


def run(tmp_path, text, files, mechanism="exponential"):
    for name, content in {**BASE, **files, "problem.toml": text}.items():
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    arguments = ["solve", mechanism, str(tmp_path / "problem.toml"), "--out", str(tmp_path / "out"), "--quiet"]
    return CliRunner().invoke(cli, arguments)


def test_corpus_is_large_enough():
    assert len(CORPUS) >= 100


@pytest.mark.parametrize("name", CORPUS)
def test_each_bad_input_is_one_clear_line(tmp_path, name):
    text, files, word = CORPUS[name]
    completed = run(tmp_path, text, files)
    assert completed.exit_code == 2, (completed.stdout, completed.stderr, completed.exception)
    assert completed.stdout == ""
    assert word in completed.stderr
    assert not INTERNALS.search(completed.stderr)
    lines = completed.stderr.splitlines()
    assert 1 <= len(lines) <= 4
    for line in lines:
        assert line.split(":")[0] in {*BASE, *files, "problem.toml"}
        assert line.isprintable()
        assert len(line) < 1000
        assert ": expected " in line
        assert ", got " in line
    assert not (tmp_path / "out").exists()


def test_many_faults_are_counted(tmp_path):
    rows = "".join(f"p{i},x,{i}\n" for i in range(100_000))
    completed = run(tmp_path, toml(), {"p.csv": "id,x,y\n" + rows})
    assert completed.exit_code == 2
    assert len(completed.stderr.splitlines()) == 21
    assert "more faults" in completed.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("mechanism", "text", "word"),
    [
        ("planar-laplace", toml(distance=GRAPH), "distance.kind"),
        ("planar-laplace", toml(COUNT, MATRIX), "distance.kind"),
        ("const-opt", toml(), "const-opt"),
        ("const-opt", toml(settings="[const-opt]\nradius = 0"), "const-opt.radius"),
        ("const-opt", toml(settings='[const-opt]\nradius = "far"'), "const-opt.radius"),
    ],
)
def test_names_what_a_mechanism_refuses(tmp_path, mechanism, text, word):
    completed = run(tmp_path, text, {}, mechanism)
    assert completed.exit_code == 2, (completed.stderr, completed.exception)
    assert word in completed.stderr


GOOD = {
    "planar points": (toml(), {}),
    "byte order mark, CRLF": (toml(), {"p.csv": b"\xef\xbb\xbf" + POINTS.replace("\n", "\r\n").encode()}),
    "blanks around ids": (toml(utility=PRIORED), {"p.csv": POINTS.replace("a,", " a ,")}),
    "haversine": (toml('points = "g.csv"', 'kind = "haversine"'), {}),
    "grid": (toml("grid = { rows = 2, cols = 3, cell_km = 0.5 }"), {}),
    "geographic grid": (
        toml("grid = { rows = 2, cols = 2, cell_km = 1, south_west = [41, 12] }", 'kind = "haversine"'), {}),
    "graph": (toml(distance=GRAPH), {}),
    "graph over ids alone": (toml(distance=GRAPH), {"p.csv": "id\na\nb\nc\n"}),
    "graph with nodes that are no records": (toml(distance=GRAPH), {"r.csv": ROADS + "c,z,1\n"}),
    "disconnected roads with a radius": (
        toml(distance=GRAPH, privacy="epsilon = 1\nneighbours_within = 2", utility=COST),
        {"r.csv": "from,to,km\na,b,1\nc,d,1\n"}),
    "matrix": (toml(COUNT, MATRIX), {}),
    "vectors": (toml('vectors = "v.npy"'), {"v.npy": npy(np.eye(4, 7))}),
    "vectors with ids": (toml('vectors = "v.npy"\nids = "i.txt"'), {"v.npy": npy(np.eye(2)), "i.txt": "x\ny\n"}),
    "whole numbers": (toml(COUNT, MATRIX), {"d.npy": npy(1 - np.eye(3, dtype=np.int32))}),
    "outputs": (toml(settings='[outputs]\npoints = "o.csv"'), {"o.csv": "id,x,y\nu,0,0\nv,1,1\n"}),
    "outputs of a matrix": (
        toml(COUNT, MATRIX + '\noutput_matrix = "o.npy"', settings="[outputs]\ncount = 2"), {"o.npy": npy(D[:, :2])}),
    "outputs on a graph": (toml(distance=GRAPH, settings='[outputs]\npoints = "o.csv"'), {"o.csv": "id\na\nb\n"}),
    "prior": (toml(utility=PRIORED), {}),
    "prior with zeros": (toml(utility=PRIORED), {"prior.csv": "id,p\na,0\nb,1\nc,0\n"}),
    "travel cost by distance": (toml(utility=TRAVEL), {}),
    "travel cost over roads": (toml(distance=GRAPH, utility=TRAVEL), {}),
    "travel cost over one-way roads": (
        toml(utility=TRAVEL + '\nedges = "o.csv"\ndirected = true'), {"o.csv": ROADS + "c,a,1\n"}),
    "travel cost to every record": (toml(utility='kind = "travel-cost"'), {}),
    "cost": (toml(utility=COST), {}),
    "negative cost": (toml(utility=COST), {"c.npy": npy(-np.eye(3))}),
    "records at one place": (toml(), {"p.csv": POINTS + "d,0,0\n"}),
    "one record": (toml(), {"p.csv": "id,x,y\na,0,0\n"}),
    "neighbours": (toml(privacy="epsilon = 1\nneighbours_within = 1.0"), {}),
    "tables of other mechanisms": (toml(settings="[const-opt]\nradius = 1"), {}),
    "a column that was renamed": (toml(), {"p.csv": "id,x,y,x_duplicated_0\na,0,0,1\nb,1,0,1\nc,0,1,1\n"}),
    "unread columns": (toml(), {"p.csv": "name,id,x,y\n?,a,0,0\n?,b,1,0\n?,c,0,1\n"}),
    "ids that look like numbers": (toml(), {"p.csv": POINTS.replace("a,", "007,")}),
}  # fmt: skip


@pytest.mark.parametrize("mechanism", ["exponential", pytest.param("optimal-lp", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", GOOD)
def test_each_input_form_solves_and_verifies(tmp_path, name, mechanism):
    text, files = GOOD[name]
    completed = run(tmp_path, text, files, mechanism)
    assert completed.exit_code == 0, (completed.stderr, completed.exception)
    completed = CliRunner().invoke(cli, ["verify", str(tmp_path / "out")])
    assert completed.exit_code == 0, (completed.stderr, completed.exception)
