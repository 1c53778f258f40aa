"""Read problem files: TOML into the attrs classes of :mod:`privopt.declare.schema`, every fault named."""

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

from privopt.declare.describe import chosen, named
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
class _Place:
    base: Path
    public: bool
    closed: bool
    in_memory: Mapping[str, bytes]
    seen: dict[PurePosixPath, FileUse] = field(factory=dict)


_place: ContextVar[_Place] = ContextVar("place")


@contextmanager
def _reading(source: File, public: bool, closed: bool) -> Iterator[None]:
    base = Path.cwd() if source.path is None else source.path.resolve().parent
    token = _place.set(_Place(base, public, closed, source.in_memory))
    try:
        yield
    finally:
        _place.reset(token)


def _number(value: object) -> Decimal | int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise RefusedValueError(value, "a number")
    if not (value.is_finite() if isinstance(value, Decimal) else isinstance(value, int) or math.isfinite(value)):
        raise RefusedValueError(value, "a finite number")
    return value


def _float(value: Any) -> float:
    number = _number(value)
    try:
        result = float(number)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise RefusedValueError(value, "a number that a double can hold")
    return result


def _fraction(value: object) -> Fraction:
    number = value if isinstance(value, Fraction) else _number(value)
    if isinstance(number, Decimal):  # looked at before it is made a rational of so many digits
        fits = abs(number.adjusted()) <= 300
    else:
        fits = Fraction(1, 10**300) <= abs(Fraction(number)) <= 10**300
    if number and not fits:
        raise RefusedValueError(value, "a number between 1e-300 and 1e300 in size")
    stated: Fraction = number if isinstance(number, Fraction) else StatedFraction(str(number))
    return stated


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RefusedValueError(value, "a whole number")
    if abs(value) >= 2**63:
        raise RefusedValueError(value, "a whole number below 9.2e18 in size")
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise RefusedValueError(value, "true or false")
    return value


def _text(value: Any) -> str:
    return normal_form(_path_text(value))


def _path_text(value: Any) -> str:
    """Return the name of a file or folder as it is written: its system may tell two normal forms apart."""
    if not isinstance(value, str):
        raise RefusedValueError(value, "text in quotes")
    return value


def _literal(value: Any, choices: tuple[Any, ...]) -> Any:
    if value not in choices or isinstance(value, bool):
        raise RefusedValueError(value, "one of " + ", ".join(map(str, choices)))
    return value


def _file(value: Any) -> File:
    name = _path_text(value)
    if not name:
        raise RefusedValueError(value, "the name of a file")
    place = _place.get()
    seen = place.seen.setdefault(PurePosixPath(name), FileUse())  # one of all keys that name it
    if name in place.in_memory:
        return File(name=name, path=None, kept=place.in_memory[name], seen=seen)
    path = place.base / name
    if place.public and not _within(place.base, name):
        raise RefusedValueError(value, "the name of a file in the same folder, as privopt solve writes it")
    try:
        with open_regular(path, links=not place.public) as (stream, size):
            expect(loading_bytes(stream, size), f"{name} and what is read of it")
            return File(name=name, path=path, kept=read_whole(stream, size), seen=seen)
    except Unreadable as error:
        wanted = "a file, its path relative to the problem file"
        raise RefusedValueError(value, wanted, words=f"{show(name)}, {error}") from None


def _folder(value: Any) -> Folder:
    name = _path_text(value)
    place = _place.get()
    if place.public:
        return Folder(name=name, path=None)
    path = place.base / name
    if not name or not os.path.isdir(path):
        wanted = "a folder, its path relative to the problem file"
        raise RefusedValueError(value, wanted, words=f"{show(name)}, which is not a folder")
    return Folder(name=name, path=path)


