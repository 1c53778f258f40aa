"""Problems drawn once and used by all checks of all methods with the same profile.

Sharing saves time, because Hypothesis takes longer to draw a problem than most checks take to process it. Checks that
use the same problem can also share the run that solves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from unittest.mock import patch
from weakref import WeakKeyDictionary

import hypothesis
from attrs import define, evolve, field
from hypothesis import strategies as st

from privopt.testing.efforts import EFFORTS
from privopt.testing.problems import GeneratedProblem
from privopt.testing.profile import Profile

_POOLS: WeakKeyDictionary[Profile, dict[int, SharedProblems]] = WeakKeyDictionary()
"""The problems drawn so far, keyed by profile and seed."""


@contextmanager
def without_local_constants() -> Iterator[None]:
    """Prevent Hypothesis from searching the process's local modules for constants to draw.

    The search takes seconds in a source checkout, and makes the drawn problems depend on where privopt is installed.
    Hypothesis has no setting for this, so one of its internal functions is replaced during the ``with`` block. If the
    installed version of Hypothesis has no such function, nothing is changed.
    """
    try:
        providers = import_module("hypothesis.internal.conjecture.providers")
    except ImportError:
        providers = None
    known_constants = getattr(providers, "_local_constants", None)
    if known_constants is not None and hasattr(providers, "_get_local_constants"):
        with patch.object(providers, "_get_local_constants", lambda: known_constants):
            yield
    else:
        yield


@define(eq=False)
class SharedProblems:
    """A growing list of distinct problems, which are drawn in rounds as needed.

    Attributes:
        strategy: The strategy from which problems are drawn.
        seed: The seed of the first round, which is incremented by 1 for each further round.
        problems: The problems drawn so far. The first one is the simplest.
        rounds: The number of rounds so far.
        is_exhausted: Whether the last round yielded no new problems.
    """

    strategy: st.SearchStrategy[GeneratedProblem]
    seed: int
    problems: list[GeneratedProblem] = field(factory=list)
    rounds: int = 0
    is_exhausted: bool = False
    _identities: set[object] = field(factory=set)

    def has(self, index: int) -> bool:
        """Return whether there is a problem with this index, drawing further rounds if necessary."""
        while index >= len(self.problems) and not self.is_exhausted:
            self._draw_round()
        return index < len(self.problems)

    def _draw_round(self) -> None:
        """Draw a round of problems, and keep the new ones.

        A round draws as many problems as there are so far, but at least the number of examples at effort ci.
        """
        count_before = len(self.problems)
        round_effort = evolve(EFFORTS["ci"], examples=max(EFFORTS["ci"].examples, count_before))

        def keep(data: st.DataObject) -> None:
            """Draw a problem, and keep it if it is new."""
            problem: GeneratedProblem = data.draw(self.strategy)
            if problem.identity not in self._identities:
                self._identities.add(problem.identity)
                self.problems.append(problem)

        with without_local_constants():
            hypothesis.seed(self.seed + self.rounds)(round_effort.settings()(hypothesis.given(st.data())(keep)))()
        self.rounds += 1
        self.is_exhausted = len(self.problems) == count_before


def shared_problems(profile: Profile, seed: int) -> SharedProblems:
    """Return the problems shared by all checks for the given profile and seed."""
    problems_by_seed = _POOLS.setdefault(profile, {})
    return problems_by_seed.setdefault(seed, SharedProblems(profile.problems, seed))


@define(eq=False)
class ProblemSource:
    """A cursor into :class:`SharedProblems`, from which a check takes problems one at a time.

    Attributes:
        shared: The shared problems.
        position: The index of the next problem.
    """

    shared: SharedProblems
    position: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether all problems have been taken and no more can be drawn."""
        return not self.shared.has(self.position)

    def take(self) -> GeneratedProblem:
        """Return the next problem. After the last one, the first one is returned again."""
        self.shared.has(self.position)
        problem = self.shared.problems[self.position % len(self.shared.problems)]
        self.position += 1
        return problem
