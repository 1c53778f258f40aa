"""What 1.2e6 rows cost: compiling the formula, loading it into CBC and into HiGHS, memory.

Run as ``python tests/bench/bench_compile.py``; prints one line each, and exits 1 where a bound is missed.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

SIDE = 40
BOUNDS = {"compile": 5.0, "condition": 5.0, "highs load": 1.0, "cbc load": 5.0, "peak memory": 1.5}


def form() -> Any:
    """Return a grid of 40 x 40 records, 95 outputs, the 8 neighbours: 1.2e6 privacy rows, 1600 mass rows."""
    from privopt.dsl import Eq, Index, IndexSet, Le, Model, exp, total

    at = np.array([(a, b) for a in range(SIDE) for b in range(SIDE)], dtype=float)
    distance = np.linalg.norm(at[:, None] - at[None], axis=2)
    pairs = np.argwhere((distance > 0) & (distance < 1.5))
    outputs = round(1.2e6 / len(pairs))
    started = time.perf_counter()
    X, Y = IndexSet("X", [f"{int(a)}-{int(b)}" for a, b in at]), IndexSet("Y", outputs)
    i, j, k = Index("i", X), Index("j", X), Index("k", Y)
    m = Model("large")
    z = m.variable("z", X, Y)
    d, c = m.param("d", distance), m.param("c", distance[:, :outputs])
    m.minimize(total(c[i, k] * z[i, k] / len(at), over=(i, k)))
    m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
    m.require("geo-ind", Le(z[i, k], exp(0.7 * d[i, j]) * z[j, k]), forall=(i, j, k), where=pairs)
    made = m.compile()
    show("compile", time.perf_counter() - started, f"{made.shape[0]} rows, {made.A.nnz} entries")
    return made


def show(what: str, value: float, more: str = "", unit: str = "s") -> None:
    """Print a figure beside its bound."""
    print(f"{what:12s} {value:8.3f} {unit:3s} (bound {BOUNDS[what]:g})  {more}", flush=True)
    measured[what] = value


measured: dict[str, float] = {}


def cbc_load(conditioned: Any) -> None:
    """Seconds that the worker needs to load it."""
    from privopt.backends.base import Options
    from privopt.backends.cbc import problem_arrays, solver_options
    from privopt.backends.workers import ask

    problem = problem_arrays(conditioned) | solver_options(conditioned, Options())
    started = time.perf_counter()
    answer = ask("cbc", problem | {"load_only": np.array(True)}, 120.0).answer
    assert answer is not None
    whole = time.perf_counter() - started
    show("cbc load", float(answer["loaded"]), f"{whole:.2f} s with the process and the transfer")


def main() -> None:
    """Measure, print, judge."""
    import privopt.dsl.model  # noqa: F401
    from privopt.backends.cbc import BEARING as CBC
    from privopt.backends.highs import BEARING, TOLERANCE, load, new_solver
    from privopt.backends.workers import idle
    from privopt.dsl.condition import condition

    made = form()
    started = time.perf_counter()
    conditioned = condition(made, BEARING)
    show("condition", time.perf_counter() - started)
    solver = new_solver(tolerance=TOLERANCE, method="auto")
    started = time.perf_counter()
    load(solver, conditioned)
    show("highs load", time.perf_counter() - started)
    del solver, conditioned
    cbc_load(condition(made, CBC))
    idle.close()
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    show("peak memory", own, f"this process; cbc's worker {worker:.2f} GiB", "GiB")
    missed = [what for what, value in measured.items() if value > BOUNDS[what]]
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
