"""The optional abilities of a mechanism. Each consists of a single method or attribute, called its member.

A mechanism has an ability if it defines the member. It need not inherit from the ability's class. The classes are
protocols, like ``Sized`` and ``Iterable`` in :mod:`collections.abc`, and code that uses an ability first checks for it,
for example with ``isinstance(mechanism, Plans)``::

    class HeadCount(Mechanism[HeadCountProblem, Count]):
        ...

        def warnings(self, problem, release, result):  # now it is a Warns
            return ["fewer than ten people came"] if release.count < 10 else []

Each class's docstring says what happens without the ability. ``isinstance`` checks only that the member exists, not its
signature. The conformance kit also reports public methods whose names nearly match a member's name.
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

# Contravariant, because abilities only take problems and releases as arguments. A mechanism that plans for any problem
# also plans for a particular one.
P = TypeVar("P", contravariant=True)
R = TypeVar("R", contravariant=True)
D = TypeVar("D", contravariant=True)

# --- asked by ``solve`` and ``describe`` before a search ----------------------------------------------------------


@runtime_checkable
class ChecksProblem(Protocol[P]):
    """The ability of a mechanism to reject problems that a method cannot solve, before any budget is charged.

    Without this ability, every problem that can be loaded is accepted.
    """

    def check_problem(self, problem: P, method: str) -> None:
        """Check that the method can solve the problem, using only the problem's declarations.

        Raises:
            InputError: The method cannot solve the problem.
        """


@runtime_checkable
class NeedsMemory(Protocol[P]):
    """The ability of a mechanism to estimate how much memory a problem requires.

    A problem that does not fit in memory is then rejected immediately. Without this ability, work starts on any
    problem, no matter how large.
    """

    def bytes_needed(self, problem: P, method: str) -> float | None:
        """Estimate how many more bytes the process will need for a given method and all later steps.

        The estimate uses only public sizes, and should err on the high side. If the method can fall back on less
        memory-intensive ways of solving the problem, the estimate should be for the least memory-intensive one.

        Returns:
            The number of bytes, or None if no estimate is possible.
        """


@runtime_checkable
class AdvisesMemory(Protocol[P]):
    """The ability of a mechanism to advise users whose problem does not fit in memory.

    Without this ability, the message only says how much memory is missing.
    """

    def memory_advice(self, problem: P) -> str:
        """Return advice on making the problem fit in memory, as the end of a sentence, or "" for no advice."""


@runtime_checkable
class ChoosesMethod(Protocol[D]):
    """The ability of a mechanism to choose the method for a problem if the user does not name one.

    Without this ability, the first method in the mechanism's spec is used.
    """

    def own_method(self, declared: D) -> str | None:
        """Return the name of the chosen method, or None to use the first method in the mechanism's spec."""


@runtime_checkable
class ChoosesNotion(Protocol[P]):
    """The ability of a mechanism to choose the notion of privacy, depending on the problem and the method.

    Without this ability, the notion in the mechanism's spec is used.
    """

    def notion(self, problem: P, method: str) -> str | None:
        """Return the name of a registered notion of privacy, or None to use the notion in the mechanism's spec."""


@runtime_checkable
class TakesKinds(Protocol):
    """The ability of a mechanism to accept only some of the registered kinds in problem files.

    Each kind is registered for a role. For the role ``"distance"``, for example, each kind is a different distance. The
    ``describe`` command omits kinds that are not accepted, together with their keys. Without this ability, a problem
    file can name any registered kind.
    """

    def takes(self, role: str, name: str) -> bool:
        """Return whether a problem file may name a given kind for a role.

        Args:
            role: A registered role, such as ``"distance"``.
            name: The name of a registered kind that can be loaded.
        """


@runtime_checkable
class DescribesReading(Protocol[D]):
    """The ability of a mechanism to provide the text displayed as progress while :meth:`Mechanism.load` runs.

    Without this ability, the text is "problem".
    """

    def reading(self, declared: D) -> str:
        """Return a few words that describe what is being loaded for this problem."""


