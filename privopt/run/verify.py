"""Verify a DIR: read its contents again and check every claim.

``verify`` starts from the bytes in DIR: it reads problem and artefact again, measures them, and only then looks at
what result.json claims.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import AttrsInstance, evolve, frozen

from privopt.declare import File
from privopt.declare.schema import ProblemHeading
from privopt.declare.toml import read_heading
from privopt.errors import DoesNotHoldError, Fault, InputError, PrivoptError, StoppedError
from privopt.execution.limits import limited_to
from privopt.files.release_folder import (
    PROBLEM,
    PROOF,
    RESULT,
    check_sums,
    expect_release,
    files_in,
    jsonable,
    read_document,
    sha256,
)
from privopt.interfaces import Bounds, Mechanism, Objective, Progress, Release, Result
from privopt.interfaces.abilities import BoundsChosen, ProvesBound, StatesProof, details_of, reopen, solves_program
from privopt.interfaces.result import LP, TOLD, VALUE_UNIT
from privopt.registry import Registered, registry
from privopt.run.measure import Measurement, measure_release
from privopt.run.problem_copy import stray_files
from privopt.run.result_file import RELATIVE_TOLERANCE, differences, result_of
from privopt.run.task import read_problem
from privopt.run.verdict import Verdict
from privopt.run.verify_cache import Word, recall, remember
from privopt.specs import NOTHING, MethodSpec
from privopt.version import VERSION

__all__ = ["OpenedFolder", "load_release", "open_to_sample", "open_verified", "verify"]


@frozen(kw_only=True, eq=False)
class OpenedFolder:
    """A DIR as it was read: nothing in it is checked yet.

    Attributes:
        folder: where it lies.
        registered: the mechanism as its plugin registered it.
        method: the method that made the release.
        mechanism: what knows the problem and the release.
        declared: the problem file in ``problem/``.
        problem: what the mechanism loads from it.
        release: read from the artefact.
        result: what result.json says.
        stated: result.json itself.
        verdict: what ``verify`` found, where it was asked.
    """

    folder: Path
    registered: Registered
    method: MethodSpec
    mechanism: Mechanism[Any, Any]
    declared: AttrsInstance
    problem: Any
    release: Any
    result: Result
    stated: Mapping[str, Any]
    heading: ProblemHeading
    verdict: Word | None = None

    @property
    def relation(self) -> str:
        """The relation for which a ledger charges draws (:attr:`PrivacyConstraint.relation`)."""
        return str(self.mechanism.privacy(self.problem, self.method.name).relation)


def _stated(folder: Path) -> tuple[Registered, Mapping[str, Any], Result]:
    """Return the mechanism that made a DIR, and its result.json as text and as read."""
    expect_release(folder)
    _, strange = files_in(folder)  # nothing is opened in a folder that holds links, pipes or devices
    if strange:
        raise InputError(strange)
    stated = read_document(folder)
    result = result_of(stated, str(folder / RESULT))
    file = result.problem.file
    if Path(file).name != file:
        raise InputError([Fault(str(folder / RESULT), "problem.file", repr(file), "the name of a file in problem/")])
    return registry().get(result.mechanism), stated, result


def load_release(folder: Path) -> OpenedFolder:
    """Read a DIR back, without checking what it claims.

    Raises:
        InputError: DIR cannot be read.
        DoesNotHoldError: problem and release contradict each other.
    """
    registered, stated, result = _stated(folder)
    file = result.problem.file
    method = registered.method(result.method)
    mechanism: Mechanism[Any, Any] = registered.load()
    source = File.read(folder / PROBLEM / file, wanted="a problem file in TOML")
    declared = read_problem(mechanism, source, public=True)
    try:
        problem, release = reopen(mechanism, declared, file, folder)
    except PrivoptError:
        raise
    except Exception as error:  # bytes that solve did not write may make any reader raise anything
        found = f"an artefact that cannot be read ({type(error).__name__}: {error})"
        raise InputError([Fault(str(folder), "", found, "files as privopt solve wrote them")]) from error
    return OpenedFolder(
        folder=folder,
        registered=registered,
        method=method,
        mechanism=mechanism,
        declared=declared,
        problem=problem,
        release=release,
        result=evolve(result, method=method.name),
        stated=stated,
        heading=read_heading(mechanism.problem_class, source),
    )


def verify(folder: Path, *, jobs: int | None = None, progress: Progress | None = None) -> Verdict:
    """Check a DIR from its files alone, exactly, in ``jobs`` threads; ``progress`` hears each part.

    Raises:
        InputError: DIR cannot be read.
        StoppedError: a limit came first, which says nothing of DIR.
    """

    def report(phase: str) -> None:
        if progress is not None:
            progress(phase, 0, None, None)

    report("sums of the files")
    complaints = check_sums(folder)
    if not complaints:
        document = read_document(folder)
        try:
            result_of(document, RESULT)
        except InputError as error:
            complaints = [f"{RESULT}: {f.where}: missing" if f.found == "nothing" else str(f) for f in error.faults]
    try:
        report("problem and release")
        opened = None if complaints else load_release(folder)
    except DoesNotHoldError as error:
        opened, complaints = None, str(error).splitlines()
    if opened is None:
        return Verdict(verdict=None, complaints=tuple(complaints))
    report("certificate and loss")
    with limited_to(jobs):
        recomputed, measurement, complaints = _recompute_result(opened)
    report("claims")
    complaints += stray_files(folder, opened.declared, opened.result.problem.file)
    complaints += _unlike(opened.stated, recomputed)
    complaints += _bookkeeping(opened, recomputed, measurement.registered_kind)
    with _collecting(complaints, f"{RESULT}: details: {opened.registered.plugin} cannot check them"):
        complaints += opened.mechanism.verify(opened.problem, opened.release, opened.result)
    report("bound")
    complaints += _unproved(opened, fits=not complaints)
    seeded = recomputed.guarantee.seeded
    word = None if complaints else "none" if seeded else recomputed.certificate.evidence
    if word is not None and not check_sums(folder):  # what was read is what is there now
        remember(folder, word)
    return Verdict(
        verdict=word,
        complaints=tuple(complaints),
        certificate=recomputed.certificate,
        seeded=seeded,
        notes=_versions(opened),
    )


def open_verified(folder: Path, *, progress: Progress | None = None) -> OpenedFolder:
    """Read a DIR that holds: checked now, or known to hold from before, byte for byte and by these versions.

    Raises:
        DoesNotHoldError: a sum or a claim does not hold.
        InputError: DIR cannot be read.
    """
    word = _checked(folder, progress)
    return evolve(load_release(folder), verdict=word)


def open_to_sample(folder: Path, *, progress: Progress | None = None) -> tuple[str, Release]:
    """Return the mechanism and the release of a DIR that holds, the problem left unread where drawing does without.

    Raises:
        DoesNotHoldError, InputError: as of :func:`open_verified`.
    """
    _checked(folder, progress)
    registered, _, _ = _stated(folder)
    release = registered.load().release_class.alone(folder)
    return registered.spec.name, load_release(folder).release if release is None else release


def _checked(folder: Path, progress: Progress | None) -> Word:
    word = recall(folder) if not check_sums(folder) else None
    if word is None:
        found = verify(folder, progress=progress)
        word = found.verdict
        if word is None:
            raise DoesNotHoldError("\n".join(f"{folder}: {line}" for line in [*found.complaints, "does not hold"]))
    return word


@contextmanager
def _collecting(lines: list[str], where: str, but: type[PrivoptError] = StoppedError) -> Iterator[None]:
    """Add a line that begins by ``where`` if a block fails: what solve did not write may be of any form.

    A limit goes on up, for it says nothing of DIR, and so does an error of the class ``but``.
    """
    try:
        yield
    except (StoppedError, but):
        raise
    except Exception as error:
        lines.append(f"{where} ({_describe_error(error)})")


def _describe_error(error: Exception) -> str:
    """Return the text of an error; of one that is not privopt's, also its type."""
    return str(error) if isinstance(error, PrivoptError) else f"{type(error).__name__}: {error}"


