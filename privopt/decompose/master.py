"""The Benders master problem, with complicating columns ``z``, one column ``w`` per block, valid rows and cuts.

The complicating columns are the |Y| columns that join the blocks. Each ``w`` is a lower estimate of its block's cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen
from scipy import sparse

from privopt.arrays import Floats, Ints
from privopt.backends import Basis, Outcome, get
from privopt.backends.highs import BEARING
from privopt.decompose.split import REDUCED_COST_TOLERANCE, Cut, Split, row_scale, sparse_rows
from privopt.dsl.duality import weak_duality
from privopt.dsl.form import StandardForm

MULTIPLIER_TOLERANCE = 1e-12
"""The largest absolute value of a multiplier at which its row counts as inactive."""

IMPLIED_TOLERANCE = 1e-6
"""The largest amount by which a valid row may be stricter than the row implied by its proof.

It is relative to 1 plus the size of the right-hand side, and allows for rounding errors in both rows.
"""


@frozen(eq=False, kw_only=True)
class ValidRows:
    """Constraints ``matrix z <= upper`` that the whole form implies for its complicating columns z.

    The whole form is the complete problem in standard form. Its complicating columns are the |Y| columns that join its
    blocks.

    Attributes:
        matrix: The coefficients of the valid rows, a CSR matrix of shape (rows, |Y|).
        upper: (rows,) The right-hand sides of the valid rows.
        proof: A CSR matrix of shape (rows, m), where m is the number of rows of the form. Row i contains the
            multipliers that combine the form's rows into the negative of valid row i. Multipliers have the signs for
            minimisation, so those of ``<=`` rows are at most 0. Bounds are computed from these multipliers and do not
            rely on the caller's claim that the rows are valid.
    """

    matrix: Any
    upper: Floats
    proof: Any

    def __len__(self) -> int:
        return len(self.upper)


@frozen(eq=False, kw_only=True)
class _Row:
    """A row appended to the master problem: either a cut, or a valid row with its proof.

    Attributes:
        cut: The cut. None for a valid row.
        places, slope: The positions of the nonzero coefficients among the complicating columns, and the values of these
            coefficients.
        upper: The right-hand side of ``slope z - w <= upper`` for an optimality cut, or of ``slope z <= upper`` for
            other rows.
        proof_rows, proof: For a valid row, the indices of the form's rows that prove it, and their multipliers. Empty
            for a cut.
    """

    cut: Cut | None = None
    places: Ints
    slope: Floats
    upper: float = 0.0
    proof_rows: Ints
    proof: Floats

    @property
    def scale(self) -> float:
        """The factor by which to multiply the row, so that large coefficients stay within the solver's range."""
        return row_scale(float(np.abs(self.slope).max(initial=0.0)))


@frozen(eq=False, kw_only=True)
class MasterAnswer:
    """The result of solving the master problem once.

    Attributes:
        outcome: The outcome of the solve. If it is not optimal, only ``outcome`` and ``seconds`` are set.
        z: (|Y|,) The values of the |Y| complicating columns, which are the columns that join the blocks.
        w: (blocks,) The master's cost estimate for each block. NaN if the block has no cut.
        bound: A proved lower bound on the whole form's (scaled) optimum, or -inf if there is none.
        duals: (m,) The multipliers of the whole form's rows that prove the bound. None if there are none.
        seconds: The time spent in the solver, in seconds.
    """

    outcome: Outcome
    z: Floats | None = None
    w: Floats | None = None
    bound: float = -np.inf
    duals: Floats | None = None
    seconds: float = 0.0


def prove_bound(split: Split, duals: Floats) -> tuple[float, Floats]:
    """Return the lower bound proved by multipliers, and the multipliers used in the proof.

    The bound excludes the objective's constant c0, and is -inf if nothing is proved. Privacy rows z_i <= exp(L) z_j
    whose exponent L is beyond the solver's range are tightened before a solve. Their multipliers are therefore inexact
    for the original form, and are omitted if omitting them gives a better bound.

    Args:
        split: The whole form, whose costs are scaled and minimised.
        duals: (m,) Multipliers of the form's rows, which need not be accurate.
    """
    form = split.form
    best_bound, best_duals = -np.inf, duals
    candidates = [duals]
    # The indices of the rows whose exponent L is reduced to log_cap for the solver.
    capped_rows = [
        b.start + np.flatnonzero(b.log_ratio > BEARING.log_cap) for b in form.families if b.log_ratio is not None
    ]
    if sum(map(len, capped_rows)):
        uncapped_duals = duals.copy()
        # Both vectors prove a bound, and there is no telling which bound is better.
        uncapped_duals[np.concatenate(capped_rows)] = 0.0
        candidates.append(uncapped_duals)
    for candidate in candidates:
        bound, valid_duals = weak_duality(
            form, form.c, candidate, split.lower, split.upper, slack=REDUCED_COST_TOLERANCE
        )
        if bound > best_bound:
            best_bound, best_duals = bound, valid_duals
    return best_bound, best_duals


