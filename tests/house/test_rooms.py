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
    begun,
    circles,
    floor_of,
    imported_names,
    imports,
    modules,
    named_in,
    outside,
    parents,
    resolved,
    room_of,
    trees,
)

HEAVY = {"numpy", "sympy", "scipy", "mip", "highspy", "numba", "polars", "opendp", "networkx", "matplotlib", "narwhals"}
STOREYS = [name for name in modules() if name.split(".")[0] in FLOORS and room_of(name) not in APART]
DEPENDS = {
    "privopt_bd_mdp": {METRIC},
    "privopt_clients": {METRIC},
    "privopt_lr_geo": {METRIC},
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


def runs_up(module, other):
    """Tell whether a module imports from a higher floor, or from another room of its own floor."""
    own, its = floor_of(module), floor_of(other)
    return own is None or its is None or its > own or (its == own and room_of(module) != room_of(other))


def upwards(name):
    """Yield imports of a module that run up, but for those that are allowed."""
    for one in imports()[name]:
        travels = one.when == "named" and room_of(one.module) in APART  # their files travel in pages
        types = one.when == "typed" and name in TYPES_OF_PLUGINS
        if runs_up(name, one.module) and not travels and not types:
            yield one


def test_every_module_imports_from_floors_below_alone():
    assert {name: up for name in STOREYS if (up := sorted(upwards(name)))} == {}


def test_every_room_has_a_floor():
    """Named in rooms.py and in docs/guide/house.md; there is none besides."""
    there = {room_of(name) for name in STOREYS}
    assert {f"{package}.{room}" for package in FLOORS for floor in FLOORS[package] for room in floor} == there


def test_an_import_that_runs_up_is_found():
    assert runs_up("privopt.declare.toml", "privopt.run.solve")
    assert runs_up("privopt.declare.toml", "privopt.numbers.noise")
    assert runs_up("privopt.run.solve", "privopt_metric_dp.space.places")
    assert runs_up("privopt.run.solve", "privopt.checker")
    assert runs_up("privopt.run.solve", "privopt.attic.trunk")
    assert not runs_up("privopt_metric_dp.space.places", "privopt.command.cli")
    assert not runs_up("privopt.declare.toml", "privopt.declare.tables")


def test_the_top_of_the_core_stays_small():
    rooms = {room_of(name) for name in modules() if name.split(".")[0] == "privopt"}
    assert len(rooms) <= 26, sorted(rooms)  # privopt.sql among them: users import it by this name


# --- storeys: core, metric DP, papers -------------------------------------------------------------------


def packages(name):
    """Top packages of the house that a module imports, for whatever purpose, in strings too, and targets of specs.

    A mechanism's handle may be missing: the core sees to it.
    """
    text = re.sub(r"^ *handle\b.*", "", modules()[name].read_text("utf-8"), flags=re.MULTILINE)
    targets = {found.split(".")[0] for found in re.findall(r"\bprivopt_\w+(?=[.:]\w)", text)}
    found = {one.module.split(".")[0] for one in imports()[name]} | targets
    return found & {other.split(".")[0] for other in modules()}


def test_the_core_imports_no_plugin():
    core = [name for name in modules() if name.split(".")[0] == "privopt"]
    found = {name: {one for one in imports()[name] if not one.module.startswith("privopt.")} for name in core}
    found = {name: {one for one in ones if one.module != "privopt"} for name, ones in found.items()}
    assert {name for name, ones in found.items() if ones} <= TYPES_OF_PLUGINS
    assert {one.when for name in TYPES_OF_PLUGINS for one in found[name]} == {"typed"}


def names_metric_dp(tree):
    """Whether a string of a file, docstrings left out, names metric DP or what comes with it."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return any(OF_METRIC_DP.search(node.value) for node in strings if id(node) not in prose)


def test_the_core_knows_nothing_of_metric_dp():
    found = {name for name, tree in trees().items() if name.split(".")[0] == "privopt" and names_metric_dp(tree)}
    assert found == KNOWS_METRIC_DP


@pytest.mark.parametrize(
    "text", ["x = 'metric-dp'", "x = f'install privopt-metric-dp for {y}'", "f(MetricData='optimal-lp')"]
)
def test_a_string_that_names_metric_dp_is_found(text):
    assert names_metric_dp(ast.parse(text))
    assert not names_metric_dp(ast.parse('"""Says metric-dp."""\nx = "pure-dp"'))


@pytest.mark.parametrize("plugin", sorted(PLUGINS.glob("*/pyproject.toml")), ids=lambda path: path.parent.name)
def test_a_plugin_stands_on_the_core_and_what_it_depends_on(plugin):
    (package,) = (path.name for path in (plugin.parent / "src").iterdir() if (path / "__init__.py").is_file())
    own = [name for name in modules() if name.split(".")[0] == package]
    used = set.union(*map(packages, own)) - {package, "privopt"}
    assert used == DEPENDS.get(package, set())
    needed = [re.match(r"[\w-]+", line)[0] for line in tomllib.loads(plugin.read_text())["project"]["dependencies"]]
    assert {name.replace("-", "_") for name in needed if name.startswith("privopt")} == used | {"privopt"}


def private(name):
    """Names with an underscore that a module imports of another package of the house."""
    for names, _ in named_in(name):
        package = names[0].split(".")[0]
        if package.startswith("privopt") and package != name.split(".")[0]:
            yield from (names[0] for part in names[0].split(".") if part.startswith("_") and not part.endswith("__"))


def test_plugins_import_no_private_name():
    found = {name: list(private(name)) for name in modules() if name.split(".")[0] != "privopt"}
    assert {name: names for name, names in found.items() if names} == {}


def test_what_stands_apart_imports_the_standard_library_alone():
    for name in modules():
        if room_of(name) in APART:
            others = {names[-1].split(".")[0] for names, when in named_in(name) if when != "named"}
            beside = {other.rpartition(".")[2] for other in modules() if room_of(other) in APART}  # run by their paths
            assert others <= sys.stdlib_module_names | beside | FLOORS.keys(), name
            assert {room_of(one.module) for one in imports()[name]} <= APART, name


# --- what `list` loads ----------------------------------------------------------------------------------


def entry_points():
    """Modules that plugins' entry points name, and the core's."""
    for path in (PACKAGE.parent / "pyproject.toml", *PLUGINS.glob("*/pyproject.toml")):
        yield from tomllib.loads(path.read_text())["project"]["entry-points"]["privopt"].values()


def test_what_list_loads_imports_nothing_heavy():
    graph = nx.DiGraph(begun(imports()))
    loaded = set()
    for first in ("privopt.command.cli", "privopt.registry", *entry_points()):
        loaded |= {first, *nx.descendants(graph, first)}
    loaded |= {package for name in loaded for package in parents(name)}
    assert len(loaded) > 15
    assert {name: found for name in sorted(loaded) if (found := outside(name) & HEAVY)} == {}


# --- circles ------------------------------------------------------------------------------------------


def test_no_circle_between_files():
    graph = {name: {one.module for one in ones} for name, ones in imports().items()}
    assert len(graph) > 400
    assert circles(graph) == []


def test_a_circle_through_a_lazy_import_a_type_or_a_string_is_found():
    def found(source):
        return resolved(imported_names(ast.parse(source)), {"privopt.a": "", "privopt.b": ""})

    lazy = found("def f():\n    from privopt.b import g")
    typed = found("if TYPE_CHECKING:\n    import privopt.a")
    named = found('target = "privopt.a:PROFILE"')
    assert [one.when for (one,) in (lazy, typed, named)] == ["later", "typed", "named"]
    assert found('def privopt_kinds():\n    return ["privopt.a:A"]\nkit = "privopt.a:B"') == set()
    for back in (typed, named):
        graph = {"privopt.a": {one.module for one in lazy}, "privopt.b": {one.module for one in back}}
        assert circles(graph) == [["privopt.a", "privopt.b"]]


def test_any_module_can_be_imported_first():
    assert circles(begun(imports())) == []


def test_a_circle_through_a_package_is_found():
    def found(sources):
        return circles(
            begun({name: resolved(imported_names(ast.parse(source)), sources) for name, source in sources.items()})
        )

    sources = {"a": "", "a.checks": "from a.checks import one", "a.checks.one": "from a.places import Place"}
    assert found({**sources, "a.places": "import a"}) == []
    assert found({**sources, "a.places": "from a.checks.two import x", "a.checks.two": ""}) == [
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
    done = subprocess.run(
        command, input=json.dumps(names), capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}
