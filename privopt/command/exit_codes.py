"""Exit codes, the conversion of errors to messages and exit codes, and options shared by several commands.

The codes are listed in docs/reference/files.md. Code 1 is reserved for a claim that does not hold.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Final, NoReturn, ParamSpec

import click

from privopt.command.terminal import QUIET_KEY, ReaderGoneError, complain, divert_prints, remark
from privopt.errors import PrivoptError
from privopt.execution.clock import interrupts_on_end
from privopt.registry.missing import describe_missing_library

__all__ = [
    "DOES_NOT_HOLD",
    "DONE",
    "GAP",
    "HASH_SUBJECTS",
    "JOBS",
    "PATH",
    "QUIET",
    "SEED",
    "SOLVER",
    "STOPPED_FEASIBLE",
    "TIME_LIMIT",
    "check_fraction",
    "end_with_error",
    "handle_errors",
    "pair",
    "positive",
    "utf8",
    "warn_of_no_privacy",
]

P = ParamSpec("P")
"""The parameters of a command's function."""

# The exit codes. Code 3, for infeasible and unbounded problems, is defined only in privopt.errors.
DONE: Final = 0
DOES_NOT_HOLD: Final = 1  # a claim does not hold, or a check of the conformance kit failed
BAD_USAGE: Final = 2
STOPPED_FEASIBLE: Final = 4  # stopped early, with a certified release
STOPPED_EMPTY: Final = 5  # stopped without a result
NO_PRIVACY: Final = 6  # the claims hold, but give no privacy or have weaker evidence than was required

# Types of arguments, and options that several commands share.
PATH: Final = click.Path(path_type=Path)
SEED: Final = click.IntRange(0, 2**63 - 1)
JOBS: Final = click.option(
    "--jobs",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Processes and threads; default: 1 process, a thread per processor.",
)
HASH_SUBJECTS: Final = click.option(
    "--hash-subjects",
    "key",
    type=PATH,
    metavar="KEYFILE",
    help="With --ledger: it names subjects by a hash under this key, created if missing.",
)
SOLVER: Final = click.option(
    "--solver", default="cbc", show_default=True, metavar="NAME", help="cbc, highs or a registered one."
)


