"""What travels in the plugins' wheels: the mechanism and nothing besides."""

import ast
import re
import runpy
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from privopt.checker.parts import GROUP as PARTS
from privopt.registry import registry
from privopt.specs import GROUP, RoleSpec, TemplateSpec

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml") if (path.parent / "src").is_dir())
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


def unused_modules(package, commands=()):
    """Modules that neither the package itself nor one of its commands reaches."""
    modules = modules_of(package)
    pending, reachable = [package.name, *commands], set()
    while pending:
        name = pending.pop()
        if name in modules and name not in reachable:
            reachable.add(name)
            pending += [*names_in(modules[name]), name.rpartition(".")[0]]  # a package is imported before what is in it
    return sorted(set(modules) - reachable)


def registered_modules(distribution):
    """Modules of what a distribution registers, whose names its hooks may put together, and the one of the hooks."""
    installed, targets = registry(), []
    specs = [entry.spec for entry in installed.entries.values() if entry.plugin == distribution]
    specs = [spec for spec in specs if not isinstance(spec, TemplateSpec)]
    targets += [spec.base if isinstance(spec, RoleSpec) else spec.target for spec in specs]
    points = [*entry_points(group=GROUP), *entry_points(group=PARTS)]
    hooks = [point.value for point in points if point.dist.name == distribution]
    return [target.partition(":")[0] for target in (*hooks, *targets)]


@pytest.mark.parametrize("plugin", PLUGINS, ids=IDS)
def test_wheels_have_no_unused_module(plugin):
    """The paper's tables, and data made for them, belong into the folder experiments."""
    (package,) = (path for path in (plugin / "src").iterdir() if (path / "__init__.py").is_file())
    commands = re.findall(r"python -m ([\w.]+)", (plugin / "README.md").read_text("utf-8"))
    project = tomllib.loads((plugin / "pyproject.toml").read_text("utf-8"))["project"]
    commands += [target.partition(":")[0] for target in project.get("scripts", {}).values()]
    commands += [f"{package.name}.__main__"] if project.get("scripts") else []  # the same by "python -m"
    guides = "".join(page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md"))
    # to whoever builds on it, or tests what is like it
    names_in_guides = re.findall(rf"\b{package.name}(?:\.\w+)+", guides)
    assert unused_modules(package, [*commands, *registered_modules(project["name"]), *names_in_guides]) == []


@pytest.mark.parametrize("plugin", PLUGINS, ids=IDS)
def test_wheel_holds_only_the_package(plugin):
    built = tomllib.loads((plugin / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert built == {"packages": [f"src/privopt_{plugin.name.replace('-', '_')}"]}


def test_finds_unused_modules(tmp_path):
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").write_text('TARGET = "toy.mechanism:Toy"\n')
    (package / "mechanism.py").write_text("from toy import noise\n")
    (package / "noise.py").write_text("")
    (package / "tables.py").write_text("from toy.noise import draw\n")
    assert unused_modules(package) == ["toy.tables"]
    assert unused_modules(package, ["toy.tables"]) == []


LIBRARIES = {"flint": "python-flint", "sklearn": "scikit-learn", "PIL": "pillow", "tomli_w": "tomli-w"}
"""Modules whose distribution has another name."""
NOT_IMPORTED = {"cffi", "tzdata"}
"""python-mip loads CBC through cffi; zoneinfo reads tzdata."""
OPTIONAL = {"cycler", "dp_accounting", "duckdb", "onnxruntime", "opendp", "osmium", "pillow_heif", "pyarrow", "pytest"}
"""Modules that are imported where their user has them anyway, and what matplotlib brings."""


def libraries_imported(package):
    """Return the distributions of other projects that the modules of a package import, late imports included."""
    top_packages = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            else:
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            top_packages |= {name.partition(".")[0] for name in names}
    top_packages = {
        name for name in top_packages if name not in sys.stdlib_module_names and not name.startswith("privopt")
    }
    return {LIBRARIES.get(name, name) for name in top_packages - OPTIONAL}


@pytest.mark.parametrize("folder", [ROOT, *PLUGINS], ids=["core", *IDS])
def test_distribution_requires_what_it_imports(folder):
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    (package,) = [ROOT / "privopt"] if folder == ROOT else (folder / "src").glob("privopt_*")
    extras = {row for rows in project.get("optional-dependencies", {}).values() for row in rows}
    required = {Requirement(row).name for row in project["dependencies"]}
    allowed_requirements = required | {Requirement(row).name for row in extras} if folder == ROOT else required
    imported = libraries_imported(package)
    assert imported <= allowed_requirements
    assert {name for name in required if not name.startswith("privopt")} - NOT_IMPORTED <= imported


README = """# Page
See [the guide](docs/guide.md), [the index](https://example.org/a) and [below](#below).
![a map](img/map.png) [![badge](img/badge.png)](docs/ci.md)
"""


def test_readme_of_wheel_has_no_relative_link(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / ".ci")
    render = runpy.run_path(str(ROOT / ".ci" / "wheels.py"))["render_readme"]
    bare = render(README, "plugins/toy", "")
    assert "[the index](https://example.org/a)" in bare
    assert "See the guide," in bare
    assert "img/" not in bare
    assert "[below](#below)" in bare
    linked = render(README, "plugins/toy", "https://example.org/files/")
    assert "[the guide](https://example.org/files/plugins/toy/docs/guide.md)" in linked
    assert "![a map](https://example.org/files/plugins/toy/img/map.png)" in linked
    for page in [ROOT / "README.md", *(ROOT / "plugins").glob("*/README.md")]:
        targets = re.findall(r"\]\(([^()\s]+)\)", render(page.read_text("utf-8"), ".", ""))
        assert [target for target in targets if not re.match(r"https?:|#", target)] == []
