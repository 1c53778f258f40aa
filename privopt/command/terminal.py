"""Terminal output: messages, progress, and a short table at the end. Nothing else prints.

Ids, file names and messages may hold anything: control characters in them never reach the terminal as such.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import IO, TYPE_CHECKING, Any, Final

import click

from privopt.errors import printable
from privopt.execution.compiled import when_compiling
from privopt.execution.interrupts import asked_to_end

if TYPE_CHECKING:
    from privopt.interfaces import Progress
    from privopt.run.solve import SolveOutcome
else:
    Progress = SolveOutcome = Any

__all__ = [
    "complain",
    "divert_prints",
    "print_result",
    "progress_display",
    "reserve_standard_output",
    "say_ids",
    "say_json",
    "summary",
]

SECONDS_BEFORE_PROGRESS: Final = 2.0
"""Seconds of work before any progress is shown."""

MOST_NAMED_FILES: Final = 6
"""Names of published files that a summary shows."""

MIN_BYTES_NAMED: Final = 20_000_000
"""Bytes from which on a summary names a file's size."""

ATOMIC_PIPE_BYTES: Final = 4_096
"""Bytes that a pipe takes whole or not at all."""

SECONDS_BETWEEN_LINES: Final = 5.0
"""Seconds between lines where standard error is not a terminal."""


def reserve_standard_output() -> None:
    """Reserve standard output for Python: drop what native libraries print there, whatever their options.

    Descriptor 1 leads nowhere from now on, in every thread, and ``sys.stdout`` writes to a copy of what it was. Call it
    once, where a program begins.
    """
    before = sys.stdout
    if isinstance(before, io.TextIOWrapper):  # None where standard output is closed
        before.flush()
        sys.stdout = io.TextIOWrapper(
            open(os.dup(before.fileno()), "wb", 0 if before.write_through else -1),  # noqa: SIM115
            encoding=before.encoding,
            errors=before.errors,
            line_buffering=before.line_buffering,
            write_through=before.write_through,
        )
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


_result_streams: Final[list[IO[str]]] = []
"""Standard output of the running command, while ``sys.stdout`` leads to standard error."""


@contextmanager
def divert_prints() -> Iterator[None]:
    """Open a block in which ``print`` of plugins and libraries goes to standard error.

    :func:`print_result`, :func:`say_json` and :func:`say_ids` alone write to standard output, in every thread.
    """
    if _result_streams or sys.stdout is None:  # None if standard output is closed
        yield
        return
    if isinstance(sys.stdout, io.TextIOWrapper) and codecs.lookup(sys.stdout.encoding).name == "ascii":
        sys.stdout.reconfigure(encoding="utf-8")  # a locale that knows ASCII alone; ids are Unicode
    _result_streams.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _result_streams.pop()


def _result_stream() -> IO[str]:
    return _result_streams[-1] if _result_streams else sys.stdout


def print_result(text: object) -> None:
    """Print lines to standard output."""
    click.echo(printable(str(text)), file=_result_stream())


def complain(text: object) -> None:
    """Print lines to standard error."""
    click.echo(printable(str(text)), err=True)


def say_json(document: str) -> None:
    """Print a JSON document to standard output; terminal control characters are escaped, which changes no value."""
    plain = printable(document) == document
    escaped = (c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in document.rstrip("\n"))
    click.echo(document.rstrip("\n") if plain else "".join(escaped), file=_result_stream())


