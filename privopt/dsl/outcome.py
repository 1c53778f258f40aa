"""The status and the checked result of a solve."""

from enum import Enum

from attrs import frozen

from privopt.arrays import Floats
from privopt.dsl.condition import TightenedRows


class Outcome(Enum):
    """How a solve ended. A solver that dies or gives a wrong answer raises ``SolverError`` instead."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    STOPPED = "stopped"


@frozen(eq=False, kw_only=True)
class Result:
    """A checked answer, in the rows, units and sense of the form.

    Attributes:
        outcome: how it ended; x, objective and violation are there if it is optimal or feasible.
        x: shape (n,), inside its bounds exactly and integer where it must be.
        objective: at x.
        bound: on the optimum of the form as it was given (before tightening), or None.
        duals, reduced: of LPs solved to optimality: change of the objective for a unit of a row's side, and the
            reduced costs.
        seconds: in the solver. iterations: simplex and interior point.
        solver: name and version.
        violation: by how much x misses a scaled row at most.
        message: what the solver had to say.
        tightening: privacy rows that were tightened; None if there were none.
    """

    outcome: Outcome
    solver: str
    x: Floats | None = None
    objective: float | None = None
    bound: float | None = None
    duals: Floats | None = None
    reduced: Floats | None = None
    seconds: float = 0.0
    iterations: int = 0
    violation: float = 0.0
    message: str = ""
    tightening: TightenedRows | None = None
