"""The pipeline from a problem file to a certified DIR, in four steps: read, search, certify, publish.

A time limit ends the search. Certifying and writing follow: a search leaves them the time that they are expected to
take, and they are not broken off. Nothing is written that the mechanism's own privacy constraint did not certify.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from privopt.declare import File
from privopt.errors import StoppedError, UsageError, faults_in
from privopt.execution import from_url
from privopt.execution.clock import Clock, clock, within
from privopt.execution.interrupts import interrupts
from privopt.execution.limits import limited_to
from privopt.execution.memo import remembering
from privopt.execution.memory import GB, available, resident
from privopt.files.new_folder import open_workspace
from privopt.files.targets import check_target
from privopt.interfaces import Outcome, SolveContext
from privopt.run.build_result import build_result
from privopt.run.copies import new_copies
from privopt.run.options import Options
from privopt.run.publish import Run, SolveOutcome, publish_release
from privopt.run.task import Task, read_task, select_method

__all__ = ["SolveOutcome", "solve"]


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
            task = _read(name, source, run)
            outcome = _search(task, run)
            result = build_result(task, outcome, run.context, run.options)
            return publish_release(task, outcome, result, run)


def _read(name: str, source: File, run: Run) -> Task:
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


def _search(task: Task, run: Run) -> Outcome[Any]:
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
        workspace = stack.enter_context(open_workspace(out, force=options.force))
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
    """Yield a function that adds a note to any error that is raised later in the block."""
    notes: list[str] = []
    try:
        yield notes.append
    except BaseException as error:
        for sentence in notes:
            error.add_note(sentence)
        raise
