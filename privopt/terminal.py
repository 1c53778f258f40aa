"""What the terminal shows: progress on standard error while work goes on, a short table at its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from privopt.interfaces import Progress
    from privopt.solve import Solved

__all__ = ["progress_display", "summary"]

PATIENCE: Final = 2.0
"""Seconds of work before any progress is shown."""

EVERY: Final = 5.0
"""Seconds between lines where standard error is no terminal."""


def _line(phase: str, iteration: int, lower: float | None, upper: float | None, seconds: float) -> str:
    parts = [f"{seconds:6.1f} s", phase]
    if iteration:
        parts.append(f"round {iteration}")
    if upper is not None:
        parts.append(f"loss {upper:.9g}")
    if lower is not None:
        parts.append(f"bound {lower:.9g}")
    if lower is not None and upper is not None and upper:
        parts.append(f"gap {max(0.0, upper - lower) / abs(upper):.1e}")
    return "  ".join(parts)


@contextmanager
def progress_display(*, quiet: bool) -> Iterator[Progress | None]:
    """A callable that shows progress after two seconds of work; None where ``quiet``.

    On a terminal one line is kept up to date; elsewhere a line comes every five seconds.
    """
    if quiet:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True)
    start = time.monotonic()
    shown = [start + PATIENCE - EVERY]
    status: list[Any] = []

    def tell(phase: str, iteration: int, lower: float | None, upper: float | None) -> None:
        now = time.monotonic()
        if now - start < PATIENCE:
            return
        line = _line(phase, iteration, lower, upper, now - start)
        if console.is_terminal:
            if not status:
                status.append(console.status(line))
                status[0].start()
            status[0].update(line)
        elif now - shown[0] >= EVERY:
            shown[0] = now
            print(line, file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        for live in status:
            live.stop()


def summary(solved: Solved) -> None:
    """A short table of what was released, on standard error."""
    from rich.console import Console
    from rich.table import Table

    result = solved.result
    objective, guarantee, certificate = result["objective"], result["guarantee"], result["certificate"]
    table = Table(show_header=False, box=None, pad_edge=False)
    name = "protected" if objective["unit"] == "places" else "loss"
    table.add_row(name, f"{objective['value']:.9g} {objective['unit']}")
    if objective["lower_bound"] is None:
        table.add_row("bound", "none")
    else:
        table.add_row("bound", f"{objective['lower_bound']:.9g} {objective['unit']} (gap {objective['gap']:.2g})")
    epsilon = "" if guarantee["epsilon"] is None else f" epsilon {guarantee['epsilon']:g} {guarantee['unit']}"
    table.add_row("guarantee", f"{guarantee['kind']}{epsilon} {guarantee['scope']}".rstrip())
    if certificate["holds"] is None:
        table.add_row("certificate", "none: this method claims nothing")
    else:
        worst, allowed = certificate["worst"], certificate["allowed"]
        table.add_row(
            "certificate", f"holds: worst {worst:.9g} of {allowed:.9g} ({certificate['checked']:,} conditions)"
        )
    if guarantee.get("seeded"):
        table.add_row("warning", "seeded, not private: the noise came from --seed")
    table.add_row("status", result["status"] + (" (stopped early)" if solved.stopped else ""))
    table.add_row("time", f"{result['time']['total']:.2f} s")
    table.add_row("written", str(solved.folder))
    Console(stderr=True, highlight=False, soft_wrap=True).print(table)
