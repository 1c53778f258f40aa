"""Imports run one way: a module imports only from floors above its own."""

import ast
import re
from pathlib import Path

import networkx as nx
import pytest

import privopt

PACKAGE = Path(privopt.__file__).parent
FLOORS = [
    "errors",
    "checker",
    "arrays",
    "files",
    "specs",
    "registry",
    "builtin",
    "declare",
    "execution",
    "dsl",
    "backends",
    "exact",
    "interfaces",
    "decompose",
    "noise",
    "run",
    "metric",
    "tables",
    "testing",
    "command",
    "__main__",
]
HEAVY = {"numpy", "sympy", "scipy", "mip", "highspy", "numba", "polars", "opendp", "networkx", "matplotlib", "narwhals"}
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def floor_of(path: Path) -> str:
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "privopt" if part == "__init__" else part


def imported(tree: ast.AST) -> list[tuple[str, bool]]:
    """(module, whether it is imported when the file is) of every privopt import; type checking blocks left out."""
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, top: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend((alias.name, top) for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, top))
        inner = top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, inner)

    visit(tree, True)
    return found


def test_the_top_of_the_house_stays_small():
    entries = [path for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    assert len(entries) <= 22, sorted(path.name for path in entries)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_file_imports_only_from_floors_above_it(path):
    own = floor_of(path)
    if own == "privopt":
        assert not [name for name, _ in imported(ast.parse(path.read_text())) if name.startswith("privopt.")]
        return
    assert own in FLOORS, f"{own} has no floor: name it in FLOORS and in docs/adr"
    for name, _ in imported(ast.parse(path.read_text())):
        if name == "privopt" or not name.startswith("privopt."):
            continue
        other = name.split(".")[1]
        assert FLOORS.index(other) <= FLOORS.index(own), f"{path.name} imports {name}, which stands on a lower floor"


@pytest.mark.parametrize("name", ["errors", "specs", "registry", "builtin", "command/cli"])
def test_what_list_loads_imports_nothing_heavy(name):
    tree = ast.parse((PACKAGE / f"{name}.py").read_text())
    assert not {module.split(".")[0] for module, top in imported(tree) if top} & HEAVY


def test_plugins_import_no_other_plugin():
    plugins = PACKAGE.parent / "plugins"
    if not plugins.is_dir():
        pytest.skip("no plugins beside this installation")
    for path in plugins.glob("*/src/*/**/*.py"):
        own = path.relative_to(plugins).parts[2]
        for name, _ in imported(ast.parse(path.read_text())):
            root = name.split(".")[0]
            assert not root.startswith("privopt_") or root == own, f"{path} imports {name}"
            assert "._" not in name or not name.startswith("privopt."), f"{path} imports the private {name}"


# --- circles ------------------------------------------------------------------------------------------

NAMED = re.compile(r"(privopt\w*(?:\.\w+)+)(?::\w+)?")
TARGETS = ("privopt_mechanisms", "privopt_kinds")
"""Functions whose strings name code that stands above them on purpose: the targets of specs."""


def all_modules():
    """Every module of privopt and its plugins, by dotted name."""
    roots = [PACKAGE, *(PACKAGE.parent / "plugins").glob("*/src/*")]
    found = {}
    for root in roots:
        for path in root.rglob("*.py"):
            parts = path.relative_to(root.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def reached(tree, known):
    """Modules that a file's code imports, now or later, or names in strings; type checking blocks left out."""
    found = set()

    def visit(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.FunctionDef) and node.name in TARGETS:
            return
        if isinstance(node, ast.Assign | ast.AnnAssign) and "ROLES" in ast.unparse(node).split("=")[0]:
            return  # base classes of kinds: beside the targets in specs
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update((inner & known) or {node.module})
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMED.fullmatch(node.value):
            found.add(NAMED.fullmatch(node.value)[1])
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found & known


def circles(graph):
    """Sets of files that import one another."""
    return [sorted(part) for part in nx.strongly_connected_components(nx.DiGraph(graph)) if len(part) > 1]


def test_no_circle_between_files():
    modules = all_modules()
    graph = {name: reached(ast.parse(path.read_text()), set(modules)) - {name} for name, path in modules.items()}
    assert len(graph) > 200
    assert circles(graph) == []


def test_a_circle_through_a_lazy_import_or_a_string_is_found():
    known = {"privopt.a", "privopt.b"}
    lazy = reached(ast.parse("def f():\n    from privopt.b import g"), known)
    named = reached(ast.parse('kit = "privopt.a:PROFILE"'), known)
    assert circles({"privopt.a": lazy, "privopt.b": named}) == [["privopt.a", "privopt.b"]]
