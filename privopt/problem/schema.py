"""Problem classes: attrs declarations from which parsing, faults and ``describe`` follow.

A problem is a frozen attrs class whose fields are made by :func:`key`; a table of the file is a field
whose type is another such class::

    @frozen(kw_only=True)
    class Privacy:
        epsilon: Fraction = key(help="privacy budget", unit="1/distance", check=positive)

    @frozen(kw_only=True)
    class AcmeProblem:
        privacy: Privacy = key(help="how much may leak")

Field types: ``float``, ``int``, ``bool``, ``str``, ``Fraction`` (the rational of the decimal text),
``File``, ``Literal[...]``, ``tuple[T, ...]``, attrs classes, and any of them ``| None``.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs
from attrs import NOTHING, frozen
from cattrs import Converter
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError, IterableValidationError
from cattrs.gen import make_dict_structure_fn, override

from privopt.errors import Fault, InputError, UsageError

__all__ = [
    "File",
    "Wanted",
    "at_least",
    "between",
    "describe_keys",
    "files_of",
    "key",
    "load_problem",
    "non_negative",
    "positive",
]

T = TypeVar("T")
Check = Callable[[Any], str | None]
"""Takes a value; returns what was wanted instead, or None where the value will do."""

_KEY: Final = "privopt.key"


class Wanted(ValueError):  # noqa: N818  (it reads as what it says: found X, wanted Y)
    """A value that will not do: what was found (the value, or ``words`` for it) and what was wanted."""

    def __init__(self, found: object, wanted: str, *, words: str = "") -> None:
        self.found = words or show(found)
        self.wanted = wanted
        super().__init__(f"found {self.found}, wanted {wanted}")


@frozen(kw_only=True)
class Key:
    """What a problem class says about one of its fields."""

    help: str
    unit: str
    secret: bool
    name: str | None
    check: Check | None


@frozen(kw_only=True)
class File:
    """A file that a problem file names.

    Attributes:
        name: as the problem file gives it.
        path: where it is; None where a secret file is absent from a published folder.
        secret: whether it may be published.
    """

    name: str
    path: Path | None
    secret: bool = False

    @property
    def here(self) -> Path:
        """Path of a file that must be there.

        Raises:
            InputError: the file is secret and not part of what was published.
        """
        if self.path is None:
            raise InputError([Fault(self.name, "", "no such file (it is secret)", "the owner's copy")])
        return self.path


def key(
    default: Any = NOTHING,
    *,
    help: str,  # the field's own word for it
    unit: str = "",
    secret: bool = False,
    name: str | None = None,
    check: Check | None = None,
    factory: Callable[[], Any] | None = None,
) -> Any:
    """Declare a key of a problem file.

    Args:
        default: value where the key is left out; without one the key is required.
        help: one line for ``describe``.
        unit: unit of the value, shown by ``describe`` and in faults.
        secret: the file it names goes to ``private/`` only.
        name: the key as written in the file where it is no Python name (``"lr-geo"``).
        check: further condition; see :func:`positive` and its neighbours.
        factory: default made anew each time.
    """
    declared = Key(help=help, unit=unit, secret=secret, name=name, check=check)

    def validate(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        wanted = check(value) if check is not None and value is not None else None
        if wanted:
            raise InputError([Fault("problem", name or attribute.name, show(value), wanted)])

    metadata = {_KEY: declared}
    if factory is not None:
        return attrs.field(factory=factory, metadata=metadata, validator=validate)
    return attrs.field(default=default, metadata=metadata, validator=validate)


def positive(value: Any) -> str | None:
    """Check: a number above 0."""
    return None if value > 0 else "a number above 0"


def non_negative(value: Any) -> str | None:
    """Check: a number of at least 0."""
    return None if value >= 0 else "a number of at least 0"


def at_least(least: float) -> Check:
    """Check: a number of at least ``least``."""
    return lambda value: None if value >= least else f"a number of at least {least:g}"


def between(low: float, high: float) -> Check:
    """Check: a number above ``low`` and below ``high``."""
    return lambda value: None if low < value < high else f"a number above {low:g} and below {high:g}"


def show(value: object) -> str:
    """A value as the user wrote it, cut where it is long."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, Fraction):
        text = str(float(value))
    elif isinstance(value, str):
        text = repr(value)
    elif isinstance(value, Mapping):
        text = "a table"
    else:
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


# --- from TOML ------------------------------------------------------------------------------------


@frozen
class _Place:
    base: Path
    public: bool


_place: ContextVar[_Place] = ContextVar("place")


@contextmanager
def _reading(base: Path, public: bool) -> Iterator[None]:
    token = _place.set(_Place(base, public))
    try:
        yield
    finally:
        _place.reset(token)


def _number(value: Any) -> Decimal | int:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise Wanted(value, "a number")
    if isinstance(value, Decimal) and not value.is_finite():
        raise Wanted(value, "a finite number")
    return value


def _float(value: Any, _: type) -> float:
    number = _number(value)
    try:
        result = float(number)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise Wanted(value, "a number that a double can hold")
    return result


