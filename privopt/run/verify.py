"""The way back from a DIR: what it holds, and whether every claim in it does.

``verify`` starts from the bytes in DIR: it reads problem and artefact again, measures them, and only then looks at
what result.json claims.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from attrs import frozen

from privopt.declare import load_problem
from privopt.errors import Fault, InputError, PrivoptError
from privopt.execution import from_url
from privopt.interfaces import Certificate, Guarantee, Mechanism, Objective, Release
from privopt.registry import Registered, registry
from privopt.run.folder import PROBLEM, RESULT, check_sums, read_result, sha256
from privopt.run.result import claim_faults
from privopt.specs import MethodSpec

__all__ = ["NEAR", "Opened", "Verdict", "load_release", "read_problem", "verify"]

NEAR: Final = 1e-9
"""Relative difference allowed between a figure in result.json and the same figure computed again."""


@frozen(kw_only=True, eq=False)
class Opened:
    """A DIR as it was read: nothing in it is checked yet.

    Attributes:
        folder: where it lies.
        registered: the mechanism as its plugin registered it.
        method: the method that made the release.
        mechanism: what knows the problem and the release.
        problem: read from ``problem/``.
        release: read from the artefact.
        result: result.json.
    """

    folder: Path
    registered: Registered
    method: MethodSpec
    mechanism: Mechanism
    problem: Any
    release: Any
    result: Mapping[str, Any]


@frozen(kw_only=True)
class Verdict:
    """What ``verify`` found.

    Attributes:
        verdict: ``"proved"``, ``"declared"`` or ``"none"`` (kind "none", or drawn under a seed); None where a sum or
            a claim does not hold.
        complaints: a line for each that does not hold; empty where all do.
        certificate: as measured again, where it came so far.
        seeded: whether the noise of this release came from a seed.
    """

    verdict: Literal["proved", "declared", "none"] | None
    complaints: tuple[str, ...] = ()
    certificate: Certificate | None = None
    seeded: bool = False

    @property
    def holds(self) -> bool:
        """Whether all that DIR says is so, be it only that it promises nothing."""
        return self.verdict is not None

    def words(self) -> str:
        """What was found and what it rests on, in one line; :attr:`verdict` is the word to put before it."""
        found = self.certificate
        if self.verdict is None or found is None:
            return "does not hold"
        if found.holds is None:
            return "sums hold; no guarantee is claimed"
        figures = (
            f"{found.kind}: worst {found.worst:.9g} of {found.allowed:.9g} allowed; {found.checked:,} conditions; "
            f"{found.arithmetic}"
        )
        if self.seeded:
            return f"seeded, not private ({figures})"
        rests = f"; its maker's word: {found.rests_on}" if found.rests_on else ""
        return f"holds ({figures}{rests})"

    def to_json(self) -> dict[str, Any]:
        """What ``privopt verify --json`` prints."""
        return {
            "verdict": self.verdict,
            "seeded": self.seeded,
            "complaints": list(self.complaints),
            "certificate": None if self.certificate is None else self.certificate.to_json(),
        }


def read_problem(mechanism: Mechanism, path: Path, *, public: bool = False) -> Any:
    """Read a problem file as a mechanism declares it; tables of other mechanisms may stand in it too."""
    return load_problem(mechanism.problem_class, path, public=public, ignore=registry().mechanisms.keys())


def load_release(folder: Path) -> Opened:
    """Read a DIR back, without checking what it claims.

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
    method = registered.method(result["method"])
    mechanism = registered.load()
    problem = read_problem(mechanism, folder / PROBLEM / file, public=True)
    try:
        release: Release = mechanism.release_class.read(folder, problem)
    except PrivoptError:
        raise
    except Exception as error:  # bytes that solve did not write may make any reader raise anything
        found = f"an artefact that cannot be read ({type(error).__name__}: {error})"
        raise InputError([Fault(str(folder), "", found, "files as privopt solve wrote them")]) from error
    return Opened(
        folder=folder,
        registered=registered,
        method=method,
        mechanism=mechanism,
        problem=problem,
        release=release,
        result={**result, "method": method.name},
    )


def verify(folder: Path, *, jobs: int = 1) -> Verdict:
    """Check a DIR from its files alone, in exact arithmetic.

    Raises:
        InputError: DIR cannot be read.
    """
    if not folder.is_dir():
        raise InputError([Fault(str(folder), "", "no such folder", "a folder that privopt solve has written")])
    complaints = check_sums(folder)
    faults = [] if complaints else claim_faults(read_result(folder), RESULT)
    complaints += [f"{RESULT}: {f.where}: missing" if f.found == "nothing" else str(f) for f in faults]
    if complaints:
        return Verdict(verdict=None, complaints=tuple(complaints))
    opened = load_release(folder)
    mechanism, problem, release, result = opened.mechanism, opened.problem, opened.release, opened.result
    with from_url(None, jobs) as executor:
        privacy = mechanism.privacy(problem, opened.method.name)
        certificate = privacy.measure(release, executor=executor)
    if certificate.holds is False:
        complaints.append(f"certificate: worst {certificate.worst}, allowed {certificate.allowed}")
        complaints.extend(certificate.failures)
    elif certificate.holds is None and privacy.guarantee.kind != "none":
        complaints.append(f"certificate: {privacy.guarantee.kind} is claimed but cannot be measured")
    complaints += _claims(result, privacy.guarantee, certificate)
    complaints += _bookkeeping(folder, result, opened.registered)
    utility = mechanism.utility(problem, opened.method.name)
    complaints += _objective(result, utility.evaluate(release), maximise=utility.maximise)
    try:
        complaints += mechanism.verify(problem, release, result)
    except PrivoptError as error:
        complaints.append(str(error))
    except Exception as error:  # details that solve did not write may be of any form
        plugin = opened.registered.plugin
        complaints.append(f"{RESULT}: details: {plugin} cannot check them ({type(error).__name__}: {error})")
    seeded = bool(result["guarantee"].get("seeded"))
    return Verdict(
        verdict=None if complaints else "none" if seeded else certificate.evidence,
        complaints=tuple(complaints),
        certificate=certificate,
        seeded=seeded,
    )


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
        for name in ("holds", "evidence", "kind", "checked")
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
    return isinstance(claimed, (int, float)) and bool(abs(claimed - value) <= NEAR * max(1.0, abs(value)))


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
