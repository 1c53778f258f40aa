"""The errors raised by privopt, with their exit codes.

::

    PrivoptError
    ├── DoesNotHoldError      1   a checksum or claim in a folder does not hold
    ├── InputError            2   the user's input has faults: one line each, reported together
    ├── UsageError            2   the arguments of a command or call are invalid
    │   ├── BudgetSpentError  2   a ledger's limit would be exceeded: nothing is charged or drawn
    │   └── UnknownNameError  2   no such mechanism, method or solver: similar names are suggested
    ├── RegistryError         2   plugins clash or are registered incorrectly
    ├── ModelError            2   the DSL cannot accept a model (not linear, unknown index, ...)
    ├── InfeasibleError       3   the problem has no solution; the conflicting families are named
    ├── UnboundedError        3   the objective has no bound
    ├── StoppedError          5   the work was stopped before a feasible solution was found
    ├── SolverError           5   a solver died, rejected its input or returned a wrong solution
    │   └── SolverDiedError   5   the solver's process ended during a solve: no other solver is tried
    └── CertificationError    5   a release could not be certified: nothing is written
        └── RoundTripError    5   a written release failed verification: it was removed

Exit codes are those of the command line. Codes 0 (done) and 4 (stopped early with a certified result) are not errors.

Only modules listed in docs/reference/python.md repeat these meanings in docstrings. In other modules, ``Raises:``
sections list only additional meanings and Python's built-in errors.
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
    """The base class of all errors that privopt raises deliberately."""

    exit_code = 5


_PLURAL_ENDINGS: Final = (
    ("ertex", "ertices"),  # vertex
    ("mplex", "mplices"),  # simplex
    ("child", "children"),
    (r"([^aeiou])y", r"\1ies"),  # facility, entry
    ("(s|x|ch|sh)", r"\1es"),  # class, box, batch
)
"""Regular expressions, with replacements, for nouns whose plural needs more than an s. The first match is used."""

NO_SUCH_FILE: Final = "no such file"
"""The value of ``Fault.actual`` for a missing file."""


@frozen
class Fault:
    """An error in the user's input, with its location, the actual value and the expected value.

    >>> print(Fault(file="problem.toml", where="privacy.epsilon", actual="-1", expectation="a number above 0"))
    problem.toml: privacy.epsilon: expected a number above 0, got -1

    Attributes:
        file: The name of the faulty file, as given by the user.
        where: The key, or the row and column, inside the file, or "" for the file as a whole.
        actual: The actual value or a description of it.
        expectation: A description of the expected value.
        is_description: Whether ``actual`` only describes the kind of value, without quoting any of it.
    """

    file: str
    where: str
    actual: str
    expectation: str
    is_description: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        """Return the fault as a single line for a terminal, with long strings truncated."""
        place = f"{self.file}: {self.where}" if self.where else self.file
        if self.actual == NO_SUCH_FILE and not self.where:
            return _line(f"{cut(place)}: file not found; expected {cut(self.expectation)}")
        return _line(f"{cut(place)}: expected {cut(self.expectation)}, got {cut(self.actual)}")


def conceal(faults: Iterable[Fault]) -> list[Fault]:
    """Return copies of faults with the quoted values removed, for files with sensitive contents.

    Messages may end up in logs. The file's owner can still find each value by its row and column.

    >>> conceal([Fault("counts.csv", "row 2, column groups", "-7", "a whole number of at least 0")])[0].actual
    'another value'
    >>> conceal([Fault("counts.csv", "column size", "values of type Binary", "numbers", is_description=True)])[0].actual
    'values of type Binary'
    """
    return [fault if fault.is_description else evolve(fault, actual="another value") for fault in faults]


_MAX_SHOWN_CHARACTERS = 300
"""The maximum number of characters of a single string shown in a message."""
_MAX_LISTED_NAMES = 20
"""The maximum number of names listed in a message if none is similar to the unknown name. The rest are counted."""


def cut(text: str) -> str:
    """Truncate text to at most 300 characters, for use in a message."""
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[: _MAX_SHOWN_CHARACTERS - 3]}..."


def number_of(count: int, thing: str) -> str:
    """Return a count followed by a noun, in the plural unless the count is 1. Only the noun's last word changes.

    >>> number_of(1, "report"), number_of(1_200, "report"), number_of(0, "open facility"), number_of(3, "vertex")
    ('1 report', '1,200 reports', '0 open facilities', '3 vertices')
    """
    return f"{count:,} {thing if count == 1 else _plural_of(thing)}"


def _plural_of(noun: str) -> str:
    """Return the plural of an English noun, using rules that cover the nouns in privopt's own messages."""
    for ending, plural_ending in _PLURAL_ENDINGS:
        if re.search(f"{ending}$", noun):
            return re.sub(f"{ending}$", plural_ending, noun)
    return f"{noun}s"


