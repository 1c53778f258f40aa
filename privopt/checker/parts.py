"""Find the installed part for each kind of guarantee, without importing any.

A distribution registers a part by an entry point: the name is a kind of guarantee, the value is
``module:Part``. A kind that two entry points claim has no part: a distribution that is installed
later must not be able to replace the part that another one brings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from privopt.checker.exact import need

__all__ = ["GROUP", "choose_part", "find_parts"]

GROUP = "privopt.checkers"
"""Group of entry points: kind of guarantee = ``module:Part`` that checks such releases."""

TARGET = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")
"""Module and attribute of a part."""

Claims = Mapping[str, tuple[EntryPoint, ...]]
"""Entry points by the kind of guarantee that they claim."""


def find_parts(points: Iterable[EntryPoint] | None = None) -> Claims:
    """Return all entry points of parts by kind, in a fixed order.

    Args:
        points: The entry points to group. None stands for those that are installed.
    """
    claims: dict[str, tuple[EntryPoint, ...]] = {}
    for point in sorted(entry_points(group=GROUP) if points is None else points, key=describe):
        claims[point.name] = (*claims.get(point.name, ()), point)
    return claims


def describe(point: EntryPoint) -> str:
    """Name the distribution of an entry point and what it points to."""
    dist = point.dist
    owner = "an unknown distribution" if dist is None else f"{dist.name} {dist.version}"
    return f"{owner} ({point.value})"


def choose_part(claims: Claims, kind: str) -> str:
    """Return the ``module:Part`` that checks a kind of guarantee.

    Raises:
        RefusedError: No distribution claims the kind, several do, or the entry point is malformed.
    """
    points = claims.get(kind, ())
    need(points, f"guarantee.kind {kind!r}: unknown here", 2)
    owners = " and ".join(map(describe, points))
    only = f"guarantee.kind {kind!r} must have one part, got those of {owners}; uninstall one"
    need(len(points) == 1, only, 2)
    target = re.sub(r"\s|\[.*", "", points[0].value)  # extras may be named behind the target
    need(TARGET.fullmatch(target), f"the part of {owners} must be module:Part", 2)
    return target
