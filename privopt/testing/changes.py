"""Where two objects differ: a problem before and after a solve, a release and what is read back of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
import numpy as np
from numpy.typing import NDArray

from privopt.declare.schema import FileUse

MAX_DEPTH: Final = 12


def changes(one: Any, two: Any, place: str, depth: int = 0) -> Iterator[str]:
    """Yield where and how two objects differ: by attrs fields, mappings, sequences and arrays.

    What only one of them has, the other None or not at all, is no difference: it was cached, or is in no file.
    """
    if depth > MAX_DEPTH or one is None or two is None or callable(one):
        return
    if isinstance(one, FileUse):  # readers note what they read, in `solve` too
        return
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
    for name, part in here.items():
        yield from changes(part, there.get(name), f"{place}{name}", depth + 1)


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
    if isinstance(value, Mapping):
        return {f"[{name!r}]": part for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return {f"[{number}]": part for number, part in enumerate(value)}
    if not attrs.has(type(value)) and not hasattr(value, "__dict__"):
        return None
    names = [each.name for each in attrs.fields(type(value))] if attrs.has(type(value)) else []
    names += [name for name in getattr(value, "__dict__", {}) if name not in names]
    return {".__class__": type(value).__name__} | {f".{name}": getattr(value, name, None) for name in names}
