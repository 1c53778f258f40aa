"""Indices, parameters and variables as sympy atoms, and their accesses ``z[i, k]``.

All of them are ``Dummy`` symbols, so that two objects of the same name are never equal. Their classes have slots, so
that setting an attribute that does not exist is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import sympy
from numpy.typing import ArrayLike

from privopt.arrays import Floats, Ints, read_only
from privopt.dsl.labelled import as_doubles, match_labels
from privopt.dsl.operators import Operators
from privopt.dsl.sets import IndexSet
from privopt.dsl.sums import Index, Restriction, Total, latex_name
from privopt.errors import ModelError

if TYPE_CHECKING:
    from privopt.dsl.vectors import VectorExpression

__all__ = [
    "Access",
    "Index",
    "IndexSet",
    "Kind",
    "Param",
    "Restriction",
    "Source",
    "Total",
    "Variable",
]

Kind = Literal["continuous", "integer", "binary", "semicontinuous"]
Source: TypeAlias = Callable[..., ArrayLike]
# Stands for the size of an axis of a function without declared sets: index sets of any size are accepted there.
_ANY = 2**62


class Indexable(Operators, sympy.Dummy):  # type: ignore[misc]
    """Common base of variables and parameters: a name, sets, and ``[...]``."""

    __slots__ = ("sets",)

    sets: tuple[IndexSet, ...]

    def _sympystr(self, printer: Any) -> str:
        return str(self.name)

    _sympyrepr = _sympystr

    def _latex(self, printer: Any) -> str:
        return latex_name(self.name)

    def __getitem__(self, key: Any) -> Access:
        """Return the access ``z[i, k]``: each index is an index expression, a label or a position."""
        indices = key if isinstance(key, tuple) else (key,)
        axes = self.axes(len(indices))
        if len(indices) != len(axes):
            set_names = ", ".join(s.name for s in axes) or "nothing"
            raise ModelError(f"{self.name} must have {len(axes)} indices ({set_names}), got {len(indices)}")
        return Access(
            self, *(self._check_index(x, s, number) for number, (x, s) in enumerate(zip(indices, axes, strict=True)))
        )

    def _check_index(self, value: Any, index_set: IndexSet, number: int) -> sympy.Expr:
        """Check one index of an access, and convert a label to its position.

        Args:
            value: An index expression, a label, or a position.
            index_set: The set of this axis.
            number: Number of the axis, for messages.
        """
        if isinstance(value, sympy.Expr):
            # An expression of indices, such as i + 1, is checked again when its values are known.
            for index in value.atoms(Index):
                if not self._accepts_set(index.index_set, index_set):
                    raise ModelError(
                        f"{self.name}[...]: index {index} runs over {index.index_set.name} "
                        f"({len(index.index_set)}), but place {number} of {self.name} over {index_set.name} "
                        f"({len(index_set)})"
                    )
            if value.atoms(sympy.Symbol) - value.atoms(Index):
                raise ModelError(f"{self.name}[...]: index {value} is not an expression in indices and integers")
            return value
        return sympy.Integer(int(index_set.positions([value])[0]))

    def _accepts_set(self, actual: IndexSet, expected: IndexSet) -> bool:
        """Return whether an index over the set ``actual`` may be used for an axis over the set ``expected``."""
        return actual.same_as(expected)

    def _as_vector(self) -> VectorExpression | None:
        """Return the variable or parameter with an index for each set; None for a scalar."""
        from privopt.dsl.vectors import VectorExpression, index_names

        if not self.sets:
            return None
        indices = tuple(Index(name, s) for name, s in zip(index_names(len(self.sets)), self.sets, strict=True))
        return VectorExpression(indices, Access(self, *indices))

    def axes(self, count: int) -> tuple[IndexSet, ...]:
        """Return the set of each axis for an access with ``count`` indices."""
        return self.sets

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the sets."""
        return tuple(len(s) for s in self.sets)


