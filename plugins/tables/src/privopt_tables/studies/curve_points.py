"""The lines and points of a figure that compares mechanisms over a range of epsilons.

Each line shows one mechanism, and each point shows the mechanism's result at one epsilon. :func:`read_lines` reads the
problem and creates a :class:`Line` for each mechanism that can read it. :class:`Refusals` records the points that
mechanisms cannot solve, and why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Floats, slices
from privopt.declare.schema import File
from privopt.declare.toml_text import exact_text
from privopt.errors import InputError, PrivoptError, UnknownNameError, UsageError
from privopt.interfaces import Channel, SolveContext, UtilityLoss
from privopt.interfaces.abilities import VariesEpsilon, channel_of, check_problem
from privopt.registry import registry
from privopt.run.attack_channel import bayes_error
from privopt.run.task import read_problem
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.problem.declared import PerKm
from privopt_tables.options import BETWEEN_RECORDS, describe_limits

__all__ = [
    "OF_RELEASE",
    "Line",
    "Point",
    "Refusals",
    "Setting",
    "Status",
    "adversary_error",
    "make_point",
    "read_lines",
]

OF_RELEASE: Final = ("bayes_error", "error_p50", "error_p95", "epsilon_achieved", "adversary_error")
"""The attributes of a :class:`Point` that depend only on its release, not on its epsilon."""

BLOCK: Final = 1 << 24
"""Maximum number of entries in a block of expected losses. It limits memory use."""

Status = Literal["optimal", "feasible", "infeasible", "stopped", "refused"]
"""The status of a point, explained in :class:`Point`."""


@frozen(kw_only=True)
class Point:
    """The results of one mechanism at one epsilon.

    Values that describe a release are None if no release was found.

    Attributes:
        mechanism: The name of the mechanism.
        epsilon: The exact epsilon.
        loss: The loss of a certified release.
        lower_bound: A proved lower bound on the loss of every release with this guarantee.
        gap: The relative gap between the loss and the lower bound.
        bayes_error: The probability, under the prior, that an attacker's best guess at the record after seeing one
            report is wrong.
        error_p50, error_p95: The median and the 95 % quantile of the distance from a record to its report, under the
            prior.
        seconds: The time taken to solve the point, in seconds.
        status: "optimal" if there is a release within the requested gap, "feasible" for any other release, "infeasible"
            if no release exists, "stopped" if a limit or an interruption ended the search, or "refused" if the
            mechanism cannot solve the problem.
        epsilon_achieved: The smallest epsilon that the release satisfies for all required pairs, computed exactly and
            rounded up.
        adversary_error: The expected loss of the best guess by an attacker who knows the prior and sees one report, in
            the same unit as the loss. None if the loss is not defined for single reports.
    """

    mechanism: str
    epsilon: Fraction
    loss: float | None = None
    lower_bound: float | None = None
    gap: float | None = None
    bayes_error: float | None = None
    error_p50: float | None = None
    error_p95: float | None = None
    seconds: float = 0.0
    status: Status = "stopped"
    epsilon_achieved: float | None = None
    adversary_error: float | None = None


def make_point(
    name: str,
    epsilon: Fraction,
    release: MatrixRelease,
    problem: MetricInstance[Any],
    loss: UtilityLoss[MatrixRelease],
    achieved: float | None,
) -> Point:
    """Return the point for a certified release, leaving out the lower bound, gap and solving time.

    Args:
        name: The name of the mechanism.
        epsilon: The point's epsilon.
        release: A certified release with matrix rows for all or some of the problem's records.
        problem: The problem, which provides the prior and the distances.
        loss: The loss used to evaluate the release and an attacker's guesses.
        achieved: The smallest epsilon that the release satisfies, or None if there is none.
    """
    rows, prior = release.probabilities, problem.data.prior
    # A release may have rows for only some of the records, which are then the only ones that send reports.
    record_numbers = problem.data.records.numbers(release.records.tolist())
    # The prior is restricted to these records.
    prior = prior[record_numbers] / prior[record_numbers].sum()
    mass = np.zeros(problem.data.shape)
    # The joint probabilities of records and reports, which are 0 for records that send none.
    mass[record_numbers] = prior[:, None] * rows
    median, high_quantile = _error_quantiles(problem.data, mass)
    return Point(
        mechanism=name,
        epsilon=epsilon,
        loss=loss.evaluate(release),
        bayes_error=bayes_error(rows, prior),
        error_p50=median,
        error_p95=high_quantile,
        status="feasible",
        epsilon_achieved=achieved,
        adversary_error=adversary_error(rows, loss.weighted) if isinstance(loss, ExpectedLoss) else None,
    )


def _error_quantiles(data: MetricData, mass: Floats) -> Sequence[float | None]:
    """Return the median and the 95 % quantile of the distance from a record to its report.

    Args:
        data: The problem's data.
        mass: (N, K) The joint probabilities of records and reports.

    Returns:
        The two distances in the problem's unit, or two Nones if the distances from records to outputs are unknown.
    """
    # The distances from records to outputs are known only if ``crossed`` is set.
    if not data.crossed:
        return None, None
    return _quantiles_of(data.to_outputs if data.region is None else data.distance.to_outputs(), mass)


def _quantiles_of(distances: Floats, mass: Floats) -> list[float]:
    """Return the median and the 95 % quantile of distances, weighted by an array ``mass`` of the same shape."""
    # A quantile is the smallest distance at which the cumulative mass reaches the quantile's share of the total mass.
    order = np.argsort(distances.ravel(), kind="stable")
    cumulated = np.cumsum(mass.ravel()[order])
    positions = np.searchsorted(cumulated, np.array([0.5, 0.95]) * cumulated[-1])
    quantiles: list[float] = distances.ravel()[order[np.minimum(positions, len(order) - 1)]].tolist()
    return quantiles


def adversary_error(probabilities: Floats, weighted: Floats) -> float:
    """Return the expected loss of an attacker's best guess after seeing one report (Shokri et al., S&P 2011).

    Let p_i be the prior probability of record i, z_ik the probability of output k for record i, and c_iy the loss of
    output y at record i. Given output k, an attacker who knows p guesses the output y that minimises sum_i p_i z_ik
    c_iy. The result is at most the loss of the release, because the attacker could always guess k itself.

    The computation takes N K^2 multiplications, and is done in blocks.

    Args:
        probabilities: (N, K) The obfuscation matrix with the entries z_ik.
        weighted: (N, K) The losses multiplied by the prior, p_i c_ik.
    """
    # Outputs that are never reported add nothing to the expected loss.
    nonzero_columns = np.flatnonzero(probabilities.any(axis=0))
    count = probabilities.shape[1]
    blocks = [nonzero_columns[block] for block in slices(len(nonzero_columns), count, BLOCK)]
    return math.fsum(
        min_loss for block in blocks for min_loss in (probabilities[:, block].T @ weighted).min(axis=1).tolist()
    )


@frozen(kw_only=True)
class Setting:
    """An attacker's errors before seeing any report, together with the words used on the page to describe records.

    The page compares these errors with the errors of an attacker who sees a report.

    Attributes:
        noun: The page's noun for a record, such as "place".
        apart: The words that follow the distance between two records in a sentence on the page, such as "apart".
        bayes_error: The probability that the attacker's best guess at the record is wrong, under the prior.
        adversary_error: The expected loss of the best guess under the prior, in the same unit as the loss. None if the
            loss is not defined for single reports.
        limits: Sentences on what the guarantee does not cover.
        odds: Whether every mechanism guarantees metric DP. If so, the page can state by how much one report changes the
            odds between two records.
    """

    noun: str = "record"
    apart: str = "apart"
    bayes_error: float | None = None
    adversary_error: float | None = None
    limits: tuple[str, ...] = ()
    odds: bool = True


@frozen(kw_only=True, eq=False)
class Line:
    """A mechanism and its problem. The mechanism's points form one line in the figure.

    Attributes:
        name: The name of the mechanism.
        mechanism: The loaded mechanism.
        method: The name of the method used to solve the problem.
        gap: The requested relative gap.
        problem: The problem with the epsilon given in the problem file.
        guarantee: A key that represents the guarantee and the loss. Mechanisms with equal keys share lower bounds.
        is_metric: Whether the guarantee is metric DP.
    """

    name: str
    mechanism: Any
    method: str
    gap: float
    problem: MetricInstance[Any]
    guarantee: tuple[object, ...] = field(default=())
    is_metric: bool = False

    def declare_at(self, epsilon: Fraction) -> MetricInstance[Any]:
        """Return the problem with a different epsilon, for use in checks that do not solve it.

        If the problem has a region, the region's edges are still those for the original epsilon.
        """
        # ``whole`` is the problem's data with all possible outputs. It is reused, because distances and losses do not
        # depend on epsilon.
        privacy = evolve(self.problem.declared.privacy, epsilon=epsilon)
        declared = evolve(self.problem.declared, privacy=privacy)
        return evolve(self.problem, declared=declared, data=evolve(self.problem.whole, epsilon=epsilon))

    def problem_at(self, epsilon: Fraction) -> MetricInstance[Any]:
        """Return the problem to be solved at a different epsilon.

        If there is a region, it is divided again for this epsilon.
        """
        problem = self.declare_at(epsilon)
        # The constraints on a region's edges, and the points at which its streets are divided, depend on epsilon.
        if problem.data.region is not None:
            reloaded: MetricInstance[Any] = self.mechanism.load(problem.declared, problem.data.file)
            return reloaded
        return problem

    @property
    def setting(self) -> Setting:
        """An attacker's errors before seeing any report, and the words used to describe records.

        Both are computed from this mechanism's problem.
        """
        data, loss = self.problem.data, self.mechanism.utility(self.problem, self.method)
        has_places = data.records.kind in ("geographic", "planar")
        guarantee = self.mechanism.privacy(self.problem, self.method).guarantee
        limits = describe_limits(guarantee)
        # A position that is not a record is only protected as if it were its nearest record.
        if has_places and data.region is None:
            limits += (BETWEEN_RECORDS,)
        # Without a report, the best guess is the most probable record, or the output with the lowest expected loss.
        return Setting(
            noun="place" if has_places else "record",
            # The scope "neighbours" means that only pairs up to a maximum distance are protected.
            apart="apart, from neighbour to neighbour" if guarantee.scope == "neighbours" else "apart",
            limits=limits,
            bayes_error=1.0 - float(data.prior.max()),
            adversary_error=float(loss.weighted.sum(axis=0).min()) if isinstance(loss, ExpectedLoss) else None,
        )

    @property
    def is_nested(self) -> bool:
        """Whether every release that is private at one epsilon is also private at every larger epsilon.

        If so, a lower bound for one epsilon is valid at every smaller epsilon. This does not hold for a region of
        streets, because the vertices that replace positions depend on epsilon.
        """
        region = self.problem.data.region
        return region is None or region.steps == 0

    @property
    def units(self) -> tuple[str, str]:
        """The unit of losses and the unit of distances."""
        return self.problem.data.loss_unit, self.problem.data.unit

    @property
    def per_km(self) -> PerKm | None:
        """The cost of 1 km of loss in a familiar unit, such as minutes. None if the problem does not specify it."""
        return self.problem.data.per_km

    def make_point(
        self, epsilon: Fraction, release: Any, problem: Any, loss: UtilityLoss[Any], achieved: float | None
    ) -> Point:
        """Return the point for a certified release, leaving out the lower bound, gap and solving time.

        Args:
            epsilon: The point's epsilon.
            release: A certified release.
            problem: The problem at this epsilon.
            loss: The loss used to evaluate the release.
            achieved: The smallest epsilon that the release satisfies, or None if there is none.
        """
        return make_point(self.name, epsilon, release, problem, loss, achieved)


@frozen(kw_only=True, eq=False)
class LawLine(Line):
    """The line of a mechanism that can change the epsilon of its problem (:class:`VariesEpsilon`).

    Attributes:
        problem: The problem, which is an instance of the mechanism's problem class.
    """

    problem: Any

    def declare_at(self, epsilon: Fraction) -> Any:
        """Return the problem with a different epsilon.

        Raises:
            InputError: The mechanism does not accept this epsilon.
        """
        return self.mechanism.at_epsilon(self.problem, epsilon)

    def problem_at(self, epsilon: Fraction) -> Any:
        """Return the problem to be solved. It is the same as the problem returned by :meth:`declare_at`."""
        return self.declare_at(epsilon)

    @property
    def setting(self) -> Setting:
        """An attacker's errors before seeing any report, and the words used to describe records.

        The errors are given only if the mechanism provides a channel (a matrix of output probabilities over finitely
        many inputs).
        """
        guarantee = self.mechanism.privacy(self.problem, self.method).guarantee
        setting = Setting(noun="position", limits=describe_limits(guarantee))
        release = self.mechanism.solve(self.problem, SolveContext(method=self.method, gap=self.gap)).release
        channel = channel_of(self.mechanism, self.problem, release)
        if not isinstance(channel, Channel):
            return setting
        prior, distances = _prior_of(channel), _distances_of(channel)
        # Without a report, the best guess is the place with the least expected distance.
        known_error = None if distances is None else float((prior @ distances).min())
        return evolve(setting, noun="place", bayes_error=1.0 - float(prior.max()), adversary_error=known_error)

    @property
    def is_nested(self) -> bool:
        """Always True, because every release that is private at one epsilon is also private at every larger epsilon."""
        return True

    @property
    def units(self) -> tuple[str, str]:
        """The unit of losses and the unit of distances, which are the same for this kind of mechanism."""
        loss = self.mechanism.utility(self.problem, self.method)
        return loss.unit, loss.unit

    @property
    def per_km(self) -> PerKm | None:
        """Always None, because these problems do not specify the cost of 1 km of loss."""
        return None

    def make_point(
        self, epsilon: Fraction, release: Any, problem: Any, loss: UtilityLoss[Any], achieved: float | None
    ) -> Point:
        """Return the point for a certified release, leaving out the lower bound, gap and solving time.

        If the release has a channel (a matrix of output probabilities over finitely many inputs), the point also
        contains an attacker's errors.

        Args:
            epsilon: The point's epsilon.
            release: A certified release, which is an instance of the mechanism's release class.
            problem: The problem at this epsilon, which is an instance of the mechanism's problem class.
            loss: The loss used to evaluate the release.
            achieved: The smallest epsilon that the release satisfies, or None if there is none.
        """
        point = Point(
            mechanism=self.name,
            epsilon=epsilon,
            loss=loss.evaluate(release),
            status="feasible",
            epsilon_achieved=achieved,
        )
        channel = channel_of(self.mechanism, problem, release)
        if not isinstance(channel, Channel):
            return point
        rows, prior, distances = channel.probabilities, _prior_of(channel), _distances_of(channel)
        point = evolve(point, bayes_error=bayes_error(rows, prior))
        # The attacker's loss is a distance here, so it can be compared with the loss only if both have the same unit.
        if distances is None or channel.unit != loss.unit:
            return point
        median, high_quantile = _quantiles_of(distances, prior[:, None] * rows)
        return evolve(
            point,
            error_p50=median,
            error_p95=high_quantile,
            adversary_error=adversary_error(rows, prior[:, None] * distances),
        )


def _prior_of(channel: Channel) -> Floats:
    """Return the prior over a channel's inputs, or a uniform prior if the channel has none."""
    count = len(channel.inputs)
    return np.full(count, 1.0 / count) if channel.prior is None else channel.prior


