"""The mechanisms of a curve, each read and checked against the problem first, and its points, one at one epsilon."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Floats, slices
from privopt.declare.exact_text import exact_text
from privopt.declare.schema import File
from privopt.errors import InputError, PrivoptError, UnknownNameError, UsageError
from privopt.interfaces import UtilityLoss
from privopt.interfaces.abilities import check_problem
from privopt.registry import registry
from privopt.run.attack_channel import bayes_error
from privopt.run.task import read_problem
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_tables.options import BETWEEN_RECORDS, describe_limits

__all__ = ["OF_RELEASE", "Line", "Point", "Refusals", "Setting", "Status", "adversary_error", "point_of", "read_lines"]

OF_RELEASE: Final = ("bayes_error", "error_p50", "error_p95", "epsilon_achieved", "adversary_error")
"""Figures of a point that its release has, whichever epsilon it stands at."""

BLOCK: Final = 1 << 24
"""Entries of a block of expected losses, at most."""

Status = Literal["optimal", "feasible", "infeasible", "stopped", "refused"]


@frozen(kw_only=True)
class Point:
    """One mechanism at one epsilon. Figures are None where nothing was found.

    Attributes:
        mechanism: its name.
        epsilon: exact.
        loss: of a certified release.
        lower_bound: proved for every release with this promise.
        gap: relative, as in result.json.
        bayes_error: how often an attacker's best guess from one report is wrong, under the prior.
        error_p50, error_p95: quantiles of the distance from record to report, under the prior.
        seconds: that it took.
        status: "optimal" where the gap asked for is met, else "feasible"; "infeasible", "stopped"; "refused" by a
            mechanism that cannot take the problem.
        epsilon_achieved: the least epsilon that the release keeps over the required pairs, exact and rounded up.
        adversary_error: expected loss of the attacker's best guess from one report under the prior, in the loss's own
            unit, among the outputs. None where the loss is not one of single reports.
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


def point_of(
    name: str,
    epsilon: Fraction,
    release: MatrixRelease,
    problem: MetricInstance[Any],
    loss: UtilityLoss[MatrixRelease],
    achieved: float | None,
) -> Point:
    """Return a certified release as a point, its bound and status to come.

    Args:
        name, epsilon: of the point.
        release: certified, of the problem's records, or of some of them.
        problem: with its prior and distances.
        loss: by which the release, and the guesses of an attacker, are judged.
        achieved: the least epsilon that the release keeps.
    """
    rows, prior = release.probabilities, problem.data.prior
    chosen = problem.data.records.numbers(release.records.tolist())  # all, or the senders alone
    prior = prior[chosen] / prior[chosen].sum()
    mass = np.zeros(problem.data.shape)
    mass[chosen] = prior[:, None] * rows
    middle, most = _error_quantiles(problem.data, mass)
    return Point(
        mechanism=name,
        epsilon=epsilon,
        loss=loss.evaluate(release),
        bayes_error=bayes_error(rows, prior),
        error_p50=middle,
        error_p95=most,
        status="feasible",
        epsilon_achieved=achieved,
        adversary_error=adversary_error(rows, loss.weighted) if isinstance(loss, ExpectedLoss) else None,
    )


def _error_quantiles(data: MetricData, mass: Floats) -> Sequence[float | None]:
    """Return the distances from record to report that hold half and 95 % of the mass (N, K); None where not known."""
    if not data.crossed:
        return None, None
    distances = (data.to_outputs if data.region is None else data.distance.to_outputs()).ravel()
    order = np.argsort(distances, kind="stable")
    cumulated = np.cumsum(mass.ravel()[order])
    places = np.searchsorted(cumulated, np.array([0.5, 0.95]) * cumulated[-1])
    quantiles: list[float] = distances[order[np.minimum(places, len(order) - 1)]].tolist()
    return quantiles


