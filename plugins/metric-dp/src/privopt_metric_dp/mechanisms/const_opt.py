"""Const-opt: a linear program near the record, the exponential form beyond a radius (Imola et al., UAI 2022).

Entries of output k within the radius are variables; all others are tied: z_ik = sum_f y_fk g_fik, with weights
y_fk >= 0 that all records share and forms g_f that keep every required pair by themselves, column by column:

- full: g_ik = exp(-eps d_ik), by the triangle inequality. The better form by far where eps times the distance
  between records is not small; but no weights need exist that make the rows sum to one.
- half: g_ik = exp(-eps d_ik / 2) / sum_l exp(-eps d_il / 2), the exponential mechanism. With weights 1 it is a
  mechanism already, so the program always has a solution. But for STEEPEST
  its optimum is never worse than the exponential mechanism; what is released never is, for that is offered too.

Weighted sums of forms keep the pairs too, so both are offered at once. Two tied entries of a column need no row
then, and a free entry needs two: all its tied neighbours together bound it from above and from below.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from attrs import frozen

from privopt import dsl
from privopt.arrays import Floats, Ints, slices
from privopt.errors import Fault, InputError, SolverError
from privopt.execution.clock import check
from privopt.interfaces import SolveContext
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.space.pairs import consistent

__all__ = [
    "FORMS",
    "TiedForm",
    "const_opt_bytes",
    "const_opt_model",
    "solve_const_opt",
    "tied_form",
]


FORMS = ("full", "half")
_BLOCK = 1 << 22
STEEPEST = math.log(1e9)
"""Exponent at which the factor of a tied weight in a row from above ends: the row is tightened, by mass of 1e-9."""
NEGLIGIBLE_MASS = 2e-9
"""Tied mass up to this is omitted from rows' sums: solvers take it for 0 next to 1, and repair restores the sums."""


@frozen(kw_only=True, eq=False)
class TiedForm:
    """The arrays of a const-opt model. N records, K outputs, F forms.

    Attributes:
        free: (N, K) entries that are variables.
        exponents: (F, N, K) log g_fik, shifted for each form and output so that the greatest tied one is 0: a
            weight is the greatest tied probability that it makes.
        above: (F, N, K) a free entry is at most sum_f exp(above) y_f; inf where no tied record is near.
        below: (F, N, K) a free entry is at least sum_f exp(below) y_f; -inf where no tied record is near.
        rows: (R, 3) records i, j and output k, both entries free: z_ik <= exp(eps d_ij) z_jk.
    """

    free: npt.NDArray[np.bool_]
    exponents: Floats
    upper_exponents: Floats
    lower_exponents: Floats
    rows: Ints

    @property
    def forms(self) -> Floats:
        """(F, N, K) g_fik, 0 where the entry is free."""
        return np.exp(np.where(self.free, -np.inf, self.exponents))

    def matrix(self, z: Floats, weights: Floats) -> Floats:
        """Return the mechanism (N, K) from free entries z (N, K) and weights (F, K)."""
        tied: Floats = np.einsum("fk,fik->ik", weights, self.forms)
        return np.where(self.free, np.maximum(z, 0.0), tied)


def tied_form(distances: Floats, epsilon: float, radius: float, pairs: Ints, pair_distances: Floats) -> TiedForm:
    """Return the free variables of const-opt, how the others depend on them, and the remaining rows.

    Args:
        distances: (N, K) from records to outputs; where they break the triangle inequality with a pair, the
            greatest smaller ones that keep it make the forms (shortest paths over the pairs).
        epsilon: per unit of distance.
        radius: entries at a distance of at most this are free (`<=` on the doubles).
        pairs, pair_distances: (P, 2), (P,) required pairs, or as many of them as imply the others.

    Raises:
        InputError: a record that reaches no output.
    """
    d = np.asarray(distances, dtype=np.float64)
    lost = np.flatnonzero(np.isinf(d).all(axis=1))
    if lost.size:
        faults = [Fault("distance", f"row {r}", "no output within reach", "at least one") for r in lost[:20].tolist()]
        raise InputError(faults)
    free = d <= radius
    exponents = _form_exponents(consistent(d, pairs, pair_distances), epsilon)
    max_exponents = np.where(free, -np.inf, exponents).max(axis=1, keepdims=True)
    exponents = exponents - np.where(np.isfinite(max_exponents), max_exponents, 0.0)
    upper_exponents, lower_exponents = np.full(exponents.shape, np.inf), np.full(exponents.shape, -np.inf)
    row_blocks = []
    for part in slices(len(pairs), d.shape[1], _BLOCK):
        for i, j in (pairs[part].T, pairs[part, ::-1].T):
            budget = epsilon * pair_distances[part]
            row, k = np.nonzero(free[i] & free[j])
            row_blocks.append(np.column_stack([i[row], j[row], k]))
            row, k = np.nonzero(free[i] & ~free[j])
            for f in range(len(exponents)):
                reach = exponents[f, j[row], k]
                np.minimum.at(upper_exponents[f], (i[row], k), budget[row] + reach)
                np.maximum.at(lower_exponents[f], (i[row], k), reach - budget[row])
    rows = np.concatenate(row_blocks) if row_blocks else np.zeros((0, 3))
    return TiedForm(
        free=free,
        exponents=exponents,
        upper_exponents=upper_exponents,
        lower_exponents=lower_exponents,
        rows=rows.astype(np.int64),
    )


