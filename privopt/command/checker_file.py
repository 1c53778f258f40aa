"""Build the file that ``privopt checker`` writes: a zip program that checks release folders and works without privopt.

The archive contains the sources of the checker and of every installed part. A part is a plugin's code that checks one
kind of guarantee (``privopt/checker/parts.py``). It is registered as ``package.module:Part``, and its whole package is
copied. If the module is not in a package, only the module is copied.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.abc import ResourceLoader
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from typing import Any, Final

from privopt.errors import RegistryError
from privopt.registry import Entry, registry
from privopt.registry.installed import normalize_name
from privopt.registry.missing import CORE as CORE_PLUGIN

CORE: Final = "privopt.checker"
"""The package that contains the checker."""

GROUP: Final = "privopt.checkers"
"""The entry-point group for parts. It is repeated in ``privopt.checker.parts``, because the core and the checker do not
import each other."""

TARGET: Final = re.compile(r"(?P<module>\w+(\.\w+)*)\s*:\s*(?P<attribute>\w+(\.\w+)*)\s*(\[.*\])?")
"""The pattern of an entry point's value: ``module:attribute``, optionally followed by extras in brackets."""

MEMBER_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The modification time stored for each member of the archive: the earliest time that the zip format allows. It is
fixed so that identical sources yield identical archives."""

MAIN: Final = '''"""Checks a folder of privopt: ``python -I {name} DIR``; its sources are in this archive."""

import sys

from {core}.run import main

PARTS = {parts!r}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], PARTS))
'''
"""The template of the archive's ``__main__.py``. ``name`` is the archive's name, and ``parts`` is a dictionary keyed by
kind."""


def checker_file(name: str) -> tuple[bytes, Mapping[str, str]]:
    """Build an executable zip archive with the sources of the checker and of all installed parts.

    A part is the code that a plugin supplies to check one kind of guarantee.

    Args:
        name: The file's name, which is shown in the help text inside the archive.

    Returns:
        The contents of the archive, which are reproducible, and a mapping from each kind of guarantee to the
        ``module:attribute`` of the part that checks it.

    Raises:
        RegistryError: Two entry points claim the same kind of guarantee, an entry point is malformed, a part checks a
            mechanism or notion that belongs to another distribution, or a part has no readable source.
    """
    points = choose_points(entry_points(group=GROUP))
    for point in points.values():
        _check_owner(point)
    # Each part's ``module:attribute`` without extras and blanks, by kind of guarantee.
    targets = {
        kind: f"{_match_target(point)['module']}:{_match_target(point)['attribute']}" for kind, point in points.items()
    }
    members = {"__main__.py": MAIN.format(name=name, core=CORE, parts=targets).encode()}
    members |= dict(_iter_sources(CORE))
    for point in points.values():
        try:
            members |= dict(_iter_sources(_match_target(point)["module"]))
        except Exception as error:  # importing a part's package runs its code, which may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise RegistryError(f"{_describe_point(point)}: the part's sources cannot be read: {reason}") from error
    folders = {folder for member in members for folder in _folders_above(member)}
    # Python 3.11 finds a package in a zip only if it has an __init__.py, so empty ones are added where the sources have
    # none.
    members = {f"{folder}/__init__.py": b"" for folder in folders} | members
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, source in sorted(members.items()):
            info = zipfile.ZipInfo(member, MEMBER_TIME)
            # The upper half of the attributes contains Unix permissions, without which unzip would make the files
            # unreadable.
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, source)
    return stream.getvalue(), targets


def choose_points(points: Iterable[EntryPoint]) -> dict[str, EntryPoint]:
    """Return the entry point for each kind of guarantee, sorted by kind.

    Raises:
        RegistryError: Two entry points claim the same kind, or an entry point does not have the form ``module:Part``.
    """
    points_by_kind: dict[str, EntryPoint] = {}
    # The order of installed distributions depends on the machine. The archive must not, so the entry points are sorted.
    for point in sorted(points, key=lambda point: (point.name, point.value)):
        if point.name in points_by_kind:
            owners = f"{_describe_point(points_by_kind[point.name])} and {_describe_point(point)}"
            raise RegistryError(f"the checker's part for {point.name!r} is registered by both {owners}; uninstall one")
        if TARGET.fullmatch(point.value) is None:
            raise RegistryError(f"{_describe_point(point)}: the checker's part for {point.name!r} must be module:Part")
        points_by_kind[point.name] = point
    return points_by_kind


def _check_owner(point: EntryPoint) -> None:
    """Check that no other distribution registers the notion or mechanism checked by a part of the checker.

    Raises:
        RegistryError: Another distribution registers it. The message names both distributions.
    """
    kind, _, mechanism = point.name.partition(".")
    entry: Entry[Any] | None = registry().mechanisms.get(mechanism) if mechanism else registry().of("notion").get(kind)
    # Any distribution may provide the part for one of the core's notions, or for a name that is not registered.
    if entry is None or entry.plugin == CORE_PLUGIN or point.dist is None:
        return
    if normalize_name(point.dist.name) != normalize_name(entry.plugin):
        raise RegistryError(
            f"the checker's part {point.name!r} is registered by {_describe_point(point)}, but "
            f"{entry.spec.name!r} belongs to {entry.origin}; uninstall one"
        )


def _match_target(point: EntryPoint) -> re.Match[str]:
    """Parse an entry point's value and return a match with the groups ``module`` and ``attribute``."""
    match = TARGET.fullmatch(point.value)
    assert match is not None  # choose_points has raised an error for any other value
    return match


def _describe_point(point: EntryPoint) -> str:
    """Describe an entry point for messages: its value, and the name and version of its distribution."""
    owner = "an unknown distribution" if point.dist is None else f"{point.dist.name} {point.dist.version}"
    return f"{owner} ({point.value})"


def _iter_sources(module: str) -> Iterator[tuple[str, bytes]]:
    """Yield the archive path and the source of each file that a module needs.

    These are all Python files in the module's package, or just the module's own file if it is not part of a package.

    Raises:
        ImportError: The module does not exist, or has no Python source.
    """
    spec = find_spec(module)
    if spec is None:
        raise ModuleNotFoundError(f"no module named {module}")
    # The part's module may be a package, a module in a package, or a top-level module.
    is_package = spec.submodule_search_locations is not None
    package = module if is_package else module.rpartition(".")[0]
    if package:
        yield from _iter_folder(package.replace(".", "/"), files(package))
        return
    if spec.origin is None or not spec.origin.endswith(".py") or not isinstance(spec.loader, ResourceLoader):
        raise ImportError(f"{module} has no source in Python")
    yield f"{module}.py", spec.loader.get_data(spec.origin)


def _iter_folder(path: str, folder: Traversable) -> Iterator[tuple[str, bytes]]:
    """Yield the archive path and the source of each Python file in a package's folder and its subfolders.

    Args:
        path: The folder's path in the archive.
        folder: The folder, which may itself be inside a zip file.
    """
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _iter_folder(f"{path}/{entry.name}", entry)
        elif entry.name.endswith(".py"):  # compiled files are omitted because they work with only one version of Python
            yield f"{path}/{entry.name}", entry.read_bytes()


def _folders_above(member: str) -> Iterator[str]:
    """Yield all parent folders of an archive member, such as ``a`` and ``a/b`` for ``a/b/c.py``."""
    parts = member.split("/")[:-1]
    return ("/".join(parts[: count + 1]) for count in range(len(parts)))
