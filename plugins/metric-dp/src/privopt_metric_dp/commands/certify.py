"""The command that judges a matrix from elsewhere: certify."""

from __future__ import annotations

from pathlib import Path

import click
from attrs import evolve

from privopt.command.exit_codes import DOES_NOT_HOLD, DONE, JOBS, PATH, QUIET, SOLVER, guarded, positive, share
from privopt.command.program import say_result
from privopt.command.terminal import complain, progress_display
from privopt.errors import UsageError

__all__ = ["certify"]


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
@QUIET
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
    """Measure the least epsilon that any probability matrix satisfies, exactly."""
    from privopt.command.terminal import summary
    from privopt.declare.schema import File
    from privopt.execution.limits import limited_to
    from privopt.files.targets import check_target
    from privopt.run.options import Options
    from privopt_metric_dp.mechanisms.certify_matrix import measure, repair

    if repaired is (out is None):
        raise UsageError("certify: --repair and --out DIR must be given together or not at all, got one of them")
    if out is not None:
        check_target(out.absolute(), force=force)
    source = File.read(problem, wanted="a problem file in TOML")
    given = File.read(matrix, wanted="a .npy of probabilities or uint64 weights")
    solved = None
    plain = Options(solver=solver, jobs=jobs, time_limit=time_limit, memory=memory, gap=gap, force=force)
    with progress_display(quiet=quiet, limit=time_limit) as progress:
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
    say_result(found.to_json(), "\n".join(found.sentences()), as_json=as_json)
    if solved is not None and not (quiet or as_json):
        summary(solved)
    return DONE if found.holds or solved is not None else DOES_NOT_HOLD
