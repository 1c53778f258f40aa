"""A solver's view of a search, possibly for part of a larger problem, through which it offers candidates and bounds.

A promised value or bound is one that a solver has reported and that the search checks later.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from attrs import define, evolve, frozen

from privopt.execution.clock import check

T = TypeVar("T")
C = TypeVar("C")
P = TypeVar("P")
C2 = TypeVar("C2")
P2 = TypeVar("P2")


class Later(Generic[T]):
    """A value computed on request, by calling a function with arguments that must not change in the meantime.

    >>> Later(max, 3, 5).value()
    5
    """

    # A closure would use the values that a solver's loop variables have later.
    def __init__(self, function: Callable[..., T], *arguments: Any) -> None:
        """Store the function and its arguments for :meth:`value`."""
        self._function, self._arguments = function, arguments

    def value(self) -> T:
        """Compute and return the value."""
        return self._function(*self._arguments)


def evaluate(value: T | Later[T]) -> T:
    """Return a value, computing it now if it is a :class:`Later`."""
    return value.value() if isinstance(value, Later) else value


def is_within_gap(value: float, bound: float, gap: float, noise: float = 0.0) -> bool:
    """Return whether a value and its lower bound are known and within the gap.

    Args:
        value: The value of a candidate, or infinity if there is none.
        bound: A lower bound, or minus infinity if there is none.
        gap: The largest permitted difference, relative to the value.
        noise: The largest absolute difference that is attributed to rounding and therefore counts as within the gap.
    """
    # Unknown values and bounds are infinite. Their difference could be NaN, or satisfy the condition by accident.
    return max(abs(value), abs(bound)) < math.inf and value - bound <= max(gap * abs(value), noise)


@frozen(eq=False, kw_only=True)
class Offer(Generic[C, P]):
    """An offer from a solver: a candidate, a bound or both, as passed to :meth:`Offers.offer`.

    Attributes:
        origin: The name of the method that made the offer.
        candidate: The candidate, a :class:`Later` that computes it, or None if only a bound is offered.
        value: The candidate's promised value.
        bound: The promised lower bound, or None if only a candidate is offered.
        proof: The proof of the bound, such as multipliers, or a :class:`Later` that computes it.
        firm: Whether the candidate keeps its promised value when repaired.
    """

    origin: str
    candidate: C | Later[C] | None = None
    value: float | None = None
    bound: float | None = None
    proof: P | Later[P] | None = None
    firm: bool = True

    @property
    def firm_part(self) -> Offer[C, P]:
        """This offer if it is firm, and otherwise this offer without its candidate.

        An offer is firm if its candidate keeps its promised value when repaired.
        """
        return self if self.firm else evolve(self, candidate=None)


@define(eq=False)
class BestOffer(Generic[C, P]):
    """The best candidate and the best bound offered by a solver so far.

    Attributes:
        candidate: The candidate with the lowest promised value, or None before the first candidate.
        value: The promised value of this candidate, or infinity before the first candidate.
        proof: The proof of the highest bound, or None before the first bound.
        bound: The highest bound, or minus infinity before the first bound.
    """

    candidate: C | Later[C] | None = None
    value: float = math.inf
    proof: P | Later[P] | None = None
    bound: float = -math.inf

    def take(self, offer: Offer[C, P]) -> bool:
        """Store the offer's candidate and bound if they are the best so far. Return whether either was stored."""
        improved = False
        if offer.candidate is not None and offer.value is not None and offer.value < self.value:
            self.candidate, self.value, improved = offer.candidate, offer.value, True
        if offer.proof is not None and offer.bound is not None and offer.bound > self.bound:
            self.proof, self.bound, improved = offer.proof, offer.bound, True
        return improved


