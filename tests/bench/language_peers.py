"""One tool's run of bench_language.py: state a model, solve it, and solve it again with new costs.

Run as ``python language_peers.py TOOL ROWS`` in a process of its own; it prints one line of JSON. Only the tool that it
measures is imported. Seconds are of the processor, of this process and its children, after imports and after a model of
one row was solved by the same tool, so that every library is loaded and a worker process has started.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = 50
Costs = tuple[Any, Any]


def make_costs(rows: int, seed: int) -> Costs:
    """Return the costs d of the shares, shape (rows, COLUMNS), and c of their largest, shape (rows,)."""
    rng = np.random.default_rng(0)
    d, c = rng.random((rows, COLUMNS)), rng.random(rows) * 4
    change = np.random.default_rng(seed)
    if seed:
        d, c = d * change.uniform(0.9, 1.1, d.shape), c * change.uniform(0.9, 1.1, c.shape)
    return d, c


def closed_form(costs: Costs) -> float:
    """Return the optimum: in each row the m cheapest shares are 1/m, for the best m."""
    d, c = costs
    counts = np.arange(1, COLUMNS + 1)
    return float(((np.cumsum(np.sort(d, axis=1), axis=1) + c[:, None]) / counts).min(axis=1).sum())


class Stopwatch:
    """Seconds of the processor and of the wall between two looks."""

    def __init__(self) -> None:
        """Start."""
        self.look = self._read()

    def _read(self) -> tuple[float, float]:
        seconds = sum(os.times()[:4])
        # Solvers in worker processes that live on count too.
        threads = Path("/proc/self/task").iterdir()
        children = [child for thread in threads for child in (thread / "children").read_text().split()]
        for child in children:
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return seconds, time.perf_counter()

    def lap(self) -> tuple[float, float]:
        """Return the seconds since the last look, and look again."""
        now, before = self._read(), self.look
        self.look = now
        return now[0] - before[0], now[1] - before[1]


Stages = Iterator[float | None]


def run_privopt(costs: Costs, new_costs: Costs, backend: str = "highs") -> Stages:
    """Privopt's language; its objectives are yielded after each stage."""
    from privopt.backends import get
    from privopt.dsl import Eq, Index, IndexSet, Le, Model, total

    get(backend)
    yield None
    d, c = costs
    m = Model("shares")
    N, K = IndexSet("N", len(c)), IndexSet("K", COLUMNS)
    i, k = Index("i", N), Index("k", K)
    x, y = m.variable("x", N, K), m.variable("y", N)
    dd, cc = m.param("d", d, N, K), m.param("c", c, N)
    m.minimize(total(dd[i, k] * x[i, k], over=(i, k)) + total(cc[i] * y[i], over=i))
    m.require("mass", Eq(total(x[i, k], over=k), 1), forall=i)
    m.require("largest", Le(x[i, k], y[i]), forall=(i, k))
    m.compile()
    yield None
    yield m.solve(backend).objective
    yield m.solve(backend, params={"d": new_costs[0], "c": new_costs[1]}).objective


def run_privopt_cbc(costs: Costs, new_costs: Costs) -> Stages:
    """Privopt's language with CBC, as python-mip is measured."""
    return run_privopt(costs, new_costs, "cbc")


def run_cvxpy(costs: Costs, new_costs: Costs) -> Stages:
    """Cvxpy with parameters, as its documentation advises for models that are solved again."""
    import cvxpy as cp
    import highspy  # noqa: F401

    yield None
    d, c = costs
    x, y = cp.Variable(d.shape, nonneg=True), cp.Variable(len(c), nonneg=True)
    dd, cc = cp.Parameter(d.shape), cp.Parameter(len(c))
    dd.value, cc.value = d, c
    objective = cp.Minimize(cp.sum(cp.multiply(dd, x)) + cc @ y)
    problem = cp.Problem(objective, [cp.sum(x, axis=1) == 1, x <= y[:, None]])
    problem.get_problem_data(cp.HIGHS)
    yield None
    yield problem.solve(solver=cp.HIGHS)
    dd.value, cc.value = new_costs
    yield problem.solve(solver=cp.HIGHS)


def run_cvxpy_anew(costs: Costs, new_costs: Costs) -> Stages:
    """Cvxpy without parameters: a model with new costs is stated and solved anew."""
    import cvxpy as cp
    import highspy  # noqa: F401

    yield None

    def state_problem(costs: Costs) -> Any:
        d, c = costs
        x, y = cp.Variable(d.shape, nonneg=True), cp.Variable(len(c), nonneg=True)
        objective = cp.Minimize(cp.sum(cp.multiply(d, x)) + c @ y)
        return cp.Problem(objective, [cp.sum(x, axis=1) == 1, x <= y[:, None]])

    problem = state_problem(costs)
    problem.get_problem_data(cp.HIGHS)
    yield None
    yield problem.solve(solver=cp.HIGHS)
    yield state_problem(new_costs).solve(solver=cp.HIGHS)


