"""The abstract classes for releases, for the privacy constraints that certify them, and for utility losses.

A plugin subclasses :class:`Release`, :class:`PrivacyConstraint` and :class:`UtilityLoss`, and its
:class:`~privopt.interfaces.mechanism.Mechanism` returns instances of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from attrs import frozen

from privopt import dsl
from privopt.errors import CertificationError, ModelError, UsageError
from privopt.interfaces.channel import Channel, NoisyCounts
from privopt.interfaces.result import AGAIN, Certificate, Guarantee, Result
from privopt.numbers.stated_rounding import COARSEST, FINEST, choose_unit, stated_above

R_contra = TypeVar("R_contra", contravariant=True)


class Release(ABC):
    """The published result of a mechanism. It can be written and read back. Some releases can also be sampled."""

    artefact: ClassVar[str] = ""
    """The name of the archive (.npz) containing the ``weights`` array, or "" for releases without weights."""

    private_folder: ClassVar[bool] = False
    """Whether only the owner may read the release folder (mode 0700)."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the release to ``folder``. The contents may depend on secrets only through the mechanism."""

    def write_private(self, folder: Path) -> None:  # noqa: B027  (most releases have nothing private)
        """Write files that only the owner may see to ``folder``, the release folder's ``private/`` subfolder."""

    @classmethod
    @abstractmethod
    def read(cls, folder: Path, problem: Any) -> Release:
        """Read the release back, using only the files in ``folder``.

        Args:
            folder: The release folder.
            problem: The loaded problem, for releases that cannot be reconstructed from their own files alone.
        """

    @classmethod
    def read_without_problem(cls, folder: Path) -> Release | None:
        """Read the release in a verified folder without loading its problem, so that reports can be drawn from it.

        Returns None if the release cannot be read without its problem.
        """
        return None

    def sample(self, input_id: str, count: int) -> list[str]:
        """Draw outputs for one secret, using randomness from the operating system.

        Raises:
            UsageError: The release has no distribution to sample.
        """
        raise UsageError(f"{type(self).__name__} has no distribution to sample: it is one published result")

    def channel(self) -> Channel | NoisyCounts | None:
        """Return the channel from secrets to reports, which is used to compute estimates from reports.

        Returns None if the release draws no reports.
        """
        return None


@frozen(kw_only=True)
class Shift:
    """A difference between two inputs that must be hidden by adding noise to some numbers.

    Attributes:
        law: The distribution of the noise: ``"laplace"`` (also for double geometric noise) or ``"gaussian"``.
        scale: The exact scale of the noise, or, for Gaussian noise, the variance.
        change: The L1 norm of the change in the numbers to which noise is added.
        square: The squared L2 norm of this change.
    """

    law: Literal["laplace", "gaussian"]
    scale: Fraction
    change: Fraction
    square: Fraction


