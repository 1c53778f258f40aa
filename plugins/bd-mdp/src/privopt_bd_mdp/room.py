"""What the parts of the decomposition take, known before they begin."""

from __future__ import annotations

from typing import Final

from privopt.decompose import Partition
from privopt.errors import StoppedError
from privopt.execution.memory import GB
from privopt.interfaces import SolveContext
from privopt_metric_dp.solvers.auto import star_bytes
from privopt_metric_dp.solvers.instance import Instance

__all__ = ["NoRoomError", "mixing_bytes", "rounds_bytes", "steps_bytes", "too_much"]

A_NUMBER: Final = 1500.0
"""Bytes of a coefficient of the program while it is made, cut up, and held by the solvers of master and blocks,
measured (tests/test_bd_memory.py)."""
A_RAY: Final = 120.0
"""Bytes of an entry of a ray in the program that mixes them, and in its solver."""
A_SLOPE: Final = 120.0
"""Bytes of an entry of a cut: with the driver, and in the master's solver."""
CUTS: Final = 40
"""Cuts a block that the master holds, about: those without a multiplier for some rounds are dropped."""


class NoRoomError(StoppedError):
    """Not even the first steps fit into memory; nothing was begun."""


def steps_bytes(instance: Instance) -> float:
    """About how many bytes the Lagrangian half takes to begin: the star, its trees, the first rays and their costs."""
    return star_bytes(instance) + 8.0 * 20 * instance.records**2


def mixing_bytes(rays: int, records: int) -> float:
    """About how many bytes the program that mixes so many rays takes beside them."""
    return A_RAY * rays * records


def rounds_bytes(instance: Instance, partition: Partition) -> float:
    """About how many bytes Benders' rounds take beside what is held: the program, its parts, paths, and cuts.

    Args:
        instance: connected; N records, K outputs, P pairs.
        partition: of its records. A cut of a block speaks of the boundary records next to it.
    """
    records, outputs = instance.cost.shape
    numbers = outputs * (4.0 * len(instance.pairs) + 2.0 * records)
    slopes = outputs * float(partition.touching(instance.pairs).sum())
    return float(A_NUMBER * numbers + A_SLOPE * CUTS * slopes + 40.0 * records**2)


def too_much(name: str, needed: float, context: SolveContext) -> str:
    """A method that does not fit, for ``solver.path``."""
    return f"{name} (needs {needed / GB:.2g} GB of {context.room / GB:.2g} left)"
