"""Limit, crash, infeasible and unbounded are four outcomes; nothing unchecked gets out."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from helpers.grids import first_alone
from helpers.mentions import assert_mentions
from helpers.solver_forms import hard_form, tiny
from scipy import sparse

from privopt.backends import Outcome, get, names
from privopt.backends.base import Backend, Options, Raw, check_answer, check_vector
from privopt.backends.cbc import BEARING, Cbc
from privopt.dsl import Eq, Index, IndexSet, Le, Model, exp, total
from privopt.dsl.condition import ScaledForm, condition
from privopt.dsl.form import StandardForm
from privopt.dsl.solution import solve_form
from privopt.errors import ModelError, SolverError, StoppedError, UnknownNameError, UsageError

BACKENDS = ["highs", "cbc"]


@pytest.mark.parametrize("name", BACKENDS)
def test_four_outcomes(name: str) -> None:
    backend = get(name)
    assert backend.solve(tiny()).outcome is Outcome.OPTIMAL
    assert backend.solve(tiny(row_lower=[99])).outcome is Outcome.INFEASIBLE
    assert backend.solve(tiny(c=[-1, 0], col_upper=[np.inf, 9])).outcome is Outcome.UNBOUNDED
    limited = backend.solve(hard_form(), time_limit=0.3)
    assert limited.outcome in (Outcome.FEASIBLE, Outcome.STOPPED)


def test_early_limit_is_no_fault_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("privopt.backends.search.time", SimpleNamespace(monotonic=lambda: 1e3 * next(seconds)))
    assert get("highs").solve(tiny(), time_limit=100.0).outcome is Outcome.OPTIMAL


def runs_off() -> StandardForm:
    """Unbounded; HiGHS's presolve calls it infeasible."""
    return StandardForm(
        c=[1, -2, 4, 4, 5, 5, -3],
        sense="max",
        A=[
            [1, -3, -2, 0, -2, -2, -3],
            [-2, 3, 2, 3, -1, -1, -1],
            [1, 0, 0, 2, 0, 1, 1],
            [1, 0, -1, 0, -1, 3, -2],
            [0, -1, 0, -2, 2, 0, 0],
            [0, 3, 0, 2, 2, 0, 0],
        ],
        row_lower=[-np.inf, 16, -np.inf, -8, -np.inf, 10],
        row_upper=[np.inf, np.inf, np.inf, np.inf, -6, 12],
        col_lower=np.zeros(7),
        col_upper=[np.inf, np.inf, np.inf, 8, np.inf, np.inf, 8],
        integrality=np.zeros(7),
    )


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("method", ["auto", "simplex", "ipm"])
def test_unbounded_is_not_called_infeasible(name: str, method: str) -> None:
    form = runs_off()
    assert get(name).solve(form, method=method).outcome is Outcome.UNBOUNDED
    infeasible_form = evolve(form, row_upper=[np.inf, np.inf, -1, np.inf, -6, 12])
    assert get(name).solve(infeasible_form, method=method).outcome is Outcome.INFEASIBLE


def test_session_distinguishes_unbounded_and_infeasible() -> None:
    assert get("highs").session(runs_off()).solve().outcome is Outcome.UNBOUNDED


def test_bounded_model_is_not_called_unbounded() -> None:
    """HiGHS said so of a model at exponents near 40, all of whose columns lie between 0 and 1."""
    bounded = condition(tiny(), BEARING)
    with pytest.raises(SolverError, match=r"unbounded.*columns bound"):
        check_answer(bounded, Raw(outcome=Outcome.UNBOUNDED, seconds=0.0), "highs")


@pytest.mark.parametrize("name", BACKENDS)
def test_corner_forms(name: str) -> None:
    backend = get(name)
    empty_form = StandardForm(
        c=[], c0=3, A=sparse.csr_matrix((0, 0)), row_lower=[], row_upper=[], col_lower=[], col_upper=[], integrality=[]
    )
    assert backend.solve(empty_form).objective == 3
    rowless = tiny(A=sparse.csr_matrix((0, 2)), row_lower=[], row_upper=[], families=())
    assert backend.solve(rowless).objective == 0
    empty_row = tiny(A=sparse.csr_matrix((1, 2)), row_lower=[1])
    assert backend.solve(empty_row).outcome is Outcome.INFEASIBLE
    fixed = tiny(col_lower=[3, 1], col_upper=[3, 1], sense="max")
    assert backend.solve(fixed).objective == 4
    scaled = tiny(c=[1e-9, 3e-9])
    assert backend.solve(scaled).objective == pytest.approx(2e-9, rel=1e-9)
    assert backend.solve(scaled).duals == pytest.approx([1e-9], rel=1e-6)