def is_implied(split: Split, places: Ints, slope: Floats, upper: float, duals: Floats) -> bool:
    """Return whether ``slope z <= upper`` over the complicating columns follows from the form's rows.

    The proof combines the form's rows with the given multipliers. The combination should be ``-slope z``, but may
    deviate from it, even by nonzero coefficients for other columns, as long as the column bounds limit the effect.

    Args:
        split: The whole form.
        places: The positions of the nonzero coefficients among the complicating columns.
        slope: The nonzero coefficients.
        upper: The right-hand side.
        duals: (m,) Multipliers of the form's rows.
    """
    # The maximum of slope z is minus the minimum of -slope z, for which the multipliers prove a lower bound. `outer`
    # has the indices of the complicating columns.
    cost = np.zeros_like(split.form.c)
    np.add.at(cost, split.outer[places], -slope)
    lower_bound, _ = weak_duality(split.form, cost, duals, split.lower, split.upper, slack=REDUCED_COST_TOLERANCE)
    return -lower_bound <= upper + IMPLIED_TOLERANCE * (1.0 + abs(upper))


class Master:
    """The master problem, which is extended and solved again in every round.

    It minimises the cost of the complicating columns z, which join the blocks, plus the estimated costs w of all
    blocks. The constraints are the rows over z alone, the cuts and the valid rows.

    Attributes:
        split: The whole form and its blocks.
        solver: The name of the solver.
        rows: The appended rows, in the solver's order.
        idle: For each appended row, the number of solves since its multiplier was last nonzero.
        basis: The basis of the last optimum, or None before the first optimum.
        box: The largest absolute value allowed for complicating columns. Initially infinite.
        blocks: The number of blocks.
        _has_cut: (blocks,) Whether each block has an optimality cut.
        _engine: The solver session. Its model has the columns z, followed by w. The appended rows follow the rows over
            z alone.
    """

    def __init__(self, split: Split, solver: str) -> None:
        """Load the master, initially without cuts, into a solver session."""
        self.split, self.solver = split, solver
        self.rows: list[_Row] = []
        self.idle: list[int] = []
        self.basis: Basis | None = None
        self.box = np.inf
        self.blocks = len(split.pieces)
        self._has_cut = np.zeros(self.blocks, dtype=bool)
        self._engine = get(solver).session(self._make_form())

    @property
    def width(self) -> int:
        """The number of complicating columns."""
        return len(self.split.outer)

    @property
    def has_all_cuts(self) -> bool:
        """Whether every block has an optimality cut, without which there is no lower bound."""
        return bool(self._has_cut.all())

    def _make_form(self) -> StandardForm:
        """Return the master without cuts.

        Its columns are the complicating columns, followed by one column ``w`` per block. A column ``w`` is fixed at 0
        until its block has a cut.
        """
        # Each w has the cost 1, because the master minimises the cost of z plus the blocks' estimated costs.
        inner, m = self.split.outer_form, self.blocks
        return StandardForm(
            c=np.concatenate([inner.c, np.ones(m)]),
            A=sparse.hstack([inner.A, sparse.csr_matrix((inner.shape[0], m))], format="csr"),
            row_lower=inner.row_lower,
            row_upper=inner.row_upper,
            col_lower=np.concatenate([inner.col_lower, np.zeros(m)]),
            col_upper=np.concatenate([inner.col_upper, np.zeros(m)]),
            integrality=np.zeros(inner.shape[1] + m, dtype=np.uint8),
            families=inner.families,
        )

    def set_box(self, size: float) -> None:
        """Limit the absolute values of the complicating columns to ``size``.

        These limits exist only to keep the master bounded. Proofs of bounds do not use them, because they are not part
        of the form.
        """
        self.box = size
        inner = self.split.outer_form
        self._engine.change_column_bounds(
            np.arange(self.width), np.maximum(inner.col_lower, -size), np.minimum(inner.col_upper, size)
        )

    def add_cuts(self, cuts: Sequence[Cut]) -> None:
        """Append cuts proved by blocks.

        An optimality cut ``constant + slope z <= w`` bounds the block's cost w from below. A feasibility cut, which is
        ``constant + slope z <= 0``, excludes values z for which the block has no solution.
        """
        none = np.zeros(0, dtype=np.int64)
        self._append_rows(
            [
                _Row(
                    cut=cut, places=cut.places, slope=cut.slope, upper=-cut.constant, proof_rows=none, proof=np.zeros(0)
                )
                for cut in cuts
            ]
        )

    def add_valid(self, valid: ValidRows) -> None:
        """Append rows over the complicating columns, each with the proof that the whole form implies it."""
        matrix, proof = valid.matrix.tocsr(), valid.proof.tocsr()
        rows = []
        for r in range(len(valid)):
            # In CSR form, the entries of row r are those from indptr[r] to indptr[r + 1].
            entries = slice(matrix.indptr[r], matrix.indptr[r + 1])
            proof_entries = slice(proof.indptr[r], proof.indptr[r + 1])
            rows.append(
                _Row(
                    places=matrix.indices[entries].astype(np.int64),
                    slope=matrix.data[entries],
                    upper=float(valid.upper[r]),
                    proof_rows=proof.indices[proof_entries].astype(np.int64),
                    proof=proof.data[proof_entries],
                )
            )
        self._append_rows(rows)

    def put_valid(self, places: Ints, slope: Floats, upper: float, rows: Ints, proof: Floats) -> None:
        """Append a valid row ``slope z[places] <= upper``, given by its parts as stored in a checkpoint.

        ``rows`` are the indices of the form's rows that prove the valid row, and ``proof`` contains their multipliers.
        """
        self._append_rows([_Row(places=places, slope=slope, upper=upper, proof_rows=rows, proof=proof)])

    def _append_rows(self, rows: Sequence[_Row]) -> None:
        """Append rows to the solver's model.

        A block's column ``w`` is no longer fixed once the block has an optimality cut.
        """
        if not rows:
            return
        cut_blocks = {row.cut.block for row in rows if row.cut is not None and not row.cut.feasibility}
        # A free column w without any cut would make the master unbounded, so it is fixed until its first cut.
        opened_blocks = np.array([b for b in sorted(cut_blocks) if not self._has_cut[b]], dtype=np.int64)
        self._has_cut[opened_blocks] = True
        matrix = self._row_matrix(rows)
        low, high = np.full(len(rows), -np.inf), np.array([row.upper * row.scale for row in rows])
        if opened_blocks.size:
            infinite = np.full(len(opened_blocks), np.inf)
            self._engine.change_column_bounds(self.width + opened_blocks, -infinite, infinite)
        self._engine.add_rows(matrix, low, high)
        self.rows.extend(rows)
        self.idle.extend([0] * len(rows))

    def _row_matrix(self, rows: Sequence[_Row]) -> Any:
        """Return the given rows, each multiplied by its scale, as a matrix of shape (rows, |Y| + blocks).

        There are |Y| complicating columns, followed by one column ``w`` per block. The left-hand side of an optimality
        cut is ``slope z - w``, and that of any other row is ``slope z``.
        """
        slopes = sparse_rows(rows, self.width)  # type: ignore[arg-type]
        block_of_cut = [
            (r, row.cut.block) for r, row in enumerate(rows) if row.cut is not None and not row.cut.feasibility
        ]
        negated_w = sparse.csr_matrix(
            (-np.ones(len(block_of_cut)), ([r for r, _ in block_of_cut], [b for _, b in block_of_cut])),
            shape=(len(rows), self.blocks),
        )
        scales = sparse.diags_array([row.scale for row in rows]) if rows else sparse.identity(0)
        return (scales @ sparse.hstack([slopes, negated_w])).tocsr()

    def solve(self) -> MasterAnswer:
        """Minimise the master, and return its optimal point and the lower bound proved by its multipliers."""
        answer = self._engine.solve(basis=self.basis)
        if answer.outcome is not Outcome.OPTIMAL or answer.x is None or answer.duals is None:
            return MasterAnswer(outcome=answer.outcome, seconds=answer.seconds)
        self.basis = self._engine.basis
        inner = self.split.outer_form
        z = np.clip(answer.x[: self.width], inner.col_lower, inner.col_upper)
        w = np.where(self._has_cut, answer.x[self.width :], np.nan)
        inner_count = inner.shape[0]
        # In a minimum, multipliers of <= rows are at most 0. Negated, and converted back from the row's scale, they are
        # the weights of cuts.
        weights = -answer.duals[inner_count:] * np.array([row.scale for row in self.rows])
        is_active = np.abs(weights) > MULTIPLIER_TOLERANCE
        self.idle = [0 if active else age + 1 for active, age in zip(is_active.tolist(), self.idle, strict=True)]
        # The bound is proved from the form's own rows, so inexact multipliers can only weaken it.
        bound, duals = -np.inf, self._combine_duals(answer.duals[:inner_count], weights)
        if duals is not None:
            bound, duals = prove_bound(self.split, duals)
        return MasterAnswer(outcome=answer.outcome, z=z, w=w, bound=bound, duals=duals, seconds=answer.seconds)

    def _combine_duals(self, outer: Floats, weights: Floats) -> Floats | None:
        """Convert the master's multipliers to multipliers of the whole form's rows, of shape (m,).

        Each cut is a combination of rows of one block. If the weights of each block's optimality cuts sum to 1, the
        weighted sum of the multipliers of its cuts gives the multipliers of the block's rows. If the master's
        multipliers prove no bound, the result is None.

        Args:
            outer: The multipliers of the rows that contain only complicating columns.
            weights: (appended rows,) The weights of the appended rows, which are positive for active rows.
        """
        if not self.has_all_cuts:
            return None
        weight_sums = np.zeros(self.blocks)
        for row, weight in zip(self.rows, weights.tolist(), strict=True):
            if row.cut is not None and not row.cut.feasibility and weight > 0:
                # Up to rounding, the weights of a block's optimality cuts add up to 1, which is the dual constraint of
                # its free column w.
                weight_sums[row.cut.block] += weight
        # If they do not, the solver's multipliers are too inaccurate to prove a bound.
        if (np.abs(weight_sums - 1) > 1e-6).any():
            return None
        duals = np.zeros(self.split.form.shape[0])
        # `outer_rows` are the form's rows that contain only complicating columns.
        duals[self.split.outer_rows] = outer
        for row, weight in zip(self.rows, weights.tolist(), strict=True):
            if weight <= 0:
                continue
            if row.cut is None:
                duals[row.proof_rows] += weight * row.proof
            else:
                # The weights of a block's optimality cuts are made to sum to exactly 1. Feasibility cuts may have any
                # weight.
                normalized_weight = weight if row.cut.feasibility else weight / weight_sums[row.cut.block]
                duals[row.cut.rows] += normalized_weight * row.cut.duals
        return duals

    def drop_idle_rows(self, age: int, min_rows: int) -> int:
        """Drop appended rows whose multiplier was 0 in each of the last ``age`` solves, keeping at least ``min_rows``.

        Nothing is dropped before the first optimum is known, and a row is only dropped if the basis remains valid
        without it.

        Returns:
            The number of dropped rows.
        """
        removable = [r for r, idle in enumerate(self.idle) if idle >= age]
        # Rows are in the order in which they were added, so the oldest ones go first.
        removable = removable[: max(0, len(self.rows) - min_rows)]
        if not removable or self.basis is None:
            return 0
        inner_count = self.split.outer_form.shape[0]
        places = np.array(removable) + inner_count
        # The basis only remains valid without a row if the row's slack is basic (status 1).
        is_basic = self.basis.rows[places] == 1
        removable, places = [r for r, b in zip(removable, is_basic.tolist(), strict=True) if b], places[is_basic]
        self._engine.delete_rows(places)
        self.basis = Basis(columns=self.basis.columns, rows=np.delete(self.basis.rows, places))
        removed = set(removable)
        self.rows = [row for r, row in enumerate(self.rows) if r not in removed]
        self.idle = [idle for r, idle in enumerate(self.idle) if r not in removed]
        return len(removable)
