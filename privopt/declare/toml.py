"""Read TOML problem files as attrs classes (:mod:`privopt.declare.schema`), and report all faults at once.

For each type of key, there is a reader that returns the value or raises a ``RefusedValueError``. Readers of tables
collect the errors of all keys.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

import attrs
from attrs import evolve, field, frozen

from privopt.declare.name_forms import normal_form
from privopt.declare.schema import KEY, File, FileUse, Folder, Key, ProblemHeading, RefusedValueError, show
from privopt.declare.toml_text import StatedFraction, find_line, read_toml
from privopt.errors import Fault, InputError, RegistryError
from privopt.files.archive import expect, loading_bytes
from privopt.files.regular import Unreadable, open_regular, read_whole
from privopt.registry import registry

T = TypeVar("T")

UNKNOWN_KEY: Final = "an unknown key"
"""The beginning of a fault about an unknown key."""


@frozen
class _Scope:
    """The rules for resolving the file names in one problem and for opening its files.

    Attributes:
        base: The folder of the problem file.
        public: Whether the problem is a published copy, in which case its files must be in its folder.
        closed: Whether secret files must not be opened.
        in_memory: The contents of files, keyed by name, which take precedence over files on disk.
        seen: The parts of each file that have been read so far, by file name.
    """

    base: Path
    public: bool
    closed: bool
    in_memory: Mapping[str, bytes]
    seen: dict[PurePosixPath, FileUse] = field(factory=dict)


_scope: ContextVar[_Scope] = ContextVar("_scope")
"""The rules for the problem that is currently being read."""


@contextmanager
def _reading_scope(source: File, public: bool, closed: bool) -> Iterator[None]:
    """Inside a ``with`` block, resolve file names relative to a problem file.

    Args:
        source: The problem file.
        public: Whether the problem is a published copy, in which case its files must be in its folder.
        closed: Whether secret files must not be opened.
    """
    base = Path.cwd() if source.path is None else source.path.resolve().parent
    token = _scope.set(_Scope(base, public, closed, source.in_memory))
    try:
        yield
    finally:
        _scope.reset(token)


def _read_number(value: object) -> Decimal | int | float:
    """Return a finite number unchanged, and reject any other value, including booleans."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise RefusedValueError(value, "a number")
    if not (value.is_finite() if isinstance(value, Decimal) else isinstance(value, int) or math.isfinite(value)):
        raise RefusedValueError(value, "a finite number")
    return value


def _read_float(value: Any) -> float:
    """Convert a number to a double, and reject numbers that are too large for one."""
    number = _read_number(value)
    try:
        result = float(number)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise RefusedValueError(value, "a number that a double can hold")
    return result


def _read_fraction(value: object) -> Fraction:
    """Convert a number to an exact rational that remembers the decimal it was written as."""
    number = value if isinstance(value, Fraction) else _read_number(value)
    # The size is checked before the conversion, because 1e999999999 would become a rational with that many digits.
    if isinstance(number, Decimal):
        is_in_range = abs(number.adjusted()) <= 300
    else:
        is_in_range = Fraction(1, 10**300) <= abs(Fraction(number)) <= 10**300
    if number and not is_in_range:
        raise RefusedValueError(value, "a number between 1e-300 and 1e300 in size")
    fraction: Fraction = number if isinstance(number, Fraction) else StatedFraction(str(number))
    return fraction


