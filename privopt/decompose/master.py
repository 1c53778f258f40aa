"""The Benders master problem: complicating columns ``z``, one column ``w`` for each block, valid rows, cuts."""

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
"""Multipliers up to this count as none."""

IMPLIED_TOLERANCE = 1e-6
"""A valid row may promise more than its proof by this, relative: it is added in doubles."""


@frozen(eq=False, kw_only=True)
class ValidRows:
    """Rows over the complicating columns that the whole form implies: ``matrix z <= upper``.

    Attributes:
        matrix: CSR, (rows, |Y|).
        upper: shape (rows,).
        proof: CSR, (rows, m): the combination of the form's rows (multipliers of a minimum's signs, so none above 0
            on ``<=`` rows) that, negated, gives each row. It keeps the bounds honest: without it they would rest on
            the caller's word.
    """

    matrix: Any
    upper: Floats
    proof: Any

    def __len__(self) -> int:
        return len(self.upper)


@frozen(eq=False, kw_only=True)
class _Row:
    """One appended row: a cut, or a valid row with its proof."""

    cut: Cut | None = None
    places: Ints
    slope: Floats
    upper: float = 0.0
    proof_rows: Ints
    proof: Floats

    @property
    def scale(self) -> float:
        """The factor by which the solver's row is multiplied."""
        return row_scale(float(np.abs(self.slope).max(initial=0.0)))


@frozen(eq=False, kw_only=True)
class MasterAnswer:
    """The answer of the master.

    Attributes:
        outcome: of the solve.
        z: complicating columns; w: one a block (NaN if no cut speaks of it).
        bound: proved lower bound on the whole form's (scaled) optimum; -inf if there is none.
        duals: (m,) multipliers of the whole form's rows that prove it.
        active: which appended rows have a multiplier.
    """

    outcome: Outcome
    z: Floats | None = None
    w: Floats | None = None
    bound: float = -np.inf
    duals: Floats | None = None
    active: Any = None
    seconds: float = 0.0