@pytest.mark.parametrize("name", BACKENDS)
def test_duals_of_a_maximum_have_its_sense(name: str) -> None:
    form = tiny(c=[3, 2], sense="max", row_lower=[-np.inf], row_upper=[4])
    result = get(name).solve(form)
    assert result.objective == pytest.approx(12)
    assert result.duals == pytest.approx([3.0])
    assert result.reduced == pytest.approx([0.0, -4.0])
    assert result.bound == pytest.approx(12)


@pytest.mark.parametrize("name", BACKENDS)
def test_refuses_coefficient_of_48e20(name: str) -> None:
    with pytest.raises(SolverError, match=r"-4\.8e\+20.*x\['b'\].*x\['a'\]"):
        get(name).solve(tiny(A=[[1, -4.8e20]], row_lower=[-np.inf], row_upper=[0]))


@pytest.mark.parametrize("name", BACKENDS)
def test_large_privacy_row_is_tightened_and_stated(name: str) -> None:
    X = IndexSet("X", 2)
    i, j, k = (Index(s, X) for s in "ijk")
    m = Model("far")
    z = m.variable("z", X, X)
    d = m.param("d", np.array([[0, 47.62], [47.62, 0]]))
    m.minimize(total(d[i, k] * z[i, k], over=(i, k)))
    m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
    m.require("geo", Le(z[i, k], exp(d[i, j]) * z[j, k]), forall=(i, j, k), where=[(0, 1), (1, 0)])
    result = m.solve(name)
    assert result.tightening is not None
    assert result.tightening.rows == 4
    assert result.tightening.cost is not None
    assert result.objective - result.tightening.cost <= 2 * 47.62 * np.exp(-47.62) <= result.objective
    assert result.tightening.cost < 1e-6
    assert_mentions(str(result.tightening), "4 privacy rows", "geo", "47.62")


