"""A solver's raw answer, before it is checked, and the errors for answers that fail the checks."""

from __future__ import annotations

from attrs import frozen

from privopt.arrays import Floats
from privopt.dsl.outcome import Basis, Outcome, Result
from privopt.errors import SolverError


@frozen(eq=False, kw_only=True)
class Raw:
    """A solver's unchecked answer to the scaled form.

    Attributes:
        outcome: How the solve ended, or None if the solver gave up.
        x: The point, as an array of shape (n,), or None.
        bound: A bound on the optimum of the scaled costs, or None.
        duals: The multipliers of the scaled rows, as an array of shape (m,), or None.
        reduced: The reduced costs of the scaled form, as an array of shape (n,), or None.
        iterations: The number of simplex and interior-point iterations.
        seconds: The duration of the solve in seconds.
        message: A message from the solver, such as the name of its status.
        interrupted: Whether the solve was interrupted.
        basis: The basis of an optimal linear program, or None.
        either: Whether the solver found that the model is infeasible or unbounded, but not which of the two.
    """

    outcome: Outcome | None
    x: Floats | None = None
    bound: float | None = None
    duals: Floats | None = None
    reduced: Floats | None = None
    iterations: int = 0
    seconds: float = 0.0
    message: str = ""
    interrupted: bool = False
    basis: Basis | None = None
    either: bool = False


class RejectedAnswerError(SolverError):
    """Raised when a solver gives up or its answer is not valid. Another attempt may succeed."""


class FailedCheckError(RejectedAnswerError):
    """Raised when a solver's answer contradicts itself or the model.

    Attributes:
        point: A feasible point that can still be used, usually the point in the answer. It is None if there is
            no such point, for example because the point in the answer violates a row.
    """

    def __init__(self, message: str, point: Result | None = None) -> None:
        super().__init__(message)
        self.point = point
