"""Counts of many leaf regions: ``privopt solve`` beside a plain top-down fit: ``bench_leaves.py [LEAVES ...]``.

A tree of three levels with as many middle regions as each of them has leaves, one size, relation "groups", rows in no
order. privopt reads the CSV file, checks it, draws exact noise, fits, computes intervals, writes the folder and
verifies it. The peer is what somebody would write instead: it reads the same file, adds up, draws noise by numpy's
generator (which is not private), fits each level to the one above by bounded least squares, and writes one table. Both
are whole processes of their own, measured in processor seconds and peak memory by the kernel; wall clock would measure
the load of the machine, which is printed beside them.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import polars as pl

LEAVES: Final = (10_000, 100_000, 1_000_000)
SHARES: Final = (0.08, 0.12, 0.8)
"""The shares of epsilon = 1 of the levels, privopt's default."""


def write_problem(folder: Path, leaves: int) -> Path:
    """Write the counts of a tree with this number of leaves, in random order, and their problem file."""
    middle = round(math.sqrt(leaves))
    frame = pl.DataFrame({"leaf": np.arange(leaves)}).select(
        level_1=pl.lit("nation"),
        level_2=pl.format("county {}", pl.col("leaf") * middle // leaves),
        level_3=pl.format("block {}", pl.col("leaf")),
        size=1,
        groups=pl.Series(np.random.default_rng(1).poisson(20, leaves)),
    )
    frame.sample(fraction=1.0, shuffle=True, seed=2).write_csv(folder / "counts.csv")
    path = folder / "problem.toml"
    path.write_text('[hierarchy]\ncounts = "counts.csv"\nsizes = 1\n[privacy]\nepsilon = 1\nrelation = "groups"\n')
    return path


def measure(command: Sequence[str]) -> tuple[float, float]:
    """Run a command, and return its processor seconds and peak memory in MiB, with those of its children."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def fit_children(noisy: np.ndarray, start: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return the values of at least 0 nearest to noisy ones whose sums over each family are given.

    Args:
        noisy: (children,) The noisy values, family by family.
        start: (families + 1,) The first child of each family.
        totals: (families,) The sum of each family.
    """
    family = np.repeat(np.arange(len(totals)), np.diff(start))
    order = np.lexsort((-noisy, family))
    ranked = noisy[order]
    # Of the k largest children of a family, the common shift that makes them add up to its total.
    sums = np.cumsum(ranked)
    before = np.concatenate([[0.0], sums])[start[:-1]]
    rank = np.arange(len(noisy)) - start[family] + 1
    shift = (totals[family] - (sums - before[family])) / rank
    # As many are positive as stay so with their own shift.
    positive = np.add.reduceat((ranked + shift > 0).astype(np.int64), start[:-1])
    chosen = shift[start[:-1] + np.maximum(positive, 1) - 1]
    return np.asarray(np.maximum(noisy + chosen[family], 0.0))


def fit_peer(path: Path, out: Path) -> None:
    """Read the counts, add noise, fit level by level from the root, and write the values of all regions."""
    frame = pl.read_csv(path).sort("level_2", "level_3")
    leaf = frame["groups"].to_numpy().astype(np.int64)
    start = np.concatenate([[0], np.flatnonzero((frame["level_2"] != frame["level_2"].shift(-1)).fill_null(True)) + 1])
    levels = [np.array([leaf.sum()]), np.add.reduceat(leaf, start[:-1]), leaf]
    rng = np.random.default_rng(0)
    noisy = []
    for level, share in zip(levels, SHARES, strict=True):
        success = 1 - math.exp(-share)
        noisy.append(level + rng.geometric(success, len(level)) - rng.geometric(success, len(level)))
    root = np.maximum(noisy[0], 0).astype(float)
    middle = fit_children(noisy[1].astype(float), np.array([0, len(noisy[1])]), root)
    bottom = fit_children(noisy[2].astype(float), start, middle)
    names = pl.concat([frame["level_1"][:1], frame["level_2"].gather(start[:-1]), frame["level_3"]])
    values = np.rint(np.concatenate([root, middle, bottom])).astype(np.int64)
    pl.DataFrame({"region": names, "groups": values}).write_csv(out)


def main(sizes: Sequence[int]) -> None:
    """Print a line for each number of leaves, and the exponents of time and memory between the last two."""
    rows = []
    print("| leaves | privopt: cpu s | MiB | top-down by numpy: cpu s | MiB | load |")
    for leaves in sizes:
        with TemporaryDirectory() as name:
            folder = Path(name)
            problem = write_problem(folder, leaves)
            solve = [sys.executable, "-m", "privopt", "solve", "hierarchical-dp", str(problem)]
            own = measure([*solve, "--out", str(folder / "out"), "--quiet"])
            peer = measure([sys.executable, __file__, "peer", str(folder / "counts.csv"), str(folder / "peer.csv")])
        rows.append((leaves, *own, *peer))
        print(
            f"| {leaves:,} | {own[0]:.2f} | {own[1]:,.0f} | {peer[0]:.2f} | {peer[1]:,.0f} | {os.getloadavg()[0]:.0f} |"
        )
    if len(rows) > 1:
        first, last = rows[-2:]
        exponents = [math.log(b / a) / math.log(last[0] / first[0]) for a, b in zip(first[1:], last[1:], strict=True)]
        print("exponents of the last step: " + ", ".join(f"{exponent:.2f}" for exponent in exponents))


if __name__ == "__main__":
    if sys.argv[1:2] == ["peer"]:
        fit_peer(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main([int(number) for number in sys.argv[1:]] or LEAVES)
