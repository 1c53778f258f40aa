"""The command line. Its commands, options and exit codes are described in docs/reference/command-line.md.

No large module is imported here. Each command imports what it needs, so that ``privopt list`` stays fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from privopt.command.completion import FOLDER, MECHANISM, METHOD
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
    handle_errors,
    positive,
    utf8,
)
from privopt.command.program import HELP, run_program, say_result
from privopt.command.release_commands import audit, report, sample, sign
from privopt.command.terminal import (
    align_columns,
    complain,
    divert_prints,
    line_width,
    print_result,
    progress_display,
    remark,
    say_json,
    show_step,
    summary,
)
from privopt.errors import PrivoptError, RegistryError, UsageError
from privopt.registry.missing import INSTALL_ALL
from privopt.specs import COMMAND_GROUPS, CommandSpec
from privopt.version import VERSION

__all__ = ["cli", "main"]


WIDE_COLUMNS: Final = 120
"""The minimum terminal width, in characters, at which ``list`` shows distributions in a separate column."""


class _Commands(click.Group):
    """The commands of the core and of plugins. A plugin's command is imported only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands of the core and of plugins, for help texts and shell completion."""
        from privopt.registry import registry

        with divert_prints():
            return sorted({*super().list_commands(ctx), *registry().of("command")})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command called ``cmd_name``, or None if there is no such command.

        The example and the documentation page from the command's specification are added below its help text. If the
        command is not found but some plugins are broken or missing, a usage error that names those plugins is raised,
        because one of them may have provided the command.
        """
        from privopt.registry import registry

        # The core's own commands are looked up first, so that no plugin can replace ``verify`` or ``solve``.
        command = super().get_command(ctx, cmd_name)
        with divert_prints():
            entry = registry().of("command").get(cmd_name)
            if command is None and entry is None:
                if absences := registry().describe_absences():
                    ctx.fail("; ".join([f"No such command {cmd_name!r}", *absences]))
                return None
            if command is None:
                try:
                    command = self._load_command(cmd_name)
                except PrivoptError as error:
                    ctx.fail(str(error))
        if entry is not None and not command.epilog:
            command.epilog = _epilog(entry.spec)
        return command

    def _load_command(self, name: str) -> click.Command:
        """Import the command that a plugin registered under ``name``.

        Raises:
            RegistryError: The command cannot be imported, or is not a :class:`click.Command`.
        """
        from privopt.registry import registry

        loaded = registry().import_entry("command", name)
        if not isinstance(loaded, click.Command):
            origin = registry().find("command", name).origin
            raise RegistryError(f"{origin}: the target must be a click.Command, got {type(loaded).__name__}")
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands for ``--help``, grouped under headings.

        Names and summaries come from the commands' specifications, so that plugins' commands need not be imported.
        """
        from privopt.registry import registry

        with divert_prints():
            specs = [entry.spec for entry in registry().of("command").values()]
        # The core's groups come first in their own order, then the plugins' groups by name.
        headings = [*COMMAND_GROUPS, *sorted({spec.group for spec in specs} - set(COMMAND_GROUPS))]
        width = max(len(spec.name) for spec in specs)
        for heading in headings:
            rows = [(f"{spec.name:<{width}}", spec.summary) for spec in specs if spec.group == heading]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def _epilog(spec: CommandSpec) -> str:
    """Return the text shown below a command's help: an example, and the page that explains the command."""
    lines = [f"Example:  {spec.example}"] if spec.example else []
    lines += [f"Read more: {spec.page}"] if spec.page else []
    return "\n\n".join(lines)


@click.group(cls=_Commands, context_settings={**HELP, "max_content_width": 100})
@click.version_option(VERSION, prog_name="privopt")
def cli() -> None:
    """Compute optimal privacy mechanisms, with proof.

    A problem file says what to hide, what may be published instead and what an error costs. Begin with privopt list,
    and with privopt describe MECHANISM.
    """


@cli.command("list")
@click.option("--json", "as_json", is_flag=True, help="A list of objects on standard output.")
@handle_errors
def list_(as_json: bool) -> int:
    """List every registered mechanism."""
    # The docstring is the text of --help. Broken plugins are listed too, on standard error.
    from privopt.registry import registry

    installed = registry()
    rows = [
        {
            "name": name,
            "plugin": entry.plugin,
            "version": entry.version,
            "guarantee": entry.spec.guarantee,
            "summary": entry.spec.summary,
        }
        for name, entry in installed.mechanisms.items()
    ]
    say_result(rows, align_columns([_list_cells(row) for row in rows]), as_json=as_json)
    if not rows:
        complain(f"no mechanism is installed; {INSTALL_ALL!r} brings those of the project")
    # These lines go to standard error, so that standard output contains only mechanisms.
    for broken in installed.broken:
        complain(f"broken: {broken.plugin} {broken.version}: {broken.reason}")
    # A damaged distribution is only reported, but an error by a plugin's author (`fatal`) makes the command fail.
    return BAD_USAGE if any(broken.fatal for broken in installed.broken) else DONE


