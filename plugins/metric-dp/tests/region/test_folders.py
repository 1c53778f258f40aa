"""From a problem file to a verified folder and back, for each kind of region; forged folders and bad input."""

import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from helpers.checker_parts import one_file, run
from helpers.grids import often
from helpers.mended_sums import edit, is_refused, mend
from helpers.random_problems import forms
from helpers.regions import KINDS, write

import privopt as po
from privopt import checker
from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release, verify
from privopt_metric_dp.checkers.triangles import triangulates
from privopt_metric_dp.matrix.repair import repair
from privopt_metric_dp.region.mesh import plane_of
from privopt_metric_dp.space.places import Space


@pytest.fixture(scope="module")
def solved_regions(tmp_path_factory):
    """Return a folder for each kind of region."""
    workspace = tmp_path_factory.mktemp("everywhere")
    folders = {}
    for name, parts in KINDS.items():
        problem = write(workspace / name, *parts)
        folders[name] = solve("optimal-lp", problem, workspace / name / "out", Options()).folder
    return folders


@often("name", KINDS, ("graph-halved", "points"))
def test_checker_proves_every_region(solved_regions, name):
    """Its bound is the very double stated."""
    lines: list[str] = []
    assert checker.check(solved_regions[name], lines.append) == 0, lines
    assert [line.split(":")[1] for line in lines] == [" files", " integers", " privacy", " objective", " words"]


@pytest.mark.parametrize("name", ["globe", "globe-grid"])
def test_people_on_records_of_the_earth_are_checked(tmp_path, name):
    ids = [f"r{r}c{c}" for r in range(3) for c in range(2)] if "grid" in name else list("abcd")
    problem = write(tmp_path, *KINDS[name][:2], "split_km = 0.4", utility='kind = "distance"\nprior = "p.csv"')
    (tmp_path / "p.csv").write_text("id,p\n" + "".join(f"{i},{1 / len(ids)!r}\n" for i in ids))
    lines: list[str] = []
    folder = solve("optimal-lp", problem, tmp_path / "out", Options()).folder
    assert checker.check(folder, lines.append) == 0, lines


@pytest.mark.slow
def test_one_file_checker_proves_regions(solved_regions, tmp_path):
    for name in ("points", "mesh", "graph"):
        lines: list[str] = []
        assert checker.check(solved_regions[name], lines.append) == 0
        assert run(solved_regions[name]) == (0, "".join(f"{line}\n" for line in lines))
    forged_folder = shutil.copytree(solved_regions["points"], tmp_path / "forged")
    (forged_folder / "mechanism.npz").write_bytes(b"")
    mend(forged_folder)
    assert run(forged_folder)[0] == 2


