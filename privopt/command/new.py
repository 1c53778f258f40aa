"""``privopt new``: a plugin project whose tests pass as generated."""

from __future__ import annotations

import keyword
import shutil
import sys
import tempfile
from importlib.machinery import PathFinder
from importlib.resources import files as resources
from pathlib import Path
from string import Template
from typing import Final

from privopt.errors import UnknownNameError, UsageError
from privopt.registry import registry
from privopt.specs import MethodSpec
from privopt.version import VERSION

__all__ = ["new_plugin"]

COMMON: Final = resources(__package__) / "templates" / "common"
"""Files of every kind of project."""


def new_plugin(name: str, into: Path, kind: str = "matrix") -> Path:
    """Write a plugin project called ``name`` into the folder ``into``/``name``.

    Args:
        name: of distribution, mechanism and package.
        into: folder that there is.
        kind: name of a registered template: what the mechanism releases.

    Returns:
        The project's folder.

    Raises:
        UsageError: no such kind, a name that cannot be a distribution, a mechanism and a package, or that is taken,
            by an installed package too.
    """
    templates = registry().of("template")
    if kind not in templates:
        raise UnknownNameError("kind of project", kind, templates)
    package, target = _package(name), into / name
    if target.exists():
        raise UsageError(f"new: {target} exists already")
    if not into.is_dir():
        raise UsageError(f"new: the folder {into} does not exist")
    cls = "".join(word.capitalize() for word in name.split("-"))
    chosen = templates[kind].spec
    words = {
        "name": name,
        "package": package,
        "cls": cls,
        "problem": f"{cls}Problem",
        "options": f"{cls}Options",
        "release": f"{cls}Release",
        "version": VERSION,
        "notion": chosen.notion,
        "method": chosen.method,
        "does": chosen.does,
        "needs": "".join(f', "{name}"' for name in chosen.needs),
    }
    code, folder = f"src/{package}/", resources(chosen.package) / "templates" / kind
    files = {
        "pyproject.toml": COMMON / "pyproject.toml.txt",
        "README.md": COMMON / "README.md.txt",
        f"{code}py.typed": COMMON / "py.typed.txt",
        f"{code}__init__.py": COMMON / "__init__.py.txt",
        "tests/test_conformance.py": COMMON / "test_conformance.py.txt",
        **{(code if own.endswith(".py") else "") + own: folder / f"{own}.txt" for own in chosen.files},
    }
    work = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=into))
    try:
        for path, template in files.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(Template(template.read_text("utf-8")).substitute(words), "utf-8")
        work.chmod(0o755)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _package(name: str) -> str:
    """Return the package of a distribution and mechanism that may be called so."""
    try:
        MethodSpec(name=name, summary="")
    except ValueError as error:
        raise UsageError(f"new: {error}") from None
    package = name.replace("-", "_")
    taken = {*sys.stdlib_module_names, "privopt", "test", "tests"}
    installed = PathFinder.find_spec(package)  # a folder in the path that is no package has no origin
    if keyword.iskeyword(package) or package in taken or (installed is not None and installed.origin is not None):
        raise UsageError(f"new: {name!r} cannot be the name of a Python package; add a word to it")
    if name in registry().mechanisms:
        owner = registry().mechanisms[name]
        raise UsageError(f"new: a mechanism called {name!r} comes with {owner.plugin} already")
    return package
