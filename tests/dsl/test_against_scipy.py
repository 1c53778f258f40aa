"""Random small models of all kinds of rows, bounds and domains: status, objective and duals against SciPy, and files.

Each model is stated in the language, and its arrays are built beside it by hand. The suite tries 200 of them, ``make
slow`` 2,000; seeds whose answers solvers once got wrong are among the first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import highspy
import mip
import numpy as np
import pytest
from attrs import frozen
from scipy.optimize import Bounds, LinearConstraint, milp

from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, Solution, between, total
from privopt.errors import InfeasibleError, UnboundedError

BATCH = 20
SUITE, ALL = 200, 2000
CODES = {"continuous": 0, "integer": 1, "binary": 1, "semicontinuous": 2}
CBC_DOES_NOT_END = ("random 676",)
"""Models whose file CBC itself does not solve in minutes, whatever its time limit. Privopt solves them with CBC."""
RELATIONS = {"<=": Le, ">=": Ge, "==": Eq}


@frozen(eq=False)
class Arrays:
    """The numbers of a model as SciPy takes them: ``c x + c0`` over rows ``low <= A x <= high`` and bounds."""

    c: Any
    c0: float
    is_minimum: bool
    A: Any
    low: Any
    high: Any
    lower: Any
    upper: Any
    integrality: Any

    @property
    def sign(self) -> float:
        return 1.0 if self.is_minimum else -1.0


def random_bounds(rng: np.random.Generator, size: int, kind: str) -> tuple[Any, Any]:
    """Return bounds of all sorts: none, one, two, equal, fractional; finite and at least 0 if semicontinuous."""
    if kind == "binary":
        return np.zeros(size), np.ones(size)
    start = np.where(rng.random(size) < 0.7, rng.integers(-6, 7, size), rng.uniform(-6, 6, size).round(2))
    width = np.where(rng.random(size) < 0.8, rng.integers(0, 8, size), 0)
    if kind == "semicontinuous":
        return np.abs(start), np.abs(start) + width
    sort = rng.choice(7, size, p=[0.15, 0.08, 0.08, 0.08, 0.4, 0.1, 0.11])
    lower = np.select([sort == 0, sort == 1, sort == 3, sort == 6], [0, -np.inf, -np.inf, 0], start)
    upper = np.select([sort <= 2, sort == 3, sort == 4, sort == 6], [np.inf, start, start + width, 1], start)
    if kind == "integer":
        has_none = np.ceil(lower) > np.floor(upper)
        lower, upper = np.where(has_none, 0, lower), np.where(has_none, 3, upper)
    return lower, upper


class Case:
    """A model in the language, and its arrays."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.n, self.q = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        self.X, self.Y = IndexSet("X", [f"p{k}" for k in range(self.n)]), IndexSet("Y", self.q)
        self.model = Model(f"random {seed}")
        kinds = rng.choice(list(CODES), size=3, p=[0.45, 0.25, 0.15, 0.15])
        if rng.random() < 0.45:
            kinds[:] = "continuous"
        parts = []
        for name, sets, kind in (("x", (self.X,), kinds[0]), ("y", (self.X, self.Y), kinds[1]), ("s", (), kinds[2])):
            shape = tuple(len(s) for s in sets)
            size = int(np.prod(shape))
            lower, upper = random_bounds(rng, size, str(kind))
            self.model.variable(name, *sets, lower=lower.reshape(shape), upper=upper.reshape(shape), kind=str(kind))  # type: ignore[arg-type]
            parts.append((lower, upper, np.full(size, CODES[str(kind)])))
        self.lower, self.upper, self.integrality = (np.concatenate(part) for part in zip(*parts, strict=True))
        self.size = self.n * (1 + self.q) + 1
        self.is_anchored = rng.random() < 0.8
        self.point = self.random_point()
        self.rows: list[Any] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def random_point(self) -> Any:
        """Return a point within the bounds, at which rows are anchored so that most models are feasible."""
        lower = np.where(np.isfinite(self.lower), self.lower, np.where(np.isfinite(self.upper), self.upper - 2, -1))
        upper = np.where(np.isfinite(self.upper), self.upper, lower + 3)
        point = lower + self.rng.random(self.size) * (upper - lower)
        is_integer = self.integrality == 1
        return np.where(is_integer, np.clip(np.round(point), np.ceil(lower), np.floor(upper)), point)

    def coefficients(self, *shape: int) -> Any:
        values = self.rng.integers(-4, 5, shape).astype(float)
        values[self.rng.random(shape) < 0.3] = 0
        return values * 0.37 if self.rng.random() < 0.25 else values

    def add(self, operator: str, rows: Any, sides: Any) -> Any:
        """Add rows to the arrays, and return their sides, which may be moved to the anchor."""
        rows, sides = np.atleast_2d(rows), np.atleast_1d(np.asarray(sides, dtype=float))
        if self.is_anchored:
            slack = self.rng.integers(0, 5, len(rows)) * {"<=": 1, ">=": -1, "==": 0}[operator]
            sides = rows @ self.point + slack
        self.rows += list(rows)
        self.low += list(np.full(len(rows), -np.inf) if operator == "<=" else sides)
        self.high += list(np.full(len(rows), np.inf) if operator == ">=" else sides)
        return sides

    def operator(self) -> str:
        return str(self.rng.choice(list(RELATIONS), p=[0.45, 0.4, 0.15]))