def _distances_of(channel: Channel) -> Floats | None:
    """Return the distances from a channel's inputs to its outputs, or None if they are not available.

    They are available only if the channel has distances and its outputs are the same as its inputs.

    Returns:
        (N, N) The distances, or None.
    """
    if channel.distances is None or list(channel.inputs) != list(channel.outputs):
        return None
    return channel.distances(np.arange(len(channel.inputs)))


@frozen(eq=False)
class Refusals:
    """A record of which points are refused by mechanisms, and why.

    A mechanism refuses a point if it cannot solve the problem at the point's epsilon.

    Attributes:
        epsilons: The epsilons of the curves, in ascending order.
        sentences: The reasons, with one sentence for each mechanism that refuses a point.
        _errors: The error at each refused point, keyed by mechanism and epsilon.
    """

    epsilons: Sequence[Fraction]
    sentences: list[str] = field(factory=list, init=False)
    _errors: dict[tuple[str, Fraction], PrivoptError] = field(factory=dict, init=False)

    def __contains__(self, key: tuple[str, Fraction]) -> bool:
        """Return whether a point is refused, given its mechanism's name and its epsilon."""
        return key in self._errors

    def add(self, name: str, errors: Mapping[Fraction, PrivoptError]) -> None:
        """Record a mechanism's errors at the epsilons that it refuses, and add a sentence about its first refusal.

        Args:
            name: The name of the mechanism.
            errors: The errors, keyed by epsilon.
        """
        # One sentence for each mechanism is enough.
        has_sentence = any(refused_name == name for refused_name, _ in self._errors)
        self._errors.update({(name, epsilon): error for epsilon, error in errors.items()})
        if has_sentence or not errors:
            return
        epsilon, error = next(iter(errors.items()))
        scope = "" if self.refuses_all(name) else f" at epsilon {exact_text(epsilon)}"
        self.sentences.append(f"{name} refused{scope}: {'; '.join(str(error).splitlines())}")

    def refuses_all(self, name: str) -> bool:
        """Return whether a mechanism refuses every epsilon."""
        return all((name, epsilon) in self for epsilon in self.epsilons)

    def point(self, name: str, epsilon: Fraction) -> Point:
        """Return a point without results.

        Its status is "refused" if the mechanism refuses ``epsilon``, and "stopped" otherwise.
        """
        is_refused = (name, epsilon) in self
        return Point(mechanism=name, epsilon=epsilon, status="refused" if is_refused else "stopped")

    @property
    def error(self) -> PrivoptError:
        """The error to raise for the refusals as a whole.

        This is the first error that is not an InputError or, if there is none, a single InputError that combines all
        faults.
        """
        errors = list(self._errors.values())
        usage_error = next((error for error in errors if not isinstance(error, InputError)), None)
        faults = [fault for error in errors if isinstance(error, InputError) for fault in error.faults]
        # Several mechanisms may find the same fault, which is reported only once.
        return usage_error or InputError(dict.fromkeys(faults))


