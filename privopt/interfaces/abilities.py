"""The optional abilities of a mechanism. Each consists of one method or attribute (its member).

A mechanism has an ability if it defines the member; it need not inherit from the ability's class. The classes are
protocols, like ``Sized`` and ``Iterable`` of :mod:`collections.abc`, and code that uses an ability first tests, for
example, ``isinstance(mechanism, Plans)``::

    class HeadCount(Mechanism[HeadCountProblem, Count]):
        ...

        def warnings(self, problem, release, result):  # now it is a Warns
            return ["fewer than ten people came"] if release.count < 10 else []

Each class says what happens without it. ``isinstance`` only tests that the member exists, not its signature. The
conformance kit therefore reports public methods whose names nearly match a member's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
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
    "VariesEpsilon",
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

# Contravariant, because abilities only take problems and releases: a mechanism that plans for any problem also plans
# for a particular one.
P = TypeVar("P", contravariant=True)
R = TypeVar("R", contravariant=True)
D = TypeVar("D", contravariant=True)

# --- asked by ``solve`` and ``describe`` before a search ----------------------------------------------------------


@runtime_checkable
class ChecksProblem(Protocol[P]):
    """Refuses a problem that a method cannot solve, before any budget is charged.

    Without this ability, every problem that loads is accepted.
    """

    def check_problem(self, problem: P, method: str) -> None:
        """Check, from the problem's declarations alone, that the method can solve it.

        Raises:
            InputError: The method cannot solve the problem.
        """


@runtime_checkable
class NeedsMemory(Protocol[P]):
    """Estimates the memory that a problem needs, so that a problem that does not fit is refused at once.

    Without this ability, work starts on any problem, however large.
    """

    def bytes_needed(self, problem: P, method: str) -> float | None:
        """Estimate how many more bytes the process will need for a method and all later steps.

        The estimate uses public sizes only, and should be too high rather than too low. If the method can fall back on
        cheaper ways to solve the problem, the estimate should be for the cheapest.

        Returns:
            The number of bytes; None if no estimate is possible.
        """


@runtime_checkable
class AdvisesMemory(Protocol[P]):
    """Gives advice to users whose problem does not fit into memory.

    Without this ability, the message only says how much memory is missing.
    """

    def memory_advice(self, problem: P) -> str:
        """Return advice on how to make the problem fit, as the end of a sentence; empty if there is no advice."""


@runtime_checkable
class ChoosesMethod(Protocol[D]):
    """Chooses the method for a problem if the user does not name one.

    Without this ability, the first method in the spec is used.
    """

    def own_method(self, declared: D) -> str | None:
        """Return the name of the chosen method; None for the first method in the spec."""


@runtime_checkable
class ChoosesNotion(Protocol[P]):
    """Chooses the notion of privacy for a problem and method.

    Without this ability, the notion in the spec is used.
    """

    def notion(self, problem: P, method: str) -> str | None:
        """Return the name of a registered notion; None for the notion in the spec."""


@runtime_checkable
class TakesKinds(Protocol):
    """Accepts only some of the registered kinds (ways to fill a role, such as a distance) in problem files.

    ``describe`` omits the others and their keys. Without this ability, a problem file can name any registered kind.
    """

    def takes(self, role: str, name: str) -> bool:
        """Return whether a problem file may name a kind.

        Args:
            role: A registered role, such as ``"distance"``.
            name: The name of a registered kind that can be loaded.
        """


@runtime_checkable
class DescribesReading(Protocol[D]):
    """Supplies the text that the progress display shows while :meth:`Mechanism.load` runs.

    Without this ability, the text is "problem".
    """

    def reading(self, declared: D) -> str:
        """Return a few words that describe the loading of this problem."""


# --- asked by ``solve`` and ``verify`` for the folder -------------------------------------------------------------


@runtime_checkable
class PublishesFiles(Protocol[P, R]):
    """Publishes replacements for the problem's secret files.

    Without this ability, secret files are written to ``private/`` only and nothing is published for them.
    """

    def public_files(self, problem: P, release: R) -> Mapping[str, bytes]:
        """Return the public replacements for problem files, keyed by the names used in the problem file.

        A file declared ``secret`` is written only to ``private/``. If it has a replacement here, the replacement is
        written to ``problem/`` under the same name.
        """


@runtime_checkable
class CopiesFiles(Protocol):
    """Writes clean copies of the files that it releases, such as photos without metadata (``--copy-to``).

    Without this ability, the option is refused.
    """

    copies: ClassVar[bool]
    """True if ``solve`` writes the copies into :attr:`SolveContext.copies`. Their names and SHA-256 digests are then
    listed in the details under ``copies``."""


@runtime_checkable
class Reopens(Protocol[D]):
    """Reads the problem and the release in a folder in one step.

    Without this ability, the problem is loaded first and the release is read afterwards.
    """

    def reopen(self, declared: D, file: str, folder: Path) -> tuple[Any, Any]:
        """Return the problem and the release in a folder, read from the folder's files alone.

        Args:
            declared: The declared problem, as passed to :meth:`Mechanism.load`. Its secret files are absent.
            file: The name of the problem file, for error messages.
            folder: The release folder DIR.

        Raises:
            InputError: A file is missing or malformed, or two files contradict each other.
            DoesNotHoldError: The release cannot belong to the problem.
        """


# --- asked by ``solve`` and ``verify`` for claims besides privacy -------------------------------------------------


@runtime_checkable
class ProvesBound(Protocol[P, R]):
    """Proves the bound on the objective from the files of a release folder.

    Without this ability, the bound that ``solve`` returned is unverified and recorded under ``details.told``.
    """

    def proved_bound(self, problem: P, release: R, result: Result, folder: Path) -> float | None:
        """Return the bound (``objective.lower_bound``) that can be proved from the folder's files.

        The bound is evaluated from a stored proof, or recomputed.

        Args:
            problem: The published problem. Its secrets are absent when ``verify`` calls this method.
            release: The published release.
            result: The content of result.json, whose bound is to be proved.
            folder: The release folder, where :attr:`Outcome.proof` was written.

        Returns:
            The bound, or None if no bound can be proved from the folder.

        Raises:
            InputError: The proof cannot be read.
        """


@runtime_checkable
class StatesProof(Protocol):
    """Guarantees that the stated bound on the objective equals the proved bound exactly, to the last bit.

    Without this ability, the stated bound may be weaker than the proved one.
    """

    bound_is_proof: ClassVar[bool]
    """True if the stated bound equals the proved one."""


@runtime_checkable
class BoundsChosen(Protocol[P]):
    """States whether the bound covers only the chosen outputs or all candidates (:attr:`Outcome.bound_over`).

    Without this ability, ``objective.bound_over`` is omitted.
    """

    def bound_over(self, problem: P, folder: Path) -> str | None:
        """Return ``objective.bound_over``, read from the release folder's files; None if no outputs were chosen."""


