"""The solvers of the benchmark: privopt's own methods and others, each timed and limited on the solve alone.

The limit is one of processor seconds, for a busy machine gives each process another share of its time: others are ended
by the system, privopt is interrupted and gives the best that it has.
"""

from __future__ import annotations

import re
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from instances import Problem, grid

Answer = dict[str, Any]


def clock(limit: float) -> tuple[float, float]:
    """Wall and processor seconds now; from now on the process may take ``limit`` of the latter."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + limit) + 1, hard_limit))
    return time.perf_counter(), time.process_time()


def since(began: tuple[float, float]) -> tuple[float, float]:
    """Wall and processor seconds since then; what follows is not limited."""
    elapsed = time.perf_counter() - began[0], time.process_time() - began[1]
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (hard_limit, hard_limit))
    return elapsed


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (hard_limit, hard_limit))
    raise KeyboardInterrupt


def make_own_runner(method: str) -> Callable[[Problem, float], Answer]:
    def run(problem: Problem, limit: float) -> Answer:
        from privopt_metric_dp.solvers import Instance, dual_bound, solve

        for warm in ("star", "column-generation", "interior-point"):  # compiled code is read from its cache
            solve(Instance(**grid(3, "8nb", 2.0)), method=warm)
        gap = problem.pop("gap", 1e-6)
        instance = Instance(**problem)
        signal.signal(signal.SIGXCPU, _interrupt)
        began = clock(limit)
        answer = solve(instance, method=method, gap=gap)
        seconds = since(began)
        bound = dual_bound(instance, answer.multipliers)[0] if instance.records <= 2000 else answer.lower_bound
        path = re.sub(r" \([^)]*\)", " fails", answer.details.get("path", answer.method))
        return {"z": answer.z, "loss": answer.objective, "bound": bound, "seconds": seconds, "note": path}

    return run


def whole_lp(problem: Problem) -> Any:
    """Return the whole linear program for HiGHS, and its matrix."""
    import highspy
    from scipy.sparse import coo_array

    cost, pairs = problem["cost"], problem["pairs"]
    n, k, p = *cost.shape, len(pairs)
    i, j = pairs.T
    growth = np.repeat(np.exp(problem["epsilon"] * problem["distances"]), k)
    rows, columns, values = [], [], []
    for turn, (a, b) in enumerate(((i, j), (j, i))):
        number = ((turn * p + np.arange(p))[:, None] * k + np.arange(k)).ravel()
        rows += [number, number]
        columns += [(a[:, None] * k + np.arange(k)).ravel(), (b[:, None] * k + np.arange(k)).ravel()]
        values += [np.ones(p * k), -growth]
    rows.append(2 * p * k + np.repeat(np.arange(n), k))
    columns.append(np.arange(n * k))
    values.append(np.ones(n * k))
    matrix = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(2 * p * k + n, n * k)
    ).tocsr()
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = matrix.shape
    model.col_cost_ = cost.ravel()
    model.col_lower_, model.col_upper_ = np.zeros(n * k), np.full(n * k, np.inf)
    model.row_lower_ = np.r_[np.full(2 * p * k, -np.inf), np.ones(n)]
    model.row_upper_ = np.r_[np.zeros(2 * p * k), np.ones(n)]
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
    model.a_matrix_.value_ = matrix.data
    return model, matrix


def highs(kind: str) -> Callable[[Problem, float], Answer]:
    def run(problem: Problem, limit: float) -> Answer:
        import highspy

        model, _ = whole_lp(problem)
        solver = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("solver", kind),
            ("run_crossover", "off"),
        ):
            if solver.setOptionValue(option, value) != highspy.HighsStatus.kOk:
                return {"note": f"not in HiGHS {solver.version()} without highspy-extras"}
        began = clock(limit)
        solver.passModel(model)
        solver.run()
        seconds = since(began)
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return {"note": solver.modelStatusToString(solver.getModelStatus()), "seconds": seconds}
        z = np.array(solver.getSolution().col_value).reshape(problem["cost"].shape)
        return {"z": z, "loss": float(np.vdot(problem["cost"], z)), "seconds": seconds}

    return run


def cbc(problem: Problem, limit: float) -> Answer:
    import tempfile

    import highspy
    import mip

    model, _ = whole_lp(problem)
    with tempfile.TemporaryDirectory() as folder:
        writer = highspy.Highs()
        writer.setOptionValue("output_flag", False)
        writer.passModel(model)
        path = str(Path(folder) / "whole.mps")
        writer.writeModel(path)
        solver = mip.Model(solver_name=mip.CBC)
        solver.verbose = 0
        solver.read(path)
    solver.lp_method = mip.LP_Method.DUAL
    began = clock(limit)
    status = solver.optimize()
    seconds = since(began)
    if status != mip.OptimizationStatus.OPTIMAL:
        return {"note": status.name.lower(), "seconds": seconds}
    z = np.array([variable.x for variable in solver.vars]).reshape(problem["cost"].shape)
    return {"z": z, "loss": float(np.vdot(problem["cost"], z)), "seconds": seconds}


def clarabel(problem: Problem, limit: float) -> Answer:
    import clarabel as solver
    from scipy.sparse import csc_matrix, eye_array, vstack

    _, matrix = whole_lp(problem)
    n, k = problem["cost"].shape
    rows = len(problem["pairs"]) * 2 * k
    stacked = csc_matrix(vstack([matrix[rows:], matrix[:rows], -eye_array(n * k)]))
    right = np.r_[np.ones(n), np.zeros(rows + n * k)]
    settings = solver.DefaultSettings()
    settings.verbose = False
    cones = [solver.ZeroConeT(n), solver.NonnegativeConeT(rows + n * k)]
    began = clock(limit)
    quadratic = csc_matrix((n * k, n * k))
    answer = solver.DefaultSolver(quadratic, problem["cost"].ravel(), stacked, right, cones, settings).solve()
    seconds = since(began)
    if str(answer.status) not in ("Solved", "AlmostSolved"):
        return {"note": str(answer.status), "seconds": seconds}
    z = np.array(answer.x).reshape(n, k)
    return {"z": z, "loss": float(np.vdot(problem["cost"], z)), "seconds": seconds, "bound": float(answer.obj_val_dual)}


def scipy_linprog(problem: Problem, limit: float) -> Answer:
    from scipy.optimize import linprog

    _, matrix = whole_lp(problem)
    rows = matrix.shape[0] - len(problem["cost"])
    began = clock(limit)
    answer = linprog(
        problem["cost"].ravel(), A_ub=matrix[:rows], b_ub=np.zeros(rows), A_eq=matrix[rows:],
        b_eq=np.ones(len(problem["cost"])), method="highs-ds",
    )  # fmt: skip
    seconds = since(began)
    if answer.status != 0:
        return {"note": answer.message.split(".")[0][:40], "seconds": seconds}
    return {"z": answer.x.reshape(problem["cost"].shape), "loss": float(answer.fun), "seconds": seconds}


def libqif(problem: Problem, limit: float) -> Answer:
    import qif

    n = len(problem["cost"])
    path_lengths = np.full((n, n), np.inf)
    path_lengths[tuple(problem["pairs"].T)] = problem["epsilon"] * problem["distances"]
    path_lengths = np.minimum(path_lengths, path_lengths.T)
    np.fill_diagonal(path_lengths, 0)
    prior = np.full(n, 1 / n)
    began = clock(limit)
    z = np.asarray(
        qif.mechanism.d_privacy.min_loss_given_d(
            prior, n, lambda i, j: float(path_lengths[i, j]), lambda i, k: float(problem["cost"][i, k] * n)
        )
    )
    seconds = since(began)
    return {"z": z, "loss": float(np.vdot(problem["cost"], z)), "seconds": seconds}


SOLVERS: dict[str, Callable[[Problem, float], Answer]] = {
    "privopt auto": make_own_runner("auto"),
    "privopt column-generation": make_own_runner("column-generation"),
    "privopt interior-point": make_own_runner("interior-point"),
    "CBC dual": cbc,
    "HiGHS simplex": highs("simplex"),
    "HiGHS IPX": highs("ipx"),
    "HiGHS HiPO": highs("hipo"),
    "HiGHS PDLP": highs("pdlp"),
    "Clarabel": clarabel,
    "scipy linprog": scipy_linprog,
    "libqif": libqif,
    **{method: make_own_runner(method) for method in ("auto", "star", "column-generation", "interior-point")},
}
