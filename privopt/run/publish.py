"""The last step of ``solve``: writing a release folder, verifying it as a recipient would, and moving it into place.

Clean copies of files (``--copy-to``), such as photos without metadata, are moved into place just before the release
folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import define, evolve, field, frozen

from privopt.declare import files_of
from privopt.errors import PrivoptError, RoundTripError, StoppedError, UsageError
from privopt.files.new_folder import (
    Workspace,
    check_parent,
    claim_folder,
    flush_folder,
    make_parents,
    remove_replaced,
    swap_into_place,
)
from privopt.files.release_folder import PRIVATE, RESULT, dump_json
from privopt.interfaces import Outcome, Result, SolveContext
from privopt.interfaces.abilities import PublishesFiles, meaning_of
from privopt.interfaces.result import Times
from privopt.run.build_result import collect_warnings, problem_reference
from privopt.run.task import Options, Task
from privopt.run.verify import verify

__all__ = ["Copies", "Run", "SolveOutcome", "new_copies", "publish_release", "remove_checkpoint"]


@define(kw_only=True)
class Copies:
    """A mechanism's clean copies of files (``--copy-to``), such as photos without metadata.

    The copies are written to a hidden folder, which is renamed at the end of the run.

    Attributes:
        target: The final folder, or None if no copies are made.
        workspace: The hidden folder next to ``target`` to which the copies are written, or None if no copies are made.
        is_published: Whether the hidden folder has been renamed to ``target``.
    """

    target: Path | None = None
    workspace: Path | None = None
    is_published: bool = False

    def publish(self) -> None:
        """Rename the hidden folder to ``target``, as the last step before the release folder is moved into place."""
        if self.target is None or self.workspace is None:
            return
        # Only the owner can read the hidden folder, but everybody may read the released copies.
        for path in [self.workspace, *self.workspace.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        # Flush the folder to disk before renaming it, so that a crash leaves no folder with empty files.
        flush_folder(self.workspace)
        replaced = swap_into_place(self.workspace, self.target, self.workspace)
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)
        self.is_published = True


@contextmanager
def new_copies(target: Path | None, out: Path, *, force: bool = False) -> Iterator[Copies]:
    """Yield a :class:`Copies` whose hidden folder becomes ``target`` when it is published, and is removed otherwise.

    Args:
        target: The final folder, which must be missing or empty unless ``force`` is True. If None, no copies are made.
        out: The release folder DIR, whose result lists the copies.
        force: Whether ``target`` may be replaced, provided that it contains exactly the copies listed in an earlier
            release folder at ``out``.

    Raises:
        UsageError: ``target`` contains anything that may not be replaced, is not a folder, lies in DIR, or cannot be
            created.
        StoppedError: ``target`` could not be written.
    """
    if target is None:
        yield Copies()
        return
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(f"--copy-to {target}: is not a folder")
    target = target.absolute()
    check_parent(target, "--copy-to")
    if out.absolute() in (target, *target.parents):
        raise UsageError(f"--copy-to {target}: lies in --out {out}")
    # Only unchanged copies from an earlier run may be replaced. Anything else is somebody's data.
    if target.exists() and any(target.iterdir()) and not (force and _hash_files(target) == _listed_hashes(out)):
        cure = "with --force it may hold the copies that DIR lists, unchanged, and nothing else"
        raise UsageError(f"--copy-to {target}: is not empty; {cure}")
    with make_parents(target), claim_folder(target) as workspace:
        copies = Copies(target=target, workspace=workspace)
        try:
            yield copies
        except BaseException:
            # The release folder was not written, and without it nothing says that the copies are clean.
            if copies.is_published:
                shutil.rmtree(target, ignore_errors=True)
            raise


def _hash_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 hash of each file in a folder, by path. Links get an empty string, which matches no hash."""
    paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return {
        path.relative_to(folder).as_posix(): "" if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def _listed_hashes(folder: Path) -> dict[str, str] | None:
    """Return the SHA-256 hash of each copy listed in a release folder, by path, or None if no copies are listed."""
    try:
        hashes = json.loads((folder / RESULT).read_text("utf-8"))["details"]["copies"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return hashes if isinstance(hashes, dict) else None


CHECKPOINT_SUFFIXES: Final = (".npz", ".json", ".part")
"""The suffixes of checkpoint files in DIR.partial. If the folder contains any other file, it is not removed."""


@frozen(kw_only=True)
class SolveOutcome:
    """The outcome of ``solve``.

    Attributes:
        folder: The folder that was written.
        result: The contents of the folder's result.json.
        stopped: Whether the search was stopped early.
        warnings: Sentences that every user of the release must read.
        meaning: Sentences about what the guarantee means for this problem.
        is_private: Whether the whole folder is private to its owner, so that nothing in it may be published.
        secret_names: The names of the problem's secret files. Files with the same names in ``problem/`` contain no
            secrets.
    """

    folder: Path
    result: Result
    stopped: bool
    warnings: tuple[str, ...] = field(default=())
    meaning: tuple[str, ...] = field(default=())
    is_private: bool = False
    secret_names: tuple[str, ...] = ()


@frozen(kw_only=True, eq=False)
class Run:
    """The state shared by the steps of a run.

    Attributes:
        options: The options of the solve.
        out: The folder to write.
        start_time: The start of the run on the monotonic clock, in seconds.
        context: The context passed to the mechanism.
        workspace: The object that creates a hidden folder and turns it into the release folder.
        copies: The mechanism's clean copies of files, if any.
        add_note: A function that adds a sentence to any error raised later in the run.
    """

    options: Options
    out: Path
    start_time: float
    context: SolveContext
    workspace: Workspace
    copies: Copies
    add_note: Callable[[str], None]


def publish_release(task: Task, outcome: Outcome[Any], result: Result, run: Run) -> SolveOutcome:
    """Write the folder of a certified release, verify it, and move it into place.

    Args:
        task: The problem and the mechanism.
        outcome: The mechanism's outcome, with the release and its proof.
        result: The result of :func:`build_result`.
        run: The options, workspace and context of the run.

    Raises:
        RoundTripError: The written folder failed verification and was removed.
    """
    run.context.report("writing and verifying the folder")
    folder, late_warnings = run.workspace.new(), list[str]()
    result = _write(task, outcome, result, run, folder)
    # Collect warnings and explanations before the folder gets its name, because they come from plugins and may fail.
    warnings = collect_warnings(task.mechanism, task.problem, outcome.release, result)
    meaning = meaning_of(task.mechanism, task.problem, outcome.release, result)
    # This adds the checksums, verifies the folder while only the owner can read it, and then lets others read it,
    # unless the whole folder is private to its owner.
    run.workspace.complete(folder, private=outcome.release.private_folder, check=_check_written)
    # Publish the copies first, because the release folder says that they are clean and must not exist without them.
    run.copies.publish()
    run.workspace.publish(folder, late_warnings.append)
    # A stopped run keeps its checkpoint for --resume.
    if run.context.checkpoint is not None and not outcome.stopped:
        remove_checkpoint(run.context.checkpoint, late_warnings.append)
    return SolveOutcome(
        folder=run.out,
        result=result,
        stopped=outcome.stopped,
        warnings=(*warnings, *late_warnings),
        meaning=tuple(meaning),
        is_private=outcome.release.private_folder,
        secret_names=tuple(file.name for file in files_of(task.declared) if file.secret),
    )


def _write(task: Task, outcome: Outcome[Any], result: Result, run: Run, folder: Path) -> Result:
    """Write all files of a release to a hidden folder, and return the result as written to result.json.

    Args:
        task: The problem and the mechanism.
        outcome: The mechanism's outcome, with the release and its proof.
        result: The result so far. This function adds the times and the checksum of the problem, which depends on the
            published files.
        run: The run, which measured the times.
        folder: The hidden folder.
    """
    outcome.release.write(folder)
    # verify rejects a folder with a proof but no bound.
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
    # result.json is written last, because the problem's checksum is known only now and the times include writing.
    result = evolve(result, problem=problem_reference(copy), time=_phase_times(task, run))
    (folder / RESULT).write_text(dump_json(result.to_json()), "utf-8")
    return result


def _check_written(folder: Path) -> None:
    """Verify a folder from its files alone, as a recipient would.

    Raises:
        RoundTripError: The folder cannot be read, or fails verification.
        StoppedError: A limit was reached, which says nothing about the folder.
    """
    try:
        verdict = verify(folder)
    except StoppedError:
        # A limit ended the verification, which says nothing about the folder.
        raise
    except PrivoptError as error:
        reason = str(error).replace(f"{folder}/", "")
        raise RoundTripError(f"what was written cannot be read back, so it was removed: {reason}") from error
    if not verdict.holds:
        lines = "; ".join(verdict.complaints[:5])
        raise RoundTripError(f"what was written does not hold, so it was removed: {lines}")


def _phase_times(task: Task, run: Run) -> Times:
    """Return the duration of each phase and of the whole run, in seconds.

    If the problem has secret files, times are rounded up to whole seconds, because exact times could reveal something
    about them.

    Args:
        task: The task, whose problem lists the secret files.
        run: The run, whose context measured the phases.
    """
    times = {phase: run.context.times.get(phase, 0.0) for phase in ("build", "solve", "repair", "verify")}
    times["total"] = time.monotonic() - run.start_time
    has_secret = any(file.secret for file in files_of(task.declared))
    return Times(**{phase: math.ceil(seconds) if has_secret else round(seconds, 6) for phase, seconds in times.items()})


def remove_checkpoint(folder: Path, warn: Callable[[str], None]) -> None:
    """Remove the checkpoints of a completed run (DIR.partial), because they may contain parts of private matrices.

    If the folder contains any other file, it is not removed, and ``warn`` is called with a sentence about it. A path
    that is a link or not a folder is left alone.
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    is_checkpoint = all(
        path.suffix in CHECKPOINT_SUFFIXES or (path.is_dir() and not path.is_symlink()) for path in folder.rglob("*")
    )
    if is_checkpoint:
        remove_replaced(folder, warn)
    else:
        warn(f"{folder} holds other files than checkpoints, so it was left as it is")
