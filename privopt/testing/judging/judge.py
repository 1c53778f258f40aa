"""A statistical test of a privacy claim, carried out in rounds of search and testing.

Each round searches pairs of inputs for promising events, and tests the best ones on fresh draws. The error probability
is split among the rounds as a geometric series, so all conclusions hold simultaneously for any number of rounds.
"""

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

from privopt.errors import UsageError, number_of
from privopt.execution.clock import clock, limit
from privopt.registry import registry
from privopt.testing.judging.bounds import log_odds_lower, rarest_visible, visible_factor
from privopt.testing.judging.choose_events import Test, propose_tests
from privopt.testing.judging.inputs import Inputs, pairs_of
from privopt.testing.judging.outputs import ErrorOutput, Table, uncompared_share
from privopt.testing.judging.verdict import Verdict

FIRST_ROUND_DRAWS: Final = 500
"""The number of draws for each input of a pair in the first round."""
GROWTH_PER_ROUND: Final = 4
"""The factor by which the number of draws for each input grows from one round to the next."""
FIRST_PAIRS: Final = 24
"""The number of pairs of inputs searched in the first round. Later rounds search fewer."""
TESTS_PER_ROUND: Final = 3
"""The maximum number of tests in a round, which use different views or pairs."""
MIN_DRAWS_PER_CALL: Final = 200
"""The minimum number of draws requested from ``many`` at a time, unless fewer are needed."""
MAX_SHOWN_CHARACTERS: Final = 120
"""The maximum number of characters of an input's representation shown in a message."""
LIKELY: Final = (0.5, 0.25, 0.1, 0.01, 0.001)
"""The event probabilities for which the verdict reports the tests' power."""


class _OutOfTimeError(Exception):
    """Raised if the time limit is reached during a round."""


