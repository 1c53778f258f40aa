"""Checks of bad input: every key that is wrong is named, by an error of privopt's own, and nothing is written."""

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
from privopt.testing.checks.base import Trial, by_default, check
from privopt.testing.problems import GeneratedProblem, npy_bytes
from privopt.testing.under_trial import error_text
from privopt.testing.variants import number_in, secret_files

FAULTS_PER_PROBLEM: Final = 25
"""Faults tried on one problem; nightly tries all."""
DIGITS: Final = b"9" * 5_000
"""A whole number with more digits than Python converts (4,300)."""
DEEP: Final = b"[" * 100_000
"""Lists nested deeper than Python's stack."""
INTERNALS: Final = re.compile(r"maximum recursion depth|set_int_max_str_digits| at 0x[0-9a-f]{4}")
"""Words of Python on its own limits and objects, which help no user."""


@frozen(kw_only=True)
class Wrong:
    """A problem with one thing wrong.

    Attributes:
        problem: with the fault in it.
        what: was done, in words.
        names: one of these must be in the message.
        certain: whether it is wrong beyond doubt; else it must only not crash.
    """

    problem: GeneratedProblem
    what: str
    names: tuple[str, ...]
    certain: bool = True


@check("bad-input", needs=by_default)
def bad_input(trial: Trial) -> None:
    """Check that bad input raises a PrivoptError that names the key or the file, and that nothing is written."""
    problem = trial.problem()
    trial.run(problem)
    secret = secret_files(trial.subject.declared(problem))
    cases = list(faulty_inputs(problem, trial.subject.mechanism_class.problem_class, secret))
    if trial.effort.name != "nightly":
        cases = _some(trial.chance(problem).sample(cases, len(cases)))
    for wrong in cases:
        _refused(trial, wrong)


def _some(cases: Sequence[Wrong]) -> list[Wrong]:
    """Return some of the cases: of each name in turn, files two turns ahead of keys, since there are many keys."""
    seen: Counter[str] = Counter()
    turns: list[tuple[int, int]] = []
    for wrong in cases:
        name = wrong.names[0]
        turns.append((seen[name] - (2 if name in wrong.problem.files else 0), len(turns)))
        seen[name] += 1
    return [cases[place] for _, place in sorted(turns)[:FAULTS_PER_PROBLEM]]


def _refused(trial: Trial, wrong: Wrong) -> None:
    made = trial.attempt(wrong.problem)
    error, name = made.error, wrong.names[0]
    if error is None:
        if wrong.certain:
            done = "it was solved all the same"
            trial.fail(f"{wrong.what}, and {done}; expected an InputError naming {name}", wrong.problem)
        return
    quoted = INTERNALS.search(str(error))
    named = any(each in str(error) for each in wrong.names)
    exit_code = getattr(error, "exit_code", None)
    for found, words in (
        (not isinstance(error, PrivoptError), f"{error_text(error)} came of it; expected a PrivoptError naming {name}"),
        (quoted, f"the message quotes the interpreter ({quoted and quoted[0]}): {error}"),
        (made.folder.exists(), f"an error came, but {made.folder.name} was written"),
        (wrong.certain and exit_code != 2, f"{type(error).__name__} has exit code {exit_code}; expected an InputError"),
        (wrong.certain and not named, f"the message does not name {' or '.join(wrong.names)}: {error}"),
    ):
        if found:
            trial.fail(f"{wrong.what}: {words}", wrong.problem)


def faulty_inputs(problem: GeneratedProblem, problem_class: type, secret: Sequence[str] = ()) -> Iterator[Wrong]:
    """Yield problems with one fault each, from what the problem class declares; ``secret`` names secret files."""
    for more in ("[[[", f"x = {DEEP.decode()}", f"x = {DIGITS.decode()}", f"x = 0x{'f' * 5_000}"):
        broken = attrs.evolve(problem, toml=f"{problem.toml}\n{more}")
        yield Wrong(problem=broken, what=f"{more[:9]} was added to the TOML", names=("TOML",))
    yield from _table(problem, problem_class, "")
    for name, contents in problem.files.items():
        for what, changed, certain in _contents(name, contents, name in secret):
            yield Wrong(problem=problem.with_file(name, changed), what=what, names=(name,), certain=certain)


