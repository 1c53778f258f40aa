"""Abilities that a mechanism may have besides solving: each is one method or attribute.

A mechanism has an ability by defining its member; it inherits nothing. The classes are protocols, as ``Sized`` and
``Iterable`` of :mod:`collections.abc` are, and code that asks for an ability tests ``isinstance(mechanism, Plans)``::

    class HeadCount(Mechanism[HeadCountProblem, Count]):
        ...

        def warnings(self, problem, release, result):  # now it is a Warns
            return ["fewer than ten people came"] if release.count < 10 else []

Each class says who asks for it, and what happens without it. The kit names public methods that nearly match one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar, runtime_checkable

from privopt.errors import StoppedError
from privopt.interfaces.channel import Channel, NoisyCounts
from privopt.interfaces.mechanism import Mechanism
from privopt.interfaces.plan import Plan
from privopt.interfaces.release import Release
from privopt.interfaces.result import Result
from privopt.interfaces.solving import SolveContext

__all__ = [
    "ABILITIES",
    "AdvisesMemory",
    "Audits",
    "AuditsOverTime",
    "BoundsChosen",
    "ChecksProblem",
    "ChoosesMethod",
    "ChoosesNotion",
    "CopiesFiles",
    "DescribesReading",
    "Drafts",
    "Explains",
    "HasChannel",
    "NeedsMemory",
    "Plans",
    "ProvesBound",
    "PublishesFiles",
    "Reopens",
    "SolvesProgram",
    "StatesDetails",
    "StatesProof",
    "TakesKinds",
    "Warns",
    "channel_of",
    "check_memory",
    "check_problem",
    "details_of",
    "meaning_of",
    "member_of",
    "notion_of",
    "reopen",
    "solves_program",
]

P = TypeVar("P", contravariant=True)
R = TypeVar("R", contravariant=True)
D = TypeVar("D", contravariant=True)

# --- asked by ``solve`` and ``describe`` before a search ----------------------------------------------------------


@runtime_checkable
class ChecksProblem(Protocol[P]):
    """Refuses a problem that a method cannot take, before anything is charged. Without it: what loads is taken."""

    def check_problem(self, problem: P, method: str) -> None:
        """Check, from what is declared, that the method can take the problem.

        Raises:
            InputError: it cannot.
        """


@runtime_checkable
class NeedsMemory(Protocol[P]):
    """Estimates its memory, so that a problem that does not fit is not begun. Without it: every problem is begun."""

    def bytes_needed(self, problem: P, method: str) -> float | None:
        """Estimate the bytes that a method takes on top of what the process holds, later steps included.

        The estimate is from public sizes alone, and rather too high than too low. A method that can fall back on
        cheaper ones counts as the cheapest of them, and itself chooses which to begin.

        Returns:
            None if it is not known.
        """


@runtime_checkable
class AdvisesMemory(Protocol[P]):
    """Advises a user whose problem does not fit. Without it: the message says how much is missing."""

    def memory_advice(self, problem: P) -> str:
        """Return how the problem would fit, as the end of a sentence; an empty text for no advice."""


@runtime_checkable
class ChoosesMethod(Protocol[D]):
    """Chooses the method by the problem if no option names one. Without it: the first method of the spec."""

    def own_method(self, declared: D) -> str | None:
        """Return the method's name; None for the first method of the spec."""


@runtime_checkable
class ChoosesNotion(Protocol[P]):
    """Lets the problem choose its notion of privacy. Without it: the notion of the spec."""

    def notion(self, problem: P, method: str) -> str | None:
        """Return the name of a registered notion; None for the notion of the spec."""


@runtime_checkable
class TakesKinds(Protocol):
    """Takes some registered kinds only; ``describe`` omits the others and their keys. Without it: it takes all."""

    def takes(self, role: str, name: str) -> bool:
        """Check whether a problem file may name a kind.

        Args:
            role: a registered one, such as ``"distance"``.
            name: of a registered kind that can be loaded.
        """


@runtime_checkable
class DescribesReading(Protocol[D]):
    """Tells a user who waits what :meth:`Mechanism.load` does. Without it: "problem"."""

    def reading(self, declared: D) -> str:
        """Return what loading this problem does, in a few words."""


# --- asked by ``solve`` and ``verify`` for the folder -------------------------------------------------------------


@runtime_checkable
class PublishesFiles(Protocol[P, R]):
    """Publishes secret files of the problem in another form. Without it: they go to ``private/`` alone."""

    def public_files(self, problem: P, release: R) -> Mapping[str, bytes]:
        """Return replacements of problem files, by the name that the problem file gives them.

        A file declared ``secret`` goes to ``private/`` alone unless it has a replacement here, which is then in
        ``problem/`` in its place.
        """