def _fraction(value: Any, _: type) -> Fraction:
    number = _number(value)
    if isinstance(number, Decimal) and number and abs(number.adjusted()) > 300:
        raise Wanted(value, "a number between 1e-300 and 1e300")
    return Fraction(number)


def _int(value: Any, _: type) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Wanted(value, "a whole number")
    return value


def _bool(value: Any, _: type) -> bool:
    if not isinstance(value, bool):
        raise Wanted(value, "true or false")
    return value


def _text(value: Any, _: type) -> str:
    if not isinstance(value, str):
        raise Wanted(value, "text in quotes")
    return value


def _literal(value: Any, type_: Any) -> Any:
    choices = get_args(type_)
    if value not in choices or isinstance(value, bool):
        raise Wanted(value, "one of " + ", ".join(map(str, choices)))
    return value


def _file(value: Any, _: type) -> File:
    name = _text(value, str)
    path = _place.get().base / name
    if not name or path.is_dir():
        raise Wanted(value, "the name of a file")
    if not path.is_file():
        wanted = "a file, its path relative to the problem file"
        raise Wanted(value, wanted, words=f"{name!r}, which does not exist")
    return File(name=name, path=path)


def _secret_file(value: Any) -> File:
    name = _text(value, str)
    if _place.get().public and not (_place.get().base / name).is_file():
        return File(name=name, path=None, secret=True)
    return attrs.evolve(_file(value, File), secret=True)


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
        except Wanted as error:
            wanted.append(error.wanted)
        except (ClassValidationError, IterableValidationError):
            if isinstance(value, Mapping) == attrs.has(member):
                raise
    raise Wanted(value, " or ".join(wanted) or "another form")


