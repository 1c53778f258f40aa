"""Where two objects differ: a problem before and after a solve, a release and what is read back of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from privopt.declare.schema import FileUse


def changes(one: Any, two: Any, place: str, met: set[tuple[int, int]] | None = None) -> Iterator[str]:
    """Yield where and how two objects differ: by attrs fields, mappings, sequences and arrays.

    What only one of them has, the other None or not at all, does not count: it was cached, or is in no file.
    """
    if one is None or two is None or callable(one) or isinstance(one, FileUse):
        return  # of files: readers note what they read, in `solve` too
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        yield from _in_arrays(np.asarray(one), np.asarray(two), place)
        return
    here, there = _parts(one), _parts(two)
    if here is None or there is None:
        if one != two and repr(one) != repr(two) and " at 0x" not in repr(one):
            yield f"{place} was {one!r}, now {two!r}"
        return
    if isinstance(one, (list, tuple)) and len(here) != len(there):
        yield f"{place} had {len(here)} parts, now {len(there)}"
    met = set() if met is None else met
    if (id(one), id(two)) not in met:  # what refers to itself comes to an end
        met.add((id(one), id(two)))
        for name, part in here.items():
            yield from changes(part, there.get(name), f"{place}{name}", met)


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
    if isinstance(value, (str, bytes, int, float, complex, set, frozenset)):
        return None  # subclasses have attributes besides, and their own contents in none
    if isinstance(value, Mapping):
        return {f"[{name!r}]": part for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return {f"[{number}]": part for number, part in enumerate(value)}
    if isinstance(value, Path):
        return {".name": value.name}  # its folder is not part of what was released
    if not attrs.has(type(value)) and not hasattr(value, "__dict__"):
        return None
    own = attrs.fields_dict(type(value)) if attrs.has(type(value)) else {}
    names = {**own, **getattr(value, "__dict__", {})}
    return {".__class__": type(value).__name__} | {f".{name}": getattr(value, name, None) for name in names}