def adversary_error(probabilities: Floats, weighted: Floats) -> float:
    """Return the expected loss of the best guess at the record behind one report (Shokri et al., S&P 2011).

    For output k an attacker who knows the prior guesses the output y with the least sum_i p_i z_ik c_iy. The result is
    at most the loss of the release, which takes each output for itself.

    Args:
        probabilities: (N, K) z.
        weighted: (N, K) p_i c_ik.

    Notes:
        N K^2 multiplications, in blocks.
    """
    used = np.flatnonzero(probabilities.any(axis=0))
    count = probabilities.shape[1]
    parts = [used[part] for part in slices(len(used), count, BLOCK)]
    return math.fsum(least for part in parts for least in (probabilities[:, part].T @ weighted).min(axis=1).tolist())


@frozen(kw_only=True)
class Setting:
    """What is known of a problem before any report: what a page compares an attack on one report with.

    Attributes:
        noun: what a record is called.
        apart: how the distance of two records is measured, in a word or two.
        bayes_error: how often an attacker's best guess at the record is wrong, under the prior of all records.
        adversary_error: expected loss of the best guess under the same prior, in the loss's unit; None where the loss
            is not one of single reports.
        limits: what the promise does not cover, a sentence each.
        odds: whether every mechanism promises metric DP, which bounds the odds between two records.
    """

    noun: str = "record"
    apart: str = "apart"
    bayes_error: float | None = None
    adversary_error: float | None = None
    limits: tuple[str, ...] = ()
    odds: bool = True


@frozen(kw_only=True, eq=False)
class Line:
    """One mechanism along epsilon.

    Attributes:
        name: of the mechanism.
        mechanism: it, loaded.
        method, gap: how it is asked.
        problem: at the problem file's own epsilon.
        promise: what its bounds hold for.
        metric: whether that is metric DP.
    """

    name: str
    mechanism: Any
    method: str
    gap: float
    problem: MetricInstance[Any]
    promise: tuple[object, ...] = field(default=())
    metric: bool = False

    def stated(self, epsilon: Fraction) -> MetricInstance[Any]:
        """Return the problem with another epsilon; the edges of a region stay those of its own epsilon."""
        privacy = evolve(self.problem.declared.privacy, epsilon=epsilon)
        declared = evolve(self.problem.declared, privacy=privacy)
        return evolve(self.problem, declared=declared, data=evolve(self.problem.whole, epsilon=epsilon))

    def at(self, epsilon: Fraction) -> MetricInstance[Any]:
        """Return the problem to solve with another epsilon."""
        problem = self.stated(epsilon)
        if (
            problem.data.region is not None
        ):  # what its edges are held to, and where streets are divided, goes with epsilon
            again: MetricInstance[Any] = self.mechanism.load(problem.declared, problem.data.file)
            return again
        return problem

    @property
    def setting(self) -> Setting:
        """Return what is known before any report."""
        data, loss = self.problem.data, self.mechanism.utility(self.problem, self.method)
        placed = data.records.kind in ("geographic", "planar")
        promised = self.mechanism.privacy(self.problem, self.method).guarantee
        limits = describe_limits(promised)
        if placed and data.region is None:
            limits += (BETWEEN_RECORDS,)
        return Setting(
            noun="place" if placed else "record",
            apart="apart, from neighbour to neighbour" if promised.scope == "neighbours" else "apart",
            limits=limits,
            bayes_error=1.0 - float(data.prior.max()),
            adversary_error=float(loss.weighted.sum(axis=0).min()) if isinstance(loss, ExpectedLoss) else None,
        )

    @property
    def nested(self) -> bool:
        """Whether what is private at an epsilon is so at a larger one, so that bounds hold at smaller ones too.

        Snapping to streets is another with each epsilon, and bounds are of mechanisms that snap alike.
        """
        region = self.problem.data.region
        return region is None or region.steps == 0


