"""What a method says it takes is what it takes, and a limit on memory is kept by taking a cheaper method."""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
import pytest
from helpers.examples import EXAMPLES
from helpers.peaks import peak

from privopt.declare import load_problem
from privopt.errors import StoppedError
from privopt.execution import resources
from privopt.files.archive import loading_bytes
from privopt.files.regular import open_regular
from privopt.registry import registry
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_metric_dp.matrix.release import matrix_bytes
from privopt_metric_dp.mechanisms.baselines import Exponential
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.solvers.column_generation import ColumnGeneration
from privopt_metric_dp.solvers.interior_point import InteriorPoint

MEASURE = """
import sys
import numba  # few records need none of it
from pathlib import Path
from privopt.run.solve import Options, solve
from privopt.execution.resources import resident
small, large, method, out = sys.argv[1:]
name, method = method.split(":")
solve(name, Path(small), Path(out + "-small"), Options(method=method, force=True))  # what is imported is held by now
before, loaded = resident(), {name.partition(".")[0] for name in sys.modules}
solve(name, Path(large), Path(out + "-large"), Options(method=method, force=True))
assert not {name.partition(".")[0] for name in sys.modules} - loaded  # a library's memory is not a matrix's
status = Path("/proc/self/status").read_text().splitlines()  # ru_maxrss would be that of whoever started this
print(next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")) - before)
"""


def grid(folder, rows, cols, epsilon, limit=1.5):
    folder.mkdir(parents=True)
    (folder / "problem.toml").write_text(
        f"[records]\ngrid = {{ rows = {rows}, cols = {cols}, cell_km = 1.0 }}\n[distance]\nkind = 'euclidean'\n"
        f"[privacy]\nepsilon = {epsilon}\nneighbours_within = {limit}\n[utility]\nkind = 'distance'\n"
    )
    return folder / "problem.toml"


@pytest.mark.parametrize("method", ["exponential", pytest.param("calibrated", marks=pytest.mark.slow)])
def test_matrix_stays_within_stated_memory(tmp_path, method):
    small_problem, large_problem = grid(tmp_path / "small", 3, 3, 0.5), grid(tmp_path / "large", 25, 40, 0.5)
    stated_bytes = matrix_bytes(1000, 1000, 24 * 39 + 25 * 39 + 24 * 40 + 24 * 39)
    peak_bytes = peak(
        MEASURE, small_problem, large_problem, f"exponential:{method}", tmp_path / "out", max_bytes=1.1 * stated_bytes
    )
    assert 0.2 * stated_bytes <= peak_bytes <= 1.1 * stated_bytes


SMALL = """
import sys
from pathlib import Path
from privopt.run.solve import solve
solve("optimal-lp", Path(sys.argv[1]), Path(sys.argv[2]))
print("numba" in sys.modules)
"""


