"""The loss beside the exponential mechanism's (Fig. 7)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bd_mdp_paper.kinds import Kinds
from experiments.command import say
from experiments.tables import Sheet
from privopt.execution.clock import Clock, clock
from privopt.interfaces import SolveContext
from privopt_bd_mdp.problem import Decomposition
from privopt_bd_mdp.solver import decompose

__all__ = ["Losses", "exponential"]

KEY: Final = ("kind", "seed", "records", "epsilon", "limit")


def exponential(distances: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """Return the exponential mechanism of Equation (47): proportional to ``exp(-epsilon d / 2)``, rows sum to one."""
    weights = np.exp(-epsilon * distances / 2)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


class Losses:
    """The sheet of losses in a folder."""

    def __init__(self, kinds: Kinds, folder: Path) -> None:
        self.kinds = kinds
        self.sheet = Sheet(folder / "losses.csv", KEY, ("benders", "lower_bound", "gap", "exponential", "seconds"))

    def do(self, kind: str, records: int, epsilon: float, limit: float, seed: int = 0) -> None:
        """Both losses on one instance; every record is an output."""
        key = {"kind": kind, "seed": seed, "records": records, "epsilon": f"{epsilon:g}", "limit": f"{limit:g}"}
        if self.sheet.has(**key):
            return
        source = self.kinds.make(kind, records, seed)
        instance = source.instance(epsilon, seed=seed)
        start_seconds = time.monotonic()
        context = SolveContext(method="benders", solver="highs", gap=1e-2, search_time=Clock(limit, clock()))
        solution = decompose(instance, Decomposition(partition="minimum-boundary"), context)
        exponential_loss = instance.loss(exponential(source.distances, epsilon))
        row = {
            "benders": solution.objective,
            "lower_bound": solution.lower_bound,
            "gap": f"{solution.gap:.3g}",
            "exponential": exponential_loss,
            "seconds": f"{time.monotonic() - start_seconds:.2f}",
        }
        self.sheet.add({**key, **row})
        say(f"losses: {kind}, epsilon {epsilon:g}: {solution.objective:.6g}, exponential {exponential_loss:.6g}")