@frozen(eq=False)
class Refusals:
    """The points that a mechanism cannot take, and why.

    Attributes:
        epsilons: of the curve, ascending.
        sentences: why, one for each mechanism.
    """

    epsilons: Sequence[Fraction]
    sentences: list[str] = field(factory=list, init=False)
    _errors: dict[tuple[str, Fraction], PrivoptError] = field(factory=dict, init=False)

    def __contains__(self, key: tuple[str, Fraction]) -> bool:
        return key in self._errors

    def add(self, name: str, errors: Mapping[Fraction, PrivoptError]) -> None:
        """Keep why a mechanism refuses some epsilons; the first of them gets a sentence."""
        said = any(named == name for named, _ in self._errors)
        self._errors.update({(name, epsilon): error for epsilon, error in errors.items()})
        if said or not errors:
            return
        epsilon, error = next(iter(errors.items()))
        where = "" if self.whole(name) else f" at epsilon {exact_text(epsilon)}"
        self.sentences.append(f"{name} refused{where}: {'; '.join(str(error).splitlines())}")

    def whole(self, name: str) -> bool:
        """Check whether a mechanism is refused at every epsilon."""
        return all((name, epsilon) in self for epsilon in self.epsilons)

    def point(self, name: str, epsilon: Fraction) -> Point:
        """Return a point without figures: refused, or else stopped."""
        refused = (name, epsilon) in self
        return Point(mechanism=name, epsilon=epsilon, status="refused" if refused else "stopped")

    @property
    def error(self) -> PrivoptError:
        """All faults as one error, or the first error that is not about the input."""
        errors = list(self._errors.values())
        other = next((error for error in errors if not isinstance(error, InputError)), None)
        every = [fault for error in errors if isinstance(error, InputError) for fault in error.faults]
        return other or InputError(dict.fromkeys(every))


def read_lines(names: Sequence[str], source: File, gap: float | None, refusals: Refusals) -> list[Line]:
    """Read the problem for each mechanism, and note which mechanisms cannot take it.

    Args:
        names: of mechanisms, each once.
        source: the problem file.
        gap: asked for, each method's own where None.
        refusals: what is added to.

    Returns:
        The mechanisms that could read the problem, those that refuse it among them.

    Raises:
        UnknownNameError: a mechanism is unknown.
        InputError, UsageError: not one mechanism could read the problem.
    """
    lines = []
    for name in names:
        try:
            line = _line(name, source, gap)
        except UnknownNameError:
            raise
        except (InputError, UsageError) as error:
            refusals.add(name, dict.fromkeys(refusals.epsilons, error))
            continue
        lines.append(line)
        checked = {epsilon: _refusal(line, epsilon) for epsilon in refusals.epsilons}
        refusals.add(name, {epsilon: error for epsilon, error in checked.items() if error is not None})
    if not lines:
        raise refusals.error
    return lines


def _refusal(line: Line, epsilon: Fraction) -> InputError | None:
    try:
        check_problem(line.mechanism, line.stated(epsilon), line.method)
    except InputError as error:
        return error
    return None


def _line(name: str, source: File, gap: float | None) -> Line:
    registered = registry().get(name)
    method = registered.method(None)
    mechanism = registered.load()
    problem = mechanism.load(read_problem(mechanism, source), source.name)
    if isinstance(problem, MetricInstance) and not isinstance(mechanism, MetricMechanism):
        raise UsageError(f"{name} does not release one matrix for all places, so it has no curve")
    if not isinstance(problem, MetricInstance):
        raise UsageError(f"{name} is not over places: its loss depends on the noise that is drawn, so it has no curve")
    privacy = mechanism.privacy(problem, method.name)
    promised = privacy.guarantee
    loss = mechanism.utility(problem, method.name)
    weighted = loss.weighted.tobytes() if isinstance(loss, ExpectedLoss) else id(loss)
    return Line(
        name=registered.spec.name,
        mechanism=mechanism,
        method=method.name,
        gap=method.gap if gap is None else gap,
        problem=problem,
        promise=(promised.kind, promised.unit, promised.scope, loss.unit, weighted),
        metric=isinstance(privacy, MetricDP),
    )
