"""The SQLite file underlying a ledger, stored reports or a log. All transactions are durable and atomic.

SQLite's errors are divided into three kinds: the file was changed, it cannot be opened or written, or the work was
stopped by an I/O error or another process's lock.
"""

from __future__ import annotations

import glob
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from attrs import define, field, frozen

from privopt.errors import DoesNotHoldError, Fault, InputError, StoppedError, UsageError, cut
from privopt.files.new_folder import OURS, check_location, check_name, claim_folder
from privopt.files.regular import Unreadable, flush, open_regular

LOCK_TIMEOUT_SECONDS: Final = 60.0
"""The number of seconds to wait for another process to finish writing."""

PAGE_BYTES: Final = 4096
"""The size of a database page in bytes. The first page contains the marks identifying the kind of file."""
_PRAGMAS: Final = (
    "synchronous = FULL",
    "fullfsync = ON",  # macOS needs this to flush the disk's cache, and other systems ignore it
    "secure_delete = ON",  # removed reports must not remain in free pages
    "cache_size = -65536",  # KiB; a night's charges are spread over the whole index, which SQLite's 2 MiB do not hold
    "trusted_schema = OFF",
    "cell_size_check = ON",
)
_MAGIC: Final = b"SQLite format 3\0"
"""The first bytes of every SQLite file."""
# Prefixes of the names of SQLite errors: those caused by the disk or another process, and those that mean that the file
# may not be opened or written.
_IN_THE_WAY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM", "SQLITE_INTERRUPT")
_NOT_OPEN: Final = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")


