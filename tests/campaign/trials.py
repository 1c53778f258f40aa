"""Runs one command in this process, as a user would, and judges how it ended."""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen
from click.testing import CliRunner

from privopt.command.cli import cli

__all__ = ["Ended", "Tally", "privopt", "spread"]

SECONDS: Final = 600
"""After which a command hangs: what takes 10 s alone took over 60 beside a load of 12."""

LONGEST: Final = 1000
"""Characters of a clear line, at most."""


class HangError(BaseException):
    """A command took too long; no handler of errors may swallow it."""


@frozen(kw_only=True)
class Ended:
    """How a command ended.

    Attributes:
        code: exit code; None where something was raised that no user should see.
        out, err: what it said.
        raised: the traceback, where there was one.
    """

    code: int | None
    out: str
    err: str
    raised: str = ""

    def faults(self, allowed: Sequence[int]) -> list[str]:
        """Return the faults: a traceback, another code, no clear line."""
        if self.code is None:
            return [f"raised {self.raised}"]
        if self.code not in allowed:
            return [f"expected an end with one of {list(allowed)}, got {self.code}: {self.err[:300]!r}"]
        if self.code == 0:
            return []
        lines = (self.err or self.out).splitlines()
        wrong = [] if lines else ["said nothing"]
        wrong += [f"a line of {len(line)} characters" for line in lines if len(line) > LONGEST][:1]
        wrong += [f"{len(lines)} lines"] * (len(lines) > 25)
        wrong += ["a traceback"] * ("Traceback" in self.err)
        # a line that stops in the middle of a control character helps nobody
        wrong += ["control characters in a message"] * any(ord(c) < 32 and c not in "\t\n" for c in self.err)
        return wrong


@contextlib.contextmanager
def patience(seconds: int = SECONDS) -> Iterator[None]:
    """Limit the time of a block."""

    def ring(signum: int, frame: Any) -> None:
        raise HangError

    old_handler = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old_handler)


def privopt(*arguments: str | Path) -> Ended:
    """Run one command."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=ResourceWarning)
        try:
            with patience():
                done = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="privopt")
        except HangError:
            return Ended(code=None, out="", err="", raised=f"nothing: it hung for {SECONDS} s")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        last = traceback.format_exception(done.exception)
        where = [line.strip() for line in last if "/privopt" in line][-1:]
        raised = f"{type(done.exception).__name__}: {' '.join(str(done.exception).split())[:200]} {where}"
        return Ended(code=None, out=done.stdout, err=done.stderr, raised=raised)
    return Ended(code=done.exit_code, out=done.stdout, err=done.stderr)


@define(kw_only=True)
class Tally:
    """Counts of one part of the campaign, and what it found."""

    part: str
    tried: int = 0
    ended: Counter[str] = field(factory=Counter)
    findings: list[str] = field(factory=list)

    def note(self, name: str, ended: Ended, wrong: Sequence[str]) -> None:
        """Count a trial."""
        self.tried += 1
        self.ended["raised" if ended.code is None else str(ended.code)] += 1
        for fault in wrong:
            self.findings.append(f"{self.part}: {name}: {fault}")
            print(self.findings[-1], file=sys.stderr, flush=True)

    def line(self) -> str:
        """As a row of a table."""
        codes = ", ".join(f"{code}: {count}" for code, count in sorted(self.ended.items()))
        return f"| {self.part} | {self.tried} | {codes} | {len(self.findings)} |"


def spread(items: Sequence[Any], count: int | None) -> list[Any]:
    """Evenly chosen items, all where ``count`` is None."""
    if count is None or count >= len(items):
        return list(items)
    return [items[round(at * (len(items) - 1) / max(1, count - 1))] for at in range(count)]
