"""``verify`` for release folders (DIR): recompute the result from the files, and check every claim in result.json.

``verify`` first compares the checksums. It then reads the problem and the artefact, measures the release, and compares
each claim with what it found. No value is accepted merely because result.json contains it.

Verdicts are cached, so that a folder is not verified again on every use. Each verdict is a small file in the user's
cache folder, named after the SHA-256 of everything that the verdict depends on: the checksum files of DIR, which the
caller has compared with the other files, and the versions of privopt and its plugins. A changed folder or an update
therefore leads to a new verification. No file inside DIR can supply a verdict.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, get_args

from attrs import AttrsInstance, evolve, frozen

from privopt.declare import File
from privopt.declare.schema import ProblemHeading, document
from privopt.declare.toml import read_heading
from privopt.errors import DoesNotHoldError, Fault, InputError, PrivoptError, StoppedError, UsageError
from privopt.execution.resources import limited_to
from privopt.files.regular import private_folder, read_bytes
from privopt.files.release_folder import (
    PRIVATE,
    PROBLEM,
    PROOF,
    RESULT,
    SUMS,
    check_sums,
    expect_release,
    files_in,
    jsonable,
    read_document,
    sha256,
)
from privopt.interfaces import Bounds, Certificate, Mechanism, Objective, Progress, Release, Result
from privopt.interfaces.abilities import BoundsChosen, ProvesBound, StatesProof, details_of, reopen, solves_program
from privopt.interfaces.result import LP, SEEDED, TOLD, VALUE_UNIT
from privopt.registry import Registered, registry
from privopt.run.build_result import RELATIVE_TOLERANCE, differences, result_of
from privopt.run.measure import Measurement, measure_release
from privopt.run.problem_copy import stray_files
from privopt.run.task import read_problem
from privopt.specs import NOTHING, MethodSpec
from privopt.version import VERSION

__all__ = [
    "CACHE",
    "OpenedFolder",
    "Verdict",
    "Word",
    "load_release",
    "open_to_sample",
    "open_verified",
    "recall",
    "remember",
    "verify",
]


Word = Literal["proved", "declared", "none"]
"""A verdict on a guarantee: "proved" from the files, "declared" (relies on the publisher's word that noise was drawn),
or "none" (there is no guarantee)."""

CACHE: Final = "PRIVOPT_CACHE"
"""The environment variable that can override the default cache folder."""


def recall(folder: Path) -> Word | None:
    """Return the cached verdict on a release folder, or None if there is no cached verdict that can be trusted.

    The caller must have checked that the folder's checksums match.
    """
    try:
        file = _verdict_file(folder)
        # If the cache folder belongs to another user, that user could have written the verdict.
        if file.parent.lstat().st_uid != os.geteuid():
            return None
        text = read_bytes(file, largest=16, links=False).decode()
    except (OSError, ValueError):
        return None
    return next((word for word in get_args(Word) if word == text), None)


def remember(folder: Path, word: Word) -> None:
    """Cache the verdict on a release folder, so that later uses need not verify it again.

    The caller must have checked that the folder's checksums match. If the verdict cannot be written, nothing is cached.
    """
    try:
        file = _verdict_file(folder)
        private_folder(file.parent)
        unfinished = file.with_name(f"{file.name}.{os.getpid()}")
        # Write to a temporary name and rename, so that concurrent readers never see an incomplete verdict.
        unfinished.write_text(word, "utf-8")
        unfinished.replace(file)
    except (OSError, ValueError, UsageError):
        return


def _verdict_file(folder: Path) -> Path:
    """Return the path of a cached verdict, whose file name is a hash of everything that the verdict depends on."""
    digest = hashlib.sha256()
    # The checksum files cover all other files. Recipients do not have the private one.
    for path in (folder / SUMS, folder / PRIVATE / SUMS):
        digest.update(hashlib.sha256(path.read_bytes() if path.is_file() else b"none").digest())
    # Include all plugins, not only the mechanism's, because another plugin's notion may take part in verification.
    plugins = {f"{entry.plugin} {entry.version}" for entry in registry().entries.values()}
    digest.update("\n".join([f"privopt {VERSION}", *sorted(plugins)]).encode())
    return _cache_folder() / "held" / digest.hexdigest()


def _cache_folder() -> Path:
    """Return the folder in which verdicts are cached.

    This is the value of the environment variable named by :data:`CACHE` or, if that is not set, the user's cache
    folder.
    """
    folder = os.environ.get(CACHE)
    if folder:
        return Path(folder)
    from platformdirs import user_cache_path

    return user_cache_path("privopt", appauthor=False)


@frozen(kw_only=True)
class Verdict:
    """The result of ``verify`` on a folder.

    Attributes:
        verdict: ``"proved"``, ``"declared"``, ``"none"`` (no guarantee, or noise from a seed), or None if a checksum or
            a claim does not hold.
        complaints: One line for each checksum or claim that does not hold.
        certificate: The recomputed certificate, or None if verification ended early.
        seeded: Whether the noise of the release came from a seed.
        notes: Remarks that do not affect the verdict, such as different software versions.
        signed_by: The signer and the key, if a signature was checked and is valid.
    """

    verdict: Word | None
    complaints: tuple[str, ...] = ()
    certificate: Certificate | None = None
    seeded: bool = False
    notes: tuple[str, ...] = ()
    signed_by: str | None = None

    @property
    def holds(self) -> bool:
        """Whether all checksums in the folder match and all its claims hold, even if no guarantee is claimed."""
        return self.verdict is not None

    def __repr__(self) -> str:
        """Return the verdict and its basis, or the first claim that does not hold."""
        details = self.words() if self.holds else "; ".join(["does not hold", *self.complaints[:1]])
        return f"<{self.verdict or 'refused'}: {details}>"

    def words(self) -> str:
        """Return a line that explains the verdict and its basis, to be printed after :attr:`verdict`."""
        return self._certificate_text() + (f"; signed by {self.signed_by}" if self.signed_by else "")

    def _certificate_text(self) -> str:
        """Return the part of :meth:`words` that describes the certificate and what it is based on."""
        certificate = self.certificate
        if self.verdict is None or certificate is None:
            return "does not hold"
        if certificate.holds is None:
            return "no privacy guarantee; checksums match"
        figures = f"{certificate.kind}: {certificate.in_words}; {certificate.arithmetic}"
        if self.seeded:
            return f"{SEEDED} ({figures})"
        trust_note = f"; the publisher's word: {certificate.rests_on}" if certificate.rests_on else ""
        return f"holds ({figures}{trust_note})"

    def to_json(self) -> dict[str, Any]:
        """Return the object printed by ``privopt verify --json``."""
        return {
            "verdict": self.verdict,
            "seeded": self.seeded,
            "complaints": list(self.complaints),
            "notes": list(self.notes),
            "certificate": None if self.certificate is None else document(self.certificate),
            **({} if self.signed_by is None else {"signed_by": self.signed_by}),
        }


@frozen(kw_only=True, eq=False)
class OpenedFolder:
    """The contents of a release folder (DIR), read from its files. If ``verdict`` is None, no claim has been checked.

    Attributes:
        folder: The path of DIR.
        registered: The mechanism as registered by its plugin.
        method: The method that computed the release.
        mechanism: The mechanism that computed the release.
        declared: The declared problem, read from the file in ``problem/``.
        problem: The problem that the mechanism loaded from ``declared``.
        release: The release read from the artefact.
        result: The parsed result.json.
        stated: The contents of result.json as a JSON object.
        heading: The title and purpose stated in the problem file.
        verdict: The verdict of ``verify``, or None if DIR was not verified.
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
        """The unit in which a ledger counts the budget spent on this release (:attr:`PrivacyConstraint.relation`)."""
        return str(self.mechanism.privacy(self.problem, self.method.name).relation)


def _read_claims(folder: Path) -> tuple[Registered, Mapping[str, Any], Result]:
    """Return a release folder's mechanism, and its result.json as both a JSON object and a parsed result.

    Raises:
        InputError: The folder is not a release, contains links or other unusual files, or its result.json is malformed.
    """
    expect_release(folder)
    # Check this before opening any file, because a link could lead out of the folder and a pipe could block.
    _, strange = files_in(folder)
    if strange:
        raise InputError(strange)
    stated = read_document(folder)
    result = result_of(stated, str(folder / RESULT))
    # A name with a slash could refer to a file outside problem/.
    file = result.problem.file
    if Path(file).name != file:
        raise InputError([Fault(str(folder / RESULT), "problem.file", repr(file), "the name of a file in problem/")])
    return registry().get(result.mechanism), stated, result


def load_release(folder: Path) -> OpenedFolder:
    """Read a release folder's problem, release and result, without checking any claims.

    Raises:
        InputError: The folder cannot be read.
        DoesNotHoldError: The problem and the release contradict each other.
    """
    registered, stated, result = _read_claims(folder)
    file = result.problem.file
    method = registered.method(result.method)
    mechanism: Mechanism[Any, Any] = registered.load()
    source = File.read(folder / PROBLEM / file, expectation="a problem file in TOML")
    # With public=True, nothing outside problem/ is read, whatever paths the problem file contains.
    declared = read_problem(mechanism, source, public=True)
    try:
        problem, release = reopen(mechanism, declared, file, folder)
    except PrivoptError:
        # The message already says what is wrong.
        raise
    except Exception as error:
        # Reading files that solve did not write may raise any error.
        actual = f"an artefact that cannot be read ({type(error).__name__}: {error})"
        raise InputError([Fault(str(folder), "", actual, "files as privopt solve wrote them")]) from error
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
    """Verify all checksums and claims in a release folder (DIR) from its files alone.

    Args:
        folder: The release folder.
        jobs: The number of threads, or None for the default.
        progress: Called with the name of each step.

    Raises:
        InputError: DIR cannot be read.
        StoppedError: A limit ended the verification, so it is not known whether the claims hold.
    """

    def report(phase: str) -> None:
        """Call ``progress``, if given, with the name of a step."""
        if progress is not None:
            progress(phase, 0, None, None)

    # Compare the checksums first, since a changed file makes every later complaint misleading.
    report("checksums of the files")
    complaints = check_sums(folder)
    if not complaints:
        stated = read_document(folder)
        # If result.json is malformed although its checksum is right, it was written that way, which is a complaint
        # rather than an error.
        try:
            result_of(stated, RESULT)
        except InputError as error:
            complaints = [f"{RESULT}: {f.where}: missing" if f.actual == "nothing" else str(f) for f in error.faults]
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
    complaints += _compare_claims(opened.stated, recomputed)
    complaints += _check_bookkeeping(opened, recomputed, measurement.registered_kind)
    with _collect_errors(complaints, f"{RESULT}: details: {opened.registered.plugin} cannot check them"):
        complaints += opened.mechanism.verify(opened.problem, opened.release, opened.result)
    report("bound")
    # Check the bound last, because evaluating a proof takes longest and is pointless if another claim does not hold.
    complaints += _check_bound(opened, other_claims_hold=not complaints)
    seeded = recomputed.guarantee.seeded
    # Anyone who knows the seed can draw the noise again, so the verdict on a seeded release is "none", whatever was
    # proved.
    word = None if complaints else "none" if seeded else recomputed.certificate.evidence
    # Compare the checksums again, because the files may have changed since they were read.
    if word is not None and not check_sums(folder):
        remember(folder, word)
    return Verdict(
        verdict=word,
        complaints=tuple(complaints),
        certificate=recomputed.certificate,
        seeded=seeded,
        notes=_version_notes(opened),
    )


def open_verified(folder: Path, *, progress: Progress | None = None) -> OpenedFolder:
    """Verify a release folder (DIR) and return its contents.

    A cached verdict is used if the same bytes have already been verified by the same software versions.

    Raises:
        DoesNotHoldError: A checksum or a claim does not hold.
        InputError: DIR cannot be read.
    """
    word = _verify_once(folder, progress)
    return evolve(load_release(folder), verdict=word)


def open_to_sample(folder: Path, *, progress: Progress | None = None) -> tuple[str, Release]:
    """Verify a release folder (DIR), and return its mechanism's name and its release.

    If the verdict is cached, the problem is read only if it is needed to draw reports.

    Raises:
        DoesNotHoldError: A checksum or a claim does not hold.
        InputError: DIR cannot be read.
    """
    _verify_once(folder, progress)
    registered, _, _ = _read_claims(folder)
    release = registered.load().release_class.read_without_problem(folder)
    return registered.spec.name, load_release(folder).release if release is None else release


def _verify_once(folder: Path, progress: Progress | None) -> Word:
    """Return the verdict on a release folder, from the cache if possible.

    Raises:
        DoesNotHoldError: A checksum or a claim does not hold. The message has one line for each failure.
    """
    # A cached verdict belongs to the checksums, so it means nothing for a folder that does not match them.
    word = recall(folder) if not check_sums(folder) else None
    if word is None:
        verdict = verify(folder, progress=progress)
        word = verdict.verdict
        if word is None:
            raise DoesNotHoldError("\n".join(f"{folder}: {line}" for line in [*verdict.complaints, "does not hold"]))
    return word


@contextmanager
def _collect_errors(lines: list[str], where: str, but: type[PrivoptError] = StoppedError) -> Iterator[None]:
    """Append any error raised in the ``with`` block to ``lines``, as a line that begins with ``where``.

    This is used for files that ``solve`` may not have written, because they can cause any kind of exception. Exceptions
    of the class ``but`` are not caught, nor is :class:`StoppedError`, which only means that a limit was reached and
    says nothing about the folder.
    """
    try:
        yield
    except (StoppedError, but):
        raise
    except Exception as error:
        lines.append(f"{where} ({_describe_error(error)})")


def _describe_error(error: Exception) -> str:
    """Return an error's message, preceded by its type unless it is one of privopt's own errors."""
    return str(error) if isinstance(error, PrivoptError) else f"{type(error).__name__}: {error}"


def _recompute_result(opened: OpenedFolder) -> tuple[Result, Measurement, list[str]]:
    """Recompute the result from the problem and the release.

    Fields that cannot be recomputed are copied from result.json and checked by other functions.

    Returns:
        The recomputed result, the measurement that it is based on, and a line for each claim that does not hold.
    """
    problem, release, result = opened.problem, opened.release, opened.result
    stated, lp, unit = result.objective, result.details.lp, result.details.value_unit
    # Round the loss to the unit given in the result, so that it can be compared exactly.
    measurement = measure_release(opened.registered, opened.mechanism, problem, release, result.method, value_unit=unit)
    certificate, utility, value = measurement.certificate, measurement.utility, measurement.value
    complaints = []
    if certificate.holds is False:
        # A release can also fail for another reason, such as a row that is not a distribution, even if its worst pair
        # is allowed. In that case, only the certificate's failures become complaints.
        worst, allowed = certificate.worst, certificate.allowed
        if not certificate.failures or worst is None or allowed is None or worst > allowed:
            complaints.append(f"certificate: worst {worst}, allowed {allowed}")
        complaints += certificate.failures
    elif certificate.holds is None and measurement.guarantee.kind != NOTHING:
        complaints.append(f"certificate: {measurement.guarantee.kind} is claimed but cannot be measured")
    if measurement.value_error is not None:
        complaints.append(f"objective: cannot be evaluated ({_describe_error(measurement.value_error)})")
    elif measurement.value_unit != unit:
        missing = f"missing, although {value!r} is known to {measurement.value_unit!r}"
        complaints.append(f"{RESULT}: details.{VALUE_UNIT}: {missing}")
    # If the loss could not be recomputed, use the claimed one, so that the other fields can be compared.
    value = stated.value if value is None else value
    if lp is not None and not solves_program(opened.mechanism):
        complaints.append(f"{RESULT}: details.{LP}: claims a program, but {result.mechanism} solves none")
    facts: Mapping[str, Any] = {}
    with _collect_errors(complaints, f"{RESULT}: details.{TOLD}: not as {result.method} reports it"):
        facts = details_of(opened.mechanism, problem, release, result.method, result.details.told)
    recomputed = evolve(
        result,
        # Whether a seed was used cannot be recomputed. _check_bookkeeping compares it with the other fields.
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
    """Return a word that says which outputs the lower bound covers (:attr:`Objective.bound_over`).

    This is ``"all"`` or ``"chosen"``, or None if the mechanism did not choose outputs for this problem.
    """
    mechanism = opened.mechanism
    return mechanism.bound_over(opened.problem, opened.folder) if isinstance(mechanism, BoundsChosen) else None


def _check_bound(opened: OpenedFolder, *, other_claims_hold: bool) -> list[str]:
    """Return a line for each error in the claimed bound, for example if it contradicts the value or is not proved.

    Args:
        opened: The contents of the release folder.
        other_claims_hold: Whether all other claims hold. The proof, which takes longest, is evaluated only if they do.
    """
    maximise = opened.mechanism.utility(opened.problem, opened.result.method).maximise
    value, bound = opened.result.objective.value, opened.result.objective.lower_bound
    where = f"{RESULT}: objective.lower_bound"
    # Without a bound, nothing would check the proof file.
    if bound is None:
        return [f"{PROOF}: {where} is null"] if (opened.folder / PROOF).exists() else []
    if not math.isfinite(bound):
        return [f"{where}: {bound!r}, which is not a number"]
    # A bound that the value is already beyond is wrong, whatever the folder proves.
    passed = value > bound if maximise else bound > value
    lines = [f"{where}: {bound!r} is contradicted by the value, {value!r}"] if passed else []
    if not other_claims_hold:
        return lines
    # An error in the proof file (InputError) is raised, and any other becomes a complaint.
    errors: list[str] = []
    proved = None
    with _collect_errors(errors, f"{where}: {bound!r} cannot be evaluated", but=InputError):
        if isinstance(opened.mechanism, ProvesBound):
            proved = opened.mechanism.proved_bound(opened.problem, opened.release, opened.result, opened.folder)
    if errors:
        return lines + errors
    if proved is None:
        lines.append(f"{where}: {bound!r}, which nothing in the folder proves")
    # Such a mechanism claims exactly the bound that it proves, whereas others may claim a weaker one.
    elif isinstance(opened.mechanism, StatesProof) and opened.mechanism.bound_is_proof and proved != bound:
        lines.append(f"{where}: {bound!r}, but {proved!r} is proved")
    elif (proved > bound) if maximise else (proved < bound):
        lines.append(f"{where}: {bound!r}, but no more than {proved!r} is proved")
    return lines


def _compare_claims(stated: Mapping[str, Any], recomputed: Result) -> list[str]:
    """Compare result.json with the recomputed result, value by value, and return a line for each difference."""
    expected_leaves = {name: jsonable(value) for name, value in recomputed.to_json().items()}
    # The guarantee consists of exact numbers, so there is no tolerance.
    lines = list(differences(stated["guarantee"], expected_leaves["guarantee"], "guarantee", tolerance=0.0))
    # A loss that is rounded to a unit is the same double on every machine.
    exact = recomputed.details.value_unit is not None
    for name in ("objective", "certificate", "status", "details"):
        tolerance = 0.0 if exact and name == "objective" else RELATIVE_TOLERANCE
        lines += differences(stated.get(name), expected_leaves[name], name, tolerance=tolerance)
    return [f"{RESULT}: {line}" for line in lines]


def _check_bookkeeping(opened: OpenedFolder, recomputed: Result, registered_kind: str) -> list[str]:
    """Check the claims about names, the problem's checksum, the method, the kind of guarantee and the seed.

    Args:
        opened: The contents of the release folder.
        recomputed: The recomputed result.
        registered_kind: The only kind of guarantee that the method may claim (:class:`Measurement`).

    Returns:
        A line for each claim in result.json that contradicts another file or claim.
    """
    result, registered = opened.result, opened.registered
    lines = []
    digest = sha256(opened.folder / PROBLEM / result.problem.file)
    if result.problem.sha256 != digest:
        lines.append(f"problem.sha256: not that of the problem file, {digest}")
    if result.plugin.name != registered.plugin:
        lines.append(f"plugin.name: claims {result.plugin.name!r}, {registered.plugin} made it")
    if result.asked.method != result.method:
        lines.append(f"asked.method: {result.asked.method!r} is not method, {result.method!r}")
    kind = recomputed.guarantee.kind
    if kind != registered_kind:
        lines.append(f"guarantee.kind: {kind!r} is not what the mechanism is registered for")
    seeded, seed = recomputed.guarantee.seeded, result.seed
    if seeded and seed is None:
        lines.append("guarantee.seeded: true, though no seed is stated")
    # A release that relies on drawn noise and names a seed must say that it is seeded.
    if seed is not None and not seeded and recomputed.certificate.evidence == "declared":
        lines.append(f"guarantee.seeded: missing, though the seed is {seed}")
    return [f"{RESULT}: {line}" for line in lines]


def _version_notes(opened: OpenedFolder) -> tuple[str, ...]:
    """Return a note for each version (of privopt or of the plugin) that has changed since the folder was written."""
    plugin, result = opened.registered, opened.result
    rows = [("privopt", result.privopt, VERSION), (f"plugin {plugin.plugin}", result.plugin.version, plugin.version)]
    return tuple(
        f"made by {name} {writer}, checked by {checker}" for name, writer, checker in rows if writer != checker
    )
