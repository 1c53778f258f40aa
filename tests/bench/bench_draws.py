"""Reports drawn a second and processor, beside NumPy's, by each way to draw them.

Run as ``python tests/bench/bench_draws.py [--rows 1000000]``: processor seconds of this process, one thread, median of
three. The release is exponential over 2,032 places and 120 outputs. NumPy draws from the same probabilities by its
generator PCG64, which is neither exact nor private, once from a single row and once grouped by row.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

import privopt as po
from privopt.api.released import OpenRelease

RECORDS, OUTPUTS = 2_032, 120


def make_release(folder: Path) -> tuple[OpenRelease, np.ndarray]:
    """Return an exponential release over scattered places, and their latitudes and longitudes (N, 2)."""
    rng = np.random.default_rng(0)
    places = np.array([41.9, 12.5]) + rng.normal(0.0, [0.03, 0.04], (RECORDS, 2))
    points = pl.DataFrame({"id": [f"p{row}" for row in range(RECORDS)], "lat": places[:, 0], "lon": places[:, 1]})
    points.write_csv(folder / "points.csv")
    points.gather_every(RECORDS // OUTPUTS).head(OUTPUTS).write_csv(folder / "outputs.csv")
    (folder / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[outputs]\npoints = "outputs.csv"\n[distance]\nkind = "haversine"\n'
        '[privacy]\nepsilon = 3.0\nneighbours_within = 1.0\n[utility]\nkind = "distance"\n'
    )
    return po.solve("exponential", folder / "problem.toml"), places


def draw_by_numpy(probabilities: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an output for each row, drawn from doubles after the rows are grouped."""
    order = np.argsort(rows, kind="stable")
    numbers, firsts = np.unique(rows[order], return_index=True)
    outputs = np.empty(len(rows), dtype=np.int64)
    for number, part in zip(numbers, np.split(order, firsts[1:]), strict=True):
        outputs[part] = np.searchsorted(np.cumsum(probabilities[number]), rng.random(len(part)), side="right")
    return outputs


def measure(name: str, rows: int, draw: Callable[[], object]) -> None:
    """Print the processor seconds of a way to draw, and the rows a second."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        draw()
        seconds.append(time.process_time() - start)
    median = statistics.median(seconds)
    spread = f"{min(seconds):.3f} to {max(seconds):.3f}"
    print(f"{name:40} {median:8.3f} s ({spread}) {rows / median / 1e6:8.2f} million rows a second", flush=True)


def main() -> None:
    """Measure every way to draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    count = parser.parse_args().rows
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder_name:
        release, places = make_release(Path(folder_name))
        rng = np.random.default_rng(1)
        rows = rng.integers(RECORDS, size=count)
        table = pl.DataFrame(
            {
                "trip": np.arange(count),
                "id": pl.Series([f"p{row}" for row in range(RECORDS)]).gather(rows),
                "lat": places[rows, 0] + rng.normal(0.0, 0.001, count),
                "lon": places[rows, 1] + rng.normal(0.0, 0.001, count),
            }
        )
        matrix = release.opened.release
        by_position, by_id = table.drop("id"), table.drop("lat", "lon")
        connection = duckdb.connect()
        connection.execute("SET threads = 1")
        po.sql.register(connection, release)
        connection.register("trips", by_position.to_arrow())
        query = "CREATE OR REPLACE TABLE safe AS SELECT trip, report(lat, lon) AS place FROM trips"
        measure("random bytes of the system", count, lambda: os.urandom(8 * count))
        measure("NumPy choice, one row", count, lambda: rng.choice(OUTPUTS, count, p=matrix.probabilities[7]))
        measure("NumPy, grouped by row", count, lambda: draw_by_numpy(matrix.probabilities, rows, rng))
        measure("numbers of outputs, one row", count, lambda: matrix.sampler.draw(7, count))
        measure("numbers of outputs, each row", count, lambda: matrix.sampler.draw_each(rows))
        measure("sample", count, lambda: release.sample("p7", count))
        measure("apply by id", count, lambda: release.apply(by_id, id="id"))
        measure("apply by position", count, lambda: release.apply(by_position, lat="lat", lon="lon"))
        measure("Polars expression", count, lambda: by_position.select("trip", release.expr("lat", "lon")))
        measure("DuckDB", count, lambda: connection.execute(query))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
