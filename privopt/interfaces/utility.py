"""UtilityLoss: one loss, as an objective and evaluated on a release."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from privopt import dsl
from privopt.errors import CertificationError, ModelError
from privopt.numbers.stated_rounding import COARSEST, FINEST, choose_unit, stated_above

R_contra = TypeVar("R_contra", contravariant=True)


class UtilityLoss(ABC, Generic[R_contra]):
    """One loss: emits the objective and evaluates a release."""

    unit: str
    maximise: bool = False

    def emit(self, model: dsl.Model, **symbols: Any) -> None:
        """Set the model's objective; ``symbols`` are the variables and indices it speaks of."""
        raise ModelError(f"{type(self).__name__} has no form in a model")

    @abstractmethod
    def evaluate(self, release: R_contra) -> float | None:
        """Evaluate the loss of a release from public and released data alone; None if these do not determine it."""

    def enclose(self, release: R_contra) -> tuple[float, float] | None:
        """Return two numbers between which the loss of the released integers lies, exactly; None if unknown.

        Where it is known, the loss that a release states is rounded so that every program states the same double.
        """
        return None

    def state(self, release: R_contra) -> tuple[float | None, float | None]:
        """Return the loss that a release states, and the unit to which it is rounded up; None if there is none.

        (:mod:`privopt.numbers.stated_rounding`.) A loss of 0, or known so badly that a unit would be too coarse, has
        no unit.
        """
        value, ends = self.evaluate(release), self.enclose(release)
        if not value or ends is None or not math.isfinite(ends[1] - ends[0]):
            return value, None
        unit = choose_unit(-ends[1], -ends[0])
        stated = stated_above(ends[1], unit)
        return (stated, unit) if unit <= COARSEST * max(1.0, abs(stated)) else (value, None)

    def restate(self, release: R_contra, unit: float) -> float:
        """Return the loss rounded up to a unit that a release states."""
        ends = self.enclose(release)
        if ends is None:
            raise CertificationError(f"a unit of {unit!r}, of a loss that is not rounded")
        found, other = (stated_above(end, unit) if unit > 0.0 else math.nan for end in ends)
        if not FINEST * abs(found) <= unit <= COARSEST * max(1.0, abs(found)) or found != other:
            raise CertificationError(
                f"the unit of a loss between {ends[0]!r} and {ends[1]!r} must be one at which both are "
                f"rounded to the same, as solve writes it, got {unit!r}"
            )
        return found