@runtime_checkable
class SolvesProgram(Protocol):
    """Solves an optimisation program whose value differs from the stated objective, such as a relaxation.

    Without this ability, results with a program in ``details.lp`` are refused.
    """

    programs: ClassVar[bool]
    """True if ``details.lp`` holds the program's value and bound, to which ``--gap`` and the status then refer."""


@runtime_checkable
class StatesDetails(Protocol[P, R]):
    """States values in ``details`` of result.json that ``verify`` recomputes.

    Without this ability, there are no such values.
    """

    def details(self, problem: P, release: R, method: str, recorded: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the details that follow from the problem and the release.

        Args:
            problem: The published problem. Its secrets are absent when ``verify`` calls this method.
            release: The published release.
            method: The name of the method that computed the release.
            recorded: ``details.told``, which is not verified.
        """


# --- asked by ``solve`` and ``report`` for people -----------------------------------------------------------------


@runtime_checkable
class Warns(Protocol[P, R]):
    """Warns users about a release that is valid but deserves caution.

    Without this ability, only the warnings of the notion are printed.
    """

    def warnings(self, problem: P, release: R, result: Result) -> Sequence[str]:
        """Return the warnings as plain sentences that reveal public data only.

        ``solve`` prints each one to standard error after ``warning:``; the report shows it after ``Warning:``.
        """


@runtime_checkable
class Explains(Protocol[P, R]):
    """Explains what the guarantee means for a problem.

    Without this ability, ``solve`` shows only its table.
    """

    def meaning(self, problem: P, release: R, result: Result) -> Sequence[str]:
        """Return plain sentences, made from public data only, which ``solve`` shows below its table."""


# --- asked by one command each ------------------------------------------------------------------------------------


@runtime_checkable
class Plans(Protocol[D]):
    """Predicts a release's errors before epsilon is chosen (``plan``).

    Without this ability, the command refuses the mechanism.
    """

    def plan(self, declared: D, file: str, context: SolveContext) -> Plan:
        """Return a prediction of the errors, computed without the secret files.

        Args:
            declared: An instance of the problem class. Its secret files are absent, as in a published copy.
            file: The name of the problem file, for error messages.
            context: The method and the progress display.

        Raises:
            UsageError: The method cannot predict errors.
            InputError: Data that the prediction requires is missing from the problem.
        """


@runtime_checkable
class Audits(Protocol[P, R]):
    """Measures an attacker's gain (``audit``).

    Without this ability, ``audit`` measures the gain from the release's channel, if it has one.
    """

    def audit(self, problem: P, release: R, result: Result) -> Mapping[str, Any]:
        """Return the applicable keys of ``privopt audit --json`` with their values."""


@runtime_checkable
class AuditsOverTime(Protocol[P, R]):
    """Attacks several reports about one place (``audit --over-time``).

    Without this ability, ``over_time`` is omitted from the audit.
    """

    def over_time(self, problem: P, release: R, result: Result, reports: int) -> Mapping[str, Any] | None:
        """Return the attacker's gain from up to ``reports`` reports; None if the attack does not apply."""


@runtime_checkable
class HasChannel(Protocol[P, R]):
    """Returns the release's channel (the probabilities of reports given secrets), using the problem's public data.

    ``estimate`` and ``audit`` use it. Without this ability, they use :meth:`Release.channel`.
    """

    def channel(self, problem: P, release: R) -> Channel | NoisyCounts | None:
        """Return the channel from secrets to reports; None if the release draws no reports."""


@runtime_checkable
class VariesEpsilon(Protocol[P]):
    """Returns copies of a problem with a different epsilon (``curve``).

    Without this ability, the command accepts only mechanisms that release a matrix over places.
    """

    def at_epsilon(self, problem: P, epsilon: Fraction) -> Any:
        """Return a copy of the problem with the given epsilon.

        Raises:
            InputError: The mechanism does not accept this epsilon.
        """


@runtime_checkable
class Drafts(Protocol):
    """Writes a problem file from a table (``init``).

    Without this ability, ``init`` expects a table of places.
    """

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
        """Write a problem file for a table.

        Args:
            table: The path of the table of individuals.
            out: The path of the problem file.
            force: Whether to replace an existing file.
            count: The column with the number of individuals in each row; None if every row is one individual.
            persons: Whether to treat every row as one individual, even if a column looks like counts.
            totals: Totals to omit, as ``COLUMN=VALUE``: rows with this value in this column are not read.
            keep_totals: Whether to treat values that look like totals as ordinary categories.

        Returns:
            One sentence for each guess that was made.
        """


# The conformance kit compares method names with those of these abilities, so an ability that is missing here is never
# suggested for a misspelt name.
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
    VariesEpsilon,
    Drafts,
)
"""All abilities, in the order in which the pipeline and the commands use them."""