def _table(cls: type) -> Callable[[Any, Any], Any]:
    attrs.resolve_types(cls)
    overrides: dict[str, Any] = {}
    for attribute in attrs.fields(cls):
        declared: Key | None = attribute.metadata.get(_KEY)
        if declared is None:
            overrides[attribute.name] = override(omit=True)
            continue
        overrides[attribute.name] = override(rename=declared.name or attribute.name, struct_hook=_checked(declared))
    structure = make_dict_structure_fn(
        cls, _converter(), _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=True, **overrides
    )

    def hook(value: Any, type_: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Wanted(value, "a table")
        return structure(value, type_)

    return hook


def _checked(declared: Key) -> Callable[[Any, Any], Any]:
    def hook(value: Any, type_: Any) -> Any:
        is_file = type_ is File or (_is_optional(type_) and File in get_args(type_))
        result = _secret_file(value) if declared.secret and is_file else _converter().structure(value, type_)
        wanted = declared.check(result) if declared.check is not None else None
        if wanted:
            raise Wanted(value, wanted + (f" ({declared.unit})" if declared.unit else ""))
        return result

    return hook


def _sequence(value: Any, type_: Any) -> Any:
    if not isinstance(value, list):
        raise Wanted(value, "a list in brackets")
    member = get_args(type_)[0]
    results, faults = [], []
    for position, item in enumerate(value):
        try:
            results.append(_converter().structure(item, member))
        except Wanted as error:
            faults.append(f"{error.found} at position {position} where {error.wanted} was wanted")
    if faults:
        raise Wanted(value, "a list of such values alone", words="; ".join(faults[:3]))
    return tuple(results)


@cache
def _converter() -> Converter:
    converter = Converter(detailed_validation=True, forbid_extra_keys=True)
    converter.register_structure_hook_factory(attrs.has, _table)
    converter.register_structure_hook_func(lambda type_: get_origin(type_) is tuple, _sequence)
    converter.register_structure_hook_func(lambda type_: get_origin(type_) in (Union, UnionType), _union)
    converter.register_structure_hook_func(lambda type_: get_origin(type_) is Literal, _literal)
    for type_, hook in ((float, _float), (int, _int), (bool, _bool), (str, _text), (Fraction, _fraction)):
        converter.register_structure_hook(type_, hook)
    converter.register_structure_hook(File, _file)
    return converter


def _faults(error: Exception, cls: Any, path: str, file: str) -> Iterator[Fault]:
    """Walk what cattrs gathered and name each fault by its key in the file."""
    if isinstance(error, ClassValidationError):
        noted, loose = error.group_exceptions()
        names = {a.name: (a.metadata[_KEY].name or a.name) for a in attrs.fields(error.cl) if _KEY in a.metadata}
        for inner, note in noted:
            where = f"{path}.{names.get(note.name, note.name)}".lstrip(".")
            if isinstance(inner, KeyError):
                declared: Key = attrs.fields_dict(error.cl)[note.name].metadata[_KEY]
                yield Fault(file, where, "nothing", declared.help + (f" ({declared.unit})" if declared.unit else ""))
            else:
                yield from _faults(inner, note.type, where, file)
        for inner in loose:
            yield from _faults(inner, error.cl, path, file)
    elif isinstance(error, ForbiddenExtraKeysError):
        known = ", ".join((a.metadata[_KEY].name or a.name) for a in attrs.fields(error.cl) if _KEY in a.metadata)
        for extra in sorted(error.extra_fields):
            yield Fault(file, f"{path}.{extra}".lstrip("."), "an unknown key", f"one of {known}")
    elif isinstance(error, IterableValidationError):
        for inner in error.exceptions:
            yield from _faults(inner, None, path, file)
    elif isinstance(error, Wanted):
        yield Fault(file, path, error.found, error.wanted)
    elif isinstance(error, InputError):
        for fault in error.faults:
            inner_path = f"{path}.{fault.where}".strip(".") if fault.file == "problem" else fault.where
            yield Fault(file if fault.file == "problem" else fault.file, inner_path, fault.found, fault.wanted)
    else:
        raise error


def _toml(path: Path) -> dict[str, Any]:
    def refuse(found: str, wanted: str) -> NoReturn:
        raise InputError([Fault(path.name, "", found, wanted)])

    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        refuse("no such file", "a problem file in TOML")
    except OSError as error:
        refuse(f"a file that cannot be read ({error.strerror})", "a problem file in TOML")
    try:
        text = raw.decode("utf-8-sig")
        return tomllib.loads(text, parse_float=Decimal)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        refuse(f"a byte in line {line} that is not UTF-8", "TOML 1.0 in UTF-8")
    except tomllib.TOMLDecodeError as error:
        refuse(f"text that is not TOML: {error}", "TOML 1.0")


def load_problem(cls: type[T], path: Path, *, public: bool = False, ignore: Collection[str] = ()) -> T:
    """Read a problem file.

    Args:
        cls: attrs class declared with :func:`key`. Where it has a method ``prepare(self, file: str)`` that is
            called last, to load and check what the files hold.
        path: of the TOML file.
        public: read a published copy, from which secret files may be absent.
        ignore: tables of other mechanisms, which one file may hold beside this one's.

    Raises:
        InputError: every fault found in the file, one line each.
    """
    own = {a.metadata[_KEY].name or a.name for a in attrs.fields(cls) if _KEY in a.metadata}  # type: ignore[arg-type]
    data = {name: value for name, value in _toml(path).items() if name in own or name not in ignore}
    with _reading(path.resolve().parent, public):
        try:
            problem: T = _converter().structure(data, cls)
        except (ClassValidationError, InputError, Wanted) as error:
            raise InputError(_faults(error, cls, "", path.name)) from None
    prepare = getattr(problem, "prepare", None)
    if prepare is not None:
        prepare(path.name)
    return problem


# --- what a declaration tells ----------------------------------------------------------------------


def files_of(problem: Any) -> list[File]:
    """Every file that a problem names, in the order of its fields."""
    found: list[File] = []
    for attribute in attrs.fields(type(problem)):
        value = getattr(problem, attribute.name)
        if isinstance(value, File):
            found.append(value)
        elif attrs.has(type(value)) and _KEY in attribute.metadata:
            found.extend(files_of(value))
    return found


@frozen(kw_only=True)
class KeyRow:
    """One line of ``describe``."""

    key: str
    type: str
    unit: str
    default: str
    help: str


def _type_name(type_: Any) -> str:
    if get_origin(type_) in (Union, UnionType):
        return " | ".join(_type_name(member) for member in get_args(type_) if member is not NoneType)
    if get_origin(type_) is Literal:
        return " | ".join(map(str, get_args(type_)))
    if get_origin(type_) is tuple:
        return f"list of {_type_name(get_args(type_)[0])}"
    names = {float: "number", Fraction: "number", int: "whole number", bool: "true | false", str: "text", File: "file"}
    return names.get(type_, "table")


def _tables_in(type_: Any) -> list[type]:
    members = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
    return [member for member in members if attrs.has(member) and member is not File]


def describe_keys(cls: type, prefix: str = "") -> list[KeyRow]:
    """The keys of a problem class, in order, one row each; tables as ``[table]`` headings.

    Raises:
        UsageError: the class is no problem class.
    """
    if not attrs.has(cls):
        raise UsageError(f"{cls.__name__} is not an attrs class, so it cannot be a problem class")
    hints = get_type_hints(cls)
    rows: list[KeyRow] = []
    for attribute in attrs.fields(cls):
        declared: Key | None = attribute.metadata.get(_KEY)
        if declared is None:
            continue
        type_ = hints[attribute.name]
        name = f"{prefix}{declared.name or attribute.name}"
        required = attribute.default is NOTHING
        if required:
            default = "required"
        elif attribute.default is None or isinstance(attribute.default, attrs.Factory):  # type: ignore[arg-type]
            default = "left out"
        else:
            default = show(attribute.default).strip("'")
        secret = " (secret)" if declared.secret else ""
        rows.append(
            KeyRow(key=name, type=_type_name(type_), unit=declared.unit, default=default, help=declared.help + secret)
        )
        for table in _tables_in(type_):
            rows.extend(describe_keys(table, f"{name}."))
    return rows