def _list_cells(row: dict[str, str]) -> tuple[str, ...]:
    """Return the cells of a mechanism's row in ``privopt list``.

    On a narrow terminal, the distribution is appended to the summary instead of being shown in its own column.
    """
    origin, width = f"{row['plugin']} {row['version']}", line_width()
    if width is not None and width < WIDE_COLUMNS:
        return row["name"], row["guarantee"], f"{row['summary']} ({origin})"
    return row["name"], origin, row["guarantee"], row["summary"]


@cli.command()
@click.argument("mechanism", type=MECHANISM)
@click.option("--json", "as_json", is_flag=True, help="The same on standard output as one object.")
@handle_errors
def describe(mechanism: str, as_json: bool) -> None:
    """Describe a mechanism's problem file key by key, its methods, its guarantee and its source."""
    # The docstring is the text of --help. ``mechanism`` is a name.
    from privopt.declare import describe_keys
    from privopt.declare.schema import ProblemHeading
    from privopt.interfaces import Mechanism
    from privopt.interfaces.abilities import TakesKinds
    from privopt.registry import registry

    entry = registry().get(mechanism)
    spec = entry.spec
    loaded: Mechanism[Any, Any] = entry.load()
    # The keys omit kinds of distances, losses and so on that the mechanism does not accept.
    takes: dict[str, Any] = {"takes": loaded.takes} if isinstance(loaded, TakesKinds) else {}
    # The keys that every problem file can have (title and purpose) come before the mechanism's own.
    rows = [*describe_keys(ProblemHeading), *describe_keys(loaded.problem_class, **takes)]
    methods = []
    for method in spec.methods:
        notes = ["default"] if method is spec.default else []
        if not spec.promises(method):
            notes.append(f"guarantee none{': needs --allow-unsafe' * spec.asks(method)}")
        methods.append({"name": method.name, "summary": method.summary, "notes": notes})
    # The same facts are collected twice, here as a document for --json, and below as text.
    document = {
        "name": spec.name,
        "plugin": entry.plugin,
        "version": entry.version,
        "summary": spec.summary,
        "source": spec.source,
        "guarantee": spec.guarantee,
        "scope": loaded.scope,
        "methods": methods,
        "keys": [{name: getattr(row, name) for name in ("key", "type", "unit", "default", "help")} for row in rows],
    }
    method_rows = [
        (str(m["name"]), f"{m['summary']}{' (' + ', '.join(m['notes']) + ')' if m['notes'] else ''}") for m in methods
    ]
    key_rows = [
        (row.key, f"{row.type}{f' [{row.unit}]' if row.unit else ''}; {row.default}; {row.help}") for row in rows
    ]
    lines = [f"{spec.name}  ({entry.plugin} {entry.version})", align_columns([(spec.summary,)])]
    lines += [align_columns([(f"Source: {spec.source}",)])] if spec.source else []
    lines += ["", f"Guarantee: {spec.guarantee}"]
    lines += [align_columns([(loaded.scope,)], indent=2)] if loaded.scope else []
    lines += ["", "Methods", align_columns(method_rows, indent=2)]
    lines += ["", "Problem file (TOML)", align_columns(key_rows, indent=2)]
    say_result(document, "\n".join(lines), as_json=as_json)


