"""The pipeline: problem file in, certified DIR out.

``solve`` writes nothing that its mechanism's own privacy constraint did not certify.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import AttrsInstance, define, evolve, field, frozen

from privopt.declare import File, files_of
from privopt.declare.schema import folders_of, share
from privopt.errors import InputError, PrivoptError, RoundTripError, StoppedError, UsageError, faults_in
from privopt.execution import Executor, from_url
from privopt.execution.clock import GRACE, OVER, UNWRITTEN, Clock, limit
from privopt.execution.hard_limit import standing_by
from privopt.execution.interrupts import interrupts
from privopt.execution.limits import limited_to
from privopt.execution.memo import remembering
from privopt.execution.memory import GB, available, resident
from privopt.files.release_folder import PRIVATE, RESULT, dump_json
from privopt.files.sizes import loading
from privopt.interfaces import (
    Mechanism,
    Outcome,
    PrivacyConstraint,
    Result,
    SolveContext,
)
from privopt.interfaces.result import Times
from privopt.registry import Registered, registry
from privopt.run.build_result import conclude, named, warned
from privopt.run.options import Options
from privopt.run.problem_copy import ProblemCopy, with_csv_tables
from privopt.run.publish import Copies, Place, check_target, discard_partial, hidden_folders, new_copies
from privopt.run.verify import read_problem, verify
from privopt.specs import MethodSpec

__all__ = ["SolveOutcome", "solve"]

CLOSING_SECONDS = 2.0
"""Seconds before a command's last that its work ends."""


@frozen(kw_only=True)
class SolveOutcome:
    """What ``solve`` did.

    Attributes:
        folder: what was written.
        result: what its result.json says.
        stopped: whether it was stopped early.
        warnings: what anyone who uses the release must know, a sentence each.
        meaning: what the guarantee amounts to, a sentence each.
    """

    folder: Path
    result: Result
    stopped: bool
    warnings: tuple[str, ...] = field(default=())
    meaning: tuple[str, ...] = field(default=())


def solve(name: str, problem_file: Path | File, out: Path, options: Options | None = None) -> SolveOutcome:
    """Solve a problem, certify the release, write the folder.

    Args:
        name: mechanism.
        problem_file: TOML, on disk or in memory.
        out: folder to write.
        options: see :class:`Options`.

    Raises:
        PrivoptError: with the exit code that the contract gives it; nothing was written.
    """
    start = time.monotonic()
    options = options or Options()
    registered, method = _asked(name, options)
    check_target(out.absolute(), force=options.force)
    partial = out.absolute().with_name(out.name + ".partial")
    if options.resume and (partial.is_symlink() or not partial.is_dir()):
        raise UsageError(f"--resume: the folder {partial} to go on from must exist")
    source = (
        problem_file if isinstance(problem_file, File) else File.read(problem_file, wanted="a problem file in TOML")
    )
    mechanism: Mechanism[Any, Any] = registered.load()
    if options.copy_to is not None and not mechanism.copies:
        raise UsageError(f"--copy-to: {name} makes no copies")
    with (
        from_url(options.executor, options.jobs or 1) as executor,
        limited_to(options.jobs),
        interrupts(),  # a polite kill, too, ends the work with the best result so far
        new_copies(options.copy_to, out, force=options.force) as copies,
        remembering(),
        faults_in(source.name),
        _noting() as note,
        hidden_folders(out, force=options.force) as place,
    ):
        context = _context(options, method, executor, checkpoint=partial, copies=copies.work)
        asked = math.inf if options.time_limit is None else options.time_limit
        began = start - time.monotonic()
        with limit(began + OVER * asked + GRACE - CLOSING_SECONDS) as hard:  # by then all is written
            context.search_time = Clock(began + asked, hard)
            context.report("problem")
            declared, problem, copy = _loaded(mechanism, source, context, out)
            if options.method is None and (own := mechanism.own_method(declared)) is not None:
                registered, method = _asked(name, evolve(options, method=own))
                context.method, context.gap = method.name, method.gap if options.gap is None else options.gap
            mechanism.check_memory(problem, context)
            privacy = mechanism.privacy(problem, method.name)
            registered.expect("privacy", privacy, PrivacyConstraint)
            mechanism.check_problem(problem, method.name)
            if options.charged is not None:
                stays = options.charged.charge_solve(
                    privacy,
                    declared,
                    mechanism.release_class,
                    seeded=options.seed is not None,
                    mechanism=copy.sha256,
                    purpose=f"solve {name} --method {method.name}, {source.name}",
                    progress=options.progress,
                )
                note(stays)
            writing = _OutputFolders(
                registered, method, mechanism, declared, problem, copy, options, context, start, copies, place, out
            )
            context.stand_by = writing.stand_by
            with standing_by(writing.publish):
                return writing.last(_searched(mechanism, problem, context, name))
        raise StoppedError(UNWRITTEN)


