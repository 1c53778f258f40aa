"""Entry points of the installed distributions, read one at a time.

``importlib.metadata.entry_points()`` fails completely if a single distribution has damaged metadata, for example after
an interrupted installation. This module still finds the other distributions and reports the damaged one.
"""

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
from privopt.registry.installed import normalize_name

_FOLDER: Final = re.compile(r"(?P<name>[^-]+)(-.*)?\.(dist|egg)-info")
"""Matches the name of a metadata folder, which contains the distribution's name and usually its version."""

ADVICE: Final = "install the distribution again or delete that folder"
"""The advice given in error messages about damaged metadata."""
UNKNOWN: Final = "unknown"
"""The version shown for a distribution whose metadata does not give one."""


class DamagedMetadataError(Exception):
    """Raised if a distribution's metadata cannot be read. The message names the file."""


@frozen
class DamagedDistribution:
    """A distribution whose entry points cannot be read.

    Attributes:
        name: The distribution's name, taken from the name of its metadata folder. If the folder's name does not have
            the usual form, this is the full name of the folder.
        reason: A one-line explanation.
    """

    name: str
    reason: str


@frozen
class InstalledEntryPoints:
    """The entry points of all distributions in an environment.

    Attributes:
        points: The entry points of all groups.
        damaged: The distributions that could not be read.
    """

    points: tuple[EntryPoint, ...]
    damaged: tuple[DamagedDistribution, ...]


@cache
def installed_entry_points() -> InstalledEntryPoints:
    """Return the entry points of all distributions in the environment. They are read only once per process."""
    points: list[EntryPoint] = []
    damaged: list[DamagedDistribution] = []
    visited: set[str] = set()
    for distribution in _distributions(damaged):
        name = _folder_name(distribution)
        # As in importlib, the first distribution on the path hides later ones with the same name.
        key = normalize_name(name)
        if key in visited:
            continue
        visited.add(key)
        try:
            points.extend(distribution.entry_points)
        except Exception:  # the parsers of importlib raise errors of any type
            file = f"{_path_of(distribution)}/entry_points.txt"
            reason = f"{file} must have lines 'name = module' under [group], in UTF-8, and cannot be read; {ADVICE}"
            damaged.append(DamagedDistribution(name, reason))
    return InstalledEntryPoints(tuple(points), tuple(damaged))


def owner_of(point: EntryPoint) -> tuple[str, str]:
    """Return the name and version of the distribution that owns an entry point.

    For an entry point without a distribution, such as one created by a test, the name is the point's value and the
    version is :data:`UNKNOWN`.

    Raises:
        DamagedMetadataError: The metadata cannot be read, or lacks a name or a version.
    """
    if point.dist is None:
        return point.value, UNKNOWN
    try:
        # Each access to ``metadata`` parses the whole file, so there is only one.
        metadata = point.dist.metadata
        name, version = str(metadata["Name"] or "").strip(), str(metadata["Version"] or "").strip()
    except Exception as error:  # the parsers of importlib raise errors of any type
        raise DamagedMetadataError(
            f"{_path_of(point.dist)}/METADATA cannot be read: {reason_of(error)}; {ADVICE}"
        ) from error
    if not name or not version:
        raise DamagedMetadataError(
            f"{_path_of(point.dist)}/METADATA must have a Name and a Version, got {name!r} and {version!r}; {ADVICE}"
        )
    return name, version


def folder_name_of(point: EntryPoint) -> str:
    """Return the name of an entry point's distribution, taken from the name of its metadata folder.

    Unlike :func:`owner_of`, this works even if the metadata is damaged. For an entry point without a distribution, the
    entry point's value is returned.
    """
    return point.value if point.dist is None else _folder_name(point.dist)


def skip_damaged_distributions() -> None:
    """Make other libraries in this process skip the distributions that :func:`installed_entry_points` cannot read.

    Libraries that look for entry points themselves (numba, networkx) fail at the first damaged file. Only programs, not
    libraries, may call this function, because it replaces a property of importlib's classes.
    """
    if not installed_entry_points().damaged:
        return
    classes = {ancestor for distribution in _distributions([]) for ancestor in type(distribution).__mro__}
    # If a library has imported the importlib_metadata package, its classes are patched in addition to the standard
    # ones.
    for distribution_class in classes:
        if "entry_points" in vars(distribution_class):
            _read_damaged_as_empty(distribution_class)


def _read_damaged_as_empty(distribution_class: type) -> None:
    """Make a class's ``entry_points`` property return an empty collection if the entry points cannot be read."""
    read = vars(distribution_class)["entry_points"].fget

    def entry_points(self: Distribution) -> EntryPoints:
        """Return the entry points of a distribution, or no entry points if they cannot be read."""
        try:
            points: EntryPoints = read(self)
        except Exception:  # installed_entry_points() reports it
            points = EntryPoints()
        return points

    distribution_class.entry_points = property(entry_points)  # type: ignore[attr-defined]


def _distributions(damaged: list[DamagedDistribution]) -> Iterator[Distribution]:
    """Yield every installed distribution. If listing them fails, record the error in ``damaged`` and stop."""
    # A generator cannot be resumed after an error, so the distributions of later finders are missing.
    try:
        yield from importlib.metadata.distributions()
    except Exception as error:
        damaged.append(DamagedDistribution("sys.meta_path", f"distributions cannot be listed: {reason_of(error)}"))


def _path_of(distribution: Distribution) -> str:
    """Return the path of a distribution's metadata folder, or the distribution as a string if it has no known path."""
    return str(getattr(distribution, "_path", distribution))  # there is no public attribute for it


def _folder_name(distribution: Distribution) -> str:
    """Return a distribution's name, taken from the name of its metadata folder.

    No file in the folder is read, so this works even if the metadata is damaged.
    """
    folder = PurePath(_path_of(distribution)).name
    match = _FOLDER.fullmatch(folder)
    return folder if match is None else match["name"].replace("_", "-")
