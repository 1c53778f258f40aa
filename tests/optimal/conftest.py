from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from privopt.metric.optimal import Instance


def grid(side: int, other: int | None = None) -> np.ndarray:
    x, y = np.meshgrid(np.arange(side), np.arange(other or side), indexing="ij")
    return np.stack([x.ravel(), y.ravel()], axis=1).astype(float)


def _instance(side: int, pairs: str, epsilon: float, *, other: int | None = None, located: bool = True) -> Instance:
    points = grid(side, other)
    distance = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    reach = 1.5 if pairs == "8nb" else np.inf
    i, j = np.nonzero(np.triu(distance < reach, 1))
    return Instance(
        cost=distance / len(points),
        pairs=np.stack([i, j], axis=1),
        distances=distance[i, j],
        epsilon=epsilon,
        coordinates=points if located else None,
    )


@pytest.fixture(scope="session")
def grid_instance() -> Callable[..., Instance]:
    """Unit grid, uniform prior, Euclidean cost: 8 neighbours ("8nb") or every pair ("all")."""
    return _instance


def _excess(instance: Instance, z: np.ndarray) -> float:
    """Largest relative violation of the privacy rows and of the row sums."""
    worst = float(np.abs(z.sum(axis=1) - 1).max())
    i, j = instance.pairs.T
    for a, b in ((i, j), (j, i)):
        if len(a):
            worst = max(worst, float((z[a] - np.exp(instance.lengths)[:, None] * z[b]).max()))
    return max(worst, -float(z.min()))


@pytest.fixture(scope="session")
def excess() -> Callable[[Instance, np.ndarray], float]:
    return _excess


def _full_optimum(instance: Instance) -> float:
    """The whole LP, row by row, by HiGHS at tolerance 1e-9 or so."""
    import highspy
    from scipy.sparse import coo_array

    n, k, pairs = instance.records, instance.outputs, len(instance.pairs)
    i, j = instance.pairs.T if pairs else np.zeros((2, 0), dtype=int)
    growth = np.exp(instance.lengths / 2)  # each row's two numbers: HiGHS takes none above 1e15
    rows, columns, values = [], [], []
    for turn, (a, b) in enumerate(((i, j), (j, i))):
        number = (turn * pairs + np.arange(pairs))[:, None] * k + np.arange(k)
        rows += [number.ravel()] * 2
        columns += [(a[:, None] * k + np.arange(k)).ravel(), (b[:, None] * k + np.arange(k)).ravel()]
        values += [np.repeat(1 / growth, k), np.repeat(-growth, k)]
    rows.append(2 * pairs * k + np.repeat(np.arange(n), k))
    columns.append(np.arange(n * k))
    values.append(np.ones(n * k))
    matrix = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(2 * pairs * k + n, n * k)
    ).tocsr()
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = matrix.shape
    model.col_cost_ = instance.cost.ravel()
    model.col_lower_, model.col_upper_ = np.zeros(n * k), np.full(n * k, 1.0)
    model.row_lower_ = np.r_[np.full(2 * pairs * k, -np.inf), np.ones(n)]
    model.row_upper_ = np.r_[np.zeros(2 * pairs * k), np.ones(n)]
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
    model.a_matrix_.value_ = matrix.data
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("primal_feasibility_tolerance", 1e-9)
    solver.setOptionValue("dual_feasibility_tolerance", 1e-9)
    solver.passModel(model)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(solver.getInfo().objective_function_value)


@pytest.fixture(scope="session")
def full_optimum() -> Callable[[Instance], float]:
    return _full_optimum