class PrivacyConstraint(ABC, Generic[R_contra]):
    """A notion of privacy, which adds constraints to models, certifies releases and expresses guarantees in words.

    A notion is registered as a kind for the ``"notion"`` role (:class:`privopt.specs.KindSpec`), under the name used in
    :attr:`Guarantee.kind`.

    Attributes:
        kind: The name of the notion.
        odds: Whether the notion bounds how much more likely an output is for one input than for another. The bound is a
            factor of exp(epsilon * d) for inputs at distance d, where d is 1 for neighbouring inputs. The conformance
            kit attacks releases that claim such a notion.
        tails: Whether the bound may fail with a small probability, as given by the (epsilon, delta) pairs from
            :meth:`curve`. This applies to releases that are draws of noise.
        symmetric: Whether the bound holds in both directions. If False, as in one-sided DP or for quasi-metrics, pairs
            of inputs are ordered: no output is more than exp(epsilon * d) times as likely for the first input as for
            the second, but the ratio in the other direction is unbounded.
    """

    kind: ClassVar[str] = ""
    odds: ClassVar[bool] = False
    tails: ClassVar[bool] = False
    symmetric: ClassVar[bool] = True

    @classmethod
    def cost_of_call(cls, shift: Shift) -> Fraction | None:
        """Return the budget spent by one addition of noise, or None if this noise cannot satisfy the notion.

        The costs of successive additions add up.

        Args:
            shift: The noise, and the difference between the two inputs that the noise must hide.
        """
        # Laplace noise changes the odds of an output by a factor of at most exp(|x - x'| / scale) for each number x.
        return shift.change / shift.scale if shift.law == "laplace" else None

    @classmethod
    def budget_of(cls, guarantee: Guarantee) -> Fraction | None:
        """Return the total budget for all additions of noise, in the units of :meth:`cost_of_call`.

        Returns None if the guarantee has no such budget.
        """
        return guarantee.epsilon

    @classmethod
    def curve(cls, guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
        """Return (epsilon, delta) pairs implied by a guarantee.

        Each pair means that P(event | input) <= exp(epsilon) P(event | neighbour) + delta. The conformance kit searches
        for events that violate this inequality.
        """
        return () if guarantee.epsilon is None else ((float(guarantee.epsilon), 0.0),)

    @classmethod
    def keys(cls) -> type | None:
        """Return the attrs class for metric problems' ``[privacy]`` table, or None if they cannot use this notion."""
        return None

    @classmethod
    def promise(cls, result: Result) -> str:
        """Return the guarantee as a single plain sentence, such as ``result.guarantee.statement``.

        Args:
            result: The parsed contents of a release's result.json.
        """
        return str(result.guarantee.statement or "No statement.")

    @classmethod
    def warnings(cls, result: Result) -> Sequence[str]:
        """Return clauses that warn readers if the guarantee is valid but offers little protection."""
        return ()

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Return two lists of lines: the parts of the claim that were checked, and those that were not."""
        return [str(result.certificate.arithmetic)], [AGAIN]

    @classmethod
    def trust(cls, result: Result) -> str:
        """Return a sentence about who must be trusted, for use in a report's verdict, or "" if this is unknown."""
        return ""

    @classmethod
    def exposed_to(cls, result: Result) -> str:
        """Return a phrase naming the parties against whom the guarantee does not hold, or "" if there are none.

        The phrase is shown in the report's verdict.
        """
        return ""

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """The guarantee that a release may claim if it satisfies the constraint."""

    @property
    def relation(self) -> str:
        """The unit of amounts in a ledger, which is the guarantee's unit by default.

        A ledger only adds up amounts that have the same unit. A notion over distances appends the name of the distance,
        because epsilons for different distances cannot be added up.
        """
        return self.guarantee.unit

    def emit(self, model: dsl.Model, **symbols: Any) -> None:
        """Add the constraint's rows to a model. ``symbols`` are the variables and indices used in these rows."""
        # Notions that are satisfied by adding noise have no rows. Notions for optimised matrices override this method.
        raise ModelError(f"{type(self).__name__} has no rows to emit: the noise satisfies it, not a model")

    @abstractmethod
    def measure(self, release: R_contra) -> Certificate:
        """Certify a release in exact arithmetic, based on the released numbers rather than the release's own claims."""


class UtilityLoss(ABC, Generic[R_contra]):
    """A measure of utility loss, used as the objective of models and for evaluating releases.

    Attributes:
        unit: The unit of the loss.
        maximise: Whether larger values are better.
    """

    unit: str
    maximise: bool = False

    def emit(self, model: dsl.Model, **symbols: Any) -> None:
        """Set the model's objective. ``symbols`` are the variables and indices used in the objective."""
        raise ModelError(f"{type(self).__name__} has no form in a model")

    @abstractmethod
    def evaluate(self, release: R_contra) -> float | None:
        """Compute a release's loss from public and released data, or return None if these do not determine it."""

    def enclose(self, release: R_contra) -> tuple[float, float] | None:
        """Return proved lower and upper bounds on the loss of a release, or None if no bounds are known.

        If there are bounds, the published loss is rounded so that independent programs arrive at the same double.
        """
        return None

    def state(self, release: R_contra) -> tuple[float | None, float | None]:
        """Return the loss to publish for a release and the unit to which it is rounded up. Either may be None.

        Rounding is explained in :mod:`privopt.numbers.stated_rounding`. The unit is None if the loss is 0 or unknown,
        if there are no finite proved bounds on the loss, or if the bounds are so far apart that the unit would be too
        coarse.
        """
        value, enclosure = self.evaluate(release), self.enclose(release)
        if not value or enclosure is None or not math.isfinite(enclosure[1] - enclosure[0]):
            return value, None
        # Negated, because choose_unit rounds down, and a published loss must never be below the true one.
        unit = choose_unit(-enclosure[1], -enclosure[0])
        # If the unit is coarse relative to the loss, it would hide the loss's digits, so the loss is not rounded.
        rounded_loss = stated_above(enclosure[1], unit)
        return (rounded_loss, unit) if unit <= COARSEST * max(1.0, abs(rounded_loss)) else (value, None)

    def restate(self, release: R_contra, unit: float) -> float:
        """Return the loss of a release, rounded up using the unit recorded in its result.

        Raises:
            CertificationError: There are no proved bounds on the loss, or the unit could not have been chosen by
                :meth:`state`.
        """
        enclosure = self.enclose(release)
        if enclosure is None:
            raise CertificationError(f"the unit of a loss that is not rounded must be absent, got {unit!r}")
        # The rounded loss is the same on every machine only if both ends of the enclosure round to the same number.
        rounded_lower, rounded_upper = (stated_above(end, unit) if unit > 0.0 else math.nan for end in enclosure)
        if (
            not FINEST * abs(rounded_lower) <= unit <= COARSEST * max(1.0, abs(rounded_lower))
            or rounded_lower != rounded_upper
        ):
            raise CertificationError(
                f"the unit of a loss between {enclosure[0]!r} and {enclosure[1]!r} must be such that both are rounded "
                f"to the same value, as solve writes it, got {unit!r}"
            )
        return rounded_lower