@pytest.mark.parametrize("limit", [1.5, 99.0])
def test_25_cells_are_solved_without_compiled_code(tmp_path, limit):
    """Loading it takes half a second and over 100 MiB, more than the whole solve."""
    command = [sys.executable, "-c", SMALL, grid(tmp_path / "map", 5, 5, 1.0, limit), tmp_path / "out"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


COLUMNS = """
import numba, sys
import numpy as np
from privopt.errors import SolverError
from privopt.execution.resources import resident
from privopt.search.offers import Offers
from privopt_metric_dp.solvers import Instance, column_generation
from privopt_metric_dp.solvers.solver import Part
column_generation.LAST_ROUND = 8
def run(records):
    rng = np.random.default_rng(0)
    points = rng.random((records, 2)) * records**0.5
    table = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    near = table <= np.sort(table, axis=1)[:, [6]]
    i, j = np.nonzero(np.triu(near | near.T, 1))
    cost = rng.dirichlet(np.full(records, 2.0))[:, None] * table
    part = Part(Instance(cost=cost, pairs=np.stack([i, j], axis=1), distances=table[i, j], epsilon=1.0))
    part.graph, part.symmetry
    before = resident()
    try:
        column_generation.ColumnGeneration().solve(part, Offers(1e-9))
    except SolverError:  # the rounds ended
        pass
    return before, part
run(40)  # loads what it needs
before, part = run(int(sys.argv[1]))
status = open("/proc/self/status").read().splitlines()
peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")) - before
print(peak / column_generation.ColumnGeneration().peak_bytes(part))
"""


@pytest.mark.slow
def test_column_generation_stays_within_stated_memory():
    """At 225 records it stated a fifteenth of what it took."""
    assert 0.3 <= peak(COLUMNS, 225, max_bytes=1.0) <= 1.0


def hierarchy(folder, sizes):
    rows = "".join(f"US,{state},{size},{3 + size}\n" for state in ("GA", "NY") for size in (1, 2, 5))
    text = f'[hierarchy]\ncounts = "c.csv"\nsizes = {sizes}\n[privacy]\nepsilon = 1\n'
    return write_problem(folder, text, **{"c.csv": "level_1,level_2,size,groups\n" + rows})


def tables(folder, ages):
    ages = [f"{age}" for age in range(ages)]
    text = f'[hierarchy]\nregions = "r.csv"\nrecords = "p.csv"\npersons = true\nattributes.age = {ages}\n'
    text += 'attributes.sex = ["f", "m"]\ntables.both.by = ["age", "sex"]\n[privacy]\nepsilon = 1\n'
    people = "level_1,level_2,age,sex\nUS,GA,1,f\nUS,NY,0,m\n"
    return write_problem(folder, text, **{"r.csv": "level_1,level_2\nUS,GA\nUS,NY\n", "p.csv": people})


def locations(folder, count):
    rows = "".join(f"L{i},{i % 173},{i % 199},{1 + i % 7},{i % 50}\n" for i in range(count))
    text = '[locations]\npoints = "p.csv"\n[privacy]\nepsilon = 1\n'
    return write_problem(folder, text, **{"p.csv": "id,x,y,facility_cost,clients\n" + rows})


def album(folder, photos):
    scores = np.random.default_rng(0).normal(-20, 1, (photos, 1000))
    scores[:, 1] += 0.25
    path = write_problem(folder, '[photos]\nscores = "s.npy"\ntrue_location = 1\n[privacy]\ntop_k = 3\n')
    np.save(folder / "s.npy", scores)
    return path


def write_problem(folder, text, **files):
    folder.mkdir(parents=True)
    for name, content in {"problem.toml": text, **files}.items():
        (folder / name).write_text(content)
    return folder / "problem.toml"


@pytest.mark.parametrize(
    ("name", "write", "small_size", "large_size"),
    [
        pytest.param("hierarchical-dp:cumulative-smoothed", hierarchy, 6, 40_000, marks=pytest.mark.slow),
        pytest.param("hierarchical-tables:margins", tables, 3, 20_000, marks=pytest.mark.slow),
        pytest.param("fl-linear:reconnection", locations, 6, 20_000, marks=pytest.mark.slow),
        pytest.param("photo-censor:greedy", album, 350, 700, marks=pytest.mark.slow),
    ],
)
def test_mechanisms_stay_within_stated_memory(tmp_path, name, write, small_size, large_size):
    paths = write(tmp_path / "small", small_size), write(tmp_path / "large", large_size)
    mechanism, method = name.split(":")
    mechanism_class = registry().get(mechanism).load()
    stated_bytes = mechanism_class.bytes_needed(
        mechanism_class.load(load_problem(mechanism_class.problem_class, paths[1]), "problem.toml"), method
    )
    assert 0.3 * stated_bytes <= peak(MEASURE, *paths, name, tmp_path / "out", max_bytes=stated_bytes) <= stated_bytes


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_mechanism_starts_what_does_not_fit(tmp_path, name):
    example = EXAMPLES[name]
    problem = example.write(tmp_path / "problem")
    with pytest.raises(StoppedError, match=r"--method [\w-]+ need .* --memory") as excinfo:
        solve(example.mechanism, problem, tmp_path / "out", Options(memory=0.001, **example.options))
    assert excinfo.value.exit_code == 5
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("mechanism", "method"),
    [("optimal-lp", "interior-point"), ("optimal-lp", "full"), ("optimal-lp", "auto"), ("const-opt", "full")],
)
def test_skips_methods_that_do_not_fit(tmp_path, monkeypatch, mechanism, method):
    problem = grid(tmp_path / "map", 12, 12, 0.2)
    if mechanism == "const-opt":
        problem.write_text(problem.read_text() + "[const-opt]\nradius = 12.0\n")
    if method != "full":
        for solver in (InteriorPoint, ColumnGeneration):
            monkeypatch.setattr(solver, "peak_bytes", lambda *_: 1e12)
    exponential_loss = solve(
        "exponential", problem, tmp_path / "plain"
    ).result.objective.value  # loads what solving takes, too
    limit = (max(resources.resident(), resources.PROGRAM_BYTES) + 40e6) / resources.GB
    release = solve(mechanism, problem, tmp_path / "out", Options(method=method, memory=limit))
    assert not release.stopped
    assert release.result.method == method
    assert release.result.asked.memory == limit
    assert "GB" in release.result.solver["path"]
    assert release.result.objective.value <= exponential_loss
    assert verify(tmp_path / "out").verdict == "proved"


def test_states_the_need_if_nothing_fits(tmp_path):
    problem = grid(tmp_path / "map", 20, 20, 0.2)
    with pytest.raises(StoppedError, match=r"need 0\.\d+ GB .*--memory \d+(\.\d+)?") as excinfo:
        solve("exponential", problem, tmp_path / "out", Options(memory=0.01))
    assert excinfo.value.exit_code == 5
    assert not (tmp_path / "out").exists()


