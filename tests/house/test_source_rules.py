"""Rules that every module keeps: one mechanism for each side question, typed seams, kinds that are registered."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from helpers.rooms import PACKAGE, modules, trees

from privopt.interfaces import Release
from privopt.interfaces.notions import LocalDP
from privopt.registry import registry
from privopt.specs import NOTHING
from privopt.testing.checks import checks as all_checks
from privopt.testing.under_trial import missing_traits, traits_of
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.trace_dp import TraceRelease

CLOCKS = {"execution/clock.py", "execution/worker.py", "execution/cluster.py"}
"""What looks at the monotonic clock to make scopes of it, or waits for processes."""
CALLERS = {
    "search/run_search.py",
    "command/exit_codes.py",
    "command/program.py",
    "backends/workers.py",
    "backends/_highs_calls.py",
    "execution/worker.py",
    "files/new_folder.py",
    "run/solve.py",
    "registry/discovery.py",
    "__main__.py",
    "studies/curve.py",
}
"""Who waits for others, or tidies up: these alone catch an interrupt."""
IN_ONE_GO = {"privopt_hierarchical_dp", "privopt_photo_censor"}
"""Plugins whose mechanisms compute in the caller's thread, and end there with what they have."""
NAMES = {role: set(registry().names(role)) for role in registry().of("role")}
NOTIONS = NAMES["notion"] - {NOTHING}
TYPES_OF_FIGURES = {"from matplotlib.figure import Figure as Figure", "from matplotlib.figure import Figure"}
"""Imports for annotations alone, without effect at run time."""
RELEASES = (MatrixRelease, TraceRelease, Release)
LISTS = {"privopt.builtin", "privopt.checker"}
"""What registers kinds, and what shares no code, so that it knows what it knows and names the rest."""


def is_file_in(path: Path, names: set[str]) -> bool:
    """Tell whether a path ends in one of some names."""
    return any(path.as_posix().endswith(f"/{name}") for name in names)


@cache
def texts() -> list[tuple[Path, str]]:
    """Return each file with its text."""
    return [(path, path.read_text("utf-8")) for path in modules().values()]


def nodes(*kinds: type[ast.AST], having: str = "") -> Iterator[tuple[Path, ast.AST]]:
    """Yield every node of some kinds, with the file that it stands in; of files whose text has a pattern."""
    for (path, text), tree in zip(texts(), trees().values(), strict=True):
        if re.search(having, text):
            yield from ((path, node) for node in ast.walk(tree) if isinstance(node, kinds))


def lines(nodes_found: Iterator[tuple[Path, ast.AST]]) -> list[str]:
    """Return file and line of each."""
    return [f"{path.relative_to(PACKAGE.parent)}:{node.lineno}" for path, node in nodes_found]


# --- one mechanism for each side question -------------------------------------------------------------


def test_nothing_takes_a_deadline():
    """No parameter, attribute or variable of that name; who needs the time asks the clock."""

    def names_one(node):
        if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant) and node.value.value is None:
            return False  # settings(deadline=None) of Hypothesis
        name = getattr(node, "arg", None) or getattr(node, "attr", None) or getattr(node, "id", None)
        return name in names

    names = ("deadline", "until_monotonic", "time_left_at")
    nodes_found = nodes(ast.arg, ast.keyword, ast.Attribute, ast.Name, having="|".join(names))
    assert lines(file_node for file_node in nodes_found if names_one(file_node[1])) == []


def test_loops_do_not_compare_the_monotonic_clock():
    """``time.monotonic()`` measures durations; what is compared with it is a deadline by another name."""

    def compares(node):
        sides = (node.left, *node.comparators)
        return any(isinstance(operand, ast.Call) and ast.unparse(operand.func) == "time.monotonic" for operand in sides)

    nodes_found = (file_node for file_node in nodes(ast.Compare, having="monotonic") if compares(file_node[1]))
    assert (
        lines(file_node for file_node in nodes_found if not is_file_in(file_node[0], CLOCKS | {"backends/workers.py"}))
        == []
    )


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "TimeoutError"])
def test_only_callers_catch_interrupts(error):
    def elsewhere(path):
        callers = is_file_in(path, CALLERS | {"execution/cluster.py", "decompose/benders.py"})
        return not (callers or {"testing", *IN_ONE_GO} & set(path.parts))

    handlers = (
        file_node
        for file_node in nodes(ast.ExceptHandler, having=error)
        if file_node[1].type is not None and elsewhere(file_node[0])
    )
    assert lines(file_node for file_node in handlers if error in ast.unparse(file_node[1].type)) == []


