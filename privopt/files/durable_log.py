"""An append-only log of strings in a file. Strings added in a block are on disk when the block ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from privopt.files.log_file import Form, LogFile, translated_errors

__all__ = ["DurableLog"]

SCHEMA: Final = ("CREATE TABLE entries (number INTEGER PRIMARY KEY, text TEXT NOT NULL)",)
"""The SQL statements that create a log's tables."""


class DurableLog(LogFile):
    """An append-only file of strings, readable only by its owner.

    Strings are added in an :meth:`adding` block. When the block ends, its strings are either all on disk or all
    discarded. Only one process at a time can be inside such a block. To ensure that a string is generated only once,
    look it up and add it in the same block::

        with DurableLog(Path("sent"), name="file of messages sent", mark=0x666C6D31) as log, log.adding():
            sent = {round_of(text): text for text in log.texts()}
            if round not in sent:
                log.add(drawn(round))

    Args:
        path: The file. If it does not exist, it is created by the first :meth:`adding` block.
        name: The name used for this kind of file in messages.
        mark: The SQLite application id identifying this kind of file.

    Raises:
        InputError: The file is of a different kind.
        DoesNotHoldError: The file is corrupted or was tampered with.
        UsageError: The folder is missing, or the file cannot be opened.
        StoppedError: An I/O error occurred, or another process was writing for more than a minute.
    """

    def __init__(self, path: Path, *, name: str, mark: int) -> None:
        super().__init__(path, Form(name=name, mark=mark, schema=SCHEMA))

    def texts(self) -> list[str]:
        """Return all strings, oldest first."""
        with translated_errors(self.path):
            rows = self.connection(make=False).execute("SELECT text FROM entries ORDER BY number")
            return [text for (text,) in rows]

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Lock the log so that strings can be added to it in a block.

        The strings are flushed to disk when the block exits normally, and discarded if it raises an error.
        """
        with self.writing():
            yield

    def add(self, text: str) -> None:
        """Add a string. Call this only within an :meth:`adding` block."""
        with translated_errors(self.path):
            self.connection(make=True).execute("INSERT INTO entries (text) VALUES (?)", (text,))
