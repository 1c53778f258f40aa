"""Read problem files: TOML into the attrs classes of :mod:`privopt.declare.schema`, with every fault named.

Each type of a key has a reader that returns the value or raises a ``RefusedValueError``. Readers of tables collect the
errors of all keys.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

import attrs
from attrs import field, frozen

from privopt.declare.describe import find_kind_class, list_kind_classes
from privopt.declare.exact_text import StatedFraction
from privopt.declare.name_forms import normal_form
from privopt.declare.schema import KEY, File, FileUse, Folder, Key, ProblemHeading, RefusedValueError, show
from privopt.declare.toml_text import read_toml
from privopt.errors import Fault, InputError
from privopt.files.regular import Unreadable, open_regular, read_whole
from privopt.files.sizes import expect, loading_bytes

T = TypeVar("T")

UNKNOWN_KEY: Final = "an unknown key"


@frozen
class _Scope:
    """The context in which file names are resolved: the folder, and which files may be opened."""

    base: Path
    public: bool
    closed: bool
    in_memory: Mapping[str, bytes]
    seen: dict[PurePosixPath, FileUse] = field(factory=dict)


_scope: ContextVar[_Scope] = ContextVar("place")


@contextmanager
def _reading_scope(source: File, public: bool, closed: bool) -> Iterator[None]:
    """Resolve file names relative to a problem file within the block."""
    base = Path.cwd() if source.path is None else source.path.resolve().parent
    token = _scope.set(_Scope(base, public, closed, source.in_memory))
    try:
        yield
    finally:
        _scope.reset(token)


def _read_number(value: object) -> Decimal | int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise RefusedValueError(value, "a number")
    if not (value.is_finite() if isinstance(value, Decimal) else isinstance(value, int) or math.isfinite(value)):
        raise RefusedValueError(value, "a finite number")
    return value


def _read_float(value: Any) -> float:
    number = _read_number(value)
    try:
        result = float(number)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise RefusedValueError(value, "a number that a double can hold")
    return result


def _read_fraction(value: object) -> Fraction:
    number = value if isinstance(value, Fraction) else _read_number(value)
    # A decimal such as 1e999999999 would become a rational of that many digits.
    if isinstance(number, Decimal):  # looked at before it is made a rational of so many digits
        is_in_range = abs(number.adjusted()) <= 300
    else:
        is_in_range = Fraction(1, 10**300) <= abs(Fraction(number)) <= 10**300
    if number and not is_in_range:
        raise RefusedValueError(value, "a number between 1e-300 and 1e300 in size")
    fraction: Fraction = number if isinstance(number, Fraction) else StatedFraction(str(number))
    return fraction


def _read_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RefusedValueError(value, "a whole number")
    if abs(value) >= 2**63:
        raise RefusedValueError(value, "a whole number below 9.2e18 in size")
    return value


def _read_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise RefusedValueError(value, "true or false")
    return value


def _read_text(value: Any) -> str:
    return normal_form(_read_path_text(value))


def _read_path_text(value: Any) -> str:
    """Read the name of a file or folder as it is written, because file systems may distinguish normal forms."""
    if not isinstance(value, str):
        raise RefusedValueError(value, "text in quotes")
    return value


def _read_literal(value: Any, choices: tuple[Any, ...]) -> Any:
    if value not in choices or isinstance(value, bool):
        raise RefusedValueError(value, "one of " + ", ".join(map(str, choices)))
    return value


def _read_file(value: Any) -> File:
    name = _read_path_text(value)
    if not name:
        raise RefusedValueError(value, "the name of a file")
    scope = _scope.get()
    use = scope.seen.setdefault(PurePosixPath(name), FileUse())  # one of all keys that name it
    if name in scope.in_memory:
        return File(name=name, path=None, kept=scope.in_memory[name], seen=use)
    path = scope.base / name
    if scope.public and not _is_within(scope.base, name):
        raise RefusedValueError(value, "the name of a file in the same folder, as privopt solve writes it")
    try:
        with open_regular(path, links=not scope.public) as (stream, size):
            expect(loading_bytes(stream, size), f"{name} and what is read of it")
            return File(name=name, path=path, kept=read_whole(stream, size), seen=use)
    except Unreadable as error:
        expectation = "a file, its path relative to the problem file"
        raise RefusedValueError(value, expectation, words=f"{show(name)}, {error}") from None


def _read_folder(value: Any) -> Folder:
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
    """Return whether a name leads to a place inside the folder once links are resolved."""
    # Absolute names and .. are refused even if they would lead back into the folder.
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        return False
    return Path(os.path.realpath(base / name)).is_relative_to(base)


def _read_secret_file(value: Any) -> File:
    """Read the name of a secret file, which may be absent from a published copy."""
    name = _read_path_text(value)
    scope = _scope.get()
    if scope.closed or (scope.public and not os.path.lexists(scope.base / name.replace("\0", ""))):
        return File(name=name, path=None, secret=True)
    return attrs.evolve(_read_file(value), secret=True)


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
    """Convert a value of TOML or JSON to a type.

    Raises:
        RefusedValueError: it is none.
        InputError: keys inside it, in the file that is called "problem" for want of its name.
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
    """Return whether a type allows None."""
    return get_origin(type_) in (Union, UnionType) and NoneType in get_args(type_)