def group(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_sees_control_group_limits(tmp_path):
    group(tmp_path / "job", memory__max="1000\n", memory__current="700\n", memory__stat="inactive_file 100\nanon 5\n")
    group(tmp_path / "job" / "part", memory__max="max\n", memory__current="600\n", memory__stat="inactive_file 0\n")
    assert resources._bytes_under_cgroups("0::/job/part\n", tmp_path) == 400
    old = tmp_path / "memory" / "old"
    stat = "inactive_file 7\ntotal_inactive_file 30\n"
    group(old, memory__limit_in_bytes="900", memory__usage_in_bytes="850", memory__stat=stat)
    assert resources._bytes_under_cgroups("4:memory:/old\n0::/job/part\n", tmp_path) == 80
    assert resources._bytes_under_cgroups("4:cpu:/old\n", tmp_path) == resources.UNLIMITED


def test_sees_address_space_limit(monkeypatch):
    limits = {resource.RLIMIT_AS: 10**15, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resources.resource, "getrlimit", lambda name: (limits[name], limits[name]))
    assert 0 < 10**15 - resources._bytes_under_rlimits() < 10**13
    assert 0 < resources.available() < 10**15


def test_counts_pairs_within_a_distance(tmp_path):
    near_problem, far_problem = grid(tmp_path / "near", 10, 10, 0.2), grid(tmp_path / "far", 10, 10, 0.2, limit=50)
    problems = [MetricInstance.of(load_problem(MetricProblem, problem)) for problem in (near_problem, far_problem)]
    mechanism = Exponential()
    needed_bytes = [mechanism.bytes_needed(problem, "exponential") for problem in problems]
    assert needed_bytes[1] - needed_bytes[0] == 5 * 24.0 * (100 * 99 // 2 - 342)


def test_peak_without_proc_has_system_units(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_PROC", tmp_path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for system, unit in (("linux", 1024), ("darwin", 1)):
        monkeypatch.setattr(resources.sys, "platform", system)
        assert resources.resident() == pytest.approx(peak * unit, rel=0.2)


def bytes_of(path):
    with open_regular(path) as (stream, size):
        loading = loading_bytes(stream, size)
        assert stream.tell() == 0
        return loading


def test_memory_of_a_file_is_known_from_its_beginning(tmp_path):
    import polars as pl

    frame = pl.DataFrame({"id": [f"p{i}" for i in range(1_000)], "x": np.arange(1e3), "y": np.arange(1e3)})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "v.npy", np.zeros((100, 50), dtype=np.float32))
    size = (tmp_path / "v.npy").stat().st_size
    assert bytes_of(tmp_path / "v.npy") == size + 5.0 * 8.0 * 5_000
    assert bytes_of(tmp_path / "t.csv") == 14.0 * (tmp_path / "t.csv").stat().st_size
    assert bytes_of(tmp_path / "t.parquet") >= 150.0 * 3_000
    header = np.lib.format.header_data_from_array_1_0(np.zeros(0)) | {"shape": (10**5, 10**5)}
    with (tmp_path / "cut.npy").open("wb") as stream:  # half copied: its reader says so
        np.lib.format.write_array_header_1_0(stream, header)
        stream.write(bytes(8_000))
    assert bytes_of(tmp_path / "cut.npy") < 1e4


@pytest.mark.parametrize("file", ["vectors.npy", "points.csv", "region.geojson"])
def test_does_not_load_what_does_not_fit(tmp_path, monkeypatch, file):
    """The files are as large as they say, in a file system that keeps no zeros; nothing of them is read."""
    text = {
        "vectors.npy": 'vectors = "vectors.npy"',
        "points.csv": 'points = "points.csv"',
        "region.geojson": 'mesh = { region = "region.geojson", side_km = 0.02, planar = true }',
    }[file]
    text += '\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 1\n[utility]\nkind = "distance"\n'
    ring = [[0, 0], [12, 0], [12, 12], [0, 12], [0, 0]]
    (tmp_path / "region.geojson").write_text(f'{{"type": "Polygon", "coordinates": [{ring}]}}')
    (tmp_path / "points.csv").write_text("id,x,y\na,0,0\nb,1,0\n")
    header = np.lib.format.header_data_from_array_1_0(np.zeros(0)) | {"shape": (10**6, 625)}
    with (tmp_path / "vectors.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        stream.truncate(stream.tell() + 5 * 10**9)
    with (tmp_path / "points.csv").open("r+b") as stream:
        stream.truncate(10**9)
    (tmp_path / "problem.toml").write_text("[records]\n" + text)
    if file != "region.geojson":
        monkeypatch.setattr("privopt.declare.toml.read_whole", lambda *arguments, **options: pytest.fail("it was read"))
    with pytest.raises(StoppedError, match=r"need .* GB more .*--memory"):
        solve("exponential", tmp_path / "problem.toml", tmp_path / "out", Options(memory=0.5))
    assert not (tmp_path / "out").exists()