# --- asked by ``solve`` and ``verify`` for the folder -------------------------------------------------------------


@runtime_checkable
class PublishesFiles(Protocol[P, R]):
    """The ability of a mechanism to publish replacements for the problem's secret files.

    Without this ability, secret files are written only to ``private/``, and nothing is published in their place.
    """

    def public_files(self, problem: P, release: R) -> Mapping[str, bytes]:
        """Return the public replacements for problem files, keyed by the names used in the problem file.

        A file declared ``secret`` is itself written only to ``private/``. Its replacement, if any, is written to
        ``problem/`` under the same name.
        """


@runtime_checkable
class CopiesFiles(Protocol):
    """The ability of a mechanism to write clean copies of the files that it releases (``--copy-to``).

    For example, the copies may be photos without metadata. Without this ability, the option is rejected.
    """

    copies: ClassVar[bool]
    """Whether ``solve`` writes the copies to :attr:`SolveContext.copies`.

    If so, their names and SHA-256 digests are listed in the details under ``copies``.
    """


@runtime_checkable
class Reopens(Protocol[D]):
    """The ability of a mechanism to read the problem and the release from a folder in one step.

    Without this ability, the problem is loaded first, and then the release is read.
    """

    def reopen(self, declared: D, file: str, folder: Path) -> tuple[Any, Any]:
        """Read the problem and the release from a release folder, using no other files.

        Args:
            declared: The declared problem, as passed to :meth:`Mechanism.load`. Its secret files are absent.
            file: The name of the problem file, for error messages.
            folder: The release folder.

        Returns:
            The problem and the release.

        Raises:
            InputError: A file is missing or malformed, or files contradict each other.
            DoesNotHoldError: The release cannot belong to the problem.
        """


# --- asked by ``solve`` and ``verify`` for claims besides privacy -------------------------------------------------


@runtime_checkable
class ProvesBound(Protocol[P, R]):
    """The ability of a mechanism to prove the bound on the objective from the files in a release folder.

    Without this ability, the bound returned by ``solve`` is recorded under ``details.told`` as unverified.
    """

    def proved_bound(self, problem: P, release: R, result: Result, folder: Path) -> float | None:
        """Return the bound on the objective (``objective.lower_bound``) that can be proved from the files in a folder.

        The bound is evaluated from a stored proof, or recomputed.

        Args:
            problem: The published problem. Its secrets are absent when ``verify`` calls this method.
            release: The published release.
            result: The contents of result.json, whose bound is to be proved.
            folder: The release folder, to which :attr:`Outcome.proof` was written.

        Returns:
            The bound, or None if no bound can be proved from the folder.

        Raises:
            InputError: The proof cannot be read.
        """


@runtime_checkable
class StatesProof(Protocol):
    """The ability of a mechanism to guarantee that the bound in result.json is exactly the proved bound, as a double.

    Without this ability, the bound in result.json may be weaker than the proved bound.
    """

    bound_is_proof: ClassVar[bool]
    """Whether the bound in result.json equals the proved one."""


@runtime_checkable
class BoundsChosen(Protocol[P]):
    """The ability of a mechanism to state which releases its bound covers (:attr:`Outcome.bound_over`).

    If the mechanism chooses a release's outputs from a set of candidates, the bound covers either only releases over
    the chosen outputs or all releases over the candidates.

    Without this ability, ``objective.bound_over`` is omitted.
    """

    def bound_over(self, problem: P, folder: Path) -> str | None:
        """Return the value of ``objective.bound_over``, or None if no outputs were chosen.

        The value is determined from the files in the release folder.
        """


@runtime_checkable
class SolvesProgram(Protocol):
    """The ability of a mechanism to solve a program whose optimum may differ from the objective in result.json.

    The program is an optimisation problem, such as a relaxation. Without this ability, results with a program in
    ``details.lp`` are rejected.
    """

    programs: ClassVar[bool]
    """Whether ``details.lp`` contains the program's value and bound. If so, ``--gap`` and the status refer to these."""