@frozen(kw_only=True)
class Form:
    """A kind of log file, such as a ledger.

    Attributes:
        name: The name used for this kind of file in messages.
        mark: The SQLite application id identifying this kind of file.
        schema: The SQL statements that create the tables.
    """

    name: str
    mark: int
    schema: tuple[str, ...]


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Convert SQLite's errors in the block to privopt's own, whose messages name the file ``path``.

    Raises:
        DoesNotHoldError: The file is corrupted or was tampered with.
        UsageError: The file cannot be opened or written.
        StoppedError: Another process holds the lock, or an I/O error occurred.
    """
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError):  # an error in the caller's code, such as a wrong thread
        raise
    except UnicodeDecodeError as error:  # bytes that are not text, which SQLite's message would quote
        raise DoesNotHoldError(f"{path}: changed: bytes that are not text") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "") or ""
        if code.startswith(_IN_THE_WAY):
            raise StoppedError(f"{path}: {error}") from error
        if code.startswith(_NOT_OPEN):
            raise UsageError(f"{path} must be a file that may be written, in a folder: {error}") from error
        raise DoesNotHoldError(f"{path}: changed: the database's own check: {error}") from error


def path_of(value: Path | str, what: str) -> Path:
    """Convert a file name to a path.

    Args:
        value: The name, as a string or a path.
        what: The name of the argument, for the message.

    Raises:
        UsageError: The value is neither a string nor a path.
    """
    try:
        return Path(value)
    except TypeError:
        raise UsageError(f"{what} must be the name of a file, as text or a path, got {cut(repr(value))}") from None


def _log_path(value: Path | str) -> Path:
    """Convert the name of a log file to a path, or raise a UsageError."""
    return path_of(value, "path")


@define(eq=False)
class LogFile:
    """An open log file. A new log is kept in memory until something is written, so that reading creates no file.

    Attributes:
        path: The path of the file.
        form: The kind of file.
        make: Whether the file may be missing. If False, a missing file is an error.
        _is_there: Whether the connection is to the file rather than to tables in memory.
        _connection: The SQLite connection.
        _identity: The device and inode of the open file, used to detect that the file has been replaced.

    Raises:
        InputError: The file is missing or of a different kind.
        DoesNotHoldError: The file is corrupted or was tampered with.
        UsageError: The file cannot be opened, or its folder does not exist.
    """

    path: Path = field(converter=_log_path)
    form: Form
    make: bool = field(default=True, kw_only=True)
    _is_there: bool = field(init=False)
    _connection: sqlite3.Connection = field(init=False, repr=False)
    _identity: tuple[int, int] = field(init=False, default=(0, 0), repr=False)

    def __attrs_post_init__(self) -> None:
        """Open the file, or create its tables in memory if there is no file."""
        check_name(self.path, str(self.path))
        self._is_there = not self.make or self.path.exists()
        if self._is_there:
            self._connection = self._open_file()
            return
        self._check_folder()
        # Create the same tables in memory, so that queries also work on a log that has no file yet.
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        _make_tables(self._connection, self.form, self.begin)

    def _open_file(self) -> sqlite3.Connection:
        """Open the file at the path, and remember its identity."""
        while True:
            status = _status_of(self.path)
            if status is not None:
                self._identity = status.st_dev, status.st_ino
                _check_names(self.path, status)
            connection = _open_connection(self.path, self.form)
            # The file may have been replaced after its status was read and before it was opened.
            if self._is_current():
                return connection
            connection.close()

    def begin(self, connection: sqlite3.Connection) -> None:
        """Write the initial contents of a new file. By default, nothing is written."""

    def reading(self, *, make: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """Open a transaction that sees a consistent state of the file, even if other processes write in the meantime.

        Args:
            make: Whether to create the file if it is missing.
        """
        return self._run_transaction("BEGIN", "ROLLBACK", make=make)

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """Open a transaction that excludes other writers.

        It is committed and flushed to disk when the block ends without an error.
        """
        return self._run_transaction("BEGIN IMMEDIATE", "COMMIT", make=True)

    @contextmanager
    def _run_transaction(self, begin: str, end: str, *, make: bool) -> Iterator[sqlite3.Connection]:
        """Run a block between two SQL statements. If the block raises an error, the transaction is rolled back.

        Args:
            begin, end: The SQL statements before and after the block.
            make: Whether to create the file if it is missing.
        """
        with translated_errors(self.path):
            connection = self._begin_transaction(begin, make=make)
            try:
                yield connection
                connection.execute(end)
            finally:  # also if COMMIT fails, for example on a full disk
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _begin_transaction(self, begin: str, *, make: bool) -> sqlite3.Connection:
        """Begin a transaction in the file that is currently at the path, and return its connection.

        Another process may replace the file (:mod:`privopt.ledger.rotation`), even while this process is waiting for
        the lock.

        Args:
            begin: The SQL statement that begins the transaction.
            make: Whether to create the file if it is missing.
        """
        while True:
            connection = self.connection(make=make)
            connection.execute(begin)
            if not self._is_there or self._is_current():
                return connection
            connection.execute("ROLLBACK")

    def _is_current(self) -> bool:
        """Return whether the open file is still the one at the path. This is True if there is nothing at the path."""
        try:
            status = self.path.stat()
        except OSError:
            return True
        return (status.st_dev, status.st_ino) == self._identity

    def close(self) -> None:
        """Close the file."""
        with translated_errors(self.path):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def connection(self, *, make: bool) -> sqlite3.Connection:
        """Return the connection to the file, or, if it does not exist, to its initial contents in memory.

        Args:
            make: Whether to create the file if it is missing.
        """
        if self._is_there and not self._is_current():
            replaced, self._connection = self._connection, self._open_file()
            replaced.close()
        # Another process may have created the file since this object was created.
        if not self._is_there and (make or self.path.exists()):
            if not self.path.exists():
                self._create_file()
            empty, self._connection, self._is_there = self._connection, self._open_file(), True
            empty.close()
        return self._connection

    def _create_file(self) -> None:
        """Create the file, readable only by its owner. If another process has already created it, keep that file."""
        self._check_folder()
        with claim_folder(self.path) as work:
            unnamed_file = work / "new"
            write_database(unnamed_file, self.form, self.begin)
            # A hard link gives the finished file its name in one step, and fails if the name exists.
            with suppress(FileExistsError):
                os.link(unnamed_file, self.path)
            flush(self.path.parent)

    def _check_folder(self) -> None:
        """Reject a new log file whose folder does not exist or is a release folder.

        A missing folder is not created, because its name is probably misspelt.
        """
        check_location(self.path, str(self.path))
        if not self.path.parent.is_dir():
            raise UsageError(f"{self.path}: the folder {self.path.parent} of the {self.form.name} must exist")


def write_database(path: Path, form: Form, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Create a log file that only its owner can read, and flush it to disk.

    Args:
        path: The temporary path to write to, at which nothing may exist yet. The caller renames or links the file.
        form: The kind of log file.
        fill: A function that writes the initial contents, in the transaction that creates the tables.

    Raises:
        sqlite3.Error, OSError: The disk is full or an I/O error occurred.
        StoppedError: The file is incomplete, although SQLite reported no error.
    """
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute(f"PRAGMA application_id = {form.mark}")
        _make_tables(connection, form, fill)
        # Turn the write-ahead log on only after the tables are in the file. If the log contained them, SQLite would
        # move them to the file on closing, and would then not report a full disk.
        connection.execute("PRAGMA journal_mode = WAL")
    _check_complete(path, form)
    flush(path)