def _recompute_result(opened: OpenedFolder) -> tuple[Result, Measurement, list[str]]:
    """Compute the result from the files next to result.json.

    Returns:
        The result, the measurement that it states, and what does not hold.
    """
    problem, release, result = opened.problem, opened.release, opened.result
    stated, lp, unit = result.objective, result.details.lp, result.details.value_unit
    measurement = measure_release(opened.registered, opened.mechanism, problem, release, result.method, value_unit=unit)
    certificate, utility, value = measurement.certificate, measurement.utility, measurement.value
    complaints = []
    if certificate.holds is False:
        complaints += [f"certificate: worst {certificate.worst}, allowed {certificate.allowed}", *certificate.failures]
    elif certificate.holds is None and measurement.guarantee.kind != NOTHING:
        complaints.append(f"certificate: {measurement.guarantee.kind} is claimed but cannot be measured")
    if measurement.value_error is not None:
        complaints.append(f"objective: cannot be evaluated ({_describe_error(measurement.value_error)})")
    elif measurement.value_unit != unit:
        missing = f"missing, where {value!r} is known to {measurement.value_unit!r}"
        complaints.append(f"{RESULT}: details.{VALUE_UNIT}: {missing}")
    value = stated.value if value is None else value
    if lp is not None and not solves_program(opened.mechanism):
        complaints.append(f"{RESULT}: details.{LP}: claims a program, but {result.mechanism} solves none besides")
    facts: Mapping[str, Any] = {}
    with _collecting(complaints, f"{RESULT}: details.{TOLD}: not as {result.method} tells"):
        facts = details_of(opened.mechanism, problem, release, result.method, result.details.told)
    recomputed = evolve(
        result,
        guarantee=evolve(measurement.guarantee, seeded=result.guarantee.seeded),
        certificate=certificate,
        objective=Objective.of(
            value,
            stated.lower_bound,
            maximise=utility.maximise,
            unit=utility.unit,
            bound_over=_find_bound_over(opened),
        ),
        details=evolve(result.details, facts=facts, lp=None if lp is None else Bounds.of(lp.value, lp.lower_bound)),
    )
    return recomputed, measurement, complaints


