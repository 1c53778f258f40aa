"""Kinds are registered: no module of the core lists them, nor asks for one by name."""

import ast

import pytest
from test_floors import MODULES, PACKAGE

from privopt.interfaces import Release
from privopt.interfaces.notions import LocalDP
from privopt.metric.matrix import MatrixRelease
from privopt.metric.traces.notion import TraceRelease
from privopt.registry import registry
from privopt.specs import NOTHING, ROLES
from privopt.testing.checks import CHECKS
from privopt.testing.nature import TRAITS, nature

NAMES = {role: set(registry().names(role)) for role in ROLES}
NOTIONS = NAMES["notion"] - {NOTHING}
RELEASES = (MatrixRelease, TraceRelease, Release)
DRAWN = ("testing/metric.py", "testing/spaces.py")
"""How the kit draws problems of privopt's own distances."""
ALONE = "checker.py"
"""It shares no code, so that it knows what it knows and names the rest."""


def strings(nodes):
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def lists_of_kinds(tree):
    """Collections of several names of one role, and comparisons with a notion's name: (line, names)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            found = strings(node.elts)
            if len(found) >= 2 and any(set(found) <= names for names in NAMES.values()):
                yield node.lineno, found
        if isinstance(node, ast.Compare):
            found = NOTIONS.intersection(strings([node.left, *node.comparators]))
            if found:
                yield node.lineno, sorted(found)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_module_lists_kinds_or_asks_for_a_notion_by_name(path):
    if path.relative_to(PACKAGE).as_posix() in ("builtin.py", ALONE, *DRAWN):
        return
    assert not list(lists_of_kinds(ast.parse(path.read_text())))


def test_a_list_of_kinds_is_found():
    assert list(lists_of_kinds(ast.parse('x = {"pure-dp", "local-dp"}\nif kind == "metric-dp": pass')))


def test_checks_are_chosen_by_what_a_release_is():
    asked = {trait for check in CHECKS.values() for trait in check.of}
    assert asked <= set(TRAITS)
    notions = [registry().kind("notion", name).load() for name in NAMES["notion"]]
    found = {trait for cls in RELEASES for notion in notions for trait in nature(cls, notion)}
    assert found == set(TRAITS)
    assert nature(MatrixRelease, LocalDP) == {"matrix", "sampler", "odds"}