def _contents(name: str, contents: bytes, secret: bool) -> Iterator[tuple[str, bytes, bool]]:
    """Yield what may be wrong with a file: in words, what it then contains, and whether that is wrong beyond doubt.

    A list of lines may have none, and a table no rows: where it is secret, a refusal would tell that no one is in it.
    """
    yield f"the file {name} was emptied", b"", not name.endswith(".txt")
    yield f"the file {name} was made garbage", b"\x93\x00\xff\xfe,garbage\n\x00", True
    if name.endswith(".csv"):
        lines = contents.splitlines()
        long = b",".join([b"1"] * (lines[0].count(b",") + 3))
        yield f"a row of {name} was made too long", b"\n".join([*lines, long, b""]), True
        yield f"{name} was cut to its header", lines[0] + b"\n", not secret
        twice = b"".join(line + b"," + line.split(b",")[0] + b"\n" for line in lines)
        yield f"{name} got a column twice", twice, True
        yield from _cells(name, lines)
    if name.endswith(("json", "jsonl")):
        for other in (DEEP, DIGITS):
            yield f"the file {name} was made {other[:3].decode()}...", other, True
    if name.endswith(".npy"):
        array = np.load(io.BytesIO(contents), allow_pickle=False)
        if array.ndim == 2 and array.size and array.dtype.kind == "f":
            holed = array.copy()
            holed.flat[-1] = math.nan
            yield f"NaN was put into {name}", npy_bytes(holed), True
            yield f"{name} was made an array of text", npy_bytes(array.astype(str)), True
            yield f"a row was added to {name}", npy_bytes(np.vstack([array, array[-1:]])), False


def _cells(name: str, lines: list[bytes]) -> Iterator[tuple[str, bytes, bool]]:
    """Yield a number of the last row replaced by something else."""
    cells = lines[-1].split(b",")
    for column, cell in enumerate(cells):
        if number_in(cell.decode("utf-8", "replace")) is None:
            continue
        for other in (b"nan", b"words", b"", DIGITS):
            row = b",".join([*cells[:column], other, *cells[column + 1 :]])
            what = f"{other[:9].decode() or 'nothing'} was put into {lines[0].split(b',')[column].decode()} of {name}"
            # a column of ids may hold any text, and one that is not read anything at all
            yield what, b"\n".join([*lines[:-1], row, b""]), False


def _table(problem: GeneratedProblem, cls: type, prefix: str) -> Iterator[Wrong]:
    hints = get_type_hints(cls)
    unknown = f"{prefix}no-such-key"
    what = f"the unknown key {unknown} was added"
    yield Wrong(problem=problem.with_key(unknown, 1), what=what, names=("no-such-key",))
    for attribute in attrs.fields(cls):
        declared = attribute.metadata.get("privopt.key")
        if declared is None:
            continue
        name = declared.name or attribute.name
        key = f"{prefix}{name}"
        given = problem.get(key)
        if attribute.default is NOTHING and given is not None:
            yield Wrong(problem=problem.without_key(key), what=f"{key} was left out", names=(name,))
        members = _members(hints[attribute.name])
        for value in _wrong_values(members):
            yield Wrong(problem=problem.with_key(key, value), what=f"{key} was set to {value!r}", names=(name,))
        if given is not None and declared.check is not None and _numeric(members):
            for value in (-1, 0):
                if declared.check(value):
                    yield Wrong(problem=problem.with_key(key, value), what=f"{key} was set to {value}", names=(name,))
        for member in members:
            if attrs.has(member) and member is not File and isinstance(given, Mapping):
                yield from _table(problem, member, f"{key}.")


def _members(type_: Any) -> tuple[Any, ...]:
    arguments = get_args(type_)
    if NoneType in arguments or (arguments and get_origin(type_) not in (tuple, Literal)):
        return tuple(member for member in arguments if member is not NoneType)
    return (type_,)


def _numeric(members: tuple[Any, ...]) -> bool:
    return any(member in (int, float, Fraction) for member in members)


def _wrong_values(members: tuple[Any, ...]) -> Iterator[Any]:
    """Yield values that none of the types takes."""
    kinds = {get_origin(member) or member for member in members}
    tables = any(attrs.has(member) and member is not File for member in members)
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
    yield from (value for wrong, value in rows if wrong)
