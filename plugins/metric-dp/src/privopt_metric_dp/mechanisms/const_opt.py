"""Const-opt, a linear program that optimises the entries near each record and ties all others (Imola et al. 2022).

An entry z_ik is a free variable if output k is within the radius of record i. All other entries are tied: they are
weighted sums z_ik = sum_f y_fk g_fik of forms f, with weights y_fk >= 0 that are the same for all records. Let d_ik be
the distance from record i to output k. There are two forms, both of which satisfy the privacy constraint of every
required pair for every output:

- full: g_ik = exp(-eps d_ik), which is private by the triangle inequality. This form is much better than the other,
  unless eps times the distances between records is small. However, there may be no weights for which all rows sum to
  one.
- half: g_ik = exp(-eps d_ik / 2) / sum_l exp(-eps d_il / 2), the exponential mechanism. With weights of 1, this form
  alone is a mechanism, so the program is always feasible. Its optimum is at least as good as the exponential mechanism,
  except where STEEPEST caps a bound. The release is always at least as good, because the exponential mechanism is
  offered too.

Weighted sums of forms also satisfy the constraints, so the program uses both forms at once. No privacy constraint is
needed between two tied entries. A free entry needs only two constraints for all its tied neighbours together: an upper
and a lower bound.
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
"""The number of pairs times the number of outputs for which privacy constraints are built at a time."""
STEEPEST = math.log(1e9)
"""The largest exponent of a factor in the upper bound on a free entry.

Capping larger factors at 1e9 tightens the bound only if the weight is below 1e-9."""
NEGLIGIBLE_MASS = 2e-9
"""The largest coefficient at which a tied entry is left out of the constraint on the row sum.