def read_lines(names: Sequence[str], source: File, gap: float | None, refusals: Refusals) -> list[Line]:
    """Read the problem for each mechanism, and record which points the mechanisms refuse.

    Args:
        names: The names of the mechanisms, which must be distinct.
        source: The problem file.
        gap: The requested relative gap. If None, the default gap of each method is used.
        refusals: The object to add refusals to.

    Returns:
        The lines of the mechanisms that could read the problem, including those that refuse some or all epsilons.

    Raises:
        UnknownNameError: A mechanism is unknown.
        InputError, UsageError: No mechanism could read the problem.
    """
    lines = []
    for name in names:
        try:
            line = _read_line(name, source, gap)
        # A misspelt name is the user's error, not a refusal.
        except UnknownNameError:
            raise
        except (InputError, UsageError) as error:
            refusals.add(name, dict.fromkeys(refusals.epsilons, error))
            continue
        lines.append(line)
        errors_by_epsilon = {epsilon: _find_refusal(line, epsilon) for epsilon in refusals.epsilons}
        refusals.add(name, {epsilon: error for epsilon, error in errors_by_epsilon.items() if error is not None})
    if not lines:
        raise refusals.error
    return lines


def _find_refusal(line: Line, epsilon: Fraction) -> InputError | None:
    """Return the error raised if a line's mechanism refuses an epsilon, or None if it accepts the epsilon."""
    try:
        check_problem(line.mechanism, line.declare_at(epsilon), line.method)
    except InputError as error:
        return error
    return None


