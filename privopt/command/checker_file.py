"""Build the file of ``privopt checker``: a zip that checks a release folder where privopt is not installed."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

CORE: Final = "privopt.checker"

GROUP: Final = "privopt.checkers"
"""As :mod:`privopt.checker.run` has it, of which nothing is imported."""

FIRST: Final = (1980, 1, 1, 0, 0, 0)
"""Time of each member: the least that an archive holds, so that two files of the same sources are equal."""

MAIN: Final = '''"""Checks a folder of privopt: ``python -I {name} DIR``; its sources are in this archive."""

import sys

from {core}.run import main

PARTS = {parts!r}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], PARTS))
'''


def checker_file(name: str) -> tuple[bytes, Mapping[str, str]]:
    """Make the file: a zip archive that Python runs, of the checker's sources and those of all installed parts.

    A part's whole package is taken: it imports the standard library, the checker and itself alone.

    Args:
        name: of the file, for its help.

    Returns:
        Its bytes, equal for equal sources; and the parts, by the kind of guarantee that they know.
    """
    parts = {point.name: point.value for point in entry_points(group=GROUP)}
    parts = dict(sorted(parts.items()))
    packages = {CORE, *(value.partition(":")[0].rpartition(".")[0] for value in parts.values())}
    members = {"__main__.py": MAIN.format(name=name, core=CORE, parts=parts)}
    for package in packages:
        above = package.split(".")[:-1]
        members |= {f"{'/'.join(above[: n + 1])}/__init__.py": "" for n in range(len(above))}
    for package in packages:
        members |= dict(_sources(package.replace(".", "/"), files(package)))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in sorted(members.items()):
            info = zipfile.ZipInfo(member, FIRST)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, text)
    return stream.getvalue(), parts


def _sources(path: str, folder: Traversable) -> Iterator[tuple[str, str]]:
    for each in folder.iterdir():
        if each.is_dir() and each.name != "__pycache__":
            yield from _sources(f"{path}/{each.name}", each)
        elif each.name.endswith(".py"):
            yield f"{path}/{each.name}", each.read_text("utf-8")
