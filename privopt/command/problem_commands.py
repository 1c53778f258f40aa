"""The command that predicts errors before a release: plan.

As in :mod:`privopt.command.cli`, each imports what it needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privopt.command.exit_codes import (
    PATH,
    QUIET,
    guarded,
    say_when_compiling,
)
from privopt.command.program import say_result
from privopt.command.terminal import progress_display
from privopt.errors import UsageError, faults_in


@click.command()
@click.argument("mechanism")
@click.argument("problem", type=PATH)
@click.option("--method", metavar="NAME", help="One of the mechanism's methods (see describe).")
@click.option("--json", "as_json", is_flag=True, help="The same on standard output as one object.")
@QUIET
@guarded
def plan(mechanism: str, problem: Path, method: str | None, as_json: bool, quiet: bool) -> None:
    """Predict errors before epsilon is chosen; secret files are not opened."""
    from privopt.declare.schema import File
    from privopt.interfaces import Mechanism, SolveContext
    from privopt.registry import registry
    from privopt.run.verify import read_problem

    found = registry().get(mechanism)
    chosen = found.method(method)
    if not found.spec.promises(chosen):
        raise UsageError(f"plan: method must be one that gives privacy, got {chosen.name}")
    loaded: Mechanism[Any, Any] = found.load()
    if type(loaded).plan is Mechanism.plan:
        other = "curve compares epsilons of mechanisms over places"
        raise UsageError(f"plan: {mechanism} cannot predict its errors before it is solved; {other}")
    declared = read_problem(loaded, File.read(problem, wanted="a problem file in TOML"), closed=True)
    say_when_compiling(quiet=quiet)
    with progress_display(quiet=quiet) as progress, faults_in(problem.name):
        made = loaded.plan(declared, problem.name, SolveContext(method=chosen.name, progress=progress))
    say_result({"mechanism": mechanism, **made.to_json()}, "\n".join(made.lines()), as_json=as_json)
