"""The command line. Commands, options and exit codes are those of docs/reference/command-line.md.

Nothing heavy is imported here: each command imports what it needs, so ``privopt list`` stays fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privopt.command.exit_codes import (
    BAD_USAGE,
    DOES_NOT_HOLD,
    DONE,
    GAP,
    HASH_SUBJECTS,
    JOBS,
    NO_PRIVACY,
    PATH,
    QUIET,
    SEED,
    SOLVER,
    STOPPED_FEASIBLE,
    TIME_LIMIT,
    guarded,
    positive,
    utf8,
)
from privopt.command.program import HELP, run_program, say_result
from privopt.command.release_commands import audit, report, sample, sign
from privopt.command.terminal import complain, divert_prints, print_result, progress_display, say_json, summary
from privopt.errors import PrivoptError, UsageError
from privopt.version import VERSION

__all__ = ["cli", "main"]


class _Commands(click.Group):
    """The core's commands, and those that plugins register; these are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from privopt.registry import registry

        with divert_prints():
            return sorted({*super().list_commands(ctx), *registry().of("command")})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from privopt.registry import registry

        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        with divert_prints():
            if cmd_name not in registry().of("command"):
                if absences := registry().describe_absences():
                    ctx.fail("; ".join([f"No such command {cmd_name!r}", *absences]))
                return None
            try:
                loaded = registry().import_entry("command", cmd_name)
            except PrivoptError as error:
                ctx.fail(str(error))
        if not isinstance(loaded, click.Command):
            origin = registry().find("command", cmd_name).origin
            ctx.fail(f"{origin}: the target must be a click.Command, got {type(loaded).__name__}")
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing those of plugins."""
        from privopt.registry import registry

        rows = []
        for name in self.list_commands(ctx):
            own = super().get_command(ctx, name)
            rows.append(
                (name, registry().of("command")[name].spec.summary if own is None else own.get_short_help_str(80))
            )
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=_Commands, context_settings={**HELP, "max_content_width": 100})
@click.version_option(VERSION, prog_name="privopt")
def cli() -> None:
    """Compute optimal privacy mechanisms, with proof."""


@cli.command("list")
@click.option("--json", "as_json", is_flag=True, help="A list of objects on standard output.")
@guarded
def list_(as_json: bool) -> int:
    """List every registered mechanism."""
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
    width = max((len(row["name"]) for row in rows), default=0)
    owners = [f"{row['plugin']} {row['version']}" for row in rows]
    origin = max(map(len, owners), default=0)
    lines = [
        f"{row['name']:<{width}}  {owner:<{origin}}  {row['guarantee']:<9}  {row['summary']}"
        for row, owner in zip(rows, owners, strict=True)
    ]
    say_result(rows, "\n".join(lines), as_json=as_json)
    for broken in taken.broken:
        complain(f"broken: {broken.plugin} {broken.version}: {broken.reason}")
    return BAD_USAGE if any(broken.fatal for broken in taken.broken) else DONE


@cli.command()
@click.argument("mechanism")
@guarded
def describe(mechanism: str) -> None:
    """Describe a mechanism's problem file key by key, its methods, its guarantee and its source."""
    from privopt.declare import describe_keys
    from privopt.declare.schema import ProblemHeading
    from privopt.interfaces import Mechanism
    from privopt.registry import registry

    found = registry().get(mechanism)
    spec = found.spec
    print_result(f"{spec.name}  ({found.plugin} {found.version})\n{spec.summary}")
    if spec.source:
        print_result(f"Source: {spec.source}")
    loaded: Mechanism[Any, Any] = found.load()
    print_result(f"\nGuarantee: {spec.guarantee}")
    if loaded.scope:
        print_result(f"  {loaded.scope}")
    print_result("\nMethods")
    wide = max(len(method.name) for method in spec.methods)
    for method in spec.methods:
        notes = [
            note
            for note in (
                "default" if method is spec.default else "",
                "" if spec.promises(method) else f"guarantee none{': needs --allow-unsafe' * spec.asks(method)}",
            )
            if note
        ]
        remark = f" ({', '.join(notes)})" if notes else ""
        print_result(f"  {method.name:<{wide}}  {method.summary}{remark}")
    print_result("\nProblem file (TOML)")
    from privopt.interfaces.abilities import TakesKinds

    takes: dict[str, Any] = {"takes": loaded.takes} if isinstance(loaded, TakesKinds) else {}
    rows = [*describe_keys(ProblemHeading), *describe_keys(loaded.problem_class, **takes)]
    wide = max(len(row.key) for row in rows)
    for row in rows:
        unit = f" [{row.unit}]" if row.unit else ""
        print_result(f"  {row.key:<{wide}}  {row.type}{unit}; {row.default}; {row.help}")


