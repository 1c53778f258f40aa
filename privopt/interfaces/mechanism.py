"""The base class for mechanisms. A mechanism implements a method from a paper, from the problem to the release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from privopt.interfaces.release import PrivacyConstraint, Release, UtilityLoss
from privopt.interfaces.result import Result
from privopt.interfaces.solving import Outcome, SolveContext

P = TypeVar("P")
R = TypeVar("R", bound=Release)


class Mechanism(ABC, Generic[P, R]):
    """Base class for mechanisms. Each mechanism implements a method from a paper, from the problem to the release.

    Plugins subclass this class and name the subclass in a MechanismSpec. A mechanism that releases an obfuscation
    matrix instead subclasses :class:`privopt_metric_dp.mechanisms.base.MetricMechanism` and implements only one method.
    Each optional ability (to plan, warn, audit, prove a bound, ...) is an additional member, as described in
    :mod:`privopt.interfaces.abilities`.

    ``P`` is the type of the loaded problem (:meth:`load`), and ``R`` is the type of the release.

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
    """The attrs class that declares the problem, with fields created by :func:`privopt.declare.key`.

    Parsing, error messages and ``describe`` are derived from it. :meth:`load` reads the problem's files.
    """

    release_class: ClassVar[type[Release]]
    """The class of the mechanism's releases, which can also read them back."""

    scope: ClassVar[str] = ""
    """Text for ``describe`` saying which inputs the guarantee covers and against which attackers it holds."""

    reporting: ClassVar[str] = ""
    """The :class:`Reporting` that presents the releases, as ``"package.module:Class"``.

    The class is imported when first needed.
    """

    kit: ClassVar[str] = ""
    """The mechanism's :class:`privopt.testing.Profile`, as ``"package.module:PROFILE"``.

    The conformance kit draws problems and neighbours from this profile. The name may also refer to a function that
    creates the profile from the problem class.
    """

    def load(self, declared: Any, file: str) -> P:
        """Load a declared problem and the contents of its files, in the form used by the methods.

        Args:
            declared: An instance of :attr:`problem_class`.
            file: The name of the problem file, for error messages.

        Returns:
            The loaded problem, which must not be modified. By default, this is ``declared`` itself, which is sufficient
            for problems without files.

        Raises:
            InputError: The files contain errors. The message lists all of them.
        """
        # This assignment tells the type checker that P is the problem class if this method is not overridden.
        loaded: P = declared
        return loaded

    @abstractmethod
    def privacy(self, problem: P, method: str) -> PrivacyConstraint[R]:
        """Return the privacy constraint (notion and parameters) that the method's release claims to satisfy."""

    @abstractmethod
    def utility(self, problem: P, method: str) -> UtilityLoss[R]:
        """Return the loss used to evaluate the method's release."""

    @abstractmethod
    def solve(self, problem: P, context: SolveContext) -> Outcome[R]:
        """Solve the problem. The pipeline then certifies the release in the returned outcome.

        Raises:
            InfeasibleError: The problem has no solution.
            StoppedError: A limit was reached before a feasible release was known.
            InputError: The problem's data is inconsistent.
        """

    def verify(self, problem: P, release: R, result: Result) -> list[str]:
        """Check further conditions on a written release, and return one line for each condition that is not met."""
        return []