def _keep_quiet(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    """Click callback that records ``--quiet`` in the context, for use by :func:`privopt.command.terminal.remark`."""
    context.meta[QUIET_KEY] = value
    return value


QUIET: Final = click.option(
    "--quiet", is_flag=True, callback=_keep_quiet, help="Print nothing on success; errors are still printed."
)


def positive(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Click callback that accepts only finite numbers above 0.

    A valid value is returned unchanged, as is None, which means that the option was omitted.
    """
    # NaN fails both comparisons and is therefore rejected, too.
    if value is not None and not (0 < value < float("inf")):
        raise click.BadParameter(f"{value:g} is not a finite number above 0")
    return value


def check_fraction(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Click callback for ``--gap`` that accepts only numbers above 0 and below 1.

    A valid value is returned unchanged, as is None, which means that the option was omitted. A gap of 1 is rejected,
    because every release would then count as optimal.
    """
    if value is not None and not 0 < value < 1:
        raise click.BadParameter(f"{value:g} is not a number above 0 and below 1")
    return value


GAP: Final = click.option(
    "--gap",
    type=float,
    callback=check_fraction,
    metavar="RELATIVE",
    help="Relative gap to reach; default: the method's own, 1e-6 for most. 0.01 is enough for a first look.",
)
TIME_LIMIT: Final = click.option(
    "--time-limit",
    type=float,
    callback=positive,
    metavar="SECONDS",
    help="For the search; certifying and writing follow.",
)


def handle_errors(command: Callable[P, int | None]) -> Callable[P, None]:
    """Decorate a command so that errors are printed to standard error and the process ends with an exit code.

    privopt's errors have their own exit codes. Interrupts and nearly all other exceptions lead to code 5, so that code
    1 always means that a claim does not hold. Only text that the command prints through :mod:`privopt.command.terminal`
    goes to standard output.
    """

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        """Run the command, and end the process with its exit code or with the exit code for the error it raised."""
        try:
            with divert_prints(), interrupts_on_end():
                code = command(*args, **kwargs)
        except ReaderGoneError:  # not an error, because the reader has all that it wanted
            sys.exit(DONE)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BaseException as error:
            end_with_error(error)
        sys.exit(code or DONE)

    return run


def end_with_error(error: BaseException) -> NoReturn:
    """Print a message about an error, and end the process with the exit code for it.

    Args:
        error: The error, which is being handled by the caller.
    """
    if isinstance(error, PrivoptError):
        _end("\n".join((str(error), *_read_notes(error))), error.exit_code)
    if isinstance(error, KeyboardInterrupt):
        _end("\n".join(("interrupted", *_read_notes(error))), STOPPED_EMPTY)
    if isinstance(error, OSError):
        message = f"{error.filename or 'input or output'}: {error.strerror or error or type(error).__name__}"
        # A name that is too long counts as bad usage, because the user has to choose another.
        is_too_long = error.errno == errno.ENAMETOOLONG
        if is_too_long and isinstance(error.filename, (str, bytes)):
            message += f", {len(os.fsencode(error.filename)):,} bytes"
        _end("\n".join((message, *_read_notes(error))), BAD_USAGE if is_too_long else STOPPED_EMPTY)
    if isinstance(error, MemoryError):  # no traceback, because formatting it would take memory
        _end("out of memory", STOPPED_EMPTY)
    if isinstance(error, ModuleNotFoundError) and (advice := describe_missing_library(error)):
        _end(advice, BAD_USAGE)
    # Python's own exit code for an exception is 1, which is reserved for a claim that does not hold. The code of a
    # SystemExit that a plugin's code raises says nothing about the command, which may have done nothing.
    advice = "an error in privopt or in a plugin, not in your input: please report the lines above"
    _end(f"{traceback.format_exc().rstrip()}\n{advice}", STOPPED_EMPTY)


def _end(message: str, code: int) -> NoReturn:
    """Print a message to standard error if possible, and in any case end the process with an exit code."""
    try:
        complain(message)
    except OSError:
        # The terminal is gone. The stream is closed, because Python would otherwise exit with a code of its own when it
        # fails to flush the stream.
        with suppress(OSError):
            sys.stderr.close()
    sys.exit(code)


def _read_notes(error: BaseException) -> list[str]:
    """Return the notes attached to an error, which may state, for example, what has been charged to a ledger so far."""
    return getattr(error, "__notes__", [])


def utf8(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Click callback that decodes an argument as UTF-8 regardless of the locale.

    Ids and column names in files are in UTF-8. Python decodes arguments with the locale's encoding, and maps bytes that
    it cannot decode to lone surrogates. An argument with such surrogates is converted back to bytes and decoded
    again.
    """
    if value is None:
        return None
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:  # bytes that an ASCII locale could not read
        return os.fsencode(value).decode("utf-8", "replace")
    return value


def pair(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, float] | None:
    """Click callback that parses two numbers, as in ``--at 41.9,12.5``, or returns None if the option is omitted.

    Raises:
        click.BadParameter: The string does not consist of two numbers separated by a comma.
    """
    if value is None:
        return None
    try:
        first, second = (float(part) for part in value.split(","))
    except ValueError:
        # The text is a secret position. Messages may be kept in logs, so this one does not quote it.
        raise click.BadParameter("expected two numbers with a comma between, such as 41.9,12.5") from None
    return first, second


def warn_of_no_privacy(folder: Path) -> None:
    """Print a warning if all claims of a release hold but the release provides no privacy."""
    from privopt.run.build_result import read_result

    mark = read_result(folder).mark
    if mark:
        remark(f"warning: {folder}: {mark}")