@runtime_checkable
class StatesDetails(Protocol[P, R]):
    """The ability of a mechanism to provide values under ``details`` in result.json that are recomputed by ``verify``.

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
    """The ability of a mechanism to warn users about a release that is valid but should be used with caution.

    Without this ability, only the privacy notion's own warnings are printed.
    """

    def warnings(self, problem: P, release: R, result: Result) -> Sequence[str]:
        """Return the warnings as plain sentences that reveal only public data.

        ``solve`` prints each warning to standard error after ``warning:``, and the report shows it after ``Warning:``.
        """


@runtime_checkable
class Explains(Protocol[P, R]):
    """The ability of a mechanism to explain what the guarantee means for a problem.

    Without this ability, ``solve`` prints only its table.
    """

    def meaning(self, problem: P, release: R, result: Result) -> Sequence[str]:
        """Return plain sentences, based only on public data, for ``solve`` to print below its table."""


# --- asked by one command each ------------------------------------------------------------------------------------


@runtime_checkable
class Plans(Protocol[D]):
    """The ability of a mechanism to predict a release's errors before epsilon is chosen (``privopt plan``).

    Without this ability, the command rejects the mechanism.
    """

    def plan(self, declared: D, file: str, context: SolveContext) -> Plan:
        """Predict the errors without using the secret files.

        Args:
            declared: An instance of the problem class. Its secret files are absent, as in a published copy.
            file: The name of the problem file, for error messages.
            context: The method and the progress display.

        Raises:
            UsageError: The method cannot predict errors.
            InputError: The problem lacks data required for the prediction.
        """


@runtime_checkable
class Audits(Protocol[P, R]):
    """The ability of a mechanism to measure how much an attacker gains from a release (``privopt audit``).

    Without this ability, ``audit`` measures the gain using the release's channel, if it has one.
    """

    def audit(self, problem: P, release: R, result: Result) -> Mapping[str, Any]:
        """Return the fields of ``privopt audit --json`` that apply to the release, as a mapping."""


@runtime_checkable
class AuditsOverTime(Protocol[P, R]):
    """The ability of a mechanism to attack several reports about one place (``privopt audit --over-time``).

    Without this ability, ``over_time`` is omitted from the audit.
    """

    def over_time(self, problem: P, release: R, result: Result, reports: int) -> Mapping[str, Any] | None:
        """Return the attacker's gain from up to ``reports`` reports, or None if the attack does not apply."""


@runtime_checkable
class HasChannel(Protocol[P, R]):
    """The ability of a mechanism to compute a release's channel from the problem's public data.

    The channel, which contains the probabilities of reports given secrets, is used by ``estimate`` and ``audit``.
    Without this ability, they use :meth:`Release.channel`.
    """

    def channel(self, problem: P, release: R) -> Channel | NoisyCounts | None:
        """Return the channel from secrets to reports, or None if the release draws no reports."""


@runtime_checkable
class VariesEpsilon(Protocol[P]):
    """The ability of a mechanism to copy a problem with a different epsilon (``privopt curve``).

    Without this ability, the command accepts the mechanism only if it releases a matrix over places.
    """

    def at_epsilon(self, problem: P, epsilon: Fraction) -> Any:
        """Return a copy of the problem with the given epsilon.

        Raises:
            InputError: The mechanism does not accept this epsilon.
        """


@runtime_checkable
class Drafts(Protocol):
    """The ability of a mechanism to draft a problem file from a table (``privopt init``).

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
            table: The path of a table of individuals.
            out: The path of the problem file.
            force: Whether to replace an existing file.
            count: The column with the number of individuals in each row, or None if every row stands for one
                individual.
            persons: Whether to treat every row as one individual even if a column appears to contain counts.
            totals: The totals to omit, as ``COLUMN=VALUE``. Rows with this value in this column are skipped.
            keep_totals: Whether to treat values that look like totals as ordinary categories.

        Returns:
            One sentence for each guess made about the table.
        """


