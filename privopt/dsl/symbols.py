"""Indices, parameters and variables as sympy atoms, and their accesses ``z[i, k]``.

They are ``Dummy`` symbols, so that two objects of the same name are never equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import sympy
from numpy.typing import ArrayLike
from sympy.utilities.iterables import NotIterable

from privopt.arrays import Floats, Ints, read_only
from privopt.dsl.sets import IndexSet
from privopt.errors import ModelError

__all__ = ["Access", "Index", "IndexSet", "Param", "Restriction", "Source", "Total", "Variable"]

Source: TypeAlias = Callable[..., ArrayLike]
_ANY = 2**62


class Index(sympy.Dummy):  # type: ignore[misc]
    """An index that runs over a set. Two indices of the same name are different indices.

    >>> Index("i", IndexSet("X", 4))
    i
    """

    index_set: IndexSet

    def __new__(cls, name: str, index_set: IndexSet) -> Index:
        """Create an index called ``name``."""
        index: Index = sympy.Dummy.__new__(cls, name, integer=True)
        index.index_set = index_set
        return index

    def _sympystr(self, printer: Any) -> str:
        return str(self.name)

    _sympyrepr = _sympystr


class _Indexable(sympy.Dummy, NotIterable):  # type: ignore[misc]
    """Common base of variables and parameters: a name, sets, and ``[...]``."""

    sets: tuple[IndexSet, ...]

    def _sympystr(self, printer: Any) -> str:
        return str(self.name)

    _sympyrepr = _sympystr

    def __getitem__(self, key: Any) -> Access:
        indices = key if isinstance(key, tuple) else (key,)
        axes = self.axes(len(indices))
        if len(indices) != len(axes):
            set_names = ", ".join(s.name for s in axes) or "nothing"
            raise ModelError(f"{self.name} must have {len(axes)} indices ({set_names}), got {len(indices)}")
        return Access(
            self, *(self._check_index(x, s, number) for number, (x, s) in enumerate(zip(indices, axes, strict=True)))
        )

    def _check_index(self, value: Any, index_set: IndexSet, number: int) -> sympy.Expr:
        """Check one index of an access, and convert a label to its position."""
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
        """Return whether an index over one set may stand in a place of the other."""
        return actual.same_as(expected)

    def axes(self, count: int) -> tuple[IndexSet, ...]:
        """Return the sets of the indices if ``count`` of them are used."""
        return self.sets

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the sets."""
        return tuple(len(s) for s in self.sets)


class Variable(_Indexable):
    """A decision variable over the product of its sets. Created by ``Model.variable``.

    Attributes:
        sets: what it is indexed by; a scalar has none and represents itself in formulas.
        start: its first column.
        lower, upper: bounds, flattened row-major, shape (size,).
        integer: whether it takes integers only.
        owner: the model that it is a variable of; in another its columns would mean other variables.
    """

    owner: Any
    start: int
    lower: Floats
    upper: Floats
    integer: bool

    def __new__(cls, name: str, sets: tuple[IndexSet, ...]) -> Variable:
        """Create a variable called ``name``."""
        variable: Variable = sympy.Dummy.__new__(cls, name, real=True)
        variable.sets = sets
        return variable

    @property
    def size(self) -> int:
        """Number of columns."""
        return int(np.prod(self.shape, dtype=np.int64))

    def columns(self, *positions: Ints) -> Ints:
        """Return the model's columns at positions (one integer array for each index), or all of them in order."""
        if not positions:
            return np.arange(self.start, self.start + self.size)
        if not self.sets:
            return np.full(1, self.start)
        flat = np.ravel_multi_index(tuple(np.broadcast_arrays(*positions)), self.shape)
        return np.asarray(flat, dtype=np.int64) + self.start


