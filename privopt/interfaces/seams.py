"""What a plugin implements beside its mechanism: a release, a notion of privacy, a loss, a decomposer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from attrs import field, frozen

from privopt.declare.notebook import card
from privopt.errors import CertificationError, ModelError, UsageError
from privopt.exact.stated import COARSEST, FINEST, stated_above, unit_for
from privopt.interfaces.claims import AGAIN, Certificate, Guarantee

if TYPE_CHECKING:
    from privopt.arrays import Floats, Ints
    from privopt.dsl import Model, StandardForm
    from privopt.execution import Executor
    from privopt.interfaces.channel import Channel, NoisyCounts
    from privopt.interfaces.result import Result
    from privopt.interfaces.work import SolveContext

__all__ = ["Decomposed", "Decomposer", "PrivacyConstraint", "Release", "Shift", "UtilityLoss"]

R_contra = TypeVar("R_contra", contravariant=True)


@frozen(kw_only=True)
class Shift:
    """What one call of noise has to hide between two inputs.

    Attributes:
        law: ``"laplace"`` (double geometric too) or ``"gaussian"``.
        scale: of the noise, exact; of Gaussian noise the variance.
        change: sum of absolute changes of the numbers that noise is added to.
        square: sum of their squares.
    """

    law: Literal["laplace", "gaussian"]
    scale: Fraction
    change: Fraction
    square: Fraction


class Release(ABC):
    """What is published. Knows its artefact: how it is written, read back and sampled."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the artefact into ``folder``: public data alone, no secret but through the mechanism."""

    def write_private(self, folder: Path) -> None:  # noqa: B027  (most releases have nothing private)
        """Write into ``private/`` what only the owner may see."""

    @classmethod
    @abstractmethod
    def read(cls, folder: Path, problem: Any) -> Release:
        """Read the artefact back from the files in ``folder`` and nothing else.

        Raises:
            InputError: the artefact is missing or not of its form.
        """

    @classmethod
    def alone(cls, folder: Path) -> Release | None:
        """Read what drawing takes, without the problem, from a folder that holds; None where the problem is needed."""
        return None

    def sample(self, input_id: str, count: int) -> list[str]:
        """Draw outputs for one secret from the operating system's entropy.

        Raises:
            UsageError: this kind of release cannot be sampled, or the input is unknown.
        """
        raise UsageError(f"{type(self).__name__} has no distribution to sample: it is one published result")

    def channel(self) -> Channel | NoisyCounts | None:
        """How reports come from secrets, for whoever estimates the crowd; None where there are no reports to read."""
        return None

    def facts(self) -> Mapping[str, Any]:
        """A few public things to say of it in a notebook, by name."""
        return {}

    def _repr_html_(self) -> str:
        return card(f"Release: {type(self).__name__}", self.facts())


