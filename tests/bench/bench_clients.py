"""Sizes of clients, and how long a draw takes: ``python tests/bench/bench_clients.py [SIDE ...]`` takes some minutes.

A town of streets of 100 to 200 m, epsilon 4 per km, its column weights made as ``export`` makes them; and the small
releases that tests export, for any point of streets and of a mesh.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from helpers.client_engines import ENGINES  # noqa: E402
from helpers.client_exports import EXPORTS, release_of  # noqa: E402

from privopt.errors import PrivoptError  # noqa: E402
from privopt_clients.artefact import Places, artefact  # noqa: E402
from privopt_clients.client import open_artefact  # noqa: E402
from privopt_clients.column_weights import column_weights  # noqa: E402
from privopt_clients.export import CLIENT, MODULES, export  # noqa: E402

SIDES = (45, 71)
"""Crossings along a side, where none are given: 2,025 and 5,041 places."""
DRAWS = 500


def town(size: int) -> bytes:
    """Return the artefact of a town's column weights."""
    rng = np.random.default_rng(7)
    number = np.arange(size * size).reshape(size, size)
    along = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    pairs = np.concatenate([np.column_stack([a.ravel(), b.ravel()]) for a, b in along])
    km = np.round(0.1 + 0.1 * rng.random(len(pairs)), 3)
    columns = column_weights(pairs, km, size * size, Fraction(4))
    if columns is None:
        raise PrivoptError("no column weights certify")
    row, column = np.divmod(np.arange(size * size), size)
    ids = [f"r{r}c{c}" for r, c in zip(row.tolist(), column.tolist(), strict=True)]
    points = np.column_stack([41.9 + 0.0013 * row, 12.5 + 0.0017 * column])
    promise = "Of each report: the odds of any two places change by a factor of at most exp(4 d), d km by road."
    places = Places.of(ids, points, degrees=True)
    return artefact(columns, places, None, promise, reach_km=10.0, release=64 * "0", proof="")


def main() -> None:
    """Print a line for each artefact."""
    print(f"load {os.getloadavg()[0]:.1f}")
    for name in MODULES:
        print(f"{name}: {len(gzip.compress((CLIENT / name).read_bytes(), mtime=0)):,} bytes gzipped")
    with tempfile.TemporaryDirectory() as work:
        folders = {}
        for size in map(int, sys.argv[1:] or SIDES):
            began = time.perf_counter()
            folder = Path(work) / f"{size * size:,} places"
            folder.mkdir()
            (folder / "mechanism.bin").write_bytes(town(size))
            (folder / MODULES[0]).write_bytes((CLIENT / MODULES[0]).read_bytes())
            folders[folder.name] = folder
            zipped = len(gzip.compress((folder / "mechanism.bin").read_bytes(), mtime=0))
            print(f"{folder.name}: {zipped:,} bytes gzipped, made in {time.perf_counter() - began:.1f} s", flush=True)
        for name in ("earth", "streets anywhere", "mesh anywhere"):
            release, options = EXPORTS[name]
            (Path(work) / name).mkdir()
            folders[name] = export(release_of(release, Path(work) / name), Path(work) / f"{name} x", **options).folder
        for engine, opened in ENGINES.items():
            with opened(Path(work)) as ask:
                for name, folder in folders.items():
                    mechanism_bytes = (folder / "mechanism.bin").read_bytes()
                    client = open_artefact(mechanism_bytes)
                    # From the middle on, the first position beside a record that is in the region.
                    positions = [(first + 3e-5, second + 2e-5) for first, second in client.positions]
                    first, second = next(filter(client.covers, positions[len(positions) // 2 :]))
                    (folder / "inputs.tsv").write_text(f"{first!r}\t{second!r}\n")
                    answer = ask(folder, "draws", DRAWS, {"inputs.tsv": folder / "inputs.tsv"})
                    microseconds = int(answer.split("\n", 1)[0]) / 1000
                    zipped = len(gzip.compress(mechanism_bytes, mtime=0))
                    sizes = f"{len(client.ids):,} rows, {len(mechanism_bytes):,} bytes, {zipped:,} gzipped"
                    print(f"{engine:8} {name:18} {sizes}, {microseconds:,.0f} us", flush=True)


if __name__ == "__main__":
    main()