def _make_tables(connection: sqlite3.Connection, form: Form, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Create the tables and initial contents of a new file in a single transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in form.schema:
        connection.execute(statement)
    fill(connection)
    connection.execute("COMMIT")


def _check_complete(path: Path, form: Form) -> None:
    """Check that a new file has all its pages and tables, and no longer needs a write-ahead log or journal.

    Raises:
        StoppedError: The file is incomplete.
    """
    logs = [Path(f"{path}{suffix}") for suffix in ("-wal", "-journal")]
    is_complete = not any(log.exists() and log.stat().st_size for log in logs)
    # With immutable=1, SQLite reads the file without the log and its index, which it would otherwise create.
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
            _check_tables(connection, path, form)
            is_complete = is_complete and connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    except (sqlite3.Error, DoesNotHoldError):
        is_complete = False
    if not is_complete:
        raise StoppedError(f"{path}: the {form.name} could not be written completely, perhaps because the disk is full")


@contextmanager
def open_archive(path: Path, form: Form) -> Iterator[sqlite3.Connection]:
    """Open a log file that will not be written to again, and yield a read-only connection inside a transaction.

    Args:
        path: The path of the file.
        form: The expected kind of log file.

    Raises:
        InputError: The file is of a different kind.
        DoesNotHoldError: The file is corrupted or was tampered with.
    """
    _check_head(path, form)
    with (
        translated_errors(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as connection,
    ):
        # Bytes that are not UTF-8 must not raise an error before the entries' hashes are checked.
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        _check_tables(connection, path, form)
        connection.execute("BEGIN")
        yield connection


def _open_connection(path: Path, form: Form) -> sqlite3.Connection:
    """Open an existing database file after checking that its kind and tables match ``form``."""
    _check_head(path, form)
    with translated_errors(path):
        # With isolation_level=None, sqlite3 does not begin transactions by itself.
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=LOCK_TIMEOUT_SECONDS
        )
        try:
            # Keep bytes that are not UTF-8 (surrogateescape), so that changed bytes are found by the check of hashes
            # rather than by decoding.
            connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            _check_tables(connection, path, form)
        except BaseException:
            connection.close()
            raise
    return connection


def _status_of(path: Path) -> os.stat_result | None:
    """Return a file's status, or None if the file does not exist. A broken link counts as missing."""
    with suppress(OSError):
        return path.stat()
    return None


NAME_LOOKS: Final = 3
"""The number of times that a file's names are counted before the file is rejected.

The count is repeated because names can vanish between counts.
"""


def _check_names(path: Path, status: os.stat_result) -> None:
    """Reject a file that has several names (hard links).

    SQLite names the write-ahead log after the file. Programs that open the file under different names do not see each
    other's logs, so they could spend the same budget twice and corrupt the file.

    Args:
        path: The path of the file.
        status: The file's status.

    Raises:
        UsageError: The file has a name that was not given to it by privopt.
    """
    for _ in range(NAME_LOOKS):
        # A folder has several links too. It is rejected later, because it is not a log.
        if status.st_nlink == 1 or not stat.S_ISREG(status.st_mode):
            return
        # Killed runs may leave additional names: "until" names by a rotation, and "new" in the hidden folder by a
        # creation.
        name = glob.escape(path.name)
        leftovers = [*path.parent.glob(f"{name}.until-*"), *path.parent.glob(f".{name}.*{OURS}.writing/new")]
        leftover_count = sum(
            os.path.samestat(leftover_status, status)
            for leftover_status in map(_status_of, leftovers)
            if leftover_status
        )
        if status.st_nlink <= 1 + leftover_count:
            return
        # Another program that creates the file may have just removed such a name.
        latest_status = _status_of(path)
        if latest_status is None:
            return
        status = latest_status
    raise UsageError(
        f"{path} must be the only name of its file, got one of {status.st_nlink} (hard links): programs that use "
        "different names do not see each other's charges; keep one name, and make symbolic links of the others"
    )


def _check_tables(connection: sqlite3.Connection, path: Path, form: Form) -> None:
    """Check that a file has exactly the tables of its kind.

    Raises:
        DoesNotHoldError: Tables are missing, changed or added.
    """
    statements = {text for (text,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL")}
    if statements != set(form.schema):
        raise DoesNotHoldError(f"{path}: changed: its tables are not those of a {form.name}")


def _check_head(path: Path, form: Form) -> None:
    """Check a file's first page for the three marks of a log file of the given kind.

    The marks are SQLite's signature, the application id, and the statements that create the tables.

    A file with exactly two of the marks is assumed to be a file of this kind that has been tampered with. A file with
    fewer marks is assumed to be of a different kind.

    Raises:
        InputError: The file cannot be read, or is of a different kind.
        DoesNotHoldError: The file is corrupted or was tampered with.
    """
    try:
        # Effectively without a size limit, because only the first page of the file is read.
        with open_regular(path, largest=1 << 50) as (stream, _):
            head = stream.read(PAGE_BYTES)
    except Unreadable as error:
        raise InputError([Fault(str(path), "", error.actual, f"a {form.name}")]) from None
    signs = (
        head[:16] == _MAGIC,
        head[68:72] == form.mark.to_bytes(4, "big"),  # where SQLite's header contains the application id
        all(statement.encode() in head for statement in form.schema),
    )
    if sum(signs) < 2:
        raise InputError([Fault(str(path), "", "a file that is not one", f"a {form.name}")])
    if not all(signs):
        raise DoesNotHoldError(f"{path}: changed: the first page is not that of a {form.name}")
