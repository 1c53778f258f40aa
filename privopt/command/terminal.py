"""Terminal output: messages, progress, and the summary table after a solve. Other modules do not print.

Control characters in ids, file names and messages are escaped before they reach a terminal. Results go to standard
output and everything else to standard error, so that a pipe receives only results.
"""

from __future__ import annotations

import codecs
import io
import json
import math
import os
import shlex
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from privopt.errors import number_of, printable
from privopt.execution.clock import asked_to_end
from privopt.execution.compiled import when_compiling

if TYPE_CHECKING:
    from rich.console import Console

    from privopt.interfaces import Progress
    from privopt.run.solve import SolveOutcome
else:
    Console = Progress = SolveOutcome = Any

__all__ = [
    "ReaderGoneError",
    "align_columns",
    "complain",
    "discard_lost_messages",
    "divert_prints",
    "is_quiet",
    "line_width",
    "print_result",
    "progress_display",
    "remark",
    "reserve_standard_output",
    "say_ids",
    "say_json",
    "show_step",
    "summary",
]

SECONDS_BEFORE_PROGRESS: Final = 2.0
"""The time, in seconds, after which progress is first shown."""

MOST_NAMED_FILES: Final = 6
"""The maximum number of published files named in a summary."""

MIN_BYTES_NAMED: Final = 20_000_000
"""The minimum size, in bytes, at which a file's size is shown in the summary."""

ATOMIC_PIPE_BYTES: Final = 4_096
"""The maximum number of bytes that Linux writes to a pipe atomically (PIPE_BUF)."""

SECONDS_BETWEEN_LINES: Final = 5.0
"""The number of seconds between progress lines when standard error is not a terminal."""

MIN_TEXT_COLUMNS: Final = 24
"""The minimum width, in characters, to which the last column of a table is wrapped."""

QUIET_KEY: Final = "privopt.quiet"
"""The key in the ``meta`` of a command's click context under which ``--quiet`` is recorded."""


class ReaderGoneError(Exception):
    """Raised by :func:`say_ids` if the program that reads the ids, such as ``head``, has closed the pipe."""


class _OutputFile(io.FileIO):
    """The file of a standard stream, which discards what nobody can receive.

    The exit code then says how the command ended, whatever has become of its output.

    Attributes:
        lost: The type of the errors after which everything further is discarded.
        is_discarded: Whether such an error has occurred.
    """

    def __init__(self, descriptor: int, lost: type[OSError]) -> None:
        """Open a copy of a file descriptor for writing."""
        super().__init__(os.dup(descriptor), "wb")
        self.lost, self.is_discarded = lost, False

    def write(self, data: Any, /) -> int:
        """Write bytes as :class:`io.FileIO` does, or discard them, and return how many were written or discarded."""
        if not self.is_discarded:
            try:
                return super().write(data)
            except self.lost:
                self.is_discarded = True
        return len(data)


