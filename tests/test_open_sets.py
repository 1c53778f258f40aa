"""Kinds are registered: no module of the core lists them, nor asks for one by name."""

import ast

import pytest
from test_floors import MODULES, PACKAGE

from privopt.interfaces import PrivacyConstraint
from privopt.registry import registry
from privopt.specs import NOTHING, ROLES
from privopt.testing.checks import CHECKS

NAMES = {role: set(registry().names(role)) for role in ROLES}
NOTIONS = NAMES["notion"] - {NOTHING}
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


def test_checks_are_chosen_by_families_that_notions_declare():
    declared = {family for name in NAMES["notion"] for family in registry().kind("notion", name).load().checks}
    words = PrivacyConstraint.__doc__
    assert declared == {family for check in CHECKS.values() for family in check.families} | {"choice"}
    assert all(f'"{family}"' in words for family in declared)
