"""Rooms stand on floors, imports run downwards only, and metric DP is a plugin: held by what every file imports."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib

import networkx as nx
import pytest
from helpers.rooms import (
    APART,
    FLOORS,
    METRIC,
    PACKAGE,
    PLUGINS,
    circles,
    floor_of,
    import_graph,
    imported_names,
    imports,
    modules,
    named_in,
    other_packages,
    parents,
    resolve_names,
    room_of,
    trees,
)

HEAVY = {
    "numpy",
    "sympy",
    "scipy",
    "mip",
    "highspy",
    "numba",
    "polars",
    "opendp",
    "networkx",
    "matplotlib",
    "narwhals",
    "jinja2",
}
STOREYS = [name for name in modules() if name.split(".")[0] in FLOORS and room_of(name) not in APART]
DEPENDS = {
    "privopt_bd_mdp": {METRIC},
    "privopt_clients": {METRIC},
    "privopt_lr_geo": {METRIC},
    "privopt_spherical_laplace": {METRIC},
    "privopt_tables": {METRIC},
}
"""Plugins that stand on other plugins; all others stand on the core alone."""
TYPES_OF_PLUGINS = {"privopt", "privopt.api.released", "privopt.sql"}
"""Modules of the core that import plugins, for types alone: type checkers then know ``privopt.records``."""
KNOWS_METRIC_DP = {"privopt.command.cli"}
"""Modules of the core whose strings name metric DP: messages, kinds of projects."""
OF_METRIC_DP = re.compile(
    r"privopt[-_]metric|metric[-_]dp|trace-dp|optimal-lp|Metric(Data|Problem|Mechanism)", re.IGNORECASE
)

pytestmark = pytest.mark.skipif(not PLUGINS.is_dir(), reason="no plugins beside this installation")


# --- floors -------------------------------------------------------------------------------------------


def runs_up(module, imported_module):
    """Tell whether a module imports from a higher floor, or from another room of its own floor."""
    module_floor, imported_floor = floor_of(module), floor_of(imported_module)
    return (
        module_floor is None
        or imported_floor is None
        or imported_floor > module_floor
        or (imported_floor == module_floor and room_of(module) != room_of(imported_module))
    )


def upwards(name):
    """Yield imports of a module that run up, but for those that are allowed."""
    for import_ in imports()[name]:
        travels = import_.when == "named" and room_of(import_.module) in APART  # their files travel in pages
        types = import_.when == "typed" and name in TYPES_OF_PLUGINS
        if runs_up(name, import_.module) and not travels and not types:
            yield import_


def test_modules_import_only_from_floors_below():
    assert {name: upward_imports for name in STOREYS if (upward_imports := sorted(upwards(name)))} == {}


def test_every_package_has_a_floor():
    """Named in rooms.py and in docs/guide/house.md; there is none besides."""
    actual_packages = {room_of(name) for name in STOREYS}
    assert {
        f"{package}.{package_name}" for package in FLOORS for floor in FLOORS[package] for package_name in floor
    } == actual_packages


def test_finds_upward_imports():
    assert runs_up("privopt.declare.toml", "privopt.run.solve")
    assert runs_up("privopt.declare.toml", "privopt.numbers.noise")
    assert runs_up("privopt.run.solve", "privopt_metric_dp.space.places")
    assert runs_up("privopt.run.solve", "privopt.checker")
    assert runs_up("privopt.run.solve", "privopt.attic.trunk")
    assert not runs_up("privopt_metric_dp.space.places", "privopt.command.cli")
    assert not runs_up("privopt.declare.toml", "privopt.declare.tables")


def test_top_of_the_core_stays_small():
    rooms = {room_of(name) for name in modules() if name.split(".")[0] == "privopt"}
    assert len(rooms) <= 26, sorted(rooms)  # privopt.sql among them: users import it by this name


# --- storeys: core, metric DP, papers -------------------------------------------------------------------


def packages(name):
    """Top packages of the house that a module imports, for whatever purpose, in strings too, and targets of specs.

    A mechanism's handle may be missing: the core sees to it.
    """
    text = re.sub(r"^ *handle\b.*", "", modules()[name].read_text("utf-8"), flags=re.MULTILINE)
    targets = {package_names.split(".")[0] for package_names in re.findall(r"\bprivopt_\w+(?=[.:]\w)", text)}
    package_names = {import_.module.split(".")[0] for import_ in imports()[name]} | targets
    return package_names & {module_name.split(".")[0] for module_name in modules()}


def test_core_imports_no_plugin():
    core = [name for name in modules() if name.split(".")[0] == "privopt"]
    imports_by_module = {
        name: {import_ for import_ in imports()[name] if not import_.module.startswith("privopt.")} for name in core
    }
    imports_by_module = {
        name: {import_ for import_ in plugin_imports if import_.module != "privopt"}
        for name, plugin_imports in imports_by_module.items()
    }
    assert {name for name, plugin_imports in imports_by_module.items() if plugin_imports} <= TYPES_OF_PLUGINS
    assert {import_.when for name in TYPES_OF_PLUGINS for import_ in imports_by_module[name]} == {"typed"}


def names_metric_dp(tree):
    """Whether a string of a file, docstrings left out, names metric DP or what comes with it."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return any(OF_METRIC_DP.search(node.value) for node in strings if id(node) not in prose)