def _reopen(stream: io.TextIOWrapper, lost: type[OSError]) -> io.TextIOWrapper:
    """Return a stream that writes to the same file as a standard stream, through an :class:`_OutputFile`."""
    stream.flush()
    file = _OutputFile(stream.fileno(), lost)
    return io.TextIOWrapper(
        file if stream.write_through else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def reserve_standard_output() -> None:
    """Reserve standard output for Python, and discard what native libraries such as solvers print there.

    After the call, file descriptor 1 points to the null device in every thread, and ``sys.stdout`` writes to a copy of
    the original descriptor. What is printed after its reader has closed the pipe is discarded. Call this function once,
    when a program starts.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # it is None if standard output is closed
        sys.stdout = _reopen(sys.stdout, BrokenPipeError)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def discard_lost_messages() -> None:
    """Discard what cannot be printed to standard error, for example because its reader has closed the pipe.

    Call this function once, when a program starts.
    """
    if isinstance(sys.stderr, io.TextIOWrapper):  # it is None if standard error is closed
        sys.stderr = _reopen(sys.stderr, OSError)


_result_streams: Final[list[IO[str]]] = []
"""A list that contains the real standard output while :func:`divert_prints` redirects ``sys.stdout``, and is empty
otherwise."""


@contextmanager
def divert_prints() -> Iterator[None]:
    """Redirect to standard error everything that plugins and libraries print inside a ``with`` block.

    This applies to all threads. Only :func:`print_result`, :func:`say_json` and :func:`say_ids` still write to standard
    output.
    """
    # In a nested block, nothing changes, because sys.stdout already is standard error.
    if _result_streams or sys.stdout is None:  # None if standard output is closed
        yield
        return
    if isinstance(sys.stdout, io.TextIOWrapper) and codecs.lookup(sys.stdout.encoding).name == "ascii":
        sys.stdout.reconfigure(encoding="utf-8")  # the locale allows only ASCII, but ids are Unicode
    _result_streams.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _result_streams.pop()


def _result_stream() -> IO[str] | None:
    """Return the stream for results, which is the real standard output even in a :func:`divert_prints` block.

    It is None if standard output is closed.
    """
    return _result_streams[-1] if _result_streams else sys.stdout


def _is_terminal(stream: IO[str] | None) -> bool:
    """Return whether a stream is open and writes to a terminal."""
    return stream is not None and stream.isatty()


def _is_reader_gone(stream: IO[str] | None) -> bool:
    """Return whether a stream discards its output because its reader has closed the pipe."""
    buffer = getattr(stream, "buffer", None)
    # An unbuffered stream writes directly to its file.
    file = getattr(buffer, "raw", buffer)
    return isinstance(file, _OutputFile) and file.is_discarded


def print_result(text: object) -> None:
    """Print a result to standard output."""
    click.echo(printable(str(text)), file=_result_stream())


def complain(text: object) -> None:
    """Print a message that ``--quiet`` must not suppress, such as an error, to standard error."""
    click.echo(printable(str(text)), err=True)


def remark(text: object) -> None:
    """Print a note or a warning to standard error, unless ``--quiet`` was given.

    With ``--quiet``, a command that succeeds prints nothing, so that cron does not send mail. Everything important
    about a release is also in its result.json and its report.
    """
    if not is_quiet():
        complain(text)


def is_quiet() -> bool:
    """Return whether the running command was called with ``--quiet``."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET_KEY))


def line_width() -> int | None:
    """Return the width, in characters, at which text is wrapped.

    This is the value of the environment variable COLUMNS, if set, or the width of the terminal that the output goes to.
    If there is neither, the result is None and text is not wrapped.
    """
    if "COLUMNS" in os.environ or _is_terminal(_result_stream()):
        return shutil.get_terminal_size().columns
    return None


def align_columns(rows: Sequence[Sequence[str]], *, indent: int = 0) -> str:
    """Format rows as text in aligned columns.

    On a terminal, text in the last column is wrapped at word boundaries, and its continuation lines stay within the
    column.

    Args:
        rows: The cells of each row. All rows must have the same number of cells.
        indent: The number of spaces before each line.
    """
    # Every column except the last is as wide as its widest cell. Columns are separated by two spaces.
    widths = [max((len(row[number]) for row in rows), default=0) for number in range(len(rows[0]) - 1)] if rows else []
    columns = line_width()
    margin = indent + sum(width + 2 for width in widths)
    lines = []
    for *cells, text in rows:
        start = " " * indent + "".join(f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=True))
        if columns is None:
            lines.append((start + text).rstrip())
            continue
        text_width = max(columns - margin, MIN_TEXT_COLUMNS)
        parts = textwrap.wrap(text, text_width, break_long_words=False, break_on_hyphens=False) or [""]
        lines += [(start + parts[0]).rstrip(), *(" " * margin + part for part in parts[1:])]
    return "\n".join(lines)


def say_json(document: str) -> None:
    """Print a JSON document to standard output.

    Control and formatting characters are written as JSON escapes, so that a terminal does not act on them. Parsing the
    output still gives the original values.
    """
    is_printable = printable(document) == document
    escaped = (c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in document.rstrip("\n"))
    click.echo(document.rstrip("\n") if is_printable else "".join(escaped), file=_result_stream())