def _searched(mechanism: Mechanism[Any, Any], problem: Any, context: SolveContext, name: str) -> Outcome[Any]:
    """Run the mechanism's search and return its outcome.

    Raises:
        StoppedError: an interrupt came before anything feasible.
    """
    try:
        return mechanism.solve(problem, context)
    except KeyboardInterrupt:
        raise StoppedError(f"{name}: interrupted before anything feasible was found; nothing written") from None


@contextmanager
def _noting() -> Iterator[Callable[[str], None]]:
    """Sentences that belong to whatever is raised from here on."""
    said: list[str] = []
    try:
        yield said.append
    except BaseException as error:
        for sentence in said:
            error.add_note(sentence)
        raise


def _asked(name: str, options: Options) -> tuple[Registered, MethodSpec]:
    """Return the mechanism and its method, where options can be meant so."""
    registered = registry().get(name)
    method = registered.method(options.method)
    if registered.spec.asks(method) and not options.allow_unsafe:
        raise UsageError(f"{name} --method {method.name} gives no privacy guarantee; --allow-unsafe accepts that")
    if options.gap is not None and (wanted := share(options.gap)):  # at 1 anything would be optimal
        raise UsageError(f"gap must be {wanted}, got {options.gap:g}")
    registry().kind("solver", options.solver)
    return registered, method


def _context(
    options: Options, method: MethodSpec, executor: Executor, *, checkpoint: Path, copies: Path | None
) -> SolveContext:
    """Return the context in which the mechanism works."""
    return SolveContext(
        method=method.name,
        solver=options.solver,
        gap=method.gap if options.gap is None else options.gap,
        memory=resident() + available() if options.memory is None else options.memory * GB,
        seed=options.seed,
        executor=executor,
        progress=options.progress,
        checkpoint=checkpoint,
        resume=options.resume,
        copies=copies,
    )


def _loaded(
    mechanism: Mechanism[Any, Any], source: File, context: SolveContext, out: Path
) -> tuple[AttrsInstance, Any, ProblemCopy]:
    """Return the problem as it will be read in DIR, declared and loaded, and its copy."""
    with context.timed("build"), loading(context.need):
        given = read_problem(mechanism, source)
        for own in (folder.path.resolve() for folder in folders_of(given) if folder.path is not None):
            if own in (target := out.resolve(), *target.parents) or target in own.parents:
                raise UsageError(
                    f"--out {out}: lies in {own}, which the problem reads, or around it; name one elsewhere"
                )
        published = with_csv_tables(source, given)  # what is solved is what will be read in DIR
        declared = given if published is source else read_problem(mechanism, published)
        copy = ProblemCopy.of(published, declared)
        context.report(mechanism.reading(declared))
        try:
            problem = mechanism.load(declared, source.name)
        except InputError:
            mechanism.load(given, source.name)  # the same faults, in the files that are there
            raise
    return declared, problem, copy


def _times(declared: AttrsInstance, context: SolveContext, start: float) -> Times:
    """Return seconds by phase; in whole seconds, rounded up, if a secret was read: exact times could reveal it."""
    times = {phase: context.times.get(phase, 0.0) for phase in ("build", "solve", "repair", "verify")}
    times["total"] = time.monotonic() - start
    secret = any(file.secret for file in files_of(declared))
    return Times(**{phase: math.ceil(seconds) if secret else round(seconds, 6) for phase, seconds in times.items()})