def make_case(seed: int) -> tuple[Model, Arrays]:
    """Return a random model and its arrays."""
    case = Case(seed)
    rng, m, n, q, size = case.rng, case.model, case.n, case.q, case.size
    x, y, s = m.variables
    i, j, k = Index("i", case.X), Index("j", case.X), Index("k", case.Y)
    columns_y = n + np.arange(n * q).reshape(n, q)

    cx, cy, cs, c0 = (
        case.coefficients(n),
        case.coefficients(n, q),
        float(rng.integers(-3, 4)),
        float(rng.integers(-5, 6)),
    )
    pcx, pcy = m.param("cx", cx), m.param("cy", cy, case.X, case.Y)
    is_minimum = bool(rng.integers(2))
    objective = total(pcx[i] * x[i], over=i) + (pcy * y).sum() + cs * s + c0
    (m.minimize if is_minimum else m.maximize)(objective)

    if rng.random() < 0.9:  # a row for each i
        a, b, g, operator = case.coefficients(n), case.coefficients(n, q), float(rng.integers(-2, 3)), case.operator()
        rows = np.zeros((n, size))
        rows[np.arange(n), np.arange(n)] = a
        rows[np.arange(n)[:, None], columns_y] = b
        rows[:, -1] = g
        sides = case.add(operator, rows, rng.integers(-8, 9, n))
        pa, pb, pr = m.param("a", a), m.param("b", b), m.param("r", sides)
        left = pa[i] * x[i] + total(pb[i, k] * y[i, k], over=k) + g * s
        # Without a variable in it a row cannot be stated for each i, but here each has one.
        m.require("each", RELATIONS[operator](left, pr[i]), forall=i)
    if n > 1 and rng.random() < 0.7:  # pairs, also of the same element
        pairs, factor, operator = (
            rng.integers(0, n, (int(rng.integers(1, 5)), 2)),
            float(rng.integers(1, 4)),
            case.operator(),
        )
        rows = np.zeros((len(pairs), size))
        for number, (u, v) in enumerate(pairs):
            rows[number, u] += 1
            rows[number, v] -= factor
        sides = case.add(operator, rows, rng.integers(-5, 6, len(pairs)))
        P = IndexSet("P", len(pairs))
        t, side = Index("t", P), m.param("e", sides)
        triples = np.c_[np.arange(len(pairs)), pairs]
        relation = RELATIONS[operator](x[i] - side[t], factor * x[j])
        m.require("pairs", relation, forall=(t, i, j), where=triples)
    if rng.random() < 0.7:  # one row, of a sum over a few tuples or none
        tuples, w, operator = (
            rng.integers(0, [n, q], (int(rng.integers(0, 4)), 2)),
            case.coefficients(n, q),
            case.operator(),
        )
        row = np.zeros(size)
        row[-1] = 1
        for u, v in tuples:
            row[columns_y[u, v]] += w[u, v]
        (side,) = case.add(operator, row, float(rng.integers(-6, 10)))
        pw = m.param("w", w)
        m.require("one", RELATIONS[operator](total(pw[i, k] * y[i, k], over=(i, k), where=tuples) + s, side))
    if rng.random() < 0.5:  # rows with two sides, as a block or as a relation of whole variables
        count = int(rng.integers(1, 3))
        matrix = case.coefficients(count, n)
        rows = np.c_[matrix, np.zeros((count, size - n))]
        middle = rows @ case.point if case.is_anchored else rng.integers(-9, 3, count)
        low, high = np.floor(middle) - 1, np.ceil(middle) + 2
        case.rows, case.low, case.high = case.rows + list(rows), case.low + list(low), case.high + list(high)
        if rng.integers(2):
            m.add_block("two sides", matrix, columns=x, lower=low, upper=high)
        else:
            Q = IndexSet("Q", count)
            r, mm, ll, hh = Index("r", Q), m.param("mm", matrix), m.param("ll", low), m.param("hh", high)
            m.require("two sides", between(ll[r], total(mm[r, i] * x[i], over=i), hh[r]), forall=r)
    A = np.array(case.rows).reshape(-1, size)
    c = np.concatenate([cx, cy.ravel(), [cs]])
    sides = np.array(case.low), np.array(case.high)
    return m, Arrays(c, c0, is_minimum, A, *sides, case.lower, case.upper, case.integrality)


