"""Tools for declaring problem classes with attrs. Parsing, faults and ``describe`` are derived from these classes.

A problem is a frozen attrs class whose fields are declared with :func:`key`. A table in the file is a field whose type
is another such class::

    @frozen(kw_only=True)
    class Privacy:
        epsilon: Fraction = key(help="privacy budget", unit="1/distance", check=positive)


    @frozen(kw_only=True)
    class AcmeProblem:
        privacy: Privacy = key(help="how much may leak")

Field types: ``float``, ``int``, ``bool``, ``str``, ``Fraction`` (a decimal, read exactly), ``File``, ``Folder``,
``Literal[...]``, ``tuple[T, ...]``, ``Mapping[str, T]`` (a table whose keys are chosen by the user), attrs classes, and
any of these combined with ``| None``.
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
"""A function that returns None if a value is valid, and otherwise a phrase that says what was expected."""

T = TypeVar("T")
KEY: Final = "privopt.key"
"""The key in a field's attrs metadata under which its :class:`Key` is stored."""


class RefusedValueError(ValueError):
    """Raised when the value of a key is invalid. The reader of the table adds the file and the key to form a fault.

    Attributes:
        actual: The value, in words.
        expectation: The expected value, in words.
    """

    def __init__(self, value: object, expectation: str, *, words: str = "") -> None:
        """Create the error. The value is described by ``words`` if given, and otherwise shown as it was written."""
        self.actual = words or show(value)
        self.expectation = expectation
        super().__init__(f"expected {expectation}, got {self.actual}")


@frozen(kw_only=True)
class Key:
    """The declaration of a key in a problem class. Its attributes are the arguments of :func:`key`."""

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
    """The parts of a file that have been read so far. If the file is public, ``solve`` publishes only these parts.

    Attributes:
        columns: The columns that were read from a table, as named in its header. Empty for files of other kinds.
        instead: The contents to publish in place of the file, for example because the reader converted the file. If
            None, the file itself is published or, for a table, the columns that were read.
        unreadable: The columns of a Parquet file whose types cannot be read, such as decimals with 76 digits.
    """

    columns: set[str] = field(factory=set)
    instead: bytes | None = None
    unreadable: set[str] = field(factory=set)


@frozen(kw_only=True)
class File:
    """A file named in a problem file.

    Attributes:
        name: The name in the problem file.
        path: The path of the file. None if the file was never on disk, or if it is a secret file that was not published
            or must not be opened.
        secret: Whether the file is secret. A secret file is written only to ``private/``.
        kept: The contents of the file when the problem was read, or None if they were not read. All later steps use
            these contents, even if the file is edited in the meantime.
        in_memory: The contents of other files to which this file may refer, keyed by their names. They take precedence
            over files on disk.
        seen: The parts of the file that have been read so far.
    """

    name: str
    path: Path | None
    secret: bool = False
    kept: bytes | None = field(default=None, repr=False, eq=False)
    in_memory: Mapping[str, bytes] = field(factory=dict, repr=False, eq=False)
    seen: FileUse = field(factory=FileUse, repr=False, eq=False)

    @classmethod
    def read(cls, path: Path, name: str | None = None, *, expectation: str = "a file") -> File:
        """Read a file from disk, and return it together with its contents.

        Args:
            path: The path of the file.
            name: The name of the file in faults. By default, it is the last part of the path.
            expectation: A description of the expected kind of file, used in faults.

        Raises:
            InputError: The file cannot be read.
        """
        name = (path.name or str(path)) if name is None else name
        try:
            return cls(name=name, path=path, kept=read_bytes(path))
        except Unreadable as error:
            raise InputError([Fault(name, "", error.actual, expectation)]) from None

    @property
    def contents(self) -> bytes:
        """The bytes of the file.

        Raises:
            InputError: The file cannot be read, or is a secret file that was not published.
        """
        if self.kept is not None:
            return self.kept
        return File.read(self.here, self.name).contents

    @property
    def absent(self) -> bool:
        """Whether this is a secret file that was not published and therefore has no contents."""
        return self.path is None and self.kept is None

    @property
    def here(self) -> Path:
        """The path of the file on disk.

        Raises:
            InputError: The file has no path, because it was never on disk, or is a secret file that was not published.
        """
        if self.absent:
            raise InputError([Fault(self.name, "", "no such file (it is secret)", "the owner's copy")])
        if self.path is None:
            raise InputError([Fault(self.name, "", "a file in memory", "a file on disk")])
        return self.path


@frozen(kw_only=True)
class Folder:
    """A folder named in a problem file. It belongs to the problem's owner and is not part of the release folder.

    Attributes:
        name: The name in the problem file.
        path: The path of the folder, or None in a published copy, where the folder is never opened.
    """

    name: str
    path: Path | None