class PrivacyConstraint(ABC, Generic[R_contra]):
    """One notion of privacy: emits its rows into a model, measures a release, and says in words what it promises.

    Registered as a kind of role ``"notion"`` (:class:`privopt.specs.KindSpec`), under the name that
    :attr:`Guarantee.kind` has.

    Attributes:
        kind: that name.
        odds: whether it bounds the odds of every output between inputs at distance d by exp(epsilon d), d being 1
            where inputs are neighbours or not. The kit attacks releases of such a notion; what else it tries follows
            from what a release is.
        tails: whether it bounds that but for an event of small probability, for releases that are draws of noise: the
            pairs (epsilon, delta) of :meth:`curve`.
    """

    kind: ClassVar[str] = ""
    odds: ClassVar[bool] = False
    tails: ClassVar[bool] = False

    @classmethod
    def spent(cls, shift: Shift) -> Fraction | None:
        """What one call of noise spends between two inputs; calls add up. None: such noise does not keep the notion."""
        return shift.change / shift.scale if shift.law == "laplace" else None

    @classmethod
    def allowed(cls, guarantee: Guarantee) -> Fraction | None:
        """What all calls together may spend (:meth:`spent`) under a guarantee; None where it has no such number."""
        return guarantee.epsilon

    @classmethod
    def curve(cls, guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
        """Pairs (epsilon, delta) that follow from a guarantee: an event is likelier by the factor exp(epsilon), and by
        delta more, at most. The kit attacks releases at each.
        """
        return () if guarantee.epsilon is None else ((float(guarantee.epsilon), 0.0),)

    @classmethod
    def keys(cls) -> type | None:
        """The class of ``[privacy]`` in metric problems where ``kind`` names this notion; None: it cannot be named."""
        return None

    @classmethod
    def promise(cls, result: Result) -> str:
        """What a release promises, in one sentence for everybody, from its result.json."""
        return str(result.guarantee.statement or "No statement.")

    @classmethod
    def warnings(cls, result: Result) -> Sequence[str]:
        """Why a promise that holds is of little worth, from its result.json: sentences like a mechanism's warnings."""
        return ()

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """What was checked of a release, and what was not: a line each."""
        return [str(result.certificate.arithmetic)], [AGAIN]

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What a release that satisfies it may claim."""

    def emit(self, model: Model, **symbols: Any) -> None:
        """Add its rows to a model; ``symbols`` are the variables and indices they speak of.

        Raises:
            ModelError: this notion has no rows (additive noise, say).
        """
        raise ModelError(f"{type(self).__name__} has no rows to emit: it is kept by the noise, not by a model")

    @abstractmethod
    def measure(self, release: R_contra, *, executor: Executor | None = None) -> Certificate:
        """Measure a release in exact arithmetic; never trusts what the release says of itself."""


class UtilityLoss(ABC, Generic[R_contra]):
    """One loss: emits the objective and evaluates a release."""

    unit: str
    maximise: bool = False

    def emit(self, model: Model, **symbols: Any) -> None:
        """Set the model's objective; ``symbols`` are the variables and indices it speaks of.

        Raises:
            ModelError: this loss has no linear form.
        """
        raise ModelError(f"{type(self).__name__} has no form in a model")

    @abstractmethod
    def evaluate(self, release: R_contra) -> float | None:
        """Loss of a release, from public and released data alone; None where these do not determine it."""

    def enclose(self, release: R_contra) -> tuple[float, float] | None:
        """Two numbers between which the loss lies that the files mean, in exact arithmetic; None where nobody knows.

        Where it is known, the loss that a release states is rounded so that every program states the same double.
        """
        return None

    def state(self, release: R_contra) -> tuple[float | None, float | None]:
        """The loss that a release states, and the unit to which it is rounded up; None for either where there is none.

        (:mod:`privopt.exact.stated`.) A loss of 0, or known so badly that a unit would be too coarse, has no unit.
        """
        value, ends = self.evaluate(release), self.enclose(release)
        if not value or ends is None or not math.isfinite(ends[1] - ends[0]):
            return value, None
        unit = unit_for(-ends[1], -ends[0])
        stated = stated_above(ends[1], unit)
        return (stated, unit) if unit <= COARSEST * max(1.0, abs(stated)) else (value, None)

    def restate(self, release: R_contra, unit: float) -> float:
        """The loss rounded up to a unit that a release states.

        Raises:
            CertificationError: a unit that will not do.
        """
        ends = self.enclose(release)
        if ends is None:
            raise CertificationError(f"a unit of {unit!r}, of a loss that is not rounded")
        found, other = (stated_above(end, unit) if unit > 0.0 else math.nan for end in ends)
        if not FINEST * abs(found) <= unit <= COARSEST * max(1.0, abs(found)) or found != other:
            raise CertificationError(
                f"a unit of {unit!r}, of a loss between {ends[0]!r} and {ends[1]!r}: wanted one at which both are "
                f"rounded to the same, as solve writes it"
            )
        return found


@frozen(kw_only=True, eq=False)
class Decomposed:
    """What a decomposition found, in the form's own sense and units.

    Attributes:
        status: "optimal" (the gap asked for is reached), "feasible" (it stalled), "stopped" (limit or interrupt).
        x: (n,) best point.
        objective: at x.
        bound: proved bound on the optimum: below it where the form minimises, above where it maximises; None where
            there is none.
        duals: (m,) multipliers that prove the bound; None without one.
        rounds: of the method.
        trajectory: (seconds, lower, upper) by round; infinite where unknown.
        details: figures of the method.
    """

    status: str
    x: Floats
    objective: float
    bound: float | None = None
    duals: Floats | None = None
    rounds: int = 0
    trajectory: tuple[tuple[float, float, float], ...] = ()
    details: Mapping[str, Any] = field(factory=dict)

    @property
    def lower(self) -> float:
        """The lesser of objective and bound."""
        return min(self.objective, self.objective if self.bound is None else self.bound)

    @property
    def upper(self) -> float:
        """The greater of objective and bound."""
        return max(self.objective, self.objective if self.bound is None else self.bound)

    @property
    def gap(self) -> float | None:
        """``|objective - bound| / max(|objective|, 1e-12)``; None without a bound."""
        return None if self.bound is None else abs(self.objective - self.bound) / max(abs(self.objective), 1e-12)


class Decomposer(ABC):
    """Splits a compiled model into a master and blocks, and solves it.

    Registered as a kind of role ``"decomposer"``, and made without arguments, its name is a method of every mechanism
    that decomposes (:attr:`privopt.specs.MechanismSpec.decomposes`).
    """

    @abstractmethod
    def solve(self, form: StandardForm, blocks: Sequence[Sequence[int] | Ints], context: SolveContext) -> Decomposed:
        """Solve a form whose columns outside ``blocks`` are complicating.

        Args:
            form: linear, without integer columns.
            blocks: column numbers of each block; no row joins two blocks.
            context: solver of the parts, gap, deadline, executor, progress, checkpoint and resume.

        Raises:
            InfeasibleError, UnboundedError: the form is.
            StoppedError: stopped with nothing feasible.
        """
