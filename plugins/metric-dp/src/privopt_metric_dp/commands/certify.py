"""The ``privopt certify`` command, which computes the smallest epsilon satisfied by a probability matrix."""

from __future__ import annotations

from pathlib import Path

import click
from attrs import evolve

from privopt.command.exit_codes import (
    DOES_NOT_HOLD,
    DONE,
    JOBS,
    PATH,
    QUIET,
    SOLVER,
    check_fraction,
    handle_errors,
    positive,
)
from privopt.command.program import say_result
from privopt.command.terminal import complain, progress_display, remark
from privopt.errors import UsageError

__all__ = ["certify"]


@click.command()
@click.argument("matrix", metavar="MATRIX.npy", type=PATH)
@click.argument("problem", metavar="PROBLEM.toml", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.option(
    "--gap", type=float, callback=check_fraction, metavar="G", help="Solve for a lower bound to this relative gap."
)
@click.option("--repair", "repaired", is_flag=True, help="Write a certified release made from it; with --out.")
@click.option("--out", type=PATH, metavar="DIR", help="Folder to write; with --repair.")
@SOLVER
@JOBS
@click.option("--time-limit", type=float, callback=positive, metavar="SECONDS", help="For the search for the bound.")
@click.option("--memory", type=float, callback=positive, metavar="GB", help="Most memory; default: what is free.")
@QUIET
@click.option("--force", is_flag=True, help="Replace DIR.")
@handle_errors
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
    # The docstring is the text of --help, and the options above describe the parameters. Modules that take long to
    # import are imported inside the function, so that --help and other commands start quickly.
    from privopt.command.terminal import summary
    from privopt.declare.schema import File
    from privopt.execution.resources import limited_to
    from privopt.files.new_folder import check_target
    from privopt.run.task import Options
    from privopt_metric_dp.mechanisms.certify_matrix import measure, repair

    # True if only one of --repair and --out is given.
    if repaired is (out is None):
        raise UsageError("certify: --repair and --out DIR must be given together or not at all, got one of them")
    if out is not None:
        check_target(out.absolute(), force=force, read=[matrix, problem])
    source = File.read(problem, expectation="a problem file in TOML")
    matrix_file = File.read(matrix, expectation="a .npy of probabilities or uint64 weights")
    solved = None
    options = Options(solver=solver, jobs=jobs, time_limit=time_limit, memory=memory, gap=gap, force=force)
    with progress_display(quiet=quiet, limit=time_limit) as progress:
        options = evolve(options, progress=progress)
        # With --out, the repair searches for a bound, so the measurement need not.
        with limited_to(options.jobs):
            measurement = measure(matrix_file, source, options if out is None else evolve(options, gap=None))
        if out is not None:
            solved = repair(measurement, out, options)
            lower_bound = solved.result.objective.lower_bound
            measurement = evolve(measurement, lower_bound=lower_bound, stopped=solved.stopped)
    for line in () if solved is None else solved.warnings:
        remark(f"warning: {line}")
    if measurement.stopped:
        remark("note: the time limit was reached before the bound met the requested gap")
    text = "\n".join(measurement.sentences())
    say_result(measurement.to_json(), text, as_json=as_json)
    if solved is not None and not (quiet or as_json):
        summary(solved)
    # A repaired release satisfies its guarantee, whether the given matrix did or not.
    if measurement.holds or solved is not None:
        return DONE
    # The text must explain the exit code, but say_result did not print it with --quiet. With --json, it printed a
    # document.
    if quiet and not as_json:
        complain(text)
    return DOES_NOT_HOLD
