"""The abstract classes that a plugin implements, and the values they exchange.

A mechanism takes a problem to an :class:`Outcome`; the pipeline (:mod:`privopt.run.solve`) measures the
release it holds with the mechanism's own :class:`PrivacyConstraint`, evaluates it with its
:class:`UtilityLoss`, and writes it only if the certificate holds. What is claimed
(:class:`Guarantee`) and what was measured (:class:`Certificate`) are different types.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, get_args

from attrs import Factory, define, evolve, field, frozen
from attrs.validators import in_

from privopt.declare.exact_text import exact_text
from privopt.declare.notebook import card
from privopt.errors import ModelError, StoppedError, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from privopt.dsl import Model, StandardForm
    from privopt.execution import Executor
    from privopt.run.report.geo import Layer
    from privopt.run.report.page import Section

__all__ = [
    "AGAIN",
    "Certificate",
    "Decomposer",
    "Evidence",
    "Guarantee",
    "Mechanism",
    "Objective",
    "Outcome",
    "PrivacyConstraint",
    "Progress",
    "Release",
    "SolveContext",
    "UtilityLoss",
]

AGAIN: Final = "A second release of the same secret: it spends epsilon again."
"""What no notion covers, in a report's words."""

Progress = Callable[[str, int, float | None, float | None], None]
"""``progress(phase, round, lower, upper)``: bounds in the objective's unit, None where unknown."""

Evidence = Literal["proved", "declared", "none"]
"""What a claim rests on: measured on the release itself; noise whose scale and sensitivity were checked, while that it
was drawn is its maker's word; or no guarantee at all."""


