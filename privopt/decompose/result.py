"""Starting points for a Benders decomposition, and their validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.dsl.form import StandardForm
from privopt.errors import UsageError

FEASIBILITY_TOLERANCE: Final = 1e-6
"""The largest row violation accepted in a starting point.

It is relative to 1 plus the sum of the absolute values of the row's terms.
"""


@frozen(kw_only=True, eq=False)
class Start:
    """A point and multipliers, given at the start of a run or supplied by a hook during the rounds.

    Attributes:
        x: A feasible point of the whole form, as an array of shape (n,), or None.
        multipliers: Vectors of multipliers of the whole form's rows, each of shape (m,), with the signs of
            ``Solution.duals``. Each vector yields a bound and at most one cut per block, and need not be optimal or
            exact.
    """

    x: Floats | None = None
    multipliers: Sequence[Floats] = ()


def check_start(form: StandardForm, start: Floats) -> Floats:
    """Clip a starting point to the form's column bounds, check that it satisfies all rows, and return it.

    Args:
        form: The form that the point must satisfy.
        start: (n,) The point.

    Raises:
        UsageError: The clipped point violates a row by more than :data:`FEASIBILITY_TOLERANCE` allows.
    """
    start = np.clip(np.asarray(start, dtype=np.float64), form.col_lower, form.col_upper)
    # A violation is compared with the sum of the terms' absolute values, to which their rounding errors are
    # proportional.
    activity, size = form.A @ start, abs(form.A) @ np.abs(start)
    miss = np.maximum(form.row_lower - activity, activity - form.row_upper)
    if (miss > FEASIBILITY_TOLERANCE * (1.0 + size)).any():
        row = int(np.argmax(miss / (1.0 + size)))
        raise UsageError(f"the start misses {form.row_name(row)} by {miss[row]:.3g}")
    return start
