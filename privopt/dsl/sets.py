"""Finite sets that indices run over. No sympy here: solvers' processes load this file too."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from numbers import Number
from typing import Any

import numpy as np
from attrs import field, frozen

from privopt.arrays import Ints
from privopt.errors import ModelError

__all__ = ["IndexSet", "Ints"]


def _labels(value: int | Iterable[Hashable]) -> Sequence[Hashable]:
    if isinstance(value, int | np.integer):
        if value < 0:
            raise ModelError(f"an index set must have 0 elements or more, got {value}")
        return range(int(value))
    if isinstance(value, range):
        return value
    return tuple(value.tolist() if isinstance(value, np.ndarray) else value)


def _means(label: object, element: object) -> bool:
    """Check that a label that equals an element may represent it: True equals 1 and may not."""
    if isinstance(element, bool | np.bool_):
        return isinstance(label, bool | np.bool_)
    return not isinstance(element, Number) or (isinstance(label, Number) and not isinstance(label, bool))


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@frozen(eq=False)
class IndexSet:
    """A named finite set, in a fixed order.

    >>> IndexSet("X", ["a", "b"]).position("b")
    1
    >>> len(IndexSet("K", 3))
    3

    Attributes:
        name: as it is printed.
        labels: the elements, hashable and distinct; an integer n represents 0 ... n - 1.
    """

    name: str
    labels: Sequence[Hashable] = field(converter=_labels, repr=False)
    _places: dict[Hashable, int] = field(init=False, repr=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        if isinstance(self.labels, range):
            return
        for place, label in enumerate(self.labels):
            if self._places.setdefault(label, place) != place:
                first = self._places[label]
                raise ModelError(
                    f"index set {self.name}: its labels must differ, got {label!r} at places {first} and {place}"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def __contains__(self, label: object) -> bool:
        if isinstance(self.labels, range):
            return _means(label, 0) and label in self.labels
        place = self._places.get(label)
        return place is not None and _means(label, self.labels[place])

    def position(self, label: Hashable) -> int:
        """Place of a label, from 0; ModelError where it is not an element."""
        try:
            known = label in self
        except TypeError:
            kind = type(label).__name__
            raise ModelError(
                f"index set {self.name}: a label must be an element or its place, got the {kind} {label!r}"
            ) from None
        if not known:
            mask = isinstance(label, bool | np.bool_)
            hint = "; of a mask of booleans np.argwhere(mask) gives the places" if mask else ""
            raise ModelError(f"index set {self.name} has no element {label!r}{hint}")
        return int(label) if isinstance(self.labels, range) else self._places[label]  # type: ignore[call-overload]

    def positions(self, values: Ints | Iterable[Hashable]) -> Ints:
        """Return places of many elements.

        Args:
            values: an integer array (places already, checked against the size), or a sequence of labels;
                integers are places too where no label is an integer. Booleans are labels, never places.
        """
        if isinstance(self.labels, range) and isinstance(values, list) and all(type(x) is int for x in values):
            values = np.array(values, dtype=np.int64)  # here labels are places
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
            found = values.astype(np.int64)
        else:
            has_integers = isinstance(self.labels, range) or any(map(_is_integer, self.labels))
            plain = values.tolist() if isinstance(values, np.ndarray) else values
            found = np.array([self._place(value, has_integers) for value in plain], dtype=np.int64)
        outside = (found < 0) | (found >= len(self))
        if outside.any():
            raise ModelError(f"index set {self.name}: places must be 0 to {len(self) - 1}, got {found[outside][0]}")
        return found

    def _place(self, value: Any, has_integers: bool) -> int:
        if not has_integers and _is_integer(value) and value not in self:
            return int(value)
        return self.position(value)

    def same_as(self, other: IndexSet) -> bool:
        """Return whether both have the same name and the same elements in the same order."""
        return self is other or (self.name == other.name and self.labels == other.labels)