def member_of(ability: type) -> str:
    """Return the name of the method or attribute that gives a mechanism an ability.

    >>> member_of(Plans), member_of(CopiesFiles)
    ('plan', 'copies')
    """
    # Methods are in vars(). A class variable without a value is only in the annotations.
    members = {*vars(ability), *vars(ability).get("__annotations__", {})}
    # An ability has exactly one member, since a mechanism has the ability by that member alone.
    member: str
    (member,) = (name for name in members if not name.startswith("_"))
    return member


# --- the defaults: what several callers need whether or not a mechanism has the ability ---------------------------


def check_memory(mechanism: object, problem: object, context: SolveContext) -> None:
    """Refuse a problem that does not fit into memory, before any work on it starts.

    Args:
        mechanism: The mechanism, which may have the abilities :class:`NeedsMemory` and :class:`AdvisesMemory`.
        problem: The loaded problem.
        context: The method and the free memory.

    Raises:
        StoppedError: The problem needs more memory than is free. The message says how much, and gives the mechanism's
            advice.
    """
    needed = mechanism.bytes_needed(problem, context.method) if isinstance(mechanism, NeedsMemory) else None
    if needed is None:
        return
    try:
        context.require_memory(needed, f"this problem and --method {context.method}")
    except StoppedError as error:
        # Advice is needed only if the problem does not fit.
        advice = mechanism.memory_advice(problem) if isinstance(mechanism, AdvisesMemory) else ""
        if advice:
            raise StoppedError(f"{error}; {advice}") from error
        raise


