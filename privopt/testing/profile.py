"""The :class:`Profile`, which tells the conformance kit what it needs to know about a mechanism.

A mechanism names its profile with ``kit = "package.module:PROFILE"``. A mechanism whose problem class is
:class:`privopt_metric_dp.problem.declared.MetricProblem` needs no profile. If such a mechanism adds a required table,
or cannot solve some of the default profile's problems, :func:`privopt_metric_dp.kit.problems.metric_profile` makes a
profile in one line.
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
"""The names of the variants used by the kit's checks. A variant is a kind of equivalent problem."""


def _flatten(values: ArrayLike) -> NDArray[Any]:
    """Flatten values of any shape into a one-dimensional array."""
    return np.asarray(values).ravel()


@frozen(kw_only=True, eq=False)
class Query:
    """The values to which a mechanism adds noise in one call.

    Attributes:
        name: A description for messages, such as ``"counts of level 2"``.
        values: The true values before noise is added, of any shape.
        scale: The exact scale of the noise added to each value. This is the scale of Laplace or double geometric
            (discrete Laplace) noise, or the variance of Gaussian noise.
        sensitivity: The L1 sensitivity assumed by the mechanism or, for Gaussian noise, the squared L2 sensitivity.
            None if the mechanism does not specify a sensitivity for this call alone.
        law: ``"laplace"``, which includes double geometric noise, or ``"gaussian"``.
    """

    name: str
    values: NDArray[Any] = field(converter=_flatten)
    scale: Fraction = field(converter=Fraction)
    sensitivity: Fraction | int | None = None
    law: Literal["laplace", "gaussian"] = "laplace"


def _epsilon(problem: Any) -> Fraction:
    """Return the exact ``privacy.epsilon`` of a declared or loaded problem."""
    return Fraction(getattr(problem, "declared", problem).privacy.epsilon)