def key(
    default: Any = NOTHING,
    *,
    help: str,  # hides Python's help(), but describe and click also call such a text "help"
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
    """Declare a key in a problem file.

    Args:
        default: The value if the key is omitted. A key without a default is required.
        help: A one-line explanation for ``describe``.
        unit: The unit of the value, shown by ``describe`` and in faults.
        secret: Whether the file named by the key is secret. A secret file is written only to ``private/``.
        name: The key as written in files, if it is not a valid Python name (``"lr-geo"``).
        check: An additional condition that the value must meet, such as :func:`positive` or another check in this
            module.
        factory: A function that creates the default. It is called for each new instance.
        kinds: For a table with a ``kind`` key, the role (:class:`privopt.specs.RoleSpec`) under which the possible
            kinds are registered. The kind determines the table's other keys.
        kind: The default for the ``kind`` key. If None, the ``kind`` key is required.
        rest: Whether the field is a mapping that collects all keys of the table that do not belong to another field.
        infinite: Whether the strings ``"inf"`` and ``"-inf"``, which stand for infinite numbers in JSON, are accepted.
        omit: Whether :func:`document` omits the key if its value is the default.
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

    # As a validator, the check also applies to instances that Python code creates without reading a file.
    def validate(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        """Apply the key's check as an attrs validator, skipping None, which stands for an omitted key."""
        expectation = check(value) if check is not None and value is not None else None
        if expectation:
            raise InputError([Fault("problem", name or attribute.name, show(value), expectation)])

    metadata = {KEY: declared}
    if factory is not None:
        return attrs.field(factory=factory, metadata=metadata, validator=validate)
    return attrs.field(default=default, metadata=metadata, validator=validate)


def positive(value: float | Fraction) -> str | None:
    """Check that a number is above 0.

    Like every check, this returns None if the value is valid, and a description of valid values otherwise.
    """
    return None if value > 0 else "a number above 0"


def non_negative(value: float | Fraction) -> str | None:
    """Check that a number is at least 0, in the same way as :func:`positive`."""
    return None if value >= 0 else "a number of at least 0"


def at_least(minimum: float | Fraction) -> Check:
    """Return a check that accepts numbers of at least ``minimum``."""
    return lambda value: None if value >= minimum else f"a number of at least {float(minimum):g}"


def between(lower: float, upper: float) -> Check:
    """Return a check that accepts numbers above ``lower`` and below ``upper``."""
    return lambda value: None if lower < value < upper else f"a number above {lower:g} and below {upper:g}"


def one_of(values: Collection[object]) -> Check:
    """Return a check that accepts only the given values."""
    return lambda value: None if value in values else f"one of {', '.join(map(str, values))}"


share: Final = between(0, 1)
"""A check that accepts numbers above 0 and below 1."""


MAX_LINE: Final = 200
"""The maximum number of characters in a title, purpose or unit."""


def one_line(value: str) -> str | None:
    """Check that a string is one line of printable characters, without marks that change the writing direction."""
    is_valid = value.strip() and value.isprintable() and len(value) <= MAX_LINE
    return None if is_valid else f"one line of 1 to {MAX_LINE} printable characters"


@frozen(kw_only=True)
class ProblemHeading:
    """The title and purpose of a problem, two public keys that can precede the tables in any problem file."""

    title: str | None = key(None, help="the report's heading; public", check=one_line)
    purpose: str | None = key(None, help="what the release is for: a line under the heading; public", check=one_line)


def show(value: object) -> str:
    """Format a value for messages, in a form close to what the user wrote, and shorten it if it is long."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, Fraction):
        # Shown as a decimal, because the user would not recognise a quotient of two long numbers.
        text = str(float(value))
    elif isinstance(value, str):
        text = repr(value)
    elif isinstance(value, Mapping):
        text = "a table"
    else:
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def document(value: AttrsInstance) -> dict[str, Any]:
    """Return the keys and values of an instance, in order and in a form that :func:`structure` can read back."""
    values: dict[str, Any] = {}
    for attribute in attrs.fields(type(value)):
        declared: Key | None = attribute.metadata.get(KEY)
        inner = getattr(value, attribute.name)
        # Fields without a declaration are not keys of the file.
        if declared is None or (declared.omit and inner == attribute.default):
            continue
        if declared.rest:
            values |= inner
        else:
            values[declared.name or attribute.name] = document(inner) if attrs.has(type(inner)) else inner
    return values


def files_of(problem: AttrsInstance) -> list[File]:
    """Return every file named in a problem, in the order of the fields."""
    return _collect_parts(problem, File)


def folders_of(problem: AttrsInstance) -> list[Folder]:
    """Return every folder named in a problem, in the order of the fields."""
    return _collect_parts(problem, Folder)


def _collect_parts(problem: AttrsInstance, kind: type[T]) -> list[T]:
    """Return all values of type ``kind`` (files or folders) in a problem and its tables, in the order of the fields."""
    parts: list[T] = []
    for attribute in attrs.fields(type(problem)):
        value = getattr(problem, attribute.name)
        if isinstance(value, kind):
            parts.append(value)
        elif isinstance(value, tuple):
            parts.extend(item for item in value if isinstance(item, kind))
        elif KEY in attribute.metadata:
            # The values of a mapping are tables whose names the user has chosen.
            tables = value.values() if isinstance(value, Mapping) else (value,)
            parts.extend(item for table in tables if attrs.has(type(table)) for item in _collect_parts(table, kind))
    return parts