def check_problem(mechanism: object, problem: object, method: str) -> None:
    """Refuse a problem that a method cannot solve.

    Raises:
        InputError: The method cannot solve the problem.
    """
    if isinstance(mechanism, ChecksProblem):
        mechanism.check_problem(problem, method)


def notion_of(mechanism: object, problem: object, method: str) -> str | None:
    """Return the notion that the mechanism chooses for a problem and method; None for the notion in the spec."""
    return mechanism.notion(problem, method) if isinstance(mechanism, ChoosesNotion) else None


def details_of(
    mechanism: object, problem: object, release: Release, method: str, recorded: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the ``details`` of result.json that follow from the problem and the release.

    They are empty if the mechanism does not have the :class:`StatesDetails` ability.

    Args:
        mechanism: The mechanism.
        problem: The published problem.
        release: The published release.
        method: The name of the method that computed the release.
        recorded: ``details.told``, which is not verified.
    """
    return mechanism.details(problem, release, method, recorded) if isinstance(mechanism, StatesDetails) else {}


def meaning_of(mechanism: object, problem: object, release: Release, result: Result) -> tuple[str, ...]:
    """Return sentences that say what the guarantee means for a problem.

    The tuple is empty if the mechanism does not have the :class:`Explains` ability.
    """
    return tuple(mechanism.meaning(problem, release, result)) if isinstance(mechanism, Explains) else ()


def channel_of(mechanism: object, problem: object, release: Release) -> Channel | NoisyCounts | None:
    """Return the channel from secrets to reports; None if the release draws no reports."""
    return mechanism.channel(problem, release) if isinstance(mechanism, HasChannel) else release.channel()


def solves_program(mechanism: object) -> bool:
    """Return whether a mechanism solves a program whose optimum may differ from the stated objective."""
    return isinstance(mechanism, SolvesProgram) and mechanism.programs


def reopen(mechanism: Mechanism[Any, Any], declared: object, file: str, folder: Path) -> tuple[Any, Release]:
    """Return the problem and the release in a folder, read from the folder's files alone.

    If the mechanism does not have the :class:`Reopens` ability, the problem is loaded first and the release is read
    afterwards.

    Args:
        mechanism: The mechanism.
        declared: The problem as its file declares it. Its secret files are absent.
        file: The name of the problem file, for error messages.
        folder: The release folder.
    """
    if isinstance(mechanism, Reopens):
        return mechanism.reopen(declared, file, folder)
    problem = mechanism.load(declared, file)
    return problem, mechanism.release_class.read(folder, problem)