class Variable(Indexable):
    """A decision variable over the product of its sets. Created by ``Model.variable``.

    Attributes:
        sets: The sets that the indices run over. A scalar has none, and is used in formulas without indices.
        start: Number of the variable's first column in the model.
        owner: The model of the variable. Other models refuse it, because its column numbers mean other variables there.
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
        """Lower bounds of the columns, flattened row-major, shape (size,).

        They can be set to a number, to an array that broadcasts to the shape of the variable, or to None for no bounds.
        The next solve of the model uses the new bounds.
        """
        return self._lower

    @lower.setter
    def lower(self, value: ArrayLike | None) -> None:
        bounds = self._broadcast_bound("lower", -np.inf if value is None else value)
        self._lower = read_only(np.maximum(bounds, 0.0) if self.kind == "binary" else bounds)

    @property
    def upper(self) -> Floats:
        """Upper bounds of the columns, which are stored and set like the lower bounds."""
        return self._upper

    @upper.setter
    def upper(self, value: ArrayLike | None) -> None:
        bounds = self._broadcast_bound("upper", np.inf if value is None else value)
        self._upper = read_only(np.minimum(bounds, 1.0) if self.kind == "binary" else bounds)

    def _broadcast_bound(self, bound_name: str, value: ArrayLike) -> Floats:
        """Return a bound as one number for each column, shape (size,)."""
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
        """Check that no column has a lower bound above its upper bound."""
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
        """Number of columns."""
        return int(np.prod(self.shape, dtype=np.int64))

    def columns(self, *positions: Ints) -> Ints:
        """Return the model's columns at positions (one integer array for each index), or all of them in order.

        The columns are row-major: the last index varies fastest.
        """
        if not positions:
            return np.arange(self.start, self.start + self.size)
        if not self.sets:
            return np.full(1, self.start)
        # Positions broadcast, so that a scalar position serves all of an array's.
        flat = np.ravel_multi_index(tuple(np.broadcast_arrays(*positions)), self.shape)
        return np.asarray(flat, dtype=np.int64) + self.start


class Param(Indexable):
    """Known numbers: an array, or a function of index arrays. Created by ``Model.param``.

    Attributes:
        sets: The sets that the indices run over. Without declared sets there is one unnamed set for each axis of the
            array.
        declared: Whether the sets were given. Otherwise any index set of the right size may be used for an axis.
        revision: Number of times that the value was changed. A model compares it with the last compilation, to find the
            rows that must be compiled again.
    """

    __slots__ = ("_source", "declared", "revision")

    _source: Floats | Source
    declared: bool
    revision: int

    def __new__(cls, name: str, sets: tuple[IndexSet, ...] | None, source: ArrayLike | Source) -> Param:
        """Create a parameter, and check its shape and values.

        Args:
            name: The name that is printed.
            sets: The sets of the indices; None to create one unnamed set for each axis of the array.
            source: A number, an array of the sets' shape, or a function of index arrays, whose values are checked when
                used.
        """
        param: Param = sympy.Dummy.__new__(cls, name, real=True)
        param.declared = sets is not None
        param.revision = 0
        if callable(source):
            param._source, param.sets = source, sets or ()
            return param
        if sets is None:
            shape: tuple[int, ...] = np.shape(match_labels(source, None, f"param {name}"))
            sets = tuple(IndexSet(f"axis {number}", size) for number, size in enumerate(shape))
        param.sets = sets
        param._source = param.check_value(source)
        return param

    @property
    def source(self) -> Floats | Source:
        """The numbers as an array in the shape of the sets, or a function that takes one integer array per index."""
        return self._source

    @property
    def value(self) -> Any:
        """The numbers: a float for a scalar, otherwise a read-only array in the shape of the sets, or the function.

        It can be set to other numbers of the same shape. It can also be set to a function, if the sets are declared or
        the value was a function before. The next solve of each model that has the parameter uses the new value.
        """
        return float(self.source) if not callable(self.source) and not self.sets else self.source

    @value.setter
    def value(self, source: ArrayLike | Source) -> None:
        self._source = self.check_value(source)
        self.revision += 1

    def check_value(self, source: ArrayLike | Source) -> Floats | Source:
        """Check the shape and the numbers of a new value, and copy it.

        Raises:
            ModelError: The value has another shape, contains a NaN, or is a function although the parameter needs an
                array (or an array although it needs a function).
        """
        was_function = callable(getattr(self, "_source", None))
        if callable(source):
            if not (self.declared or was_function):
                raise ModelError(f"param {self.name}: a function needs a param with declared sets; give an array")
            return source
        if was_function and not self.declared:
            raise ModelError(f"param {self.name}: an array needs declared sets in place of a function; give a function")
        source = match_labels(source, self.sets if self.declared else None, f"param {self.name}")
        try:
            array = as_doubles(source)
        except (TypeError, ValueError):
            raise ModelError(f"param {self.name}: must be an array of numbers, got other contents") from None
        if array.shape != self.shape:
            raise ModelError(
                f"param {self.name}: its array must have shape {self.shape} for "
                f"({', '.join(s.name for s in self.sets)}), got {array.shape}"
            )
        if np.isnan(array).any():
            position = tuple(int(p) for p in np.argwhere(np.isnan(array))[0])
            number = ", ".join(repr(s.labels[p]) for s, p in zip(self.sets, position, strict=True))
            raise ModelError(f"param {self.name}[{number}] must be a number, got NaN")
        # A copy of the caller's array, which may change before the model is compiled.
        return read_only(array)

    @property
    def is_scalar(self) -> bool:
        """Whether formulas use the parameter without indices. A function without declared sets always has indices."""
        return not self.sets and not (callable(self.source) and not self.declared)

    def axes(self, count: int) -> tuple[IndexSet, ...]:
        """Return the set of each axis. A function without declared sets accepts any number of indices over any sets."""
        if callable(self.source) and not self.declared:
            return tuple(IndexSet(f"axis {number}", _ANY) for number in range(count))
        return self.sets

    def _accepts_set(self, actual: IndexSet, expected: IndexSet) -> bool:
        """Return whether an index over ``actual`` fits an axis over ``expected``; undeclared sets compare by size."""
        return actual.same_as(expected) if self.declared else len(expected) in (len(actual), _ANY)

    def values(self, *positions: Ints) -> Floats:
        """Return the values at positions (one integer array for each index), in the common shape of these arrays."""
        if not callable(self.source):
            return np.asarray(self.source[positions], dtype=np.float64)
        values = np.asarray(self.source(*positions), dtype=np.float64)
        shape = np.shape(positions[0]) if positions else ()
        try:
            return np.broadcast_to(values, shape)
        except ValueError:
            raise ModelError(
                f"param {self.name}: its function returned shape {values.shape} for index arrays of shape {shape}"
            ) from None


class Access(Operators, sympy.Expr):  # type: ignore[misc]
    """``z[i, k]``: a variable or parameter at an index tuple."""

    __slots__ = ()
    is_commutative = True
    is_real = True

    @property
    def base(self) -> Variable | Param:
        """The variable or parameter."""
        base: Variable | Param = self.args[0]
        return base

    @property
    def indices(self) -> tuple[Any, ...]:
        """The index expressions."""
        return tuple(self.args[1:])

    def _sympystr(self, printer: Any) -> str:
        places = zip(self.indices, self.base.axes(len(self.indices)), strict=True)
        labels = [str(s.labels[int(x)]) if x.is_Integer else printer._print(x) for x, s in places]
        return f"{self.base.name}[{', '.join(labels)}]"

    _sympyrepr = _sympystr

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        places = zip(self.indices, self.base.axes(len(self.indices)), strict=True)
        labels = [latex_name(str(s.labels[int(x)])) if x.is_Integer else printer._print(x) for x, s in places]
        power = "" if exp is None else f"^{{{exp}}}"
        return f"{latex_name(self.base.name)}_{{{', '.join(labels)}}}{power}"