def say_ids(ids: Sequence[str]) -> None:
    """Print ids on standard output, one a line: unchanged to a program, escaped on a terminal.

    Written in whole lines, so few at a time that an interrupt cuts none.
    """
    stream = _result_stream()
    step = max(1, ATOMIC_PIPE_BYTES // (1 + max((len(name.encode()) for name in ids), default=1)))
    for first in range(0, len(ids), step):
        text = "\n".join(name.replace("\n", "\\n") for name in ids[first : first + step])
        # left as it is: click would cut escapes
        click.echo(printable(text) if stream.isatty() else text, file=stream, color=True)


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


Report = tuple[str, int, float | None, float | None]
"""Phase, iteration, lower and upper bound, as in :data:`privopt.interfaces.Progress`."""


def _line(report: Report, seconds: float, limit: float | None) -> str:
    phase, iteration, lower, upper = report
    parts = [f"{seconds:6.1f} s", printable(phase)]
    if iteration:
        parts.append(f"round {iteration}")
    if upper is not None:
        parts.append(f"loss {upper:.9g}")
    if lower is not None:
        parts.append(f"bound {lower:.9g}")
    if lower is not None and upper:
        parts.append(f"gap {max(0.0, upper - lower) / abs(upper):.1e}")
    if limit is not None:
        parts.append(f"at most {_clock(max(0.0, limit - seconds))} left")
    return "  ".join(parts)


class _Display:
    """Draws the last report from a separate thread, so that a silent solver still shows progress."""

    def __init__(self, limit: float | None) -> None:
        self.start, self.limit = time.monotonic(), limit
        self.last: Report = ("reading", 0, None, None)
        self.spoken = False
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def update(self, phase: str, iteration: int, lower: float | None, upper: float | None) -> None:
        """Keep what is going on, for the thread to draw."""
        self.last = phase, iteration, lower, upper
        self.spoken = True

    def _run(self) -> None:
        if self.ended.wait(SECONDS_BEFORE_PROGRESS):
            return
        from rich.console import Console

        console = Console(stderr=True, highlight=False)
        if console.is_terminal:
            from rich.text import Text

            with console.status("") as status:
                while not self.ended.wait(0.2):
                    status.update(Text(self._text()))
            return
        while True:
            if self.spoken:
                print(self._text(), file=sys.stderr, flush=True)
            if asked_to_end():  # said once: what comes next is the last line
                return
            if self.ended.wait(SECONDS_BETWEEN_LINES if self.spoken else 0.2):
                return

    def _text(self) -> str:
        if asked_to_end():
            return f"{time.monotonic() - self.start:6.1f} s  interrupted: ending with what was found"
        return _line(self.last, time.monotonic() - self.start, self.limit)


@contextmanager
def progress_display(*, quiet: bool, limit: float | None = None) -> Iterator[Progress | None]:
    """Yield a callable that shows progress after two seconds of work; None if ``quiet``.

    On a terminal one line is kept up to date; elsewhere a line comes every five seconds. ``limit`` (seconds) says how
    long it may still take. A line says once that code is compiled that later runs reuse: that takes seconds.
    """
    if quiet:
        yield None
        return
    when_compiling(complain)
    display = _Display(limit)
    display.thread.start()
    try:
        yield display.update
    finally:
        display.ended.set()
        display.thread.join()


def summary(solved: SolveOutcome) -> None:
    """Print a short table of what was released, on standard error."""
    from rich import markup
    from rich.console import Console
    from rich.table import Table

    from privopt.files.release_folder import PROBLEM

    def escape(text: str) -> str:
        return markup.escape(printable(text))

    result = solved.result
    objective, guarantee, certificate = result.objective, result.guarantee, result.certificate
    table = Table(show_header=False, box=None, pad_edge=False)
    unit = escape(objective.unit_in_words)
    table.add_row(objective.measured, f"{objective.value:.9g} {unit}")
    if objective.lower_bound is None:
        table.add_row("bound", "none")
    else:
        over = "" if objective.bound_over is None else f", over {objective.bound_over} outputs"
        table.add_row("bound", f"{objective.lower_bound:.9g} {unit} (gap {objective.gap:.2g}{over})")
    epsilon = "" if guarantee.epsilon is None else f" epsilon {float(guarantee.epsilon):g} {guarantee.unit}"
    table.add_row("guarantee", escape(f"{guarantee.kind}{epsilon} {guarantee.scope}".rstrip()))
    if certificate.holds is not None:
        colour = "green" if certificate.evidence == "proved" else "yellow"
        table.add_row(
            "certificate",
            f"[bold {colour}]{certificate.evidence}[/]: {certificate.in_words}",
        )
    if result.mark:
        table.add_row("[bold red]warning[/]", f"[bold red]{result.mark}[/]")
    table.add_row("status", result.status_in_words + (" (stopped early)" if solved.stopped else ""))
    table.add_row("time", f"{result.time.total:.2f} s")
    sizes = {path.name: path.stat().st_size for path in sorted(solved.folder.iterdir()) if path.is_file()}
    large = [f"({name} {size / 1e6:,.0f} MB)" for name, size in sizes.items() if size >= MIN_BYTES_NAMED]
    table.add_row("written", escape(" ".join((str(solved.folder), *large))))
    shared = sorted(path.name for path in (solved.folder / PROBLEM).rglob("*") if path.is_file())
    more = f" and {len(shared) - MOST_NAMED_FILES} more" if len(shared) > MOST_NAMED_FILES else ""
    table.add_row("published", escape(f"with the release: {', '.join(shared[:MOST_NAMED_FILES])}{more}"))
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(table)
    for line in solved.meaning:
        console.print(escape(line))
    if solved.stopped:
        partial = solved.folder.with_name(f"{solved.folder.name}.partial")
        how = "--resume --force goes on from there" if partial.is_dir() else "--force and more time may lose less"
        console.print(escape(f"Stopped early: {solved.folder} is certified and kept; the same command with {how}."))
