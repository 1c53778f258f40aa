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
``File``, ``Folder``, ``Literal[...]``, ``tuple[T, ...]``, ``Mapping[str, T]`` (a table whose keys the user names),
attrs classes, and any of them ``| None``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
from attrs import NOTHING, AttrsInstance, define, field, frozen

from privopt.errors import Fault, InputError
from privopt.files.regular import Unreadable, read_bytes

Check = Callable[[Any], str | None]
"""Takes a value; returns what was expected instead, or None if the value will do."""

T = TypeVar("T")
KEY: Final = "privopt.key"
"""Where the attrs metadata of a field has its :class:`Key`."""


class RefusedValueError(ValueError):
    """A value is refused: the value, or ``words`` for it, and what was expected."""

    def __init__(self, value: object, wanted: str, *, words: str = "") -> None:
        self.found = words or show(value)
        self.wanted = wanted
        super().__init__(f"expected {wanted}, got {self.found}")


@frozen(kw_only=True)
class Key:
    """The declaration of one key of a problem class."""

    help: str
    unit: str
    secret: bool
    name: str | None
    check: Check | None
    kinds: str = ""
    kind: str | None = None
    rest: bool = False
    infinite: bool = False
    omit: bool = False


@define
class FileUse:
    """What readers have used of a file so far. ``solve`` publishes nothing more of a public file.

    Attributes:
        columns: read from a table, as its header names them; empty if it is not a table.
        instead: contents that are published instead of the file, if the file holds more than was read; None for a
        table.
    """

    columns: set[str] = field(factory=set)
    instead: bytes | None = None


@frozen(kw_only=True)
class File:
    """A file that a problem file names.

    Attributes:
        name: as the problem file gives it.
        path: where it is; None if it was never on disk, or a secret file is absent from a published folder.
        secret: whether it goes to ``private/`` alone.
        kept: its bytes as they were when the problem was read, so that what is computed, hashed and written is the same
            even if the file is edited meanwhile.
        in_memory: files that it may name, by name; they take precedence over those on disk.
        seen: what was read of it so far.
    """

    name: str
    path: Path | None
    secret: bool = False
    kept: bytes | None = field(default=None, repr=False, eq=False)
    in_memory: Mapping[str, bytes] = field(factory=dict, repr=False, eq=False)
    seen: FileUse = field(factory=FileUse, repr=False, eq=False)

    @classmethod
    def read(cls, path: Path, name: str | None = None, *, wanted: str = "a file") -> File:
        """Read a file's bytes."""
        name = (path.name or str(path)) if name is None else name
        try:
            return cls(name=name, path=path, kept=read_bytes(path))
        except Unreadable as error:
            raise InputError([Fault(name, "", error.found, wanted)]) from None

    @property
    def contents(self) -> bytes:
        """The bytes of the file."""
        if self.kept is not None:
            return self.kept
        return File.read(self.here, self.name).contents

    @property
    def absent(self) -> bool:
        """Whether this is a secret file that was not published."""
        return self.path is None and self.kept is None

    @property
    def here(self) -> Path:
        """The path of the file on disk."""
        if self.path is None:
            raise InputError([Fault(self.name, "", "no such file (it is secret)", "the owner's copy")])
        return self.path


@frozen(kw_only=True)
class Folder:
    """A folder that a problem file names. It belongs to its owner and is not part of DIR.

    Attributes:
        name: as the problem file gives it.
        path: where it is; None in a published copy, from which it is never looked for.
    """

    name: str
    path: Path | None