def scipy_answer(data: Arrays) -> str | float:
    """Return SciPy's optimum, "infeasible" or "unbounded"."""
    is_integer = data.integrality == 1
    # Rounded by hand, because HiGHS itself errs on fractional bounds of integers.
    lower = np.where(is_integer, np.ceil(data.lower), data.lower)
    upper = np.where(is_integer, np.floor(data.upper), data.upper)
    constraints = [LinearConstraint(data.A, data.low, data.high)] if len(data.A) else []
    options: Any = {
        "constraints": constraints,
        "bounds": Bounds(lower, upper),
        "integrality": data.integrality,
        "options": {"mip_rel_gap": 0},
    }
    answer = milp(data.sign * data.c, **options)
    if answer.status == 0:
        return float(data.sign * answer.fun + data.c0)
    feasible = milp(0 * data.c, **options)
    assert feasible.status in (0, 2)
    return "unbounded" if feasible.status == 0 else "infeasible"


def privopt_answer(model: Model, backend: str) -> tuple[str | float, Solution | None]:
    """Return the optimum with its solution, "infeasible" or "unbounded"."""
    try:
        solution = model.solve(backend, gap=0.0)
    except InfeasibleError:
        return "infeasible", None
    except UnboundedError:
        return "unbounded", None
    assert solution.status == "optimal"
    return solution.objective, solution


def assert_same(answer: str | float, expected: str | float) -> None:
    if isinstance(answer, str) or isinstance(expected, str):
        assert answer == expected
    else:
        assert answer == pytest.approx(expected, rel=1e-5, abs=1e-5)


def check_point(data: Arrays, solution: Solution) -> None:
    """Check that the point satisfies rows, bounds and domains, and that the bound is one."""
    x, activities = solution.x, data.A @ solution.x
    assert (np.maximum(data.low - activities, activities - data.high) <= 1e-5).all()
    is_zero = (data.integrality == 2) & (x == 0)
    assert (((x >= data.lower) & (x <= data.upper)) | is_zero).all()
    assert (x == np.round(x))[data.integrality == 1].all()
    assert solution.bound is not None
    assert data.sign * (solution.bound - solution.objective) <= 1e-9 * (1 + abs(solution.objective))


