"""The last step of ``solve``: write a release folder, verify it as a recipient would, and give it its name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from attrs import evolve, field, frozen

from privopt.declare import files_of
from privopt.errors import PrivoptError, RoundTripError, StoppedError
from privopt.files.new_folder import Workspace, remove_replaced
from privopt.files.release_folder import PRIVATE, RESULT, dump_json
from privopt.interfaces import Outcome, Result, SolveContext
from privopt.interfaces.abilities import PublishesFiles, meaning_of
from privopt.interfaces.result import Times
from privopt.registry import registry
from privopt.run.build_result import collect_warnings, problem_reference
from privopt.run.copies import Copies
from privopt.run.options import Options
from privopt.run.task import Task
from privopt.run.verify import verify

__all__ = ["Run", "SolveOutcome", "publish_release", "remove_checkpoint"]

CHECKPOINT_SUFFIXES: Final = (".npz", ".json", ".part")
"""Suffixes of the files in DIR.partial. A folder with any other file is somebody's own."""


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
        workspace: Makes the hidden folder that becomes DIR.
        copies: The hidden folder of clean copies, if any.
        add_note: Adds a sentence to any error that is raised later.
    """

    options: Options
    out: Path
    start_time: float
    context: SolveContext
    workspace: Workspace
    copies: Copies
    add_note: Callable[[str], None]


def publish_release(task: Task, outcome: Outcome[Any], result: Result, run: Run) -> SolveOutcome:
    """Write the folder of a certified release, verify it, and give it its name.

    Raises:
        RoundTripError: The folder that was written does not hold. It was removed.
    """
    folder, late_warnings = run.workspace.new(), list[str]()
    result = _write(task, outcome, result, run, folder)
    # What is said about the release may fail, so it is made before the folder gets its name.
    warnings = collect_warnings(task.mechanism, task.problem, outcome.release, result)
    observer_warnings = registry().notify_released(outcome.release, task.problem)
    meaning = meaning_of(task.mechanism, task.problem, outcome.release, result)
    run.workspace.complete(folder, private=outcome.release.private_folder, check=_check_written)
    run.copies.publish()
    run.workspace.publish(folder, late_warnings.append)
    if run.context.checkpoint is not None and not outcome.stopped:
        remove_checkpoint(run.context.checkpoint, late_warnings.append)
    return SolveOutcome(
        folder=run.out,
        result=result,
        stopped=outcome.stopped,
        warnings=(*warnings, *observer_warnings, *late_warnings),
        meaning=tuple(meaning),
    )


def _write(task: Task, outcome: Outcome[Any], result: Result, run: Run, folder: Path) -> Result:
    """Write all files of a release into a hidden folder; return the result as its result.json has it."""
    outcome.release.write(folder)
    if outcome.proof is not None and result.objective.lower_bound is not None:
        outcome.proof.write(folder)
    mechanism, release = task.mechanism, outcome.release
    public_files = mechanism.public_files(task.problem, release) if isinstance(mechanism, PublishesFiles) else {}
    copy = task.copy.publishing(public_files)
    copy.write(folder)
    private = folder / PRIVATE
    private.mkdir(exist_ok=True)
    outcome.release.write_private(private)
    if outcome.truth is not None:
        (private / "truth.json").write_text(dump_json(outcome.truth), "utf-8")
    if not any(private.iterdir()):
        private.rmdir()
    result = evolve(result, problem=problem_reference(copy), time=_phase_times(task, run))
    (folder / RESULT).write_text(dump_json(result.to_json()), "utf-8")
    return result


def _check_written(folder: Path) -> None:
    """Verify a folder from its files alone, as a recipient would."""
    try:
        verdict = verify(folder)
    except StoppedError:
        raise
    except PrivoptError as error:
        reason = str(error).replace(f"{folder}/", "")
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


def remove_checkpoint(folder: Path, warn: Callable[[str], None]) -> None:
    """Remove the checkpoints of a run that is complete, because they may hold parts of private matrices."""
    if folder.is_symlink() or not folder.is_dir():
        return
    is_checkpoint = all(
        path.suffix in CHECKPOINT_SUFFIXES or (path.is_dir() and not path.is_symlink()) for path in folder.rglob("*")
    )
    if is_checkpoint:
        remove_replaced(folder, warn)
    else:
        warn(f"{folder} holds other files than checkpoints, so it was left as it is")
