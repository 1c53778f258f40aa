"""The command line. Commands, options and exit codes are those of docs/reference/command-line.md.

Nothing heavy is imported here: each command imports what it needs, so ``privopt list`` stays fast.
"""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, ParamSpec

import click

from privopt import __version__
from privopt.command.terminal import complain, say, say_ids, say_json
from privopt.errors import PrivoptError, UsageError

__all__ = ["cli", "main"]

P = ParamSpec("P")

DONE: Final = 0
DOES_NOT_HOLD: Final = 1
BAD_USAGE: Final = 2
STOPPED_FEASIBLE: Final = 4
STOPPED_EMPTY: Final = 5
NO_PRIVACY: Final = 6


def guarded(command: Callable[P, int | None]) -> Callable[P, None]:
    """Turn privopt's errors into their lines and exit codes, and interrupts into 5."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
        except PrivoptError as error:
            complain(error)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            complain("interrupted")
            sys.exit(STOPPED_EMPTY)
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(DONE)
        except OSError as error:
            complain(f"{error.filename or 'input or output'}: {error.strerror or error or type(error).__name__}")
            sys.exit(STOPPED_EMPTY)
        except MemoryError:
            complain("out of memory")
            sys.exit(STOPPED_EMPTY)
        except Exception as error:  # code 1 would say that a claim does not hold, which nobody has found
            if isinstance(error, (click.ClickException, click.exceptions.Exit, click.Abort)):
                raise
            complain(traceback.format_exc().rstrip())
            complain("a fault of privopt or of a plugin, not of your input: please report what stands above")
            sys.exit(STOPPED_EMPTY)
        sys.exit(code or DONE)

    return run


def _positive(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (0 < value < float("inf")):
        raise click.BadParameter(f"{value:g} is not a finite number above 0")
    return value


def _utf8(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Ids and names of columns are UTF-8, whatever the locale takes an argument's bytes for."""
    if value is None:
        return None
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:  # bytes that an ASCII locale could not read
        return os.fsencode(value).decode("utf-8", "replace")
    return value


def _say_when_compiling() -> None:
    """A line where this run compiles what later ones find done: it takes seconds that they do not."""
    from privopt.execution.compiled import when_compiling

    when_compiling(complain)