@runtime_checkable
class CopiesFiles(Protocol):
    """Writes clean copies of what the release lets out (``--copy-to``). Without it: the option is refused."""

    copies: ClassVar[bool]
    """True if it writes them into :attr:`SolveContext.copies` while it solves. Their names and SHA-256 are ``copies``
    of its details."""


@runtime_checkable
class Reopens(Protocol[D]):
    """Reads a folder in a way of its own. Without it: the problem is loaded, and then the release read."""

    def reopen(self, declared: D, file: str, folder: Path) -> tuple[Any, Any]:
        """Return the problem and the release that a folder holds, from its files and nothing else.

        Args:
            declared: as :meth:`Mechanism.load` takes it; secret files are absent.
            file: name of the problem file, for faults.
            folder: DIR.

        Raises:
            InputError: a file is missing or not of its form, or two contradict each other.
            DoesNotHoldError: the release cannot be the problem's, which is seen before anything is worked out.
        """


# --- asked by ``solve`` and ``verify`` for claims besides privacy -------------------------------------------------


@runtime_checkable
class ProvesBound(Protocol[P, R]):
    """Proves its bound from the folder. Without it: a bound that ``solve`` returned is under ``details.told``."""

    def proved(self, problem: P, release: R, result: Result, folder: Path) -> float | None:
        """Return the bound (``objective.lower_bound``) that DIR proves: from its proof, or computed again.

        Args:
            problem: as published: secrets are absent when ``verify`` asks.
            release: what is published.
            result: what result.json says; its bound is what is to be proved.
            folder: DIR, where :attr:`Outcome.proof` was written.

        Returns:
            None if nothing there proves any.

        Raises:
            InputError: a proof that cannot be read.
        """


@runtime_checkable
class StatesProof(Protocol):
    """States as its bound exactly what it proves, to the last bit. Without it: no more than that."""

    bound_is_proof: ClassVar[bool]
    """True if it does."""


@runtime_checkable
class BoundsChosen(Protocol[P]):
    """Chooses outputs, so that its bound covers those chosen, or all (:attr:`Outcome.bound_over`). Without it: None."""

    def bound_over(self, problem: P, folder: Path) -> str | None:
        """Return ``objective.bound_over`` as DIR has it; None if no outputs were chosen."""


@runtime_checkable
class SolvesProgram(Protocol):
    """Solves another program than the objective. Without it: a program in ``details.lp`` is refused."""

    programs: ClassVar[bool]
    """True if ``details.lp`` has that program's value and bound; then ``--gap`` and the status mean that one."""


