"""Published instances, read into our standard form, on both solvers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from privopt.dsl.form import StandardForm
from privopt.dsl.solution import Solution, solve_form
from privopt.errors import InfeasibleError, StoppedError, UnboundedError

# published (Netlib, MIPLIB, HiGHS' own checks), to the digits given there; 5.75 and 32 found by scipy and highspy too
OPTIMA = {
    "25fv47": 5501.8458883,
    "adlittle": 225494.96316,
    "afiro": -464.75314286,
    "avgas": -7.749999999,
    "bell5": 8966406.49,
    "egout": 568.1007,
    "flugpl": 1201500.0,
    "gt2": 21166.0,
    "israel": -896644.82186,
    "lseu": 1120.0,
    "qap04": 32.0,
    "rgn": 82.1999992,
    "sctest": 5.75,
    "small_mip": 3.2368421,
    "sp150x300d": 69.0,
}
INFEASIBLE = [
    "bgetam",
    "box1",
    "ex72a",
    "forest6",
    "galenet",
    "infeasible-mip0",
    "infeasible-mip1",
    "klein1",
    "woodinfe",
]
SLOW_ON_CBC = {"bell5", "rgn", "sp150x300d"}

Reader = Callable[[Path], StandardForm]


@pytest.mark.parametrize("name", OPTIMA)
def test_optima_on_highs(name: str, read_mps: Reader, instances: Path) -> None:
    form = read_mps(instances / f"{name}.mps")
    result = solve_form(form, "highs")
    assert result.status == "optimal"
    assert result.objective == pytest.approx(OPTIMA[name], rel=1e-6)
    assert result.gap is not None
    assert result.gap <= 1e-6
    if not form.is_mip:
        assert result.reduced is not None  # the multipliers that are handed out are stationary
        assert np.allclose(form.c - form.A.T @ result.duals, result.reduced, atol=1e-6 * (1 + np.abs(form.c).max()))


def first_points(form: StandardForm) -> Solution:
    """Return CBC's solution after a second; if there is none, as on a busy machine, after thirty or three hundred."""
    for seconds in (1.0, 30.0):
        with suppress(StoppedError):
            return solve_form(form, "cbc", time_limit=seconds)
    return solve_form(form, "cbc", time_limit=300.0)


@pytest.mark.parametrize("name", OPTIMA)
def test_optima_on_cbc(name: str, read_mps: Reader, instances: Path) -> None:
    form = read_mps(instances / f"{name}.mps")
    if name in SLOW_ON_CBC:
        result = first_points(form)
        assert result.bound is not None
        assert result.bound <= OPTIMA[name] * (1 + 1e-8)
        assert result.objective >= OPTIMA[name] * (1 - 1e-8)
        return
    result = solve_form(form, "cbc", time_limit=600.0)
    assert result.status == "optimal"
    assert result.objective == pytest.approx(OPTIMA[name], rel=1e-6)


@pytest.mark.parametrize("name", INFEASIBLE)
@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_infeasible_instances(name: str, backend: str, read_mps: Reader, instances: Path) -> None:
    with pytest.raises(InfeasibleError, match=r"cannot be satisfied|bounds of"):
        solve_form(read_mps(instances / f"{name}.mps"), backend)


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_gas11_is_unbounded(backend: str, read_mps: Reader, instances: Path) -> None:
    with pytest.raises(UnboundedError, match="improves without end"):
        solve_form(read_mps(instances / "gas11.mps"), backend)
