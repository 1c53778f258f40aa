"""What stands between the core and plugins is typed, and a problem never changes once it is made."""

import ast
from pathlib import Path

import pytest
from attrs.exceptions import FrozenInstanceError

import privopt
from privopt.declare import load_problem
from privopt.errors import InputError
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem

ROOT = Path(privopt.__file__).parent.parent
SOURCES = sorted([*(ROOT / "privopt").rglob("*.py"), *(ROOT / "plugins").glob("*/src/**/*.py")])
PROBLEM = """
[records]
points = "places.csv"
[distance]
kind = "euclidean"
[privacy]
epsilon = 1.0
[utility]
kind = "distance"
"""


def test_a_declared_problem_reads_no_table_until_it_is_loaded(tmp_path):
    (tmp_path / "places.csv").write_text("no table of places\n", "utf-8")
    (tmp_path / "p.toml").write_text(PROBLEM, "utf-8")
    declared = load_problem(MetricProblem, tmp_path / "p.toml")
    with pytest.raises(InputError, match=r"places\.csv"):
        MetricInstance.of(declared, "p.toml")


def test_nothing_changes_a_loaded_problem(tmp_path):
    (tmp_path / "places.csv").write_text("id,x,y\na,0,0\nb,1,0\n", "utf-8")
    (tmp_path / "p.toml").write_text(PROBLEM, "utf-8")
    declared = load_problem(MetricProblem, tmp_path / "p.toml")
    loaded = MetricInstance.of(declared, "p.toml")
    assert loaded.declared is declared
    assert loaded.data.shape == (2, 2)
    with pytest.raises(FrozenInstanceError):
        loaded.data = loaded.data
    with pytest.raises(FrozenInstanceError):
        declared.records = declared.records


def test_no_module_writes_into_a_frozen_problem():
    for path in SOURCES:
        if path.name != "problem.py" and not path.match("declare/*.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            assert not (isinstance(node, ast.Attribute) and node.attr == "__setattr__"), f"{path}: {node.lineno}"


def test_array_types_have_one_name_each():
    """They are privopt.arrays'; what stands elsewhere would be a second name for the same."""
    again = [
        f"{path}: {node.lineno}"
        for path in SOURCES
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Subscript)
        and ast.unparse(node.value.value).endswith("NDArray")
        and path.name != "arrays.py"
    ]
    assert not again


UNTYPED = 25
"""Public functions with a parameter or result annotated exactly Any; the number only gets smaller."""


def untyped(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            given = node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            said = [argument.annotation for argument in every if argument is not None]
            if any(isinstance(what, ast.Name) and what.id == "Any" for what in (*said, node.returns)):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def test_public_functions_that_take_or_give_anything_get_fewer():
    found = [line for path in SOURCES for line in untyped(path)]
    assert len(found) <= UNTYPED, "\n".join(found)