class Param(_Indexable):
    """Known numbers: an array, or a function of index arrays. Created by ``Model.param``.

    Attributes:
        sets: what it is indexed by; of a param without declared sets, one unnamed set an axis of its array.
        declared: whether the sets were given; otherwise any index set of the right size fits an axis.
        source: array of that shape, or a callable that maps one integer array an index to an array.
    """

    source: Floats | Source
    declared: bool

    def __new__(cls, name: str, sets: tuple[IndexSet, ...] | None, source: ArrayLike | Source) -> Param:
        """Create a parameter, and check its shape and values."""
        param: Param = sympy.Dummy.__new__(cls, name, real=True)
        param.declared = sets is not None
        if callable(source):
            param.source, param.sets = source, sets or ()
            return param
        array = np.asarray(source, dtype=np.float64)
        if sets is None:
            sets = tuple(IndexSet(f"axis {number}", size) for number, size in enumerate(array.shape))
        param.sets = sets
        expected_shape = tuple(len(s) for s in sets)
        if array.shape != expected_shape:
            raise ModelError(
                f"param {name}: its array must have shape {expected_shape} for "
                f"({', '.join(s.name for s in sets)}), got {array.shape}"
            )
        if np.isnan(array).any():
            position = tuple(int(p) for p in np.argwhere(np.isnan(array))[0])
            number = ", ".join(repr(s.labels[p]) for s, p in zip(sets, position, strict=True))
            raise ModelError(f"param {name}[{number}] must be a number, got NaN")
        param.source = read_only(array.copy())
        return param

    @property
    def is_scalar(self) -> bool:
        """Whether it represents itself in formulas."""
        return not self.sets and not (callable(self.source) and not self.declared)

    def axes(self, count: int) -> tuple[IndexSet, ...]:
        """Return the sets of the indices. A function without declared sets accepts any number of them."""
        if callable(self.source) and not self.declared:
            return tuple(IndexSet(f"axis {number}", _ANY) for number in range(count))
        return self.sets

    def _accepts_set(self, actual: IndexSet, expected: IndexSet) -> bool:
        """Return whether an index over one set may replace the other; undeclared sets must agree in size only."""
        return actual.same_as(expected) if self.declared else len(expected) in (len(actual), _ANY)

    def values(self, *positions: Ints) -> Floats:
        """Return the values at positions: one integer array for each index, all of one shape."""
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


class Access(sympy.Expr):  # type: ignore[misc]
    """``z[i, k]``: a variable or parameter at an index tuple."""

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


class Restriction(sympy.Dummy):  # type: ignore[misc]
    """The index tuples that a sum is restricted to.

    Attributes:
        indices: the indices that the tuples are of.
        positions: for each index, the place in each tuple, shape (P,).
    """

    indices: tuple[Index, ...]
    positions: tuple[Ints, ...]

    def __new__(cls, indices: tuple[Index, ...], positions: tuple[Ints, ...]) -> Restriction:
        """Create a restriction of ``indices`` to the tuples given by ``positions``."""
        restriction: Restriction = sympy.Dummy.__new__(cls, "T")
        restriction.indices, restriction.positions = indices, positions
        return restriction


class Total(sympy.Expr):  # type: ignore[misc]
    """A finite sum over index tuples. Created by ``total``."""

    is_commutative = True
    is_real = True

    @property
    def body(self) -> sympy.Expr:
        """The summed expression."""
        return self.args[0]

    @property
    def over(self) -> tuple[Index, ...]:
        """The indices that are summed over."""
        return tuple(self.args[1])

    @property
    def restriction(self) -> Restriction | None:
        """The tuples that count; None for all."""
        return self.args[2] if len(self.args) > 2 else None

    def _restriction_text(self) -> str:
        restriction = self.restriction
        if restriction is None:
            return ""
        return f"({', '.join(str(x.name) for x in restriction.indices)}) in {len(restriction.positions[0])} tuples"

    def _sympystr(self, printer: Any) -> str:
        ranges = ", ".join(f"{x.name} in {x.index_set.name}" for x in self.over)
        where = f"; {self._where()}" if self.restriction else ""
        return f"sum({printer._print(self.body)} for {ranges}{where})"

    _sympyrepr = _sympystr