@cli.command()
@click.argument("mechanism")
@click.argument("problem", type=PATH)
@click.option("--out", type=PATH, required=True, metavar="DIR", help="Folder to write.")
@click.option("--method", metavar="NAME", help="One of the mechanism's methods (see describe).")
@SOLVER
@JOBS
@click.option("--executor", metavar="URL", help="A cluster: dask://host:port (extra privopt[dask]).")
@TIME_LIMIT
@click.option("--memory", type=float, callback=positive, metavar="GB", help="Most memory; default: what is free.")
@GAP
@click.option("--seed", type=SEED, metavar="N", help="For experiments: not private.")
@click.option(
    "--ledger",
    type=PATH,
    metavar="FILE",
    help="Charge epsilon before noise is drawn; made where there is none.",
)
@click.option(
    "--subject",
    metavar="ID",
    callback=utf8,
    help="With --ledger: whom; default: the one secret file's name, if the ledger knows no other subject.",
)
@HASH_SUBJECTS
@click.option("--json", "as_json", is_flag=True, help="result.json also on standard output, nothing else there.")
@QUIET
@click.option("--copy-to", type=PATH, metavar="FOLDER", help="Clean copies of what is let out (photos kept).")
@click.option("--force", is_flag=True, help="Replace DIR.")
@click.option("--allow-unsafe", is_flag=True, help="Accept a method without a guarantee.")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in DIR.partial/.")
@click.option("--sign", "signer", type=PATH, metavar="KEY", help="Also sign DIR, as privopt sign does.")
@guarded
def solve(
    mechanism: str,
    problem: Path,
    out: Path,
    as_json: bool,
    quiet: bool,
    ledger: Path | None,
    subject: str | None,
    key: Path | None,
    signer: Path | None,
    **options: Any,
) -> int:
    """Solve a problem, certify the release, write DIR."""
    from privopt.files.release_folder import dump_json
    from privopt.ledger.charge import Charge
    from privopt.run.options import Options
    from privopt.run.signatures import check_key
    from privopt.run.signatures import sign as sign_folder
    from privopt.run.solve import solve as run

    if signer is not None:
        check_key(signer)
    if ledger is None and (subject is not None or key is not None):
        raise UsageError("solve: --subject and --hash-subjects must be used with --ledger FILE, got no ledger")
    charged = None
    if ledger is not None:
        charged = Charge(ledger=ledger, subject=subject, key=key)
    with progress_display(quiet=quiet, limit=options["time_limit"]) as progress:
        solved = run(mechanism, problem, out, Options(progress=progress, charged=charged, **options))
    for line in solved.warnings:
        complain(f"warning: {line}")
    if signer is not None:
        sign_folder(solved.folder, signer)
    if as_json:
        say_json(dump_json(solved.result.to_json()))
    if not quiet:
        summary(solved)
    return STOPPED_FEASIBLE if solved.stopped else DONE


@cli.command()
@click.argument("folder", metavar="DIR", type=PATH)
@JOBS
@click.option("--json", "as_json", is_flag=True, help="Verdict, complaints and certificate on standard output.")
@click.option("--require", type=click.Choice(["proved"]), help="End with 6 where part rests on its maker's word.")
@click.option("--kernel", is_flag=True, help="Also by the program that a proof was extracted to (make formal).")
@click.option("--signed-by", "signers", type=PATH, metavar="FILE", help="Also who of these signed it.")
@guarded
def verify(
    folder: Path, jobs: int | None, as_json: bool, require: str | None, kernel: bool, signers: Path | None
) -> int:
    """Check every claim again from the files in DIR and nothing else: proved, declared or none."""
    from privopt.registry import registry
    from privopt.run.kernel import find_kernel, prove
    from privopt.run.signatures import with_signature
    from privopt.run.verify import verify as run

    if kernel:
        find_kernel()
    for broken in registry().broken:
        if broken.is_damaged:
            complain(f"broken: {broken.plugin} {broken.version}: {broken.reason}")

    with progress_display(quiet=False) as progress:
        found = run(folder, jobs=jobs, progress=progress)
    if signers is not None and found.holds:
        found = with_signature(found, folder, signers)
    for line in found.complaints:
        complain(f"{folder}: {line}")
    word = f"{found.verdict} " if found.holds else ""
    for line in found.notes:
        complain(f"{folder}: note: {line}")
    by_kernel = prove(folder) if kernel and found.holds else None
    words = f"{found.words()}" + (f"; proved, by a proved checker: {by_kernel}" if by_kernel else "")
    document = found.to_json() | ({"kernel": by_kernel} if kernel else {})
    say_result(document, f"{word}{folder}: {words}", as_json=as_json)
    if not found.holds:
        return DOES_NOT_HOLD
    return NO_PRIVACY if found.verdict == "none" or (require and found.verdict != require) else DONE