def say_ids(ids: Sequence[str]) -> None:
    """Print ids to standard output, one per line. Control characters are escaped only on a terminal.

    A line break inside an id is always escaped, so that one id never looks like two. Lines are written in batches small
    enough that an interrupt never cuts a line short.

    Raises:
        ReaderGoneError: The program that reads the ids has closed the pipe, so no further ids are needed.
    """
    stream = _result_stream()
    # As many lines are written at a time as fit into one atomic write to a pipe, assuming that all are as long as the
    # longest.
    step = max(1, ATOMIC_PIPE_BYTES // (1 + max((len(name.encode()) for name in ids), default=1)))
    for start in range(0, len(ids), step):
        text = "\n".join(name.replace("\n", "\\n") for name in ids[start : start + step])
        # Without color=True, click would remove escape sequences, which can be part of an id.
        click.echo(printable(text) if _is_terminal(stream) else text, file=stream, color=True)
        if _is_reader_gone(stream):
            raise ReaderGoneError


def _format_clock(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours, depending on its length."""
    # Minutes are used from 1.5 minutes (90 s) on, and hours from 1.5 hours (5,400 s) on.
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


Report = tuple[str, int, float | None, float | None]
"""A phase, iteration, lower bound and upper bound, as in :data:`privopt.interfaces.Progress`."""


def _describe_step(report: Report, seconds: float, limit: float | None) -> str:
    """Return the first part of a progress message: the elapsed time, the current step and the time left.

    Args:
        report: The latest progress report of the search.
        seconds: The number of seconds since the start.
        limit: The time limit in seconds, or None for no limit.
    """
    phase, iteration, _, _ = report
    parts = [f"{seconds:6.1f} s", printable(phase)]
    if iteration:
        parts.append(f"round {iteration}")
    if limit is not None:
        # Work may go on after the limit, which applies only to the search. Repair, certification and writing follow.
        is_over = seconds >= limit
        parts.append("time limit passed" if is_over else f"at most {_format_clock(limit - seconds)} left")
    return "  ".join(parts)


def _describe_best(report: Report) -> str:
    """Describe the best release so far for the second part of a progress message, or return "" if none is known."""
    _, _, lower, upper = report
    parts = []
    if upper is not None:
        parts.append(f"loss {upper:.6g}")
    if lower is not None:
        parts.append(f"bound {lower:.6g}")
    if lower is not None and upper:  # a loss of 0 has no relative gap
        percent = 100 * max(0.0, upper - lower) / abs(upper)
        # For 99.5 and more, the format .2g would print 1e+02.
        parts.append(f"gap {percent:{'.2g' if percent < 99.5 else '.0f'}} %")
    if upper is not None:
        parts.append("Ctrl-C keeps the best so far")
    return "  ".join(parts)


class _Display:
    """A display of the latest progress report, drawn by a separate thread.

    The thread also keeps the elapsed time up to date while there are no new reports.

    Attributes:
        start: The time at which the display was created, in seconds on the monotonic clock.
        limit: The time limit in seconds, or None for no limit.
        last: The latest progress report.
        has_report: Whether any report has arrived. Until then, no line is printed to a log.
        ended: An event that is set when the work is over, which ends the thread.
        thread: The thread that draws the display.
    """

    def __init__(self, limit: float | None) -> None:
        """Create the display without starting its thread."""
        self.start, self.limit = time.monotonic(), limit
        self.last: Report = ("reading", 0, None, None)
        self.has_report = False
        self.ended = threading.Event()
        # A daemon thread does not keep the process from exiting.
        self.thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def update(self, phase: str, iteration: int, lower: float | None, upper: float | None) -> None:
        """Store the latest progress report, to be drawn by the thread. See :data:`privopt.interfaces.Progress`."""
        # Assigning a tuple needs no lock, because the thread can never see parts of two reports.
        self.last = phase, iteration, lower, upper
        self.has_report = True

    def _run(self) -> None:
        """Show progress until :attr:`ended` is set: live on a terminal, and as a line every few seconds elsewhere."""
        if self.ended.wait(SECONDS_BEFORE_PROGRESS):
            return
        # Imported here because short commands never need it.
        from rich.console import Console

        console = Console(stderr=True, highlight=False)
        if console.is_terminal:
            self._animate(console)
            return
        while True:
            if self.has_report:
                print(self._text(), file=sys.stderr, flush=True)
            # After an interrupt, the line just printed, which says that the work is ending, is the last one.
            if asked_to_end():
                return
            # Until the first report arrives, check often, so that its line is printed promptly.
            if self.ended.wait(SECONDS_BETWEEN_LINES if self.has_report else 0.2):
                return

    def _animate(self, console: Console) -> None:
        """Redraw the display on a terminal until :attr:`ended` is set.

        It shows a spinner, the current step and, if there is a time limit, a progress bar. The best release so far is
        shown on a separate line, so that nothing is cut off at 80 columns.
        """
        from rich.console import Group
        from rich.live import Live
        from rich.markup import escape
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Bars
        from rich.text import Text

        # The bar shows how much of the time limit has passed. Without a limit, the end cannot be predicted and there is
        # no bar.
        bar = () if self.limit is None else (BarColumn(bar_width=10),)
        bars = Bars(SpinnerColumn(), TextColumn("{task.description}"), *bar, console=console)
        task = bars.add_task("", total=self.limit)

        def frame() -> Group:
            """Return the lines that the display should currently show."""
            report, seconds = self.last, time.monotonic() - self.start
            completed = min(seconds, self.limit or math.inf)
            bars.update(task, description=escape(self._step(report, seconds)), completed=completed)
            best = "" if asked_to_end() else _describe_best(report)
            return Group(bars, *([Text(f"  {best}", no_wrap=True, overflow="ellipsis")] if best else []))

        with Live(console=console, transient=True, refresh_per_second=5, get_renderable=frame):
            self.ended.wait()

    def _step(self, report: Report, seconds: float) -> str:
        """Return the first part of a progress message. After an interrupt, it says that the work is ending."""
        if asked_to_end():
            return f"{seconds:6.1f} s  interrupted: ending with what was found"
        return _describe_step(report, seconds, self.limit)

    def _text(self) -> str:
        """Return the progress line to print when standard error is not a terminal."""
        report, seconds = self.last, time.monotonic() - self.start
        best = "" if asked_to_end() else _describe_best(report)
        return "  ".join(filter(None, [self._step(report, seconds), best]))


def show_step(progress: Progress | None, step: str) -> None:
    """Report that a command has begun a step, unless ``progress`` is None."""
    if progress is not None:
        progress(step, 0, None, None)


@contextmanager
def progress_display(*, quiet: bool, limit: float | None = None) -> Iterator[Progress | None]:
    """Yield a function that shows progress once the work has taken two seconds, or None if ``quiet`` is set.

    On a terminal, up to two lines are shown and updated in place. Otherwise, a line is printed every five seconds. If
    code has to be compiled, a message says so and adds that later runs reuse the compiled code.

    Args:
        quiet: Whether to show no progress.
        limit: The time limit of the work in seconds, used to show the remaining time, or None for no limit.
    """
    if quiet:
        yield None
        return
    display = _Display(limit)
    display.thread.start()
    try:
        # This prints a line if code has to be compiled, which can take some time.
        with when_compiling(complain):
            yield display.update
    finally:
        display.ended.set()
        display.thread.join()


def _describe_published_files(solved: SolveOutcome, problem_folder: Path) -> tuple[str, str]:
    """Return the summary row that says which of the problem's files are published.

    Args:
        solved: The outcome of the solve.
        problem_folder: The release's copy of the problem.

    Returns:
        The label and the text of the row.
    """
    if solved.is_private:
        return "private", "all of it is private to its owner: publish no file of this folder"
    # The problem's public files are in DIR too, and the user should know which of them are published.
    names = sorted(path.name for path in problem_folder.rglob("*") if path.is_file())
    shared = [name for name in names if name not in solved.secret_names]
    omission_note = f" and {len(shared) - MOST_NAMED_FILES} more" if len(shared) > MOST_NAMED_FILES else ""
    # Secret files are only counted, because naming them would read as if they were published.
    secret_count = len(names) - len(shared)
    noisy_note = f", and noisy results from {number_of(secret_count, 'secret file')}" if secret_count else ""
    return "published", f"with the release: {', '.join(shared[:MOST_NAMED_FILES])}{omission_note}{noisy_note}"


def summary(solved: SolveOutcome) -> None:
    """Print a short table about a solve and its release to standard error, and suggest commands to run next."""
    from rich import markup
    from rich.console import Console
    from rich.table import Table

    from privopt.files.release_folder import PROBLEM

    def escape(text: str) -> str:
        """Escape control characters, as well as square brackets, which rich would interpret as markup."""
        return markup.escape(printable(text))

    result = solved.result
    objective, guarantee, certificate = result.objective, result.guarantee, result.certificate
    # The rows show the loss and bound, the guarantee and certificate, how the run went, and which files were written.
    table = Table(show_header=False, box=None, pad_edge=False)

    def amount(value: float) -> str:
        """Format a value of the objective with its unit."""
        return f"{value:.9g} {escape(objective.unit_after(value))}"

    table.add_row(objective.measured_quantity, amount(objective.value))
    # `told_bound` is a bound that the solver reported but the folder does not prove.
    if result.told_bound is not None:
        table.add_row("bound", f"{amount(result.told_bound)} by the solver, not proved")
    elif objective.lower_bound is None:
        table.add_row("bound", "none")
    else:
        scope_note = "" if objective.bound_over is None else f", over {objective.bound_over} outputs"
        table.add_row("bound", f"{amount(objective.lower_bound)} (gap {objective.gap:.2g}{scope_note})")
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
    # Large files are listed with their sizes, which matter for uploads and repositories.
    large = [f"({name} {size / 1e6:,.0f} MB)" for name, size in sizes.items() if size >= MIN_BYTES_NAMED]
    table.add_row("written", escape(" ".join((str(solved.folder), *large))))
    table.add_row(*map(escape, _describe_published_files(solved, solved.folder / PROBLEM)))
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(table)
    for line in solved.meaning:
        console.print(escape(line))
    folder = shlex.quote(str(solved.folder))
    console.print(escape(f"Next: privopt verify {folder}; privopt report {folder}"))
    if solved.stopped:
        partial = solved.folder.with_name(f"{solved.folder.name}.partial")
        how = "--resume --force goes on from there" if partial.is_dir() else "--force and more time may lose less"
        console.print(escape(f"Stopped early: {solved.folder} is certified and kept; the same command with {how}."))
