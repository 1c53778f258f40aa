"""A check that invalid input is rejected with an error that names the key or file, and that nothing is written.

The faults are derived from the declarations of the problem class, so new keys are checked without new tests.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import attrs
import numpy as np
from attrs import NOTHING, frozen

from privopt.declare import File
from privopt.errors import PrivoptError
from privopt.testing.checks.base import Trial, check, default_method_only
from privopt.testing.problems import GeneratedProblem, npy_bytes
from privopt.testing.under_trial import error_text
from privopt.testing.variants import number_in, secret_files

FAULTS_PER_PROBLEM: Final = 25
"""The number of faults tried on each problem. At effort "full", all faults are tried."""
DIGITS: Final = b"9" * 5_000
"""An integer with more digits than Python will convert from text (4,300)."""
DEEP: Final = b"[" * 100_000
"""Lists nested deeper than Python's recursion limit."""
INTERNALS: Final = re.compile(r"maximum recursion depth|set_int_max_str_digits| at 0x[0-9a-f]{4}")
"""Matches phrases in Python's messages about its own limits and objects. Such messages are not helpful to users."""


@frozen(kw_only=True)
class FaultyProblem:
    """A problem with a single fault.

    Attributes:
        problem: The problem with the fault.
        what: A description of the fault.
        names: Names of keys or files, starting with the faulty one. The error message must contain at least one of
            them.
        certain: Whether the problem is certainly invalid and must be rejected. If False, it may be rejected or solved,
            but must not cause a crash.
    """

    problem: GeneratedProblem
    what: str
    names: tuple[str, ...]
    certain: bool = True