@cli.command()
@click.argument("mechanism")
@click.argument("problem", type=PATH)
@click.option("--method", metavar="NAME", help="One of the mechanism's methods (see describe).")
@click.option("--json", "as_json", is_flag=True, help="The same on standard output as one object.")
@QUIET
@guarded
def plan(mechanism: str, problem: Path, method: str | None, as_json: bool, quiet: bool) -> None:
    """Predict errors before epsilon is chosen; secret files are not opened."""
    from privopt.declare.schema import File
    from privopt.errors import faults_in
    from privopt.interfaces import Mechanism, SolveContext
    from privopt.interfaces.abilities import Plans
    from privopt.registry import registry
    from privopt.run.task import read_problem

    found = registry().get(mechanism)
    chosen = found.method(method)
    if not found.spec.promises(chosen):
        raise UsageError(f"plan: method must be one that gives privacy, got {chosen.name}")
    loaded: Mechanism[Any, Any] = found.load()
    if not isinstance(loaded, Plans):
        other = "curve compares epsilons of mechanisms over places"
        raise UsageError(f"plan: {mechanism} cannot predict its errors before it is solved; {other}")
    declared = read_problem(loaded, File.read(problem, wanted="a problem file in TOML"), closed=True)
    with progress_display(quiet=quiet) as progress, faults_in(problem.name):
        made = loaded.plan(declared, problem.name, SolveContext(method=chosen.name, progress=progress))
    say_result({"mechanism": mechanism, **made.to_json()}, "\n".join(made.lines()), as_json=as_json)


@cli.command()
@click.argument("mechanism")
@click.option("--method", metavar="NAME", help="One method; default: every one that has a guarantee.")
@click.option("--only", multiple=True, metavar="CHECK", help="One check alone; may be given again for more.")
@click.option("--seed", type=SEED, default=0, show_default=True, metavar="N", help="Of the problems drawn.")
@click.option(
    "--fail-on-skip", is_flag=True, help="A check that applies and is skipped fails, unless the profile says why."
)
@click.option("--json", "as_json", is_flag=True, help="A list of results on standard output.")
@guarded
def check(
    mechanism: str,
    method: str | None,
    only: tuple[str, ...],
    seed: int,
    fail_on_skip: bool,
    as_json: bool,
) -> int:
    """Run the conformance kit on an installed mechanism."""
    from privopt.registry import registry
    from privopt.testing.command import check as run
    from privopt.testing.command import judge_skips, table

    if not only:
        for line in registry().describe_absences():
            complain(f"checks of other distributions are not tried; {line}")
    results = run(
        mechanism,
        method,
        only=only,
        seed=seed,
        on_result=lambda r: complain(f"{r.method}: {r.check}: {r.status} ({r.seconds:.1f} s)"),
    )
    if fail_on_skip:
        results = judge_skips(results)
    say_result([result.to_json() for result in results], table(results), as_json=as_json)
    return DOES_NOT_HOLD if any(result.status == "failed" for result in results) else DONE


@cli.command()
@click.option("--out", type=PATH, required=True, metavar="FILE.pyz", help="The file to write.")
@click.option("--force", is_flag=True, help="Replace FILE.pyz.")
@guarded
def checker(out: Path, force: bool) -> None:
    """Write a program that checks a folder where no privopt is installed: one file, Python's standard library alone."""
    from privopt.command.checker_file import checker_file
    from privopt.files.new_folder import new_file
    from privopt.files.targets import check_file

    check_file(out, force=force, option="--out")
    contents, parts = checker_file(out.name)
    with new_file(out, force=force) as target:
        target.write_bytes(contents)
    print_result(f"{out}: {len(contents):,} bytes, for guarantees of kind {', '.join(parts) or 'none'}")
    print_result(f"python -I {out} DIR checks a folder")


@cli.command()
@click.argument("name")
@click.option("--into", type=PATH, default=Path(), metavar="FOLDER", help="Where to write it.")
@click.option(
    "--kind",
    default="matrix",
    show_default=True,
    metavar="KIND",
    help="What it releases: noise or selection, and with privopt-metric-dp matrix or sampler.",
)
@guarded
def new(name: str, into: Path, kind: str) -> None:
    """Write a new plugin project, whose tests pass as generated."""
    from privopt.command.new import new_plugin

    folder = new_plugin(name, into, kind)
    how = f"'uv pip install -e {folder}' (or 'python -m pip install ...')"
    print_result(f"{folder}: install it with {how}, then 'privopt check {name}'")


for _command in (sample, audit, report, sign):
    cli.add_command(_command)


def main() -> None:
    """Run the command line: ``privopt`` and ``python -m privopt``."""
    run_program(cli, "privopt")
