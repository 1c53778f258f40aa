"""The check interface, and the trial in which one example runs."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Hashable, Set
from decimal import Decimal
from typing import Any, Final, NoReturn

import hypothesis
from attrs import define, evolve, field, frozen

from privopt.testing.efforts import Effort
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Run, Subject, missing_traits

LITTLE: Final = Decimal("0.015625")
"""An epsilon with so much noise that a true number comes out of it once in a hundred draws."""

KIT_SEED: Final = 20_240_501
"""The ``--seed`` of checks that compare two runs of it."""


class CheckFailedError(AssertionError):
    """A check failed: what was found, and the problem it was found on."""

    def __init__(self, what: str, problem: GeneratedProblem | None) -> None:
        self.what = what
        self.problem = problem
        shown = "" if problem is None else f"\nsmallest problem found:\n{problem.show()}"
        super().__init__(f"{what}{shown}")


class Elsewhere(str):
    """Why a check does not apply to a mechanism: what the mechanism is, or which other check covers it."""


def by_default(subject: Subject) -> str | None:
    """Return why a check uses the default method alone: a mechanism reads problems and folders in one way for all."""
    if subject.method.name != subject.spec.default.name:
        return Elsewhere("tried with the default method: problems and folders of the others are read by the same code")
    return None


@frozen
class Check:
    """A check of one example, and the decorator that enters a function as one into :data:`CHECKS`.

    Attributes:
        name: what reports, expected failures and ``Profile.skip`` call it.
        version: raised where the check becomes stricter.
        of: traits that a release must all have (:data:`privopt.testing.under_trial.TRAITS`); empty: it applies to any.
        private: True where it makes sense only of what a release itself claims, not of a paper's claim.
        needs: why it cannot be done for a subject, or None.
        share: of the profile's examples, for checks that cost more than a solve each.
        min_examples: problems drawn however long they take; the first is the simplest there is.
        function: one example; fails through :meth:`Trial.fail`.
    """

    name: str
    version: int = field(default=1, kw_only=True)
    of: Set[str] = field(default=frozenset(), kw_only=True)
    private: bool = field(default=False, kw_only=True)
    needs: Callable[[Subject], str | None] = field(default=lambda _: None, kw_only=True)
    share: float = field(default=1.0, kw_only=True)
    min_examples: int = field(default=5, kw_only=True)
    function: Callable[[Trial], None] = field(default=lambda _: None, kw_only=True)

    def __call__(self, function: Callable[[Trial], None]) -> Callable[[Trial], None]:
        """Enter a function."""
        CHECKS[self.name] = evolve(self, function=function)
        return function

    def reason_to_skip(self, subject: Subject) -> str | None:
        """Return why a subject is skipped, or None; of the type Elsewhere if the check does not apply at all."""
        if self.name in subject.profile.skip:
            return Elsewhere(subject.profile.skip[self.name])
        missing = sorted(self.of - subject.traits)
        if missing:
            return Elsewhere(missing_traits()[missing[0]])
        if self.private and not subject.private:
            return Elsewhere("the method itself claims nothing")
        return self.needs(subject)


def at_one(problem: GeneratedProblem) -> GeneratedProblem:
    """Return the same problem with epsilon 1, or rho 1/2, where an attack needs the fewest draws."""
    return _at(problem, Decimal(1))


def at_little(problem: GeneratedProblem) -> GeneratedProblem:
    """Return the same problem with almost no epsilon or rho, where equal outcomes are chance alone."""
    return _at(problem, LITTLE)


def _at(problem: GeneratedProblem, epsilon: Decimal) -> GeneratedProblem:
    """Return the same problem at an epsilon, or at the rho of Gaussian noise of about that size: epsilon^2 / 2."""
    for key, value in (("privacy.epsilon", epsilon), ("privacy.rho", epsilon**2 / 2)):
        if problem.get(key) is not None:
            problem = problem.with_key(key, value)
    return problem


CONSTANT_RUNS: Final = 16
"""Runs on each of two neighbours in which something public must be the same to be called no matter of chance.

Under an epsilon near 0 an event has nearly the same probability p for both, and p**16 (1 - p)**16 is below 1e-9.
"""

CHECKS: Final[dict[str, Check]] = {}
"""Every check, by name, in the order in which they are run."""


def has(field: str) -> Callable[[Subject], str | None]:
    """Make the need of a check for a field of the profile: it returns why the check cannot run, or None."""
    return lambda subject: None if getattr(subject.profile, field) is not None else f"the profile has no `{field}`"


check = Check


@define
class History:
    """What is known of the examples of one check on one subject.

    Attributes:
        start: processor seconds when the clock was started.
        examples: done, the first that failed among them.
        failed_at: when that one began, on the monotonic clock; None before.
        once: number of the example that took each step that is too dear for all.
        earlier: problems of the examples before.
        powers: of the attacks made: the least multiple of epsilon that each would have seen.
        solved: identities of the problems that a run of the pipeline solved.
        cannot: why the last example that was passed over could not be done.
        rejected: examples that were passed over.
    """

    start: float
    examples: int = 0
    failed_at: float | None = None
    once: dict[str, Any] = field(factory=dict)
    earlier: list[GeneratedProblem] = field(factory=list)
    powers: list[float] = field(factory=list)
    solved: set[Any] = field(factory=set)
    cannot: str = ""
    rejected: int = 0


@define(kw_only=True, eq=False)
class Trial:
    """One example of a check: draws problems, runs the pipeline, fails.

    Attributes:
        subject: what is tried.
        data: Hypothesis's source of choices.
        effort: how hard.
        history: what is known of the examples before.
    """

    subject: Subject
    data: Any
    effort: Effort
    history: History

    def problem(self) -> GeneratedProblem:
        """Draw a problem from the profile's strategy."""
        drawn: GeneratedProblem = self.data.draw(self.subject.profile.problems)
        return drawn

    def once_only(self, what: str) -> bool:
        """Return True for one example only, for a step too expensive for all: an early one, but not the simplest.

        Once something was found, every smaller example takes the step as well.
        """
        if self.history.failed_at is not None:
            return True
        number = self.history.examples
        return number >= 2 and bool(self.history.once.setdefault(what, number) == number)

    def chance(self, problem: GeneratedProblem) -> random.Random:
        """Return a generator of random choices that are always the same for a problem."""
        return random.Random(zlib.crc32(repr(problem.identity).encode()))

    def attempt(self, problem: GeneratedProblem, *, fresh: Hashable = 0, **options: Any) -> Run:
        """Run the pipeline; failed runs are returned too."""
        made = self.subject.run(problem, fresh=fresh, **options)
        if made.error is None:
            self.history.solved.add(problem.identity)
        return made

    def run(self, problem: GeneratedProblem, *, fresh: Hashable = 0, **options: Any) -> Run:
        """Run the pipeline; an example that has no solution, or that another check fails, is passed over."""
        made = self.attempt(problem, fresh=fresh, **options)
        if made.error is not None:
            hypothesis.reject()
        return made

    def solved(self) -> tuple[GeneratedProblem, Run]:
        """Draw a problem, and run the pipeline on it."""
        problem = self.problem()
        return problem, self.run(problem)

    def pass_over(self, why: str) -> NoReturn:
        """Draw another example, and note why: the check is skipped for that reason where no example could be done."""
        self.history.cannot = why
        hypothesis.reject()

    def fail(self, what: str, problem: GeneratedProblem | None) -> NoReturn:
        """Say what was found.

        Raises:
            CheckFailedError: always.
        """
        raise CheckFailedError(what, problem)