def test_no_module_in_the_folder_is_run(solved_toy, tmp_path):
    """Not even where the one file was copied into it."""
    folder = shutil.copytree(solved_toy, tmp_path / "dir")
    copied_checker = Path(shutil.copy(one_file(), folder))
    for package in ("privopt", "privopt_metric_dp"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("raise SystemExit(0)\n")
    mend(folder)
    assert run(folder, copied_checker)[0] == run(folder)[0] == 0


def test_random_points_match_the_checker():
    rng = np.random.default_rng(4)
    for number in range(30):
        point_array = np.unique(rng.integers(0, 10 ** rng.integers(1, 8), (int(rng.integers(3, 60)), 2)), axis=0) * 10
        rng.shuffle(point_array)
        try:
            plane = plane_of(Space(ids=map(str, range(len(point_array))), coordinates=point_array / 1e6, kind="planar"))
        except InputError:
            continue
        triangles = [tuple(t) for t in plane.simplices.tolist()]
        points = [tuple(v) for v in plane.vertices.tolist()]
        assert triangulates(points, triangles), number
        for drop in range(len(triangles)):
            assert not triangulates(points, triangles[:drop] + triangles[drop + 1 :])


def test_triangles_may_touch_in_one_corner(tmp_path):
    """Those between points of random problem 238, and of many fans whose middle the rim passes twice."""
    text = forms(238).write(tmp_path).with_name("points.csv").read_text()
    albums = [np.array([line.split(",")[1:] for line in text.split()[1:]], dtype=float)]
    rng = np.random.default_rng(5)
    for _ in range(40):
        left_heights, right = (np.sort(rng.uniform(-1, 1, int(rng.integers(2, 6)))) / 20 for _ in range(2))
        fans = [(direction * rng.uniform(0.7, 1), y) for direction, ys in ((-1, left_heights), (1, right)) for y in ys]
        albums.append(rng.permutation(np.array([(0.0, 0.0), *fans])) @ np.array([[0.6, 0.8], [-0.8, 0.6]]))
    repeat_count = 0
    for number, point_list in enumerate(albums):
        plane = plane_of(Space(ids=map(str, range(len(point_list))), coordinates=point_list, kind="planar"))
        triangles = [tuple(t) for t in plane.simplices.tolist()]
        points = [tuple(v) for v in plane.vertices.tolist()]
        assert triangulates(points, triangles), number
        sides = {direction for t in triangles for direction in ((t[0], t[1]), (t[1], t[2]), (t[2], t[0]))}
        tails = [a for a, b in sides if (b, a) not in sides]
        repeat_count += len(tails) > len({*tails})
        for drop in range(len(triangles)):
            assert not triangulates(points, triangles[:drop] + triangles[drop + 1 :])
    assert repeat_count > 20


@pytest.mark.parametrize("name", KINDS)
def test_folder_verifies_and_covers_all_points(solved_regions, name):
    verification = verify(solved_regions[name])
    assert verification.verdict == "proved", verification.complaints
    result = json.loads((solved_regions[name] / "result.json").read_text())
    assert result["guarantee"]["scope"] == "everywhere"
    assert "any two points" in result["guarantee"]["statement"]
    assert result["objective"]["gap"] <= 1e-6
    arrays = np.load(solved_regions[name] / "mechanism.npz")
    assert arrays["pairs"].shape == (0, 2)
    planar = "graph" not in name
    assert ("vertices" in arrays) == planar
    assert ("lengths" in arrays) == (not planar)
    assert arrays["snap_steps"].tolist() == [0 if planar else 8]
    count, outputs = arrays["weights"].shape
    assert result["certificate"]["checked"] == len(arrays["simplices"]) * outputs
    assert result["certificate"]["worst"] <= 1.5
    assert arrays["records"].shape == (count,)


def test_divides_streets_and_appends_ids(solved_regions):
    arrays = np.load(solved_regions["graph"] / "mechanism.npz")
    assert arrays["records"].tolist()[:5] == ["a", "b", "c", "d", "far"]
    assert arrays["outputs"].tolist() == ["a", "b", "c", "d"]
    assert "c~d~1" in arrays["records"].tolist()
    assert arrays["records"].tolist().count("c~d~4") == 1  # a parallel street's points are numbered on
    assert (arrays["lengths"] * 1.5 <= 0.5).all()
    halved = np.load(solved_regions["graph-halved"] / "mechanism.npz")
    assert (halved["lengths"] <= 0.25).all()
    assert len(halved["records"]) > len(arrays["records"])


def forge_folder(folder, target, change):
    shutil.copytree(folder, target)
    np.savez(target / "mechanism.npz", **change(dict(np.load(target / "mechanism.npz"))))
    return mend(target)


@pytest.mark.parametrize("name", ["graph", "mesh"])
def test_refuses_rows_private_between_records_only(solved_regions, tmp_path, name):
    """The matrix that is private between vertices at their distances, beside the right region."""
    release = load_release(solved_regions[name])
    data = release.problem.data
    i, j = data.region.edges.T
    lengths = data.distance.between(i, j)
    start = np.exp(-1.5 * data.distance.rows(np.arange(len(data.records)))[:, : len(data.outputs)])
    weights = repair(start, data.region.edges, lengths, Fraction(3, 2)).weights
    assert is_refused(forge_folder(solved_regions[name], tmp_path / "f", lambda arrays: arrays | {"weights": weights}))


@pytest.mark.parametrize("name", ["graph", "mesh"])
def test_refuses_missing_region(solved_regions, tmp_path, name):
    """The corpus of forgeries takes its arrays away one by one."""
    required_names = ("weights", "records", "outputs", "pairs", "distances")
    assert is_refused(
        forge_folder(
            solved_regions[name],
            tmp_path / "f",
            lambda arrays: {removed: arrays[removed] for removed in required_names},
        )
    )


def test_region_is_not_its_records(solved_regions, tmp_path):
    folder = shutil.copytree(solved_regions["mesh"], tmp_path / "f")
    assert is_refused(edit(folder, lambda result: result["guarantee"].update(scope="all-pairs")))


@pytest.mark.parametrize(
    ("parts", "options", "keywords"),
    [
        (('points = "points.csv"', 'kind = "euclidean"', "neighbours_within = 1.0"), {}, "with everywhere"),
        (('points = "points.csv"', 'kind = "matrix"\nmatrix = "d.npy"'), {}, "no points"),
        (('points = "earth.csv"', 'kind = "euclidean"'), {}, "geographic"),
        (('points = "points.csv"', 'kind = "haversine"'), {}, "planar"),
        (('vectors = "v.npy"', 'kind = "euclidean"'), {}, "records.vectors"),
        (("grid = { rows = 1, cols = 4, cell_km = 1.0 }", 'kind = "euclidean"'), {}, "2 rows and 2 columns"),
        (KINDS["graph"], {"utility": 'kind = "matrix"\ncost = "c.npy"'}, "added vertices"),
        (('points = "nodes.csv"', 'kind = "graph"\nedges = "roads.csv"', "split_km = 1e-7"), {}, "split_km"),
        (('mesh = { region = "earth.geojson", side_km = 0.8 }', 'kind = "haversine"'), {}, "mesh"),
    ],
)
def test_names_refused_settings(tmp_path, parts, options, keywords):
    problem = write(tmp_path, *parts, **options)
    np.save(tmp_path / "d.npy", 1.0 - np.eye(5))
    np.save(tmp_path / "v.npy", np.eye(3))
    np.save(tmp_path / "c.npy", 1.0 - np.eye(4))
    with pytest.raises(InputError, match=keywords):
        solve("optimal-lp", problem, tmp_path / "out", Options())
    assert not (tmp_path / "out").exists()


def test_split_km_needs_everywhere(tmp_path):
    problem = write(tmp_path, *KINDS["points"][:2], "split_km = 1.0")
    problem.write_text(problem.read_text().replace("everywhere = true\n", ""))
    with pytest.raises(InputError, match="without everywhere"):
        solve("optimal-lp", problem, tmp_path / "out", Options())


@pytest.mark.parametrize("mechanism", ["exponential", "planar-laplace", "bd-mdp", "const-opt"])
def test_every_metric_mechanism_accepts_regions(tmp_path, mechanism):
    extra = {"const-opt": "[const-opt]\nradius = 0.6", "bd-mdp": "[bd-mdp]\nsubsets = 2"}.get(mechanism, "")
    problem = write(tmp_path, *KINDS["grid"], extra=extra)
    folder = solve(mechanism, problem, tmp_path / "out", Options(gap=1e-2)).folder
    verification = verify(folder)
    assert verification.verdict == "proved", verification.complaints
    assert json.loads((folder / "result.json").read_text())["guarantee"]["scope"] == "everywhere"


def test_only_exact_lr_geo_accepts_regions(tmp_path):
    extra = '[lr-geo]\nusers = "all"\nradius = 1.0\nobfuscation_radius = 2.0\nexponential_beyond = 1.0'
    problem = write(tmp_path, *KINDS["grid"], extra=extra)
    folder = solve("lr-geo", problem, tmp_path / "out", Options(method="exact")).folder
    assert verify(folder).verdict == "proved"
    with pytest.raises(InputError, match="--method exact"):
        solve("lr-geo", problem, tmp_path / "other", Options(method="benders"))


def test_unconnected_parts_are_separate(tmp_path):
    """Two networks: a column that one never uses may be used by the other."""
    problem = write(
        tmp_path,
        'points = "nodes.csv"',
        'kind = "graph"\nedges = "roads.csv"',
        utility='kind = "matrix"\ncost = "c.npy"',
        epsilon="0.4",
    )
    (tmp_path / "roads.csv").write_text("from,to,km\na,b,0.4\nc,d,0.7\n")
    np.save(tmp_path / "c.npy", np.array([[0, 1, 5, 5], [1, 0, 5, 5], [5, 5, 0, 1], [5, 5, 1, 0]], dtype=float))
    folder = solve("optimal-lp", problem, tmp_path / "out", Options()).folder
    assert verify(folder).verdict == "proved"
    weights = np.load(folder / "mechanism.npz")["weights"]
    assert not weights[:2, 2:].any()


@pytest.mark.parametrize("name", ["graph", "points"])
def test_curve_rebuilds_the_region_at_each_epsilon(tmp_path, name):
    """What edges are held to goes with epsilon, and where streets are divided too."""
    frame = po.curve(write(tmp_path, *KINDS[name]), ["optimal-lp", "exponential"], ("0.5", "4", 3))
    best = frame.filter(frame["mechanism"] == "optimal-lp")
    assert best["status"].to_list() == ["optimal"] * 3
    assert (best["loss"].diff().drop_nulls() <= 1e-12).all()
    assert (frame["loss"] >= frame["lower_bound"]).all()
