"""The base class of mechanisms: a paper's method, from problem to release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

from attrs import AttrsInstance

from privopt.errors import UsageError
from privopt.interfaces.channel import Channel, NoisyCounts
from privopt.interfaces.plan import Plan
from privopt.interfaces.privacy import PrivacyConstraint
from privopt.interfaces.release import Release
from privopt.interfaces.reporting import Reporting
from privopt.interfaces.result import Result
from privopt.interfaces.solving import Outcome, SolveContext
from privopt.interfaces.utility import UtilityLoss

P = TypeVar("P")
R = TypeVar("R", bound=Release)


class Mechanism(ABC, Generic[P, R]):
    """A paper's method, from problem to release: subclass it and name the class in a MechanismSpec.

    One that releases an obfuscation matrix subclasses :class:`privopt_metric_dp.mechanisms.base.MetricMechanism`
    instead, which leaves it one method to write.

    ``P`` is what its methods work on (:meth:`load`), ``R`` what it releases.

    >>> class Shut(Mechanism):
    ...     problem_class = release_class = object  # an attrs class of keys; a Release
    ...     def privacy(self, problem, method): ...  # a PrivacyConstraint
    ...     def utility(self, problem, method): ...  # a UtilityLoss
    ...     def solve(self, problem, context):
    ...         return Outcome(release=None)
    >>> Shut().solve(None, SolveContext(method="solve")).stopped
    False
    """

    problem_class: ClassVar[type]
    """attrs class declared with :func:`privopt.declare.key`: parsing, faults and ``describe`` follow from it. It only
    declares: what its files hold, :meth:`load` reads."""

    release_class: ClassVar[type[Release]]

    scope: ClassVar[str] = ""
    """What the guarantee covers and against whom it holds, in words, for ``describe``."""

    private_folder: ClassVar[bool] = False
    """Whether all of DIR is its owner's own: then no one else may enter it (0700)."""

    copies: ClassVar[bool] = False
    """Whether it can write clean copies of what the release lets out (``--copy-to``): into
    :attr:`SolveContext.copies`, while it solves. Their names and SHA-256 are ``copies`` of its :meth:`details`."""

    programs: ClassVar[bool] = False
    """Whether what is solved is another program than the objective, whose value and bound are ``details.lp``: then
    ``--gap`` and the status mean that one."""

    bound_is_proof: ClassVar[bool] = False
    """Whether ``objective.lower_bound`` is what :meth:`proved` gives, to the last bit; else no more than it."""

    drafting: ClassVar[str] = ""
    """``"package.module:function"`` of ``(table, out, *, force, count, persons, totals, keep_totals)``, if ``privopt
    init`` can write a problem file from a table. It writes it, and returns what was guessed, a sentence each. The last
    four are the options of that command; they are passed only if they are given."""

    reporting: ClassVar[str] = ""
    """``"package.module:Class"`` of the :class:`Reporting` that shows its releases, imported when it is asked for."""

    kit: ClassVar[str] = ""
    """``"package.module:PROFILE"``: the :class:`privopt.testing.Profile` that the conformance kit draws its
    problems and neighbours from, or a function that makes it of the problem class."""

    def takes(self, role: str, name: str) -> bool:
        """Return whether a problem file may name a registered kind; ``describe`` omits the others and their keys.

        Args:
            role: a registered one, such as ``"distance"``.
            name: of a registered kind that can be loaded.
        """
        return True

    def own_method(self, declared: object) -> str | None:
        """Name of the method that a problem has where none is asked for; None: the first of the spec.

        Args:
            declared: an instance of :attr:`problem_class`.
        """
        return None

    def reading(self, declared: object) -> str:
        """Describe, while a user waits, what :meth:`load` does with a problem."""
        return "problem"

    def load(self, declared: Any, file: str) -> P:
        """Load what methods work on: the problem as its file declares it, and the contents of the files that it names.

        Args:
            declared: an instance of :attr:`problem_class`.
            file: name of the problem file, for faults.

        Returns:
            An object that no one changes; the declared one itself where it holds all there is to know.

        Raises:
            InputError: every fault of the files.
        """
        loaded: P = declared
        return loaded

    def reopen(self, declared: Any, file: str, folder: Path) -> tuple[P, R]:
        """Return the problem and the release that a folder holds, from its files and nothing else.

        Args:
            declared: as :meth:`load` takes it; secret files are absent.
            file: name of the problem file, for faults.
            folder: DIR.

        Raises:
            InputError: a file is missing or not of its form, or two contradict each other.
            DoesNotHoldError: the release cannot be the problem's, which is seen before anything is worked out.
        """
        problem = self.load(declared, file)
        return problem, cast("R", self.release_class.read(folder, problem))

    @abstractmethod
    def privacy(self, problem: P, method: str) -> PrivacyConstraint[R]:
        """Return the notion of privacy that the method's release claims."""

    def notion(self, problem: P, method: str) -> str | None:
        """Name of the notion that the problem chose for a method, where it may choose; None: what is registered."""
        return None

    @abstractmethod
    def utility(self, problem: P, method: str) -> UtilityLoss[R]:
        """Return the loss that the method's release is judged by."""

    def bytes_needed(self, problem: P, method: str) -> float | None:
        """Estimate the bytes that a method takes on top of what the process holds, later steps included; None: unknown.

        The estimate is from public sizes alone, and rather too high than too low: a method that needs more than
        ``--memory`` allows is not begun. A method that can fall back on cheaper ones counts as the cheapest of them and
        itself chooses which to begin.
        """
        return None

    def check_memory(self, problem: P, context: SolveContext) -> None:
        """Refuse what does not fit into memory, before it is begun.

        Raises:
            StoppedError: it needs more than there is; says how much.
        """
        needed = self.bytes_needed(problem, context.method)
        if needed is not None:
            context.need(needed, f"this problem and --method {context.method}")

    def check_problem(self, problem: P, method: str) -> None:
        """Check that a method can take the problem, from what is declared: called before anything is charged or solved.

        Raises:
            InputError: it cannot.
        """

    @abstractmethod
    def solve(self, problem: P, context: SolveContext) -> Outcome[R]:
        """Solve the problem; the pipeline certifies what comes back.

        Raises:
            InfeasibleError: the problem has no solution.
            StoppedError: a limit came before anything feasible.
            InputError: the problem's data contradict each other.
        """

    def public_files(self, problem: P, release: R) -> Mapping[str, bytes]:
        """Return replacements for problem files that hold secrets, by the name the problem file gives them.

        A file declared ``secret`` goes to ``private/`` alone unless it has a replacement here, which
        is then in ``problem/`` in its place.
        """
        return {}

    def verify(self, problem: P, release: R, result: Result) -> list[str]:
        """Check further conditions that a written release must meet; return one line for each that fails."""
        return []

    def proved(self, problem: P, release: R, result: Result, folder: Path) -> float | None:
        """Return the bound (``objective.lower_bound``) that DIR proves: from its proof, or computed again.

        Args:
            problem: as published: secrets are absent when ``verify`` asks.
            release: what is published.
            result: what result.json says; its bound is what is to be proved.
            folder: DIR, where :attr:`Outcome.proof` was written.

        Returns:
            None where nothing there proves any; a mechanism that leaves this as it is states no bound.

        Raises:
            InputError: a proof that cannot be read.
        """
        return None

    def bound_over(self, problem: P, folder: Path) -> str | None:
        """Return ``objective.bound_over`` as DIR has it (:attr:`Outcome.bound_over`); None: no outputs are chosen."""
        return None

    def details(self, problem: P, release: R, method: str, recorded: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the ``details`` of result.json that follow from problem and release: ``verify`` recomputes them.

        Args:
            problem: as published: secrets are absent when ``verify`` asks.
            release: what is published.
            method: that made it.
            recorded: ``details.told``, which no one checks.
        """
        return {}

    def channel(self, problem: P, release: R) -> Channel | NoisyCounts | None:
        """Return how reports come from secrets, with what the problem knows of these; None if no report is drawn."""
        return release.channel()

    def warnings(self, problem: P, release: R, result: Result) -> Sequence[str]:
        """Return warnings for users of a valid release: plain sentences, from public data only.

        ``solve`` prints each on standard error after ``warning:``, the report after ``Warning:``.
        """
        return ()

    def meaning(self, problem: P, release: R, result: Result) -> Sequence[str]:
        """Explain the guarantee on this problem, in plain sentences with figures, from public data only.

        ``solve`` shows them below its table. What is wrong with a release belongs in :meth:`warnings`.
        """
        return ()

    def plan(self, declared: AttrsInstance, file: str, context: SolveContext) -> Plan:
        """Predict errors before epsilon is chosen, from public or analytic figures alone.

        Args:
            declared: an instance of :attr:`problem_class`; its secret files are absent, as in a published copy.
            file: name of the problem file, for faults.
            context: the method, and the progress display.

        Raises:
            UsageError: this mechanism, or the method, cannot predict errors.
            InputError: what it would take is not in the problem.
        """
        raise UsageError(f"{type(self).__name__} cannot predict its errors before it is solved")

    def audit(self, problem: P, release: R, result: Result) -> Mapping[str, Any]:
        """Return an attacker's gain: those keys of ``privopt audit --json`` that apply to this mechanism."""
        return {}

    def over_time(self, problem: P, release: R, result: Result, reports: int) -> Mapping[str, Any] | None:
        """Attack several reports of one place; return None if that shows nothing."""
        return None

    def shown(self) -> Reporting[P, R]:
        """Return what shows its releases: an instance of :attr:`reporting`, which is imported now."""
        from privopt.registry import load_class

        found: Reporting[P, R] = (load_class(self.reporting, Reporting) if self.reporting else Reporting)(self)
        return found