def _read_line(name: str, source: File, gap: float | None) -> Line:
    """Load a mechanism and read the problem for it.

    Args:
        name: The name of the mechanism.
        source: The problem file.
        gap: The requested relative gap. If None, the method's default gap is used.

    Raises:
        UnknownNameError: The mechanism is unknown.
        InputError: The mechanism cannot read the problem file.
        UsageError: The mechanism has no curve. Either its problem is over places but it does not release one matrix for
            all of them, or its problem is of another kind and it cannot change the epsilon.
    """
    entry = registry().get(name)
    method = entry.method(None)
    mechanism = entry.load()
    problem = mechanism.load(read_problem(mechanism, source), source.name)
    varies_epsilon = isinstance(mechanism, VariesEpsilon)
    if isinstance(problem, MetricInstance) and not isinstance(mechanism, MetricMechanism):
        raise UsageError(f"{name} does not release one matrix for all places, so it has no curve")
    if not isinstance(problem, MetricInstance) and not varies_epsilon:
        raise UsageError(f"{name} is not over places: its loss depends on the noise that is drawn, so it has no curve")
    privacy = mechanism.privacy(problem, method.name)
    guarantee = privacy.guarantee
    loss = mechanism.utility(problem, method.name)
    # Expected losses with equal values count as the same loss. A loss of any other class is not shared with other
    # mechanisms.
    weighted = loss.weighted.tobytes() if isinstance(loss, ExpectedLoss) else id(loss)
    return (LawLine if varies_epsilon else Line)(
        name=entry.spec.name,
        mechanism=mechanism,
        method=method.name,
        gap=method.gap if gap is None else gap,
        problem=problem,
        guarantee=(guarantee.kind, guarantee.unit, guarantee.scope, loss.unit, weighted),
        is_metric=isinstance(privacy, MetricDP) or (varies_epsilon and guarantee.kind == MetricDP.kind),
    )
