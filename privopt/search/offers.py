"""A solver's view of a search: the solver offers candidates and bounds, possibly for part of a larger problem.

A promised value or bound is one that the solver states. The search checks promises later.
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
    """A value that is computed on request. The arguments are bound at creation and must not change afterwards.

    >>> Later(max, 3, 5).value()
    5
    """

    # A closure instead would use the later values of a solver's loop variables.
    def __init__(self, function: Callable[..., T], *arguments: Any) -> None:
        """Store the function and its arguments for :meth:`value`."""
        self._function, self._arguments = function, arguments

    def value(self) -> T:
        """Compute and return the value."""
        return self._function(*self._arguments)


def evaluate(value: T | Later[T]) -> T:
    """Return a value. If it is a :class:`Later`, compute it now."""
    return value.value() if isinstance(value, Later) else value


def is_within_gap(value: float, bound: float, gap: float, noise: float = 0.0) -> bool:
    """Return whether a value and its lower bound are known and within the gap.

    Args:
        value: The value of a candidate; infinite if there is none.
        bound: A lower bound; minus infinity if there is none.
        gap: The largest difference relative to the value.
        noise: The largest absolute difference that is attributed to rounding and counts as within the gap.
    """
    # Unknown values and bounds are infinite. Their difference would be NaN, or would satisfy the gap by accident.
    return max(abs(value), abs(bound)) < math.inf and value - bound <= max(gap * abs(value), noise)


@frozen(eq=False, kw_only=True)
class Offer(Generic[C, P]):
    """One offer from a solver: a candidate, a bound or both, as passed to :meth:`Offers.offer`.

    Attributes:
        origin: The name of the method that makes the offer.
        candidate: The candidate, or a :class:`Later` that computes it; None if only a bound is offered.
        value: The candidate's promised value.
        bound: The promised lower bound; None if only a candidate is offered.
        proof: The data that prove the bound, such as multipliers, or a :class:`Later` that computes them.
        firm: Whether the candidate keeps its promised value when it is repaired.
    """

    origin: str
    candidate: C | Later[C] | None = None
    value: float | None = None
    bound: float | None = None
    proof: P | Later[P] | None = None
    firm: bool = True

    @property
    def firm_part(self) -> Offer[C, P]:
        """This offer, without its candidate if the candidate is not firm."""
        return self if self.firm else evolve(self, candidate=None)


@define(eq=False)
class BestOffer(Generic[C, P]):
    """The best candidate and the best bound from one solver, which the solver can read back.

    Attributes:
        candidate: The candidate with the lowest promised value; None before the first candidate.
        value: The promised value of this candidate; infinite before the first candidate.
        proof: The data that prove the highest bound; None before the first bound.
        bound: The highest bound; minus infinity before the first bound.
    """

    candidate: C | Later[C] | None = None
    value: float = math.inf
    proof: P | Later[P] | None = None
    bound: float = -math.inf

    def take(self, offer: Offer[C, P]) -> bool:
        """Store the offer's candidate if it is better, and likewise its bound. Return whether anything was stored."""
        improved = False
        if offer.candidate is not None and offer.value is not None and offer.value < self.value:
            self.candidate, self.value, improved = offer.candidate, offer.value, True
        if offer.proof is not None and offer.bound is not None and offer.bound > self.bound:
            self.proof, self.bound, improved = offer.proof, offer.bound, True
        return improved


