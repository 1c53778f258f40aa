"""Read what imports what: the modules of privopt and of its plugins, their rooms and the floors that rooms stand on.

A room is a folder or a file at the top of a package. Every file is read and parsed once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import networkx as nx

import privopt

PACKAGE: Final = Path(privopt.__file__).parent
PLUGINS: Final = PACKAGE.parent / "plugins"
METRIC: Final = "privopt_metric_dp"

FLOORS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "privopt": (
        ("errors", "arrays", "specs", "version"),
        ("files", "execution"),
        ("registry", "builtin"),
        ("declare", "numbers", "dsl"),
        ("backends", "interfaces"),
        ("search", "decompose", "ledger"),
        ("run",),
        ("report",),
        ("estimate",),
        ("testing",),
        ("api",),
        ("sql",),
        ("command", "__init__"),
        ("__main__",),
    ),
    METRIC: (
        ("space",),
        ("region",),
        ("problem",),
        ("traces",),
        ("matrix",),
        ("proof", "attacks"),
        ("solvers",),
        ("report",),
        ("api",),
        ("mechanisms",),
        ("kit",),
        ("commands",),
        ("__init__", "plugin"),
    ),
}
"""Rooms of the core and of metric DP, from the ground up. A room uses those below it, and no other of its own floor."""

APART: Final = {"privopt.checker", f"{METRIC}.checkers"}
"""Rooms that import nothing but the standard library and one another."""

NAMED: Final = re.compile(r"(privopt\w*(?:\.\w+)+)(?::\w+)?")
"""A string that names a module, or a thing in one: it is imported later."""
UPWARD: Final = {"kit", "_MECHANISM"}
"""Assignments whose strings name code that stands above them on purpose, as the targets of specs do in hooks."""


class Import(NamedTuple):
    """One import of a module of privopt or of a plugin of the house.

    Attributes:
        module: imported.
        when: ``"begun"`` while the importing file is imported, ``"later"`` in a function, ``"typed"`` for types
            alone, ``"named"`` where a string names it.
    """

    module: str
    when: str


def modules_in(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield dotted name and file of every module of a package; templates are other people's code."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        if "templates" not in parts:
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def modules() -> Mapping[str, Path]:
    """Return every module of the core and of the plugins beside it."""
    roots = [PACKAGE, *sorted(PLUGINS.glob("*/src/*"))]
    return {name: path for root in roots for name, path in modules_in(root)}


@cache
def trees() -> Mapping[str, ast.Module]:
    """Return the parsed source of every module."""
    return {name: ast.parse(path.read_text("utf-8")) for name, path in modules().items()}


def imported_names(tree: ast.AST) -> list[tuple[tuple[str, ...], str]]:
    """Return, for each import, the names that may be its module, the likeliest first, and when it happens."""
    names_found: list[tuple[tuple[str, ...], str]] = []

    def visit(node: ast.AST, kind: str) -> None:
        if isinstance(node, ast.Import):
            names_found.extend(((alias.name,), kind) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name their module from the top"
            names_found.extend(((f"{node.module}.{alias.name}", str(node.module)), kind) for alias in node.names)
        elif isinstance(node, ast.Constant):
            match = NAMED.fullmatch(node.value) if isinstance(node.value, str) else None
            names_found.extend([((match[1],), "named")] if match else [])
        elif not names_what_stands_above(node):
            for child in ast.iter_child_nodes(node):
                visit(child, run_time_of(node, child, kind))

    visit(tree, "begun")
    return names_found


def names_what_stands_above(node: ast.AST) -> bool:
    """Tell whether a node is a hook, with targets of specs, or an assignment to one of UPWARD."""
    if isinstance(node, ast.FunctionDef):
        return node.name.startswith("privopt_")
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id in UPWARD for target in targets)


def run_time_of(node: ast.AST, child: ast.AST, kind: str) -> str:
    """Return when a child of a node is run, given when the node is."""
    if isinstance(node, ast.If) and child in node.body and "TYPE_CHECKING" in ast.unparse(node.test):
        return "typed"
    in_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    return "later" if in_function and kind == "begun" else kind


@cache
def named_in(module: str) -> list[tuple[tuple[str, ...], str]]:
    """Return :func:`imported_names` of a module."""
    return imported_names(trees()[module])


def resolve_names(names_found: list[tuple[tuple[str, ...], str]], known_modules: Mapping[str, object]) -> set[Import]:
    """Return what :func:`imported_names` found, as far as it is of known modules."""
    candidates = (([name for name in names if name in known_modules], kind) for names, kind in names_found)
    return {Import(names[0], kind) for names, kind in candidates if names}


@cache
def imports() -> Mapping[str, frozenset[Import]]:
    """Return what each module imports of the core and of the plugins, itself left out."""
    imports_by_module = {name: resolve_names(named_in(name), modules()) for name in modules()}
    return {
        name: frozenset(import_ for import_ in imports_of_module if import_.module != name)
        for name, imports_of_module in imports_by_module.items()
    }


def room_of(module: str) -> str:
    """Return a module's room: ``privopt.declare`` of ``privopt.declare.toml``."""
    package, *parts = module.split(".")
    return f"{package}.{parts[0] if parts else '__init__'}"


def floor_of(module: str) -> int | None:
    """Return the floor of a module's room, those of metric DP above the core's; None where it has none."""
    package, _, package_name = room_of(module).partition(".")
    floor_count = 0
    for storey, floors in FLOORS.items():
        for floor, rooms in enumerate(floors):
            if storey == package and package_name in rooms:
                return floor_count + floor
        floor_count += len(floors)
    return None


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import one another."""
    return sorted(sorted(part) for part in nx.strongly_connected_components(nx.DiGraph(graph)) if len(part) > 1)


def parents(name: str) -> set[str]:
    """Return the packages that a module is in: importing it imports them first."""
    parts = name.split(".")
    return {".".join(parts[:n]) for n in range(1, len(parts))}


def import_graph(imports_by_module: Mapping[str, frozenset[Import] | set[Import]]) -> dict[str, set[str]]:
    """Return what each module begins to import while it is imported: packages, too, that it is not in itself."""
    graph = {}
    for name, imports_of_module in imports_by_module.items():
        first = {import_.module for import_ in imports_of_module if import_.when == "begun"}
        packages_above = {
            package for import_target in first for package in parents(import_target) & imports_by_module.keys()
        }
        graph[name] = (first | (packages_above - parents(name))) - {name}
    return graph


def other_packages(module: str) -> set[str]:
    """Return the packages of others that are imported while a module is."""
    return {names[-1].split(".")[0] for names, kind in named_in(module) if kind == "begun"}
