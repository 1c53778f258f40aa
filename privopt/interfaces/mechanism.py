"""The base class of mechanisms: a paper's method, from problem to release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from privopt.interfaces.privacy import PrivacyConstraint
from privopt.interfaces.release import Release
from privopt.interfaces.result import Result
from privopt.interfaces.solving import Outcome, SolveContext
from privopt.interfaces.utility import UtilityLoss

P = TypeVar("P")
R = TypeVar("R", bound=Release)


class Mechanism(ABC, Generic[P, R]):
    """A paper's method, from problem to release: subclass it and name the class in a MechanismSpec.

    One that releases an obfuscation matrix subclasses :class:`privopt_metric_dp.mechanisms.base.MetricMechanism`
    instead, which leaves it one method to write. What a mechanism may do besides (plan, warn, audit, prove a
    bound, ...) is in :mod:`privopt.interfaces.abilities`, a method each.

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

    reporting: ClassVar[str] = ""
    """``"package.module:Class"`` of the :class:`Reporting` that shows its releases, imported when it is asked for."""

    kit: ClassVar[str] = ""
    """``"package.module:PROFILE"``: the :class:`privopt.testing.Profile` that the conformance kit draws its
    problems and neighbours from, or a function that makes it of the problem class."""

    def load(self, declared: Any, file: str) -> P:
        """Load what methods work on: the problem as its file declares it, and the contents of the files that it names.

        Args:
            declared: an instance of :attr:`problem_class`.
            file: name of the problem file, for faults.

        Returns:
            An object that no one changes; the declared one itself if it holds all there is to know.

        Raises:
            InputError: every fault of the files.
        """
        loaded: P = declared
        return loaded

    @abstractmethod
    def privacy(self, problem: P, method: str) -> PrivacyConstraint[R]:
        """Return the notion of privacy that the method's release claims."""

    @abstractmethod
    def utility(self, problem: P, method: str) -> UtilityLoss[R]:
        """Return the loss that the method's release is judged by."""

    @abstractmethod
    def solve(self, problem: P, context: SolveContext) -> Outcome[R]:
        """Solve the problem; the pipeline certifies what comes back.

        Raises:
            InfeasibleError: the problem has no solution.
            StoppedError: a limit came before anything feasible.
            InputError: the problem's data contradict each other.
        """

    def verify(self, problem: P, release: R, result: Result) -> list[str]:
        """Check further conditions that a written release must meet; return one line for each that fails."""
        return []
