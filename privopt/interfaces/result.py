"""The contents of result.json as classes: guarantee (the claim), certificate (the check), objective and provenance.

Attribute names are used as keys in the file and are therefore part of its format (docs/reference/files.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, Literal, Self, get_args

from attrs import frozen

from privopt.declare.schema import document, key, non_negative, positive, share
from privopt.declare.toml_text import exact_text
from privopt.errors import number_of

AGAIN: Final = "A second release of the same secret: it spends epsilon again."
"""A line, shown in reports, about a limitation shared by all notions."""

SEEDED: Final = "seeded, not private"
"""The label for releases whose noise was drawn with a seed."""

Evidence = Literal["proved", "declared", "none"]
"""The evidence for a claim.

If "proved", the release itself was checked. If "declared", the scale and sensitivity of the noise were checked, but it
must be taken on trust that the noise was drawn. If "none", there is no guarantee.
"""


@frozen(kw_only=True)
class Guarantee:
    """The privacy guarantee claimed by a release.

    >>> Guarantee(kind="metric-dp", epsilon=Fraction(1), unit="per km", scope="all-pairs").to_json()["epsilon"]
    1.0

    Attributes:
        kind: The name of a registered notion of privacy.
        epsilon: The exact value, or None if the kind has no epsilon. ``result.json`` contains the nearest double and,
            in ``epsilon_text``, the exact value, which is the binding claim.
        unit: The unit of epsilon, such as ``"per km"`` or ``"per group"``.
        scope: The pairs or neighbours covered by the guarantee. For metric DP, ``"all-pairs"``, ``"neighbours"`` or
            ``"own-matrix"``.
        statement: The guarantee in words: which inputs are hard to distinguish, and for which attackers.
        seeded: Whether the noise was drawn from a seed (``--seed``). Such a release is not private.
        extra: Further fields of ``result.json``.
    """

    kind: str = key(help="name of a notion")
    epsilon: Fraction | None = key(None, help="a number above 0 or null")
    unit: str = key("", help="of epsilon")
    scope: str = key("", help="which pairs or neighbours")
    statement: str = key("", help="the promise in words")
    seeded: bool = key(False, help="whether a seed drew the noise", omit=True)
    extra: Mapping[str, Any] = key(factory=dict, help="further fields", rest=True)

    def to_json(self) -> dict[str, Any]:
        """Return the ``guarantee`` object of result.json."""
        # fromkeys only determines the order of the first keys. Their values are set by what follows.
        members = dict.fromkeys(("kind", "epsilon", "epsilon_text")) | document(self)
        if self.epsilon is not None:
            members |= {"epsilon": float(self.epsilon), "epsilon_text": exact_text(self.epsilon)}
        return members | ({"warning": SEEDED} if self.seeded else {})


@frozen(kw_only=True)
class Certificate:
    """The record of what was checked on a release, in exact arithmetic.

    Attributes:
        holds: Whether the release satisfies the guarantee, or None if nothing is claimed.
        evidence: ``"proved"``, ``"declared"`` or ``"none"``, as explained for :data:`Evidence`.
        rests_on: If the evidence is ``"declared"``, the assumption that cannot be checked from the release, in words.
            Otherwise "".
        kind: The kind of guarantee that was checked.
        worst: The largest value found, rounded up. For metric DP, the values are log ratios divided by distances, in
            the unit of epsilon.
        allowed: The largest permitted value, in the same unit.
        checked: The number of conditions checked. For metric DP, this is the number of pairs times the number of
            outputs.
        arithmetic: A description of the arithmetic used to decide whether the certificate holds.
        notes: Further fields of ``result.json``.
        failures: The conditions that were not met, one per line, worst first.
    """

    holds: bool | None = key(help="true, false or null")
    evidence: Evidence = key(help="proved, declared or none")
    kind: str = key(help="name of a notion")
    worst: float | None = key(help='a number, "inf" or null', infinite=True)
    allowed: float | None = key(help='a number, "inf" or null', infinite=True)
    checked: int = key(help="a count", check=non_negative)
    arithmetic: str = key(help="what the decision rests on")
    rests_on: str = key("", help="what no one can check", omit=True)
    notes: Mapping[str, Any] = key(factory=dict, help="further fields", rest=True)
    failures: tuple[str, ...] = ()  # without key(), because result.json is written only if there are none

    def __attrs_post_init__(self) -> None:
        """Check that ``evidence`` has one of the known values, in case a plugin misspelt it."""
        if self.evidence not in get_args(Evidence):
            raise ValueError(f"evidence must be one of {', '.join(get_args(Evidence))}, got {self.evidence!r}")

    @property
    def in_words(self) -> str:
        """A phrase stating how many conditions were checked, and how close the tightest one is to its limit."""
        conditions = f"{number_of(self.checked, 'condition')} checked"
        return f"{conditions}, tightest {self.worst:.9g} of {self.allowed:.9g} allowed"


SQUARED: Final = " squared"
"""The suffix of an objective's unit if the objective is a sum of squared differences."""

