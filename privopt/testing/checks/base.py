"""The interface of checks, and the :class:`Trial` that a check receives for each example.

A check is a function that takes a :class:`Trial`. The decorator :class:`Check` registers the function together with the
traits and profile fields that it requires. If these are not available, the check is skipped with a reason.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Hashable, Set
from decimal import Decimal
from typing import Any, Final, NoReturn

import hypothesis
from attrs import define, evolve, field, frozen

from privopt.errors import RegistryError
from privopt.testing.efforts import Effort
from privopt.testing.problems import GeneratedProblem
from privopt.testing.shared_problems import ProblemSource
from privopt.testing.under_trial import Run, Subject, missing_traits

TINY_EPSILON: Final = Decimal("0.015625")
"""A small epsilon. At this epsilon, only about one draw in a hundred equals the true number."""

KIT_SEED: Final = 20_240_501
"""The ``--seed`` used by checks that compare two runs with the same seed."""


class CheckFailedError(AssertionError):
    """Raised if a check fails.

    Attributes:
        what: The finding, as a sentence.
        problem: The problem that shows the finding, or None if the finding does not depend on a problem.
    """

    def __init__(self, what: str, problem: GeneratedProblem | None) -> None:
        """Create the error. Its message also shows the problem, if there is one."""
        self.what = what
        self.problem = problem
        problem_text = "" if problem is None else f"\nsmallest problem found:\n{problem.show()}"
        super().__init__(f"{what}{problem_text}")


class Elsewhere(str):
    """A reason to skip a check because it does not apply to a mechanism, rather than because it could not be run."""


class LeftOut(str):
    """A reason, given by a plugin's author in ``Profile.skip``, for not running a check that does apply."""


def default_method_only(subject: Subject) -> str | None:
    """Return a reason to skip a check if the method under test is not the mechanism's default, or None if it is.

    This is for checks on code shared by all methods, such as code that reads files. Repeating such a check for other
    methods would reveal nothing new.
    """
    if subject.method.name != subject.spec.default.name:
        return Elsewhere("tried with the default method: problems and folders of the others are read by the same code")
    return None


@frozen
class Check:
    """A decorator that registers the decorated function as a check in :data:`CHECKS`.

    Attributes:
        name: The check's name in reports, in lists of expected failures and in ``Profile.skip``.
        version: The check's version number, which is increased when the check becomes stricter.
        of: The traits that a release must have (:data:`privopt.testing.under_trial.TRAITS`). If empty, the check
            applies to all releases.
        private: Whether the check applies only to methods whose own releases claim privacy, and not to methods that
            merely reproduce a paper's claim.
        needs: A function that takes a subject (the method under test) and returns the reason why the check cannot run
            on it, or None if it can.
        share: The fraction of the effort's examples run by this check. It is below 1 if an example costs more than a
            solve.
        min_examples: The number of problems to draw even if the check's time is up. The first is the simplest one.
        function: The function that runs one example, and reports findings with :meth:`Trial.fail`.
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
        """Register a function as the implementation of this check, and return the function.

        Raises:
            RegistryError: Another module has registered a check with the same name.
        """
        earlier = CHECKS.get(self.name)
        # If a module is imported again, as in a test or a notebook, it replaces its own check.
        if earlier is not None and earlier.function.__module__ != function.__module__:
            raise RegistryError(
                f"the check {self.name!r} of {function.__module__} must have another name: "
                f"{earlier.function.__module__} has one of that name"
            )
        CHECKS[self.name] = evolve(self, function=function)
        return function

    def reason_to_skip(self, subject: Subject) -> str | None:
        """Return the reason for skipping the check on the method under test (``subject``), or None if the check runs.

        The reason is an :class:`Elsewhere` if the check does not apply to the method, and a :class:`LeftOut` if the
        profile excludes the check.
        """
        if self.name in subject.profile.skip:
            return LeftOut(subject.profile.skip[self.name])
        # Sort the missing traits, so that the reason is the same in each run.
        missing = sorted(self.of - subject.traits)
        if missing:
            return Elsewhere(missing_traits()[missing[0]])
        if self.private and not subject.private:
            return Elsewhere("the method itself claims nothing")
        return self.needs(subject)


def at_epsilon_one(problem: GeneratedProblem) -> GeneratedProblem:
    """Return a copy of a problem with epsilon set to 1, or rho to 1/2.

    These are the values at which an attack needs the fewest draws.
    """
    return _set_epsilon(problem, Decimal(1))


def at_tiny_epsilon(problem: GeneratedProblem) -> GeneratedProblem:
    """Return a copy of a problem with epsilon or rho set close to 0, so that noise hides nearly all differences."""
    return _set_epsilon(problem, TINY_EPSILON)


def _set_epsilon(problem: GeneratedProblem, epsilon: Decimal) -> GeneratedProblem:
    """Return a copy of a problem with ``epsilon``, or with the corresponding rho.

    Pure epsilon-DP implies zero-concentrated DP with rho = epsilon**2 / 2 (Bun and Steinke 2016). A problem has at most
    one of the two keys.
    """
    for key, value in (("privacy.epsilon", epsilon), ("privacy.rho", epsilon**2 / 2)):
        if problem.get(key) is not None:
            problem = problem.with_key(key, value)
    return problem


CONSTANT_RUNS: Final = 16
"""The number of runs on each of two neighbours after which a persistent difference is no longer attributed to chance.

