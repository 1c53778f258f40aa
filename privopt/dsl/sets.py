"""Finite sets that indices run over. This module does not import sympy, because solver processes load it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from numbers import Number
from typing import Any

import numpy as np
from attrs import field, frozen

from privopt.arrays import Ints
from privopt.errors import ModelError

__all__ = ["Axis", "IndexSet", "Ints"]


def _read_labels(value: int | Iterable[Hashable]) -> Sequence[Hashable]:
    """Return a set's labels: the elements of a sequence or array, or 0 to n - 1 for an integer n."""
    if isinstance(value, int | np.integer):
        if value < 0:
            raise ModelError(f"an index set must have 0 elements or more, got {value}")
        return range(int(value))
    # Only a range 0, 1, 2, ... is kept as a range, because its labels are their own positions.
    if isinstance(value, range) and value == range(len(value)):
        return value
    return tuple(value.tolist() if isinstance(value, np.ndarray) else value)


def _can_represent(label: object, element: object) -> bool:
    """Return whether a label may be used to refer to an element that compares equal to it.

    For example, True equals 1 in Python, but it may not be used to refer to the element 1.
    """
    if isinstance(element, bool | np.bool_):
        return isinstance(label, bool | np.bool_)
    return not isinstance(element, Number) or (isinstance(label, Number) and not isinstance(label, bool))


def _is_integer(value: object) -> bool:
    """Return whether a value is a Python or NumPy integer. Booleans do not count as integers."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@frozen(eq=False)
class IndexSet:
    """A named finite set with a fixed order.

    >>> IndexSet("X", ["a", "b"]).position("b")
    1
    >>> len(IndexSet("K", 3))
    3

    Attributes:
        name: The name under which the set is printed.
        labels: The elements, hashable and distinct. An integer n gives the elements 0 to n - 1.
        _places: The position of each label. It is empty if the labels are a range, because each label of a range is its
            own position.
    """

    name: str
    labels: Sequence[Hashable] = field(converter=_read_labels, repr=False)
    _places: dict[Hashable, int] = field(init=False, repr=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        """Compute the positions of the labels, and reject repeated labels.

        A range needs neither step, because its labels are distinct and equal to their positions.
        """
        if isinstance(self.labels, range):
            return
        for position, label in enumerate(self.labels):
            if label != label:
                raise ModelError(f"index set {self.name}: a label must equal itself, got {label!r} at place {position}")
            # 1, 1.0 and True are equal and have the same hash, so they count as the same label.
            if self._places.setdefault(label, position) != position:
                first = self._places[label]
                raise ModelError(
                    f"index set {self.name}: its labels must differ, got {label!r} at places {first} and {position}"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.labels)

    def __contains__(self, label: object) -> bool:
        if isinstance(self.labels, range):
            return _can_represent(label, 0) and label in self.labels
        position = self._places.get(label)
        return position is not None and _can_represent(label, self.labels[position])

    def position(self, label: Hashable) -> int:
        """Return the position of a label, starting from 0.

        Raises:
            ModelError: The label is not an element of the set.
        """
        try:
            is_element = label in self
        except TypeError:
            kind = type(label).__name__
            raise ModelError(
                f"index set {self.name}: a label must be an element or its place, got the {kind} {label!r}"
            ) from None
        if not is_element:
            is_boolean = isinstance(label, bool | np.bool_)
            hint = "; of a mask of booleans np.argwhere(mask) gives the places" if is_boolean else ""
            raise ModelError(f"index set {self.name} has no element {label!r}{hint}")
        return int(label) if isinstance(self.labels, range) else self._places[label]  # type: ignore[call-overload]

    def positions(self, values: Ints | Iterable[Hashable]) -> Ints:
        """Return the positions of several elements, starting from 0.

        Args:
            values: An integer array of positions, or a sequence of labels. The positions in an array are only checked
                against the size of the set. In a sequence, an integer that doesn't match a label is treated as a
                position, but only if none of the set's labels are integers. Booleans in a sequence are always treated
                as labels.

        Raises:
            ModelError: A value is neither a label nor a position in the set.
        """
        if isinstance(self.labels, range) and isinstance(values, list) and all(type(x) is int for x in values):
            # The labels of a range are its positions, so a list of them takes the fast path of arrays.
            values = np.array(values, dtype=np.int64)
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
            positions = values.astype(np.int64)
        else:
            has_integers = isinstance(self.labels, range) or any(map(_is_integer, self.labels))
            elements = values.tolist() if isinstance(values, np.ndarray) else values
            positions = np.array([self._position_of(value, has_integers) for value in elements], dtype=np.int64)
        # NumPy would count negative positions from the end.
        is_outside = (positions < 0) | (positions >= len(self))
        if is_outside.any():
            raise ModelError(
                f"index set {self.name}: places must be 0 to {len(self) - 1}, got {positions[is_outside][0]}"
            )
        return positions

    def _position_of(self, value: Any, has_integers: bool) -> int:
        """Return the position of one element.

        Args:
            value: A label. If the set has no integer labels, an integer that doesn't match a label is treated as a
                position, and the caller must check that the position exists.
            has_integers: Whether the set has integer labels.

        Raises:
            ModelError: The value is not an element and cannot be treated as a position.
        """
        if not has_integers and _is_integer(value) and value not in self:
            return int(value)
        return self.position(value)

    def same_as(self, other: IndexSet) -> bool:
        """Return whether this set and ``other`` have the same name and the same elements in the same order."""
        return self is other or (self.name == other.name and self.labels == other.labels)


class Axis(IndexSet):
    """An axis of an array or function that was given without index sets.

    An array's axis matches every set of the same size, and a function's axis matches every set.
    """
