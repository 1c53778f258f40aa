"""The pipeline from a problem file to a certified release folder, in four steps: read, search, certify, publish.

A time limit ends the search early enough to leave time for certifying and writing, which are not interrupted. Nothing
is written unless the mechanism's own privacy constraint certifies it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from attrs import evolve

from privopt.declare import File
from privopt.errors import StoppedError, UsageError, faults_in
from privopt.execution import from_url
from privopt.execution.clock import Clock, clock, interrupts, within
from privopt.execution.resources import GB, available, limited_to, resident, return_freed_memory
from privopt.files.new_folder import check_target, open_workspace
from privopt.interfaces import Outcome, SolveContext
from privopt.registry import registry
from privopt.run.build_result import build_result
from privopt.run.measure import remembering
from privopt.run.publish import Run, SolveOutcome, new_copies, publish_release
from privopt.run.task import Options, Task, read_task, select_method

__all__ = ["SolveOutcome", "solve"]


def solve(name: str, problem_file: Path | File, out: Path, options: Options | None = None) -> SolveOutcome:
    """Solve a problem, certify the release, write its folder (DIR), and verify what was written.

    Args:
        name: The name of the mechanism.
        problem_file: The TOML problem file, on disk or in memory.
        out: The folder to write.
        options: The method, limits, seed and other options. If None, the defaults are used.

    Raises:
        PrivoptError: The run failed and nothing was written. The error's ``exit_code`` is the command's exit code.
            Errors in plugins that observe releases (``privopt_released``) are not raised, but are reported as warnings
            in the outcome.
    """
    with _open_run(name, out, options or Options()) as run:
        expectation = "a problem file in TOML"
        # Read the file only once, so that the same text is solved, hashed and published.
        source = problem_file if isinstance(problem_file, File) else File.read(problem_file, expectation=expectation)
        with faults_in(source.name):
            task = _read(name, source, run)
            outcome = _search(task, run)
            # What the solvers have freed would otherwise be added to the memory for writing and verifying.
            return_freed_memory()
            result = build_result(task, outcome, run.context, run.options)
            solved = publish_release(task, outcome, result, run)
    # Call the observers last, when the verified folder is in place and no error can undo the release, not even an
    # interrupt.
    complaints = registry().notify_released(outcome.release, task.problem)
    return evolve(solved, warnings=(*solved.warnings, *complaints))


def _read(name: str, source: File, run: Run) -> Task:
    """Read the problem within the time limit, charge the ledger if there is one, and return the task.

    Args:
        name: The name of the mechanism.
        source: The problem file.
        run: The options, folder and context of the run.
    """
    with within(run.context.search_time):
        task = read_task(name, source, run.out, run.options, run.context)
    # Charge the ledger before the search draws noise. Otherwise, a run that is killed could draw noise without a
    # charge.
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


def _search(task: Task, run: Run) -> Outcome[Any]:
    """Run the mechanism's search and return its outcome.

    If a time limit or an interrupt ends the search, this is the best outcome found so far.

    Args:
        task: The problem and the mechanism.
        run: The run, whose context contains the limits.

    Raises:
        StoppedError: The search was interrupted before a feasible solution was found.
    """
    try:
        outcome = task.mechanism.solve(task.problem, run.context)
    except KeyboardInterrupt:
        # If a mechanism has found a release, it handles the interrupt and returns the release.
        name = task.registered.spec.name
        raise StoppedError(f"{name}: interrupted before anything feasible was found; nothing written") from None
    task.registered.expect("solve", outcome, Outcome)
    return outcome


@contextmanager
def _open_run(name: str, out: Path, options: Options) -> Iterator[Run]:
    """Check that the folder can be written, and yield a run with its workspace, executor and context.

    Args:
        name: The name of the mechanism.
        out: The folder to write.
        options: The options of the solve.

    Raises:
        UsageError: An option is not valid for the mechanism, the folder cannot be written, or there is nothing to
            resume.
    """
    # Start the clock here, so that the time limit includes reading the problem.
    start_time = time.monotonic()
    search_time = Clock(options.time_limit, clock())
    _, method = select_method(name, options)
    check_target(out.absolute(), force=options.force)
    checkpoint = out.absolute().with_name(f"{out.absolute().name}.partial")
    if options.resume and (checkpoint.is_symlink() or not checkpoint.is_dir()):
        raise UsageError(f"--resume: the folder {checkpoint} to go on from must exist")
    # The contexts are exited in reverse order, so the workspace is removed while interrupts are still handled.
    with ExitStack() as stack:
        executor = stack.enter_context(from_url(options.executor, options.jobs or 1))
        stack.enter_context(limited_to(options.jobs))
        stack.enter_context(interrupts())  # SIGTERM and SIGHUP are handled like Ctrl-C: the search ends
        copies = stack.enter_context(new_copies(options.copy_to, out, force=options.force))
        # Cache slow measurements, so that files that are read back unchanged are not measured again.
        stack.enter_context(remembering())
        add_note = stack.enter_context(_notes_on_errors())
        workspace = stack.enter_context(open_workspace(out, force=options.force))
        context = SolveContext(
            method=method.name,
            solver=options.solver,
            gap=method.gap if options.gap is None else options.gap,
            search_time=search_time,
            # The total number of bytes that the process may use: those that it uses already, and those that are free.
            memory=resident() + available() if options.memory is None else options.memory * GB,
            seed=options.seed,
            executor=executor,
            progress=options.progress,
            checkpoint=checkpoint,
            resume=options.resume,
            copies=copies.workspace,
        )
        yield Run(
            options=options,
            out=out,
            start_time=start_time,
            context=context,
            workspace=workspace,
            copies=copies,
            add_note=add_note,
        )


@contextmanager
def _notes_on_errors() -> Iterator[Callable[[str], None]]:
    """Yield a function that adds a note to any error raised later in the ``with`` block."""
    notes: list[str] = []
    try:
        yield notes.append
    except BaseException as error:
        # Interrupts get the notes as well, because the user must learn that the ledger was charged.
        for sentence in notes:
            error.add_note(sentence)
        raise