COUNTED: Final = {"locations": "protected", "photos": "deleted", "choices": "published"}
"""The words for what was done with the items counted by an objective, keyed by the objective's unit."""


@frozen(kw_only=True)
class Bounds:
    """The objective value of a release, and a proved bound on the objective value of any release.

    Attributes:
        value: The value of the release.
        lower_bound: The proved bound on the value of any release (an upper bound if the objective is maximised), or
            None if no bound is known.
        gap: The relative gap, or the absolute difference if the objective is maximised. It is never negative. It is
            None if there is no finite bound.
    """

    value: float = key(help='a number or "inf"', infinite=True)
    lower_bound: float | None = key(None, help='a number, "inf" or null', infinite=True)
    gap: float | None = key(None, help='a number, "inf" or null', infinite=True)

    @classmethod
    def of(cls, value: float, lower_bound: float | None, *, maximise: bool = False, **more: str | None) -> Self:
        """Return an instance with a gap computed from the value and the bound.

        Args:
            value: The value of the release.
            lower_bound: The proved bound on the value of any release, or None if no bound is known.
            maximise: Whether larger values are better. If so, the bound is an upper bound and the gap is a difference.
            more: Further fields defined by a subclass.
        """
        gap = None
        if lower_bound is not None and math.isfinite(lower_bound):
            # 1e-12 avoids a division by 0 if the value is 0.
            gap = lower_bound - value if maximise else (value - lower_bound) / max(abs(value), 1e-12)
        # A proved bound can lie slightly beyond the value, because the value is rounded separately.
        return cls(value=value, lower_bound=lower_bound, gap=None if gap is None else max(0.0, gap), **more)


@frozen(kw_only=True)
class Objective(Bounds):
    """The objective value of a published release, together with a proved bound and the gap.

    Attributes:
        unit: The unit of the value and the bound.
        bound_over: If the mechanism chose outputs, whether the bound covers only releases over the chosen outputs
            ("chosen") or releases over all candidates ("all"). Otherwise, None.
    """

    unit: str = key(help="of value and bound")
    bound_over: str | None = key(None, help='"chosen" or "all", where outputs were chosen', omit=True)

    @property
    def measured_quantity(self) -> str:
        """The quantity measured: a loss, a cost, a count of protected, deleted or published items, or a fit."""
        if self.unit.endswith(SQUARED):  # a bound on a sum of squares does not bound single errors
            return "fit to the noisy values"
        return "cost" if self.unit == "cost" else COUNTED.get(self.unit, "loss")

    @property
    def unit_in_words(self) -> str:
        """The unit in words for readers, such as "units of cost" for "cost". Squared units are explained."""
        noun = self.unit.removesuffix(SQUARED)
        # The unit follows a number, and "6,900 cost" is not English.
        unit = "units of cost" if self.unit == "cost" else self.unit
        return unit if noun == self.unit else f"{self.unit} (a sum of squared differences)"

    def unit_after(self, value: float) -> str:
        """Return the unit in words, in the form that follows a given number. It is singular after a count of 1.

        >>> objective = Objective(value=1.0, unit="photos")
        >>> objective.unit_after(1.0), objective.unit_after(2.0)
        ('photo', 'photos')
        """
        is_count = value == 1 and self.unit in COUNTED
        return self.unit.removesuffix("s") if is_count else self.unit_in_words


TOLD: Final = "told"
"""The key in ``details`` for fields that are not checked by ``verify``."""

LP: Final = "lp"
"""The key in ``details`` for the program that was solved, if its value differs from the objective.

If so, ``--gap`` and the status refer to the program.
"""

VALUE_UNIT: Final = "value_unit"
"""The key in ``details`` for the unit to which the objective's value is rounded up."""

FINE_GAP: Final = 1e-4
"""The largest requested gap that is not mentioned in :attr:`Result.status_in_words`."""


@frozen(kw_only=True)
class Plugin:
    """The installed package that provides a release's mechanism."""

    name: str = key(help="the distribution's name")
    version: str = key(help="its version")


@frozen(kw_only=True)
class ProblemFile:
    """The name and checksum of the problem file in ``problem/``."""

    file: str = key(help="its name")
    sha256: str = key(help="its SHA-256")


@frozen(kw_only=True)
class RunOptions:
    """The options with which the run was started."""

    method: str = key(help="name of a method")
    gap: float = key(help="a number above 0 and below 1", check=share)
    time_limit: float | None = key(help="a number above 0 or null", unit="seconds", check=positive)
    memory: float | None = key(help="a number above 0 or null", unit="GB", check=positive)
    solver: str = key(help="name of a solver")


