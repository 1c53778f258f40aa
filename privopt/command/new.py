"""``privopt new``: a plugin project whose tests pass as generated."""

from __future__ import annotations

import keyword
import shutil
import sys
import tempfile
from importlib.metadata import packages_distributions
from pathlib import Path
from string import Template
from typing import Final

from attrs import frozen

from privopt import __version__
from privopt.errors import UnknownNameError, UsageError
from privopt.registry import registry
from privopt.specs import MethodSpec

__all__ = ["KINDS", "new_plugin"]

TEMPLATES: Final = Path(__file__).parent / "templates"


@frozen
class Kind:
    """A kind of project: what its mechanism claims, and the files that no other kind has.

    Attributes:
        notion: registered notion.
        method: name of its one method.
        does: that method, in a line.
        files: by where they stand; templates of their own names.
    """

    notion: str
    method: str
    does: str
    files: tuple[str, ...]


OWN: Final = ("example.toml", "mechanism.py", "kit.py")

KINDS: Final = {
    "matrix": Kind("metric-dp", "lp", "the linear program, by CBC or HiGHS", OWN),
    "noise": Kind("pure-dp", "laplace", "discrete Laplace noise", (*OWN, "people.txt")),
    "selection": Kind("pure-dp", "exponential", "the exponential mechanism", (*OWN, "votes.csv")),
    "sampler": Kind("metric-dp", "shift", "discrete Laplace noise on a place", OWN),
}
"""What ``privopt new --kind`` takes."""


def new_plugin(name: str, into: Path, kind: str = "matrix") -> Path:
    """Write a plugin project called ``name`` into the folder ``into``/``name``.

    Args:
        name: of distribution, mechanism and package.
        into: folder that there is.
        kind: of :data:`KINDS`: what the mechanism releases.

    Returns:
        The project's folder.

    Raises:
        UsageError: no such kind, a name that cannot be a distribution, a mechanism and a package, or that is taken,
            by an installed package too.
    """
    if kind not in KINDS:
        raise UnknownNameError("kind of project", kind, KINDS)
    package, target = _package(name), into / name
    if target.exists():
        raise UsageError(f"new: {target} exists already")
    if not into.is_dir():
        raise UsageError(f"new: the folder {into} does not exist")
    cls = "".join(word.capitalize() for word in name.split("-"))
    chosen = KINDS[kind]
    words = {
        "name": name,
        "package": package,
        "cls": cls,
        "problem": f"{cls}Problem",
        "options": f"{cls}Options",
        "release": f"{cls}Release",
        "version": __version__,
        "notion": chosen.notion,
        "method": chosen.method,
        "does": chosen.does,
    }
    code = f"src/{package}/"
    files = {
        "pyproject.toml": "common/pyproject.toml",
        "README.md": "common/README.md",
        f"{code}__init__.py": "common/__init__.py",
        "tests/test_conformance.py": "common/test_conformance.py",
        **{(code if own.endswith(".py") else "") + own: f"{kind}/{own}" for own in chosen.files},
    }
    work = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=into))
    try:
        for path, template in files.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            text = (TEMPLATES / f"{template}.txt").read_text("utf-8")
            (work / path).write_text(Template(text).substitute(words), "utf-8")
        work.chmod(0o755)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _package(name: str) -> str:
    """The package of a distribution and mechanism that may be called so."""
    try:
        MethodSpec(name=name, summary="")
    except ValueError as error:
        raise UsageError(f"new: {error}") from None
    package = name.replace("-", "_")
    taken = {*sys.stdlib_module_names, *packages_distributions(), "privopt", "test", "tests"}
    if keyword.iskeyword(package) or package in taken:
        raise UsageError(f"new: {name!r} cannot be the name of a Python package; add a word to it")
    if name in registry().mechanisms:
        owner = registry().mechanisms[name]
        raise UsageError(f"new: a mechanism called {name!r} comes with {owner.plugin} already")
    return package
