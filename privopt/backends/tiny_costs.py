"""Solve a form whose costs are close to the smallest positive doubles by solving an equivalent form with larger costs.

Doubles below 2**-1022 have fewer digits, so checks that compare costs in the form's own units could not tell the
optimum from other points. The scaling factor is a power of two, so scaling up changes no digits.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from attrs import evolve

from privopt.dsl.form import StandardForm
from privopt.dsl.outcome import Result

__all__ = ["cost_exponent", "enlarge_costs", "shrink_result"]

TINY: Final = 2.0**-900
"""An objective is scaled up if all its coefficients are smaller than this."""


def cost_exponent(form: StandardForm) -> int:
    """Return an exponent e such that 2**e times the largest cost is close to 1.

    If the largest cost is 0 or not tiny, no scaling is needed and the result is 0.
    """
    coefficients = [form.c, np.array([form.c0]), *([] if form.Q is None else [form.Q.data])]
    largest = max(float(np.abs(values).max(initial=0.0)) for values in coefficients)
    return 0 if largest == 0.0 or largest >= TINY else -math.frexp(largest)[1]


def enlarge_costs(form: StandardForm, exponent: int) -> StandardForm:
    """Return a copy of a form with its objective multiplied by 2**exponent. Positive exponents cause no rounding."""
    larger_q = None if form.Q is None else form.Q.copy()
    if larger_q is not None:
        larger_q.data = np.ldexp(larger_q.data, exponent)
    return evolve(form, c=np.ldexp(form.c, exponent), c0=math.ldexp(form.c0, exponent), Q=larger_q)


def shrink_result(form: StandardForm, result: Result, exponent: int) -> Result:
    """Convert the result for a form with enlarged costs to the result for the original form.

    Args:
        form: The original form, with tiny costs.
        result: The result for the enlarged form.
        exponent: The exponent e, where the enlarged costs are 2**e times the original ones.
    """
    objective = None if result.x is None or result.objective is None else form.objective_at(result.x)
    bound, tightening = result.bound, result.tightening
    if bound is not None:
        bound = _shrink(bound, exponent, towards=-math.inf if form.sense == "min" else math.inf)
        # The objective is rounded separately, so that the bound may now lie beyond it.
        if objective is not None:
            bound = min(bound, objective) if form.sense == "min" else max(bound, objective)
    if tightening is not None and tightening.cost is not None:
        tightening = evolve(tightening, cost=_shrink(tightening.cost, exponent, towards=math.inf))
    return evolve(
        result,
        objective=objective,
        bound=bound,
        duals=None if result.duals is None else np.ldexp(result.duals, -exponent),
        reduced=None if result.reduced is None else np.ldexp(result.reduced, -exponent),
        tightening=tightening,
    )


def _shrink(value: float, exponent: int, *, towards: float) -> float:
    """Return value / 2**exponent, rounded towards ``towards`` if it is inexact, so that bounds stay valid."""
    nearest = math.ldexp(value, -exponent)
    back = math.ldexp(nearest, exponent)
    is_beyond = back > value if towards < 0 else back < value
    return math.nextafter(nearest, towards) if is_beyond else nearest