def test_nothing_feasible_at_the_limit_is_stopped_error() -> None:
    class Late(Cbc):
        def solve_scaled(self, conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
            return Raw(outcome=Outcome.STOPPED, seconds=1.0)

    with pytest.raises(StoppedError, match=r"1\.0 s.*without a feasible point"):
        solve_form(tiny(), Late())


class Liar(Backend):
    """Says what it is told to say."""

    name = "liar"
    capabilities = get("highs").capabilities

    def __init__(self, x: list[float], outcome: Outcome = Outcome.OPTIMAL) -> None:
        self.x, self.outcome = np.array(x), outcome

    def version(self) -> str:
        return "1"

    def solve_scaled(self, conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
        return Raw(outcome=self.outcome, x=self.x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([0.0, 0.9], "misses row by 0.2"),
        ([10.0, 0.0], r"x\['a'\] = 10, outside \[0, 9\]"),
        ([np.nan, 1.0], "finite numbers"),
        ([1.0], "not 2 finite"),
        ([0.5, 1.0], r"x\['a'\].*got 0.5"),
    ],
)
def test_finds_a_wrong_vector(x: list[float], message: str) -> None:
    with pytest.raises(SolverError, match=message):
        Liar(x).solve(tiny(integrality=[1, 0]))


def test_garbage_at_a_limit_is_not_feasible() -> None:
    assert Liar([0.0, 0.0], Outcome.FEASIBLE).solve(tiny()).outcome is Outcome.STOPPED
    assert Liar([0.0, 1.0], Outcome.FEASIBLE).solve(tiny()).outcome is Outcome.FEASIBLE


def test_solves_around_rounded_integers() -> None:
    # 1e-5 off an integer moves a row of large entries by 1: the continuous column must follow
    form = tiny(A=[[1e5, 1]], c=[0, 1], row_lower=[1e5 + 3], row_upper=[1e5 + 3], integrality=[1, 0])

    class Loose(Liar):
        def solve_scaled(self, conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
            if conditioned.form.is_mip:
                return Raw(outcome=Outcome.OPTIMAL, x=np.array([1 + 9e-6, 2.1]), bound=2.1)
            return get("highs").solve_scaled(conditioned, options, attempt)

    assert Loose([0, 0]).solve(form).x == pytest.approx([1.0, 3.0])


def test_vectors_move_onto_bounds_and_integers() -> None:
    conditioned = condition(tiny(integrality=[1, 0]), BEARING)
    x, violation = check_vector(conditioned, np.array([1.0000001, 9.0000001]))
    assert list(x) == [1.0, 9.0]
    assert violation == 0.0


def test_refuses_unknown_names() -> None:
    assert names() == ("cbc", "highs")
    with pytest.raises(UnknownNameError, match="mean highs"):
        get("hihgs")
    with pytest.raises(UsageError, match=r"time limit.*got 0"):
        get("highs").solve(tiny(), time_limit=0)
    with pytest.raises(UsageError, match=r"auto, simplex or ipm.*'magic'"):
        get("highs").solve(tiny(), method="magic")


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("time_limit", "5"),
        ("time_limit", float("nan")),
        ("time_limit", True),
        ("gap", -1.0),
        ("gap", float("nan")),
        ("gap", float("inf")),
        ("gap", "0.1"),
        ("threads", -3),
        ("threads", 1.5),
        ("seed", -1),
        ("presolve", "off"),
        ("method", ["simplex"]),
    ],
)
def test_refuses_invalid_options(name: str, option: str, value: object) -> None:
    with pytest.raises(UsageError, match=option.replace("_", " ")):
        get(name).solve(tiny(), **{option: value})  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"col_lower": [np.inf, 0]}, r"x\['a'\]: the lower"),
        ({"col_upper": [9, -np.inf]}, r"x\['b'\]: the upper"),
        ({"row_lower": [np.inf]}, "row: the lower"),
        ({"row_upper": [-np.inf], "row_lower": [-np.inf]}, "row: the upper"),
    ],
)
def test_refuses_unsatisfiable_sides(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        tiny(**change)


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=3000
    )


def test_import_of_backends_loads_no_solver() -> None:
    completed = _python("""
        import sys
        import privopt.backends
        from privopt.backends import Outcome, names
        names()
        loaded = {m.split(".")[0] for m in sys.modules}
        print(sorted(loaded & {"mip", "highspy", "sympy", "cbcbox"}))
    """)
    assert completed.stdout == "[]\n", completed.stderr


@first_alone("solver", ["cbc", "highs"])
def test_script_without_main_guard_is_clean(tmp_path: Path, solver: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        from privopt.dsl import Ge, Model
        m = Model("m")
        x = m.variable("x", kind="integer")
        m.minimize(x)
        m.require("r", Ge(3 * x, 7))
        print(m.solve({solver!r}).value("x"))
    """)
    )
    completed = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=3000, cwd=tmp_path
    )
    assert (completed.stdout, completed.stderr, completed.returncode) == ("3.0\n", "", 0)


@pytest.mark.parametrize("solver", ["cbc", "highs"])
@pytest.mark.parametrize(("lower", "feasible"), [(-1.0, True), (1.0, False)])
def test_empty_row_beside_integers(solver, lower, feasible):
    from scipy import sparse

    from privopt.dsl import Model
    from privopt.errors import InfeasibleError

    m = Model("empty row")
    x = m.variable("x", kind="binary")
    m.add_block("nothing", sparse.csr_matrix((1, 1)), columns=x, lower=lower)
    m.maximize(2 * x)
    if feasible:
        assert m.solve(solver).objective == pytest.approx(2)
    else:
        with pytest.raises(InfeasibleError):
            m.solve(solver)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_objectives_with_numbers_that_are_not_finite_are_refused(value):
    with pytest.raises(ModelError, match=rf"objective: the constant c0 must be finite, got {value}"):
        tiny(c0=value)
    with pytest.raises(ModelError, match=rf"objective: Q at x\['a'\] and x\['b'\] must be finite, got {value}"):
        tiny(Q=[[1.0, value], [value, 1.0]])
    with pytest.raises(ModelError, match=r"objective: the coefficient of x\['b'\] must be finite|c holds a NaN"):
        tiny(c=[1, value])