def test_core_knows_nothing_of_metric_dp():
    module_names = {name for name, tree in trees().items() if name.split(".")[0] == "privopt" and names_metric_dp(tree)}
    assert module_names == KNOWS_METRIC_DP


@pytest.mark.parametrize(
    "text", ["x = 'metric-dp'", "x = f'install privopt-metric-dp for {y}'", "f(MetricData='optimal-lp')"]
)
def test_finds_strings_that_name_metric_dp(text):
    assert names_metric_dp(ast.parse(text))
    assert not names_metric_dp(ast.parse('"""Says metric-dp."""\nx = "pure-dp"'))


WITH_CODE = sorted(path.parent for path in PLUGINS.glob("*/pyproject.toml") if (path.parent / "src").is_dir())


@pytest.mark.parametrize("plugin", WITH_CODE, ids=lambda path: path.name)
def test_plugins_import_only_their_dependencies(plugin):
    (package,) = (path.name for path in (plugin / "src").iterdir() if (path / "__init__.py").is_file())
    own_modules = [name for name in modules() if name.split(".")[0] == package]
    used_packages = set.union(*map(packages, own_modules)) - {package, "privopt"}
    assert used_packages == DEPENDS.get(package, set())
    requirements = [
        re.match(r"[\w-]+", line)[0]
        for line in tomllib.loads((plugin / "pyproject.toml").read_text())["project"]["dependencies"]
    ]
    assert {name.replace("-", "_") for name in requirements if name.startswith("privopt")} == used_packages | {
        "privopt_core"
    }


def private(name):
    """Names with an underscore that a module imports of another package of the house."""
    for names, _ in named_in(name):
        package = names[0].split(".")[0]
        if package.startswith("privopt") and package != name.split(".")[0]:
            yield from (names[0] for part in names[0].split(".") if part.startswith("_") and not part.endswith("__"))


def test_plugins_import_no_private_name():
    private_names = {name: list(private(name)) for name in modules() if name.split(".")[0] != "privopt"}
    assert {name: names for name, names in private_names.items() if names} == {}


def test_separate_modules_use_the_standard_library():
    for name in modules():
        if room_of(name) in APART:
            other_packages = {names[-1].split(".")[0] for names, kind in named_in(name) if kind != "named"}
            # run by their paths
            sibling_names = {
                module_name.rpartition(".")[2] for module_name in modules() if room_of(module_name) in APART
            }
            assert other_packages <= sys.stdlib_module_names | sibling_names | FLOORS.keys(), name
            assert {room_of(import_.module) for import_ in imports()[name]} <= APART, name


# --- what `list` loads ----------------------------------------------------------------------------------