def _find_bound_over(opened: OpenedFolder) -> str | None:
    mechanism = opened.mechanism
    return mechanism.bound_over(opened.problem, opened.folder) if isinstance(mechanism, BoundsChosen) else None


def _unproved(opened: OpenedFolder, *, fits: bool) -> list[str]:
    """Return what is wrong with the stated bound: the value passes it, or DIR, if the rest fits, proves less."""
    maximise = opened.mechanism.utility(opened.problem, opened.result.method).maximise
    value, bound = opened.result.objective.value, opened.result.objective.lower_bound
    where = f"{RESULT}: objective.lower_bound"
    if bound is None:
        return [f"{PROOF}: {where} is null"] if (opened.folder / PROOF).exists() else []
    if not math.isfinite(bound):
        return [f"{where}: {bound!r}, which is not a number"]
    passed = value > bound if maximise else bound > value
    lines = [f"{where}: {bound!r} is contradicted by the value, {value!r}"] if passed else []
    if not fits:
        return lines
    errors: list[str] = []
    proved = None
    with _collecting(errors, f"{where}: {bound!r} cannot be evaluated", but=InputError):
        if isinstance(opened.mechanism, ProvesBound):
            proved = opened.mechanism.proved(opened.problem, opened.release, opened.result, opened.folder)
    if errors:
        return lines + errors
    if proved is None:
        lines.append(f"{where}: {bound!r}, which nothing in the folder proves")
    elif isinstance(opened.mechanism, StatesProof) and opened.mechanism.bound_is_proof and proved != bound:
        lines.append(f"{where}: {bound!r}, where {proved!r} is proved")
    elif (proved > bound) if maximise else (proved < bound):
        lines.append(f"{where}: {bound!r}, where no more than {proved!r} is proved")
    return lines


def _unlike(stated: Mapping[str, Any], again: Result) -> list[str]:
    """Compare what result.json says, leaf by leaf, with what follows from its problem and release."""
    wanted = {name: jsonable(value) for name, value in again.to_json().items()}
    lines = list(differences(stated["guarantee"], wanted["guarantee"], "guarantee", near=0.0))
    exact = again.details.value_unit is not None
    for name in ("objective", "certificate", "status", "details"):
        near = 0.0 if exact and name == "objective" else RELATIVE_TOLERANCE
        lines += differences(stated.get(name), wanted[name], name, near=near)
    return [f"{RESULT}: {line}" for line in lines]


def _bookkeeping(opened: OpenedFolder, again: Result, registered_kind: str) -> list[str]:
    """Return the statements of result.json that only other parts of DIR, or of result.json, can contradict."""
    result, registered = opened.result, opened.registered
    lines = []
    digest = sha256(opened.folder / PROBLEM / result.problem.file)
    if result.problem.sha256 != digest:
        lines.append(f"problem.sha256: not that of the problem file, {digest}")
    if result.plugin.name != registered.plugin:
        lines.append(f"plugin.name: claims {result.plugin.name!r}, {registered.plugin} made it")
    if result.asked.method != result.method:
        lines.append(f"asked.method: {result.asked.method!r} is not method, {result.method!r}")
    kind = again.guarantee.kind
    if kind != registered_kind:
        lines.append(f"guarantee.kind: {kind!r} is not what the mechanism is registered for")
    seeded, seed = again.guarantee.seeded, result.seed
    if seeded and seed is None:
        lines.append("guarantee.seeded: true, though no seed is stated")
    if seed is not None and not seeded and again.certificate.evidence == "declared":
        lines.append(f"guarantee.seeded: missing, though the seed is {seed}")
    return [f"{RESULT}: {line}" for line in lines]


def _versions(opened: OpenedFolder) -> tuple[str, ...]:
    """Return a line for each program that was another version when the folder was made."""
    plugin, then = opened.registered, opened.result
    rows = [("privopt", then.privopt, VERSION), (f"plugin {plugin.plugin}", then.plugin.version, plugin.version)]
    return tuple(f"made by {name} {old}, checked by {now}" for name, old, now in rows if old != now)