def _read_int(value: Any) -> int:
    """Return a whole number that fits in 64 bits, and reject any other value."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise RefusedValueError(value, "a whole number")
    if abs(value) >= 2**63:
        raise RefusedValueError(value, "a whole number below 9.2e18 in size")
    return value


def _read_bool(value: Any) -> bool:
    """Return a boolean unchanged, and reject any other value."""
    if not isinstance(value, bool):
        raise RefusedValueError(value, "true or false")
    return value


def _read_text(value: Any) -> str:
    """Convert a string to Unicode normal form C, the form in which names are compared, and reject any other value."""
    return normal_form(_read_path_text(value))


def _read_path_text(value: Any) -> str:
    """Return the name of a file or folder unchanged, and reject any value that is not a string.

    The name is not normalised, because file systems may distinguish between Unicode normal forms.
    """
    if not isinstance(value, str):
        raise RefusedValueError(value, "text in quotes")
    return value


def _read_literal(value: Any, choices: tuple[Any, ...]) -> Any:
    """Return a word or a number unchanged if it is one of ``choices``, and reject any other value."""
    # In Python, True equals 1, but a key that accepts 1 does not accept true.
    if value not in choices or isinstance(value, bool):
        raise RefusedValueError(value, "one of " + ", ".join(map(str, choices)))
    return value


def _read_file(value: Any) -> File:
    """Return the file named by a key, with its contents. The name is relative to the problem file."""
    name = _read_path_text(value)
    if not name:
        raise RefusedValueError(value, "the name of a file")
    scope = _scope.get()
    # All keys that name the same file share one record of the parts that have been read.
    use = scope.seen.setdefault(PurePosixPath(name), FileUse())
    if name in scope.in_memory:
        return File(name=name, path=None, kept=scope.in_memory[name], seen=use)
    path = scope.base / name
    # A published folder comes from someone else and must not make its reader open files outside it.
    if scope.public and not _is_within(scope.base, name):
        raise RefusedValueError(value, "the name of a file in the same folder, as privopt solve writes it")
    try:
        # In a published folder, links are not followed, because they could lead to the reader's own files.
        with open_regular(path, links=not scope.public) as (stream, size):
            expect(loading_bytes(stream, size), f"{name} and what is read of it")
            return File(name=name, path=path, kept=read_whole(stream, size), seen=use)
    except Unreadable as error:
        expectation = "a file, its path relative to the problem file"
        raise RefusedValueError(value, expectation, words=f"{show(name)}, {error}") from None


def _read_folder(value: Any) -> Folder:
    """Return the folder named by a key, relative to the problem file. Its path is None in a published copy."""
    name = _read_path_text(value)
    scope = _scope.get()
    if scope.public:
        return Folder(name=name, path=None)
    path = scope.base / name
    if not name or not os.path.isdir(path):
        expectation = "a folder, its path relative to the problem file"
        raise RefusedValueError(value, expectation, words=f"{show(name)}, which is not a folder")
    return Folder(name=name, path=path)


def _is_within(base: Path, name: str) -> bool:
    """Return whether a name leads to a path inside the ``base`` folder once symbolic links are resolved."""
    # Absolute names and ".." are not accepted even if they would lead back into the folder.
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        return False
    return Path(os.path.realpath(base / name)).is_relative_to(base)


def _read_secret_file(value: Any) -> File:
    """Return the secret file named by a key.

    The file has no contents if secret files must not be opened, or if it is missing from a published copy.
    """
    name = _read_path_text(value)
    scope = _scope.get()
    if scope.closed or (scope.public and not os.path.lexists(scope.base / name.replace("\0", ""))):
        return File(name=name, path=None, secret=True)
    return attrs.evolve(_read_file(value), secret=True)


# The readers for types without arguments.
_PLAIN: Final[Mapping[Any, Callable[[Any], Any]]] = {
    float: _read_float,
    int: _read_int,
    bool: _read_bool,
    str: _read_text,
    Fraction: _read_fraction,
    File: _read_file,
    Folder: _read_folder,
    Any: lambda value: value,
}


def _read_value(value: Any, type_: Any) -> Any:
    """Convert a TOML or JSON value to a given type.

    Raises:
        RefusedValueError: The value does not have this type.
        InputError: Keys inside the value are invalid. In the faults, the file is called "problem", because its name is
            not known here.
    """
    if type_ in _PLAIN:
        return _PLAIN[type_](value)
    origin, arguments = get_origin(type_), get_args(type_)
    if origin in (Union, UnionType):
        return _read_union(value, [member for member in arguments if member is not NoneType])
    if origin is Literal:
        return _read_literal(value, arguments)
    if origin is tuple:
        return _read_sequence(value, arguments[0])
    return _read_mapping(value, arguments[1]) if origin is Mapping else _read_table(value, type_)


def _is_optional(type_: Any) -> bool:
    """Return whether a type annotation allows None."""
    return get_origin(type_) in (Union, UnionType) and NoneType in get_args(type_)


def _read_union(value: Any, members: list[Any]) -> Any:
    """Convert a value to the first type in a union that accepts it.

    Args:
        value: The TOML or JSON value to convert.
        members: The types in the union, except None, because TOML has no null.

    Raises:
        RefusedValueError: None of the types accepts the value.
        InputError: Keys inside the value are invalid.
    """
    expectations = []
    for member in members:
        try:
            return _read_value(value, member)
        except RefusedValueError as error:
            # If the type is the only one besides None, its own error says more.
            if len(members) == 1:
                raise
            expectations.append(error.expectation)
    raise RefusedValueError(value, " or ".join(expectations))


def _read_table(value: Any, cls: Any) -> Any:
    """Convert a table to an instance of an attrs class declared with :func:`key`.

    Args:
        value: The table to convert.
        cls: The class to create an instance of.

    Raises:
        RefusedValueError: The value is not a table.
        InputError: Keys in the table are invalid, missing or unknown. The error contains the faults of all keys.
    """
    if not isinstance(value, Mapping):
        raise RefusedValueError(value, "a table")
    # Annotations are strings until they are resolved.
    attrs.resolve_types(cls)
    # All keys are read before faults are raised, so that the user sees all faults at once.
    remaining, values, faults = dict(value), dict[str, Any](), list[Fault]()
    for attribute in attrs.fields(cls):
        declared: Key | None = attribute.metadata.get(KEY)
        # The field that collects all other keys is filled last.
        if declared is None or declared.rest:
            continue
        name = declared.name or attribute.name
        if name in remaining:
            with _gather_faults(faults, name):
                values[attribute.alias] = _read_key(remaining.pop(name), attribute.type, declared)
        elif attribute.default is attrs.NOTHING:
            unit = f" ({declared.unit})" if declared.unit else ""
            faults.append(Fault("problem", name, "nothing", declared.help + unit))
    rest_names = [a.alias for a in attrs.fields(cls) if KEY in a.metadata and a.metadata[KEY].rest]
    if rest_names:
        values[rest_names[0]] = remaining
    elif remaining:
        key_names = _key_names(cls)
        # The class of a kind without settings declares no keys.
        expectation = f"one of {', '.join(key_names)}" if key_names else "no further key in this table"
        faults += [
            Fault("problem", name, f"{UNKNOWN_KEY}{_suggest(name, key_names)}", expectation)
            for name in sorted(remaining)
        ]
    if faults:
        raise InputError(faults)
    return cls(**values)


def _suggest(name: str, key_names: Sequence[str]) -> str:
    """Return a question that suggests the key most similar to an unknown one, or "" if none is similar."""
    nearest = get_close_matches(name, key_names, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def _add_line(fault: Fault, text: str) -> Fault:
    """Add the line number to a fault about an unknown key in a problem file.

    The fault is returned unchanged if it is about something else or if the line cannot be determined.

    Args:
        fault: The fault to which the line number is added.
        text: The text of the problem file.
    """
    line = find_line(text, fault.where) if fault.actual.startswith(UNKNOWN_KEY) else None
    if line is None:
        return fault
    return evolve(fault, actual=fault.actual.replace(UNKNOWN_KEY, f"{UNKNOWN_KEY} in line {line}", 1))


@contextmanager
def _gather_faults(faults: list[Fault], name: str) -> Iterator[None]:
    """Catch errors raised inside a ``with`` block, and add their faults to ``faults``.

    A fault in the problem file is attributed to the key ``name`` or to a key inside its value.
    """
    try:
        yield
    except RefusedValueError as error:
        faults.append(Fault("problem", name, error.actual, error.expectation))
    except InputError as error:
        for fault in error.faults:
            # Faults in files that the problem names refer to those files, not to a key of the problem file.
            is_own_file = fault.file == "problem"
            faults.append(attrs.evolve(fault, where=f"{name}.{fault.where}".strip(".")) if is_own_file else fault)


def _read_key(value: object, type_: Any, declared: Key) -> Any:
    """Convert the value of a key to the key's type, and apply the key's own check.

    Args:
        value: The TOML or JSON value.
        type_: The type of the field.
        declared: The declaration of the key.

    Raises:
        RefusedValueError: The value has the wrong type, or fails the check.
        InputError: Keys in a table inside the value are invalid.
    """
    if declared.kinds:
        return _read_kind(declared, value)
    is_optional = _is_optional(type_)
    if value is None and is_optional:  # JSON has a null, TOML has none
        return None
    if declared.infinite and value in ("inf", "-inf"):
        return float(str(value))
    is_file = type_ is File or (is_optional and File in get_args(type_))
    # The words that Literal types in a union with File allow.
    words = [word for member in get_args(type_) if get_origin(member) is Literal for word in get_args(member)]
    if is_file and value in words:  # a word that the key takes in place of a file
        return value
    result = _read_secret_file(value) if declared.secret and is_file else _read_value(value, type_)
    expectation = declared.check(result) if declared.check is not None else None
    if expectation:
        raise RefusedValueError(value, expectation + (f" ({declared.unit})" if declared.unit else ""))
    return result


def _read_mapping(value: object, member: Any) -> Mapping[str, Any]:
    """Convert a table whose keys are chosen by the user, with values of the type ``member``.

    Raises:
        RefusedValueError: The value is not a table.
        InputError: Values are invalid, or two names are equal in normal form.
    """
    if not isinstance(value, Mapping):
        raise RefusedValueError(value, "a table")
    result: dict[str, Any] = {}
    faults: list[Fault] = []
    for written_name, inner in value.items():
        name = normal_form(written_name)
        if name in result:
            expectation = "names that differ in more than their Unicode form"
            faults.append(Fault("problem", name, "a name written in two Unicode forms", expectation))
        with _gather_faults(faults, name):
            result[name] = _read_value(inner, member)
    if faults:
        raise InputError(faults)
    return result


def find_kind_class(declared: Key, name: str) -> type | None:
    """Return the class for a table whose ``kind`` key is ``name``, or None if there is no such kind.

    The kind must be registered under the role ``declared.kinds``, such as "distance". Only the plugin that registers
    this kind is loaded.
    """
    kinds = registry()
    is_known = declared.kinds and name in kinds.names(declared.kinds)
    return kinds.kind(declared.kinds, name).load().keys() if is_known else None


def list_kind_classes(declared: Key) -> dict[str, type | None]:
    """Map each possible value of a table's ``kind`` key to its class, or to None if the class cannot be loaded."""
    classes: dict[str, type | None] = {}
    for name in registry().names(declared.kinds) if declared.kinds else ():
        try:
            cls = find_kind_class(declared, name)
        # A kind that cannot be loaded must not prevent the others from being listed.
        except RegistryError:
            classes[name] = None
        else:
            classes |= {} if cls is None else {name: cls}
    return classes