@frozen(kw_only=True, eq=False)
class Profile:
    """A description of a mechanism that tells the conformance kit how to test it.

    Only ``problems`` is required. Every other field enables additional checks. A check that needs a missing field is
    reported as skipped, together with the field's name.

    Functions that return problems take a :class:`GeneratedProblem`. All other functions take the problem as the
    mechanism loaded it.

    Attributes:
        problems: A Hypothesis strategy for small, valid problems, nearly all of which should be feasible. Every choice
            must list its simplest alternative first, so that Hypothesis can shrink failures.
        examples: Additional problems that are solved at every effort, such as the project's ``example.toml``
            (:func:`privopt.testing.examples_near`) or problems for which an iterative method needs several rounds.
        neighbours: For mechanisms that add noise, a function that returns all neighbours of a problem under the
            guarantee, or a representative selection of them. Under a notion that is not ``symmetric``, these are the
            neighbours against which the problem is protected.
        queries: A function ``(problem, method) -> queries`` that returns the values to which noise is added, call by
            call. By default, the calls to :mod:`privopt.numbers.noise` during a solve are recorded, which is preferable
            if the mechanism draws its noise there.
        observed: A function ``(release) -> numbers`` that returns the numbers in a release that depend on the secret.
            The statistical attack uses these numbers. Their count must not vary. The problem is solved again for each
            draw.
        probabilities: A function ``(problem, method) -> probabilities`` for a mechanism that chooses one of several
            outcomes instead of adding noise to numbers (the exponential mechanism, permute-and-flip). It returns the
            exact distribution of the outcomes. The number of outcomes must not vary. ``observed`` and ``draws`` then
            return the outcome's index, from 0.
        alike: A function that yields ``(id, id, distance)`` for each pair of secrets in a problem that a matrix or a
            sampler must make hard to distinguish. The pairs must be computed from the problem file, independently of
            the mechanism's code. If there are no distances, the distance is 1. By default, these are the pairs given by
            the problem or the release or, if neither gives any, all pairs of secrets. Under a notion that is not
            ``symmetric``, the pairs are ordered, and an output may be at most exp(epsilon * distance) times as likely
            for the first secret as for the second.
        draws: A function ``(problem, method, count) -> draws`` that returns ``count`` independent draws of the m
            numbers returned by ``observed``, as an array of shape (count, m). This function is useful if numbers can be
            drawn without one solve per draw. Each call must return new draws, even for equal arguments.
        stricter: A function that returns a copy of a problem with a stronger privacy requirement, or None if there is
            none. The loss of the stricter problem must not be lower.
        variants: Functions that make equivalent problems, keyed by the variant's name, ``"relabelling"``,
            ``"reordering"`` or ``"units"``. Each takes a problem and a random number generator, and returns a variant,
            or None if there is none.
        nothing_near: A function that returns a similar problem in which no pair of secrets is protected, or None if
            there is no such problem. The mechanism must reject it, or its certificate must not hold.
        best_known: A function ``(problem, result) -> objective`` that returns the objective of a release that satisfies
            the guarantee and was found by other means, such as brute force. It is compared with the mechanism's bound.
            ``result`` contains the method and the unit.
        oracle: A function ``(problem, release, result) -> complaints`` that independently checks the conditions that
            the release must satisfy, and returns one sentence per violation. ``result`` is the parsed result.json.
        claims: The kinds of guarantee that papers claim for methods whose own kind is ``"none"``, keyed by method name.
            These methods are checked against the paper's claim.
        notion: The registered notion named in the problems' ``[privacy] kind``, if it is not the mechanism's.
        epsilon: A function that returns a problem's epsilon. By default, this is the value of the key
            ``privacy.epsilon``.
        tolerance: The relative difference allowed between two losses that should be equal, in addition to the gap. It
            is meant for methods that do not claim to be optimal.
        skip: The reasons for leaving out checks that make no sense for this mechanism, keyed by check.
    """

    problems: SearchStrategy[GeneratedProblem]
    examples: Sequence[GeneratedProblem] = ()
    neighbours: Callable[[GeneratedProblem], Iterable[GeneratedProblem]] | None = None
    queries: Callable[[Any, str], Sequence[Query]] | None = None
    observed: Callable[[Any], ArrayLike] | None = None
    probabilities: Callable[[Any, str], Sequence[float]] | None = None
    alike: Callable[[Any], Iterable[tuple[str, str, float]]] | None = None
    draws: Callable[[Any, str, int], ArrayLike] | None = None
    stricter: Callable[[GeneratedProblem], GeneratedProblem | None] | None = None
    variants: Mapping[str, Callable[[GeneratedProblem, random.Random], Variant | None]] = field(factory=dict)

    @variants.validator
    def _check_variant_names(self, _: object, variants: Mapping[str, object]) -> None:
        """Reject unknown variant names, for which no check would run.

        Raises:
            UsageError: A name is not in :data:`VARIANTS`.
        """
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
    """Return the profile used by the conformance kit for a mechanism.

    The mechanism's attribute ``kit`` names either a profile or a function that makes one from the mechanism's problem
    class.

    Raises:
        RegistryError: The mechanism does not name a profile, or there is no profile for its problem class.
    """
    name, profile = type(mechanism).__name__, None
    if mechanism.kit:
        try:
            profile = resolve_name(mechanism.kit)
        except (ImportError, AttributeError, ValueError) as error:
            raise RegistryError(f"{name}: kit {mechanism.kit!r} cannot be loaded: {error}") from error
        # A base class can name a function instead, which makes a profile from the mechanism's problem class.
        if not isinstance(profile, Profile) and callable(profile):
            profile = profile(mechanism.problem_class)
    if not isinstance(profile, Profile):
        raise RegistryError(
            f"{name} must name a profile for the conformance kit: "
            f'kit = "package.module:PROFILE", a privopt.testing.Profile, got {mechanism.kit!r}'
        )
    return profile