def _line(text: str) -> str:
    """Return text as a single line for a terminal, with whitespace collapsed and unprintable characters escaped."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    r"""Escape control and formatting characters, except line breaks, so that a terminal shows them.

    >>> printable("\x1b[31mred")
    '\\x1b[31mred'
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text)


_ADDRESS = re.compile(r"\s*<[^<>]* at 0x[0-9a-fA-F]+>")
"""Matches Python's default representation of an object, which includes its address, such as
``<_io.BytesIO object at 0x7f2389810b30>``."""


def reason_of(error: BaseException) -> str:
    """Return the message of an exception from Python or a library as a single line for users.

    Details that are useful only to programmers, such as memory addresses of objects, are omitted.

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
    first_line = _ADDRESS.sub("", (str(error).strip().splitlines() or [""])[0])
    if "for integer string conversion" in first_line:  # from Python's message about its limit of 4,300 digits
        return "a whole number of too many digits"
    return first_line or type(error).__name__


class InputError(PrivoptError):
    """Raised for invalid input. The message has one line for each fault.

    Attributes:
        faults: The faults, in the order of the message's lines.
    """

    exit_code = 2

    def __init__(self, faults: Iterable[Fault]) -> None:
        """Create the error from faults, each of which becomes a line of the message."""
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))

    def __reduce__(self) -> tuple[type[InputError], tuple[tuple[Fault, ...]]]:
        # By default, pickle would call the class with the message instead of the faults.
        return InputError, (self.faults,)


MOST_FAULTS: Final = 20
"""The maximum number of faults listed for a file. The rest are counted."""


class Faults:
    """A collection of faults in a file. All faults are counted, but only the first :data:`MOST_FAULTS` are listed.

    >>> faults = Faults()
    >>> faults.add_rows("a.csv", "clients", [0, 3], "-1 7 7 -2".split().__getitem__, "a whole number of at least 0")
    >>> print(faults.listed[1])
    a.csv: row 5, column clients: expected a whole number of at least 0, got -2
    >>> faults.check()
    Traceback (most recent call last):
    privopt.errors.InputError: a.csv: row 2, column clients: expected a whole number of at least 0, got -1
    a.csv: row 5, column clients: expected a whole number of at least 0, got -2

    Args:
        faults: The initial faults.
        count: The number of initial faults, if ``faults`` contains only some of them.

    Attributes:
        count: The number of faults so far, listed or not.
    """

    def __init__(self, faults: Iterable[Fault] = (), count: int | None = None) -> None:
        self._first: list[Fault] = []  # the first MOST_FAULTS faults, which are listed
        self.count = 0
        self.extend(faults, count)

    def add(self, file: str, where: str, actual: str, expectation: str) -> None:
        """Add one fault."""
        self.extend([Fault(file, where, actual, expectation)])

    def add_rows(
        self, file: str, column: str, rows: Sequence[int], actual_of: Callable[[int], object], expectation: str
    ) -> None:
        """Add a fault for each faulty row.

        Args:
            file: The name of the file.
            column: The name of the column.
            rows: The indices of the faulty rows, counted from 0 at the first row below the header. In messages, the
                header is row 1.
            actual_of: A function that returns a row's value. It is called only for rows that are listed.
            expectation: The expected value, in words.
        """
        faults = (Fault(file, f"row {row + 2}, column {column}", str(actual_of(row)), expectation) for row in rows)
        self.extend(faults, len(rows))

    def extend(self, faults: Iterable[Fault], count: int | None = None) -> None:
        """Add faults.

        Args:
            faults: The faults to add.
            count: The number of faults, if it is known. In this case, the iterable is read only until no more faults
                can be listed.
        """
        if count is None:
            faults = list(faults)
            count = len(faults)
        self._first.extend(islice(faults, max(0, MOST_FAULTS - len(self._first))))
        self.count += count

    @property
    def listed(self) -> list[Fault]:
        """The first :data:`MOST_FAULTS` faults. If there are more, a final entry says how many are not listed."""
        unlisted_count = self.count - len(self._first)
        if not unlisted_count:
            return list(self._first)
        actual = f"{unlisted_count} more fault{'s' * (unlisted_count > 1)} of these kinds"
        # Marked as a description, so that conceal() keeps the count even if the file is secret.
        return [*self._first, Fault(self._first[0].file, "", actual, "no faults", is_description=True)]

    def check(self) -> None:
        """Raise an InputError with the listed faults, if there are any.

        Raises:
            InputError: At least one fault was added.
        """
        if self.count:
            raise InputError(self.listed)


@contextmanager
def faults_in(file: str) -> Iterator[None]:
    """Replace the placeholder ``"problem"`` with ``file`` in the faults of any InputError raised in the block.

    Code that checks a problem does not know the name of the problem's file, so it uses ``"problem"`` as the file name.
    """
    try:
        yield
    except InputError as error:
        if all(fault.file != "problem" for fault in error.faults):
            raise
        named = [evolve(fault, file=file) if fault.file == "problem" else fault for fault in error.faults]
        raise InputError(named) from error.__cause__


class UsageError(PrivoptError):
    """Raised if the arguments of a command or call are invalid or contradict each other."""

    exit_code = 2


def check_number(name: str, value: object, expectation: str, *, minimum: float = -inf, whole: bool = False) -> None:
    """Raise a UsageError unless an argument is a finite number that is at least ``minimum``.

    >>> check_number("gap", "1e-6", "a number")
    Traceback (most recent call last):
    privopt.errors.UsageError: gap must be a number, got '1e-6'

    Args:
        name: The argument's name, used in the message.
        value: The argument's value.
        expectation: A description of the valid values, used in the message.
        minimum: The minimum value allowed.
        whole: Whether only integers are allowed.

    Raises:
        UsageError: The value does not meet the requirement.
    """
    # True and False are integers in Python, but users do not mean numbers by them.
    is_number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    try:
        # NaN is invalid too, because it fails both comparisons.
        is_valid = is_number and minimum <= float(cast("float", value)) < inf
    except OverflowError:  # a whole number larger than any double
        is_valid = False
    if not is_valid:
        raise UsageError(f"{name} must be {expectation}, got {cut(repr(value))}")


class BudgetSpentError(UsageError):
    """Raised if a report would exceed a ledger's limit. Nothing has been charged, so the report must not be drawn."""


