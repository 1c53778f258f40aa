"""What the terminal shows: progress on standard error while work goes on, a short table at its end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

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


class _Display:
    """Draws what was told last, from a thread of its own: a solver that says one thing and then works for minutes is
    still seen to work.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)
        self.start = time.monotonic()
        self.last: tuple[str, int, float | None, float | None] | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def tell(self, phase: str, iteration: int, lower: float | None, upper: float | None) -> None:
        """Keep what is going on, for the thread to draw."""
        self.last = (phase, iteration, lower, upper)

    def _run(self) -> None:
        if self.ended.wait(PATIENCE):
            return
        if self.console.is_terminal:
            with self.console.status("") as status:
                while not self.ended.wait(0.2):
                    status.update(self._text())
            return
        while True:
            if self.last is not None:
                print(self._text(), file=sys.stderr, flush=True)
            if self.ended.wait(EVERY if self.last is not None else 0.2):
                return

    def _text(self) -> str:
        return _line(*(self.last or ("reading", 0, None, None)), time.monotonic() - self.start)


@contextmanager
def progress_display(*, quiet: bool) -> Iterator[Progress | None]:
    """A callable that shows progress after two seconds of work; None where ``quiet``.

    On a terminal one line is kept up to date; elsewhere a line comes every five seconds.
    """
    if quiet:
        yield None
        return
    display = _Display()
    display.thread.start()
    try:
        yield display.tell
    finally:
        display.ended.set()
        display.thread.join()


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
