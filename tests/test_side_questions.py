"""One mechanism for each side question: scopes of time, one room for threads, the contract's numbers once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import privopt

ROOT = Path(privopt.__file__).parents[1]
SOURCES = sorted(
    path
    for home in (ROOT / "privopt", *sorted((ROOT / "plugins").glob("*/src")))
    for path in home.rglob("*.py")
    if "templates" not in path.parts
)
CLOCKS = {"execution/clock.py", "execution/hard_limit.py", "execution/worker.py", "execution/cluster.py"}
"""What looks at the monotonic clock to make scopes of it, or waits for processes."""
CALLERS = {
    "interfaces/attend.py",
    "command/exit_codes.py",
    "command/program.py",
    "backends/workers.py",
    "backends/_highs_calls.py",
    "execution/worker.py",
    "files/working_folder.py",
    "run/publish.py",
    "run/solve.py",
    "registry.py",
    "__main__.py",
    "studies/curve.py",
}
"""Who waits for others, or tidies up: these alone catch an interrupt."""
IN_ONE_GO = {"privopt_hierarchical_dp", "privopt_photo_censor"}
"""Plugins whose mechanisms compute in the caller's thread, and end there with what they have."""


def named(path: Path, names: set[str]) -> bool:
    return any(path.as_posix().endswith(f"/{name}") for name in names)


def trees() -> Iterator[tuple[Path, ast.AST]]:
    for path in SOURCES:
        yield path, ast.parse(path.read_text("utf-8"))


def test_nothing_takes_a_deadline():
    """No parameter, attribute or variable of that name; who needs the time asks the clock."""
    found = []
    for path, tree in trees():
        for node in ast.walk(tree):
            name = getattr(node, "arg", None) or getattr(node, "attr", None) or getattr(node, "id", None)
            if name in ("deadline", "until_monotonic", "time_left_at"):
                if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant) and node.value.value is None:
                    continue  # settings(deadline=None) of Hypothesis
                found.append(f"{path}:{node.lineno}")
    assert found == []


def test_no_loop_compares_the_monotonic_clock():
    """``time.monotonic()`` measures durations; what is compared with it is a deadline by another name."""
    found = []
    for path, tree in trees():
        if named(path, CLOCKS | {"backends/workers.py"}):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and any(
                isinstance(side, ast.Call) and ast.unparse(side.func) == "time.monotonic"
                for side in (node.left, *node.comparators)
            ):
                found.append(f"{path}:{node.lineno}")
    assert found == []


def test_the_contracts_sentence_stands_once():
    """1.1 L + 5 s: OVER and GRACE of the clock, and nobody else's numbers of these names."""
    made = [
        path
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and re.search(r"\b(OVER|GRACE)\b", ast.unparse(node.targets[0]))
    ]
    assert [path.name for path in made] == ["clock.py"]


def test_threads_come_from_one_room():
    """``in_thread``, ``in_threads`` and executors take the caller's scopes along; a bare thread would not."""
    found = []
    for path in SOURCES:
        inside = "execution" in path.parts or named(path, {"command/terminal.py"})
        if not inside and re.search(r"\bThread\(|ThreadPoolExecutor\(", path.read_text("utf-8")):
            found.append(path)
    assert found == []


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "TimeoutError"])
def test_interrupts_are_the_callers_alone(error):
    found = []
    for path, tree in trees():
        if named(path, CALLERS | {"execution/cluster.py", "decompose/benders.py"}) or "testing" in path.parts:
            continue
        if IN_ONE_GO & set(path.parts):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and node.type is not None and error in ast.unparse(node.type):
                found.append(f"{path}:{node.lineno}")
    assert found == []


def test_no_wall_clock_hides_in_a_solver():
    """Solvers that look at time look at the clock's own."""
    for path in SOURCES:
        if "solvers" in path.parts:
            assert "time.monotonic" not in path.read_text("utf-8"), path