def run_linopy(costs: Costs, new_costs: Costs) -> Stages:
    """Linopy, which hands arrays to HiGHS; new costs are a new objective."""
    import highspy  # noqa: F401
    import linopy
    import xarray as xr

    yield None
    d, c = costs
    m = linopy.Model()
    coordinates = {"i": range(len(c)), "k": range(COLUMNS)}
    x = m.add_variables(lower=0, coords=coordinates, dims=["i", "k"], name="x")
    y = m.add_variables(lower=0, coords={"i": range(len(c))}, dims=["i"], name="y")

    def set_objective(d: Any, c: Any) -> None:
        dd = xr.DataArray(d, coords=coordinates, dims=["i", "k"])
        cc = xr.DataArray(c, coords={"i": range(len(c))}, dims=["i"])
        m.add_objective((dd * x).sum() + (cc * y).sum(), overwrite=True)

    m.add_constraints(x.sum("k") == 1, name="mass")
    m.add_constraints(x - y <= 0, name="largest")
    set_objective(d, c)
    matrices = m.matrices
    assert matrices.A is not None
    yield None
    m.solve("highs", io_api="direct", output_flag=False)
    yield float(m.objective.value)
    set_objective(*new_costs)
    m.solve("highs", io_api="direct", output_flag=False)
    yield float(m.objective.value)


def run_pulp(costs: Costs, new_costs: Costs) -> Stages:
    """PuLP with HiGHS in its process."""
    import highspy  # noqa: F401
    import pulp

    yield None
    d, c = costs
    n = range(len(c))
    problem = pulp.LpProblem("shares", pulp.LpMinimize)
    x = [[pulp.LpVariable(f"x_{i}_{k}", 0) for k in range(COLUMNS)] for i in n]
    y = [pulp.LpVariable(f"y_{i}", 0) for i in n]

    def objective(d: Any, c: Any) -> Any:
        pairs = [(x[i][k], float(d[i, k])) for i in n for k in range(COLUMNS)]
        return pulp.LpAffineExpression(pairs + [(y[i], float(c[i])) for i in n])

    problem.setObjective(objective(d, c))
    for i in n:
        problem += pulp.LpAffineExpression([(v, 1.0) for v in x[i]]) == 1
        for k in range(COLUMNS):
            problem += x[i][k] - y[i] <= 0
    yield None
    problem.solve(pulp.HiGHS(msg=False))
    yield float(pulp.value(problem.objective))
    problem.setObjective(objective(*new_costs))
    problem.solve(pulp.HiGHS(msg=False))
    yield float(pulp.value(problem.objective))


def run_mip(costs: Costs, new_costs: Costs, *, dual: bool = False) -> Stages:
    """python-mip with CBC; new costs are set on its variables, and it goes on from its last basis.

    CBC chooses the method, unless ``dual`` asks for the dual simplex method.
    """
    import mip

    yield None
    d, c = costs
    n = range(len(c))
    m = mip.Model(sense=mip.MINIMIZE, solver_name=mip.CBC)
    m.verbose = 0
    if dual:
        m.lp_method = mip.LP_Method.DUAL
    x = [[m.add_var(obj=float(d[i, k])) for k in range(COLUMNS)] for i in n]
    y = [m.add_var(obj=float(c[i])) for i in n]
    for i in n:
        m += mip.xsum(x[i]) == 1
        for k in range(COLUMNS):
            m += x[i][k] - y[i] <= 0
    yield None
    m.optimize()
    yield float(m.objective_value)
    d, c = new_costs
    for i in n:
        for k in range(COLUMNS):
            x[i][k].obj = float(d[i, k])
        y[i].obj = float(c[i])
    m.optimize()
    yield float(m.objective_value)


def run_mip_dual(costs: Costs, new_costs: Costs) -> Stages:
    """python-mip with the method that privopt asks CBC for."""
    return run_mip(costs, new_costs, dual=True)


TOOLS: dict[str, Callable[[Costs, Costs], Stages]] = {
    "privopt": run_privopt,
    "cvxpy, parameters": run_cvxpy,
    "cvxpy, anew": run_cvxpy_anew,
    "linopy": run_linopy,
    "PuLP": run_pulp,
    "privopt, CBC": run_privopt_cbc,
    "python-mip, CBC": run_mip,
    "python-mip, CBC, dual simplex": run_mip_dual,
}


def main() -> None:
    """Run one tool, and print its seconds and its errors against the closed form."""
    tool, rows = sys.argv[1], int(sys.argv[2])
    costs, new_costs = make_costs(rows, 0), make_costs(rows, 1)
    # What a tool does once a process, such as importing a solver or starting its process, is no part of its seconds.
    for _ in TOOLS[tool](make_costs(1, 0), make_costs(1, 1)):
        pass
    stages = TOOLS[tool](costs, new_costs)
    next(stages)
    watch = Stopwatch()
    laps, objectives = [], []
    for objective in stages:
        laps.append(watch.lap())
        objectives.append(objective)
    errors = [abs(a - b) / b for a, b in zip(objectives[1:], map(closed_form, (costs, new_costs)), strict=True)]
    print(json.dumps({"laps": laps, "errors": errors}))


if __name__ == "__main__":
    main()
