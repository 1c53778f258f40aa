""":class:`Profile`: what a mechanism states about itself for the kit.

A mechanism names its profile by ``kit = "package.module:PROFILE"``. One over
:class:`privopt_metric_dp.problem.declared.MetricProblem` needs none; where it adds a required table, or some of the
default's problems are not for it, :func:`privopt_metric_dp.kit.problems.metric_profile` makes one in a line.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pkgutil import resolve_name
from typing import Any, Final, Literal

import numpy as np
from attrs import field, frozen
from hypothesis.strategies import SearchStrategy
from numpy.typing import ArrayLike, NDArray

from privopt.errors import RegistryError, UsageError
from privopt.interfaces import Mechanism, Result
from privopt.testing.problems import GeneratedProblem, Variant

VARIANTS: Final = frozenset({"relabelling", "reordering", "units"})
"""Names that checks of the kit ask for."""


def _flat(values: ArrayLike) -> NDArray[Any]:
    return np.asarray(values).ravel()


@frozen(kw_only=True, eq=False)
class Query:
    """Quantities that noise is added to, one call of the noise.

    Attributes:
        name: in words, for messages: ``"counts of level 2"``.
        values: the true quantities, before the noise; any shape.
        scale: of the Laplace or double geometric noise on each of them, exact; the variance of Gaussian noise.
        sensitivity: greatest change of the sum of absolute values between neighbours that the mechanism computes
            with, of the sum of squares under Gaussian noise; None where it states none for this call alone.
        law: ``"laplace"`` (double geometric too) or ``"gaussian"``.
    """

    name: str
    values: NDArray[Any] = field(converter=_flat)
    scale: Fraction = field(converter=Fraction)
    sensitivity: Fraction | int | None = None
    law: Literal["laplace", "gaussian"] = "laplace"


def _epsilon(problem: Any) -> Fraction:
    """Return the ``privacy.epsilon`` of a problem; where another object was loaded, that of its declaration."""
    return Fraction(getattr(problem, "declared", problem).privacy.epsilon)


@frozen(kw_only=True, eq=False)
class Profile:
    """How the conformance kit can try a mechanism.

    Only ``problems`` is needed; each other field makes further checks possible, and a check that lacks its field is
    reported as skipped, with the field's name.

    Functions take a :class:`GeneratedProblem` where they make other problems, and the mechanism's own loaded problem
    (an instance of its ``problem_class``) where they compute.

    Attributes:
        problems: strategy of small problems, valid and, but for some, feasible. The simplest ones first in every
            choice, so that failures shrink.
        neighbours: all problems, or enough of them, that the guarantee makes alike with a given one (additive noise).
        queries: ``(problem, method) -> queries``: what noise is added to, call by call. Default: the calls of
            :mod:`privopt.numbers.noise` are recorded while the mechanism solves, which is better where it draws from
            there.
        observed: ``(release) -> numbers`` of a release that depend on the secret, always as many: what the
            statistical attack looks at. The mechanism is solved again for each draw.
        probabilities: ``(problem, method) -> probabilities`` of the outcomes, always as many: the exact distribution
            of a mechanism that chooses one of them instead of adding noise to numbers (the exponential mechanism,
            permute-and-flip). ``observed`` and ``draws`` then give the number of the outcome, from 0.
        alike: ``(problem) -> (id, id, distance)`` of secrets that a matrix or a sampler must keep alike, computed from
            the problem file by other code than the mechanism's own; distance 1 for a problem without distances.
            Default: the pairs of the problem or of the release, else every two secrets.
        draws: ``(problem, method, count) -> (count, m)``: the same, ``count`` independent draws at once, where a
            faster way exists than to solve for each. Fresh ones at each call, also for the same arguments.
        stricter: a problem that asks for more privacy and is otherwise the same, or None; its loss must not be lower.
        variants: by name (``"relabelling"``, ``"reordering"``, ``"units"``, no other): the same problem said otherwise,
            or None where that cannot be done with the one given.
        nothing_near: a problem in which no pair of secrets is required, or one that is refused; None if there cannot be
            one. Its certificate must not hold.
        best_known: ``(problem, result) -> objective`` of some release that keeps the guarantee, found otherwise
            (brute force); holds ``lower_bound`` against it. ``result`` says which method and unit.
        oracle: ``(problem, release, result) -> complaints``: an independent computation of what the release must meet;
            ``result`` is what result.json says. Nothing where all is well.
        claims: method -> guarantee kind that its paper claims, for methods of kind ``"none"``: what they are held
            against when named.
        notion: registered notion that the problems name in ``[privacy] kind``, where it is not the mechanism's own.
        epsilon: ``(problem) -> epsilon`` where it is not ``privacy.epsilon``.
        tolerance: relative difference that two losses which ought to be equal may have beyond the gap asked for, for
            methods that find no optimum and say so.
        skip: check -> reason, for checks that make no sense of this mechanism.
    """

    problems: SearchStrategy[GeneratedProblem]
    neighbours: Callable[[GeneratedProblem], Iterable[GeneratedProblem]] | None = None
    queries: Callable[[Any, str], Sequence[Query]] | None = None
    observed: Callable[[Any], ArrayLike] | None = None
    probabilities: Callable[[Any, str], Sequence[float]] | None = None
    alike: Callable[[Any], Iterable[tuple[str, str, float]]] | None = None
    draws: Callable[[Any, str, int], ArrayLike] | None = None
    stricter: Callable[[GeneratedProblem], GeneratedProblem | None] | None = None
    variants: Mapping[str, Callable[[GeneratedProblem, random.Random], Variant | None]] = field(factory=dict)

    @variants.validator
    def _known(self, _: object, variants: Mapping[str, object]) -> None:
        if unknown := sorted(variants.keys() - VARIANTS):
            raise UsageError(f"Profile.variants: names must be among {', '.join(sorted(VARIANTS))}, got {unknown[0]!r}")

    nothing_near: Callable[[GeneratedProblem], GeneratedProblem | None] | None = None
    best_known: Callable[[Any, Result], float | None] | None = None
    oracle: Callable[[Any, Any, Result], Iterable[str]] | None = None
    claims: Mapping[str, str] = field(factory=dict)
    notion: str = ""
    epsilon: Callable[[Any], Fraction] = _epsilon
    tolerance: float = 0.0
    skip: Mapping[str, str] = field(factory=dict)


def profile_of(mechanism: Mechanism[Any, Any]) -> Profile:
    """Return the profile that a mechanism names: itself, or a function that makes it of the problem class.

    Raises:
        RegistryError: it names none, what it names is not a profile, or there is none for its problem class.
    """
    name, found = type(mechanism).__name__, None
    if mechanism.kit:
        try:
            found = resolve_name(mechanism.kit)
        except (ImportError, AttributeError, ValueError) as error:
            raise RegistryError(f"{name}: kit {mechanism.kit!r} cannot be loaded: {error}") from error
        if not isinstance(found, Profile) and callable(found):
            found = found(mechanism.problem_class)
    if not isinstance(found, Profile):
        raise RegistryError(
            f"{name} must name a profile for the conformance kit: "
            f'kit = "package.module:PROFILE", a privopt.testing.Profile, got {mechanism.kit!r}'
        )
    return found