# The conformance kit compares method names with the members of these abilities. An ability that is missing here is
# never suggested for a misspelt name.
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
"""All abilities, in the order in which the pipeline and commands use them."""


def member_of(ability: type) -> str:
    """Return the name of the method or attribute that gives a mechanism an ability.

    >>> member_of(Plans), member_of(CopiesFiles)
    ('plan', 'copies')
    """
    # vars() contains methods, but not class variables without a value, which are only in the annotations.
    members = {*vars(ability), *vars(ability).get("__annotations__", {})}
    # An ability has exactly one member, whose presence alone gives a mechanism the ability.
    member: str
    (member,) = (name for name in members if not name.startswith("_"))
    return member


# --- the defaults: what several callers need whether or not a mechanism has the ability ---------------------------


def check_memory(mechanism: object, problem: object, context: SolveContext) -> None:
    """Reject a problem that does not fit in memory, before any work on it starts.

    Args:
        mechanism: The mechanism, which may have the :class:`NeedsMemory` and :class:`AdvisesMemory` abilities.
        problem: The loaded problem.
        context: The method and the free memory.

    Raises:
        StoppedError: The problem needs more memory than is free. The message says how much, and includes any advice
            from the mechanism.
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
    """Reject a problem that a method cannot solve.

    Mechanisms without the :class:`ChecksProblem` ability accept every problem.

    Raises:
        InputError: The method cannot solve the problem.
    """
    if isinstance(mechanism, ChecksProblem):
        mechanism.check_problem(problem, method)


def notion_of(mechanism: object, problem: object, method: str) -> str | None:
    """Return the notion chosen by a mechanism for a problem and method, or None if the notion in its spec applies."""
    return mechanism.notion(problem, method) if isinstance(mechanism, ChoosesNotion) else None


def details_of(
    mechanism: object, problem: object, release: Release, method: str, recorded: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the ``details`` in result.json that follow from the problem and the release.

    The result is empty if the mechanism does not have the :class:`StatesDetails` ability.

    Args:
        mechanism: The mechanism.
        problem: The published problem.
        release: The published release.
        method: The name of the method that computed the release.
        recorded: ``details.told``, which is not verified.
    """
    return mechanism.details(problem, release, method, recorded) if isinstance(mechanism, StatesDetails) else {}


def meaning_of(mechanism: object, problem: object, release: Release, result: Result) -> tuple[str, ...]:
    """Return sentences about what the guarantee means for a problem.

    The result is empty if the mechanism does not have the :class:`Explains` ability.
    """
    return tuple(mechanism.meaning(problem, release, result)) if isinstance(mechanism, Explains) else ()


def channel_of(mechanism: object, problem: object, release: Release) -> Channel | NoisyCounts | None:
    """Return the channel from secrets to reports, or None if the release draws no reports."""
    return mechanism.channel(problem, release) if isinstance(mechanism, HasChannel) else release.channel()


def solves_program(mechanism: object) -> bool:
    """Return whether a mechanism solves a program whose optimum may differ from the objective in result.json."""
    return isinstance(mechanism, SolvesProgram) and mechanism.programs


def reopen(mechanism: Mechanism[Any, Any], declared: object, file: str, folder: Path) -> tuple[Any, Release]:
    """Read the problem and the release from a release folder, using no other files.

    If the mechanism does not have the :class:`Reopens` ability, the problem is loaded first, and then the release is
    read.

    Args:
        mechanism: The mechanism.
        declared: The problem as declared in its file. Its secret files are absent.
        file: The name of the problem file, for error messages.
        folder: The release folder.
    """
    if isinstance(mechanism, Reopens):
        return mechanism.reopen(declared, file, folder)
    problem = mechanism.load(declared, file)
    return problem, mechanism.release_class.read(folder, problem)