class UnknownNameError(UsageError):
    """Raised if a name is unknown. The message suggests similar names or lists the known ones.

    Attributes:
        kind, name, known, is_secret: The constructor's arguments, with the known names sorted.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], *, is_secret: bool = False) -> None:
        """Create the error and its message.

        Args:
            kind: The kind of thing that was looked up, such as ``"mechanism"``.
            name: The unknown name.
            known: The names that exist.
            is_secret: Whether the name is sensitive, for example because it reveals someone's location. If so, the
                message contains neither the name nor similar ones, because messages may be logged.
        """
        self.kind = kind
        self.name = name
        self.known = known = sorted(known)
        self.is_secret = is_secret
        # Names similar to a secret would reveal almost as much as the secret itself.
        similar = [] if is_secret else [cut(match) for match in get_close_matches(name, known, n=3, cutoff=0.5)]
        listed_names = [cut(known_name) for known_name in known[:_MAX_LISTED_NAMES]]
        # Names come from input files and may be very long, but a message should be short enough for a terminal.
        while len(listed_names) > 1 and sum(map(len, listed_names)) > 2 * _MAX_SHOWN_CHARACTERS:
            listed_names.pop()
        omitted = len(known) - len(listed_names)
        omission_note = f" and {omitted:,} more" if omitted else ""
        listed = ", ".join(listed_names) or "none"
        hint = f"did you mean {' or '.join(similar)}?" if similar else f"known: {listed}{omission_note}"
        super().__init__(f"no {kind} is called {'as the input says' if is_secret else cut(repr(name))}; {hint}")

    def __reduce__(self) -> tuple[Callable[..., UnknownNameError], tuple[str, str, list[str]]]:
        # By default, pickle would call the class with only the message.
        return partial(UnknownNameError, is_secret=self.is_secret), (self.kind, self.name, self.known)


class RegistryError(PrivoptError):
    """Raised if plugins clash or are registered incorrectly. The message names the plugins involved."""

    exit_code = 2


class ModelError(PrivoptError):
    """Raised if the modelling language rejects a model. The message names the constraint family, index and term."""

    exit_code = 2


class InfeasibleError(PrivoptError):
    """Raised if a problem has no solution."""

    exit_code = 3


class UnboundedError(PrivoptError):
    """Raised if a problem's objective can be improved without limit."""

    exit_code = 3


class StoppedError(PrivoptError):
    """Raised if a limit, an interrupt, a full disk or the like stopped the work before it produced a result."""


class SolverError(PrivoptError):
    """Raised if a solver died, rejected its input, or returned a solution that violates the model's rows."""


class SolverDiedError(SolverError):
    """Raised if a solver's process ended during a solve, because it was killed, ran out of memory, or crashed."""


class DoesNotHoldError(PrivoptError):
    """Raised if a checksum or a claim is found to be wrong when a folder or file is verified.

    The message has one line for each failure.
    """

    exit_code = 1


class CertificationError(PrivoptError):
    """Raised if a release could not be certified. Nothing is written in this case."""


class RoundTripError(CertificationError):
    """Raised if a certified release failed verification after it was written. Its files have been removed."""