@define(eq=False)
class _OutputFolders:
    """One run's folders: fallbacks written while the search goes on, and the last one.

    Attributes:
        out: the folder as it was asked for.
        stands: the latest complete folder, and its result; None before, and without a limit.
    """

    registered: Registered
    method: MethodSpec
    mechanism: Mechanism[Any, Any]
    declared: AttrsInstance
    problem: Any
    copy: ProblemCopy
    options: Options
    context: SolveContext
    start: float
    copies: Copies
    place: Place
    out: Path
    stands: tuple[Path, SolveOutcome] | None = None

    def stand_by(self, outcome: Outcome[Any]) -> None:
        """Write an outcome and read it back: it will be published if the rest does not finish in time."""
        work, before = self.place.new(), self.stands
        solved = self._written(outcome, work)
        self.place.complete(work, private=self.mechanism.private_folder, check=self._check_written)
        self.stands = work, solved
        if before is not None:
            shutil.rmtree(before[0], ignore_errors=True)

    def publish(self) -> bool:
        """Publish the fallback; return whether there was one."""
        if self.stands is None:
            return False
        self.place.publish(self.stands[0])
        return True

    def last(self, outcome: Outcome[Any]) -> SolveOutcome:
        """Write and publish the outcome, or the fallback if time is too short for that.

        Raises:
            CertificationError, RoundTripError: the outcome is not what it should be.
            StoppedError: there was no time, and no fallback.
        """
        self.registered.expect("solve", outcome, Outcome)
        warnings: list[str] = []
        try:
            work = self.place.new()
            solved = self._written(outcome, work)
            self.place.complete(work, private=self.mechanism.private_folder, check=self._checked_and_placed)
        except (StoppedError, KeyboardInterrupt):
            if self.stands is None:
                raise
            work, solved = self.stands
        self.place.publish(work, warnings.append)
        if self.context.checkpoint is not None and not solved.stopped:
            discard_partial(self.context.checkpoint, warnings.append)
        return evolve(solved, warnings=(*solved.warnings, *warnings))

    def _checked_and_placed(self, work: Path) -> None:
        self._check_written(work)
        self.copies.place()

    def _written(self, outcome: Outcome[Any], work: Path) -> SolveOutcome:
        """Certify an outcome, and write all of its files; what is said of it is made before it gets its name."""
        mechanism, problem, context = self.mechanism, self.problem, self.context
        result = conclude(self.registered, self.method, mechanism, problem, outcome, context, self.options, self.copy)
        outcome.release.write(work)
        if outcome.proof is not None and result.objective.lower_bound is not None:
            outcome.proof.write(work)
        copy = self.copy.publishing(mechanism.public_files(problem, outcome.release))
        copy.write(work)
        private = work / PRIVATE
        private.mkdir(exist_ok=True)
        outcome.release.write_private(private)
        if outcome.truth is not None:
            (private / "truth.json").write_text(dump_json(outcome.truth), "utf-8")
        if not any(private.iterdir()):
            private.rmdir()
        result = evolve(result, problem=named(copy), time=_times(self.declared, context, self.start))
        (work / RESULT).write_text(dump_json(result.to_json()), "utf-8")
        return SolveOutcome(
            folder=self.out,
            result=result,
            stopped=outcome.stopped,
            warnings=(
                *warned(mechanism, problem, outcome.release, result),
                *registry().observed(outcome.release, problem),
            ),
            meaning=tuple(mechanism.meaning(problem, outcome.release, result)),
        )

    def _check_written(self, work: Path) -> None:
        """Open the folder as it was written, and verify it as anybody will."""
        try:
            found = verify(work)
        except StoppedError:
            raise
        except PrivoptError as error:
            reason = str(error).replace(f"{work}/", "")
            raise RoundTripError(f"what was written cannot be read back, so it was removed: {reason}") from error
        if not found.holds:
            lines = "; ".join(found.complaints[:5])
            raise RoundTripError(f"what was written does not hold, so it was removed: {lines}")
