"""Problems that are drawn once and then used by all checks of all methods with the same profile.

Drawing a problem takes Hypothesis longer than most checks take for it, and checks that use the same problems share the
runs that solve them.
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
"""The problems drawn so far, by profile and seed."""


@contextmanager
def without_local_constants() -> Iterator[None]:
    """Keep Hypothesis from parsing all modules of the process that are not installed, for constants to draw.

    Parsing takes seconds in a checkout, and lets the drawn problems depend on where privopt is installed. Hypothesis
    has no setting for this. A version without this function draws as it likes.
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
    """Different problems from a profile's strategy, which are drawn in rounds as they are needed.

    Attributes:
        profile: The profile.
        seed: The seed of the first round. Each further round has the next seed.
        problems: The problems drawn so far. The first one is the simplest.
        rounds: The number of rounds so far.
        is_exhausted: Whether the last round found no problem that was new.
    """

    profile: Profile
    seed: int
    problems: list[GeneratedProblem] = field(factory=list)
    rounds: int = 0
    is_exhausted: bool = False
    _identities: set[object] = field(factory=set)

    def has(self, index: int) -> bool:
        """Return whether there is a problem with an index, after drawing further rounds if necessary."""
        while index >= len(self.problems) and not self.is_exhausted:
            self._draw_round()
        return index < len(self.problems)

    def _draw_round(self) -> None:
        """Draw as many problems as there are already, at least as many as a check needs at effort ci."""
        count_before = len(self.problems)
        round_effort = evolve(EFFORTS["ci"], examples=max(EFFORTS["ci"].examples, count_before))

        def keep(data: st.DataObject) -> None:
            """Draw a problem, and keep it if it is new."""
            problem: GeneratedProblem = data.draw(self.profile.problems)
            if problem.identity not in self._identities:
                self._identities.add(problem.identity)
                self.problems.append(problem)

        with without_local_constants():
            hypothesis.seed(self.seed + self.rounds)(round_effort.settings()(hypothesis.given(st.data())(keep)))()
        self.rounds += 1
        self.is_exhausted = len(self.problems) == count_before


def shared_problems(profile: Profile, seed: int) -> SharedProblems:
    """Return the problems of a profile that are drawn from a seed."""
    by_seed = _POOLS.setdefault(profile, {})
    return by_seed.setdefault(seed, SharedProblems(profile, seed))


@define(eq=False)
class ProblemSource:
    """A position in :class:`SharedProblems`, from which one check takes problem after problem.

    Attributes:
        shared: The problems.
        position: The index of the next problem.
    """

    shared: SharedProblems
    position: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether all problems have been taken, and no others can be drawn."""
        return not self.shared.has(self.position)

    def take(self) -> GeneratedProblem:
        """Return the next problem. After the last one, the first follows again."""
        self.shared.has(self.position)
        problem = self.shared.problems[self.position % len(self.shared.problems)]
        self.position += 1
        return problem