def entry_points():
    """Modules that plugins' entry points name, and the core's."""
    for path in (PACKAGE.parent / "pyproject.toml", *PLUGINS.glob("*/pyproject.toml")):
        project = tomllib.loads(path.read_text())["project"]
        yield from project.get("entry-points", {}).get("privopt", {}).values()  # none in the one that has no code


def test_list_imports_nothing_heavy():
    graph = nx.DiGraph(import_graph(imports()))
    loaded_modules = set()
    for first in ("privopt.command.cli", "privopt.registry", *entry_points()):
        loaded_modules |= {first, *nx.descendants(graph, first)}
    loaded_modules |= {package for name in loaded_modules for package in parents(name)}
    assert len(loaded_modules) > 15
    assert {name: heavy for name in sorted(loaded_modules) if (heavy := other_packages(name) & HEAVY)} == {}


# --- circles ------------------------------------------------------------------------------------------


def test_files_have_no_circle():
    graph = {name: {import_.module for import_ in imports_of_file} for name, imports_of_file in imports().items()}
    assert len(graph) > 400
    assert circles(graph) == []


def test_finds_circles_of_any_import():
    def resolve_imports(source):
        return resolve_names(imported_names(ast.parse(source)), {"privopt.a": "", "privopt.b": ""})

    lazy = resolve_imports("def f():\n    from privopt.b import g")
    typed = resolve_imports("if TYPE_CHECKING:\n    import privopt.a")
    string_import = resolve_imports('target = "privopt.a:PROFILE"')
    assert [import_.when for (import_,) in (lazy, typed, string_import)] == ["later", "typed", "named"]
    assert resolve_imports('def privopt_kinds():\n    return ["privopt.a:A"]\nkit = "privopt.a:B"') == set()
    for way_back in (typed, string_import):
        graph = {
            "privopt.a": {import_.module for import_ in lazy},
            "privopt.b": {import_.module for import_ in way_back},
        }
        assert circles(graph) == [["privopt.a", "privopt.b"]]


def test_any_module_can_be_imported_first():
    assert circles(import_graph(imports())) == []


def test_finds_circles_through_a_package():
    def find_circles(sources):
        return circles(
            import_graph(
                {name: resolve_names(imported_names(ast.parse(source)), sources) for name, source in sources.items()}
            )
        )

    sources = {"a": "", "a.checks": "from a.checks import one", "a.checks.one": "from a.places import Place"}
    assert find_circles({**sources, "a.places": "import a"}) == []
    assert find_circles({**sources, "a.places": "from a.checks.two import x", "a.checks.two": ""}) == [
        ["a.checks", "a.checks.one", "a.places"]
    ]


SERVER = """
import importlib, json, os, sys
for name in ("attrs", "hypothesis", "networkx", "numba", "numpy", "polars", "pytest", "scipy.stats", "sympy"):
    importlib.import_module(name)
failed = {}
for name in json.load(sys.stdin):
    ours, theirs = os.pipe()
    if not os.fork():
        try:
            importlib.import_module(name)
        except BaseException as error:
            os.write(theirs, repr(error).encode()[:4096])
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as told:
        said = told.read().decode()
    code = os.wait()[1]
    if said or code:
        failed[name] = said or f"wait status {code}"
json.dump(failed, sys.stdout)
"""
"""Imports each module in a process of its own, forked from one that has imported nothing but others' libraries."""


@pytest.mark.slow
def test_each_module_is_imported_alone():
    """Some 500 modules at 0.3 s of a processor, most of it their classes and formulas."""
    examples = PACKAGE.parent / "docs" / "examples"
    third = sorted(examples.glob("third-party*/src/*/[!_]*.py"))
    names = [*modules(), "noisy_max", "subset_selection", *(f"{path.parent.name}.{path.stem}" for path in third)]
    names = [name for name in names if not name.endswith("__main__")]
    path = os.pathsep.join(map(str, [examples, *examples.glob("third-party*/src")]))
    environment = os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", SERVER]
    completed = subprocess.run(
        command, input=json.dumps(names), capture_output=True, text=True, env=environment, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout) == {}