@check("bad-input", needs=default_method_only)
def bad_input(trial: Trial) -> None:
    """Check that invalid input raises a PrivoptError naming the faulty key or file, and that nothing is written.

    Each invalid input is a valid problem with a single change. Below full effort, a random selection of the changes is
    tried.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    trial.run(problem)  # ends the example if even the valid problem is not solved
    secret = secret_files(trial.subject.read_problem(problem))
    cases = list(make_faulty_problems(problem, trial.subject.mechanism_class.problem_class, secret))
    if trial.effort.name != "full":
        # Trying all faults on every problem would take too long. Most of them are tried in the course of all examples.
        cases = _select_cases(trial.chance(problem).sample(cases, len(cases)))
    for case in cases:
        _check_refused(trial, case)


def _select_cases(cases: Sequence[FaultyProblem]) -> list[FaultyProblem]:
    """Return at most :data:`FAULTS_PER_PROBLEM` of the cases, spread evenly across keys and files.

    Every key gets a first case before any key gets a second one. There are far more keys than files, so each file may
    get up to three cases before any key gets its second.
    """
    counts_by_name: Counter[str] = Counter()
    turns: list[tuple[int, int]] = []
    for case in cases:
        name = case.names[0]
        turns.append((counts_by_name[name] - (2 if name in case.problem.files else 0), len(turns)))
        counts_by_name[name] += 1
    return [cases[index] for _, index in sorted(turns)[:FAULTS_PER_PROBLEM]]


def _check_refused(trial: Trial, case: FaultyProblem) -> None:
    """Fail if a faulty problem is solved, or is rejected with an unhelpful error.

    Args:
        trial: A single run of the check.
        case: The faulty problem.
    """
    run = trial.attempt(case.problem)
    error, name = run.error, case.names[0]
    if error is None:
        if case.certain:
            outcome = "it was solved all the same"
            trial.fail(f"{case.what}, and {outcome}; expected an InputError naming {name}", case.problem)
        return
    internals = INTERNALS.search(str(error))
    names_fault = any(name_part in str(error) for name_part in case.names)
    exit_code = getattr(error, "exit_code", None)
    # Each row is a possible complaint: whether it applies, and its text.
    for applies, words in (
        (not isinstance(error, PrivoptError), f"{error_text(error)} came of it; expected a PrivoptError naming {name}"),
        (internals, f"the message quotes the interpreter ({internals and internals[0]}): {error}"),
        (run.folder.exists(), f"an error came, but {run.folder.name} was written"),
        # Exit code 2 means invalid input. With an error of another class, a script would get another exit code.
        (case.certain and exit_code != 2, f"{type(error).__name__} has exit code {exit_code}; expected an InputError"),
        (case.certain and not names_fault, f"the message does not name {' or '.join(case.names)}: {error}"),
    ):
        if applies:
            trial.fail(f"{case.what}: {words}", case.problem)


def make_faulty_problems(
    problem: GeneratedProblem, problem_class: type, secret: Sequence[str] = ()
) -> Iterator[FaultyProblem]:
    """Yield problems that each have a single fault, derived from the declarations of the problem class.

    Args:
        problem: A valid problem.
        problem_class: The problem's class.
        secret: The names of the problem's secret files.
    """
    # A line that is not TOML, lists that are nested too deeply, a decimal integer with too many digits for Python, and
    # a long hexadecimal integer.
    for extra_line in ("[[[", f"x = {DEEP.decode()}", f"x = {DIGITS.decode()}", f"x = 0x{'f' * 5_000}"):
        broken_problem = attrs.evolve(problem, toml=f"{problem.toml}\n{extra_line}")
        yield FaultyProblem(problem=broken_problem, what=f"{extra_line[:9]} was added to the TOML", names=("TOML",))
    yield from _break_keys(problem, problem_class, "")
    for name, contents in problem.files.items():
        for what, changed, certain in _break_file(name, contents, name in secret):
            yield FaultyProblem(problem=problem.with_file(name, changed), what=what, names=(name,), certain=certain)


def _break_file(name: str, contents: bytes, secret: bool) -> Iterator[tuple[str, bytes, bool]]:
    """Yield corruptions of a file as triples: a description, the new contents, and whether they must be rejected.

    Some corrupted contents can be valid, such as an empty ``.txt`` file. A secret table without rows need not be
    rejected, because a rejection would reveal that the table is empty.

    Args:
        name: The name of the file.
        contents: The file's contents in a valid problem.
        secret: Whether the file is secret.
    """
    yield f"the file {name} was emptied", b"", not name.endswith(".txt")
    yield f"the file {name} was made garbage", b"\x93\x00\xff\xfe,garbage\n\x00", True
    if name.endswith(".csv"):
        lines = contents.splitlines()
        long_row = b",".join([b"1"] * (lines[0].count(b",") + 3))
        yield f"a row of {name} was made too long", b"\n".join([*lines, long_row, b""]), True
        yield f"{name} was cut to its header", lines[0] + b"\n", not secret
        # Append the first column to each row, including the header.
        doubled = b"".join(line + b"," + line.split(b",")[0] + b"\n" for line in lines)
        yield f"{name} got a column twice", doubled, True
        yield from _break_cells(name, lines)
    if name.endswith(("json", "jsonl")):
        for replacement in (DEEP, DIGITS):
            yield f"the file {name} was made {replacement[:3].decode()}...", replacement, True
    if name.endswith(".npy"):
        array = np.load(io.BytesIO(contents), allow_pickle=False)
        if array.ndim == 2 and array.size and array.dtype.kind == "f":
            array_with_nan = array.copy()
            array_with_nan.flat[-1] = math.nan
            yield f"NaN was put into {name}", npy_bytes(array_with_nan), True
            yield f"{name} was made an array of text", npy_bytes(array.astype(str)), True
            yield f"a row was added to {name}", npy_bytes(np.vstack([array, array[-1:]])), False


def _break_cells(name: str, lines: list[bytes]) -> Iterator[tuple[str, bytes, bool]]:
    """Yield corruptions that replace a number in a table's last row, in the form of :func:`_break_file`.

    Args:
        name: The name of the CSV file.
        lines: The file's lines, without line endings.
    """
    cells = lines[-1].split(b",")
    for column, cell in enumerate(cells):
        if number_in(cell.decode("utf-8", "replace")) is None:
            continue
        for replacement in (b"nan", b"words", b"", DIGITS):
            row = b",".join([*cells[:column], replacement, *cells[column + 1 :]])
            column_name = lines[0].split(b",")[column].decode()
            what = f"{replacement[:9].decode() or 'nothing'} was put into {column_name} of {name}"
            # The result may be valid, because a column of ids can contain any text, and an unused column can contain
            # anything.
            yield what, b"\n".join([*lines[:-1], row, b""]), False


def _break_keys(problem: GeneratedProblem, cls: type, prefix: str) -> Iterator[FaultyProblem]:
    """Yield problems that each have a single faulty key: unknown, missing, of the wrong type, or out of range.

    Args:
        problem: A valid problem.
        cls: The attrs class that declares the keys of the problem or of one of its tables.
        prefix: The table's path followed by a dot, such as ``"privacy."``, or "" for the problem itself.
    """
    hints = get_type_hints(cls)
    unknown = f"{prefix}no-such-key"
    what = f"the unknown key {unknown} was added"
    yield FaultyProblem(problem=problem.with_key(unknown, 1), what=what, names=("no-such-key",))
    for attribute in attrs.fields(cls):
        # Only fields that are declared as keys can be set in a problem file.
        declared = attribute.metadata.get("privopt.key")
        if declared is None:
            continue
        name = declared.name or attribute.name
        key = f"{prefix}{name}"
        given_value = problem.get(key)
        if attribute.default is NOTHING and given_value is not None:
            yield FaultyProblem(problem=problem.without_key(key), what=f"{key} was left out", names=(name,))
        members = _union_members(hints[attribute.name])
        for value in _wrong_values(members):
            yield FaultyProblem(problem=problem.with_key(key, value), what=f"{key} was set to {value!r}", names=(name,))
        if given_value is not None and declared.check is not None and _is_numeric(members):
            for value in (-1, 0):
                if declared.check(value):  # returns the requirement that the value violates, if any
                    yield FaultyProblem(
                        problem=problem.with_key(key, value), what=f"{key} was set to {value}", names=(name,)
                    )
        # Break a table's keys only if the problem has that table. Otherwise, the table itself would be the fault.
        for member in members:
            if attrs.has(member) and member is not File and isinstance(given_value, Mapping):
                yield from _break_keys(problem, member, f"{key}.")


def _union_members(type_: Any) -> tuple[Any, ...]:
    """Return the types accepted by a key: the members of a union except None, or otherwise the type itself."""
    # tuple[...] and Literal[...] have arguments as well, but each is a single type.
    arguments = get_args(type_)
    if NoneType in arguments or (arguments and get_origin(type_) not in (tuple, Literal)):
        return tuple(member for member in arguments if member is not NoneType)
    return (type_,)


def _is_numeric(members: tuple[Any, ...]) -> bool:
    """Return whether any of the types accepted by a key is numeric."""
    return any(member in (int, float, Fraction) for member in members)


def _wrong_values(members: tuple[Any, ...]) -> Iterator[Any]:
    """Yield values that are invalid for a key, given the types it accepts (``members``)."""
    # Literal[...] and tuple[...] count as Literal and tuple, whatever their arguments.
    kinds = {get_origin(member) or member for member in members}
    tables = any(attrs.has(member) and member is not File for member in members)
    # Each row consists of whether a value is wrong for these types, and the value.
    rows: tuple[tuple[bool, Any], ...] = (
        (not kinds & {str, File, Literal}, "some text"),
        (File in kinds, "no-such-file.csv"),
        (Literal in kinds and str not in kinds, "no-such-choice"),
        (not kinds & {int, float, Fraction}, 7),
        (bool(kinds & {float, Fraction}), math.nan),
        (bool(kinds & {float, Fraction}), math.inf),
        (bool not in kinds, True),
        (not tables, {"a": 1}),
    )
    yield from (value for is_wrong, value in rows if is_wrong)