class Offers(Generic[C, P]):
    """The part of a search that a solver sees. This class does not certify anything itself.

    Values are minimised, so a solver that maximises must offer negated values.

    Attributes:
        gap: The relative gap to reach.
        noise: The largest difference that is attributed to rounding.
        best: The best candidate and the best bound offered so far.
        offer_count: The number of offers made so far.
    """

    noise: float = 0.0
    offer_count: int = 0

    def __init__(self, gap: float, *, progress: Callable[[str, int, float | None, float | None], object] | None = None):
        """Create a search without offers.

        Args:
            gap: The relative gap to reach.
            progress: A function that is called with each offer's origin, the number of offers so far, and the best
                bound and value (None if unknown).
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
        """Offer a candidate, a bound, or both, from any thread.

        Args:
            origin: The name of the method. The best offer from each method is stored, so that a wrong offer does not
                displace those of other methods.
            candidate: A candidate that will not change afterwards, or a :class:`Later` that computes one.
            value: The candidate's value according to the method. It only decides which candidate is certified next.
            bound: The bound according to the method. ``proof`` is evaluated before any bound is stated.
            proof: The data that prove the bound, or a :class:`Later` that computes them.
            firm: False for a candidate from a relaxation, because its value rises when it is repaired. Such an offer
                does not count towards the gap, and any firm offer from the same origin replaces it.

        Raises:
            OutOfTime: The time is up. The offer was stored anyway.
        """
        self.offer_count += 1
        # Stored before the clock is checked: the last offer of a solver is often its best.
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
        """Return whether the gap is reached. The subclass :class:`Incumbent` first certifies and proves offers."""
        # Nothing is certified here, so promises count.
        return self.has_reached_gap

    def note(self, step: str, **figures: object) -> None:
        """Do nothing. The subclass :class:`Incumbent` records the step and the statistics for its answer."""

    def through(
        self,
        name: str,
        candidate: Callable[[C2], C] | None,
        proof: Callable[[P2], P] | None,
        *,
        firm: bool = True,
    ) -> View[C2, P2]:
        """Return a view of this search for a smaller problem.

        Args:
            name: The origin of all offers made to the view; ``""`` keeps each offer's own origin.
            candidate: A function that lifts a candidate of the smaller problem to the whole problem. None means that
                candidates are not passed on.
            proof: A function that lifts the data that prove a bound; None if the bounds do not hold for the whole
                problem.
            firm: False if a lifted candidate may have a higher value than promised. In this case, or if ``proof`` or
                ``candidate`` is None, the view has its own gap (:attr:`View.has_own_gap`).
        """
        return View(self, name, candidate, proof, firm=firm)


class View(Offers[C, P]):
    """A view of a search for a smaller problem. Offers made to the view are passed on as offers for the whole problem.

    A candidate is lifted (converted to a candidate for the whole problem) only when the search evaluates it.

    Attributes:
        has_own_gap: Whether :attr:`has_reached_gap` compares the values and bounds offered to the view, because they
            cannot all be passed on unchanged. If False, the whole problem's gap decides.
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
        """Create a view of a search.

        Args:
            outer: The search for the whole problem, which receives the offers.
            name: The origin of all offers made to the view; ``""`` keeps each offer's own origin.
            candidate: A function that lifts a candidate of the smaller problem to the whole problem. None means that
                candidates are not passed on.
            proof: A function that lifts the data that prove a bound; None if the bounds do not hold for the whole
                problem.
            firm: Whether a lifted candidate keeps its promised value.
        """
        super().__init__(outer.gap)
        self._outer, self._name, self._lift_candidate, self._lift_proof = outer, name, candidate, proof
        self._firm, self.noise = firm, outer.noise
        self.has_own_gap = not firm or proof is None or candidate is None

    def _take(self, offer: Offer[C, P]) -> None:
        """Store an offer, and offer its lifted candidate and proof to the whole problem's search."""
        self.best.take(offer)
        # A part that cannot be lifted is not passed on: its value or bound says nothing about the whole problem.
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
        """Whether the gap is reached: the view's own gap, or that of the whole problem if the view has none."""
        return super().has_reached_gap if self.has_own_gap else self._outer.has_reached_gap

    def confirm(self) -> bool:
        """Return whether the gap is reached. Unless the view has its own gap, offers are first certified and proved."""
        return self.has_reached_gap if self.has_own_gap else self._outer.confirm()

    def note(self, step: str, **figures: object) -> None:
        """Record a step in the whole problem's search."""
        self._outer.note(step, **figures)


def _lift(lift: Callable[[T], Any], value: T | Later[T]) -> Any:
    """Apply ``lift`` to a value. If the value is a :class:`Later`, compute it now."""
    return lift(evaluate(value))
