"""The starting points of a Benders decomposition, and their check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.dsl.form import StandardForm
from privopt.errors import UsageError

FEASIBILITY_TOLERANCE: Final = 1e-6
"""A start may miss rows by this, relative."""


@frozen(kw_only=True, eq=False)
class Start:
    """A point and multipliers to start with, or to add during the rounds.

    Attributes:
        x: (n,) a feasible point of the whole form, or None.
        multipliers: (m,) vectors of multipliers of the whole form's rows (signs as of ``Solution.duals``); each gives a
            bound and one cut a block, whatever they are.
    """

    x: Floats | None = None
    multipliers: Sequence[Floats] = ()


def check_start(form: StandardForm, start: Floats) -> Floats:
    """Clip a start to its bounds, and check its rows.

    Raises:
        UsageError: It misses a row by more than the tolerance.
    """
    start = np.clip(np.asarray(start, dtype=np.float64), form.col_lower, form.col_upper)
    activity, size = form.A @ start, abs(form.A) @ np.abs(start)
    miss = np.maximum(form.row_lower - activity, activity - form.row_upper)
    if (miss > FEASIBILITY_TOLERANCE * (1.0 + size)).any():
        row = int(np.argmax(miss / (1.0 + size)))
        raise UsageError(f"the start misses {form.row_name(row)} by {miss[row]:.3g}")
    return start