def check_duals(data: Arrays, solution: Solution) -> None:
    """Check signs, stationarity and strong duality of the multipliers of a linear program."""
    assert solution.duals is not None
    y = data.sign * solution.duals
    reduced = data.sign * data.c - data.A.T @ y
    assert solution.reduced == pytest.approx(data.sign * reduced, abs=1e-6)
    assert not ((y > 1e-6) & ~np.isfinite(data.low)).any()
    assert not ((y < -1e-6) & ~np.isfinite(data.high)).any()
    sides = np.where(y > 1e-6, data.low, np.where(y < -1e-6, data.high, 0.0))
    ends = np.where(reduced > 1e-6, data.lower, np.where(reduced < -1e-6, data.upper, 0.0))
    assert np.isfinite(ends).all()
    value = data.sign * (y @ sides + reduced @ ends) + data.c0
    assert value == pytest.approx(solution.objective, rel=1e-5, abs=1e-5)


def file_answer(path: Path) -> str | float:
    """Return what HiGHS alone says of a file; "infeasible" or "unbounded" if it cannot tell which."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    assert solver.readModel(str(path)) != highspy.HighsStatus.kError
    solver.run()
    kinds, status = highspy.HighsModelStatus, solver.getModelStatus()
    if status == kinds.kOptimal:
        return float(solver.getInfo().objective_function_value)
    return {kinds.kInfeasible: "infeasible", kinds.kUnbounded: "unbounded"}.get(status, "infeasible or unbounded")


def check_files(model: Model, data: Arrays, folder: Path, expected: str | float) -> None:
    """Check that HiGHS and CBC read the model's MPS file as it is meant.

    CBC by itself is wrong about some models with unbounded integers, and does not end on one of CBC_DOES_NOT_END; only
    HiGHS reads these.
    """
    path = folder / "model.mps"
    model.write(path)
    answer = file_answer(path)
    if isinstance(expected, str):
        assert isinstance(answer, str)
        return
    assert_same(answer, expected)
    is_bounded = np.isfinite(data.lower) & np.isfinite(data.upper)
    if model.name in CBC_DOES_NOT_END or ((data.integrality == 1) & ~is_bounded).any():
        return
    reader = mip.Model(solver_name=mip.CBC)
    reader.verbose, reader.max_mip_gap = 0, 0.0
    reader.read(str(path))
    reader.optimize(max_seconds=20)
    # python-mip leaves out the constant, and the columns of the model come before those that files add.
    x = np.array([variable.x for variable in reader.vars])[: len(data.c)]
    assert_same(float(data.c @ x) + data.c0, expected)


def check_case(seed: int, folder: Path) -> None:
    """Check a model with both backends, and its file."""
    model, data = make_case(seed)
    form, expected = model.compile(), scipy_answer(data)
    assert np.array_equal(form.integrality, data.integrality)
    for backend in ("highs", "cbc"):
        answer, solution = privopt_answer(model, backend)
        assert_same(answer, expected)
        if solution is None:
            continue
        check_point(data, solution)
        if not data.integrality.any():
            check_duals(data, solution)
    check_files(model, data, folder, expected)


def check_batch(start: int, folder: Path) -> None:
    failures = []
    for seed in range(start, start + BATCH):
        try:
            check_case(seed, folder)
        except Exception as error:
            failures.append(f"seed {seed}: {error!r}"[:600])
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("start", range(0, SUITE, BATCH))
def test_models_agree_with_scipy(start: int, tmp_path: Path) -> None:
    check_batch(start, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(SUITE, ALL, BATCH))
def test_more_models_agree_with_scipy(start: int, tmp_path: Path) -> None:
    check_batch(start, tmp_path)


def test_models_are_of_all_kinds() -> None:
    statuses, domains = set(), set()
    for seed in range(SUITE):
        _, data = make_case(seed)
        answer = scipy_answer(data)
        statuses.add((answer if isinstance(answer, str) else "optimal", bool(data.integrality.any())))
        domains |= set(data.integrality.tolist())
    assert domains == {0, 1, 2}
    assert len(statuses) == 6
