"""Entry points of the installed distributions, read one by one: damaged metadata of one do not hide the others."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, EntryPoint, EntryPoints
from pathlib import PurePath
from typing import Final

from attrs import frozen

from privopt.errors import reason_of

_FOLDER: Final = re.compile(r"(?P<name>[^-]+)(-.*)?\.(dist|egg)-info")
"""The folder of a distribution's metadata: its name, and mostly its version."""

ADVICE: Final = "install the distribution again or delete that folder"
UNKNOWN: Final = "unknown"
"""Version of a distribution whose metadata do not say it."""


class DamagedMetadataError(Exception):
    """Metadata of a distribution that cannot be read; names the file."""


@frozen
class DamagedDistribution:
    """A distribution whose entry points cannot be read.

    Attributes:
        name: as its folder says, or the folder's whole name.
        reason: one line that begins with the path.
    """

    name: str
    reason: str


@frozen
class InstalledEntryPoints:
    """The entry points of an environment.

    Attributes:
        points: of all groups, each distribution's once.
        damaged: distributions that could not be read.
    """

    points: tuple[EntryPoint, ...]
    damaged: tuple[DamagedDistribution, ...]


@cache
def installed_entry_points() -> InstalledEntryPoints:
    """Read the entry points of every distribution on the path, once a process."""
    points: list[EntryPoint] = []
    damaged: list[DamagedDistribution] = []
    visited: set[str] = set()
    for distribution in _distributions(damaged):
        name = _folder_name(distribution)
        # As importlib has it, the first on the path hides later ones of its name.
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in visited:
            continue
        visited.add(key)
        try:
            points.extend(distribution.entry_points)
        except Exception:  # importlib raises what its parser happens to stumble on
            file = f"{_path_of(distribution)}/entry_points.txt"
            reason = f"{file} must have lines 'name = module' under [group], in UTF-8, and cannot be read; {ADVICE}"
            damaged.append(DamagedDistribution(name, reason))
    return InstalledEntryPoints(tuple(points), tuple(damaged))


def owner_of(point: EntryPoint) -> tuple[str, str]:
    """Return name and version of the distribution of an entry point; its value for one that belongs to none.

    Raises:
        DamagedMetadataError: the metadata do not say them.
    """
    if point.dist is None:
        return point.value, UNKNOWN
    try:
        name, version = str(point.dist.name or "").strip(), str(point.dist.version or "").strip()
    except Exception as error:
        raise DamagedMetadataError(
            f"{_path_of(point.dist)}/METADATA cannot be read: {reason_of(error)}; {ADVICE}"
        ) from error
    if not name or not version:
        raise DamagedMetadataError(
            f"{_path_of(point.dist)}/METADATA must have a Name and a Version, got {name!r} and {version!r}; {ADVICE}"
        )
    return name, version


def folder_name_of(point: EntryPoint) -> str:
    """Return what to call the distribution of an entry point if its metadata do not say it."""
    return point.value if point.dist is None else _folder_name(point.dist)


def skip_damaged_distributions() -> None:
    """Make this process's other libraries skip the distributions that :func:`installed_entry_points` cannot read.

    Libraries that look for entry points themselves (numba, networkx) stop at the first damaged file. Only a program of
    its own may call this, because it replaces a property of the classes of distributions.
    """
    if not installed_entry_points().damaged:
        return
    classes = {ancestor for distribution in _distributions([]) for ancestor in type(distribution).__mro__}
    # If a library has imported the package importlib_metadata, it has a class beside the standard library's.
    for distribution_class in classes:
        if "entry_points" in vars(distribution_class):
            _read_damaged_as_empty(distribution_class)


def _read_damaged_as_empty(distribution_class: type) -> None:
    """Make a class of distributions return no entry points where reading them fails."""
    read = vars(distribution_class)["entry_points"].fget

    def entry_points(self: Distribution) -> EntryPoints:
        try:
            points: EntryPoints = read(self)
        except Exception:  # installed_entry_points() reports it
            points = EntryPoints()
        return points

    distribution_class.entry_points = property(entry_points)  # type: ignore[attr-defined]


def _distributions(damaged: list[DamagedDistribution]) -> Iterator[Distribution]:
    """Yield every distribution on the path, up to a finder that fails."""
    try:
        yield from importlib.metadata.distributions()
    except Exception as error:
        damaged.append(DamagedDistribution("sys.meta_path", f"distributions cannot be listed: {reason_of(error)}"))


def _path_of(distribution: Distribution) -> str:
    """Return the folder of a distribution's metadata, as far as its finder says it."""
    return str(getattr(distribution, "_path", distribution))


def _folder_name(distribution: Distribution) -> str:
    folder = PurePath(_path_of(distribution)).name
    match = _FOLDER.fullmatch(folder)
    return folder if match is None else match["name"].replace("_", "-")
