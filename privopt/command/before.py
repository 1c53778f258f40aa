"""The commands that come before a release, or judge one from elsewhere: init, curve, certify, plan.

As in :mod:`privopt.command.cli`, each imports what it needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from attrs import evolve

from privopt.command.guard import (
    DOES_NOT_HOLD,
    DONE,
    JOBS,
    PATH,
    SOLVER,
    STOPPED_FEASIBLE,
    ending,
    guarded,
    positive,
    say_when_compiling,
    share,
)
from privopt.command.terminal import complain, progress_display, say, say_json
from privopt.errors import UsageError, faults_in

__all__ = ["BEFORE"]


@click.command()
@click.argument("mechanism")
@click.option("--points", type=PATH, required=True, metavar="FILE", help="Places, or positions.")
@click.option("--roads", type=PATH, metavar="FILE", help="Table from,to,km between the places.")
@click.option("--out", type=PATH, required=True, metavar="PROBLEM.toml", help="File to write.")
@click.option("--within", type=float, callback=positive, metavar="KM", help="Hide whoever is so near to one another.")
@click.option(
    "--factor", type=float, default=4.0, show_default=True, metavar="F", help="Change of odds there, at most."
)
@click.option("--force", is_flag=True, help="Replace PROBLEM.toml.")
@guarded
def init(
    mechanism: str, points: Path, roads: Path | None, out: Path, within: float | None, factor: float, force: bool
) -> None:
    """A commented problem file from a table of places or positions."""
    from privopt.tables.draft import init as run

    for line in run(mechanism, points, out, roads=roads, within=within, factor=factor, force=force).notes:
        complain(f"{out}: {line}")


@click.command()
@click.argument("problem", metavar="PROBLEM.toml", type=PATH)
@click.option("--mechanisms", required=True, metavar="A,B", help="Names of mechanisms, with commas between.")
@click.option("--epsilon", required=True, metavar="LO:HI:N", help="N values from LO to HI, geometric.")
@click.option("--matrix", "matrices", type=PATH, multiple=True, metavar="FILE", help="An own .npz or .npy.")
@click.option("--out", type=PATH, required=True, metavar="FILE.csv", help="Table to write.")
@click.option("--report", type=PATH, metavar="FILE.html", help="Also one page, works offline.")
@click.option("--gap", type=float, callback=share, metavar="RELATIVE", help="Relative gap asked for.")
@SOLVER
@JOBS
@click.option("--time-limit", type=float, callback=positive, metavar="SECONDS", help="For the whole command.")
@click.option("--quiet", is_flag=True, help="No progress; errors still come.")
@click.option("--force", is_flag=True, help="Replace FILE.csv and FILE.html.")
@guarded
def curve(
    problem: Path,
    mechanisms: str,
    epsilon: str,
    matrices: tuple[Path, ...],
    out: Path,
    report: Path | None,
    quiet: bool,
    force: bool,
    gap: float | None,
    solver: str,
    jobs: int | None,
    time_limit: float | None,
) -> int:
    """Loss and proved bound over epsilon, mechanism beside mechanism."""
    from privopt.run.solve import Options
    from privopt.tables.curve_page import write_curves

    names = [name.strip() for name in mechanisms.split(",") if name.strip()]
    say_when_compiling(quiet=quiet)
    with ending(time_limit), progress_display(quiet=quiet, limit=time_limit) as progress:
        asked = Options(gap=gap, solver=solver, jobs=jobs, time_limit=time_limit, force=force, progress=progress)
        found = write_curves(problem, names, epsilon, out, report, asked, matrices)
    for line in found.notes:
        complain(f"note: {line}")
    return STOPPED_FEASIBLE if found.stopped else DONE


@click.command()
@click.argument("matrix", metavar="MATRIX.npy", type=PATH)
@click.argument("problem", metavar="PROBLEM.toml", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.option("--gap", type=float, callback=share, metavar="G", help="Solve for a lower bound to this relative gap.")
@click.option("--repair", "repaired", is_flag=True, help="Write a certified release made from it; with --out.")
@click.option("--out", type=PATH, metavar="DIR", help="Folder to write; with --repair.")
@SOLVER
@JOBS
@click.option("--time-limit", type=float, callback=positive, metavar="SECONDS", help="For the search for the bound.")
@click.option("--memory", type=float, callback=positive, metavar="GB", help="Most memory; default: what is free.")
@click.option("--quiet", is_flag=True, help="No progress; errors and warnings still come.")
@click.option("--force", is_flag=True, help="Replace DIR.")
@guarded
def certify(
    matrix: Path,
    problem: Path,
    as_json: bool,
    gap: float | None,
    repaired: bool,
    out: Path | None,
    solver: str,
    jobs: int | None,
    time_limit: float | None,
    memory: float | None,
    quiet: bool,
    force: bool,
) -> int:
    """What a matrix made anywhere really keeps: its least epsilon, exactly."""
    from privopt.command.terminal import summary
    from privopt.declare.schema import File
    from privopt.execution.limits import limited_to
    from privopt.run.folder import dump_json
    from privopt.run.publish import check_target
    from privopt.run.solve import Options
    from privopt.tables.certify import measure, repair

    if repaired is (out is None):
        raise UsageError("certify: --repair and --out DIR: found one of them, wanted both or none")
    if out is not None:
        check_target(out.absolute(), force=force)
    source = File.read(problem, wanted="a problem file in TOML")
    given = File.read(matrix, wanted="a .npy of probabilities or uint64 weights")
    say_when_compiling(quiet=quiet)
    solved = None
    plain = Options(solver=solver, jobs=jobs, time_limit=time_limit, memory=memory, gap=gap, force=force)
    with progress_display(quiet=quiet, limit=time_limit, gap=gap) as progress:
        asked = evolve(plain, progress=progress)
        with limited_to(asked.jobs):
            found = measure(given, source, asked if out is None else evolve(asked, gap=None))
        if out is not None:
            solved = repair(found, out, asked)
            found = evolve(found, lower_bound=solved.result.objective.lower_bound, stopped=solved.stopped)
    for line in () if solved is None else solved.warnings:
        complain(f"warning: {line}")
    if found.stopped:
        complain("note: the time limit came before the bound met the gap asked for")
    if as_json:
        say_json(dump_json(found.to_json()))
    else:
        for line in found.sentences():
            say(line)
    if solved is not None and not (quiet or as_json):
        summary(solved)
    return DONE if found.holds or solved is not None else DOES_NOT_HOLD


@click.command()
@click.argument("mechanism")
@click.argument("problem", type=PATH)
@click.option("--method", metavar="NAME", help="One of the mechanism's methods (see describe).")
@click.option("--json", "as_json", is_flag=True, help="The same on standard output as one object.")
@click.option("--quiet", is_flag=True, help="No progress; errors still come.")
@guarded
def plan(mechanism: str, problem: Path, method: str | None, as_json: bool, quiet: bool) -> None:
    """Errors to expect before epsilon is chosen; secret files are not opened."""
    from privopt.declare.schema import File
    from privopt.interfaces import Mechanism, SolveContext
    from privopt.registry import registry
    from privopt.run.folder import dump_json
    from privopt.run.verify import read_problem

    found = registry().get(mechanism)
    chosen = found.method(method)
    if not found.spec.promises(chosen):
        raise UsageError(f"plan: method {chosen.name} gives no privacy; wanted one that does")
    loaded = found.load()
    if type(loaded).plan is Mechanism.plan:
        other = loaded.expects or "curve compares epsilons of mechanisms over places"
        raise UsageError(f"plan: {mechanism} cannot tell its errors before it is solved; {other}")
    declared = read_problem(loaded, File.read(problem, wanted="a problem file in TOML"), closed=True)
    say_when_compiling(quiet=quiet)
    with progress_display(quiet=quiet) as progress, faults_in(problem.name):
        made = loaded.plan(declared, problem.name, SolveContext(method=chosen.name, progress=progress))
    if as_json:
        say_json(dump_json({"mechanism": mechanism, **made.to_json()}))
    else:
        for line in made.lines():
            say(line)


BEFORE: Final = (init, curve, certify, plan)
