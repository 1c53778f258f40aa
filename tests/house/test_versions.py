"""The distributions of the project have one version, and each requires the others of that version."""

import tomllib

import pytest
from helpers.rooms import PACKAGE, PLUGINS
from packaging.requirements import Requirement

from privopt.registry.missing import CORE
from privopt.version import VERSION

pytestmark = pytest.mark.skipif(not PLUGINS.is_dir(), reason="no plugins beside this installation")


def projects():
    files = [PACKAGE.parent / "pyproject.toml", *sorted(PLUGINS.glob("*/pyproject.toml"))]
    return [tomllib.loads(path.read_text("utf-8"))["project"] for path in files]


def test_distributions_have_the_version_of_the_core():
    assert {project["name"]: project["version"] for project in projects() if project["version"] != VERSION} == {}


def test_distributions_require_the_same_version():
    """The distribution ``privopt`` has no code and brings the core with all others."""
    names = {project["name"] for project in projects()}
    assert len(names) == 12
    for project in projects():
        extras = project.get("optional-dependencies", {})
        rows = [*project["dependencies"], *(row for rows in extras.values() for row in rows)]
        requirements = [requirement for requirement in map(Requirement, rows) if requirement.name in names]
        assert {str(requirement.specifier) for requirement in requirements} <= {f"=={VERSION}"}
        assert project["name"] == CORE or CORE in {requirement.name for requirement in requirements}
    everything = next(project for project in projects() if project["name"] == "privopt")
    assert everything["dependencies"] == [f"{CORE}[all]=={VERSION}"]
    core = next(project for project in projects() if project["name"] == CORE)
    assert {Requirement(row).name for row in core["optional-dependencies"]["all"]} == names - {CORE, "privopt"}
