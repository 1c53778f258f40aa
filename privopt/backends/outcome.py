"""How a solve ends."""

from enum import Enum

__all__ = ["Outcome"]


class Outcome(Enum):
    """How a solve ended. A solver that dies or lies is none of these: it raises ``SolverError``."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    STOPPED = "stopped"
