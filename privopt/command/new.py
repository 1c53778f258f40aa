"""The ``privopt new`` command, which writes a plugin project from a template. The generated tests pass."""

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
from privopt.files.new_folder import check_parent
from privopt.registry import registry
from privopt.specs import MethodSpec
from privopt.version import VERSION

__all__ = ["new_plugin"]

COMMON: Final = resources(__package__) / "templates" / "common"
"""The folder of templates for the files that all kinds of project have in common."""


def new_plugin(name: str, into: Path, kind: str = "matrix") -> Path:
    """Write a plugin project called ``name`` to the folder ``into``/``name``.

    Args:
        name: The name of the distribution and of its mechanism. The package's name is derived from it.
        into: An existing folder.
        kind: The name of a registered template. Templates are named after what their mechanisms release.

    Returns:
        The project's folder.

    Raises:
        UsageError: The template or the folder ``into`` does not exist, ``into``/``name`` already exists, or the name is
            in use or is invalid for a distribution, mechanism or package.
    """
    templates = registry().of("template")
    if kind not in templates:
        raise UnknownNameError("kind of project", kind, templates)
    package, target = _choose_package(name), into / name
    if target.exists():
        raise UsageError(f"new: {target} exists already")
    if not into.is_dir():
        raise UsageError(f"new: the folder {into} does not exist")
    check_parent(target, "new:")
    cls = "".join(word.capitalize() for word in name.split("-"))
    template_spec = templates[kind].spec
    # The values of the placeholders $name, $package, ... in the templates.
    words = {
        "name": name,
        "package": package,
        "cls": cls,
        "problem": f"{cls}Problem",
        "options": f"{cls}Options",
        "release": f"{cls}Release",
        "version": VERSION,
        "notion": template_spec.notion,
        "method": template_spec.method,
        "does": template_spec.does,
        "needs": "".join(f', "{name}"' for name in template_spec.needs),
    }
    # The template of each file, keyed by the file's path in the project. Files of every project come before those of
    # this kind.
    code, folder = f"src/{package}/", resources(template_spec.package) / "templates" / kind
    files = {
        "pyproject.toml": COMMON / "pyproject.toml.txt",
        "README.md": COMMON / "README.md.txt",
        f"{code}py.typed": COMMON / "py.typed.txt",
        f"{code}__init__.py": COMMON / "__init__.py.txt",
        ".github/workflows/privacy.yml": COMMON / "privacy.yml.txt",
        "tests/test_conformance.py": COMMON / "test_conformance.py.txt",
        **{
            (code if file_name.endswith(".py") else "") + file_name: folder / f"{file_name}.txt"
            for file_name in template_spec.files
        },
    }
    # The files are written under a hidden name, which is changed in the end, so that the project appears whole or not
    # at all.
    work = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=into))
    try:
        for path, template in files.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(Template(template.read_text("utf-8")).substitute(words), "utf-8")
        work.chmod(0o755)  # mkdtemp creates folders that only the owner can access
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _choose_package(name: str) -> str:
    """Return the name of the Python package for a new distribution and mechanism called ``name``.

    Raises:
        UsageError: The name is invalid for a mechanism or a package, or is already in use.
    """
    try:
        # Names of mechanisms and methods obey the same rules.
        MethodSpec(name=name, summary="")
    except ValueError as error:
        raise UsageError(f"new: {error}") from None
    package = name.replace("-", "_")
    reserved_names = {*sys.stdlib_module_names, "privopt", "test", "tests"}
    # A mere folder of that name on the import path is also found. It has no __init__.py and therefore no origin.
    installed = PathFinder.find_spec(package)
    if (
        keyword.iskeyword(package)
        or package in reserved_names
        or (installed is not None and installed.origin is not None)
    ):
        raise UsageError(f"new: {name!r} cannot be the name of a Python package; add a word to it")
    if name in registry().mechanisms:
        owner = registry().mechanisms[name]
        raise UsageError(f"new: a mechanism called {name!r} comes with {owner.plugin} already")
    return package