@cli.command()
@click.argument("mechanism", type=MECHANISM)
@click.argument("problem", type=PATH)
@click.option("--out", type=FOLDER, required=True, metavar="DIR", help="Folder to write.")
@click.option("--method", type=METHOD, metavar="NAME", help="One of the mechanism's methods (see describe).")
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
    help="Charge epsilon before noise is drawn; created if missing.",
)
@click.option(
    "--subject",
    metavar="ID",
    callback=utf8,
    help="With --ledger: the subject; default: the one secret file's name, if the ledger knows no other subject.",
)
@HASH_SUBJECTS
@click.option("--json", "as_json", is_flag=True, help="Also print result.json on standard output, and nothing else.")
@QUIET
@click.option(
    "--copy-to", type=PATH, metavar="FOLDER", help="Folder for clean copies of what is released (photos kept)."
)
@click.option("--force", is_flag=True, help="Replace DIR.")
@click.option("--allow-unsafe", is_flag=True, help="Accept a method without a guarantee.")
@click.option("--resume", is_flag=True, help="Continue from the checkpoint in DIR.partial/.")
@click.option("--sign", "signer", type=PATH, metavar="KEY", help="Also sign DIR, as privopt sign does.")
@handle_errors
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
    # The docstring is the text of --help. ``mechanism`` is a name, ``problem`` the TOML file and ``out`` the folder DIR
    # to write. ``key`` is the file with the key under which the ledger hashes subjects, ``signer`` the key for --sign.
    # ``options`` are those of privopt.run.task.Options that need no conversion.
    from privopt.files.release_folder import dump_json
    from privopt.ledger.charge import Charge
    from privopt.run.signatures import check_key
    from privopt.run.signatures import sign as sign_folder
    from privopt.run.solve import solve as run
    from privopt.run.task import Options

    # A key that cannot sign raises an error before the solve, which may take hours.
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
        remark(f"warning: {line}")
    if signer is not None:
        with progress_display(quiet=quiet) as progress:
            sign_folder(solved.folder, signer, progress=progress)
    if as_json:
        say_json(dump_json(solved.result.to_json()))
    if not quiet:
        summary(solved)
    return STOPPED_FEASIBLE if solved.stopped else DONE


@cli.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@JOBS
@click.option("--json", "as_json", is_flag=True, help="Verdict, complaints and certificate on standard output.")
@QUIET
@click.option("--require", type=click.Choice(["proved"]), help="End with code 6 if part rests on the publisher's word.")
@click.option("--kernel", is_flag=True, help="Also check with the program extracted from a proof (make formal).")
@click.option("--signed-by", "signers", type=PATH, metavar="FILE", help="Also name which of these signers signed it.")
@handle_errors
def verify(
    folder: Path,
    jobs: int | None,
    as_json: bool,
    quiet: bool,
    require: str | None,
    kernel: bool,
    signers: Path | None,
) -> int:
    """Check every claim again from the files in DIR and nothing else: proved, declared or none."""
    # The docstring is the text of --help. ``jobs`` is the number of threads, ``require`` the word "proved" or None, and
    # ``signers`` an OpenSSH file of the people whose signature is accepted.
    from privopt.registry import registry
    from privopt.run.kernel import find_kernel, prove
    from privopt.run.signatures import with_signature
    from privopt.run.verify import verify as run

    if kernel:
        find_kernel()  # if there is no kernel, raises an error before the verification, which may take long
    # Damaged distributions are named because the folder may need a mechanism from one of them.
    for broken in registry().broken:
        if broken.is_damaged:
            complain(f"broken: {broken.plugin} {broken.version}: {broken.reason}")

    with progress_display(quiet=quiet) as progress:
        outcome = run(folder, jobs=jobs, progress=progress)
    # A signature shows who vouches for the folder, which matters only if the folder's claims hold.
    if signers is not None and outcome.holds:
        outcome = with_signature(outcome, folder, signers)
    for line in outcome.complaints:
        complain(f"{folder}: {line}")
    word = f"{outcome.verdict} " if outcome.holds else ""
    for line in outcome.notes:
        remark(f"{folder}: note: {line}")
    # The kernel is a checker that has itself been proved correct. ``by_kernel`` says in words what it proved.
    by_kernel = None
    if kernel and outcome.holds:
        with progress_display(quiet=quiet) as progress:
            show_step(progress, "the proved checker")
            by_kernel = prove(folder)
    words = outcome.words() + (f"; proved, by a proved checker: {by_kernel}" if by_kernel else "")
    document = outcome.to_json() | ({"kernel": by_kernel} if kernel else {})
    text = f"{word}{folder}: {words}"
    say_result(document, text, as_json=as_json)
    if outcome.holds and outcome.verdict != "none" and (require is None or outcome.verdict == require):
        return DONE
    if quiet and not as_json:
        complain(text)
    # If the claims hold, the release gives no privacy or has weaker evidence than --require demands.
    return NO_PRIVACY if outcome.holds else DOES_NOT_HOLD


