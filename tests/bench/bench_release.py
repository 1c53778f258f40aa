"""What a release costs: repair, certificate, bound, draws, noise.

Run as ``python tests/bench/bench_release.py [--large]``; prints one line each, with processor seconds and peak memory,
and exits 1 where a bound is missed. The input is the star mechanism on a unit grid at epsilon 1.5 per cell, degraded
as solvers degrade theirs: small entries lost, noise of 1e-9. ``--large`` adds 1600 records with every pair required.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

EPSILON = Fraction("1.5")
missed: list[str] = []


def grid(side: int, near: float) -> tuple[Any, Any, Any]:
    """Pairs within ``near`` cells, their distances, and the distance matrix that they imply."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    at = np.array([(a, b) for a in range(side) for b in range(side)], dtype=float)
    distance = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1))
    first, second = np.nonzero(np.triu((distance > 0) & (distance <= near)))
    lengths = distance[first, second]
    if near < side:
        shape = distance.shape
        distance = dijkstra(coo_array((lengths, (first, second)), shape=shape), directed=False)
    return np.stack([first, second], axis=1), lengths, distance


def degraded_star(distance: Any) -> Any:
    """Return the star mechanism, small entries lost, with noise."""
    kernel = np.exp(-float(EPSILON) * distance)
    z = np.maximum(kernel * np.linalg.solve(kernel, np.ones(len(kernel))), 0)
    rng = np.random.default_rng(0)
    exact = z.copy()
    z[(rng.random(z.shape) < 0.2) & (z < 1e-4)] = 0
    return exact, z + 1e-9 * rng.normal(size=z.shape) * (z > 0)


def measure(
    name: str, work: Callable[[], Any], bound: float | None = None, note: Callable[[Any], str] | None = None
) -> Any:
    """Run and print; remember a missed bound (processor seconds)."""
    wall, cpu = time.perf_counter(), time.process_time()
    value = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if bound is not None and cpu > bound:
        missed.append(name)
    limit = f" (at most {bound:g})" if bound is not None else ""
    print(
        f"{name}: {cpu:.2f} s processor{limit}, {wall:.2f} s, peak {peak:.2f} GiB",
        note(value) if note else "",
        flush=True,
    )
    return value


def release(name: str, side: int, near: float, bound: float | None) -> None:
    """Repair with its certificate, then the certificate alone, then the bound from multipliers that are all 0."""
    from privopt_metric_dp.matrix.certify import certify
    from privopt_metric_dp.matrix.repair import repair
    from privopt_metric_dp.proof.lagrangian_bound import lower_bound
    from privopt_metric_dp.proof.multipliers import Multipliers

    pairs, lengths, distance = grid(side, near)
    exact, z = degraded_star(distance)
    loss = distance / len(distance)
    best = float((loss * exact).sum())
    made = measure(
        f"{name}: repair and certificate",
        lambda: repair(z, pairs, lengths, EPSILON, loss=loss),
        bound,
        lambda r: f"; loss {r.loss_after:.9g} for {best:.9g}, tau {r.tau:.1e}, {len(pairs)} pairs",
    )
    measure(f"{name}: certificate alone", lambda: certify(made.weights, pairs, lengths, EPSILON))

    def blocks() -> Any:
        for start in range(0, z.shape[1], 64):
            none = np.zeros((len(pairs), min(64, z.shape[1] - start)))
            yield start, start + none.shape[1], none, none

    if len(pairs) * z.shape[1] < 1e9:
        measure(f"{name}: lower bound", lambda: lower_bound(loss, pairs, lengths, EPSILON, Multipliers(blocks=blocks)))


def main() -> int:
    """All of it."""
    from privopt.numbers import draw, draw_laplace
    from privopt_metric_dp.matrix.repair import repair

    tiny = grid(3, 9.0)
    repair(np.eye(9), *tiny[:2], EPSILON)  # compiles or loads the kernels
    draw_laplace(10, Fraction(1, 30))
    release("400 records, every pair", 20, 99.0, 5.0)
    release("1600 records, 8 neighbours", 40, 1.5, 30.0)
    if "--large" in sys.argv:
        release("1600 records, every pair", 40, 99.0, None)
    row = np.full(1024, 2**53, dtype=np.uint64)
    measure("1e6 draws of 1024 outputs", lambda: draw(row, 1_000_000), 5.0)
    measure("3.2e6 geometric draws", lambda: draw_laplace(3_200_000, Fraction(1, 30)), 5.0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if peak > 4:
        missed.append("4 GiB")
    print("missed: " + ", ".join(missed) if missed else "all within bounds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