def _pair(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, float] | None:
    """Two numbers with a comma between."""
    if value is None:
        return None
    try:
        first, second = (float(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not two numbers with a comma between") from None
    return first, second


def _warn_of_no_privacy(folder: Path) -> None:
    """A line for whoever uses a release that holds and yet gives no privacy."""
    from privopt.run.result import read_result

    words = read_result(folder).mark
    if words:
        complain(f"warning: {folder}: {words}")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="privopt")
def cli() -> None:
    """Optimal privacy mechanisms, with proof."""


@cli.command("list")
@click.option("--json", "as_json", is_flag=True, help="A list of objects on standard output.")
@guarded
def list_(as_json: bool) -> int:
    """Every registered mechanism."""
    from privopt.registry import registry

    taken = registry()
    rows = [
        {
            "name": name,
            "plugin": found.plugin,
            "version": found.version,
            "guarantee": found.spec.guarantee,
            "summary": found.spec.summary,
        }
        for name, found in taken.mechanisms.items()
    ]
    if as_json:
        say_json(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        width = max((len(row["name"]) for row in rows), default=0)
        origin = max((len(f"{row['plugin']} {row['version']}") for row in rows), default=0)
        for row in rows:
            owner = f"{row['plugin']} {row['version']}"
            say(f"{row['name']:<{width}}  {owner:<{origin}}  {row['guarantee']:<9}  {row['summary']}")
    for broken in taken.broken:
        complain(f"broken: {broken.plugin} {broken.version}: {broken.reason}")
    return BAD_USAGE if any(broken.fatal for broken in taken.broken) else DONE


@cli.command()
@click.argument("mechanism")
@guarded
def describe(mechanism: str) -> None:
    """A mechanism's problem file key by key, its methods, its guarantee and its source."""
    from privopt.declare import describe_keys
    from privopt.registry import registry

    found = registry().get(mechanism)
    spec = found.spec
    say(f"{spec.name}  ({found.plugin} {found.version})\n{spec.summary}")
    if spec.source:
        say(f"Source: {spec.source}")
    loaded = found.load()
    say(f"\nGuarantee: {spec.guarantee}")
    if loaded.scope:
        say(f"  {loaded.scope}")
    say("\nMethods")
    wide = max(len(method.name) for method in spec.methods)
    for method in spec.methods:
        notes = [
            note
            for note in (
                "default" if method is spec.default else "",
                "" if spec.promises(method) else "guarantee none: needs --allow-unsafe",
            )
            if note
        ]
        remark = f" ({', '.join(notes)})" if notes else ""
        say(f"  {method.name:<{wide}}  {method.summary}{remark}")
    say("\nProblem file (TOML)")
    rows = describe_keys(loaded.problem_class)
    wide = max(len(row.key) for row in rows)
    for row in rows:
        unit = f" [{row.unit}]" if row.unit else ""
        say(f"  {row.key:<{wide}}  {row.type}{unit}; {row.default}; {row.help}")


@cli.command()
@click.argument("mechanism")
@click.argument("problem", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Folder to write.")
@click.option("--method", metavar="NAME", help="One of the mechanism's methods (see describe).")
@click.option("--solver", default="cbc", show_default=True, metavar="NAME", help="cbc, highs or a registered one.")
@click.option(
    "--jobs", type=click.IntRange(1, 1024), metavar="N", help="Processes and threads; default: 1, a thread a processor."
)
@click.option("--executor", metavar="URL", help="A cluster: dask://host:port (extra privopt[dask]).")
@click.option("--time-limit", type=float, callback=_positive, metavar="SECONDS", help="For the whole command.")
@click.option("--memory", type=float, callback=_positive, metavar="GB", help="Most memory; default: what is free.")
@click.option("--gap", type=float, callback=_positive, metavar="RELATIVE", help="Relative gap asked for.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), metavar="N", help="For experiments: not private.")
@click.option("--json", "as_json", is_flag=True, help="result.json also on standard output, nothing else there.")
@click.option("--quiet", is_flag=True, help="No progress; errors still come.")
@click.option("--force", is_flag=True, help="Replace DIR.")
@click.option("--allow-unsafe", is_flag=True, help="Accept a method without a guarantee.")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in DIR.partial/.")
@guarded
def solve(mechanism: str, problem: Path, out: Path, as_json: bool, quiet: bool, **options: Any) -> int:
    """Solve a problem, certify the release, write DIR."""
    from privopt.command.terminal import progress_display, summary
    from privopt.registry import registry
    from privopt.run.folder import dump_json
    from privopt.run.solve import Options
    from privopt.run.solve import solve as run

    if not quiet:
        _say_when_compiling()
    limit, gap = options["time_limit"], options["gap"]
    wanted = gap if gap is not None else registry().get(mechanism).method(options["method"]).gap
    with progress_display(quiet=quiet, limit=limit, gap=wanted) as progress:
        solved = run(mechanism, problem, out, Options(progress=progress, **options))
    for line in solved.warnings:
        complain(f"warning: {line}")
    if as_json:
        say_json(dump_json(solved.result.to_json()))
    if not quiet:
        summary(solved)
    return STOPPED_FEASIBLE if solved.stopped else DONE


@cli.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--jobs", type=click.IntRange(1, 1024), default=1, show_default=True, metavar="N", help="Processes and threads."
)
@click.option("--json", "as_json", is_flag=True, help="Verdict, complaints and certificate on standard output.")
@click.option("--require", type=click.Choice(["proved"]), help="End with 6 where part rests on its maker's word.")
@guarded
def verify(folder: Path, jobs: int, as_json: bool, require: str | None) -> int:
    """Check every claim again from the files in DIR and nothing else: proved, declared or none."""
    from privopt.run.folder import dump_json
    from privopt.run.verify import verify as run

    _say_when_compiling()
    found = run(folder, jobs=jobs)
    for line in found.complaints:
        complain(f"{folder}: {line}")
    word = f"{found.verdict} " if found.holds else ""
    for line in found.notes:
        complain(f"{folder}: note: {line}")
    if as_json:
        say_json(dump_json(found.to_json()))
    else:
        say(f"{word}{folder}: {found.words()}")
    if not found.holds:
        return DOES_NOT_HOLD
    return NO_PRIVACY if found.verdict == "none" or (require and found.verdict != require) else DONE


@cli.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--input", "input_id", metavar="ID", callback=_utf8, help="The secret: id of a record.")
@click.option("--at", metavar="LAT,LON", callback=_pair, help="The secret: a position; its nearest record is used.")
@click.option("--xy", metavar="X,Y", callback=_pair, help="The same in km.")
@click.option("-n", "count", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Draws.")
@guarded
def sample(
    folder: Path,
    input_id: str | None,
    at: tuple[float, float] | None,
    xy: tuple[float, float] | None,
    count: int,
) -> None:
    """Draw outputs for one secret, one a line, from the operating system's entropy."""
    from privopt.interfaces import Release
    from privopt.run.verify import open_to_sample, open_verified

    if sum(given is not None for given in (input_id, at, xy)) != 1:
        raise UsageError("sample: wanted one of --input ID, --at LAT,LON and --xy X,Y")
    _say_when_compiling()
    position = at or xy
    if position is not None:
        from privopt.tables.apply import record_at

        input_id = record_at(open_verified(folder), position, degrees=at is not None)
    name, release = open_to_sample(folder)
    if type(release).sample is Release.sample:
        raise UsageError(f"{name} has no distribution to sample: its release is one published result")
    _warn_of_no_privacy(folder)
    drawn = release.sample(str(input_id), count)
    step = 100_000
    for first in range(0, len(drawn), step):
        say_ids(drawn[first : first + step])


@cli.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("table", metavar="TABLE", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="TABLE2", help=".csv or .parquet.")
@click.option("--id", "id_", metavar="COLUMN", callback=_utf8, help="The secret: ids of records.")
@click.option("--lat", metavar="COLUMN", callback=_utf8, help="The secret: latitudes, in degrees; with --lon.")
@click.option("--lon", metavar="COLUMN", callback=_utf8, help="The secret: longitudes, in degrees; with --lat.")
@click.option("--x", metavar="COLUMN", callback=_utf8, help="The secret: x, in km; with --y.")
@click.option("--y", metavar="COLUMN", callback=_utf8, help="The secret: y, in km; with --x.")
@click.option("--geometry", metavar="COLUMN", callback=_utf8, help="The secret: points of a GeoParquet file.")
@click.option(
    "--max-snap",
    type=float,
    callback=_positive,
    metavar="KM",
    help="No report for rows farther from every record. For errors in the data: a refusal tells where a row is not.",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), metavar="N", help="For experiments: not private.")
@click.option("--json", "as_json", is_flag=True, help="Counts of rows, reports and refusals on standard output.")
@click.option("--quiet", is_flag=True, help="No progress; errors and warnings still come.")
@click.option("--force", is_flag=True, help="Replace TABLE2.")
@guarded
def apply(
    folder: Path,
    table: Path,
    out: Path,
    id_: str | None,
    max_snap: float | None,
    seed: int | None,
    as_json: bool,
    quiet: bool,
    force: bool,
    **columns: str | None,
) -> None:
    """Protect a table: a report in each row, drawn exactly as certified, in place of the secret's columns."""
    from privopt.command.terminal import progress_display
    from privopt.interfaces.result import SEEDED
    from privopt.tables.apply import apply as run
    from privopt.tables.apply import words_of
    from privopt.tables.secret import Secret

    secret = Secret.of(id=id_, **columns)
    _say_when_compiling()
    with progress_display(quiet=quiet) as progress:
        done = run(folder, table, out, secret, max_snap=max_snap, seed=seed, force=force, progress=progress)
    _warn_of_no_privacy(folder)
    for line in done.notes:
        complain(f"note: {line}")
    if seed is not None:
        complain(f"warning: {out}: {SEEDED}")
    if done.refused:
        left = done.rows - done.reported
        complain(f"{table}: {left:,} of {done.rows:,} rows without a report: {words_of(done.refused)}")
    if as_json:
        say_json(json.dumps(done.to_json(), indent=2))
    if not quiet:
        complain(f"{out}: {done.reported:,} reports in {done.rows:,} rows")


@cli.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@guarded
def audit(folder: Path, as_json: bool) -> None:
    """What an attacker gets from a release."""
    from privopt.command.terminal import progress_display
    from privopt.run.audit import audit as run
    from privopt.run.audit import table
    from privopt.run.folder import dump_json

    _say_when_compiling()
    with progress_display(quiet=False) as progress:
        if progress is not None:
            progress("attacking the release", 0, None, None)
        found = run(folder)
    _warn_of_no_privacy(folder)
    if as_json:
        say_json(dump_json(found))
    else:
        say(table(found).rstrip("\n"))


@cli.command()
@click.argument("mechanism")
@click.option("--points", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Places, or positions.")
@click.option("--roads", type=click.Path(path_type=Path), metavar="FILE", help="Table from,to,km between the places.")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="PROBLEM.toml", help="File to write.")
@click.option("--within", type=float, callback=_positive, metavar="KM", help="Hide whoever is so near to one another.")
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


@cli.command()
@click.argument("problem", metavar="PROBLEM.toml", type=click.Path(path_type=Path))
@click.option("--mechanisms", required=True, metavar="A,B", help="Names of mechanisms, with commas between.")
@click.option("--epsilon", required=True, metavar="LO:HI:N", help="N values from LO to HI, geometric.")
@click.option(
    "--matrix", "matrices", type=click.Path(path_type=Path), multiple=True, metavar="FILE", help="An own .npz or .npy."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE.csv", help="Table to write.")
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE.html", help="Also one page, works offline.")
@click.option("--gap", type=float, callback=_positive, metavar="RELATIVE", help="Relative gap asked for.")
@click.option("--solver", default="cbc", show_default=True, metavar="NAME", help="cbc, highs or a registered one.")
@click.option(
    "--jobs", type=click.IntRange(1, 1024), metavar="N", help="Processes and threads; default: 1, a thread a processor."
)
@click.option("--time-limit", type=float, callback=_positive, metavar="SECONDS", help="For the whole command.")
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
    from privopt.command.terminal import progress_display
    from privopt.run.solve import Options
    from privopt.tables.curve_files import write_curves

    names = [name.strip() for name in mechanisms.split(",") if name.strip()]
    _say_when_compiling()
    with progress_display(quiet=quiet, limit=time_limit) as progress:
        asked = Options(gap=gap, solver=solver, jobs=jobs, time_limit=time_limit, force=force, progress=progress)
        found = write_curves(problem, names, epsilon, out, report, asked, matrices)
    for line in found.notes:
        complain(f"note: {line}")
    return STOPPED_FEASIBLE if found.stopped else DONE


@cli.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--figures", type=click.Path(path_type=Path), metavar="FOLDER", help="Also SVG and PNG files there.")
@click.option("--geo", type=click.Path(path_type=Path), metavar="FILE", help="Also a map: .geojson or .parquet.")
@click.option("--truth", is_flag=True, help="Compare with the secrets; written into DIR/private/ instead.")
@guarded
def report(folder: Path, figures: Path | None, geo: Path | None, truth: bool) -> None:
    """Write DIR/report.html: one file, works offline."""
    from privopt.run.report.make import write_figures, write_geo, write_report

    _say_when_compiling()
    say(str(write_report(folder, truth=truth)))
    _warn_of_no_privacy(folder)
    if figures is not None:
        for path in write_figures(folder, figures):
            say(str(path))
    if geo is not None:
        say(str(write_geo(folder, geo)))


@cli.command()
@click.argument("mechanism")
@click.option("--method", metavar="NAME", help="One method; left out: every one that has a guarantee.")
@click.option("--json", "as_json", is_flag=True, help="A list of results on standard output.")
@guarded
def check(mechanism: str, method: str | None, as_json: bool) -> int:
    """The conformance kit on an installed mechanism."""
    from privopt.testing.command import check as run
    from privopt.testing.command import table

    results = run(
        mechanism, method, on_result=lambda r: complain(f"{r.method}: {r.check}: {r.status} ({r.seconds:.1f} s)")
    )
    if as_json:
        say_json(json.dumps([result.to_json() for result in results], indent=2, ensure_ascii=False))
    else:
        say(table(results))
    return DOES_NOT_HOLD if any(result.status == "failed" for result in results) else DONE


@cli.command()
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path), default=Path(), metavar="FOLDER", help="Where to write it.")
@guarded
def new(name: str, into: Path) -> None:
    """A new plugin project, whose tests pass as generated."""
    from privopt.command.new import new_plugin

    folder = new_plugin(name, into)
    say(f"{folder}: install it with 'python -m pip install -e {folder}', then 'privopt check {name}'")


def main() -> None:
    """Entry point of ``privopt`` and ``python -m privopt``."""
    try:
        sys.exit(cli.main(prog_name="privopt", standalone_mode=False) or DONE)
    except click.ClickException as error:  # of an argument, which may hold anything
        text = io.StringIO()
        error.show(text)
        complain(text.getvalue().rstrip("\n"))
        sys.exit(error.exit_code)
    except click.Abort:
        complain("interrupted")
        sys.exit(STOPPED_EMPTY)