If epsilon is near 0, an event has nearly the same probability p for both. The probability that it always occurs for one
and never for the other is then about p**16 (1 - p)**16, which is below 1e-9.
"""

CHECKS: Final[dict[str, Check]] = {}
"""All checks, by name, in the order in which they run."""


def require_field(field: str) -> Callable[[Subject], str | None]:
    """Return a function for :attr:`Check.needs` that gives a reason to skip the check if a profile field is None."""
    return lambda subject: None if getattr(subject.profile, field) is not None else f"the profile has no `{field}`"


check = Check


@define
class History:
    """The state of a check on a subject across its examples.

    Attributes:
        start: This process's CPU time at the start of the check, in seconds. It is reset after the first example.
        examples: The number of examples that ran, up to and including the first failure.
        failed_at: The time on the monotonic clock at which the first failed example started, or None before a failure.
        once: For each step that is too expensive to run in every example, the index of the example that ran it.
        long_test_seconds: The CPU time used so far by the attack's longer tests, in seconds. It is limited.
        earlier: The problems from earlier examples, which checks can reuse.
        powers: For each example that reported its power, a number and a note with a placeholder for the number
            (:meth:`note_power`).
        solved: The identities (hashable keys) of the problems solved by the pipeline.
        cannot: The last reason recorded by :meth:`note_reason`.
        rejected: The number of discarded examples.
        idle: The number of examples that ran but could not have revealed a fault (:meth:`Trial.be_idle`).
    """

    start: float
    examples: int = 0
    failed_at: float | None = None
    once: dict[str, int] = field(factory=dict)
    long_test_seconds: float = 0.0
    earlier: list[GeneratedProblem] = field(factory=list)
    powers: list[tuple[float, str]] = field(factory=list)
    solved: set[Any] = field(factory=set)
    cannot: str = ""
    rejected: int = 0
    idle: int = 0

    def note_reason(self, why: str) -> None:
        """Record why an example could not be run, or could not reveal a fault.

        A reason why the check does not apply (:class:`Elsewhere`) does not replace a reason of another type. Otherwise,
        the last example alone would decide whether a skipped check counts as missed.
        """
        if why and (not isinstance(why, Elsewhere) or isinstance(self.cannot, Elsewhere) or not self.cannot):
            self.cannot = why

    def note_power(self, number: float, note: str) -> None:
        """Record the size of the smallest fault that an example would have detected.

        The runner reports the minimum across all examples.

        Args:
            number: The size of that fault, such as a multiple of epsilon, or infinity if the example would have
                detected no fault.
            note: A clause with a placeholder for the number, in the syntax of :meth:`str.format`.
        """
        self.powers.append((number, note))

    @property
    def power(self) -> str:
        """A note on the smallest fault that any example would have detected, or "" if no example reported its power."""
        number, note = min(self.powers, default=(0.0, ""))
        if math.isinf(number):
            return "the attack had no power on these problems"
        # Round up to two decimals, so that the note never claims more power than the check had. Subtracting 1e-9 keeps
        # rounding errors from raising a number that already has two decimals.
        return note.format(math.ceil(number * 100 - 1e-9) / 100)


@define(kw_only=True, eq=False)
class Trial:
    """A single run of a check, with methods that draw problems, run the pipeline and report findings.

    Attributes:
        subject: The method under test.
        data: The Hypothesis data object from which choices are drawn.
        effort: The limits on how much work the check may do, such as the number of draws.
        history: The state of the check across its runs.
        source: The problems shared with other checks. If None, all problems are drawn from ``data``.
    """

    subject: Subject
    data: Any
    effort: Effort
    history: History
    source: ProblemSource | None = None

    def problem(self) -> GeneratedProblem:
        """Return the next shared problem or, without a ``source``, draw one from the profile's strategy."""
        if self.source is not None:
            return self.source.take()
        problem: GeneratedProblem = self.data.draw(self.subject.profile.problems)
        return problem

    def once_only(self, what: str) -> bool:
        """Return whether the current example should run a step that is too expensive to run in every example.

        The first two examples do not run the step, because their problems are the simplest. After that, the first
        example that calls this method runs it. After a failure, all smaller examples run the step as well, because it
        may be the step that failed.

        Args:
            what: A description of the step, under which the index of the chosen example is stored.
        """
        if self.history.failed_at is not None:
            return True
        number = self.history.examples
        return number >= 2 and self.history.once.setdefault(what, number) == number

    def chance(self, problem: GeneratedProblem) -> random.Random:
        """Return a random number generator seeded from the problem, so that equal problems lead to equal choices."""
        # If the choices came from Hypothesis, they would shrink with the problem. Unlike hash(), CRC-32 is the same in
        # all processes.
        return random.Random(zlib.crc32(repr(problem.identity).encode()))

    def attempt(self, problem: GeneratedProblem, *, fresh: Hashable = 0, **options: Any) -> Run:
        """Run the pipeline (``privopt solve``) on a problem, and return the run even if it failed.

        Args:
            problem: The problem.
            fresh: Part of the cache key. A different value gives a new run on the same problem.
            options: Options for :class:`privopt.run.task.Options`, and the arguments ``written`` and ``compared`` of
                :meth:`privopt.testing.under_trial.Subject.run`.
        """
        pipeline_run = self.subject.run(problem, fresh=fresh, **options)
        if pipeline_run.error is None:
            self.history.solved.add(problem.identity)
        return pipeline_run

    def run(self, problem: GeneratedProblem, *, fresh: Hashable = 0, **options: Any) -> Run:
        """Run the pipeline on a problem, and return the successful run.

        If the run fails, the example is discarded, because the ``solves`` check reports the failure.

        Args:
            problem: The problem.
            fresh: Part of the cache key. A different value gives a new run on the same problem.
            options: As for :meth:`attempt`.
        """
        pipeline_run = self.attempt(problem, fresh=fresh, **options)
        if pipeline_run.error is not None:
            hypothesis.reject()
        return pipeline_run

    def draw_run(self) -> tuple[GeneratedProblem, Run]:
        """Draw a problem, run the pipeline on it, and return both the problem and the run."""
        problem = self.problem()
        return problem, self.run(problem)

    def be_idle(self, why: str = "") -> None:
        """Exclude this example from the result's count of problems, because it could not have revealed a fault.

        Args:
            why: The reason, as a clause. If all examples are excluded, the check is skipped with one of their reasons
                (:meth:`History.note_reason`).
        """
        self.history.idle += 1
        self.history.note_reason(why)

    def pass_over(self, why: str) -> NoReturn:
        """Discard the example without a finding.

        If no example can run, the check is skipped with one of the recorded reasons (:meth:`History.note_reason`).

        Args:
            why: The reason why the check cannot run on this example, as a clause.
        """
        self.history.note_reason(why)
        hypothesis.reject()

    def fail(self, what: str, problem: GeneratedProblem | None) -> NoReturn:
        """Report a finding.

        Args:
            what: The finding, as a sentence.
            problem: The problem that shows the finding, or None if the finding does not depend on a problem.

        Raises:
            CheckFailedError: Always.
        """
        raise CheckFailedError(what, problem)