@cli.command()
@click.argument("mechanism", type=MECHANISM)
@click.argument("problem", type=PATH)
@click.option("--method", type=METHOD, metavar="NAME", help="One of the mechanism's methods (see describe).")
@click.option("--json", "as_json", is_flag=True, help="The same on standard output as one object.")
@QUIET
@handle_errors
def plan(mechanism: str, problem: Path, method: str | None, as_json: bool, quiet: bool) -> None:
    """Predict errors before epsilon is chosen; secret files are not opened."""
    # The docstring is the text of --help. ``mechanism`` and ``method`` are names, where None stands for the default
    # method. ``problem`` is the TOML file.
    from privopt.declare.schema import File
    from privopt.errors import faults_in
    from privopt.interfaces import Mechanism, SolveContext
    from privopt.interfaces.abilities import Plans
    from privopt.registry import registry
    from privopt.run.task import read_problem

    entry = registry().get(mechanism)
    chosen_method = entry.method(method)
    # If a method gives no guarantee, there is no epsilon to choose.
    if not entry.spec.promises(chosen_method):
        raise UsageError(f"plan: method must be one that gives privacy, got {chosen_method.name}")
    loaded: Mechanism[Any, Any] = entry.load()
    if not isinstance(loaded, Plans):
        advice = "curve compares epsilons of mechanisms over places"
        raise UsageError(f"plan: {mechanism} cannot predict its errors before it is solved; {advice}")
    # With closed=True, secret files are not opened, so that choosing a budget by means of the plan costs no privacy.
    declared = read_problem(loaded, File.read(problem, expectation="a problem file in TOML"), closed=True)
    with progress_display(quiet=quiet) as progress, faults_in(problem.name):
        error_plan = loaded.plan(declared, problem.name, SolveContext(method=chosen_method.name, progress=progress))
    say_result({"mechanism": mechanism, **error_plan.to_json()}, "\n".join(error_plan.lines()), as_json=as_json)


@cli.command()
@click.argument("mechanism", type=MECHANISM)
@click.option("--method", type=METHOD, metavar="NAME", help="One method; default: every one that has a guarantee.")
@click.option("--only", multiple=True, metavar="CHECK", help="Only this check; may be repeated.")
@click.option(
    "--effort",
    type=click.Choice(["quick", "ci", "full"]),
    help="How long to search: seconds, a minute, or hours. Default: PRIVOPT_PROFILE, else ci.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, metavar="N", help="Of the problems drawn.")
@click.option(
    "--fail-on-skip", is_flag=True, help="A check that applies and is skipped fails, unless the profile says why."
)
@click.option("--json", "as_json", is_flag=True, help="A list of results on standard output.")
@handle_errors
def check(
    mechanism: str,
    method: str | None,
    only: tuple[str, ...],
    effort: str | None,
    seed: int,
    fail_on_skip: bool,
    as_json: bool,
) -> int:
    """Run the conformance kit on an installed mechanism."""
    # The docstring is the text of --help. ``mechanism``, ``method`` (None for all) and ``only`` (none for all checks)
    # are names, and ``seed`` is the seed for drawing problems. Each result is reported on standard error at once.
    from privopt.registry import registry
    from privopt.testing.command import check as run
    from privopt.testing.command import judge_skips, table

    if not only:
        for line in registry().describe_absences():
            complain(f"checks of other distributions are not run; {line}")
    with progress_display(quiet=False) as progress:
        results = run(
            mechanism,
            method,
            only=only,
            how=effort,
            seed=seed,
            on_result=lambda r: complain(f"{r.method}: {r.check}: {r.status} ({r.seconds:.1f} s)"),
            progress=progress,
        )
    if fail_on_skip:
        results = judge_skips(results)
    say_result([result.to_json() for result in results], table(results), as_json=as_json)
    return DOES_NOT_HOLD if any(result.status == "failed" for result in results) else DONE


@cli.command()
@click.option("--out", type=PATH, required=True, metavar="FILE.pyz", help="The file to write.")
@QUIET
@click.option("--force", is_flag=True, help="Replace FILE.pyz.")
@handle_errors
def checker(out: Path, quiet: bool, force: bool) -> None:
    """Write a one-file program that checks a folder with Python's standard library alone, without privopt."""
    # The docstring is the text of --help. ``out`` is the program to write, a zip file that Python runs.
    from privopt.command.checker_file import checker_file
    from privopt.files.new_folder import check_file, new_file

    check_file(out, force=force, option="--out")
    contents, parts = checker_file(out.name)
    with new_file(out, force=force) as target:
        target.write_bytes(contents)
    if not quiet:
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
@handle_errors
def new(name: str, into: Path, kind: str) -> None:
    """Write a new plugin project, whose tests pass as generated."""
    # The docstring is the text of --help. ``name`` is the mechanism's name, and ``kind`` the name of a template.
    from privopt.command.new import new_plugin

    folder = new_plugin(name, into, kind)
    how = f"'uv pip install -e {folder}' (or 'python -m pip install ...')"
    print_result(f"{folder}: install it with {how}, then 'privopt check {name}'")


for _command in (sample, audit, report, sign):
    cli.add_command(_command)


def main() -> None:
    """Run the command line, and raise SystemExit with the exit code. :mod:`privopt.__main__` calls this function."""
    run_program(cli, "privopt")