class Offers(Generic[C, P]):
    """The part of a search that a solver sees, through which it offers candidates and bounds.

    This class does not certify anything itself. Values are minimised, so a solver that maximises must offer negated
    values.

    Attributes:
        gap: The relative gap to reach.
        noise: The largest difference attributed to rounding.
        best: The best candidate and the best bound offered so far.
        offer_count: The number of offers made so far.
    """

    noise: float = 0.0
    offer_count: int = 0

    def __init__(self, gap: float, *, progress: Callable[[str, int, float | None, float | None], object] | None = None):
        """Create a search that has not received any offers yet.

        Args:
            gap: The relative gap to reach.
            progress: Called with each offer's origin, the number of offers so far, and the best bound and value, which
                are None if unknown.
        """
        self.gap, self._progress = gap, progress
        self.best: BestOffer[C, P] = BestOffer()

    def offer(
        self,
        origin: str,
        *,
        candidate: C | Later[C] | None = None,
        value: float | None = None,
        bound: float | None = None,
        proof: P | Later[P] | None = None,
        firm: bool = True,
    ) -> None:
        """Offer a candidate, a bound, or both. This method can be called from any thread.

        Args:
            origin: The name of the method. The best offer from each method is stored, so that a wrong offer does not
                displace those of other methods.
            candidate: A candidate that will not change afterwards, or a :class:`Later` that computes one.
            value: The candidate's value according to the method. It decides which candidate is certified next and, for
                a firm offer, counts towards the gap, but it is never reported as the value of a release.
            bound: The bound according to the method. It is not reported before ``proof`` has been evaluated.
            proof: The proof of the bound, or a :class:`Later` that computes it.
            firm: Whether the candidate keeps its value when repaired. Candidates from relaxations do not. An offer that
                is not firm does not count towards the gap, and is replaced by any firm offer from the same origin.

        Raises:
            OutOfTime: The time is up. The offer was stored anyway.
        """
        self.offer_count += 1
        # Store the offer before checking the clock, because a solver's last offer is often its best.
        self._take(Offer(origin=origin, candidate=candidate, value=value, bound=bound, proof=proof, firm=firm))
        check()

    def _take(self, offer: Offer[C, P]) -> None:
        """Store an offer and report progress."""
        self.best.take(offer)
        if self._progress is not None:
            finite_ends = (end if math.isfinite(end) else None for end in (self.best.bound, self.best.value))
            self._progress(offer.origin, self.offer_count, *finite_ends)

    @property
    def has_reached_gap(self) -> bool:
        """Whether the best promised value and bound are within the gap."""
        return is_within_gap(self.best.value, self.best.bound, self.gap, self.noise)

    def confirm(self) -> bool:
        """Return whether the gap is reached, according to the values and bounds offered.

        The subclass :class:`Incumbent` first certifies the values and proves the bounds.
        """
        # This class certifies nothing, so promises count.
        return self.has_reached_gap

    def note(self, step: str, **figures: object) -> None:
        """Ignore a step and its statistics. The subclass :class:`Incumbent` records them for its answer."""

    def through(
        self,
        name: str,
        candidate: Callable[[C2], C] | None,
        proof: Callable[[P2], P] | None,
        *,
        firm: bool = True,
    ) -> View[C2, P2]:
        """Return a view of this search through which a solver can make offers for a smaller problem.

        Args:
            name: The origin to record for all offers made through the view, or ``""`` to keep each offer's own origin.
            candidate: A function that converts a candidate for the smaller problem to one for the whole problem. If
                None, candidates are not passed on.
            proof: A function that converts the proof of a bound, or None if the view's bounds do not hold for the whole
                problem.
            firm: Whether a converted candidate is guaranteed to keep its promised value. If not, or if ``proof`` or
                ``candidate`` is None, the view has its own gap (:attr:`View.has_own_gap`).
        """
        return View(self, name, candidate, proof, firm=firm)


class View(Offers[C, P]):
    """A search for a smaller problem, which passes its offers on to the search for the whole problem.

    A candidate is converted to one for the whole problem only when the outer search evaluates it.

    Attributes:
        has_own_gap: Whether :attr:`has_reached_gap` compares the values and bounds offered to the view, because not all
            of them can be passed on unchanged. If False, the whole problem's gap is used.
    """

    def __init__(
        self,
        outer: Offers[C2, P2],
        name: str,
        candidate: Callable[[C], C2] | None,
        proof: Callable[[P], P2] | None,
        *,
        firm: bool,
    ) -> None:
        """Create a view, i.e. a search for a smaller problem.

        Args:
            outer: The search for the whole problem, which receives the offers.
            name: The origin to record for all offers made through the view, or ``""`` to keep each offer's own origin.
            candidate: A function that converts a candidate for the smaller problem to one for the whole problem. If
                None, candidates are not passed on.
            proof: A function that converts the proof of a bound, or None if the view's bounds do not hold for the whole
                problem.
            firm: Whether a converted candidate is guaranteed to keep its promised value.
        """
        super().__init__(outer.gap)
        self._outer, self._name, self._lift_candidate, self._lift_proof = outer, name, candidate, proof
        self._firm, self.noise = firm, outer.noise
        self.has_own_gap = not firm or proof is None or candidate is None

    def _take(self, offer: Offer[C, P]) -> None:
        """Store an offer, and pass its converted candidate and proof on to the whole problem's search."""
        self.best.take(offer)
        # A part that cannot be converted is not passed on, because it says nothing about the whole problem.
        candidate: Later[Any] | None = None
        proof: Later[Any] | None = None
        if offer.candidate is not None and self._lift_candidate is not None:
            candidate = Later(_lift, self._lift_candidate, offer.candidate)
        if offer.proof is not None and self._lift_proof is not None:
            proof = Later(_lift, self._lift_proof, offer.proof)
        self._outer.offer(
            self._name or offer.origin,
            candidate=candidate,
            value=None if candidate is None else offer.value,
            bound=None if proof is None else offer.bound,
            proof=proof,
            firm=offer.firm and self._firm,
        )

    @property
    def has_reached_gap(self) -> bool:
        """Whether the gap is reached: the view's own gap if it has one, and otherwise the whole problem's gap."""
        return super().has_reached_gap if self.has_own_gap else self._outer.has_reached_gap

    def confirm(self) -> bool:
        """Return whether the gap is reached.

        If the view has no gap of its own, the whole problem's search confirms the offers first.
        """
        return self.has_reached_gap if self.has_own_gap else self._outer.confirm()

    def note(self, step: str, **figures: object) -> None:
        """Record a step and its statistics in the search for the whole problem."""
        self._outer.note(step, **figures)


def _lift(lift: Callable[[T], Any], value: T | Later[T]) -> Any:
    """Apply ``lift`` to a value, after computing the value if it is a :class:`Later`."""
    return lift(evaluate(value))
