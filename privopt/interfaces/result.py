"""The content of result.json as one class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from privopt.declare.schema import document, key, positive, share
from privopt.interfaces.claims import SEEDED, Bounds, Certificate, Guarantee, Objective

TOLD: Final = "told"
"""Key of ``details`` for what no one checks."""

LP: Final = "lp"
"""Key of ``details`` for the program whose gap ``--gap`` and the status mean, where the objective has none."""

VALUE_UNIT: Final = "value_unit"
"""Key of ``details`` for the unit to which the value of the objective is rounded up."""

FINE_GAP: Final = 1e-4
"""A status names the gap that was asked for, where that is larger."""


@frozen(kw_only=True)
class Plugin:
    """What made the release."""

    name: str = key(help="the distribution's name")
    version: str = key(help="its version")


@frozen(kw_only=True)
class ProblemFile:
    """The problem file in ``problem/``."""

    file: str = key(help="its name")
    sha256: str = key(help="its SHA-256")


@frozen(kw_only=True)
class RunOptions:
    """The options of the run."""

    method: str = key(help="name of a method")
    gap: float = key(help="a number above 0 and below 1", check=share)
    time_limit: float | None = key(help="a number above 0 or null", unit="seconds", check=positive)
    memory: float | None = key(help="a number above 0 or null", unit="GB", check=positive)
    solver: str = key(help="name of a solver")


@frozen(kw_only=True)
class Times:
    """Seconds by phase; whole ones where a secret was read."""

    build: float = key(help="a number")
    solve: float = key(help="a number")
    repair: float = key(help="a number")
    verify: float = key(help="a number")
    total: float = key(help="a number")


@frozen(kw_only=True)
class Details:
    """What a mechanism has to say of its release.

    Attributes:
        told: what no one checks.
        value_unit: to odd multiples of half of it the value of the objective is rounded up; None where it is not.
        lp: value and bound of the program that was solved, where that is what the status means.
        facts: what follows from problem and release: ``verify`` computes it again.
    """

    facts: Mapping[str, Any] = key(factory=dict, help="what follows from problem and release", rest=True)
    value_unit: float | None = key(None, help="a number above 0", check=positive, omit=True)
    lp: Bounds | None = key(None, help="the program that was solved", omit=True)
    told: Mapping[str, Any] = key(help="an object")


@frozen(kw_only=True)
class Result:
    """All that a DIR says of its release, as ``result.json`` holds it.

    :meth:`to_json` writes it, :func:`privopt.run.result_file.read_result` reads it back.

    ``verify`` derives every figure again but for :attr:`time`, :attr:`solver` and ``details.told``.

    Attributes:
        mechanism, method: names.
        plugin: what made it.
        privopt: version.
        problem: its file.
        seed: that the noise came from, or that was given to what needs none.
        asked: the options of the run.
        guarantee, objective, certificate: as measured on the release.
        time: seconds by phase.
        solver: name, version and path of what solved it.
        details: the mechanism's own.
    """

    mechanism: str = key(help="name of a mechanism")
    method: str = key(help="name of a method")
    plugin: Plugin = key(help="an object")
    privopt: str = key(help="a version")
    problem: ProblemFile = key(help="an object")
    seed: int | None = key(help="a whole number or null")
    asked: RunOptions = key(help="an object")
    guarantee: Guarantee = key(help="an object")
    objective: Objective = key(help="an object")
    certificate: Certificate = key(help="an object")
    time: Times = key(help="an object")
    solver: Mapping[str, Any] = key(help="an object")
    details: Details = key(help="an object")

    @property
    def status(self) -> str:
        """``"optimal"`` if the gap asked for is met, otherwise ``"feasible"``, also without a bound.

        A bound over outputs that were chosen says nothing of the optimum.
        """
        if self.objective.bound_over == "chosen":
            return "feasible"
        gap = (self.details.lp or self.objective).gap
        return "optimal" if gap is not None and gap <= self.asked.gap else "feasible"

    @property
    def status_in_words(self) -> str:
        """The status, with the gap asked for where that is coarse, or with a note that no bound is known."""
        if self.status == "optimal" and self.asked.gap > FINE_GAP:
            return f"optimal within the gap of {self.asked.gap:g} asked"
        without = self.status == "feasible" and self.objective.lower_bound is None
        return f"{self.status} (no lower bound to compare with)" if without else self.status

    @property
    def mark(self) -> str | None:
        """The words that a release without privacy is shown with, wherever it is shown; None where it has some."""
        if self.guarantee.seeded:
            return SEEDED
        return "no privacy guarantee" if self.certificate.evidence == "none" else None

    def to_json(self) -> dict[str, Any]:
        """Return the document, its keys in the order in which they are written."""
        first = dict.fromkeys(("mechanism", "method", "plugin", "privopt", "problem", "seed", "status"))
        return first | document(self) | {"status": self.status, "guarantee": self.guarantee.to_json()}
