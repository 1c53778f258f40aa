"""A comparison that finds the places where two objects differ, such as a problem before and after a solve.

``==`` is not enough, because plugins' objects need not define it, arrays are compared element by element, and NaN is
not equal to NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
from numpy.typing import NDArray

from privopt.declare.schema import FileUse

WHOLE: Final = (str, bytes, int, float, complex, set, frozenset, Path, type(None))
"""The types whose instances (including those of subclasses) are compared as a whole rather than part by part."""

_MISSING: Final = object()
"""A placeholder for a part that is missing from the second object."""


def changes(
    first: Any,
    second: Any,
    path: str,
    *,
    through_files: bool = False,
    compared_pairs: dict[tuple[int, int], Any] | None = None,
) -> Iterator[str]:
    """Yield a sentence for each difference between two objects, searching attrs fields, mappings, sequences and arrays.

    A list and a tuple with equal elements count as equal. Attributes and keys that exist in only one object are not
    reported. Nor are values that were None in the first object, because they may have been cached in the meantime.

    Args:
        first: The object before the solve, or as it was written.
        second: The object after the solve, or as it was read back.
        path: The object's name in the sentences, such as ``"problem"``, to which the names of parts are appended.
        through_files: Whether the second object was read from files written by the first one. If so, only the file
            names of paths are compared, and parts that are None in the second object are not reported, because they
            were not stored.
        compared_pairs: The pairs of objects compared so far, keyed by the objects' ids, or None in the outermost call.
            The objects are stored so that Python cannot reuse their ids.
    """
    # A FileUse records which parts of a file were read, which may change during a solve.
    if first is second or second is _MISSING or isinstance(first, FileUse):
        return
    # Functions have no value to compare, and two equal closures are different objects.
    if callable(first) and not isinstance(first, Mapping):
        return
    if first is None or (through_files and second is None):
        return
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        yield from _array_changes(np.asarray(first), np.asarray(second), path)
        return
    if through_files and isinstance(first, Path) and isinstance(second, Path):
        first, second = first.name, second.name
    first_parts, second_parts = _named_parts(first), _named_parts(second)
    if first_parts is None or second_parts is None:
        # A default representation contains the object's address, which differs between equal objects.
        if first != second and repr(first) != repr(second) and " at 0x" not in repr(first):
            yield f"{path} was {first!r}, now {second!r}"
        return
    if isinstance(first, (list, tuple)) and len(first_parts) != len(second_parts):
        yield f"{path} had {len(first_parts)} parts, now {len(second_parts)}"
    compared_pairs = {} if compared_pairs is None else compared_pairs
    if (id(first), id(second)) not in compared_pairs:  # objects that refer to themselves would recurse forever
        compared_pairs[id(first), id(second)] = first, second
        for name, part in first_parts.items():
            counterpart = second_parts.get(name, _MISSING)
            yield from changes(
                part, counterpart, f"{path}{name}", through_files=through_files, compared_pairs=compared_pairs
            )


def _array_changes(first: NDArray[Any], second: NDArray[Any], path: str) -> Iterator[str]:
    """Yield a sentence about the first entry in which two arrays differ, or about their shapes if those differ.

    Nothing is yielded for equal arrays. ``path`` is the array's name in the sentence.
    """
    if first.shape != second.shape:
        yield f"{path} had shape {first.shape}, now {second.shape}"
        return
    for index in map(tuple, np.argwhere(first != second).tolist()):
        if repr(first[index]) != repr(second[index]):  # NaN equals NaN here
            yield f"{path}{list(index)} was {first[index]!r}, now {second[index]!r}"
            return


def _named_parts(value: Any) -> dict[str, Any] | None:
    """Return an object's parts, keyed by the suffixes that name them in messages, such as ``"[0]"`` or ``".name"``.

    The parts are a mapping's values, a sequence's elements, or any other object's class name and attributes. The result
    is None if the object is to be compared as a whole.
    """
    if isinstance(value, WHOLE):
        return None
    if isinstance(value, Mapping):
        return {f"[{name!r}]": part for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return {f"[{number}]": part for number, part in enumerate(value)}
    if not attrs.has(type(value)) and not hasattr(value, "__dict__"):
        return None
    declared_fields = attrs.fields_dict(type(value)) if attrs.has(type(value)) else {}
    # The dictionary serves as an ordered set. attrs classes with slots have no __dict__.
    names = {**declared_fields, **getattr(value, "__dict__", {})}
    present = {f".{name}": getattr(value, name) for name in names if hasattr(value, name)}
    return {".__class__": type(value).__name__} | present
