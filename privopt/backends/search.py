"""Try a solver with different settings, and then its substitute, until an answer passes its checks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any, Protocol, Unpack

import numpy as np
from attrs import evolve

from privopt.arrays import Floats
from privopt.backends.checks import (
    LP_GAP,
    MIP_RESOLUTION,
    can_be_unbounded,
    check_answer,
    check_vector,
    cost_magnitude,
    fix_expensive_columns,
    recession_form,
)
from privopt.backends.options import Options
from privopt.backends.raw import FailedCheckError, Raw, RejectedAnswerError
from privopt.dsl.condition import ScaledForm, condition
from privopt.dsl.form import StandardForm
from privopt.dsl.outcome import Outcome, Result
from privopt.dsl.solution import BackendOptions, SolveInterrupt
from privopt.errors import SolverError
from privopt.registry import registry

PROVER = "highs"
"""The solver whose multipliers prove optima found by solvers that return none. It also checks models that are reported
as infeasible by a solver without a substitute."""
MIN_GAP = 1e-7
"""The smallest relative gap for a search over integers. If a smaller gap is requested, this one is used when costs are
scaled and bounds are compared."""
LARGEST_COST = 2.0**40
"""The largest magnitude to which costs may be scaled up."""


class Backend(Protocol):
    """The part of :class:`privopt.backends.Backend` needed by a search. See that class for the attributes."""

    name: str
    capabilities: Any
    attempts: int
    substitute: str | None

    def title(self) -> str:
        """Return the name and version of the solver."""

    def solve(self, form: StandardForm, **options: Unpack[BackendOptions]) -> Result:
        """Solve a form and return a checked answer."""

    def solve_scaled(self, conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
        """Solve a scaled form with the settings for one attempt, and return the answer without checking it."""


def _load_prover() -> Backend:
    """Create the HiGHS backend, which is used to prove that answers from other backends are optimal."""
    prover: Backend = registry().kind("solver", PROVER).load()()
    return prover


class Search:
    """A search for an answer that passes all checks, trying first a backend and then its substitute.

    Attributes:
        backend: The backend that was chosen for the solve.
        form: The model to solve.
        options: The options, with a time limit for the whole search.
        flip: 1 if the form minimises, -1 if it maximises, so that ``flip * objective`` is always minimised.
        started: The clock reading at the start, from which the time limit is counted.
        points: Known feasible points: the starting point, and feasible points from answers that failed another check.
    """

    def __init__(self, backend: Backend, form: StandardForm, options: Options) -> None:
        """Prepare to search for a checked answer to ``form``. The time limit in ``options`` starts now."""
        self.backend, self.form, self.options = backend, form, options
        self.flip = 1.0 if form.sense == "min" else -1.0
        self.started = time.monotonic()
        self.points: list[Result] = []
        if options.start is not None:
            self._add_start(options.start)

    def _add_start(self, start: Floats) -> None:
        """Add the caller's starting point to the known points if it is complete and satisfies all rows and bounds."""
        if np.isnan(start).any():
            return
        conditioned = condition(self.form, self.backend.capabilities.bearing)
        try:
            x, violation = check_vector(conditioned, start)
        except SolverError:
            return  # The solver is given the point anyway and may be able to repair it.
        self.points.append(
            Result(
                outcome=Outcome.FEASIBLE,
                solver=self.backend.title(),
                x=x,
                objective=conditioned.objective(x),
                violation=violation,
                message="the start",
                tightening=conditioned.tightening,
            )
        )

    def run(self) -> Result:
        """Return the first answer that passes its checks, or else the best feasible point with the best proved bound.

        Raises:
            RejectedAnswerError: No answer passed, and no feasible point is known.
        """
        failure: RejectedAnswerError | None = None
        for backend, attempt in self._list_attempts():
            # The first attempt is made even if the time is already up.
            if failure is not None and self.remaining == 0.0:
                break
            # The substitute is used only to correct wrong answers. If the solver gave up or aborted, that is reported.
            if backend is not self.backend and not isinstance(failure, FailedCheckError):
                break
            try:
                return self._prefer_known_point(self._run_attempt(backend, attempt))
            except RejectedAnswerError as error:
                if isinstance(error, FailedCheckError):
                    self.points += [] if error.point is None else [error.point]
                    # The first failed check is reported, even if the solver gave up in an earlier attempt.
                    failure = failure if isinstance(failure, FailedCheckError) else error
                    # HiGHS adds 1e-7 to the diagonal of a quadratic objective, which gives an unbounded problem an
                    # optimum.
                    is_quadratic_point = self.form.Q is not None and error.point is not None
                    if is_quadratic_point and can_be_unbounded(self.form) and self._has_improving_ray(backend):
                        return Result(outcome=Outcome.UNBOUNDED, solver=backend.title())
                else:
                    failure = failure or error
        assert failure is not None
        if not self.points:
            raise failure
        return self._best_point(str(failure))

    def _prefer_known_point(self, result: Result) -> Result:
        """Return the better of a result and the best known point, with the result's bound.

        A result is replaced only if its outcome is "stopped" or "feasible", which means that the search ended early.
        Any other result is returned unchanged.
        """
        if not self.points or result.outcome not in (Outcome.STOPPED, Outcome.FEASIBLE):
            return result
        best = min(self.points, key=self._cost_of)
        if self._cost_of(best) >= self._cost_of(result):
            return result
        bound = best.objective if self._is_beyond(result.bound, best.objective) else result.bound
        return evolve(best, bound=bound, seconds=result.seconds, iterations=result.iterations)

    @property
    def remaining(self) -> float | None:
        """The number of seconds left until the time limit, or None if there is no limit."""
        limit = self.options.time_limit
        return None if limit is None else max(limit - (time.monotonic() - self.started), 0.0)

    def _list_attempts(self) -> Iterator[tuple[Backend, int]]:
        """Yield the backend for each attempt and the number of earlier attempts with it. The substitute comes last."""
        for attempt in range(self.backend.attempts):
            yield self.backend, attempt
        substitute = self._load_substitute()
        if substitute is not None and (self.form.Q is None or substitute.capabilities.quadratic):
            for attempt in range(substitute.attempts):
                yield substitute, attempt

    def _load_substitute(self) -> Backend | None:
        """Create the backend's substitute, or return None if it has none."""
        name = self.backend.substitute
        return None if name is None else registry().kind("solver", name).load()()

    def _remaining_options(self) -> Options:
        """Return the options with the remaining time as the time limit.

        The limit is at least 0.1 s, because solvers do not accept a limit of 0.
        """
        remaining = self.remaining
        return self.options if remaining is None else evolve(self.options, time_limit=max(remaining, 0.1))

    def _run_attempt(self, backend: Backend, attempt: int) -> Result:
        """Solve once with a backend's settings for one attempt, and check what the answer claims about the model.

        Args:
            backend: The chosen backend, or its substitute.
            attempt: The number of earlier attempts with this backend, which determines the settings.

        Raises:
            RejectedAnswerError: The solver gave up, or its answer failed a check.
        """
        conditioned = condition(self.form, backend.capabilities.bearing)
        if self.points:
            # A known point shows how finely the costs must be resolved.
            conditioned = self._scale_costs_up(backend, conditioned, min(self.points, key=self._cost_of))
        is_first = attempt == 0 and backend is self.backend
        options = self.options if is_first else self._remaining_options()
        result = self._solve_once(backend, conditioned, options, attempt)
        # The optimum of a linear program must be proved by multipliers. An integer program has none.
        if result.outcome is Outcome.OPTIMAL and not self.form.is_mip and result.duals is None:
            result = self._prove_optimum(backend, result)
        if result.outcome is Outcome.INFEASIBLE:
            if self.points:
                raise FailedCheckError(
                    f"{result.solver} calls the model infeasible, although a feasible point is known"
                )
            self._check_infeasible(backend, result)
        elif result.outcome is Outcome.UNBOUNDED:
            result = self._check_unbounded(backend, result)
        elif result.outcome is Outcome.OPTIMAL and self.form.is_mip:
            # A feasible point exists. If the relaxation improves along a ray, the model is therefore unbounded,
            # whatever the search found (for rational data: Meyer 1974).
            if can_be_unbounded(self.form) and self._has_improving_ray(backend):
                return Result(outcome=Outcome.UNBOUNDED, solver=result.solver, seconds=result.seconds)
            finer = self._scale_costs_up(backend, conditioned, result)
            if finer is not conditioned and result.bound is not None:
                result = self._solve_finer(backend, conditioned, finer, result, attempt)
        if result.outcome is Outcome.OPTIMAL and self.points:
            # The answer is wrong if a better point is already known.
            best = min(self.points, key=self._cost_of)
            if self._cost_of(best) < self._cost_of(result) - 1e-7 * abs(float(result.objective or 0.0)):
                text = (
                    f"{result.solver} calls {result.objective:.9g} optimal, although a point with objective "
                    f"{best.objective:.9g} is known"
                )
                raise FailedCheckError(text)
        return result

    def _solve_once(self, backend: Backend, conditioned: ScaledForm, options: Options, attempt: int) -> Result:
        """Call a backend once and return the checked answer, after polishing integer columns if necessary.

        Args:
            backend: The backend to call.
            conditioned: The scaled form to solve.
            options: The options, with the time limit of this call.
            attempt: The number of earlier attempts with this backend, which determines the settings.

        Raises:
            RejectedAnswerError: The solver gave up, or its answer failed a check.
            SolveInterrupt: The solve was interrupted, but its answer passed all checks.
            KeyboardInterrupt: The solve was interrupted, and gave either no answer or one that failed a check.
        """
        raw, solver = backend.solve_scaled(conditioned, options, attempt), backend.title()
        is_polished = False
        try:
            if raw.outcome is Outcome.OPTIMAL and not raw.interrupted:
                # An optimal answer is polished before it is checked. Any other is polished only if it fails its check
                # without leaving a feasible point.
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
            # After an interrupt, an answer that fails its check is of no use, so only the interrupt is raised.
            if raw.interrupted:
                raise KeyboardInterrupt from error
            raise
        if raw.interrupted:
            raise SolveInterrupt(result)
        return result

    def _polish_answer(self, backend: Backend, conditioned: ScaledForm, raw: Raw) -> Raw:
        """Round an answer's integer columns, fix them, and solve for the continuous columns again.

        Without this, an error of 1e-6 in an integer column would change a row with a coefficient of 1e6 by 1.

        Args:
            backend: The backend that gave the answer, which is used to solve again.
            conditioned: The scaled form that the backend solved.
            raw: The answer. It is returned unchanged if there is nothing to polish, or if the second solve fails.
        """
        form = conditioned.form
        is_integer = form.integrality == 1
        if raw.x is None or not is_integer.any() or is_integer.all():
            return raw
        if raw.x.shape != is_integer.shape or not np.isfinite(raw.x).all():
            return raw
        # Once the integers are fixed, a continuous program remains.
        rounded = np.clip(np.round(raw.x), form.col_lower, form.col_upper)
        fixed_form = evolve(
            form,
            col_lower=np.where(is_integer, rounded, form.col_lower),
            col_upper=np.where(is_integer, rounded, form.col_upper),
            integrality=np.zeros(len(is_integer), dtype=np.uint8),
        )
        try:
            second = backend.solve_scaled(evolve(conditioned, form=fixed_form), self._remaining_options(), 0)
        except RejectedAnswerError:
            # The caller then checks the answer's own vector.
            return raw
        if second.x is None or second.outcome is not Outcome.OPTIMAL:
            return raw
        return evolve(raw, x=second.x, seconds=raw.seconds + second.seconds)

    def _cost_of(self, result: Result) -> float:
        """Return a result's objective as a cost to be minimised, or infinity if the result has no objective."""
        return math.inf if result.objective is None else self.flip * result.objective

    def _scale_costs_up(self, backend: Backend, conditioned: ScaledForm, result: Result) -> ScaledForm:
        """Scale a form's costs up if they are too small for the solver to resolve the requested gap.

        Solvers stop once the objective and the bound differ by less than a fixed amount in scaled costs. With larger
        costs, this amount is a smaller fraction of the objective.

        Args:
            backend: The backend that will solve the form, which determines the range of coefficients.
            conditioned: The scaled form whose costs may be too small.
            result: A result whose objective indicates the magnitude of the optimum.

        Returns:
            The form with larger costs. If the costs are already large enough, this is ``conditioned`` itself. If they
            cannot be made larger, the cost scale stays the same.
        """
        # The constant is subtracted because solvers minimise the objective without it.
        size = abs(float(result.objective or 0.0) - self.form.c0)
        # The absolute difference from the optimum that the gap allows. It may underflow to 0.
        allowed_difference = max(self.options.gap, MIN_GAP) * size
        if allowed_difference < MIP_RESOLUTION * 2.0**-1000:
            return conditioned
        # The solver may stop at an absolute difference of MIP_RESOLUTION in scaled costs, which must not exceed this.
        required_scale = MIP_RESOLUTION / allowed_difference
        if required_scale <= abs(conditioned.cost_scale):
            return conditioned
        if self.form.is_mip:
            form = fix_expensive_columns(conditioned, float(result.objective or 0.0))
            conditioned = conditioned if form is self.form else condition(form, backend.capabilities.bearing)
        largest = float(np.abs(conditioned.form.c).max(initial=0.0))
        if largest == 0.0:
            return conditioned
        # Scaling by a power of two is exact. Because twice the required scale is rounded down, the result is large
        # enough.
        scale = 2.0 ** np.floor(np.log2(min(2 * required_scale, LARGEST_COST / largest)))
        return conditioned.with_cost_scale(scale) if scale > abs(conditioned.cost_scale) else conditioned

    def _solve_finer(
        self, backend: Backend, conditioned: ScaledForm, finer: ScaledForm, result: Result, attempt: int
    ) -> Result:
        """Solve an integer program again with larger costs, because the solver could not resolve the requested gap.

        Args:
            backend: The backend that solved the program the first time.
            conditioned: The scaled form that was solved.
            finer: The scaled form with larger costs.
            result: The checked answer to ``conditioned``, which has a bound.
            attempt: The number of earlier attempts with this backend, which determines the settings.

        Returns:
            A result with the better of the two points. If the second solve does not reach the optimum, the bound from
            the first solve is used, weakened by the largest improvement that the solver may have missed.

        Raises:
            FailedCheckError: The second answer contradicts the first or fails its own check.
        """
        resolution = MIP_RESOLUTION / abs(conditioned.cost_scale)
        if self.remaining == 0.0:
            return self._weaken_bound(result, resolution)
        try:
            second = self._solve_once(backend, finer, self._remaining_options(), attempt)
        except FailedCheckError:
            # The first point is feasible nevertheless, but its bound is now in doubt.
            self.points.append(evolve(result, outcome=Outcome.FEASIBLE, bound=None))
            raise
        if second.x is None:
            return self._weaken_bound(result, resolution)
        best = min(second, result, key=self._cost_of)
        if second.outcome is not Outcome.OPTIMAL:
            return self._weaken_bound(evolve(best, bound=result.bound), resolution)
        # An optimum is wrong if it is worse than a known point by more than the gap and the solver's resolution.
        if self._cost_of(second) > self._cost_of(best) + self._gap_tolerance(second) + MIP_RESOLUTION / abs(
            finer.cost_scale
        ):
            text = (
                f"{second.solver} calls {second.objective:.9g} optimal, although a point with objective "
                f"{best.objective:.9g} is known"
            )
            raise FailedCheckError(text, evolve(best, outcome=Outcome.FEASIBLE, bound=None))
        seconds = result.seconds + second.seconds
        # Within the tolerance that was just allowed, the bound may lie beyond the better of the two points.
        bound = best.objective if self._is_beyond(second.bound, best.objective) else second.bound
        return evolve(best, bound=bound, seconds=seconds)

    def _is_beyond(self, bound: float | None, objective: float | None) -> bool:
        """Return whether a bound is worse than an objective value, so that the two contradict each other.

        A lower bound contradicts a smaller objective value, and if the form maximises, an upper bound contradicts a
        larger one. Returns False if either is None.
        """
        return bound is not None and objective is not None and self.flip * (bound - objective) > 0

    def _gap_tolerance(self, result: Result) -> float:
        """Convert the requested relative gap to an absolute difference, given a result's objective."""
        return max(self.options.gap, MIN_GAP) * abs(float(result.objective or 0.0))

    def _weaken_bound(self, result: Result, resolution: float) -> Result:
        """Weaken a result's bound, and change the outcome to "feasible" if the gap is then larger than requested.

        Args:
            result: A result with a bound.
            resolution: The amount by which to weaken the bound: the largest difference in the objective that the
                solver may have missed, in the objective's units.
        """
        bound = float(result.bound or 0.0) - self.flip * resolution
        is_near = self.flip * (float(result.objective or 0.0) - bound) <= self._gap_tolerance(result)
        return evolve(result, bound=bound, outcome=Outcome.OPTIMAL if is_near else Outcome.FEASIBLE)

    def _prove_optimum(self, backend: Backend, result: Result) -> Result:
        """Prove that an answer without multipliers is optimal, using the multipliers from another solver.

        Args:
            backend: The backend that gave the answer.
            result: The checked answer to a continuous program, with the outcome "optimal".

        Returns:
            The result, with the bound proved by the other solver's multipliers.

        Raises:
            FailedCheckError: The optimum is not proved. The error contains the point with the outcome "feasible".
        """
        point = evolve(result, outcome=Outcome.FEASIBLE, bound=None)
        reason = f"{result.solver} calls a point of objective {result.objective:.9g} optimal, but gives no multipliers"
        if backend.name == PROVER:
            raise FailedCheckError(reason, point)
        try:
            proof = _load_prover().solve(self.form, time_limit=self._remaining_options().time_limit)
        except SolverError as error:
            raise FailedCheckError(f"{reason}; {error}", point) from None
        if proof.outcome is not Outcome.OPTIMAL or proof.duals is None or proof.objective is None:
            raise FailedCheckError(f"{reason}; {proof.solver} calls the model {proof.outcome.value}", point)
        # The objectives of the two solvers must agree up to the relative gap and the rounding of the objective's terms.
        tolerance = LP_GAP * abs(proof.objective) + 1e-9 * cost_magnitude(self.form, result.x)
        # The comparison is negated so that NaN also fails.
        if not abs(float(result.objective or 0.0) - proof.objective) <= tolerance:
            text = f"{reason}; {proof.solver} proves {proof.objective:.9g}"
            raise FailedCheckError(
                text, evolve(point, bound=None if self._is_beyond(proof.bound, point.objective) else proof.bound)
            )
        bound = result.objective if self._is_beyond(proof.bound, result.objective) else proof.bound
        return evolve(result, bound=bound, tightening=proof.tightening or result.tightening)

    def _has_improving_ray(self, backend: Backend) -> bool:
        """Return whether the objective improves without limit along a feasible direction of the linear relaxation.

        If so, the form is unbounded, provided that it has a feasible point.

        Args:
            backend: The backend that solves the linear program over these directions.
        """
        form = recession_form(self.form)
        result = backend.solve(form, time_limit=self._remaining_options().time_limit)
        if result.x is None:
            return False
        # A smaller improvement may be due to the solver's rounding errors. The constant of the objective has no part in
        # it: next to a large one, no direction would improve.
        noise = 1e-7 * cost_magnitude(form, result.x) + 1e-9 * min(1.0, float(np.abs(form.c).max()))
        return self._cost_of(result) < -noise

    def _check_unbounded(self, backend: Backend, result: Result) -> Result:
        """Check the claim that the model is unbounded.

        The objective must improve along a ray of the linear relaxation, and an integer program must also have a
        feasible point.

        Args:
            backend: The backend that gave the answer, which also solves the problems needed for this check.
            result: The answer that makes the claim.

        Returns:
            The answer if the claim is confirmed. If the search for a feasible point of an integer program shows that
            there is none, or is stopped before it finds one, the answer of that search is returned instead.

        Raises:
            FailedCheckError: The objective does not improve along any ray.
        """
        if not self._has_improving_ray(backend):
            raise FailedCheckError(f"{result.solver} calls the model unbounded, but it improves along no direction")
        if not self.form.is_mip:
            return result
        feasibility = backend.solve(self._without_costs(), time_limit=self._remaining_options().time_limit)
        if feasibility.outcome is Outcome.STOPPED:
            return evolve(feasibility, message="the model is infeasible or unbounded")
        return feasibility if feasibility.outcome is Outcome.INFEASIBLE else result

    def _without_costs(self) -> StandardForm:
        """Return the form with all costs set to 0, which turns it into a feasibility problem."""
        return evolve(self.form, c=np.zeros_like(self.form.c), c0=0.0, Q=None)

    def _check_infeasible(self, backend: Backend, result: Result) -> None:
        """Check the claim that the model is infeasible, by searching for a feasible point with another solver.

        The other solver is the backend's substitute, if it has one, and HiGHS otherwise. A substitute is used only for
        integer programs. Nothing is checked if the claim comes from the substitute, or if the backend is HiGHS and has
        no substitute.

        Args:
            backend: The backend that gave the answer.
            result: The answer that makes the claim.

        Raises:
            FailedCheckError: The other solver finds a feasible point.
        """
        if backend is not self.backend:
            return
        substitute = self._load_substitute()
        if substitute is None:
            substitute = None if backend.name == PROVER else _load_prover()
        elif not self.form.is_mip:
            return
        if substitute is None:
            return
        conditioned = condition(self._without_costs(), substitute.capabilities.bearing)
        # The check may take twice as long as the solve whose answer it checks, or one second if that is longer.
        seconds = max(1.0, 2 * result.seconds)
        remaining = self.remaining
        seconds = seconds if remaining is None else min(seconds, max(remaining, 0.1))
        try:
            raw = substitute.solve_scaled(conditioned, evolve(self.options, time_limit=seconds), 0)
            if raw.x is None:
                return
            check_vector(conditioned, raw.x)
        except SolverError:
            return  # The other solver found no feasible point, so nothing contradicts the claim.
        text = f"{result.solver} calls the model infeasible, but {substitute.title()} finds a feasible point"
        raise FailedCheckError(text)

    def _best_point(self, failure: str) -> Result:
        """Return the best known feasible point, with the best known bound.

        Args:
            failure: The reason why no answer passed its checks. It becomes the result's message.
        """
        best = min(self.points, key=self._cost_of)
        bounds = [point.bound for point in self.points if point.bound is not None]
        if self.form.is_mip and self.remaining != 0.0:
            # The optimum of the linear relaxation bounds that of the integer program.
            relaxed = evolve(self.form, integrality=np.zeros(self.form.shape[1], dtype=np.uint8))
            try:
                result = self.backend.solve(relaxed, time_limit=self._remaining_options().time_limit)
                bounds += [] if result.bound is None else [result.bound]
            except SolverError:
                pass  # In this case, the relaxation gives no bound.
        # All of these bounds are valid, so the tightest one is used.
        bound = max(bounds, key=lambda value: self.flip * value) if bounds else None
        if self._is_beyond(bound, best.objective):
            bound = best.objective
        return evolve(best, outcome=Outcome.FEASIBLE, bound=bound, message=failure)
