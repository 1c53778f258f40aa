"""Decision variables as sympy atoms, with their columns and bounds."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import sympy
from numpy.typing import ArrayLike

from privopt.arrays import Floats, Ints, read_only
from privopt.dsl.labelled import as_doubles, match_labels
from privopt.dsl.sets import IndexSet
from privopt.dsl.symbols import Indexable
from privopt.errors import ModelError

Kind = Literal["continuous", "integer", "binary", "semicontinuous"]


class Variable(Indexable):
    """A decision variable over the product of its sets, created by ``Model.variable``.

    Attributes:
        sets: The sets that the indices run over. A scalar has no sets, and is used in formulas without indices.
        start: The index of the variable's first column in the model.
        owner: The model that the variable belongs to. Other models reject the variable, because its column indices
            would refer to their own variables.
    """

    __slots__ = ("_kind", "_lower", "_upper", "owner", "start")

    owner: Any
    start: int
    _kind: Kind
    _lower: Floats
    _upper: Floats

    def __new__(cls, name: str, sets: tuple[IndexSet, ...], kind: Kind = "continuous") -> Variable:
        """Create a variable called ``name`` without bounds."""
        variable: Variable = sympy.Dummy.__new__(cls, name, real=True)
        variable.sets, variable._kind = sets, kind
        variable.lower, variable.upper = None, None
        return variable

    @property
    def kind(self) -> Kind:
        """The kind: "continuous", "integer", "binary" or "semicontinuous".

        It cannot be changed, because the bounds depend on it.
        """
        return self._kind

    @property
    def integer(self) -> bool:
        """Whether the variable takes only integer values."""
        return self.kind in ("integer", "binary")

    @property
    def lower(self) -> Floats:
        """The lower bounds of the columns, flattened in row-major order to an array of shape (size,).

        They can be set to a number, to an array that broadcasts to the shape of the variable, or to None for no bounds.
        The model uses the new bounds the next time it is solved.
        """
        return self._lower

    @lower.setter
    def lower(self, value: ArrayLike | None) -> None:
        bounds = self._broadcast_bound("lower", -np.inf if value is None else value)
        self._lower = read_only(np.maximum(bounds, 0.0) if self.kind == "binary" else bounds)

    @property
    def upper(self) -> Floats:
        """The upper bounds of the columns, as an array of shape (size,).

        They can be set in the same way as the lower bounds.
        """
        return self._upper

    @upper.setter
    def upper(self, value: ArrayLike | None) -> None:
        bounds = self._broadcast_bound("upper", np.inf if value is None else value)
        self._upper = read_only(np.minimum(bounds, 1.0) if self.kind == "binary" else bounds)

    def _broadcast_bound(self, bound_name: str, value: ArrayLike) -> Floats:
        """Broadcast bounds to an array of shape (size,), one number per column. Error messages mention ``bound_name``.

        Raises:
            ModelError: The value is not numeric, has the wrong shape, or contains a NaN.
        """
        value = match_labels(value, self.sets, f"variable {self.name}: {bound_name}")
        try:
            numbers = as_doubles(value)
        except (TypeError, ValueError):
            raise ModelError(f"variable {self.name}: {bound_name} must be numbers or None") from None
        try:
            bounds = np.broadcast_to(numbers, self.shape).ravel().copy()
        except ValueError:
            shapes = f"shape {self.shape}, got {np.shape(value)}"
            raise ModelError(f"variable {self.name}: {bound_name} must have {shapes}") from None
        if np.isnan(bounds).any():
            raise ModelError(f"variable {self.name}: {bound_name} bound is NaN")
        return bounds

    def check_bounds(self) -> None:
        """Check that no lower bound exceeds its upper bound, and that semicontinuous columns have valid bounds.

        Raises:
            ModelError: A lower bound exceeds its upper bound, or a semicontinuous column has an infinite or negative
                bound.
        """
        crossed = np.flatnonzero(self.lower > self.upper)
        if crossed.size:
            first = crossed[0]
            raise ModelError(f"variable {self.name}: lower bound {self.lower[first]} above upper {self.upper[first]}")
        if self.kind == "semicontinuous" and not ((self.lower >= 0) & np.isfinite(self.upper)).all():
            first = int(np.flatnonzero((self.lower < 0) | ~np.isfinite(self.upper))[0])
            raise ModelError(
                f"variable {self.name}: a semicontinuous variable is 0 or within bounds that must be finite and at "
                f"least 0, got {self.lower[first]} and {self.upper[first]}"
            )

    @property
    def size(self) -> int:
        """The number of columns."""
        return int(np.prod(self.shape, dtype=np.int64))

    def columns(self, *positions: Ints) -> Ints:
        """Return the variable's column indices in the model at the given positions, or all of them in order.

        ``positions`` contains one integer array for each index. Columns are numbered in row-major order: the last index
        varies fastest.
        """
        if not positions:
            return np.arange(self.start, self.start + self.size)
        if not self.sets:
            return np.full(1, self.start)
        # The arrays are broadcast, so a scalar position is combined with every position in the other arrays.
        flat = np.ravel_multi_index(tuple(np.broadcast_arrays(*positions)), self.shape)
        return np.asarray(flat, dtype=np.int64) + self.start
