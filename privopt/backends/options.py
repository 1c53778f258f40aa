"""The options for a solve, which are the same for all solvers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats
from privopt.dsl.labelled import as_doubles
from privopt.dsl.outcome import Basis
from privopt.dsl.solution import BackendOptions
from privopt.errors import UsageError

METHODS = ("auto", "simplex", "ipm")
"""The allowed values of the ``method`` option. See :class:`Options`."""


@frozen(kw_only=True)
class Options:
    """The checked options for one solve. Callers pass them to :meth:`Backend.solve` as keyword arguments.

    Attributes:
        time_limit: The time limit in seconds of wall time, or None for no limit. An enclosing time limit may shorten
            it.
        gap: The relative gap at which a search over integers may stop.
        method: The method for linear programs: "auto", "simplex" or "ipm" (interior point).
        threads: The number of threads that the solver may use.
        seed: The seed for the solver's own random choices.
        basis: The basis from which to start a linear program. Solvers without warm starts ignore it.
        start: The point from which to start a search over integers, as an array of shape (n,) in which missing values
            are NaN.
        log: Whether to show the solver's log on standard error.
        log_file: The path of the file to which the solver appends its log, or None if the log is not shown.
            :meth:`Backend.solve` sets it.
    """

    time_limit: float | None = None
    gap: float = 1e-6
    method: str = "auto"
    threads: int = 1
    seed: int = 0
    basis: Basis | None = None
    start: Floats | None = None
    log: bool = False
    log_file: str | None = None


def read_options(options: Mapping[str, Any]) -> Options:
    """Check the keyword options for a solve, and fill in the defaults for missing ones.

    Raises:
        UsageError: An option is unknown, or its value is not allowed.
    """
    names = tuple(BackendOptions.__annotations__)
    for name in options:
        if name not in names:
            raise UsageError(f"a solve takes the options {', '.join(names)}, got {name!r}")
    checked = Options(**options)
    limit, gap = checked.time_limit, checked.gap
    if limit is not None and not (_is_number(limit) and limit > 0):
        raise UsageError(f"time limit must be seconds above 0, got {limit!r}")
    if not (_is_number(gap) and 0 <= gap < math.inf):
        raise UsageError(f"gap must be a finite number, 0 or more, got {gap!r}")
    if checked.method not in METHODS:
        raise UsageError(f"method must be auto, simplex or ipm, got {checked.method!r}")
    if not isinstance(checked.log, bool):
        raise UsageError(f"log must be True or False, got {checked.log!r}")
    if checked.start is not None:
        checked = evolve(checked, start=_read_start(checked.start))
    if not isinstance(checked.basis, Basis | None):
        raise UsageError(f"basis must be that of an earlier solution, got {checked.basis!r}")
    # Solvers take signed 32-bit integers.
    for name, lowest in (("threads", 1), ("seed", 0)):
        value = getattr(checked, name)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not lowest <= value < 2**31:
            raise UsageError(f"{name} must be a whole number from {lowest} to {2**31 - 1}, got {value!r}")
    return evolve(checked, time_limit=None if limit in (None, math.inf) else float(limit), gap=float(gap))


def _read_start(start: Any) -> Floats:
    """Convert a starting point to a vector of doubles, or raise a UsageError if this is not possible."""
    try:
        values = as_doubles(start)
    except (TypeError, ValueError):
        raise UsageError("start must be a vector of numbers, NaN where it gives no value") from None
    if values.ndim != 1 or np.isinf(values).any():
        raise UsageError(f"start must be a vector of finite numbers or NaN, got one of shape {values.shape}")
    return values


def _is_number(value: object) -> bool:
    """Return whether a value is a real number. Booleans do not count as numbers."""
    return isinstance(value, Real) and not isinstance(value, bool)
