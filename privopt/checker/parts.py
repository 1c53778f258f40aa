"""Find the installed part of the checker for each kind of guarantee, without importing the parts.

A part is the code that a plugin supplies to check releases with one kind of guarantee. The plugin's distribution (its
installed package) registers the part with an entry point. The entry point's name is a kind of guarantee, or
``KIND.MECHANISM`` for a mechanism that has its own part. Its value is ``module:Part``.

If two entry points have the same name, neither is chosen. Otherwise, installing another distribution could replace a
part. A mechanism's own part takes precedence over the part for the kind, but only if the mechanism and its part come
from the same distribution.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from privopt.checker.exact import need

__all__ = ["GROUP", "choose_part", "find_parts", "part_name"]

GROUP = "privopt.checkers"
"""The group of entry points that register parts."""

TARGET = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")
"""A pattern for the value of a part's entry point, ``module:Part``."""

Claims = Mapping[str, tuple[EntryPoint, ...]]
"""The entry points, keyed by the kind of guarantee that they claim to check."""


def find_parts(points: Iterable[EntryPoint] | None = None) -> Claims:
    """Group the entry points for parts of the checker by the kind of guarantee that they check.

    A part is the code that a plugin supplies to check its releases.

    Args:
        points: The entry points to group. If None, all installed ones are used.
    """
    # The entry points are sorted so that messages about conflicting ones do not depend on the order of installation.
    claims: dict[str, tuple[EntryPoint, ...]] = {}
    for point in sorted(entry_points(group=GROUP) if points is None else points, key=describe):
        claims[point.name] = (*claims.get(point.name, ()), point)
    return claims


def describe(point: EntryPoint) -> str:
    """Return a description of an entry point that contains its value and its distribution's name and version.

    It is used in messages and as a sort key.
    """
    dist = point.dist
    owner = "an unknown distribution" if dist is None else f"{dist.name} {dist.version}"
    return f"{owner} ({point.value})"


def normal_name(distribution: object) -> str:
    """Normalise a distribution's name as in PEP 503, so that it can be compared with other names."""
    return re.sub(r"[-_.]+", "-", str(distribution)).lower()


def part_name(parts: Mapping[str, object], kind: str, mechanism: object) -> str:
    """Return the name under which the part of the checker for a release is registered.

    This is ``KIND.MECHANISM`` if there is a part for the mechanism, and the kind of guarantee otherwise. The
    mechanism's name comes from result.json and may be wrong. Therefore, every part must prove all claims from the
    folder's files regardless of this name, and reject a folder in which these files are missing.

    Args:
        parts: The registered parts, keyed by name.
        kind: The kind of guarantee.
        mechanism: The name of the release's mechanism.
    """
    mechanism_part = f"{kind}.{mechanism}"
    return mechanism_part if mechanism_part in parts else kind


def choose_part(claims: Claims, kind: str, mechanism: str = "", plugin: object = None) -> str:
    """Return the ``module:Part`` that checks a kind of guarantee. A part for the mechanism itself takes precedence.

    Args:
        claims: The installed parts (:func:`find_parts`).
        kind: The kind of guarantee.
        mechanism: The name of the release's mechanism.
        plugin: The name of the distribution that supplies this mechanism, as stated in result.json.

    Raises:
        RefusedError: No distribution, or more than one, registers a part for this kind, the entry point is malformed,
            or the mechanism and the part for it belong to different distributions. The error has exit code 2, because
            nothing can be checked.
    """
    is_own = kind != part_name(claims, kind, mechanism)
    kind = part_name(claims, kind, mechanism)
    points = claims.get(kind, ())
    need(points, f"guarantee.kind {kind!r}: unknown here", 2)
    owners = " and ".join(map(describe, points))
    only = f"guarantee.kind {kind!r} must have one part, got those of {owners}; uninstall one"
    need(len(points) == 1, only, 2)
    owner = getattr(points[0].dist, "name", None)
    foreign = f"the checker's part {kind!r} is of {owners}, but the mechanism is of {plugin!r}; uninstall one"
    need(not is_own or normal_name(owner) == normal_name(plugin), foreign, 2)
    target = re.sub(r"\s|\[.*", "", points[0].value)  # extras may be named behind the target
    need(TARGET.fullmatch(target), f"the part of {owners} must be module:Part", 2)
    return target
