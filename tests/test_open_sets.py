"""Kinds are registered: no module of the core lists them, nor asks for one by name."""

import ast

import pytest
from rooms import modules, trees

from privopt.interfaces import Release
from privopt.interfaces.notions import LocalDP
from privopt.registry import registry
from privopt.specs import NOTHING
from privopt.testing.checks import checks as all_checks
from privopt.testing.nature import missing_traits, nature
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.trace_dp import TraceRelease

NAMES = {role: set(registry().names(role)) for role in registry().of("role")}
NOTIONS = NAMES["notion"] - {NOTHING}
RELEASES = (MatrixRelease, TraceRelease, Release)
LISTS = {"privopt.builtin", "privopt.checker"}
"""What registers kinds, and what shares no code, so that it knows what it knows and names the rest."""
CORE = [name for name in modules() if name.split(".")[0] == "privopt" and name not in LISTS]


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


@pytest.mark.parametrize("name", CORE)
def test_no_module_lists_kinds_or_asks_for_a_notion_by_name(name):
    assert not list(lists_of_kinds(trees()[name]))


def test_a_list_of_kinds_is_found():
    assert list(lists_of_kinds(ast.parse('x = {"pure-dp", "local-dp"}\nif kind == "metric-dp": pass')))


def test_checks_are_chosen_by_what_a_release_is():
    asked = {trait for check in all_checks().values() for trait in check.of}
    assert asked <= set(missing_traits())
    notions = [registry().kind("notion", name).load() for name in NAMES["notion"]]
    found = {trait for cls in RELEASES for notion in notions for trait in nature(cls, notion)}
    assert found == set(missing_traits())
    assert nature(MatrixRelease, LocalDP) == {"matrix", "sampler", "odds"}