@define(eq=False)
class _Drawer:
    """An object that draws outputs from the mechanism, counts them and enforces the time limit.

    Attributes:
        mechanism: A function that takes an input and returns an output, or None if ``many`` is given.
        many: A function that takes an input and a count, and returns that many outputs. If None, ``mechanism`` is
            called for each output.
        chance: The random number generator, which is passed to the drawing function if that function has a parameter
            ``rng``.
        calls: The number of outputs drawn so far.
        _options: The keyword arguments for the drawing function: the generator as ``rng``, or no arguments.
    """

    mechanism: Callable[..., Any] | None
    many: Callable[..., Sequence[Any]] | None
    chance: np.random.Generator
    calls: int = 0
    _options: dict[str, Any] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        """Set the drawing function's keyword arguments, which depend on whether it has a parameter ``rng``."""
        drawing_function = self.mechanism if self.many is None else self.many
        assert drawing_function is not None  # judge() rejects calls without any function
        try:
            takes_rng = "rng" in inspect.signature(drawing_function).parameters
        except (TypeError, ValueError):  # the signature of a built-in function cannot be read
            takes_rng = False
        self._options = {"rng": self.chance} if takes_rng else {}

    def draw(self, value: object, count: int) -> list[Any]:
        """Draw ``count`` outputs for an input. An error raised by the mechanism also counts as an output.

        Raises:
            _OutOfTimeError: The time limit was reached.
        """
        outputs: list[Any] = []
        while len(outputs) < count:
            if clock().left == 0.0:
                raise _OutOfTimeError
            # Draw in batches, and check the clock between them.
            size = min(1 if self.many is None else max(MIN_DRAWS_PER_CALL, count // 8), count - len(outputs))
            outputs += self._draw_batch(value, size)
            self.calls += size
        return outputs

    def _draw_batch(self, value: object, count: int) -> list[Any]:
        """Return ``count`` outputs from one call to ``many``, or one output from ``mechanism`` if ``many`` is None.

        Raises:
            UsageError: ``many`` raises an error, or returns the wrong number of outputs.
        """
        if self.many is not None:
            try:
                outputs = list(self.many(value, count, **self._options))
            except (Exception, SystemExit) as error:
                raise UsageError(
                    f"many must return {number_of(count, 'output')}, but raised {type(error).__name__}: {error}"
                ) from error
            if len(outputs) != count:
                raise UsageError(f"many must return {number_of(count, 'output')}, got {len(outputs)}")
            return outputs
        assert self.mechanism is not None  # judge() rejects calls without any function
        try:
            return [self.mechanism(value, **self._options)]
        # Errors can depend on the input and are visible to users of the mechanism, so they are outputs like any other.
        except (Exception, SystemExit) as error:
            return [ErrorOutput.of(error)]


@frozen(kw_only=True, eq=False)
class _Candidate:
    """A pair of inputs, and the tests that its draws have suggested so far.

    Attributes:
        a: The first input.
        b: The second input.
        odds: The distance between the inputs, which equals the log odds allowed by the claim per unit of epsilon.
        tests: The most promising tests, best first.
    """

    a: Any
    b: Any
    odds: float
    tests: tuple[Test, ...] = ()

    @property
    def score(self) -> float:
        """The score of the best test (:attr:`Test.score`), or -inf if the pair has not been searched yet."""
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
    """Test, from draws alone, whether a function satisfies the guarantee that it claims.

    Each round searches pairs of inputs for promising events, and tests the best events with fresh draws. Every round
    except the last uses four times as many draws per input as the one before. The error probability is split among all
    tests in all rounds, and the last planned round gets half of it. The test ends when a violation is found or the
    draws are used up.

    >>> def answer(truth, rng):  # tells the truth in three of four cases: epsilon log 3
    ...     return truth if rng.random() < 0.75 else not truth
    >>> judge(answer, [False, True], notion="local-dp", epsilon=0.5).violated
    True
    >>> judge(answer, [False, True], notion="local-dp", epsilon=1.0987).violated
    False

    Args:
        mechanism: A function that takes an input and, if it has a parameter ``rng``, a NumPy generator. Its draws must
            be independent. Errors that it raises count as outputs. May be None if ``many`` is given.
        inputs: The inputs, as a list, a Hypothesis strategy, or a function that takes a generator and returns an input.
        neighbours: A function that returns an input's neighbours under the claim, as a list or a strategy. If None, any
            two inputs are neighbours (local DP, metric DP). A notion that is not symmetric requires this argument: an
            event must be at most exp(epsilon) times as likely for the input as for each neighbour.
        notion: The name of a registered notion that bounds odds (:attr:`PrivacyConstraint.odds`), or bounds them up to
            a delta (:attr:`PrivacyConstraint.tails`).
        epsilon: The claimed epsilon, above 0. If the notion depends on distances, epsilon is per unit of distance.
        delta: The claimed delta, at least 0 and below 1.
        distance: A function that returns the distance between two inputs, for notions that depend on distances. The
            default is a distance of 1.
        many: A function ``(input, count)`` that returns ``count`` outputs, for mechanisms that can draw many outputs
            faster in one call than one by one.
        confidence: The joint confidence level of all conclusions, at least 0.5 and below 1.
        draws: The largest number of outputs to draw, at least 4,000. Unless the test ends early, nearly all of these
            are used.
        time_limit: The number of seconds after which the test stops, or None for no limit.
        seed: The seed for all of the judge's choices, and for ``rng``.

    Returns:
        The verdict. The same seed gives the same verdict if the mechanism draws from ``rng`` and no time limit stops
        the test.

    Raises:
        UsageError: An argument is invalid, or there are no pairs of inputs.
        UnknownNameError: The notion does not exist.
    """
    _check_numbers(epsilon, delta, confidence, draws, time_limit)
    notion_class = registry().kind("notion", notion).load()
    if not (notion_class.odds or notion_class.tails):
        raise UsageError(f"notion: {notion!r} bounds no odds between two inputs (PrivacyConstraint.odds)")
    # Notions that declare keys for metric problems depend on distances.
    if notion_class.keys() is not None and distance is None:
        raise UsageError(f"distance must be a function of two inputs, got None: {notion!r} depends on it")
    if neighbours is None and not notion_class.symmetric:
        raise UsageError(f"neighbours must be a function, got None: {notion!r} protects an input against some others")
    if mechanism is None and many is None:
        raise UsageError("mechanism must be a function, or many one of an input and a count, got None")
    start = time.monotonic()
    chance = np.random.default_rng(seed)
    drawer = _Drawer(mechanism=mechanism, many=many, chance=chance)
    pairs = pairs_of(inputs, neighbours, distance or (lambda *_: 1.0), chance)
    trial = _Trial(
        notion=notion,
        epsilon=epsilon,
        delta=delta,
        symmetric=notion_class.symmetric,
        drawer=drawer,
        confidence=confidence,
    )
    # The drawer checks this limit between its calls. Findings from before the limit stay valid.
    with limit(time_limit, now=time.monotonic):
        try:
            trial.run(pairs, draws)
        except _OutOfTimeError:
            trial.stopped = "the time limit was reached first"
    return trial.verdict(seed, time.monotonic() - start)


def _check_numbers(epsilon: float, delta: float, confidence: float, draws: int, time_limit: float | None) -> None:
    """Check the numeric arguments of :func:`judge`.

    Raises:
        UsageError: An argument is invalid. The message has a line for each invalid argument.
    """
    # With fewer draws, not even one round would fit into the half that is used for searching (_plan_rounds).
    min_draws = 8 * FIRST_ROUND_DRAWS
    requirements: list[tuple[str, object, type, Callable[[Any], bool], str]] = [
        ("epsilon", epsilon, Real, lambda x: 0 < x < math.inf, "a number above 0"),
        ("delta", delta, Real, lambda x: 0 <= x < 1, "a number of at least 0 and below 1"),
        ("confidence", confidence, Real, lambda x: 0.5 <= x < 1, "a number from 0.5, below 1"),
        ("draws", draws, Integral, lambda x: x >= min_draws, f"a whole number of at least {min_draws:,}"),
        ("time_limit", 1.0 if time_limit is None else time_limit, Real, lambda x: x > 0, "seconds above 0"),
    ]
    messages = [
        f"{name} must be {expectation}, got {value!r}"
        for name, value, required_type, is_valid, expectation in requirements
        if not (isinstance(value, required_type) and is_valid(value))
    ]
    if messages:
        raise UsageError("\n".join(messages))


class _SearchRound(NamedTuple):
    """The planned numbers of pairs and draws for a round of search and testing.

    Attributes:
        pairs: The number of pairs to search.
        search: The number of draws per input when a pair is searched.
        test: The number of draws per input when a pair is tested.
        tested: The largest number of pairs to test.
    """

    pairs: int
    search: int
    test: int
    tested: int


def _plan_rounds(draws: int) -> list[_SearchRound]:
    """Plan the rounds of a trial with the given total number of draws.

    All rounds except the last examine several pairs, and together use at most half of the draws. The last round
    examines only the best pair, and spends a fifth of its draws on the search for events and the rest on tests.
    """
    rounds: list[_SearchRound] = []
    remaining_draws, size = draws, FIRST_ROUND_DRAWS
    while True:
        pairs = max(2, FIRST_PAIRS // (len(rounds) + 1))
        # No more pairs are tested than searched, so a round takes at most about a quarter of all draws.
        pairs = min(pairs, max(1, draws // (16 * size)))
        next_round = _SearchRound(pairs, size, size, min(pairs, TESTS_PER_ROUND))
        # Both the search and the tests draw from both inputs of each of their pairs.
        calls = 2 * size * (pairs + next_round.tested)
        if remaining_draws - calls < draws // 2:
            break
        rounds.append(next_round)
        remaining_draws -= calls
        size *= GROWTH_PER_ROUND
    # These are the numbers of draws from each input. Together, both inputs use a fifth of the remaining draws for the
    # search, and four fifths for the tests.
    return [*rounds, _SearchRound(1, remaining_draws // 10, 2 * remaining_draws // 5, 1)]


@define(eq=False)
class _Trial:
    """The state of a statistical test that proceeds in several rounds.

    Attributes:
        notion: The registered name of the claimed notion.
        epsilon: The claimed epsilon.
        delta: The claimed delta.
        symmetric: Whether the notion bounds the odds in both directions.
        drawer: The object that draws outputs from the mechanism.
        confidence: The joint confidence level of all conclusions.
        best: The greatest lower bound on epsilon with its evidence: the pair, the test, the test's hits under both
            inputs, and the number of draws for each input. None before the first test.
        tested: The quantities from which the power is computed: the allowed log odds per unit of epsilon, the event's
            frequency, the number of draws, and the error probability. They belong to the test with the most frequent
            event among those with the most draws. None before the first test.
        pairs: The number of pairs examined.
        uncompared: The largest share of a pair's outputs that could not be compared.
        stopped: The reason why the test ended early, or "" if it did not.
    """

    notion: str
    epsilon: float
    delta: float
    symmetric: bool
    drawer: _Drawer
    confidence: float
    best: tuple[float, _Candidate, Test, tuple[int, int], int] | None = None
    tested: tuple[float, float, int, float] | None = None
    pairs: int = 0
    uncompared: float = 0.0
    stopped: str = ""

    def run(self, pairs: Iterator[tuple[Any, Any, float]], draws: int) -> None:
        """Run all rounds, or stop after the first round that finds a violation of the claim.

        Args:
            pairs: Triples (a, b, odds) that contain the inputs to compare
                (:func:`privopt.testing.judging.inputs.pairs_of`).
            draws: The largest number of outputs to draw.

        Raises:
            _OutOfTimeError: The time limit was reached. The results so far are kept.
            UsageError: There are no pairs.
        """
        plan = _plan_rounds(draws)
        candidates: list[_Candidate] = []
        for number, search_round in enumerate(plan):
            # Half of this round's pairs are the best from the previous round, and the others are new.
            earlier = candidates[: (search_round.pairs + 1) // 2]
            fresh = [_Candidate(a=a, b=b, odds=odds) for a, b, odds in islice(pairs, search_round.pairs - len(earlier))]
            if not candidates and not fresh:
                raise UsageError("inputs must have at least one pair of neighbours, got none")
            self.pairs += len(fresh)
            # If there are too few new pairs, keep more of the earlier ones.
            searched = [*candidates[: search_round.pairs - len(fresh)], *fresh]
            candidates = sorted(
                (self._search_pair(candidate, search_round.search) for candidate in searched),
                key=lambda candidate: -candidate.score,
            )
            self._test_candidates(
                candidates[: search_round.tested],
                search_round.test,
                # The last round gets half of the error, and each earlier round gets half as much as the next, so all
                # rounds together get less than the whole error.
                (1.0 - self.confidence) * 0.5 ** (len(plan) - number),
            )
            if self.best is not None and self.best[0] > self.epsilon:
                return

    def _search_pair(self, candidate: _Candidate, size: int) -> _Candidate:
        """Draw ``size`` fresh outputs for each input of a pair, and return the pair with the tests they suggest."""
        first_table, second_table = self._draw_tables(candidate, size)
        self.uncompared = max(self.uncompared, uncompared_share(first_table, second_table))
        # At distance 0, the allowed log odds are 0. They are kept above 0, because scores are divided by them.
        odds = max(candidate.odds, 1e-12)
        tests = propose_tests(first_table, second_table, odds, self.delta, symmetric=self.symmetric)
        return _Candidate(a=candidate.a, b=candidate.b, odds=candidate.odds, tests=tuple(tests[:TESTS_PER_ROUND]))

    def _draw_tables(self, candidate: _Candidate, size: int, width: int | None = None) -> tuple[Table, Table]:
        """Return ``size`` draws for each input of a pair, as tables with the same number of columns.

        Args:
            candidate: The pair.
            size: The number of draws for each input.
            width: The number of columns required by the tests, or None for the most common number in the draws.
        """
        first_outputs, second_outputs = self.drawer.draw(candidate.a, size), self.drawer.draw(candidate.b, size)
        return Table.pair_of(first_outputs, second_outputs, width)

    def _test_candidates(self, candidates: list[_Candidate], size: int, error: float) -> None:
        """Run a round's most promising tests on fresh draws, and update ``best`` and ``tested``.

        Args:
            candidates: Pairs with the tests suggested by the search.
            size: The number of draws for each input of a pair.
            error: The largest allowed probability that any conclusion in this round is wrong.
        """
        # Split the error among all ranked tests, even those that are not run, to be on the safe side.
        ranked = sorted(((t.score, c, t) for c in candidates for t in c.tests), key=lambda scored: -scored[0])
        tables_by_candidate: dict[int, tuple[Table, Table]] = {}
        for _, candidate, test in ranked[:TESTS_PER_ROUND]:
            # Tests on the same pair share its draws, in tables with as many columns as in the search (width). Each
            # test's bound holds, so all of them hold together by the union bound.
            if id(candidate) not in tables_by_candidate:
                tables_by_candidate[id(candidate)] = self._draw_tables(candidate, size, test.width)
            first_table, second_table = (
                tables_by_candidate[id(candidate)] if test.forward else tables_by_candidate[id(candidate)][::-1]
            )
            hits, against = test.hits(first_table), test.hits(second_table)
            # The log odds that the claim allows per unit of epsilon, with a floor to prevent a division by 0.
            odds = max(candidate.odds, 1e-12)
            test_error = error / len(ranked)
            value = float(log_odds_lower(hits, against, size, test_error, self.delta)) / odds
            if self.best is None or value > self.best[0]:
                self.best = value, candidate, test, (hits, against), size
            # The verdict gives the power of the test with the most draws and, among these, the most frequent event.
            if self.tested is None or (size, hits / size) > (self.tested[2], self.tested[1]):
                self.tested = odds, hits / size, size, test_error

    def verdict(self, seed: int, seconds: float) -> Verdict:
        """Return the verdict on the rounds so far, with the power of the tests.

        Args:
            seed: The seed for the judge's choices.
            seconds: The duration of the trial in seconds.
        """
        findings: dict[str, Any] = {}
        if self.best is not None and self.best[0] > 0:
            value, candidate, test, (hits, against), count = self.best
            # The input under which the event is more likely comes first.
            ordered_pair = (candidate.a, candidate.b) if test.forward else (candidate.b, candidate.a)
            findings = {"epsilon_lower": value, "violated": value > self.epsilon, "event": test.words}
            findings |= {
                "pair": (_shorten_repr(ordered_pair[0]), _shorten_repr(ordered_pair[1])),
                "counts": ((hits, count), (against, count)),
            }
        if self.tested is not None:
            odds, likely, size, error = self.tested
            # A function from an event's probability to the smallest multiple of the claim that would have been
            # detected.
            factor_at = partial(visible_factor, odds * self.epsilon, draws=size, error=error, delta=self.delta)
            findings |= {"power": factor_at(likely), "by_event": {f"{p:g}": factor_at(p) for p in LIKELY}}
            findings["rarest"] = rarest_visible(size, odds * self.epsilon, error)
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
            **findings,
        )


def _shorten_repr(value: object) -> str:
    """Return an input's representation for a message, truncated to :data:`MAX_SHOWN_CHARACTERS`."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[: MAX_SHOWN_CHARACTERS - 3]}..."