def _read_kind(declared: Key, value: Any) -> Any:
    """Convert a table to an instance of the class for its ``kind``, which declares the table's other keys.

    Raises:
        RefusedValueError: The value is not a table.
        InputError: There is no such kind, or other keys are invalid.
    """
    if not isinstance(value, Mapping):
        raise RefusedValueError(value, "a table")
    remaining = dict(value)
    name = remaining.pop("kind", declared.kind)
    cls = find_kind_class(declared, name) if isinstance(name, str) else None
    if cls is None:
        actual = "nothing" if name is None else show(name)
        raise InputError([Fault("problem", "kind", actual, "one of " + ", ".join(list_kind_classes(declared)))])
    return _read_table(remaining, cls)


def _read_sequence(value: Any, member: Any) -> Any:
    """Convert a list to a tuple whose items have the type ``member``.

    Raises:
        RefusedValueError: The value is not a list, or some items are invalid. The message gives the positions of the
            first invalid items.
    """
    if not isinstance(value, list):
        raise RefusedValueError(value, "a list in brackets")
    results, faults = [], []
    for position, item in enumerate(value):
        try:
            results.append(_read_value(item, member))
        except RefusedValueError as error:
            faults.append(f"{error.actual} at position {position} where {error.expectation} is expected")
    if faults:
        raise RefusedValueError(value, "a list of valid values", words="; ".join(faults[:3]))
    return tuple(results)