@frozen(kw_only=True)
class Times:
    """The time in seconds taken by each phase, rounded up to whole seconds if the problem has secret files."""

    build: float = key(help="a number")
    solve: float = key(help="a number")
    repair: float = key(help="a number")
    verify: float = key(help="a number")
    total: float = key(help="a number")


@frozen(kw_only=True)
class Details:
    """Additional values provided by a mechanism about its release.

    Attributes:
        told: The fields that are not checked by ``verify``.
        value_unit: The rounding unit, or None if the objective's value is not rounded. The value is rounded up to an
            odd multiple of half this unit.
        lp: The value and bound of the program that was solved, if the status refers to that program.
        facts: Values that follow from the problem and the release. They are recomputed by ``verify``.
    """

    facts: Mapping[str, Any] = key(factory=dict, help="what follows from problem and release", rest=True)
    value_unit: float | None = key(None, help="a number above 0", check=positive, omit=True)
    lp: Bounds | None = key(None, help="the program that was solved", omit=True)
    told: Mapping[str, Any] = key(help="an object")


@frozen(kw_only=True)
class Result:
    """The claims made by a release folder about its release, i.e. the contents of ``result.json``.

    :meth:`to_json` converts the claims to JSON, and :func:`privopt.run.build_result.read_result` reads them back.
    ``verify`` recomputes every value except :attr:`time`, :attr:`solver` and ``details.told``.

    Attributes:
        mechanism, method: The names of the mechanism and the method.
        plugin: The installed package that provides the mechanism.
        privopt: The version of privopt.
        problem: The problem file.
        seed: The seed of the run, even if no noise was drawn from it, or None if no seed was given.
        asked: The options of the run.
        guarantee: The claimed privacy guarantee.
        objective: The loss and its bound.
        certificate: The record of what was checked.
        time: The time in seconds taken by each phase.
        solver: The name and version of the solver, and statistics about the search.
        details: Additional values from the mechanism.
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

    def __repr__(self) -> str:
        """Return a single line with the mechanism, loss, bound, guarantee and evidence.

        A list of all fields would fill a screen.
        """
        objective, guarantee = self.objective, self.guarantee
        bound = "no bound" if objective.lower_bound is None else f"bound {objective.lower_bound:.6g} {objective.unit}"
        budget = "" if guarantee.epsilon is None else f" epsilon {exact_text(guarantee.epsilon)} {guarantee.unit}"
        return (
            f"<{self.mechanism}: loss {objective.value:.6g} {objective.unit}, {bound}, "
            f"{guarantee.kind}{budget.rstrip()}, {self.mark or self.certificate.evidence}>"
        )

    @property
    def status(self) -> str:
        """``"optimal"`` if the bound shows that the requested gap was reached, and ``"feasible"`` otherwise."""
        # A bound over only the chosen outputs does not bound the optimum over all candidates.
        if self.objective.bound_over == "chosen":
            return "feasible"
        gap = (self.details.lp or self.objective).gap
        return "optimal" if gap is not None and gap <= self.asked.gap else "feasible"

    @property
    def told_bound(self) -> float | None:
        """The bound reported by the solver without a proof in the folder, or None if there is no such bound.

        It is stored under ``details.told.lower_bound``, and ``verify`` does not check it. A proof may be missing
        because, for example, it would require the true counts. The value is also None if result.json contains a proved
        bound.
        """
        bound: Any = self.details.told.get("lower_bound")
        # The details are not verified, so this can be any JSON value in a tampered folder, such as a huge integer.
        is_number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
        if not is_number or not -1e300 < bound < 1e300 or self.objective.lower_bound is not None:
            return None
        return float(bound)

    @property
    def status_in_words(self) -> str:
        """The status in words, for readers.

        It includes the requested gap if that is coarse, or states that the bound is missing or not proved.
        """
        if self.status == "optimal" and self.asked.gap > FINE_GAP:
            return f"optimal within the gap of {self.asked.gap:g} asked"
        if self.told_bound is not None and self.status == "feasible":
            value = self.objective.value
            # Absolute, because the bound lies above the value if the objective is maximised.
            is_met = abs(value - self.told_bound) <= self.asked.gap * max(abs(value), 1e-12)
            return f"{'optimal' if is_met else 'feasible'} by the solver's bound, which is not proved"
        without = self.status == "feasible" and self.objective.lower_bound is None
        return f"{self.status} (no lower bound to compare with)" if without else self.status

    @property
    def mark(self) -> str | None:
        """The label to show with a release that is not private, or None if the release is private."""
        if self.guarantee.seeded:
            return SEEDED
        return "no privacy guarantee" if self.certificate.evidence == "none" else None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document, with its keys in the order in which they are written."""
        # ``status`` is derived and not a field, so its place after ``seed`` is set here.
        leading_keys = dict.fromkeys(("mechanism", "method", "plugin", "privopt", "problem", "seed", "status"))
        return leading_keys | document(self) | {"status": self.status, "guarantee": self.guarantee.to_json()}