def _read_union(value: Any, members: list[Any]) -> Any:
    """Return the value as the first member of a union that accepts it; TOML has no null."""
    expectations = []
    for member in members:
        try:
            return _read_value(value, member)
        except RefusedValueError as error:
            if len(members) == 1:
                raise
            expectations.append(error.wanted)
    raise RefusedValueError(value, " or ".join(expectations))


def _read_table(value: Any, cls: Any) -> Any:
    """Convert a table to an instance of a class, or raise the faults of all its keys."""
    if not isinstance(value, Mapping):
        raise RefusedValueError(value, "a table")
    # Annotations are strings until they are resolved.
    attrs.resolve_types(cls)
    remaining, values, faults = dict(value), dict[str, Any](), list[Fault]()
    for attribute in attrs.fields(cls):
        declared: Key | None = attribute.metadata.get(KEY)
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
        key_names = ", ".join(_key_names(cls))
        faults += [Fault("problem", name, UNKNOWN_KEY, f"one of {key_names}") for name in sorted(remaining)]
    if faults:
        raise InputError(faults)
    return cls(**values)


@contextmanager
def _gather_faults(faults: list[Fault], name: str) -> Iterator[None]:
    """Collect errors of a block as faults of a key, and of the keys inside it."""
    try:
        yield
    except RefusedValueError as error:
        faults.append(Fault("problem", name, error.found, error.wanted))
    except InputError as error:
        for fault in error.faults:
            is_own_file = fault.file == "problem"
            faults.append(attrs.evolve(fault, where=f"{name}.{fault.where}".strip(".")) if is_own_file else fault)


def _read_key(value: object, type_: Any, declared: Key) -> Any:
    """Read the value of a key, and apply the key's own check."""
    if declared.kinds:
        return _read_kind(declared, value)
    is_optional = _is_optional(type_)
    if value is None and is_optional:  # JSON has a null, TOML has none
        return None
    if declared.infinite and value in ("inf", "-inf"):
        return float(str(value))
    is_file = type_ is File or (is_optional and File in get_args(type_))
    words = [word for member in get_args(type_) if get_origin(member) is Literal for word in get_args(member)]
    if is_file and value in words:  # a word that the key takes in place of a file
        return value
    result = _read_secret_file(value) if declared.secret and is_file else _read_value(value, type_)
    expectation = declared.check(result) if declared.check is not None else None
    if expectation:
        raise RefusedValueError(value, expectation + (f" ({declared.unit})" if declared.unit else ""))
    return result


def _read_mapping(value: object, member: Any) -> Mapping[str, Any]:
    """Read a table whose keys the user names. All values have one type; faults name the key."""
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


def _read_kind(declared: Key, value: Any) -> Any:
    """Read a table whose key ``kind`` names its class."""
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
    """Read a list whose items have one type, and name the positions of invalid items."""
    if not isinstance(value, list):
        raise RefusedValueError(value, "a list in brackets")
    results, faults = [], []
    for position, item in enumerate(value):
        try:
            results.append(_read_value(item, member))
        except RefusedValueError as error:
            faults.append(f"{error.found} at position {position} where {error.wanted} is expected")
    if faults:
        raise RefusedValueError(value, "a list of valid values", words="; ".join(faults[:3]))
    return tuple(results)


def load_problem(
    cls: type[T], source: Path | File, *, public: bool = False, closed: bool = False, ignore: Collection[str] = ()
) -> T:
    """Read a problem file and, once, every file that it names. :attr:`File.contents` are the bytes read then.

    Its title and purpose are checked, and read by :func:`read_heading`.

    Args:
        cls: attrs class declared with :func:`key`.
        source: the TOML file; one in memory names files by paths relative to the working folder.
        public: read a published copy, from which secret files may be absent, and which names no file outside
            its own folder.
        closed: open no secret file, though it is there.
        ignore: tables of other mechanisms, which one file may hold in addition to this one's.
    """
    if isinstance(source, Path):
        source = File.read(source, wanted="a problem file in TOML")
    heading, tables = _split_heading(cls, source)
    structure(ProblemHeading, heading, source.name)
    key_names = _key_names(cls)
    data = {name: value for name, value in tables.items() if name in key_names or name not in ignore}
    with _reading_scope(source, public, closed):
        return structure(cls, data, source.name)


def read_heading(cls: type, source: File) -> ProblemHeading:
    """Return the title and the purpose of a problem file of class ``cls``."""
    heading, _ = _split_heading(cls, source)
    return structure(ProblemHeading, heading, source.name)


def _split_heading(cls: type, source: File) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the keys of a problem file into its heading and the others, unless the class has such keys itself."""
    tables = read_toml(source)
    heading = {
        name: tables.pop(name) for name in set(_key_names(ProblemHeading)) - {*_key_names(cls)} if name in tables
    }
    return heading, tables


def _key_names(cls: type) -> list[str]:
    """Return the keys of a class as files write them."""
    return [a.metadata[KEY].name or a.name for a in attrs.fields(cls) if KEY in a.metadata]


def structure(cls: type[T], data: Mapping[str, object], file: str) -> T:
    """Create an instance of a class declared with :func:`key` from tables of TOML or JSON.

    Args:
        cls: the class.
        data: its keys and their values.
        file: that they were read from, for faults.

    Raises:
        InputError: every fault, by its key in the file.
    """
    faults: list[Fault] = []
    with _gather_faults(faults, ""):
        instance: T = _read_table(data, cls)
        return instance
    raise InputError(attrs.evolve(fault, file=file) if fault.file == "problem" else fault for fault in faults)