def prove_bound(split: Split, duals: Floats) -> tuple[float, Floats]:
    """Return the lower bound that multipliers prove, and the multipliers that prove it.

    The bound is without the constant c0, and -inf if nothing is proved. Privacy rows whose exponents exceed what
    solvers can represent were tightened when the multipliers were computed. Multipliers of such rows are omitted if
    that gives a better bound.
    """
    form = split.form
    best_bound, best_duals = -np.inf, duals
    candidates = [duals]
    capped_rows = [
        b.start + np.flatnonzero(b.log_ratio > BEARING.log_cap) for b in form.families if b.log_ratio is not None
    ]
    if sum(map(len, capped_rows)):
        uncapped_duals = duals.copy()
        # Both vectors prove a bound; which one proves more is not known beforehand.
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

    The multipliers are the proof: what their combination of rows leaves of other columns, or of the slope, is bounded
    by the columns' bounds.
    """
    cost = np.zeros_like(split.form.c)
    np.add.at(cost, split.outer[places], -slope)
    lower_bound, _ = weak_duality(split.form, cost, duals, split.lower, split.upper, slack=REDUCED_COST_TOLERANCE)
    return -lower_bound <= upper + IMPLIED_TOLERANCE * (1.0 + abs(upper))


class Master:
    """The master problem, which is changed and solved again."""

    def __init__(self, split: Split, solver: str) -> None:
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
        """Return the master without cuts. Columns ``w`` are fixed at 0 until their block has a cut."""
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
        """Bound columns without bounds by ``size``. A bound that uses the box is not a bound of the form."""
        self.box = size
        inner = self.split.outer_form
        self._engine.change_column_bounds(
            np.arange(self.width), np.maximum(inner.col_lower, -size), np.minimum(inner.col_upper, size)
        )

    def add_cuts(self, cuts: Sequence[Cut]) -> None:
        """Append cuts."""
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
        """Append rows that the form implies."""
        matrix, proof = valid.matrix.tocsr(), valid.proof.tocsr()
        rows = []
        for r in range(len(valid)):
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
        """Append one valid row from its parts."""
        self._append_rows([_Row(places=places, slope=slope, upper=upper, proof_rows=rows, proof=proof)])

    def _append_rows(self, rows: Sequence[_Row]) -> None:
        """Append rows, and free the column ``w`` of each block that gets its first cut."""
        if not rows:
            return
        cut_blocks = {row.cut.block for row in rows if row.cut is not None and not row.cut.feasibility}
        # A column w without any cut would make the master unbounded, so that it is fixed until then.
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
        """Rows as ``slope z - w <= upper`` (cuts) and ``slope z <= upper`` (valid rows), each times its scale."""
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
        """Minimise. The bound is evaluated from the multipliers on the whole form, not taken from the solver."""
        answer = self._engine.solve(basis=self.basis)
        if answer.outcome is not Outcome.OPTIMAL or answer.x is None or answer.duals is None:
            return MasterAnswer(outcome=answer.outcome, seconds=answer.seconds)
        self.basis = self._engine.basis
        inner = self.split.outer_form
        z = np.clip(answer.x[: self.width], inner.col_lower, inner.col_upper)
        w = np.where(self._has_cut, answer.x[self.width :], np.nan)
        inner_count = inner.shape[0]
        weights = -answer.duals[inner_count:] * np.array([row.scale for row in self.rows])
        active = np.abs(weights) > MULTIPLIER_TOLERANCE
        self.idle = [0 if on else age + 1 for on, age in zip(active.tolist(), self.idle, strict=True)]
        bound, duals = -np.inf, self._combine_duals(answer.duals[:inner_count], weights)
        if duals is not None:
            bound, duals = prove_bound(self.split, duals)
        return MasterAnswer(
            outcome=answer.outcome, z=z, w=w, bound=bound, duals=duals, active=active, seconds=answer.seconds
        )

    def _combine_duals(self, outer: Floats, weights: Floats) -> Floats | None:
        """Return multipliers of the whole form.

        A cut is a combination of block rows, so that cuts weighted to 1 for each block add up to multipliers of all
        rows.
        """
        if not self.has_all_cuts:
            return None
        weight_sums = np.zeros(self.blocks)
        for row, weight in zip(self.rows, weights.tolist(), strict=True):
            if row.cut is not None and not row.cut.feasibility and weight > 0:
                # Rounding aside, the weights of a block's cuts add up to 1: the dual constraint of its free column w.
                weight_sums[row.cut.block] += weight
        # The solver's multipliers are too far from a combination of cuts to prove a bound.
        if (np.abs(weight_sums - 1) > 1e-6).any():
            return None
        duals = np.zeros(self.split.form.shape[0])
        duals[self.split.outer_rows] = outer
        for row, weight in zip(self.rows, weights.tolist(), strict=True):
            if weight <= 0:
                continue
            if row.cut is None:
                duals[row.proof_rows] += weight * row.proof
            else:
                normalized_weight = weight if row.cut.feasibility else weight / weight_sums[row.cut.block]
                duals[row.cut.rows] += normalized_weight * row.cut.duals
        return duals

    def drop_idle_rows(self, age: int, min_rows: int) -> int:
        """Drop rows that had no multiplier in the last ``age`` solves, while more than ``min_rows`` remain.

        Returns:
            The number of dropped rows.
        """
        removable = [r for r, idle in enumerate(self.idle) if idle >= age]
        removable = removable[: max(0, len(self.rows) - min_rows)]
        if not removable or self.basis is None:
            return 0
        inner_count = self.split.outer_form.shape[0]
        places = np.array(removable) + inner_count
        is_basic = self.basis.rows[places] == 1  # a basis loses a row only where its slack is basic
        removable, places = [r for r, b in zip(removable, is_basic.tolist(), strict=True) if b], places[is_basic]
        self._engine.delete_rows(places)
        self.basis = Basis(columns=self.basis.columns, rows=np.delete(self.basis.rows, places))
        removed = set(removable)
        self.rows = [row for r, row in enumerate(self.rows) if r not in removed]
        self.idle = [idle for r, idle in enumerate(self.idle) if r not in removed]
        return len(removable)
