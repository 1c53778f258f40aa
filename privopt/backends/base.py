"""The base class of solvers: a ``StandardForm`` in, a checked ``Result`` out.

A solve is a search over attempts (settings of the backend, then of its substitute) for an answer that passes its
checks.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any, Unpack

import numpy as np
from attrs import evolve, field, frozen

from privopt.backends.checks import (
    MIP_RESOLUTION,
    can_be_unbounded,
    check_answer,
    check_vector,
    cost_magnitude,
    fix_dear_columns,
    recession_form,
)
from privopt.backends.raw import FailedCheckError, Raw, RejectedAnswerError
from privopt.backends.session import ColdSession, Session
from privopt.dsl.condition import CoefficientRange, ScaledForm, condition
from privopt.dsl.form import StandardForm, round_integer_bounds
from privopt.dsl.outcome import Outcome, Result
from privopt.dsl.solution import SolveInterrupt, SolveOptions
from privopt.errors import SolverError, UsageError
from privopt.execution.clock import granted
from privopt.registry import registry

__all__ = [
    "Backend",
    "Capabilities",
    "Options",
    "Outcome",
    "Raw",
    "RejectedAnswerError",
    "ScaledForm",
    "can_be_unbounded",
    "check_answer",
    "check_vector",
]

METHODS = ("auto", "simplex", "ipm")
MIN_GAP = 1e-7
"""The relative gap that is resolved at least where a smaller one is asked of a search over integers."""
LARGEST_COST = 2.0**40
"""Costs are not scaled up beyond this."""


@frozen(kw_only=True)
class Options:
    """Options of one solve, as :meth:`Backend.solve` takes them.

    Attributes:
        time_limit: seconds of wall time; what the scopes of time around leave, if that is less.
        gap: relative gap at which a search over integers may stop.
        method: "auto", "simplex" or "ipm" for LPs.
        threads: for the solver.
        seed: of the solver's own tie breaking.
    """

    time_limit: float | None = None
    gap: float = 1e-6
    method: str = "auto"
    threads: int = 1
    seed: int = 0


def read_options(options: Mapping[str, Any]) -> Options:
    """Check the options of a solve.

    Raises:
        UsageError: An option is unknown, or its value is not one that it can have.
    """
    names = tuple(SolveOptions.__annotations__)
    for name in options:
        if name not in names:
            raise UsageError(f"a solve has the options {', '.join(names)}, got {name!r}")
    checked = Options(**options)
    limit, gap = checked.time_limit, checked.gap
    if limit is not None and not (_is_number(limit) and limit > 0):
        raise UsageError(f"time limit must be seconds above 0, got {limit!r}")
    if not (_is_number(gap) and 0 <= gap < math.inf):
        raise UsageError(f"gap must be a finite number, 0 or more, got {gap!r}")
    if checked.method not in METHODS:
        raise UsageError(f"method must be auto, simplex or ipm, got {checked.method!r}")
    for name, lowest in (("threads", 1), ("seed", 0)):
        value = getattr(checked, name)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not lowest <= value < 2**31:
            raise UsageError(f"{name} must be a whole number from {lowest} to {2**31 - 1}, got {value!r}")
    return evolve(checked, time_limit=None if limit in (None, math.inf) else float(limit), gap=float(gap))


def _is_number(value: object) -> bool:
    """Return whether a value is a real number, and not a boolean."""
    return isinstance(value, Real) and not isinstance(value, bool)


@frozen(kw_only=True)
class Capabilities:
    """A backend's capabilities, known before it is loaded.

    Attributes:
        mip: integer columns.
        duals: multipliers and reduced costs of LPs.
        bearing: coefficients that it can work with.
    """

    mip: bool = True
    duals: bool = True
    bearing: CoefficientRange = field(factory=CoefficientRange)


class Backend(ABC):
    """Base class of solvers.

    >>> import numpy as np
    >>> from privopt.backends import get
    >>> from privopt.dsl.form import StandardForm
    >>> form = StandardForm(c=[1, 1], A=[[1, 2]], row_lower=[2], row_upper=[np.inf], col_lower=[0, 0],
    ...                     col_upper=[9, 9], integrality=[0, 0])
    >>> get("highs").solve(form).objective
    1.0

    Attributes:
        name: of the solver, as it is registered.
        capabilities: what it can do.
        attempts: settings that it can try, one after the other, if an answer fails its checks.
        substitute: name of the solver that is asked if none of these answers passes; None for no other.
    """

    name: str
    capabilities: Capabilities
    attempts: int = 1
    substitute: str | None = None

    def solve(self, form: StandardForm, **options: Unpack[SolveOptions]) -> Result:
        """Solve a form.

        Every answer is checked in the units of the form (:mod:`privopt.backends.checks`). If one fails, the solver is
        tried with other settings and other scaled costs, then its substitute, within the same time limit. If all fail,
        the best feasible point is returned as feasible, with a bound that multipliers prove.

        Args:
            form: The model. Bounds of its integer columns are rounded inwards first.
            options: Those of :class:`Options`.

        Raises:
            SolverError: The solver died, refused the form, or gave no vector that satisfies rows, bounds and integers.
            SolveInterrupt: An interrupt came, and a feasible point is known.
            UsageError: An option cannot have the value that it was given.
        """
        checked = read_options(options)
        limit = granted(checked.time_limit)
        lower, upper = round_integer_bounds(form.col_lower, form.col_upper, form.integrality)
        if (lower > upper).any():
            column = int(np.flatnonzero(lower > upper)[0])
            text = f"no value lies between the bounds of {form.column_name(column)}"
            return Result(outcome=Outcome.INFEASIBLE, solver=self.title(), message=text)
        if lower is not form.col_lower:
            form = evolve(form, col_lower=lower, col_upper=upper)
        return _Search(self, form, evolve(checked, time_limit=limit)).run()

    def session(
        self,
        form: StandardForm,
        *,
        tolerance: float = 1e-9,
        options: Mapping[str, Any] | None = None,
    ) -> Session:
        """Return an LP that is changed and solved again. The default session solves from scratch each time.

        Args:
            form: the model as it is at first.
            tolerance: by which rows and reduced costs may be missed, where the solver takes such a setting.
            options: settings of the solver by its own names, where it keeps sessions of its own.
        """
        return ColdSession(self, form)

    def explain(self, form: StandardForm, time_limit: float = 20.0) -> str:
        """Explain why a form has no solution: the families, or rows, that clash.

        Raises:
            SolverError: the form has a solution after all.
        """
        from privopt.backends.diagnose import find_clash

        explanation = find_clash(form, time_limit=time_limit)
        if explanation.contradicted:
            raise SolverError("one solver calls the model infeasible, but highs finds a point that satisfies every row")
        return str(explanation)

    def title(self) -> str:
        """Return the name and the version, as they appear in results and messages."""
        return f"{self.name} {self.version()}"

    @abstractmethod
    def version(self) -> str:
        """Return the version of the solver."""

    @abstractmethod
    def solve_scaled(self, conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
        """Solve the scaled form with the settings of an attempt (from 0).

        Raises:
            RejectedAnswerError: The solver gave up.
        """


class _Search:
    """One solve: attempts of a backend and of its substitute until an answer passes its checks."""

    def __init__(self, backend: Backend, form: StandardForm, options: Options) -> None:
        self.backend, self.form, self.options = backend, form, options
        self.flip = 1.0 if form.sense == "min" else -1.0
        self.started = time.monotonic()
        self.points: list[Result] = []

    def run(self) -> Result:
        """Return the first answer that passes, or else the best feasible point with a proved bound."""
        failure: RejectedAnswerError | None = None
        for backend, attempt in self._list_attempts():
            if failure is not None and self.remaining == 0.0:  # the first attempt is made, however late it is
                break
            if backend is not self.backend and not isinstance(failure, FailedCheckError):
                break  # the substitute corrects wrong answers; a solver that gives up or aborts says so
            try:
                return self._run_attempt(backend, attempt)
            except RejectedAnswerError as error:
                if isinstance(error, FailedCheckError):
                    self.points += [] if error.point is None else [error.point]
                    failure = failure if isinstance(failure, FailedCheckError) else error
                else:
                    failure = failure or error
        assert failure is not None
        if not self.points:
            raise failure
        return self._best_point(str(failure))

    @property
    def remaining(self) -> float | None:
        """Seconds until the time limit; None without one."""
        limit = self.options.time_limit
        return None if limit is None else max(limit - (time.monotonic() - self.started), 0.0)

    def _list_attempts(self) -> Iterator[tuple[Backend, int]]:
        """Yield backends with the numbers of their settings, the substitute's last."""
        for attempt in range(self.backend.attempts):
            yield self.backend, attempt
        substitute = self._load_substitute()
        if substitute is not None:
            for attempt in range(substitute.attempts):
                yield substitute, attempt

    def _load_substitute(self) -> Backend | None:
        """Create the substitute, or return None if there is none."""
        name = self.backend.substitute
        return None if name is None else registry().kind("solver", name).load()()

    def _remaining_options(self) -> Options:
        """Return the options with the time that is left, of which a started attempt gets 0.1 s at least."""
        remaining = self.remaining
        return self.options if remaining is None else evolve(self.options, time_limit=max(remaining, 0.1))

    def _run_attempt(self, backend: Backend, attempt: int) -> Result:
        """Solve with one backend's settings, and check what the answer claims of the model.

        Raises:
            RejectedAnswerError: The solver gave up, or its answer failed a check.
        """
        conditioned = condition(self.form, backend.capabilities.bearing)
        if self.points:
            conditioned = self._scale_costs_up(backend, conditioned, min(self.points, key=self._cost_of))
        is_first = attempt == 0 and backend is self.backend
        options = self.options if is_first else self._remaining_options()
        result = self._solve_once(backend, conditioned, options, attempt)
        if result.outcome is Outcome.INFEASIBLE:
            self._check_infeasible(backend, result)
        elif result.outcome is Outcome.UNBOUNDED:
            result = self._check_unbounded(backend, result)
        elif result.outcome is Outcome.OPTIMAL and self.form.is_mip:
            if can_be_unbounded(self.form) and self._has_improving_ray(backend):
                return Result(outcome=Outcome.UNBOUNDED, solver=result.solver, seconds=result.seconds)
            finer = self._scale_costs_up(backend, conditioned, result)
            if finer is not conditioned and result.bound is not None:
                result = self._solve_finer(backend, conditioned, finer, result, attempt)
        if result.outcome is Outcome.OPTIMAL and self.points:
            # A better point was already known when the solver called this one optimal.
            best = min(self.points, key=self._cost_of)
            if self._cost_of(best) < self._cost_of(result) - 1e-7 * abs(float(result.objective or 0.0)):
                text = f"{result.solver} calls {result.objective:.9g} optimal after a point of {best.objective:.9g}"
                raise FailedCheckError(text)
        return result

    def _solve_once(self, backend: Backend, conditioned: ScaledForm, options: Options, attempt: int) -> Result:
        """Solve once and check the answer. The continuous columns of an integer program are solved again."""
        raw, solver = backend.solve_scaled(conditioned, options, attempt), backend.title()
        is_polished = False
        try:
            if raw.outcome is Outcome.OPTIMAL and not raw.interrupted:
                raw, is_polished = self._polish_answer(backend, conditioned, raw), True
            try:
                result = check_answer(conditioned, raw, solver, self.options.gap)
            except FailedCheckError as error:
                if is_polished or error.point is not None:
                    raise
                polished = self._polish_answer(backend, conditioned, raw)
                if polished is raw:
                    raise
                result = check_answer(conditioned, polished, solver, self.options.gap)
        except RejectedAnswerError as error:
            if raw.interrupted:
                raise KeyboardInterrupt from error
            raise
        if raw.interrupted:
            raise SolveInterrupt(result)
        return result

    def _polish_answer(self, backend: Backend, conditioned: ScaledForm, raw: Raw) -> Raw:
        """Return an answer with its integers rounded and its continuous columns solved again around them.

        An integer that a solver misses by 1e-6 moves a row with a coefficient of 1e6 by 1.
        """
        form = conditioned.form
        is_integer = form.integrality == 1
        if raw.x is None or not is_integer.any() or is_integer.all():
            return raw
        if raw.x.shape != is_integer.shape or not np.isfinite(raw.x).all():
            return raw
        rounded = np.clip(np.round(raw.x), form.col_lower, form.col_upper)
        around = evolve(
            form,
            col_lower=np.where(is_integer, rounded, form.col_lower),
            col_upper=np.where(is_integer, rounded, form.col_upper),
            integrality=np.zeros(len(is_integer), dtype=np.uint8),
        )
        try:
            solved = backend.solve_scaled(evolve(conditioned, form=around), self._remaining_options(), 0)
        except RejectedAnswerError:
            return raw  # its own vector is checked instead
        if solved.x is None or solved.outcome is not Outcome.OPTIMAL:
            return raw
        return evolve(raw, x=solved.x, seconds=raw.seconds + solved.seconds)

    def _cost_of(self, result: Result) -> float:
        """Return the objective to be minimised at a result's point."""
        return math.inf if result.objective is None else self.flip * result.objective

    def _scale_costs_up(self, backend: Backend, conditioned: ScaledForm, result: Result) -> ScaledForm:
        """Return the form with its costs scaled up if the solver cannot resolve the gap at this objective."""
        size = abs(float(result.objective or 0.0) - self.form.c0)
        if size == 0.0:
            return conditioned
        # The solver stops at an absolute difference of MIP_RESOLUTION in scaled costs, which must be within the gap.
        required_scale = MIP_RESOLUTION / (max(self.options.gap, MIN_GAP) * size)
        if required_scale <= abs(conditioned.cost_scale):
            return conditioned
        if self.form.is_mip:
            form = fix_dear_columns(conditioned, float(result.objective or 0.0))
            conditioned = conditioned if form is self.form else condition(form, backend.capabilities.bearing)
        largest = float(np.abs(conditioned.form.c).max(initial=0.0))
        if largest == 0.0:
            return conditioned
        scale = 2.0 ** np.floor(np.log2(min(2 * required_scale, LARGEST_COST / largest)))
        return conditioned.with_cost_scale(scale) if scale > abs(conditioned.cost_scale) else conditioned

    def _solve_finer(
        self, backend: Backend, conditioned: ScaledForm, finer: ScaledForm, result: Result, attempt: int
    ) -> Result:
        """Solve an integer program again with larger costs, since its objective is near the solver's resolution."""
        resolution = MIP_RESOLUTION / abs(conditioned.cost_scale)
        if self.remaining == 0.0:
            return self._weaken_bound(result, resolution)
        try:
            second = self._solve_once(backend, finer, self._remaining_options(), attempt)
        except FailedCheckError:
            self.points.append(evolve(result, outcome=Outcome.FEASIBLE, bound=None))
            raise
        if second.x is None:
            return self._weaken_bound(result, resolution)
        best = min(second, result, key=self._cost_of)
        if second.outcome is not Outcome.OPTIMAL:
            return self._weaken_bound(evolve(best, bound=result.bound), resolution)
        if self._cost_of(second) > self._cost_of(best) + self._gap_tolerance(second) + MIP_RESOLUTION / abs(
            finer.cost_scale
        ):
            text = f"{second.solver} calls {second.objective:.9g} optimal after a point of {best.objective:.9g}"
            raise FailedCheckError(text, evolve(best, outcome=Outcome.FEASIBLE, bound=None))
        seconds = result.seconds + second.seconds
        bound = best.objective if self._is_beyond(second.bound, best.objective) else second.bound
        return evolve(best, bound=bound, seconds=seconds)

    def _is_beyond(self, bound: float | None, objective: float | None) -> bool:
        """Return whether a bound lies on the wrong side of the objective."""
        return bound is not None and objective is not None and self.flip * (bound - objective) > 0

    def _gap_tolerance(self, result: Result) -> float:
        """Return the absolute gap that was asked for at this objective."""
        return max(self.options.gap, MIN_GAP) * abs(float(result.objective or 0.0))

    def _weaken_bound(self, result: Result, resolution: float) -> Result:
        """Return a result whose bound allows for the solver's resolution; feasible if it is farther than was asked."""
        bound = float(result.bound or 0.0) - self.flip * resolution
        is_near = self.flip * (float(result.objective or 0.0) - bound) <= self._gap_tolerance(result)
        return evolve(result, bound=bound, outcome=Outcome.OPTIMAL if is_near else Outcome.FEASIBLE)

    def _has_improving_ray(self, backend: Backend) -> bool:
        """Return whether the linear relaxation improves without end once it has a feasible point."""
        result = backend.solve(recession_form(self.form), time_limit=self._remaining_options().time_limit)
        if result.x is None:
            return False
        noise = 1e-7 * cost_magnitude(self.form, result.x) + 1e-9 * min(1.0, float(np.abs(self.form.c).max()))
        return self._cost_of(result) < -noise

    def _check_unbounded(self, backend: Backend, result: Result) -> Result:
        """Check that the model improves along a ray, and that an integer program has a feasible point at all."""
        if not self._has_improving_ray(backend):
            raise FailedCheckError(f"{result.solver} calls the model unbounded, and it improves along no direction")
        if not self.form.is_mip:
            return result
        feasibility = backend.solve(self._without_costs(), time_limit=self._remaining_options().time_limit)
        if feasibility.outcome is Outcome.STOPPED:
            return evolve(feasibility, message="the model is infeasible or unbounded")
        return feasibility if feasibility.outcome is Outcome.INFEASIBLE else result

    def _without_costs(self) -> StandardForm:
        """Return the form as a pure feasibility problem."""
        return evolve(self.form, c=np.zeros_like(self.form.c), c0=0.0)

    def _check_infeasible(self, backend: Backend, result: Result) -> None:
        """Ask the substitute for a feasible point of an integer program that is called infeasible.

        Raises:
            FailedCheckError: The substitute finds one.
        """
        substitute = self._load_substitute() if backend is self.backend and self.form.is_mip else None
        if substitute is None:
            return
        conditioned = condition(self._without_costs(), substitute.capabilities.bearing)
        # A second opinion may take twice as long as the answer that it checks.
        seconds = max(1.0, 2 * result.seconds)
        remaining = self.remaining
        seconds = seconds if remaining is None else min(seconds, max(remaining, 0.1))
        try:
            raw = substitute.solve_scaled(conditioned, evolve(self.options, time_limit=seconds), 0)
            if raw.x is None:
                return
            check_vector(conditioned, raw.x)
        except SolverError:
            return  # the substitute has no point to show, so that nothing contradicts the claim
        text = f"{result.solver} calls the model infeasible, and {substitute.title()} finds a feasible point"
        raise FailedCheckError(text)

    def _best_point(self, failure: str) -> Result:
        """Return the best feasible point known, with the best bound that multipliers prove."""
        best = min(self.points, key=self._cost_of)
        bounds = [point.bound for point in self.points if point.bound is not None]
        if self.form.is_mip and self.remaining != 0.0:
            relaxed = evolve(self.form, integrality=np.zeros(self.form.shape[1], dtype=np.uint8))
            try:
                result = self.backend.solve(relaxed, time_limit=self._remaining_options().time_limit)
                bounds += [] if result.bound is None else [result.bound]
            except SolverError:
                pass  # then no bound is known
        # Each of these bounds is valid, so that the tightest one counts.
        bound = max(bounds, key=lambda value: self.flip * value) if bounds else None
        if self._is_beyond(bound, best.objective):
            bound = best.objective
        return evolve(best, outcome=Outcome.FEASIBLE, bound=bound, message=failure)