Solvers treat coefficients this small as 0, and the repair restores the row sums."""


@frozen(kw_only=True, eq=False)
class TiedForm:
    """The arrays of a const-opt model with N records, K outputs and F forms.

    Entries for outputs near the record are free variables. All other entries are tied: each is a weighted sum of fixed
    forms g_fik, with one weight y_fk per form and output.

    Attributes:
        free: Boolean array of shape (N, K) that is True for free entries and False for tied ones.
        exponents: Array of shape (F, N, K) with log g_fik. For each form and output, the values are shifted so that the
            largest one among the tied entries is 0. Each weight is therefore the largest contribution of its form to
            any tied entry for that output.
        upper_exponents: Array u of shape (F, N, K) that determines upper bounds: the free entry z_ik is at most sum_f
            exp(u_fik) y_fk. The exponents are inf if no required pair connects record i to a record whose entry for
            output k is tied.
        lower_exponents: Array l of shape (F, N, K) that determines lower bounds: the free entry z_ik is at least sum_f
            exp(l_fik) y_fk. The exponents are -inf wherever the upper ones are inf.
        rows: Array of shape (R, 3) with the indices i, j and k of the constraints z_ik <= exp(eps d_ij) z_jk in which
            both entries are free.
    """

    free: npt.NDArray[np.bool_]
    exponents: Floats
    upper_exponents: Floats
    lower_exponents: Floats
    rows: Ints

    @property
    def forms(self) -> Floats:
        """The forms g_fik as an array of shape (F, N, K), scaled as in ``exponents`` and set to 0 for free entries."""
        return np.exp(np.where(self.free, -np.inf, self.exponents))

    def matrix(self, z: Floats, weights: Floats) -> Floats:
        """Return the obfuscation matrix for given free entries and form weights.

        Args:
            z: Array of shape (N, K) with the free entries. Other entries are ignored.
            weights: Array of shape (F, K) with the weight of each form for each output.

        Returns:
            Array of shape (N, K) with probabilities.
        """
        tied: Floats = np.einsum("fk,fik->ik", weights, self.forms)
        return np.where(self.free, np.maximum(z, 0.0), tied)


def tied_form(distances: Floats, epsilon: float, radius: float, pairs: Ints, pair_distances: Floats) -> TiedForm:
    """Determine the free entries, the forms and the privacy constraints of a const-opt model.

    Args:
        distances: Array of shape (N, K) with the distances from records to outputs. If they violate the triangle
            inequality, the forms use shortest-path lengths along the pairs instead. These are the largest distances
            that satisfy the inequality and do not exceed the given ones.
        epsilon: Epsilon per unit of distance.
        radius: The largest distance from a record to an output at which the entry is free. Distances are compared with
            the radius in floating point.
        pairs: Array of shape (P, 2) with the pairs of records covered by the guarantee, or with a subset that implies
            the rest.
        pair_distances: Array of shape (P,) with the distance between the records of each pair.

    Raises:
        InputError: A record has no output at a finite distance.
    """
    d = np.asarray(distances, dtype=np.float64)
    isolated = np.flatnonzero(np.isinf(d).all(axis=1))
    if isolated.size:
        raise InputError(
            [Fault("distance", f"row {r}", "no output within reach", "at least one") for r in isolated[:20].tolist()]
        )
    free = d <= radius
    exponents = _form_exponents(consistent(d, pairs, pair_distances), epsilon)
    # For each form and output, the largest tied entry is scaled to 1, so that weights are of the same magnitude as
    # probabilities. Otherwise they could be as large as exp(eps d), and solvers would lose digits elsewhere.
    max_exponents = np.where(free, -np.inf, exponents).max(axis=1, keepdims=True)
    exponents = exponents - np.where(np.isfinite(max_exponents), max_exponents, 0.0)
    upper_exponents, lower_exponents = np.full(exponents.shape, np.inf), np.full(exponents.shape, -np.inf)
    row_blocks = []
    for part in slices(len(pairs), d.shape[1], _BLOCK):
        # Each pair gives two constraints, one per direction.
        for i, j in (pairs[part].T, pairs[part, ::-1].T):
            # The largest log ratio that the guarantee allows between the two records' entries.
            budget = epsilon * pair_distances[part]
            row, k = np.nonzero(free[i] & free[j])
            row_blocks.append(np.column_stack([i[row], j[row], k]))
            row, k = np.nonzero(free[i] & ~free[j])
            for f in range(len(exponents)):
                # z_ik is free and z_jk is tied, so exp(-budget) z_jk <= z_ik <= exp(budget) z_jk bounds the free entry
                # by the weights. For each form, the smallest upper factor and the largest lower factor imply the bounds
                # from all other tied neighbours.
                tied = exponents[f, j[row], k]
                np.minimum.at(upper_exponents[f], (i[row], k), budget[row] + tied)
                np.maximum.at(lower_exponents[f], (i[row], k), tied - budget[row])
    rows = np.concatenate(row_blocks) if row_blocks else np.zeros((0, 3))
    return TiedForm(
        free=free,
        exponents=exponents,
        upper_exponents=upper_exponents,
        lower_exponents=lower_exponents,
        rows=rows.astype(np.int64),
    )


def const_opt_model(form: TiedForm, data: MetricData) -> dsl.Model:
    """Build the const-opt linear program as a model of :mod:`privopt.dsl`.

    Its variables are the free entries z, of shape (N, K), and the weights y, of shape (F, K), which determine all other
    entries.

    Args:
        form: The arrays of the model.
        data: The data of the problem.
    """
    from privopt.dsl import Eq, Index, IndexSet, Le, Model, exp, total

    m = Model("const-opt")
    X, Y, F = IndexSet("X", data.records.ids), IndexSet("Y", data.outputs.ids), IndexSet("F", FORMS)
    i, j, k, f = Index("i", X), Index("j", X), Index("k", Y), Index("f", F)
    z = m.variable("z", X, Y, lower=0, upper=np.where(form.free, 1.0, 0.0))
    # A weight is fixed at 0 if all entries for its output are free.
    tied = (~form.free).any(axis=0)
    y = m.variable("y", F, Y, lower=0, upper=np.where(tied, 1.0, 0.0))
    forms = form.forms
    c, g = m.param("c", data.weighted), m.param("g", np.where(forms > NEGLIGIBLE_MASS, forms, 0.0))
    # The loss includes all tied entries. Only the row sums omit negligible ones.
    w = m.param("w", np.einsum("ik,fik->fk", data.weighted, forms))
    m.minimize(total(c[i, k] * z[i, k], over=(i, k)) + total(w[f, k] * y[f, k], over=(f, k)))
    m.require("mass", Eq(total(z[i, k], over=k) + total(g[f, i, k] * y[f, k], over=(f, k)), 1), forall=i)
    d = m.param("d", data.metric.between)
    if len(form.rows):
        row = Le(z[i, k], exp(float(data.epsilon) * d[i, j]) * z[j, k])
        m.require("geo-ind", row, forall=(i, j, k), where=form.rows)
    # The free entries that have a tied neighbour, which are the same for every form.
    bound = np.argwhere(np.isfinite(form.upper_exponents[0]))
    if len(bound):
        # Lowering a factor only tightens the upper bound, so the cap at STEEPEST may increase the loss but never
        # weakens privacy.
        upper_factors = m.param(
            "up", np.where(np.isfinite(form.upper_exponents), np.exp(np.minimum(form.upper_exponents, STEEPEST)), 0.0)
        )
        lower_factors = m.param("down", np.exp(form.lower_exponents))
        m.require("above", Le(z[i, k], total(upper_factors[f, i, k] * y[f, k], over=f)), forall=(i, k), where=bound)
        m.require("below", Le(total(lower_factors[f, i, k] * y[f, k], over=f), z[i, k]), forall=(i, k), where=bound)
    return m


def const_opt_bytes(data: MetricData, radius: float) -> float:
    """Estimate how many bytes of memory the const-opt LP needs, including the copy in the solver's process.

    Args:
        data: The data of the problem.
        radius: The largest distance from a record to an output at which the entry is a free variable.
    """
    from privopt_metric_dp.mechanisms.optimal_lp import BYTES_A_NUMBER

    # Each pair has two rows with two coefficients each for every output at which both of its entries are free. The mean
    # number of free entries in a row serves as an estimate of how many such outputs there are. The rest of the memory
    # grows with the matrix.
    near_count = np.count_nonzero(data.to_outputs <= radius)
    # A free entry has at most eight further coefficients: its cost, one in the sum of its row, and three each in its
    # lower and upper bound.
    return BYTES_A_NUMBER * (4.0 * len(data.standing[0]) * near_count / len(data.records) + 8.0 * data.cost.size)


def solve_const_opt(data: MetricData, radius: float, context: SolveContext) -> Matrix:
    """Solve the const-opt linear program with CBC or HiGHS.

    Args:
        data: The data of the problem.
        radius: The largest distance from a record to an output at which the entry is a free variable.
        context: The solver, gap and limits of the run.

    Raises:
        OutOfTime: The time limit expired before a feasible solution was found.
        SolverError: The solver crashed, or its solution violates the constraints.
    """
    from privopt_metric_dp.mechanisms.optimal_lp import by_any_solver

    # `needed` contains a subset of the required pairs that implies all others, with their distances.
    form = tied_form(data.to_outputs, float(data.epsilon), radius, *data.needed)

    def solve(how: SolveContext) -> Matrix:
        """Build the linear program and solve it with the solver named by ``how``."""
        # check() raises OutOfTime if the time limit has expired. The message says which step was not reached.
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
    """Return the logarithms of the forms "full" and "half" as an array of shape (2, N, K).

    Entries that are not optimised individually are weighted sums of these two forms. The form "full" is exp(-epsilon
    d). The form "half" is exp(-epsilon d / 2), divided by the sum of its row.

    Args:
        d: Array of shape (N, K) with the distances from records to outputs.
        epsilon: Epsilon per unit of distance.
    """
    full = -epsilon * d
    half = 0.5 * full
    max_half = half.max(axis=1, keepdims=True)
    # The largest exponent is factored out of the sum, which would otherwise underflow to 0 if eps d is large.
    normalised = half - max_half - np.log(np.exp(half - max_half).sum(axis=1, keepdims=True))
    return np.stack([full, normalised])
