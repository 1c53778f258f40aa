"""The pipeline from a problem file to a certified DIR, in four steps: read, search, certify, publish.

A time limit ends the search. Certifying and writing follow: a search leaves them the time that they are expected to
take, and they are not broken off. Nothing is written that the mechanism's own privacy constraint did not certify.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from privopt.declare import File, files_of
from privopt.errors import PrivoptError, RoundTripError, StoppedError, UsageError, faults_in
from privopt.execution import from_url
from privopt.execution.clock import Clock, clock, within
from privopt.execution.interrupts import interrupts
from privopt.execution.limits import limited_to
from privopt.execution.memo import remembering
from privopt.execution.memory import GB, available, resident
from privopt.files.release_folder import PRIVATE, RESULT, dump_json
from privopt.interfaces import Outcome, Result, SolveContext
from privopt.interfaces.result import Times
from privopt.registry import registry
from privopt.run.build_result import conclude, named, warned
from privopt.run.options import Options
from privopt.run.publish import Copies, Place, check_target, discard_partial, hidden_folders, new_copies
from privopt.run.task import Task, read_task, select_method
from privopt.run.verify import verify

__all__ = ["SolveOutcome", "solve"]


@frozen(kw_only=True)
class SolveOutcome:
    """What ``solve`` did.

    Attributes:
        folder: The folder that was written.
        result: Its result.json.
        stopped: Whether the search was stopped early.
        warnings: What anyone who uses the release must know, a sentence each.
        meaning: What the guarantee amounts to, a sentence each.
    """

    folder: Path
    result: Result
    stopped: bool
    warnings: tuple[str, ...] = field(default=())
    meaning: tuple[str, ...] = field(default=())


@frozen(kw_only=True, eq=False)
class Run:
    """What the steps of one run share.

    Attributes:
        options: How to solve.
        out: The folder to write.
        start_time: When the run began, on the monotonic clock.
        context: How the mechanism works.
        place: Makes the hidden folder that becomes DIR.
        copies: The hidden folder of clean copies, if any.
        add_note: Adds a sentence to any error that is raised later.
    """

    options: Options
    out: Path
    start_time: float
    context: SolveContext
    place: Place
    copies: Copies
    add_note: Callable[[str], None]


def solve(name: str, problem_file: Path | File, out: Path, options: Options | None = None) -> SolveOutcome:
    """Solve a problem, certify the release, write the folder.

    Args:
        name: The mechanism.
        problem_file: A TOML file, on disk or in memory.
        out: The folder to write.
        options: See :class:`Options`.

    Raises:
        PrivoptError: Nothing was written. Its ``exit_code`` is that of the command.
    """
    with _open_run(name, out, options or Options()) as run:
        expectation = "a problem file in TOML"
        source = problem_file if isinstance(problem_file, File) else File.read(problem_file, wanted=expectation)
        with faults_in(source.name):
            task = read(name, source, run)
            outcome = search(task, run)
            result = certify(task, outcome, run)
            return publish(task, outcome, result, run)


def read(name: str, source: File, run: Run) -> Task:
    """Read the problem within the time limit, and charge the ledger, if there is one, before anything is drawn."""
    with within(run.context.search_time):
        task = read_task(name, source, run.out, run.options, run.context)
    if run.options.charged is not None:
        sentence = run.options.charged.charge_solve(
            task.privacy,
            task.declared,
            task.mechanism.release_class,
            seeded=run.options.seed is not None,
            mechanism=task.copy.sha256,
            purpose=f"solve {name} --method {task.method.name}, {source.name}",
            progress=run.options.progress,
        )
        run.add_note(sentence)
    return task


def search(task: Task, run: Run) -> Outcome[Any]:
    """Run the mechanism's search. At the time limit or an interrupt it returns the best so far.

    Raises:
        StoppedError: The search was interrupted before anything feasible was found.
    """
    try:
        outcome = task.mechanism.solve(task.problem, run.context)
    except KeyboardInterrupt:
        name = task.registered.spec.name
        raise StoppedError(f"{name}: interrupted before anything feasible was found; nothing written") from None
    task.registered.expect("solve", outcome, Outcome)
    return outcome


def certify(task: Task, outcome: Outcome[Any], run: Run) -> Result:
    """Measure the release by its own privacy constraint, and build the result of a release that holds."""
    return conclude(
        task.registered, task.method, task.mechanism, task.problem, outcome, run.context, run.options, task.copy
    )


def publish(task: Task, outcome: Outcome[Any], result: Result, run: Run) -> SolveOutcome:
    """Write the folder, verify it as a recipient would, and give it its name."""
    work, late_warnings = run.place.new(), list[str]()
    result = _write(task, outcome, result, run, work)
    # Whatever is said about the release is made before the folder gets its name: it may raise.
    warnings = warned(task.mechanism, task.problem, outcome.release, result)
    observed = registry().notify_released(outcome.release, task.problem)
    meaning = task.mechanism.meaning(task.problem, outcome.release, result)
    run.place.complete(work, private=task.mechanism.private_folder, check=_check_written)
    run.copies.place()
    run.place.publish(work, late_warnings.append)
    if run.context.checkpoint is not None and not outcome.stopped:
        discard_partial(run.context.checkpoint, late_warnings.append)
    return SolveOutcome(
        folder=run.out,
        result=result,
        stopped=outcome.stopped,
        warnings=(*warnings, *observed, *late_warnings),
        meaning=tuple(meaning),
    )


def _write(task: Task, outcome: Outcome[Any], result: Result, run: Run, work: Path) -> Result:
    """Write all files of a release into a hidden folder; return the result as its result.json has it."""
    outcome.release.write(work)
    if outcome.proof is not None and result.objective.lower_bound is not None:
        outcome.proof.write(work)
    copy = task.copy.publishing(task.mechanism.public_files(task.problem, outcome.release))
    copy.write(work)
    private = work / PRIVATE
    private.mkdir(exist_ok=True)
    outcome.release.write_private(private)
    if outcome.truth is not None:
        (private / "truth.json").write_text(dump_json(outcome.truth), "utf-8")
    if not any(private.iterdir()):
        private.rmdir()
    result = evolve(result, problem=named(copy), time=_phase_times(task, run))
    (work / RESULT).write_text(dump_json(result.to_json()), "utf-8")
    return result


def _check_written(work: Path) -> None:
    """Verify a folder from its files alone, as a recipient would.

    Raises:
        RoundTripError: The folder cannot be read back, or does not hold.
    """
    try:
        verdict = verify(work)
    except StoppedError:
        raise
    except PrivoptError as error:
        reason = str(error).replace(f"{work}/", "")
        raise RoundTripError(f"what was written cannot be read back, so it was removed: {reason}") from error
    if not verdict.holds:
        lines = "; ".join(verdict.complaints[:5])
        raise RoundTripError(f"what was written does not hold, so it was removed: {lines}")


def _phase_times(task: Task, run: Run) -> Times:
    """Return the seconds that each phase took.

    If the problem has secret files, times are rounded up to whole seconds, because exact times could reveal them.
    """
    times = {phase: run.context.times.get(phase, 0.0) for phase in ("build", "solve", "repair", "verify")}
    times["total"] = time.monotonic() - run.start_time
    has_secret = any(file.secret for file in files_of(task.declared))
    return Times(**{phase: math.ceil(seconds) if has_secret else round(seconds, 6) for phase, seconds in times.items()})


@contextmanager
def _open_run(name: str, out: Path, options: Options) -> Iterator[Run]:
    """Open what a run works with; first refuse what cannot be written."""
    start_time = time.monotonic()
    search_time = Clock(options.time_limit, clock())
    _, method = select_method(name, options)
    check_target(out.absolute(), force=options.force)
    checkpoint = out.absolute().with_name(out.name + ".partial")
    if options.resume and (checkpoint.is_symlink() or not checkpoint.is_dir()):
        raise UsageError(f"--resume: the folder {checkpoint} to go on from must exist")
    with ExitStack() as stack:
        executor = stack.enter_context(from_url(options.executor, options.jobs or 1))
        stack.enter_context(limited_to(options.jobs))
        stack.enter_context(interrupts())  # SIGTERM is handled like Ctrl-C: the search ends with the best so far
        copies = stack.enter_context(new_copies(options.copy_to, out, force=options.force))
        stack.enter_context(remembering())
        add_note = stack.enter_context(_notes_on_errors())
        place = stack.enter_context(hidden_folders(out, force=options.force))
        context = SolveContext(
            method=method.name,
            solver=options.solver,
            gap=method.gap if options.gap is None else options.gap,
            search_time=search_time,
            memory=resident() + available() if options.memory is None else options.memory * GB,
            seed=options.seed,
            executor=executor,
            progress=options.progress,
            checkpoint=checkpoint,
            resume=options.resume,
            copies=copies.work,
        )
        yield Run(
            options=options,
            out=out,
            start_time=start_time,
            context=context,
            place=place,
            copies=copies,
            add_note=add_note,
        )


@contextmanager
def _notes_on_errors() -> Iterator[Callable[[str], None]]:
    """Yield a function that adds a note to any error that is raised later in the block."""
    notes: list[str] = []
    try:
        yield notes.append
    except BaseException as error:
        for sentence in notes:
            error.add_note(sentence)
        raise
