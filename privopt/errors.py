"""The errors that privopt raises, and the exit code of each.

::

    PrivoptError
    ├── DoesNotHoldError      1   a folder is used whose claim does not hold
    ├── InputError            2   faults in what the user gave: one line each, reported together
    ├── UsageError            2   a command or call that cannot be meant so
    │   ├── BudgetSpentError  2   a ledger's limit would be passed: nothing is charged, nothing drawn
    │   └── UnknownNameError  2   no such mechanism, method, solver: the nearest names are offered
    ├── RegistryError         2   plugins that clash or hook up wrongly
    ├── ModelError            2   a model that the DSL cannot accept (not linear, unknown index, ...)
    ├── InfeasibleError       3   the problem has no solution; the clashing families are named
    ├── UnboundedError        3   the objective has no bound
    ├── StoppedError          5   stopped early with nothing feasible
    ├── SolverError           5   a solver died, refused or lied
    │   └── SolverDiedError   5   its process ended in the middle: no other solver is asked instead
    └── CertificationError    5   a release that could not be certified: nothing is written

Exit codes are those of the command line (0 done, 4 stopped early with a
certified result are not errors).

Docstrings of modules that docs/reference/python.md does not list do not repeat this: there a section ``Raises:`` says
what else an error means, or names one of Python's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from itertools import islice
from math import inf
from numbers import Integral, Real
from typing import Final, cast

from attrs import evolve, field, frozen

__all__ = [
    "MOST_FAULTS",
    "BudgetSpentError",
    "CertificationError",
    "DoesNotHoldError",
    "Fault",
    "Faults",
    "InfeasibleError",
    "InputError",
    "ModelError",
    "PrivoptError",
    "RegistryError",
    "SolverDiedError",
    "SolverError",
    "StoppedError",
    "UnboundedError",
    "UnknownNameError",
    "UsageError",
    "check_number",
    "conceal",
    "cut",
    "faults_in",
    "number_of",
    "printable",
    "reason_of",
]


class PrivoptError(Exception):
    """Base of every error that privopt raises on purpose."""

    exit_code = 5


@frozen
class Fault:
    """One thing that is wrong with an input.

    >>> print(Fault(file="problem.toml", where="privacy.epsilon", found="-1", wanted="a number above 0"))
    problem.toml: privacy.epsilon: expected a number above 0, got -1

    Attributes:
        file: name of the file the fault is in, as the user gave it.
        where: key, or row and column, inside the file; empty for the file as a whole.
        found: what is there.
        wanted: what should be there.
        is_description: whether ``found`` says what kind of thing is there, and quotes nothing of it.
    """

    file: str
    where: str
    found: str
    wanted: str
    is_description: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        place = f"{self.file}: {self.where}" if self.where else self.file
        return _line(f"{cut(place)}: expected {cut(self.wanted)}, got {cut(self.found)}")


def conceal(faults: Iterable[Fault]) -> list[Fault]:
    """Return faults of a secret file without the values that they quote: the owner finds these by row and column.

    >>> conceal([Fault("counts.csv", "row 2, column groups", "-7", "a whole number of at least 0")])[0].found
    'another value'
    >>> conceal([Fault("counts.csv", "column size", "values of type Binary", "numbers", is_description=True)])[0].found
    'values of type Binary'
    """
    return [fault if fault.is_description else evolve(fault, found="another value") for fault in faults]


_MAX_SHOWN_CHARACTERS = 300
"""Characters of what is shown of any one thing."""
_MAX_LISTED_NAMES = 20
"""Names that are listed where none is near; the rest are counted."""


def cut(text: str) -> str:
    """Cut text to the first 300 characters, as messages show it."""
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[: _MAX_SHOWN_CHARACTERS - 3]}..."


def number_of(count: int, thing: str) -> str:
    """Return a count with its noun, whose plural ends in s.

    >>> number_of(1, "report"), number_of(1_200, "report")
    ('1 report', '1,200 reports')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _line(text: str) -> str:
    """Return text as one line that a terminal can show: blanks joined, control and formatting characters escaped."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    r"""Escape control and formatting characters so that a terminal shows text and does not obey it; keep line breaks.

    >>> printable("\x1b[31mred")
    '\\x1b[31mred'
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text)


_ADDRESS = re.compile(r"\s*<[^<>]* at 0x[0-9a-fA-F]+>")


def reason_of(error: BaseException) -> str:
    """Return what an exception of Python or of a library says, in one line for users.

    Python's advice on its own limits and the addresses of its objects are omitted: they help only its programmers.

    >>> reason_of(RecursionError("maximum recursion depth exceeded while calling a Python object"))
    'nested too deeply'
    >>> reason_of(ValueError("cannot read <_io.BytesIO object at 0x7f2389810b30>"))
    'cannot read'
    """
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, MemoryError):
        return "too large for the memory"
    if isinstance(error, KeyError):
        return f"no {error}"
    said = _ADDRESS.sub("", (str(error).strip().splitlines() or [""])[0])
    if "for integer string conversion" in said:
        return "a whole number of too many digits"
    return said or type(error).__name__


class InputError(PrivoptError):
    """Bad input. Carries every fault that was found, one line each."""

    exit_code = 2

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))

    def __reduce__(self) -> tuple[type[InputError], tuple[tuple[Fault, ...]]]:
        return InputError, (self.faults,)  # pickle would hand the message to __init__


MOST_FAULTS: Final = 20
"""Faults of one file that are listed; the rest are counted."""