def load_problem(
    cls: type[T], source: Path | File, *, public: bool = False, closed: bool = False, ignore: Collection[str] = ()
) -> T:
    """Read a problem file, and every file that it names, as an instance of a problem class.

    Each file is read only once, so :attr:`File.contents` does not change later. The title and the purpose are checked
    but not returned; use :func:`read_heading` to read them.

    Args:
        cls: An attrs class declared with :func:`key`.
        source: The TOML file. File names in a problem in memory are relative to the working directory.
        public: Whether the problem is a published copy, in which secret files may be absent and all files must be in
            the problem file's folder.
        closed: Whether secret files must not be opened, even if they exist.
        ignore: The names of tables to skip because they belong to other mechanisms.

    Raises:
        InputError: The problem file or a file that it names contains errors. The exception lists all of them.
    """
    if isinstance(source, Path):
        source = File.read(source, expectation="a problem file in TOML")
    heading, tables = _split_heading(cls, source)
    structure(ProblemHeading, heading, source.name)
    key_names = _key_names(cls)
    data = {name: value for name, value in tables.items() if name in key_names or name not in ignore}
    try:
        with _reading_scope(source, public, closed):
            return structure(cls, data, source.name)
    except InputError as error:
        text = source.contents.decode("utf-8-sig")
        raise InputError(_add_line(fault, text) for fault in error.faults) from None