@runtime_checkable
class StatesDetails(Protocol[P, R]):
    """States figures in ``details`` of result.json, which ``verify`` recomputes. Without it: none."""

    def details(self, problem: P, release: R, method: str, recorded: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the details that follow from problem and release.

        Args:
            problem: as published: secrets are absent when ``verify`` asks.
            release: what is published.
            method: that made it.
            recorded: ``details.told``, which no one checks.
        """


# --- asked by ``solve`` and ``report`` for people -----------------------------------------------------------------


@runtime_checkable
class Warns(Protocol[P, R]):
    """Warns users of a valid release. Without it: the notion's warnings alone are printed."""

    def warnings(self, problem: P, release: R, result: Result) -> Sequence[str]:
        """Return warnings: plain sentences, from public data only.

        ``solve`` prints each on standard error after ``warning:``, the report after ``Warning:``.
        """


@runtime_checkable
class Explains(Protocol[P, R]):
    """Explains the guarantee on a problem. Without it: ``solve`` shows its table alone."""

    def meaning(self, problem: P, release: R, result: Result) -> Sequence[str]:
        """Return plain sentences with figures, from public data only, which ``solve`` shows below its table."""


# --- asked by one command each ------------------------------------------------------------------------------------


@runtime_checkable
class Plans(Protocol[D]):
    """Predicts errors before epsilon is chosen (``plan``). Without it: the command refuses the mechanism."""

    def plan(self, declared: D, file: str, context: SolveContext) -> Plan:
        """Predict errors, from public or analytic figures alone.

        Args:
            declared: an instance of the problem class; its secret files are absent, as in a published copy.
            file: name of the problem file, for faults.
            context: the method, and the progress display.

        Raises:
            UsageError: the method cannot predict errors.
            InputError: the problem lacks what the prediction needs.
        """


@runtime_checkable
class Audits(Protocol[P, R]):
    """Measures an attacker's gain (``audit``). Without it: the channel of the release is measured, if it has one."""

    def audit(self, problem: P, release: R, result: Result) -> Mapping[str, Any]:
        """Return those keys of ``privopt audit --json`` that apply."""


@runtime_checkable
class AuditsOverTime(Protocol[P, R]):
    """Attacks several reports of one place (``audit --over-time``). Without it: ``over_time`` is null."""

    def over_time(self, problem: P, release: R, result: Result, reports: int) -> Mapping[str, Any] | None:
        """Return figures for up to so many reports; None if the attack shows nothing."""


@runtime_checkable
class HasChannel(Protocol[P, R]):
    """Adds to the channel what the problem knows (``estimate``, ``audit``). Without it: :meth:`Release.channel`."""

    def channel(self, problem: P, release: R) -> Channel | NoisyCounts | None:
        """Return how reports come from secrets; None if no report is drawn."""


@runtime_checkable
class Drafts(Protocol):
    """Writes a problem file from a table (``init``). Without it: ``init`` takes a table of places."""

    def draft(
        self,
        table: Path,
        out: Path,
        *,
        force: bool,
        count: str | None = None,
        persons: bool = False,
        totals: Sequence[str] = (),
        keep_totals: bool = False,
    ) -> Sequence[str]:
        """Write the problem file; return what was guessed, a sentence each.

        Args:
            table: the table of individuals.
            out: the problem file.
            force: whether to replace it.
            count, persons, totals, keep_totals: options of the command, about rows that stand for several people.
        """


ABILITIES: Final[tuple[type, ...]] = (
    ChecksProblem,
    NeedsMemory,
    AdvisesMemory,
    ChoosesMethod,
    ChoosesNotion,
    TakesKinds,
    DescribesReading,
    PublishesFiles,
    CopiesFiles,
    Reopens,
    ProvesBound,
    StatesProof,
    BoundsChosen,
    SolvesProgram,
    StatesDetails,
    Warns,
    Explains,
    Plans,
    Audits,
    AuditsOverTime,
    HasChannel,
    Drafts,
)
"""All abilities, in the order in which they are asked for."""


def member_of(ability: type) -> str:
    """Return the name of the method or attribute that gives a mechanism an ability.

    >>> member_of(Plans), member_of(CopiesFiles)
    ('plan', 'copies')
    """
    members = {*vars(ability), *vars(ability).get("__annotations__", {})}
    member: str
    (member,) = (name for name in members if not name.startswith("_"))
    return member


# --- what several callers ask for, with what happens without the ability ------------------------------------------


def check_memory(mechanism: object, problem: object, context: SolveContext) -> None:
    """Refuse a problem that does not fit into memory, before it is begun.

    Raises:
        StoppedError: it needs more than there is; says how much.
    """
    needed = mechanism.bytes_needed(problem, context.method) if isinstance(mechanism, NeedsMemory) else None
    if needed is None:
        return
    try:
        context.need(needed, f"this problem and --method {context.method}")
    except StoppedError as error:
        advice = mechanism.memory_advice(problem) if isinstance(mechanism, AdvisesMemory) else ""
        if advice:
            raise StoppedError(f"{error}; {advice}") from error
        raise


def check_problem(mechanism: object, problem: object, method: str) -> None:
    """Refuse a problem that a method cannot take.

    Raises:
        InputError: it cannot.
    """
    if isinstance(mechanism, ChecksProblem):
        mechanism.check_problem(problem, method)


def notion_of(mechanism: object, problem: object, method: str) -> str | None:
    """Return the notion that a problem chose for a method; None for the notion of the spec."""
    return mechanism.notion(problem, method) if isinstance(mechanism, ChoosesNotion) else None


def details_of(
    mechanism: object, problem: object, release: Release, method: str, recorded: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the details of result.json that follow from problem and release."""
    return mechanism.details(problem, release, method, recorded) if isinstance(mechanism, StatesDetails) else {}


def meaning_of(mechanism: object, problem: object, release: Release, result: Result) -> tuple[str, ...]:
    """Return sentences that explain the guarantee on a problem."""
    return tuple(mechanism.meaning(problem, release, result)) if isinstance(mechanism, Explains) else ()


def channel_of(mechanism: object, problem: object, release: Release) -> Channel | NoisyCounts | None:
    """Return how reports come from secrets; None if no report is drawn."""
    return mechanism.channel(problem, release) if isinstance(mechanism, HasChannel) else release.channel()


def solves_program(mechanism: object) -> bool:
    """Check whether a mechanism solves another program than the objective."""
    return isinstance(mechanism, SolvesProgram) and mechanism.programs


def reopen(mechanism: Mechanism[Any, Any], declared: object, file: str, folder: Path) -> tuple[Any, Release]:
    """Return the problem and the release that a folder holds, from its files and nothing else."""
    if isinstance(mechanism, Reopens):
        return mechanism.reopen(declared, file, folder)
    problem = mechanism.load(declared, file)
    return problem, mechanism.release_class.read(folder, problem)
