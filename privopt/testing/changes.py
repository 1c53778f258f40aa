"""Where two objects differ: a problem before and after a solve, a release and what is read back of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
from numpy.typing import NDArray

from privopt.declare.schema import FileUse

WHOLE: Final = (str, bytes, int, float, complex, set, frozenset, Path, type(None))
"""What is compared as a whole, subclasses too: these may have attributes, and their contents are in none."""

_MISSING: Final = object()


def changes(
    one: Any, two: Any, place: str, *, through_files: bool = False, met: dict[tuple[int, int], Any] | None = None
) -> Iterator[str]:
    """Yield where and how two objects differ: by attrs fields, mappings, sequences and arrays.

    Lists and tuples of the same parts are alike. A part that only one of them has, or that was None before, does not
    count: it was cached.

    Args:
        one, two: the objects.
        place: what the first is called.
        through_files: the second was read from what the first wrote. What is None there is in no file then, and of a
            path its name alone was released.
        met: pairs that were compared, kept alive so that none of their ids is used again.
    """
    if one is two or two is _MISSING or isinstance(one, FileUse):  # of files: readers note what they read, in solve too
        return
    if callable(one) and not isinstance(one, Mapping):
        return
    if one is None or (through_files and two is None):
        return
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        yield from _in_arrays(np.asarray(one), np.asarray(two), place)
        return
    if through_files and isinstance(one, Path) and isinstance(two, Path):
        one, two = one.name, two.name
    here, there = _parts(one), _parts(two)
    if here is None or there is None:
        if one != two and repr(one) != repr(two) and " at 0x" not in repr(one):
            yield f"{place} was {one!r}, now {two!r}"
        return
    if isinstance(one, (list, tuple)) and len(here) != len(there):
        yield f"{place} had {len(here)} parts, now {len(there)}"
    met = {} if met is None else met
    if (id(one), id(two)) not in met:  # what refers to itself comes to an end
        met[id(one), id(two)] = one, two
        for name, part in here.items():
            other = there.get(name, _MISSING)
            yield from changes(part, other, f"{place}{name}", through_files=through_files, met=met)


def _in_arrays(one: NDArray[Any], two: NDArray[Any], place: str) -> Iterator[str]:
    if one.shape != two.shape:
        yield f"{place} had shape {one.shape}, now {two.shape}"
        return
    for at in map(tuple, np.argwhere(one != two).tolist()):
        if repr(one[at]) != repr(two[at]):  # NaN is like NaN
            yield f"{place}{list(at)} was {one[at]!r}, now {two[at]!r}"
            return


def _parts(value: Any) -> dict[str, Any] | None:
    """Return what is in an object, by place; None if it is looked at as a whole."""
    if isinstance(value, WHOLE):
        return None
    if isinstance(value, Mapping):
        return {f"[{name!r}]": part for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return {f"[{number}]": part for number, part in enumerate(value)}
    if not attrs.has(type(value)) and not hasattr(value, "__dict__"):
        return None
    own = attrs.fields_dict(type(value)) if attrs.has(type(value)) else {}
    names = {**own, **getattr(value, "__dict__", {})}
    present = {f".{name}": getattr(value, name) for name in names if hasattr(value, name)}
    return {".__class__": type(value).__name__} | present
