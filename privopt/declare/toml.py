"""Read problem files: TOML into the attrs classes of :mod:`privopt.declare.schema`, every fault named."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path, PurePosixPath
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

import attrs
from attrs import field, frozen
from cattrs import Converter
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError, IterableValidationError
from cattrs.gen import make_dict_structure_fn, override

from privopt.declare.describe import chosen, named
from privopt.declare.exact_text import StatedFraction
from privopt.declare.schema import KEY, File, FileUse, Folder, Key, ProblemHeading, RefusedValueError, show
from privopt.declare.toml_text import read_toml
from privopt.errors import Fault, InputError
from privopt.files import Unreadable, open_regular, read_whole
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


def _float(value: Any, _: type) -> float:
    number = _number(value)
    try:
        result = float(number)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise RefusedValueError(value, "a number that a double can hold")
    return result


def _fraction(value: object, _: type) -> Fraction:
    number = value if isinstance(value, Fraction) else _number(value)
    if isinstance(number, Decimal):  # looked at before it is made a rational of so many digits
        fits = abs(number.adjusted()) <= 300
    else:
        fits = Fraction(1, 10**300) <= abs(Fraction(number)) <= 10**300
    if number and not fits:
        raise RefusedValueError(value, "a number between 1e-300 and 1e300 in size")
    stated: Fraction = number if isinstance(number, Fraction) else StatedFraction(str(number))
    return stated


def _int(value: Any, _: type) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RefusedValueError(value, "a whole number")
    if abs(value) >= 2**63:
        raise RefusedValueError(value, "a whole number below 9.2e18 in size")
    return value


def _bool(value: Any, _: type) -> bool:
    if not isinstance(value, bool):
        raise RefusedValueError(value, "true or false")
    return value


def _text(value: Any, _: type) -> str:
    if not isinstance(value, str):
        raise RefusedValueError(value, "text in quotes")
    return value


def _literal(value: Any, type_: Any) -> Any:
    choices = get_args(type_)
    if value not in choices or isinstance(value, bool):
        raise RefusedValueError(value, "one of " + ", ".join(map(str, choices)))
    return value


def _file(value: Any, _: type) -> File:
    name = _text(value, str)
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


def _folder(value: Any, _: type) -> Folder:
    name = _text(value, str)
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
    name = _text(value, str)
    place = _place.get()
    if place.closed or (place.public and not os.path.lexists(place.base / name.replace("\0", ""))):
        return File(name=name, path=None, secret=True)
    return attrs.evolve(_file(value, File), secret=True)


_origin: Callable[[object], object] = get_origin  # of so wide a type that it may be compared with any


def _is_optional(type_: Any) -> bool:
    return get_origin(type_) in (Union, UnionType) and NoneType in get_args(type_)


def _union(value: Any, type_: Any) -> Any:
    """Structure a union: the first member that takes the value; TOML has no null."""
    members = [member for member in get_args(type_) if member is not NoneType]
    if len(members) == 1:
        return _converter().structure(value, members[0])
    wanted = []
    for member in members:
        try:
            return _converter().structure(value, member)
        except RefusedValueError as error:
            wanted.append(error.wanted)
        except (ClassValidationError, IterableValidationError):
            if isinstance(value, Mapping) == attrs.has(member):
                raise
    raise RefusedValueError(value, " or ".join(wanted) or "another form")


def _table(cls: type) -> Callable[[Any, Any], Any]:
    attrs.resolve_types(cls)
    overrides: dict[str, Any] = {}
    for attribute in attrs.fields(cls):
        declared: Key | None = attribute.metadata.get(KEY)
        if declared is None:
            overrides[attribute.name] = override(omit=True)
            continue
        overrides[attribute.name] = override(rename=declared.name or attribute.name, struct_hook=_checked(declared))
    fields = make_dict_structure_fn(
        cls, _converter(), _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=True, **overrides
    )

    known = {
        a.metadata[KEY].name or a.name for a in attrs.fields(cls) if KEY in a.metadata and not a.metadata[KEY].rest
    }
    rest = next((a.name for a in attrs.fields(cls) if KEY in a.metadata and a.metadata[KEY].rest), None)

    def hook(value: object, type_: type) -> object:
        if not isinstance(value, Mapping):
            raise RefusedValueError(value, "a table")
        if rest is not None:
            others = {name: inner for name, inner in value.items() if name not in known}
            value = {name: inner for name, inner in value.items() if name in known} | {rest: others}
        return fields(value, type_)

    return hook


def _checked(declared: Key) -> Callable[[Any, Any], Any]:
    def hook(value: object, type_: type) -> object:
        if declared.kinds:
            return _of_a_kind(declared, value)
        if value is None and _is_optional(type_):  # JSON has a null, TOML has none
            return None
        if declared.infinite and value in ("inf", "-inf"):
            return float(value)
        is_file = type_ is File or (_is_optional(type_) and File in get_args(type_))
        result = _secret_file(value) if declared.secret and is_file else _converter().structure(value, type_)
        wanted = declared.check(result) if declared.check is not None else None
        if wanted:
            raise RefusedValueError(value, wanted + (f" ({declared.unit})" if declared.unit else ""))
        return result

    return hook


def _object(value: object, type_: Any) -> Mapping[str, Any]:
    """Return a table whose keys the user names; values that have a type have it, and their faults the key."""
    if not isinstance(value, Mapping):
        raise RefusedValueError(value, "a table")
    member = get_args(type_)[1]
    if member in (Any, object):
        return value
    found: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, inner in value.items():
        try:
            found[name] = _converter().structure(inner, member)
        except (RefusedValueError, InputError, ClassValidationError, IterableValidationError) as error:
            faults += _faults(error, member, name, "problem")
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
    return _converter().structure(rest, cls)


def _sequence(value: Any, type_: Any) -> Any:
    if not isinstance(value, list):
        raise RefusedValueError(value, "a list in brackets")
    member = get_args(type_)[0]
    results, faults = [], []
    for position, item in enumerate(value):
        try:
            results.append(_converter().structure(item, member))
        except RefusedValueError as error:
            faults.append(f"{error.found} at position {position} where {error.wanted} is expected")
    if faults:
        raise RefusedValueError(value, "a list of valid values", words="; ".join(faults[:3]))
    return tuple(results)


@cache
def _converter() -> Converter:
    converter = Converter(detailed_validation=True, forbid_extra_keys=True)
    converter.register_structure_hook_factory(attrs.has, _table)
    converter.register_structure_hook_func(lambda type_: _origin(type_) is tuple, _sequence)
    converter.register_structure_hook_func(lambda type_: _origin(type_) is Mapping, _object)
    converter.register_structure_hook_func(lambda type_: _origin(type_) in (Union, UnionType), _union)
    converter.register_structure_hook_func(lambda type_: _origin(type_) is Literal, _literal)
    for type_, hook in ((float, _float), (int, _int), (bool, _bool), (str, _text), (Fraction, _fraction)):
        converter.register_structure_hook(type_, hook)
    converter.register_structure_hook(File, _file)
    converter.register_structure_hook(Folder, _folder)
    return converter


def _faults(error: Exception, cls: Any, path: str, file: str) -> Iterator[Fault]:
    """Walk what cattrs gathered and name each fault by its key in the file."""
    if isinstance(error, ClassValidationError):
        noted, loose = error.group_exceptions()
        names = {a.name: (a.metadata[KEY].name or a.name) for a in attrs.fields(error.cl) if KEY in a.metadata}
        for inner, note in noted:
            where = f"{path}.{names.get(note.name, note.name)}".lstrip(".")
            if isinstance(inner, KeyError):
                declared: Key = attrs.fields_dict(error.cl)[note.name].metadata[KEY]
                yield Fault(file, where, "nothing", declared.help + (f" ({declared.unit})" if declared.unit else ""))
            else:
                yield from _faults(inner, note.type, where, file)
        for inner in loose:
            yield from _faults(inner, error.cl, path, file)
    elif isinstance(error, ForbiddenExtraKeysError):
        known = ", ".join((a.metadata[KEY].name or a.name) for a in attrs.fields(error.cl) if KEY in a.metadata)
        for extra in sorted(error.extra_fields):
            yield Fault(file, f"{path}.{extra}".lstrip("."), UNKNOWN_KEY, f"one of {known}")
    elif isinstance(error, IterableValidationError):
        for inner in error.exceptions:
            yield from _faults(inner, None, path, file)
    elif isinstance(error, RefusedValueError):
        yield Fault(file, path, error.found, error.wanted)
    elif isinstance(error, InputError):
        for fault in error.faults:
            inner_path = f"{path}.{fault.where}".strip(".") if fault.file == "problem" else fault.where
            yield Fault(file if fault.file == "problem" else fault.file, inner_path, fault.found, fault.wanted)
    else:
        raise error


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
    heading = {name: tables.pop(name) for name in _names(ProblemHeading) - _names(cls) if name in tables}
    return heading, tables


def _names(cls: type) -> set[str]:
    """Return the keys of a class, as files write them."""
    return {a.metadata[KEY].name or a.name for a in attrs.fields(cls) if KEY in a.metadata}


def structure(cls: type[T], data: Mapping[str, object], file: str) -> T:
    """Return an instance of a class declared with :func:`key`, from tables as TOML or JSON has them.

    Args:
        cls: the class.
        data: its keys and their values.
        file: that they were read from, for faults.
    """
    try:
        made: T = _converter().structure(data, cls)
    except (ClassValidationError, InputError, RefusedValueError) as error:
        raise InputError(_faults(error, cls, "", file)) from None
    return made
