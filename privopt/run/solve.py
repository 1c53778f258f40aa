"""The pipeline: problem file in, certified DIR out; and the way back, ``verify``.

``solve`` writes nothing that its mechanism's own privacy constraint did not certify. ``verify`` starts
from the bytes in DIR: it reads problem and artefact again, measures them, and only then looks at what
result.json claims.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from attrs import evolve, field, frozen

from privopt import __version__
from privopt.declare import load_problem
from privopt.errors import CertificationError, Fault, InputError, PrivoptError, StoppedError, UsageError
from privopt.execution import from_url
from privopt.interfaces import (
    Certificate,
    Guarantee,
    Mechanism,
    Objective,
    Outcome,
    PrivacyConstraint,
    Progress,
    SolveContext,
    UtilityLoss,
)
from privopt.registry import Registered, observers_of, registry
from privopt.run.folder import (
    PRIVATE,
    PROBLEM,
    RESULT,
    check_sums,
    check_target,
    dump_json,
    new_folder,
    read_result,
    sha256,
    write_problem,
)
from privopt.run.result import claim_faults
from privopt.specs import MethodSpec

__all__ = ["Options", "Solved", "load_release", "solve", "verify"]

_NEAR: Final = 1e-9
"""Relative difference allowed between a figure in result.json and the same figure computed again."""


@frozen(kw_only=True)
class Options:
    """How to solve; the command line's options.

    Attributes:
        method: of the mechanism; its default where None.
        solver: ``"cbc"`` or ``"highs"``.
        jobs: processes to use.
        executor: URL of a cluster (``dask://host:port``), or None.
        time_limit: seconds for everything, or None.
        gap: relative gap asked for; the method's own where None.
        seed: for experiments only.
        force: replace an existing DIR.
        allow_unsafe: permit methods whose guarantee kind is ``"none"``.
        resume: go on from ``DIR.partial/``.
        progress: called by long work, or None.
    """

    method: str | None = None
    solver: str = "cbc"
    jobs: int = 1
    executor: str | None = None
    time_limit: float | None = None
    gap: float | None = None
    seed: int | None = None
    force: bool = False
    allow_unsafe: bool = False
    resume: bool = False
    progress: Progress | None = None


@frozen(kw_only=True)
class Solved:
    """What ``solve`` did: the folder, its result.json, and whether it was stopped early."""

    folder: Path
    result: Mapping[str, Any]
    stopped: bool
    complaints: tuple[str, ...] = field(default=())


@contextmanager
def _terminable() -> Iterator[None]:
    """Let a polite kill end the work as an interrupt does: with the best result so far."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: signals are somebody else's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def solve(name: str, problem_file: Path, out: Path, options: Options | None = None) -> Solved:
    """Solve a problem, certify the release, write the folder.

    Args:
        name: mechanism.
        problem_file: TOML.
        out: folder to write.
        options: see :class:`Options`.

    Raises:
        PrivoptError: with the exit code that the contract gives it; nothing was written.
    """
    start = time.monotonic()
    options = options or Options()
    registered = registry().get(name)
    method = registered.method(options.method)
    kind = registered.spec.kind_of(method)
    if kind == "none" and not options.allow_unsafe:
        raise UsageError(f"{name} --method {method.name} gives no privacy guarantee; --allow-unsafe accepts that")
    check_target(out.absolute(), force=options.force)
    partial = out.absolute().with_name(out.name + ".partial")
    if options.resume and not partial.is_dir():
        raise UsageError(f"--resume: there is no {partial} to go on from")
    mechanism = registered.load()
    with from_url(options.executor, options.jobs) as executor, _terminable():
        context = SolveContext(
            method=method.name,
            solver=options.solver,
            gap=method.gap if options.gap is None else options.gap,
            deadline=None if options.time_limit is None else start + options.time_limit,
            seed=options.seed,
            executor=executor,
            progress=options.progress,
            checkpoint=partial,
            resume=options.resume,
        )
        with context.timed("build"):
            problem = _load(mechanism, problem_file)
        context.check()
        try:
            outcome = mechanism.solve(problem, context)
        except KeyboardInterrupt:
            raise StoppedError(f"{name}: interrupted before anything feasible was found; nothing written") from None
        registered.expect("solve", outcome, Outcome)
        solved = _conclude(registered, method, mechanism, problem, outcome, context)
        return _write(registered, mechanism, problem, problem_file, out, options, context, outcome, solved, start)


def _load(mechanism: Mechanism, path: Path, *, public: bool = False) -> Any:
    return load_problem(mechanism.problem_class, path, public=public, ignore=registry().mechanisms.keys())


@frozen(kw_only=True)
class _Conclusion:
    guarantee: Guarantee
    certificate: Certificate
    objective: Objective
    status: str


def _conclude(
    registered: Registered,
    method: MethodSpec,
    mechanism: Mechanism,
    problem: Any,
    outcome: Outcome,
    context: SolveContext,
) -> _Conclusion:
    """Measure the release; refuse what does not hold."""
    privacy = mechanism.privacy(problem, method.name)
    registered.expect("privacy", privacy, PrivacyConstraint)
    guarantee = privacy.guarantee
    registered.expect("privacy().guarantee", guarantee, Guarantee)
    if guarantee.kind != registered.spec.kind_of(method):
        raise CertificationError(
            f"{registered.spec.name} --method {method.name} is registered as {registered.spec.kind_of(method)} "
            f"but claims {guarantee.kind}; nothing written"
        )
    with context.timed("verify"):
        certificate = privacy.measure(outcome.release, executor=context.executor)
    registered.expect("privacy().measure", certificate, Certificate)
    if certificate.holds is None and guarantee.kind != "none":
        raise CertificationError(f"{guarantee.kind} is claimed but was not measured, so nothing was written")
    if certificate.holds is False:
        lines = "; ".join(certificate.failures[:5]) or f"worst {certificate.worst} against {certificate.allowed}"
        raise CertificationError(f"the release could not be certified, so nothing was written: {lines}")
    utility = mechanism.utility(problem, method.name)
    registered.expect("utility", utility, UtilityLoss)
    value = utility.evaluate(outcome.release)
    if value is None or math.isnan(value):
        raise CertificationError("the release's objective could not be evaluated; nothing written")
    bound = outcome.lower_bound
    if bound is not None and not utility.maximise:
        bound = min(bound, value) if bound <= value + _NEAR * max(1.0, abs(value)) else bound
        if bound > value:
            raise CertificationError(f"the lower bound {bound!r} lies above the objective {value!r}; nothing written")
    objective = Objective(value=value, lower_bound=bound, unit=utility.unit, maximise=utility.maximise)
    gap = objective.gap if outcome.gap is None else outcome.gap
    met = gap is not None and gap <= context.gap and not outcome.stopped
    return _Conclusion(
        guarantee=evolve(guarantee, seeded=outcome.seeded),
        certificate=certificate,
        objective=objective,
        status="optimal" if met else "feasible",
    )


def _write(
    registered: Registered,
    mechanism: Mechanism,
    problem: Any,
    source: Path,
    out: Path,
    options: Options,
    context: SolveContext,
    outcome: Outcome,
    solved: _Conclusion,
    start: float,
) -> Solved:
    with new_folder(out, force=options.force) as work:
        outcome.release.write(work)
        digest = write_problem(source, problem, work, mechanism.public_files(problem, outcome.release))
        private = work / PRIVATE
        private.mkdir(exist_ok=True)
        outcome.release.write_private(private)
        if outcome.truth is not None:
            (private / "truth.json").write_text(dump_json(outcome.truth), "utf-8")
        if not any(private.iterdir()):
            private.rmdir()
        times = {phase: context.times.get(phase, 0.0) for phase in ("build", "solve", "repair", "verify")}
        result = {
            "mechanism": registered.spec.name,
            "method": context.method,
            "plugin": {"name": registered.plugin, "version": registered.version},
            "privopt": __version__,
            "problem": {"file": source.name, "sha256": digest},
            "seed": options.seed,
            "status": solved.status,
            "guarantee": solved.guarantee.to_json(),
            "objective": solved.objective.to_json(),
            "certificate": solved.certificate.to_json(),
            "time": {name: round(seconds, 6) for name, seconds in times.items()}
            | {"total": round(time.monotonic() - start, 6)},
            "solver": dict(outcome.solver),
            "details": dict(outcome.details),
        }
        (work / RESULT).write_text(dump_json(result), "utf-8")
    complaints = observers_of(registry())(outcome.release, problem)
    return Solved(folder=out, result=result, stopped=outcome.stopped, complaints=tuple(complaints))


# --- the way back ------------------------------------------------------------------------------------


def load_release(folder: Path) -> tuple[Registered, Mechanism, Any, Any, dict[str, Any]]:
    """Read a DIR back: what is registered, the mechanism, the problem, the release, result.json.

    Raises:
        InputError: DIR cannot be read.
    """
    if not folder.is_dir():
        raise InputError([Fault(str(folder), "", "no such folder", "a folder that privopt solve has written")])
    result = read_result(folder)
    faults = list(claim_faults(result, str(folder / RESULT)))
    file = result["problem"]["file"] if not faults else ""
    if not faults and Path(file).name != file:
        faults.append(Fault(str(folder / RESULT), "problem.file", repr(file), "the name of a file in problem/"))
    if faults:
        raise InputError(faults)
    registered = registry().get(result["mechanism"])
    method = registered.method(result["method"]).name
    mechanism = registered.load()
    problem = _load(mechanism, folder / PROBLEM / file, public=True)
    try:
        release = mechanism.release_class.read(folder, problem)
    except PrivoptError:
        raise
    except Exception as error:  # bytes that solve did not write may make any reader raise anything
        found = f"an artefact that cannot be read ({type(error).__name__}: {error})"
        raise InputError([Fault(str(folder), "", found, "files as privopt solve wrote them")]) from error
    return registered, mechanism, problem, release, {**result, "method": method}


def verify(folder: Path, *, jobs: int = 1) -> tuple[list[str], Certificate | None]:
    """Check a DIR from its files alone, in exact arithmetic.

    Returns:
        One line for each sum or claim that does not hold (none: all holds), and the certificate as
        measured again, where it came so far.

    Raises:
        InputError: DIR cannot be read.
    """
    if not folder.is_dir():
        raise InputError([Fault(str(folder), "", "no such folder", "a folder that privopt solve has written")])
    complaints = check_sums(folder)
    faults = [] if complaints else claim_faults(read_result(folder), RESULT)
    complaints += [f"{RESULT}: {f.where}: missing" if f.found == "nothing" else str(f) for f in faults]
    if complaints:
        return complaints, None
    registered, mechanism, problem, release, result = load_release(folder)
    method = registered.method(result["method"])
    with from_url(None, jobs) as executor:
        privacy = mechanism.privacy(problem, method.name)
        certificate = privacy.measure(release, executor=executor)
    if certificate.holds is False:
        complaints.append(f"certificate: worst {certificate.worst}, allowed {certificate.allowed}")
        complaints.extend(certificate.failures)
    elif certificate.holds is None and privacy.guarantee.kind != "none":
        complaints.append(f"certificate: {privacy.guarantee.kind} is claimed but cannot be measured")
    complaints += _claims(result, privacy.guarantee, certificate)
    complaints += _bookkeeping(folder, result, registered)
    utility = mechanism.utility(problem, method.name)
    complaints += _objective(result, utility.evaluate(release), maximise=utility.maximise)
    try:
        complaints += mechanism.verify(problem, release, result)
    except PrivoptError as error:
        complaints.append(str(error))
    except Exception as error:  # details that solve did not write may be of any form
        complaints.append(f"{RESULT}: details: {registered.plugin} cannot check them ({type(error).__name__}: {error})")
    return complaints, certificate


def _claims(result: Mapping[str, Any], guarantee: Guarantee, certificate: Certificate) -> list[str]:
    """Compare what result.json claims with what the problem asks for and the release keeps."""
    claimed, stated = result["guarantee"], result["certificate"]
    wanted = guarantee.to_json()
    lines = [
        f"{RESULT}: guarantee.{name}: claims {claimed.get(name)!r}, the problem and its mechanism give {wanted[name]!r}"
        for name in ("kind", "epsilon", "unit", "scope")
        if claimed.get(name) != wanted[name]
    ]
    again = certificate.to_json()
    lines += [
        f"{RESULT}: certificate.{name}: claims {stated.get(name)!r}, measured {again[name]!r}"
        for name in ("holds", "kind", "checked")
        if stated.get(name) != again[name]
    ]
    lines += [
        f"{RESULT}: certificate.{name}: claims {stated.get(name)!r}, measured {again[name]!r}"
        for name in ("worst", "allowed")
        if not _same(stated.get(name), again[name])
    ]
    return lines


def _bookkeeping(folder: Path, result: Mapping[str, Any], registered: Registered) -> list[str]:
    """The statements of result.json that only other parts of DIR can contradict."""
    lines = []
    digest = sha256(folder / PROBLEM / result["problem"]["file"])
    if result["problem"].get("sha256") != digest:
        lines.append(f"{RESULT}: problem.sha256: not that of the problem file, {digest}")
    gap = result["objective"]["gap"]
    if result.get("status") not in ("optimal", "feasible"):
        lines.append(f"{RESULT}: status: {result.get('status')!r} is neither optimal nor feasible")
    elif result["status"] == "optimal" and gap is None and "lp" not in result["details"]:
        lines.append(f"{RESULT}: status: optimal without a gap")
    kind = result["guarantee"]["kind"]
    if registered.spec.kind_of(registered.method(result["method"])) != kind:
        lines.append(f"{RESULT}: guarantee.kind: {kind!r} is not what the mechanism is registered for")
    return lines


def _same(claimed: Any, value: float | None) -> bool:
    if value is None or claimed is None:
        return claimed is None and value is None
    if isinstance(claimed, str) or math.isinf(value):
        return bool(claimed == ("inf" if value > 0 else "-inf"))
    return isinstance(claimed, (int, float)) and bool(abs(claimed - value) <= _NEAR * max(1.0, abs(value)))


def _objective(result: Mapping[str, Any], value: float | None, *, maximise: bool) -> list[str]:
    stated = result["objective"]
    if value is not None and not _same(stated["value"], value):
        return [f"{RESULT}: objective.value: claims {stated['value']!r}, the release gives {value!r}"]
    bound = stated["lower_bound"]
    if bound is None or isinstance(bound, str) or isinstance(stated["value"], str):
        return [] if stated.get("gap") is None else [f"{RESULT}: objective.gap: stated without a bound"]
    objective = Objective(value=stated["value"], lower_bound=bound, unit="", maximise=maximise)
    if not _same(stated.get("gap"), objective.gap):
        return [f"{RESULT}: objective.gap: claims {stated.get('gap')!r}, value and bound give {objective.gap!r}"]
    return []