def test_solvers_use_no_wall_clock():
    """Solvers that look at time look at the clock's own."""
    assert [path for path, text in texts() if "solvers" in path.parts and "time.monotonic" in text] == []


# --- seams --------------------------------------------------------------------------------------------


def test_frozen_problems_are_not_changed():
    assignments = (
        file_node for file_node in nodes(ast.Attribute, having="__setattr__") if file_node[1].attr == "__setattr__"
    )
    assert (
        lines(
            file_node
            for file_node in assignments
            if file_node[0].name == "problem.py" or file_node[0].match("declare/*.py")
        )
        == []
    )


def test_array_types_have_one_name_each():
    """They are privopt.arrays'; what stands elsewhere would be a second name for the same."""
    duplicates = [
        f"{name}: {node.lineno}"
        for name, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Subscript)
        and ast.unparse(node.value.value).endswith("NDArray")
        and modules()[name].name != "arrays.py"
    ]
    assert not duplicates


# --- kinds --------------------------------------------------------------------------------------------


def lists_of_kinds(tree):
    """Yield collections of several names of one role, and comparisons with a notion's name: (line, names)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            names_found = strings(node.elts)
            if len(names_found) >= 2 and any(set(names_found) <= names for names in NAMES.values()):
                yield node.lineno, names_found
        if isinstance(node, ast.Compare):
            names_found = NOTIONS.intersection(strings([node.left, *node.comparators]))
            if names_found:
                yield node.lineno, sorted(names_found)


def strings(nodes):
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


ENTRY = re.compile(r"^    (\S.*?):(?: |$)", re.MULTILINE)
SECTION = re.compile(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", re.MULTILINE)


def test_docstrings_match_the_code():
    """Each entry of Args and Attributes is a name, and nothing that gives None is said to return something."""
    documented = []
    for path, node in nodes(ast.FunctionDef, ast.ClassDef):
        text = ast.get_docstring(node) or ""
        annotation = getattr(node, "returns", None)
        if text.startswith("Return ") and isinstance(annotation, ast.Constant) and annotation.value is None:
            documented.append((path, node))
        entries = [entry for section in SECTION.findall(text) for entry in ENTRY.findall(section)]
        if not all(name.strip("*").isidentifier() for entry in entries for name in re.split(r", | and ", entry)):
            documented.append((path, node))
    assert lines(documented) == []


def test_core_lists_no_kinds_or_notions():
    core = [name for name in modules() if name.split(".")[0] == "privopt" and name not in LISTS]
    assert {name: lists_found for name in core if (lists_found := list(lists_of_kinds(trees()[name])))} == {}
    assert list(lists_of_kinds(ast.parse('x = {"pure-dp", "local-dp"}\nif kind == "metric-dp": pass')))


def test_checks_are_chosen_by_traits():
    check_traits = {trait for check in all_checks().values() for trait in check.of}
    assert check_traits <= set(missing_traits())
    notions = [registry().kind("notion", name).load() for name in NAMES["notion"]]
    traits_found = {trait for cls in RELEASES for notion in notions for trait in traits_of(cls, notion)}
    assert traits_found == set(missing_traits())
    assert traits_of(MatrixRelease, LocalDP) == {"matrix", "sampler", "odds"}


# --- one module draws, and templates make markup ------------------------------------------------------


def test_figures_are_drawn_by_one_module_in_one_theme():
    """What a mechanism draws is composed of parts of the core: nothing else imports matplotlib at run time."""
    found = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path, node in nodes(ast.ImportFrom, ast.Import, having=r"import matplotlib|from matplotlib")
        if re.match(r"(from|import) matplotlib", ast.unparse(node)) and ast.unparse(node) not in TYPES_OF_FIGURES
    }
    assert found == {"privopt/report/charts.py", "privopt/report/theme.py"}


def test_no_module_puts_pages_together_from_strings():
    """Templates escape every text; a string with an element's tag would not. Notebooks' small tables are the others."""
    found = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path, node in nodes(ast.Constant, having=r"</?(section|figure|table|p|h\d|div|span)\b")
        if isinstance(node.value, str) and re.search(r"<(section|figure|table|p|h[1-6]|div|span)[ >]\S", node.value)
    }
    assert found <= {"privopt/declare/notebook.py", "privopt/dsl/show.py", "privopt/declare/problems_in_memory.py"}
