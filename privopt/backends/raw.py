"""The raw answer of a solver, before its checks, and the errors of answers that fail them."""

from __future__ import annotations

from attrs import frozen

from privopt.arrays import Floats
from privopt.dsl.outcome import Outcome, Result
from privopt.errors import SolverError


@frozen(eq=False, kw_only=True)
class Raw:
    """A solver's own answer, on the scaled rows.

    Attributes:
        outcome: None if it gave up.
        x, bound, duals, reduced: if it has them.
        iterations, seconds: of the solve.
        message: in its own words.
        interrupted: whether an interrupt ended it.
        either: whether it calls the model infeasible or unbounded, and does not know which.
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
    either: bool = False


class RejectedAnswerError(SolverError):
    """A solver's answer is not valid; another attempt may give a better one."""


class FailedCheckError(RejectedAnswerError):
    """A solver's answer contradicts itself or the model.

    Attributes:
        point: The answer's vector as a feasible result, if it satisfies rows, bounds and integers; else None.
    """

    def __init__(self, message: str, point: Result | None = None) -> None:
        super().__init__(message)
        self.point = point