def const_opt_model(form: TiedForm, data: MetricData) -> dsl.Model:
    """Return the program in the modelling language, over `privopt_metric_dp.problem.data.MetricData`."""
    from privopt.dsl import Eq, Index, IndexSet, Le, Model, exp, total

    m = Model("const-opt")
    X, Y, F = IndexSet("X", data.records.ids), IndexSet("Y", data.outputs.ids), IndexSet("F", FORMS)
    i, j, k, f = Index("i", X), Index("j", X), Index("k", Y), Index("f", F)
    z = m.variable("z", X, Y, lower=0, upper=np.where(form.free, 1.0, 0.0))
    tied = (~form.free).any(axis=0)
    y = m.variable("y", F, Y, lower=0, upper=np.where(tied, 1.0, 0.0))
    forms = form.forms
    c, g = m.param("c", data.weighted), m.param("g", np.where(forms > NEGLIGIBLE_MASS, forms, 0.0))
    w = m.param("w", np.einsum("ik,fik->fk", data.weighted, forms))
    m.minimize(total(c[i, k] * z[i, k], over=(i, k)) + total(w[f, k] * y[f, k], over=(f, k)))
    m.require("mass", Eq(total(z[i, k], over=k) + total(g[f, i, k] * y[f, k], over=(f, k)), 1), forall=i)
    d = m.param("d", data.metric.between)
    if len(form.rows):
        row = Le(z[i, k], exp(float(data.epsilon) * d[i, j]) * z[j, k])
        m.require("geo-ind", row, forall=(i, j, k), where=form.rows)
    bound = np.argwhere(np.isfinite(form.upper_exponents[0]))
    if len(bound):
        upper_factors = m.param(
            "up", np.where(np.isfinite(form.upper_exponents), np.exp(np.minimum(form.upper_exponents, STEEPEST)), 0.0)
        )
        lower_factors = m.param("down", np.exp(form.lower_exponents))
        m.require("above", Le(z[i, k], total(upper_factors[f, i, k] * y[f, k], over=f)), forall=(i, k), where=bound)
        m.require("below", Le(total(lower_factors[f, i, k] * y[f, k], over=f), z[i, k]), forall=(i, k), where=bound)
    return m


def const_opt_bytes(data: MetricData, radius: float) -> float:
    """Estimate the bytes that the program takes, its solver's copy in another process included."""
    from privopt_metric_dp.mechanisms.optimal_lp import BYTES_A_NUMBER

    near_count = float((data.to_outputs <= radius).mean()) * data.cost.size
    return BYTES_A_NUMBER * (4.0 * len(data.standing[0]) * near_count / len(data.records) + 8.0 * data.cost.size)


def solve_const_opt(data: MetricData, radius: float, context: SolveContext) -> Matrix:
    """Solve const-opt's program by CBC or HiGHS.

    Raises:
        OutOfTime: the time limit came before anything feasible.
        SolverError: the solver died or lied.
    """
    from privopt_metric_dp.mechanisms.optimal_lp import by_any_solver

    form = tied_form(data.to_outputs, float(data.epsilon), radius, *data.needed)

    def solve(how: SolveContext) -> Matrix:
        check("the program was made")
        model = const_opt_model(form, data)
        check("the program was solved")
        how.report(f"{int(form.free.sum()):,} of {form.free.size:,} entries free, {how.solver}")
        solution = model.solve(how.solver, gap=how.gap)
        return Matrix(
            z=form.matrix(solution.value("z"), solution.value("y")),
            solver={"name": how.solver, "version": solution.solver, "iterations": solution.iterations},
            details={
                "free_entries": int(form.free.sum()),
                "rows": solution.form.shape[0],
                "columns": solution.form.shape[1],
                "lp": {"value": solution.objective},
            },
            stopped=solution.status != "optimal",
        )

    try:
        return by_any_solver(solve, context)
    except SolverError as error:
        raise SolverError(f"{error}; try the mechanism optimal-lp") from error


def _form_exponents(d: Floats, epsilon: float) -> Floats:
    full = -epsilon * d
    half = 0.5 * full
    max_half = half.max(axis=1, keepdims=True)
    normalised = half - max_half - np.log(np.exp(half - max_half).sum(axis=1, keepdims=True))
    return np.stack([full, normalised])