class Faults:
    """Collect the faults of a file: the first :data:`MOST_FAULTS` are listed, the others counted.

    >>> found = Faults()
    >>> found.add_rows("a.csv", "clients", [0, 3], "-1 7 7 -2".split().__getitem__, "a whole number of at least 0")
    >>> print(found.listed[1])
    a.csv: row 5, column clients: expected a whole number of at least 0, got -2
    >>> found.check()
    Traceback (most recent call last):
    privopt.errors.InputError: a.csv: row 2, column clients: expected a whole number of at least 0, got -1
    a.csv: row 5, column clients: expected a whole number of at least 0, got -2

    Args:
        faults: known from the start.
        count: how many these are, where the others are not made.
    """

    def __init__(self, faults: Iterable[Fault] = (), count: int | None = None) -> None:
        self._first: list[Fault] = []
        self.count = 0
        self.extend(faults, count)

    def add(self, file: str, where: str, got: str, wanted: str) -> None:
        """Add one fault."""
        self.extend([Fault(file, where, got, wanted)])

    def add_rows(
        self, file: str, column: str, rows: Sequence[int], got_of: Callable[[int], object], wanted: str
    ) -> None:
        """Add a fault for each of some rows, numbered from 0; the header of a file is its row 1.

        Args:
            file: name of the file.
            column: in which they are.
            rows: which will not do.
            got_of: what is in a row; asked only for those that are listed.
            wanted: what should be there.
        """
        faults = (Fault(file, f"row {row + 2}, column {column}", str(got_of(row)), wanted) for row in rows)
        self.extend(faults, len(rows))

    def extend(self, faults: Iterable[Fault], count: int | None = None) -> None:
        """Add faults; where ``count`` says how many they are, no more are made than are listed."""
        if count is None:
            faults = list(faults)
            count = len(faults)
        self._first.extend(islice(faults, max(0, MOST_FAULTS - len(self._first))))
        self.count += count

    @property
    def listed(self) -> list[Fault]:
        """The first faults, and one that says how many more there are."""
        more = self.count - len(self._first)
        if not more:
            return list(self._first)
        found = f"{more} more fault{'s' * (more > 1)} of these kinds"
        return [*self._first, Fault(self._first[0].file, "", found, "no faults", is_description=True)]

    def check(self) -> None:
        """Refuse the input if there are any.

        Raises:
            InputError: there are.
        """
        if self.count:
            raise InputError(self.listed)


@contextmanager
def faults_in(file: str) -> Iterator[None]:
    """Put the problem file's name into faults of code that calls it ``"problem"`` for want of its name."""
    try:
        yield
    except InputError as error:
        if all(fault.file != "problem" for fault in error.faults):
            raise
        named = [evolve(fault, file=file) if fault.file == "problem" else fault for fault in error.faults]
        raise InputError(named) from error.__cause__


class UsageError(PrivoptError):
    """A command or call that cannot be meant so."""

    exit_code = 2


def check_number(name: str, value: object, wanted: str, *, minimum: float = -inf, whole: bool = False) -> None:
    """Refuse anything but a finite number of at least ``minimum``.

    >>> check_number("gap", "1e-6", "a number")
    Traceback (most recent call last):
    privopt.errors.UsageError: gap must be a number, got '1e-6'

    Raises:
        UsageError: it is none.
    """
    number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    try:
        fits = number and minimum <= float(cast("float", value)) < inf
    except OverflowError:  # a whole number beyond all doubles
        fits = False
    if not fits:
        raise UsageError(f"{name} must be {wanted}, got {cut(repr(value))}")


class BudgetSpentError(UsageError):
    """A report that a ledger's limit does not allow; nothing was charged, nothing may be drawn."""


class UnknownNameError(UsageError):
    """A name that nothing is registered under."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, is_secret: bool = False) -> None:
        self.kind = kind
        self.name = name
        self.known = known = sorted(known)
        self.is_secret = is_secret  # neither the name nor names near it may be told
        near = [] if is_secret else get_close_matches(name, known, n=3, cutoff=0.5)
        more = f" and {len(known) - _MAX_LISTED_NAMES:,} more" if len(known) > _MAX_LISTED_NAMES else ""
        listed = ", ".join(known[:_MAX_LISTED_NAMES]) or "none"
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {listed}{more}"
        super().__init__(f"no {kind} is called {'as the input says' if is_secret else repr(name)}; {hint}")

    def __reduce__(self) -> tuple[Callable[..., UnknownNameError], tuple[str, str, list[str]]]:
        return partial(UnknownNameError, is_secret=self.is_secret), (self.kind, self.name, self.known)


class RegistryError(PrivoptError):
    """Plugins that clash or hook up wrongly: both sides are named."""

    exit_code = 2


class ModelError(PrivoptError):
    """A model that the DSL cannot accept; names family, index and term."""

    exit_code = 2


class InfeasibleError(PrivoptError):
    """The problem has no solution."""

    exit_code = 3


class UnboundedError(PrivoptError):
    """The objective has no bound."""

    exit_code = 3


class StoppedError(PrivoptError):
    """Stopped by a limit or an interrupt before anything feasible was found."""


class SolverError(PrivoptError):
    """A solver died, refused its input, or returned what does not satisfy the rows."""


class SolverDiedError(SolverError):
    """A solver's process ended in the middle: killed from outside, for want of memory, or by a fault of its own."""


class DoesNotHoldError(PrivoptError):
    """A folder whose sums or claims do not hold was to be used: it is refused, a line for each."""

    exit_code = 1


class CertificationError(PrivoptError):
    """A release that could not be certified; nothing is written."""


class RoundTripError(CertificationError):
    """A release that was certified and does not hold as it was written; nothing is kept."""
