"""Census and taxi size from the problem file to DIR, ten million rows, and memory; run it by its path with pytest -s.

Times are wall-clock and processor seconds of a process of its own; the limits hold for two idle cores.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from hierarchical_dp_paper.generate import census, taxi

_RUN = """
import json, resource, sys, time
start, cpu = time.perf_counter(), time.process_time()
from privopt.run.solve import Options, solve
from pathlib import Path
result = solve("hierarchical-dp", Path(sys.argv[1]), Path(sys.argv[2]), Options(method=sys.argv[3])).result
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"wall": time.perf_counter() - start, "cpu": time.process_time() - cpu,
                  "peak_gb": usage.ru_maxrss / 1e6, "time": result.to_json()["time"], "gap": result.objective.gap}))
"""


def _write(data, folder, name):
    regions, sizes = data.leaves.shape
    rows = np.repeat(np.arange(regions), sizes)
    states = [data.tree.names[1][index] for index in data.tree.parents(2)]
    pl.DataFrame(
        {
            "level_1": pl.Series([data.tree.names[0][0]] * regions).gather(rows),
            "level_2": pl.Series(states).gather(rows),
            "level_3": pl.Series(list(data.tree.names[2])).gather(rows),
            "size": np.tile(np.arange(1, sizes + 1), regions),
            "groups": data.leaves.ravel(),
        }
    ).write_csv(folder / f"{name}.csv")
    path = folder / f"{name}.toml"
    path.write_text(f'[hierarchy]\ncounts = "{name}.csv"\nsizes = {sizes}\n[privacy]\nepsilon = 0.1\n')
    return path


@pytest.mark.parametrize("method", ["hierarchical-dp", "cumulative-dp", "cumulative-chain", "cumulative-smoothed"])
@pytest.mark.parametrize("name", ["census", "taxi"])
def test_end_to_end(tmp_path, name, method):
    problem = _write(census() if name == "census" else taxi(), tmp_path, name)
    ran = subprocess.run(
        [sys.executable, "-c", _RUN, str(problem), str(tmp_path / "out"), method],
        capture_output=True, text=True, check=True, timeout=900,
    )  # fmt: skip
    figures = json.loads(ran.stdout.splitlines()[-1])
    print(f"\n{name} {method}: {figures}")
    assert figures["peak_gb"] < 6
    # with four fifths of the budget for the leaves the chain goes 170 to 230 rounds; with half of it, 60
    assert figures["cpu"] < (90 if method == "cumulative-chain" else 60)


_ROWS = """
import resource, sys
from pathlib import Path
from privopt.declare import File
from privopt_hierarchical_dp.groups import read_counts, read_units
path = Path(sys.argv[1])
groups = read_units(File.read(path), 20) if "units" in path.name else read_counts(File.read(path), 1000)
print(groups.leaves.sum(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


@pytest.mark.parametrize(("kind", "max_mib"), [("counts.csv", 2.5), ("units.parquet", 3.3)])
def test_peak_memory_of_ten_million_rows(tmp_path, kind, max_mib):
    rng = np.random.default_rng(0)
    rows = 10_000_000
    if kind == "counts.csv":
        leaf, size = np.repeat(np.arange(10_000), 1000), np.tile(np.arange(1, 1001), 10_000)
        frame = pl.DataFrame({"leaf": leaf, "size": size, "groups": rng.poisson(1, rows)})
    else:
        unit = rng.integers(0, 4_000_000, rows)
        frame = pl.DataFrame({"leaf": unit % 3000, "unit": unit, "quantity": np.ones(rows, np.int64)})
    frame = frame.select(
        pl.lit("US").alias("level_1"),
        pl.format("state {}", pl.col("leaf") // 60).alias("level_2"),
        pl.format("county {}", pl.col("leaf")).alias("level_3"),
        *(pl.col(column) for column in frame.columns[1:]),
    )
    path = tmp_path / kind
    if path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path)
    ran = subprocess.run([sys.executable, "-c", _ROWS, str(path)], capture_output=True, text=True, check=True)
    _, peak = ran.stdout.split()
    print(f"\n{kind}: {peak} GB")
    assert float(peak) < max_mib
