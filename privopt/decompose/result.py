"""What a decomposition begins with and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.dsl.form import FloatArray, StandardForm
from privopt.errors import UsageError

__all__ = ["BendersResult", "Improvement", "Start", "inside"]

FEASIBLE: Final = 1e-6
"""A start may miss rows by this, relative."""


@frozen(kw_only=True, eq=False)
class Start:
    """Where to begin.

    Attributes:
        x: (n,) a feasible point of the whole form, or None.
        multipliers: (m,) vectors of multipliers of the whole form's rows (signs as of ``Solution.duals``); each gives a
            bound and one cut a block, whatever they are.
    """

    x: FloatArray | None = None
    multipliers: Sequence[FloatArray] = ()


@frozen(kw_only=True, eq=False)
class Improvement(Start):
    """What a hook brings in a round: the same two things."""


@frozen(kw_only=True, eq=False)
class BendersResult:
    """What the decomposition found, in the form's own sense and units.

    Attributes:
        status: "optimal" (the gap asked for is reached), "feasible" (it stalled), "stopped" (limit or interrupt).
        x: (n,) best point.
        objective: at x.
        bound: proved bound on the optimum: below it where the form minimises, above where it maximises; None where
            there is none.
        lower, upper: the two in order.
        gap: ``|objective - bound| / max(|objective|, 1e-12)``.
        duals: (m,) multipliers that prove the bound; None without one.
        rounds: master solves with a query of the blocks.
        trajectory: (seconds, lower, upper) by round; infinite where unknown.
        details: cuts, seconds in master and blocks, sizes.
    """

    status: str
    x: FloatArray
    objective: float
    bound: float | None
    duals: FloatArray | None
    rounds: int
    trajectory: tuple[tuple[float, float, float], ...]
    details: dict[str, Any]

    @property
    def lower(self) -> float:
        """The lesser of objective and bound; -inf without a bound of a minimum."""
        return min(self.objective, self.objective if self.bound is None else self.bound)

    @property
    def upper(self) -> float:
        """The greater of objective and bound."""
        return max(self.objective, self.objective if self.bound is None else self.bound)

    @property
    def gap(self) -> float | None:
        """Relative gap; None without a bound."""
        return None if self.bound is None else abs(self.objective - self.bound) / max(abs(self.objective), 1e-12)


def inside(form: StandardForm, x: FloatArray) -> FloatArray:
    """A start, put within its bounds and checked.

    Raises:
        UsageError: it is not feasible.
    """
    x = np.clip(np.asarray(x, dtype=np.float64), form.col_lower, form.col_upper)
    activity, size = form.A @ x, abs(form.A) @ np.abs(x)
    miss = np.maximum(form.row_lower - activity, activity - form.row_upper)
    if (miss > FEASIBLE * (1.0 + size)).any():
        row = int(np.argmax(miss / (1.0 + size)))
        raise UsageError(f"the start misses {form.row_name(row)} by {miss[row]:.3g}")
    return x