@frozen(kw_only=True)
class Guarantee:
    """What is claimed of a release.

    >>> Guarantee(kind="metric-dp", epsilon=Fraction(1), unit="per km", scope="all-pairs").to_json()["epsilon"]
    1.0

    Attributes:
        kind: name of a registered notion of privacy.
        epsilon: exact value; None where the kind has none. ``result.json`` holds it as the nearest double, and exactly
            in ``epsilon_text``: the decimal of the problem file, which is what is claimed.
        unit: of epsilon, e.g. ``"per km"`` or ``"per group"``.
        scope: which pairs or neighbours: ``"all-pairs"``, ``"neighbours"``, ``"own-matrix"`` for metric DP.
        statement: the promise in words: which inputs it makes alike, and against whom it holds.
        seeded: True where the noise of this release came from ``--seed``; then it is not private.
        extra: further fields of ``result.json``.
    """

    kind: str
    epsilon: Fraction | None = None
    unit: str = ""
    scope: str = ""
    statement: str = ""
    seeded: bool = False
    extra: Mapping[str, Any] = field(factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The ``guarantee`` object of result.json."""
        shown: dict[str, Any] = {
            "kind": self.kind,
            "epsilon": None if self.epsilon is None else float(self.epsilon),
            "epsilon_text": None if self.epsilon is None else exact_text(self.epsilon),
            "unit": self.unit,
            "scope": self.scope,
            "statement": self.statement,
            **self.extra,
        }
        if self.seeded:
            shown["seeded"] = True
            shown["warning"] = "seeded, not private"
        return shown

    def _repr_html_(self) -> str:
        return card("Guarantee", {name: value for name, value in self.to_json().items() if value not in (None, "")})


@frozen(kw_only=True)
class Certificate:
    """What was checked of a release, in exact arithmetic.

    Attributes:
        holds: whether the release keeps the guarantee; None where nothing is claimed.
        evidence: ``"proved"`` where the release itself was measured, ``"declared"`` where noise is its maker's word,
            ``"none"`` where nothing is claimed.
        rests_on: where the evidence is ``"declared"``, what nobody can check from the release, in words.
        kind: guarantee kind it was measured for.
        worst: greatest value found (metric DP: log ratio / distance, in epsilon's unit), rounded up.
        allowed: the greatest value permitted, same unit.
        checked: number of conditions checked (metric DP: pairs times outputs).
        arithmetic: what the decision rests on, in words.
        notes: further fields of ``result.json``.
        failures: what failed, one line each, worst first.
    """

    holds: bool | None
    evidence: Evidence = field(validator=in_(get_args(Evidence)))
    kind: str
    worst: float | None
    allowed: float | None
    checked: int
    arithmetic: str
    rests_on: str = ""
    notes: Mapping[str, Any] = field(factory=dict)
    failures: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The ``certificate`` object of result.json."""
        return {
            "holds": self.holds,
            "evidence": self.evidence,
            "kind": self.kind,
            "worst": self.worst,
            "allowed": self.allowed,
            "checked": self.checked,
            "arithmetic": self.arithmetic,
            **({"rests_on": self.rests_on} if self.rests_on else {}),
            **self.notes,
        }

    def _repr_html_(self) -> str:
        told = {True: "holds", False: "does not hold", None: "nothing claimed"}[self.holds]
        facts = {name: value for name, value in self.to_json().items() if name != "holds"}
        if self.failures:
            facts["failures"] = self.failures[:5]
        return card(f"Certificate: {told}", facts)


@frozen(kw_only=True)
class Objective:
    """What a release costs.

    Attributes:
        value: of the release itself, after the repair.
        lower_bound: proved bound on what any release could reach; None where there is none. Where the
            objective is maximised it is the upper bound.
        unit: of both.
        maximise: whether more is better.
    """

    value: float
    unit: str
    lower_bound: float | None = None
    maximise: bool = False

    @property
    def gap(self) -> float | None:
        """Relative gap, never negative; absolute difference where the objective is maximised."""
        if self.lower_bound is None or not math.isfinite(self.lower_bound):
            return None
        if self.maximise:
            return max(0.0, self.lower_bound - self.value)
        return max(0.0, (self.value - self.lower_bound) / max(abs(self.value), 1e-12))

    def to_json(self) -> dict[str, Any]:
        """The ``objective`` object of result.json."""
        return {"value": self.value, "lower_bound": self.lower_bound, "gap": self.gap, "unit": self.unit}


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

    def sample(self, input_id: str, count: int) -> list[str]:
        """Draw outputs for one secret from the operating system's entropy.

        Raises:
            UsageError: this kind of release cannot be sampled, or the input is unknown.
        """
        raise UsageError(f"{type(self).__name__} has no distribution to sample: it is one published result")

    def facts(self) -> Mapping[str, Any]:
        """A few public things to say of it in a notebook, by name."""
        return {}

    def _repr_html_(self) -> str:
        return card(f"Release: {type(self).__name__}", self.facts())


class PrivacyConstraint(ABC):
    """One notion of privacy: emits its rows into a model, measures a release, and says in words what it promises.

    Registered as a kind of role ``"notion"`` (:class:`privopt.specs.KindSpec`), under the name that
    :attr:`Guarantee.kind` has.

    Attributes:
        kind: that name.
        checks: families of the kit's checks that apply: ``"matrix"`` (the release is an obfuscation matrix),
            ``"noise"`` (fresh noise is added to counts), ``"choice"`` (one result, chosen without noise).
    """

    kind: ClassVar[str] = ""
    checks: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def keys(cls) -> type | None:
        """The class of ``[privacy]`` in metric problems where ``kind`` names this notion; None: it cannot be named."""
        return None

    @classmethod
    def promise(cls, result: Mapping[str, Any]) -> str:
        """What a release promises, in one sentence for everybody, from its result.json."""
        return str(result["guarantee"].get("statement") or "No statement.")

    @classmethod
    def limits(cls, result: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """What was checked of a release, and what was not: a line each."""
        return [str(result["certificate"]["arithmetic"])], [AGAIN]

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
    def measure(self, release: Any, *, executor: Executor | None = None) -> Certificate:
        """Measure a release in exact arithmetic; never trusts what the release says of itself."""


class UtilityLoss(ABC):
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
    def evaluate(self, release: Any) -> float | None:
        """Loss of a release, from public and released data alone; None where these do not determine it."""


class Decomposer(ABC):
    """Splits a compiled model into a master and blocks, and solves it."""

    @abstractmethod
    def solve(self, form: StandardForm, blocks: Sequence[Any], context: SolveContext) -> Any:
        """Solve ``form`` whose columns outside ``blocks`` are complicating."""


@frozen(kw_only=True)
class Outcome:
    """What a mechanism's ``solve`` returns.

    Attributes:
        release: what would be published.
        lower_bound: rigorous bound on the objective of any release (upper where it is maximised), or None.
        solver: ``name``, ``version``, ``iterations`` and what else tells the path taken.
        details: what else there is to say, for ``details.told`` of ``result.json``: nobody checks it. Its ``lp``
            (``value``, ``lower_bound``, ``gap``), where there is one, is what ``--gap`` and the status mean.
        stopped: True where a limit or an interrupt ended it early.
        seeded: True where a seed drew the noise.
        truth: what depends on secrets: goes to ``private/truth.json`` and nowhere else.
        trajectory: (seconds, lower, upper) by round, for pictures.
    """

    release: Release
    lower_bound: float | None = None
    solver: Mapping[str, Any] = field(factory=dict)
    details: Mapping[str, Any] = field(factory=dict)
    stopped: bool = False
    seeded: bool = False
    truth: Mapping[str, Any] | None = None


def _serial() -> Executor:
    from privopt.execution import serial

    return serial()


@define(kw_only=True)
class SolveContext:
    """How a mechanism shall work: everything that is not the problem.

    Attributes:
        method: name of one of the spec's methods.
        solver: backend for models: ``"cbc"`` or ``"highs"``.
        gap: relative gap asked for.
        deadline: :func:`time.monotonic` value to stop at; None for no limit.
        seed: for experiments only; a release that it drew is not private.
        executor: where parallel work runs.
        progress: called by long work.
        checkpoint: folder that a stopped run may leave its state in (made when first used), or None.
        resume: whether to go on from what is in ``checkpoint``.
        times: seconds by phase, filled by :meth:`timed`.
    """

    method: str
    solver: str = "cbc"
    gap: float = 1e-6
    deadline: float | None = None
    seed: int | None = None
    executor: Executor = Factory(_serial)
    progress: Progress | None = None
    checkpoint: Path | None = None
    resume: bool = False
    times: dict[str, float] = field(factory=dict)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Count the seconds of a block under ``build``, ``solve``, ``repair`` or ``verify``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.times[phase] = self.times.get(phase, 0.0) + time.perf_counter() - start

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """Stop where the deadline has passed and there is nothing feasible to return.

        Raises:
            StoppedError: it has.
        """
        if self.remaining == 0.0:
            raise StoppedError("the time limit came before anything feasible was found; nothing written")

    def report(self, phase: str, iteration: int = 0, lower: float | None = None, upper: float | None = None) -> None:
        """Tell the progress display, if there is one."""
        if self.progress is not None:
            self.progress(phase, iteration, lower, upper)

    def using(self, **changes: Any) -> SolveContext:
        """A copy with some fields changed; phases go on being counted here."""
        return evolve(self, **changes)


class Mechanism(ABC):
    """A paper's method, from problem to release: subclass it and name the class in a MechanismSpec.

    One that releases an obfuscation matrix subclasses :class:`privopt.metric.mechanism.MetricMechanism` instead, which
    leaves it one method to write.

    >>> class Shut(Mechanism):
    ...     problem_class = release_class = object  # an attrs class of keys; a Release
    ...     def privacy(self, problem, method): ...  # a PrivacyConstraint
    ...     def utility(self, problem, method): ...  # a UtilityLoss
    ...     def solve(self, problem, context):
    ...         context.check()
    ...         return Outcome(release=None)
    >>> Shut().solve(None, SolveContext(method="solve")).stopped
    False
    """

    problem_class: ClassVar[type]
    """attrs class declared with :func:`privopt.declare.key`: parsing, faults and ``describe`` follow from it."""

    release_class: ClassVar[type[Release]]

    scope: ClassVar[str] = ""
    """What the guarantee covers and against whom it holds, in words, for ``describe``."""

    private_folder: ClassVar[bool] = False
    """Whether all of DIR is its owner's own: then nobody else may enter it (0700)."""

    kit: ClassVar[str] = ""
    """``"package.module:PROFILE"``: the :class:`privopt.testing.Profile` that the conformance kit draws its
    problems and neighbours from; left out by mechanisms over :class:`privopt.metric.problem.MetricProblem`."""

    @abstractmethod
    def privacy(self, problem: Any, method: str) -> PrivacyConstraint:
        """The notion of privacy that the method's release claims."""

    def notion(self, problem: Any, method: str) -> str | None:
        """Name of the notion that the problem chose for a method, where it may choose; None: what is registered."""
        return None

    @abstractmethod
    def utility(self, problem: Any, method: str) -> UtilityLoss:
        """The loss that the method's release is judged by."""

    @abstractmethod
    def solve(self, problem: Any, context: SolveContext) -> Outcome:
        """Solve the problem; the pipeline certifies what comes back.

        Raises:
            InfeasibleError: the problem has no solution.
            StoppedError: a limit came before anything feasible.
            InputError: the problem's data contradict each other.
        """

    def public_files(self, problem: Any, release: Any) -> Mapping[str, bytes]:
        """Replacements for problem files that hold secrets, by the name the problem file gives them.

        A file declared ``secret`` goes to ``private/`` alone unless it has a replacement here, which
        then stands in ``problem/`` in its place.
        """
        return {}

    def verify(self, problem: Any, release: Any, result: Mapping[str, Any]) -> list[str]:
        """Further conditions that a written release must meet; one line for each that fails."""
        return []

    def details(self, problem: Any, release: Any, method: str, told: Mapping[str, Any]) -> Mapping[str, Any]:
        """What ``details`` of result.json says that follows from problem and release: ``verify`` computes it again.

        Args:
            problem: as published: secrets are absent when ``verify`` asks.
            release: what is published.
            method: that made it.
            told: ``details.told``, which nobody checks.
        """
        return {}

    def warnings(self, problem: Any, release: Any, result: Mapping[str, Any]) -> Sequence[str]:
        """What whoever uses the release must know though it holds: plain sentences, from public data alone.

        ``solve`` prints each on standard error after ``warning:``, the report after ``Warning:``.
        """
        return ()

    def meaning(self, problem: Any, release: Any, result: Mapping[str, Any]) -> Sequence[str]:
        """What the guarantee comes to on this problem, in plain sentences with figures, from public data alone.

        ``solve`` shows them below its table. What is wrong with a release belongs in :meth:`warnings`.
        """
        return ()

    def audit(self, problem: Any, release: Any, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """What an attacker gets: those keys of ``privopt audit --json`` that apply to this mechanism."""
        return {}

    def report(self, problem: Any, release: Any, result: Mapping[str, Any]) -> Sequence[Section]:
        """Body of the report, from public data alone; the frame around it is the same for all mechanisms."""
        return ()

    def report_truth(self, problem: Any, release: Any, result: Mapping[str, Any], private: Path) -> Sequence[Section]:
        """Sections that compare the release with the secrets in ``private``; they are written there only."""
        return ()

    def figures(self, problem: Any, release: Any, result: Mapping[str, Any]) -> Mapping[str, Figure]:
        """The report's figures by file name, without ending."""
        return {}

    def geo(self, problem: Any, release: Any, result: Mapping[str, Any]) -> Layer | None:
        """What a map shows of the release, from public data alone; None where it has no places."""
        return None
