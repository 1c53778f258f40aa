"""What travels in the plugins' wheels: the mechanism and nothing besides."""

import ast
import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from privopt.checker.parts import GROUP as PARTS
from privopt.registry import registry
from privopt.specs import GROUP, RoleSpec, TemplateSpec

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))
IDS = [path.name for path in PLUGINS]


def modules_of(package):
    """Dotted name -> file of every module of a package."""
    dotted = {
        path: ".".join((package.name, *path.relative_to(package).with_suffix("").parts))
        for path in package.rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for path, name in dotted.items()}


def names_in(path):
    """Whatever a file imports, and strings: targets such as ``"package.module:Thing"`` are loaded later."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.split(":")[0]


def unused(package, commands=()):
    """Modules that neither the package itself nor one of its commands reaches."""
    modules = modules_of(package)
    left, reached = [package.name, *commands], set()
    while left:
        name = left.pop()
        if name in modules and name not in reached:
            reached.add(name)
            left += [*names_in(modules[name]), name.rpartition(".")[0]]  # a package is imported before what is in it
    return sorted(set(modules) - reached)


def registered(distribution):
    """Modules of what a distribution registers, whose names its hooks may put together, and the one of the hooks."""
    found, targets = registry(), []
    specs = [entry.spec for entry in found.entries.values() if entry.plugin == distribution]
    specs = [spec for spec in specs if not isinstance(spec, TemplateSpec)]
    targets += [spec.base if isinstance(spec, RoleSpec) else spec.target for spec in specs]
    points = [*entry_points(group=GROUP), *entry_points(group=PARTS)]
    hooks = [point.value for point in points if point.dist.name == distribution]
    return [target.partition(":")[0] for target in (*hooks, *targets)]


@pytest.mark.parametrize("plugin", PLUGINS, ids=IDS)
def test_no_module_travels_that_the_mechanism_does_not_use(plugin):
    """The paper's tables, and data made for them, belong into the folder experiments."""
    (package,) = (path for path in (plugin / "src").iterdir() if (path / "__init__.py").is_file())
    commands = re.findall(r"python -m ([\w.]+)", (plugin / "README.md").read_text("utf-8"))
    project = tomllib.loads((plugin / "pyproject.toml").read_text("utf-8"))["project"]
    commands += [target.partition(":")[0] for target in project.get("scripts", {}).values()]
    commands += [f"{package.name}.__main__"] if project.get("scripts") else []  # the same by "python -m"
    guides = "".join(page.read_text("utf-8") for page in (ROOT / "docs/guide").glob("*.md"))
    shown = re.findall(rf"\b{package.name}(?:\.\w+)+", guides)  # to whoever builds on it, or tests what is like it
    assert unused(package, [*commands, *registered(project["name"]), *shown]) == []


@pytest.mark.parametrize("plugin", PLUGINS, ids=IDS)
def test_a_wheel_holds_the_package_alone(plugin):
    built = tomllib.loads((plugin / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert built == {"packages": [f"src/privopt_{plugin.name.replace('-', '_')}"]}


def test_a_module_that_nothing_uses_is_found(tmp_path):
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").write_text('TARGET = "toy.mechanism:Toy"\n')
    (package / "mechanism.py").write_text("from toy import noise\n")
    (package / "noise.py").write_text("")
    (package / "tables.py").write_text("from toy.noise import draw\n")
    assert unused(package) == ["toy.tables"]
    assert unused(package, ["toy.tables"]) == []