def key(
    default: Any = NOTHING,
    *,
    help: str,  # the field's own word for it
    unit: str = "",
    secret: bool = False,
    name: str | None = None,
    check: Check | None = None,
    factory: Callable[[], Any] | None = None,
    kinds: str = "",
    kind: str | None = None,
    rest: bool = False,
    infinite: bool = False,
    omit: bool = False,
) -> Any:
    """Declare a key of a problem file.

    Args:
        default: value if the key is omitted; without one the key is required.
        help: one line for ``describe``.
        unit: unit of the value, shown by ``describe`` and in faults.
        secret: the file it names goes to ``private/`` only.
        name: the key as written in the file where it is not a Python name (``"lr-geo"``).
        check: further condition; see :func:`positive` and its neighbours.
        factory: makes the default, each time.
        kinds: role of registered kinds (:class:`privopt.specs.RoleSpec`), for a table whose key ``kind`` chooses one of
            them, and with it which other keys the table has.
        kind: the kind if that key is omitted; without one it is required.
        rest: it takes all keys of its table that no other field is called, as a mapping.
        infinite: ``"inf"`` and ``"-inf"``, as JSON has them, are numbers here.
        omit: :func:`document` leaves it out where it has its default.
    """
    declared = Key(
        help=help,
        unit=unit,
        secret=secret,
        name=name,
        check=check,
        kinds=kinds,
        kind=kind,
        rest=rest,
        infinite=infinite,
        omit=omit,
    )

    def validate(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        expectation = check(value) if check is not None and value is not None else None
        if expectation:
            raise InputError([Fault("problem", name or attribute.name, show(value), expectation)])

    metadata = {KEY: declared}
    if factory is not None:
        return attrs.field(factory=factory, metadata=metadata, validator=validate)
    return attrs.field(default=default, metadata=metadata, validator=validate)


def positive(value: float | Fraction) -> str | None:
    """Check: a number above 0."""
    return None if value > 0 else "a number above 0"


def non_negative(value: float | Fraction) -> str | None:
    """Check: a number of at least 0."""
    return None if value >= 0 else "a number of at least 0"


def at_least(minimum: float | Fraction) -> Check:
    """Check: a number of at least ``minimum``."""
    return lambda value: None if value >= minimum else f"a number of at least {float(minimum):g}"


def between(low: float, high: float) -> Check:
    """Check: a number above ``low`` and below ``high``."""
    return lambda value: None if low < value < high else f"a number above {low:g} and below {high:g}"


def one_of(values: Collection[object]) -> Check:
    """Check: one of ``values``."""
    return lambda value: None if value in values else f"one of {', '.join(map(str, values))}"


share: Final = between(0, 1)


MAX_LINE: Final = 200
"""Characters of the longest title, purpose or unit."""


def one_line(value: str) -> str | None:
    """Check: a line of text, without control characters and the marks that turn its direction."""
    is_valid = value.strip() and value.isprintable() and len(value) <= MAX_LINE
    return None if is_valid else f"one line of 1 to {MAX_LINE} printable characters"


@frozen(kw_only=True)
class ProblemHeading:
    """The title and purpose of a problem: keys before the tables of every problem file, and public."""

    title: str | None = key(None, help="the report's heading; public", check=one_line)
    purpose: str | None = key(None, help="what the release is for: a line under the heading; public", check=one_line)


def show(value: object) -> str:
    """Return a value as the user wrote it, shortened if it is long."""
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


def document(value: AttrsInstance) -> dict[str, Any]:
    """Return the keys of an instance in order with their values, as :func:`privopt.declare.structure` reads them."""
    values: dict[str, Any] = {}
    for attribute in attrs.fields(type(value)):
        declared: Key | None = attribute.metadata.get(KEY)
        inner = getattr(value, attribute.name)
        if declared is None or (declared.omit and inner == attribute.default):
            continue
        if declared.rest:
            values |= inner
        else:
            values[declared.name or attribute.name] = document(inner) if attrs.has(type(inner)) else inner
    return values


def files_of(problem: AttrsInstance) -> list[File]:
    """Return every file that a problem names, in the order of its fields."""
    return _collect_parts(problem, File)


def folders_of(problem: AttrsInstance) -> list[Folder]:
    """Return every folder that a problem names."""
    return _collect_parts(problem, Folder)


def _collect_parts(problem: AttrsInstance, kind: type[T]) -> list[T]:
    """Return all files, or folders, of a problem and of its tables."""
    parts: list[T] = []
    for attribute in attrs.fields(type(problem)):
        value = getattr(problem, attribute.name)
        if isinstance(value, kind):
            parts.append(value)
        elif isinstance(value, tuple):
            parts.extend(item for item in value if isinstance(item, kind))
        elif KEY in attribute.metadata:
            tables = value.values() if isinstance(value, Mapping) else (value,)
            parts.extend(item for table in tables if attrs.has(type(table)) for item in _collect_parts(table, kind))
    return parts
