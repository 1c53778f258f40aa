"""The base class of solver backends, which turn a ``StandardForm`` into a checked ``Result``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Floats
from privopt.backends.checks import (
    can_be_unbounded,
    check_answer,
    check_vector,
)
from privopt.backends.options import Options, read_options
from privopt.backends.raw import Raw, RejectedAnswerError
from privopt.backends.search import Search
from privopt.backends.session import ColdSession, Session, check_continuous
from privopt.backends.solver_log import show_log
from privopt.backends.tiny_costs import cost_exponent, enlarge_costs, shrink_result
from privopt.dsl.condition import CoefficientRange, ScaledForm
from privopt.dsl.form import StandardForm, round_integer_bounds
from privopt.dsl.outcome import Basis, Outcome, Ranging, Result
from privopt.dsl.solution import BackendOptions, SolveInterrupt
from privopt.errors import SolverError, UsageError
from privopt.execution.clock import cap_time_limit

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


@frozen(kw_only=True)
class Capabilities:
    """The features supported by a backend's solver, which can be queried without loading the solver.

    Attributes:
        mip: Whether the solver supports integer columns.
        duals: Whether the solver returns multipliers and reduced costs for LPs.
        warm_start: Whether the solver can start LPs from a basis and return the optimal basis.
        quadratic: Whether the solver accepts convex quadratic objectives over continuous columns.
        bearing: The range of coefficients that the solver can handle.
    """

    mip: bool = True
    duals: bool = True
    warm_start: bool = False
    quadratic: bool = False
    bearing: CoefficientRange = field(factory=CoefficientRange)


class Backend(ABC):
    """Base class for solver backends.

    >>> import numpy as np
    >>> from privopt.backends import get
    >>> from privopt.dsl.form import StandardForm
    >>> form = StandardForm(c=[1, 1], A=[[1, 2]], row_lower=[2], row_upper=[np.inf], col_lower=[0, 0],
    ...                     col_upper=[9, 9], integrality=[0, 0])
    >>> get("highs").solve(form).objective
    1.0

    Attributes:
        name: The name under which the solver is registered.
        capabilities: What the solver supports.
        attempts: The maximum number of attempts, each with different settings, to get an answer that passes its checks.
        substitute: The name of the solver to try if all attempts fail, or None.
    """

    name: str
    capabilities: Capabilities
    attempts: int = 1
    substitute: str | None = None

    def solve(self, form: StandardForm, **options: Unpack[BackendOptions]) -> Result:
        """Solve a form and return a checked answer.

        Every answer is checked in the units of the form (:mod:`privopt.backends.checks`). If an answer fails a check,
        the solver is tried again with other settings and another cost scale, and then its substitute is tried. The time
        limit applies to all attempts together. If no attempt succeeds, the best feasible point is returned with the
        outcome "feasible" and the best proved bound.

        Args:
            form: The model. The bounds of its integer columns are rounded inwards first.
            options: The options ``time_limit``, ``gap``, ``method``, ``threads``, ``seed``, ``basis``, ``start`` and
                ``log``, described in :class:`Options`.

        Raises:
            SolverError: The solver crashed, rejected the form, or returned no point that satisfies the rows, bounds and
                integrality.
            SolveInterrupt: The solve was interrupted after the solver had found a feasible point.
            UsageError: An option is unknown, or its value is not allowed.
        """
        checked = read_options(options)
        if checked.start is not None:
            _check_start(form, checked.start)
        if form.Q is not None:
            self._check_quadratic(form)
        if exponent := cost_exponent(form):
            return self._solve_enlarged(form, exponent, options)
        if len(form.semicontinuous_columns):
            return self._solve_expanded(form, options)
        limit = cap_time_limit(checked.time_limit)
        lower, upper = round_integer_bounds(form.col_lower, form.col_upper, form.integrality)
        if (lower > upper).any():
            column = int(np.flatnonzero(lower > upper)[0])
            text = f"no value lies between the bounds of {form.column_name(column)}"
            return Result(outcome=Outcome.INFEASIBLE, solver=self.title(), message=text)
        # If there are no integer columns, the bounds are returned unchanged and the form need not be copied.
        if lower is not form.col_lower:
            form = evolve(form, col_lower=lower, col_upper=upper)
        search_options = evolve(checked, time_limit=limit)
        if not checked.log:
            return Search(self, form, search_options).run()
        with show_log() as log_file:
            return Search(self, form, evolve(search_options, log_file=log_file)).run()

    def prepare(self) -> None:  # noqa: B027 - a solver may have nothing to prepare
        """Prepare for an upcoming solve without blocking. :meth:`Model.solve` calls this before compiling the model."""

    def _check_quadratic(self, form: StandardForm) -> None:
        """Raise a UsageError if this solver cannot handle the quadratic objective of a form.

        Solvers that support quadratic objectives require all columns of the form to be continuous.
        """
        if not self.capabilities.quadratic:
            raise UsageError(f'{self.name} takes no quadratic objective; "highs" does, if the variables are continuous')
        if form.is_mip:
            column = form.column_name(int(np.flatnonzero(form.integrality)[0]))
            raise UsageError(
                f"{self.name} takes quadratic objectives of continuous variables only, and {column} is not; state the "
                "objective with absolute values, maximum or piecewise"
            )

    def _solve_enlarged(self, form: StandardForm, exponent: int, options: BackendOptions) -> Result:
        """Solve a form with tiny costs by solving it with all costs multiplied by 2**exponent."""
        try:
            return shrink_result(form, self.solve(enlarge_costs(form, exponent), **options), exponent)
        except SolveInterrupt as interrupt:
            raise SolveInterrupt(shrink_result(form, interrupt.result, exponent)) from None

    def _solve_expanded(self, form: StandardForm, options: BackendOptions) -> Result:
        """Solve a form with semicontinuous columns by solving an equivalent form with binary columns instead."""
        from privopt.dsl.semicontinuous import drop_binaries, expand_semicontinuous, expand_start

        start = options.get("start")
        expanded_options = options if start is None else {**options, "start": expand_start(form, np.asarray(start))}
        try:
            return drop_binaries(form, self.solve(expand_semicontinuous(form), **expanded_options))
        except SolveInterrupt as interrupt:
            raise SolveInterrupt(drop_binaries(form, interrupt.result)) from None

    def session(
        self,
        form: StandardForm,
        *,
        tolerance: float = 1e-9,
        options: Mapping[str, Any] | None = None,
    ) -> Session:
        """Load an LP into a session, in which it can be changed and solved repeatedly.

        In this base class, a session solves the LP from scratch each time and ignores ``tolerance`` and ``options``.
        Backends that support warm starts override this method.

        Args:
            form: The initial model.
            tolerance: The tolerance on rows and reduced costs.
            options: Additional options, under the solver's own names.

        Raises:
            ModelError: The form has semicontinuous columns or a quadratic objective.
        """
        check_continuous(form, "a session")
        form.check_linear("a session")
        return ColdSession(self, form)

    def explain(self, form: StandardForm, time_limit: float = 20.0) -> str:
        """Explain why a form is infeasible, by naming rows and families of rows that cannot all be satisfied together.

        Raises:
            SolverError: HiGHS found a feasible point, so the form is not infeasible.
        """
        from privopt.backends.diagnose import find_clash

        if len(form.semicontinuous_columns):
            from privopt.dsl.semicontinuous import expand_semicontinuous

            form = expand_semicontinuous(form)
        explanation = find_clash(form, time_limit=time_limit)
        if explanation.contradicted:
            raise SolverError("one solver calls the model infeasible, but highs finds a point that satisfies every row")
        return str(explanation)

    def ranging(self, form: StandardForm, basis: Basis) -> Ranging:
        """Return the ranges of costs and row bounds within which a linear program's optimal basis remains optimal.

        Raises:
            UsageError: The solver does not support ranging.
        """
        raise UsageError(f"{self.name} gives no ranging; highs does")

    def title(self) -> str:
        """Return the solver's name and version, as shown in results and messages."""
        return f"{self.name} {self.version()}"

    @abstractmethod
    def version(self) -> str:
        """Return the version of the solver."""

    @abstractmethod
    def solve_scaled(self, conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
        """Solve the scaled form with the settings for one attempt. The answer is not checked here.

        Args:
            conditioned: The scaled form. Its cost ``c x`` is to be minimised subject to the scaled rows.
            options: The options for the solve, which have been checked.
            attempt: The number of earlier attempts, from 0 to ``attempts - 1``, which determines the settings.

        Raises:
            RejectedAnswerError: The solver gave up.
        """


def _check_start(form: StandardForm, start: Floats) -> None:
    """Raise a UsageError if the starting point has the wrong length, or if the form has no integer columns."""
    if start.shape != (form.shape[1],):
        raise UsageError(f"start must have a value for each of {form.shape[1]} columns, got {len(start)}")
    if not form.is_mip:
        raise UsageError("start is for models with integer variables; linear programs begin from a basis")