def _within(base: Path, name: str) -> bool:
    """Check whether a name leads to a place inside a folder once links are resolved."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        return False
    return Path(os.path.realpath(base / name)).is_relative_to(base)


def _secret_file(value: Any) -> File:
    name = _path_text(value)
    place = _place.get()
    if place.closed or (place.public and not os.path.lexists(place.base / name.replace("\0", ""))):
        return File(name=name, path=None, secret=True)
    return attrs.evolve(_file(value), secret=True)


_PLAIN: Final[Mapping[Any, Callable[[Any], Any]]] = {
    float: _float,
    int: _int,
    bool: _bool,
    str: _text,
    Fraction: _fraction,
    File: _file,
    Folder: _folder,
    Any: lambda value: value,
}


def _value(value: Any, type_: Any) -> Any:
    """Return a value of TOML or JSON as one of a type.

    Raises:
        RefusedValueError: it is none.
        InputError: keys inside it, in the file that is called "problem" for want of its name.
    """
    if type_ in _PLAIN:
        return _PLAIN[type_](value)
    origin, arguments = get_origin(type_), get_args(type_)
    if origin in (Union, UnionType):
        return _union(value, [member for member in arguments if member is not NoneType])
    if origin is Literal:
        return _literal(value, arguments)
    if origin is tuple:
        return _sequence(value, arguments[0])
    return _object(value, arguments[1]) if origin is Mapping else _table(value, type_)


def _is_optional(type_: Any) -> bool:
    return get_origin(type_) in (Union, UnionType) and NoneType in get_args(type_)


def _union(value: Any, members: list[Any]) -> Any:
    """Return the first member of a union that takes the value; TOML has no null."""
    wanted = []
    for member in members:
        try:
            return _value(value, member)
        except RefusedValueError as error:
            if len(members) == 1:
                raise
            wanted.append(error.wanted)
    raise RefusedValueError(value, " or ".join(wanted))


def _table(value: Any, cls: Any) -> Any:
    """Return a table as an instance of a class, or every fault of its keys."""
    if not isinstance(value, Mapping):
        raise RefusedValueError(value, "a table")
    attrs.resolve_types(cls)
    left, made, faults = dict(value), dict[str, Any](), list[Fault]()
    for attribute in attrs.fields(cls):
        declared: Key | None = attribute.metadata.get(KEY)
        if declared is None or declared.rest:
            continue
        name = declared.name or attribute.name
        if name in left:
            with _gathering(faults, name):
                made[attribute.alias] = _checked(left.pop(name), attribute.type, declared)
        elif attribute.default is attrs.NOTHING:
            unit = f" ({declared.unit})" if declared.unit else ""
            faults.append(Fault("problem", name, "nothing", declared.help + unit))
    rest = [a.alias for a in attrs.fields(cls) if KEY in a.metadata and a.metadata[KEY].rest]
    if rest:
        made[rest[0]] = left
    elif left:
        known = ", ".join(_names(cls))
        faults += [Fault("problem", name, UNKNOWN_KEY, f"one of {known}") for name in sorted(left)]
    if faults:
        raise InputError(faults)
    return cls(**made)


@contextmanager
def _gathering(faults: list[Fault], name: str) -> Iterator[None]:
    """Gather what a block refuses, as faults of a key and of the keys inside it."""
    try:
        yield
    except RefusedValueError as error:
        faults.append(Fault("problem", name, error.found, error.wanted))
    except InputError as error:
        for fault in error.faults:
            own = fault.file == "problem"
            faults.append(attrs.evolve(fault, where=f"{name}.{fault.where}".strip(".")) if own else fault)


def _checked(value: object, type_: Any, declared: Key) -> Any:
    """Return the value of a key, which its further condition takes."""
    if declared.kinds:
        return _of_a_kind(declared, value)
    optional = _is_optional(type_)
    if value is None and optional:  # JSON has a null, TOML has none
        return None
    if declared.infinite and value in ("inf", "-inf"):
        return float(str(value))
    is_file = type_ is File or (optional and File in get_args(type_))
    words = [word for member in get_args(type_) if get_origin(member) is Literal for word in get_args(member)]
    if is_file and value in words:  # a word that the key takes in place of a file
        return value
    result = _secret_file(value) if declared.secret and is_file else _value(value, type_)
    wanted = declared.check(result) if declared.check is not None else None
    if wanted:
        raise RefusedValueError(value, wanted + (f" ({declared.unit})" if declared.unit else ""))
    return result


def _object(value: object, member: Any) -> Mapping[str, Any]:
    """Return a table whose keys the user names; values that have a type have it, and their faults the key."""
    if not isinstance(value, Mapping):
        raise RefusedValueError(value, "a table")
    found: dict[str, Any] = {}
    faults: list[Fault] = []
    for written_name, inner in value.items():
        name = normal_form(written_name)
        if name in found:
            wanted = "names that differ in more than their Unicode form"
            faults.append(Fault("problem", name, "a name written in two Unicode forms", wanted))
        with _gathering(faults, name):
            found[name] = _value(inner, member)
    if faults:
        raise InputError(faults)
    return found


def _of_a_kind(declared: Key, value: Any) -> Any:
    """Return a table whose key ``kind`` says which class it is."""
    if not isinstance(value, Mapping):
        raise RefusedValueError(value, "a table")
    rest = dict(value)
    name = rest.pop("kind", declared.kind)
    cls = named(declared, name) if isinstance(name, str) else None
    if cls is None:
        found = "nothing" if name is None else show(name)
        raise InputError([Fault("problem", "kind", found, "one of " + ", ".join(chosen(declared)))])
    return _table(rest, cls)


def _sequence(value: Any, member: Any) -> Any:
    if not isinstance(value, list):
        raise RefusedValueError(value, "a list in brackets")
    results, faults = [], []
    for position, item in enumerate(value):
        try:
            results.append(_value(item, member))
        except RefusedValueError as error:
            faults.append(f"{error.found} at position {position} where {error.wanted} is expected")
    if faults:
        raise RefusedValueError(value, "a list of valid values", words="; ".join(faults[:3]))
    return tuple(results)


def load_problem(
    cls: type[T], source: Path | File, *, public: bool = False, closed: bool = False, ignore: Collection[str] = ()
) -> T:
    """Read a problem file and, once, every file that it names: :attr:`File.contents` are the bytes found then.

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
    heading, tables = _parted(cls, source)
    structure(ProblemHeading, heading, source.name)
    own = _names(cls)
    data = {name: value for name, value in tables.items() if name in own or name not in ignore}
    with _reading(source, public, closed):
        return structure(cls, data, source.name)


def read_heading(cls: type, source: File) -> ProblemHeading:
    """Return the title and the purpose of a problem file that is read as ``cls``."""
    heading, _ = _parted(cls, source)
    return structure(ProblemHeading, heading, source.name)


def _parted(cls: type, source: File) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keys of a problem file that are its heading, and the others; a class may have such keys of its own."""
    tables = read_toml(source)
    heading = {name: tables.pop(name) for name in set(_names(ProblemHeading)) - {*_names(cls)} if name in tables}
    return heading, tables


def _names(cls: type) -> list[str]:
    """Return the keys of a class, as files write them."""
    return [a.metadata[KEY].name or a.name for a in attrs.fields(cls) if KEY in a.metadata]


def structure(cls: type[T], data: Mapping[str, object], file: str) -> T:
    """Return an instance of a class declared with :func:`key`, from tables as TOML or JSON has them.

    Args:
        cls: the class.
        data: its keys and their values.
        file: that they were read from, for faults.

    Raises:
        InputError: every fault, by its key in the file.
    """
    faults: list[Fault] = []
    with _gathering(faults, ""):
        made: T = _table(data, cls)
        return made
    raise InputError(attrs.evolve(fault, file=file) if fault.file == "problem" else fault for fault in faults)