def read_heading(cls: type, source: File) -> ProblemHeading:
    """Read the title and the purpose from a problem file.

    Args:
        cls: The problem class. If this class declares a title or purpose key itself, that key is not part of the
            heading.
        source: The problem file to read.
    """
    heading, _ = _split_heading(cls, source)
    return structure(ProblemHeading, heading, source.name)


def _split_heading(cls: type, source: File) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the top-level keys of a problem file into its heading (title and purpose) and all other keys.

    A title or purpose that the problem class declares as a key of its own is not part of the heading.
    """
    tables = read_toml(source)
    heading = {
        name: tables.pop(name) for name in set(_key_names(ProblemHeading)) - {*_key_names(cls)} if name in tables
    }
    return heading, tables


def _key_names(cls: type) -> list[str]:
    """Return the names of a class's keys as written in files, in the order of the fields."""
    return [a.metadata[KEY].name or a.name for a in attrs.fields(cls) if KEY in a.metadata]


def structure(cls: type[T], data: Mapping[str, object], file: str) -> T:
    """Create an instance of a class declared with :func:`key` from TOML or JSON data.

    Args:
        cls: The class to create an instance of.
        data: The values by key.
        file: The name of the file that the data comes from, used in faults.

    Raises:
        InputError: Keys are invalid. The error contains all faults, each with its key in the file.
    """
    faults: list[Fault] = []
    with _gather_faults(faults, ""):
        instance: T = _read_table(data, cls)
        return instance
    # This is reached only if the block above raised an error, whose faults were collected. ``file`` replaces the
    # placeholder "problem".
    raise InputError(attrs.evolve(fault, file=file) if fault.file == "problem" else fault for fault in faults)
