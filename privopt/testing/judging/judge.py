"""Test a privacy claim statistically: rounds of search and test, each with fresh draws, for a given time."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from numbers import Integral, Real
from typing import Any, Final, NamedTuple

import numpy as np
from attrs import define, field, frozen

from privopt.errors import UsageError
from privopt.execution.clock import clock, limit
from privopt.registry import registry
from privopt.testing.judging.bounds import log_odds_lower, rarest_seen, seen_from
from privopt.testing.judging.choose_events import Test, propose
from privopt.testing.judging.inputs import Inputs, pairs_of
from privopt.testing.judging.outputs import ErrorOutput, Table, never_again
from privopt.testing.judging.verdict import Verdict

FIRST_ROUND_DRAWS: Final = 500
"""Draws from each input of a pair in the first round; each round has four times those of the one before."""
GROWTH_PER_ROUND: Final = 4
FIRST_PAIRS: Final = 24
TESTS_PER_ROUND: Final = 3
"""Tests a round, of different views or pairs."""
MIN_DRAWS_PER_CALL: Final = 200
"""Draws that are asked of ``many`` at once, at least."""
MAX_SHOWN_CHARACTERS: Final = 120
LIKELY: Final = (0.5, 0.25, 0.1, 0.01, 0.001)


class _OutOfTimeError(Exception):
    """The clock, inside a round."""


@define(eq=False)
class _Drawer:
    """Calls the mechanism, counts, and looks at the clock."""

    mechanism: Callable[..., Any] | None
    many: Callable[..., Sequence[Any]] | None
    chance: np.random.Generator
    calls: int = 0
    _options: dict[str, Any] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        called = self.mechanism if self.many is None else self.many
        assert called is not None  # judge refuses
        try:
            takes = "rng" in inspect.signature(called).parameters
        except (TypeError, ValueError):  # built in: it has none that can be read
            takes = False
        self._options = {"rng": self.chance} if takes else {}

    def draw(self, value: object, count: int) -> list[Any]:
        """Draw ``count`` outputs for one input; an error that the mechanism raises counts as one."""
        found: list[Any] = []
        while len(found) < count:
            if clock().left == 0.0:
                raise _OutOfTimeError
            size = min(1 if self.many is None else max(MIN_DRAWS_PER_CALL, count // 8), count - len(found))
            found += self._some(value, size)
            self.calls += size
        return found

    def _some(self, value: object, count: int) -> list[Any]:
        if self.many is not None:
            try:
                made = list(self.many(value, count, **self._options))
            except (Exception, SystemExit) as error:
                raise UsageError(
                    f"many must return {count} outputs, but raised {type(error).__name__}: {error}"
                ) from error
            if len(made) != count:
                raise UsageError(f"many must return {count} outputs, got {len(made)}")
            return made
        assert self.mechanism is not None  # as above
        try:
            return [self.mechanism(value, **self._options)]
        except (Exception, SystemExit) as error:  # what a mechanism raises depends on its input, and is seen
            return [ErrorOutput.of(error)]


@frozen(kw_only=True, eq=False)
class _Candidate:
    """A pair, and what its draws so far promise."""

    a: Any
    b: Any
    odds: float
    tests: tuple[Test, ...] = ()

    @property
    def score(self) -> float:
        return self.tests[0].score if self.tests else -math.inf


def judge(
    mechanism: Callable[..., Any] | None,
    inputs: Inputs,
    neighbours: Callable[[Any], Any] | None = None,
    notion: str = "pure-dp",
    *,
    epsilon: float,
    delta: float = 0.0,
    distance: Callable[[Any, Any], float] | None = None,
    many: Callable[..., Sequence[Any]] | None = None,
    confidence: float = 0.99,
    draws: int = 400_000,
    time_limit: float | None = None,
    seed: int = 0,
) -> Verdict:
    """Test whether a function keeps the guarantee that it claims, by its draws alone.

    Rounds, each four times as long as the one before: pairs of inputs are searched with some draws, the most promising
    events tested with fresh ones. Errors are shared out among all tests of all rounds, the last planned one has half.
    It ends at a violation, or with the draws.

    >>> def answer(truth, rng):  # tells the truth in three of four cases: epsilon log 3
    ...     return truth if rng.random() < 0.75 else not truth
    >>> judge(answer, [False, True], notion="local-dp", epsilon=0.5).violated
    True
    >>> judge(answer, [False, True], notion="local-dp", epsilon=1.0987).violated
    False

    Args:
        mechanism: of one input, and of ``rng``, a NumPy generator, where it has a parameter of this name; draws must be
            independent. What it raises is an output, too. None where ``many`` is given.
        inputs: a list, a Hypothesis strategy, or a function of a generator.
        neighbours: of an input, the inputs that the claim makes alike with it: a list, or a strategy; None: any two
            inputs (local DP, metric DP).
        notion: name of a registered notion that bounds odds (:attr:`PrivacyConstraint.odds`), or bounds them up to a
            delta (:attr:`PrivacyConstraint.tails`).
        epsilon: claimed, above 0; per unit of distance where the notion goes by it.
        delta: claimed, from 0.
        distance: of two inputs, for notions that go by it; 1 by default.
        many: ``(input, count)`` -> as many outputs, where a faster way exists than one by one.
        confidence: of all that is said, together.
        draws: calls of the mechanism, about; no more than these.
        time_limit: seconds, after which it ends where it is; None for none.
        seed: of all that the judge chooses, and of ``rng``.

    Returns:
        The verdict; the same for the same seed where the mechanism draws from ``rng`` and no limit cuts it short.
    """
    _check_numbers(epsilon, delta, confidence, draws, time_limit)
    held = registry().kind("notion", notion).load()
    if not (held.odds or held.tails):
        raise UsageError(f"notion: {notion!r} bounds no odds between two inputs (PrivacyConstraint.odds)")
    if held.keys() is not None and distance is None:
        raise UsageError(f"distance must be a function of two inputs, got None: {notion!r} depends on it")
    if mechanism is None and many is None:
        raise UsageError("mechanism must be a function, or many one of an input and a count, got None")
    start = time.monotonic()
    chance = np.random.default_rng(seed)
    drawer = _Drawer(mechanism=mechanism, many=many, chance=chance)
    pairs = pairs_of(inputs, neighbours, distance or (lambda *_: 1.0), chance)
    trial = _Trial(notion=notion, epsilon=epsilon, delta=delta, drawer=drawer, confidence=confidence)
    with limit(time_limit, now=time.monotonic):
        try:
            trial.run(pairs, draws)
        except _OutOfTimeError:
            trial.stopped = "the time limit came first"
    return trial.verdict(seed, time.monotonic() - start)


def _check_numbers(epsilon: float, delta: float, confidence: float, draws: int, time_limit: float | None) -> None:
    least = 8 * FIRST_ROUND_DRAWS
    rows: list[tuple[str, object, type, Callable[[Any], bool], str]] = [
        ("epsilon", epsilon, Real, lambda x: 0 < x < math.inf, "a number above 0"),
        ("delta", delta, Real, lambda x: 0 <= x < 1, "a number of at least 0 and below 1"),
        ("confidence", confidence, Real, lambda x: 0.5 <= x < 1, "a number from 0.5, below 1"),
        ("draws", draws, Integral, lambda x: x >= least, f"a whole number of at least {least:,}"),
        ("time_limit", 1.0 if time_limit is None else time_limit, Real, lambda x: x > 0, "seconds above 0"),
    ]
    wrong = [
        f"{name} must be {wanted}, got {found!r}"
        for name, found, kind, right, wanted in rows
        if not (isinstance(found, kind) and right(found))
    ]
    if wrong:
        raise UsageError("\n".join(wrong))


class _SearchRound(NamedTuple):
    """Pairs searched, draws from each of their inputs, draws from each input of a pair tested, pairs tested at most."""

    pairs: int
    search: int
    test: int
    tested: int


def _plan(draws: int) -> list[_SearchRound]:
    """Return rounds of search over many pairs, for half of the draws at most; the other half looks at the best pair."""
    rounds: list[_SearchRound] = []
    left, size = draws, FIRST_ROUND_DRAWS
    while True:
        pairs = max(2, FIRST_PAIRS // (len(rounds) + 1))
        pairs = min(pairs, max(1, draws // (16 * size)))
        following = _SearchRound(pairs, size, size, min(pairs, TESTS_PER_ROUND))
        calls = 2 * size * (pairs + following.tested)
        if left - calls < draws // 2:
            break
        rounds.append(following)
        left -= calls
        size *= GROWTH_PER_ROUND
    return [*rounds, _SearchRound(1, left // 10, 2 * left // 5, 1)]


@define(eq=False)
class _Trial:
    """What is known as the rounds go by."""

    notion: str
    epsilon: float
    delta: float
    drawer: _Drawer
    confidence: float
    best: tuple[float, _Candidate, Test, tuple[int, int], int] | None = None
    tested: tuple[float, float, int, float] | None = None  # the likeliest event of the longest test
    pairs: int = 0
    uncompared: float = 0.0
    stopped: str = ""

    def run(self, pairs: Iterator[tuple[Any, Any, float]], draws: int) -> None:
        """Run all rounds; stop at a violation.

        Raises:
            _OutOfTimeError: the time limit came first; what is known stays.
        """
        plan = _plan(draws)
        kept: list[_Candidate] = []
        for number, turn in enumerate(plan):
            old = kept[: (turn.pairs + 1) // 2]
            fresh = [_Candidate(a=a, b=b, odds=odds) for a, b, odds in islice(pairs, turn.pairs - len(old))]
            if not kept and not fresh:
                raise UsageError("inputs must have at least one pair of neighbours, got none")
            self.pairs += len(fresh)
            chosen = [*kept[: turn.pairs - len(fresh)], *fresh]
            kept = sorted((self._search(each, turn.search) for each in chosen), key=lambda each: -each.score)
            self._test(kept[: turn.tested], turn.test, (1.0 - self.confidence) * 0.5 ** (len(plan) - number))
            if self.best is not None and self.best[0] > self.epsilon:
                return

    def _search(self, candidate: _Candidate, size: int) -> _Candidate:
        one, two = self._draw(candidate, size)
        self.uncompared = max(self.uncompared, never_again(one, two))
        odds = max(candidate.odds, 1e-12)
        tests = propose(one, two, odds, self.delta)
        return _Candidate(a=candidate.a, b=candidate.b, odds=candidate.odds, tests=tuple(tests[:TESTS_PER_ROUND]))

    def _draw(self, candidate: _Candidate, size: int, width: int | None = None) -> tuple[Table, Table]:
        first, second = self.drawer.draw(candidate.a, size), self.drawer.draw(candidate.b, size)
        if width is None:
            both = Table.of([*first, *second])
            width = both.numbers.shape[1]
        return Table.of(first, width), Table.of(second, width)

    def _test(self, candidates: list[_Candidate], size: int, error: float) -> None:
        """Run the most promising tests of a round, on fresh draws."""
        ranked = sorted(((t.score, c, t) for c in candidates for t in c.tests), key=lambda found: -found[0])
        drawn: dict[int, tuple[Table, Table]] = {}
        for _, candidate, test in ranked[:TESTS_PER_ROUND]:
            if id(candidate) not in drawn:
                drawn[id(candidate)] = self._draw(candidate, size, test.width)
            one, two = drawn[id(candidate)] if test.forward else drawn[id(candidate)][::-1]
            hits, against = test.hits(one), test.hits(two)
            odds = max(candidate.odds, 1e-12)
            share = error / len(ranked)
            value = float(log_odds_lower(hits, against, size, share, self.delta)) / odds
            if self.best is None or value > self.best[0]:
                self.best = value, candidate, test, (hits, against), size
            if self.tested is None or (size, hits / size) > (self.tested[2], self.tested[1]):
                self.tested = odds, hits / size, size, share

    def verdict(self, seed: int, seconds: float) -> Verdict:
        """Return the verdict."""
        found: dict[str, Any] = {}
        if self.best is not None and self.best[0] > 0:
            value, candidate, test, (hits, against), count = self.best
            two = (candidate.a, candidate.b) if test.forward else (candidate.b, candidate.a)
            found = {"epsilon_lower": value, "violated": value > self.epsilon, "event": test.words}
            found |= {"pair": (_words(two[0]), _words(two[1])), "counts": ((hits, count), (against, count))}
        if self.tested is not None:
            odds, likely, size, error = self.tested
            seen = partial(seen_from, odds * self.epsilon, draws=size, error=error, delta=self.delta)
            found |= {"power": seen(likely), "by_event": {f"{p:g}": seen(p) for p in LIKELY}}
            found["rarest"] = rarest_seen(size, odds * self.epsilon, error)
        return Verdict(
            notion=self.notion,
            claimed=self.epsilon,
            delta=self.delta,
            confidence=self.confidence,
            uncompared=self.uncompared,
            draws=self.drawer.calls,
            pairs=self.pairs,
            seconds=seconds,
            stopped=self.stopped,
            seed=seed,
            **found,
        )


def _words(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[: MAX_SHOWN_CHARACTERS - 3]}..."
