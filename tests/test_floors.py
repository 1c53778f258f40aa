"""Imports run one way: a module imports only from floors above its own."""

import ast
from pathlib import Path

import pytest

import privopt

PACKAGE = Path(privopt.__file__).parent
FLOORS = [
    "errors",
    "files",
    "archive",
    "specs",
    "registry",
    "builtin",
    "declare",
    "execution",
    "dsl",
    "backends",
    "exact",
    "interfaces",
    "notions",
    "decompose",
    "noise",
    "run",
    "metric",
    "testing",
    "command",
    "__main__",
]
HEAVY = {"numpy", "sympy", "scipy", "mip", "highspy", "numba", "polars", "opendp", "networkx", "matplotlib"}
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
