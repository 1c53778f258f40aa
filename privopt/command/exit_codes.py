"""Turn errors into lines and exit codes, and read the options and limits that all commands share."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Final, ParamSpec

import click

from privopt.command.terminal import complain, divert_prints
from privopt.errors import PrivoptError

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
    "guarded",
    "pair",
    "positive",
    "share",
    "utf8",
    "warn_of_no_privacy",
]

P = ParamSpec("P")

DONE: Final = 0
DOES_NOT_HOLD: Final = 1
BAD_USAGE: Final = 2
STOPPED_FEASIBLE: Final = 4
STOPPED_EMPTY: Final = 5
NO_PRIVACY: Final = 6

PATH: Final = click.Path(path_type=Path)
SEED: Final = click.IntRange(0, 2**63 - 1)
JOBS: Final = click.option(
    "--jobs", type=click.IntRange(1, 1024), metavar="N", help="Processes and threads; default: 1, a thread a processor."
)
HASH_SUBJECTS: Final = click.option(
    "--hash-subjects",
    "key",
    type=PATH,
    metavar="KEYFILE",
    help="With --ledger: it names subjects by a hash under this key, made where there is none.",
)
SOLVER: Final = click.option(
    "--solver", default="cbc", show_default=True, metavar="NAME", help="cbc, highs or a registered one."
)
QUIET: Final = click.option("--quiet", is_flag=True, help="No progress; errors and warnings still come.")


def positive(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Refuse an option that is not a finite number above 0."""
    if value is not None and not (0 < value < float("inf")):
        raise click.BadParameter(f"{value:g} is not a finite number above 0")
    return value


def share(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Refuse an option that is not between 0 and 1: a gap of 1 would call anything optimal."""
    if value is not None and not 0 < value < 1:
        raise click.BadParameter(f"{value:g} is not a number above 0 and below 1")
    return value


GAP: Final = click.option(
    "--gap",
    type=float,
    callback=share,
    metavar="RELATIVE",
    help="Relative gap asked for; default: the method's own, 1e-6 for most. 0.01 does for a first look.",
)
TIME_LIMIT: Final = click.option(
    "--time-limit",
    type=float,
    callback=positive,
    metavar="SECONDS",
    help="For the search; certifying and writing follow.",
)


def guarded(command: Callable[P, int | None]) -> Callable[P, None]:
    """Turn privopt's errors into their lines and exit codes, and interrupts into 5.

    What the command prints by :mod:`privopt.command.terminal` is all that reaches standard output.
    """

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with divert_prints():
                code = command(*args, **kwargs)
        except PrivoptError as error:
            complain("\n".join((str(error), *_notes(error))))
            sys.exit(error.exit_code)
        except KeyboardInterrupt as error:
            complain("\n".join(("interrupted", *_notes(error))))
            sys.exit(STOPPED_EMPTY)
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(DONE)
        except OSError as error:
            found = f"{error.filename or 'input or output'}: {error.strerror or error or type(error).__name__}"
            complain("\n".join((found, *_notes(error))))
            sys.exit(STOPPED_EMPTY)
        except MemoryError:
            complain("out of memory")
            sys.exit(STOPPED_EMPTY)
        except Exception as error:  # code 1 would say that a claim does not hold, which no one has found
            if isinstance(error, (click.ClickException, click.exceptions.Exit, click.Abort)):
                raise
            complain(traceback.format_exc().rstrip())
            complain("a fault of privopt or of a plugin, not of your input: please report the lines above")
            sys.exit(STOPPED_EMPTY)
        sys.exit(code or DONE)

    return run


def _notes(error: BaseException) -> list[str]:
    """Return what else belongs to an error, such as what a ledger was charged before it."""
    return getattr(error, "__notes__", [])


def utf8(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return an argument decoded as UTF-8, whatever the locale: ids and names of columns are UTF-8."""
    if value is None:
        return None
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:  # bytes that an ASCII locale could not read
        return os.fsencode(value).decode("utf-8", "replace")
    return value


def pair(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, float] | None:
    """Parse two numbers with a comma between."""
    if value is None:
        return None
    try:
        first, second = (float(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not two numbers with a comma between") from None
    return first, second


def warn_of_no_privacy(folder: Path) -> None:
    """Print a warning to users of a release that holds and yet gives no privacy."""
    from privopt.run.result_file import read_result

    words = read_result(folder).mark
    if words:
        complain(f"warning: {folder}: {words}")
