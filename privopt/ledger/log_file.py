"""The file of a ledger, or of kept reports: SQLite, durable with every transaction, created completely or not at all.

What SQLite reports is sorted into three: bytes that are not what was written, a file that is something else, and a disk
or a lock that is in the way.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from attrs import define, field, frozen

from privopt.errors import DoesNotHoldError, Fault, InputError, StoppedError, UsageError
from privopt.files import Unreadable, flush, open_regular
from privopt.files.working_folder import claimed

LOCK_TIMEOUT_SECONDS: Final = 60.0
"""Seconds that a process waits for another that is writing."""

PAGE_BYTES: Final = 4096
_PRAGMAS: Final = (
    "synchronous = FULL",
    "fullfsync = ON",  # elsewhere than on macOS it is so anyway
    "secure_delete = ON",
    "trusted_schema = OFF",
    "cell_size_check = ON",
)
_MAGIC: Final = b"SQLite format 3\0"
_IN_THE_WAY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM", "SQLITE_INTERRUPT")
_NOT_OPEN: Final = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")


@frozen(kw_only=True)
class Form:
    """What kind of file it is.

    Attributes:
        name: in messages.
        mark: SQLite's application id, by which it is known.
        schema: statements that make its tables.
    """

    name: str
    mark: int
    schema: tuple[str, ...]


@contextmanager
def translate_errors(path: Path, what: str) -> Iterator[None]:
    """Turn what SQLite raises into privopt's errors.

    Raises:
        DoesNotHoldError: the file is not as it was written.
        UsageError: it may not be opened or written.
        StoppedError: another process, or the disk, is in the way.
    """
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError):  # a fault of the caller, another thread say
        raise
    except UnicodeDecodeError as error:  # of SQLite's own message, which quotes what it cannot read
        raise DoesNotHoldError(f"{path}: changed: {what}: text that is none") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "") or ""
        if code.startswith(_IN_THE_WAY):
            raise StoppedError(f"{path}: {error}") from error
        if code.startswith(_NOT_OPEN):
            raise UsageError(f"{path} must be a file that may be written, in a folder: {error}") from error
        raise DoesNotHoldError(f"{path}: changed: {what}: {error}") from error


@define(eq=False)
class LogFile:
    """The file, open. One that is to be made is in memory until something is to be written: reading leaves no file.

    Attributes:
        path, form: of the file.
        fill: writes what a new one begins with.
        make: False to refuse a path where there is nothing.
        made: whether there was a file when it was last used.

    Raises:
        UsageError: its folder does not exist. Otherwise as :func:`connected`.
    """

    path: Path
    form: Form
    fill: Callable[[sqlite3.Connection], None]
    make: bool
    made: bool = field(init=False)
    _connection: sqlite3.Connection = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.made = not self.make or self.path.exists()
        if self.made:
            self._connection = connected(self.path, self.form)
            return
        _check_folder(self.path, self.form)
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        _begin(self._connection, self.form, self.fill)

    def connection(self, *, make: bool = False) -> sqlite3.Connection:
        """Return the connection to the file; before there is one, to what it would begin with.

        Args:
            make: make the file. Where another process has made it meanwhile, that one stays.
        """
        if not self.made and (make or self.path.exists()):
            if not self.path.exists():
                create_file(self.path, self.form, self.fill)
            empty, self._connection, self.made = self._connection, connected(self.path, self.form), True
            empty.close()
        return self._connection

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _check_folder(path: Path, form: Form) -> None:
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} of the {form.name} must exist")


def _begin(connection: sqlite3.Connection, form: Form, fill: Callable[[sqlite3.Connection], None]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in form.schema:
        connection.execute(statement)
    fill(connection)
    connection.execute("COMMIT")


def create_file(path: Path, form: Form, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Make the file, its owner's alone; where another process makes it meanwhile, that one stays."""
    _check_folder(path, form)
    with claimed(path) as work:
        new = work / "new"
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with translate_errors(path, "made anew"), closing(sqlite3.connect(new, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute(f"PRAGMA application_id = {form.mark}")
            connection.execute("PRAGMA journal_mode = WAL")
            _begin(connection, form, fill)
        flush(new)
        with suppress(FileExistsError):
            os.link(new, path)
        flush(path.parent)


def connected(path: Path, form: Form) -> sqlite3.Connection:
    """Open a file that is there.

    Raises:
        InputError: there is none, or it is something else.
        DoesNotHoldError: it is one, and not as it was written.
        UsageError: it may not be opened.
    """
    _check_head(path, form)
    with translate_errors(path, "its first page"):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=LOCK_TIMEOUT_SECONDS
        )
        try:
            connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            _check_tables(connection, path, form)
        except BaseException:
            connection.close()
            raise
    return connection


def _check_tables(connection: sqlite3.Connection, path: Path, form: Form) -> None:
    found = {text for (text,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL")}
    if found != set(form.schema):
        raise DoesNotHoldError(f"{path}: changed: its tables are not those of a {form.name}")


def _check_head(path: Path, form: Form) -> None:
    """Distinguish a file whose head was changed from another kind of file: two marks of three decide."""
    try:
        with open_regular(path, largest=1 << 50) as (stream, _):
            head = stream.read(PAGE_BYTES)
    except Unreadable as error:
        raise InputError([Fault(str(path), "", error.found, f"a {form.name}")]) from None
    signs = (
        head[:16] == _MAGIC,
        head[68:72] == form.mark.to_bytes(4, "big"),
        all(statement.encode() in head for statement in form.schema),
    )
    if sum(signs) < 2:
        raise InputError([Fault(str(path), "", "a file that is not one", f"a {form.name}")])
    if not all(signs):
        raise DoesNotHoldError(f"{path}: changed: the first page is not that of a {form.name}")


@contextmanager
def writing(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Hold a transaction with no other writer, durable when the block ends well."""
    with translate_errors(path, "the database's own check"):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
