"""An append-only log of texts in one file, each durable before its writer continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from privopt.files.log_file import Form, LogFile, translated_errors

__all__ = ["DurableLog"]

SCHEMA: Final = ("CREATE TABLE entries (number INTEGER PRIMARY KEY, text TEXT NOT NULL)",)


class DurableLog(LogFile):
    """A file of texts to which texts are only added, readable by its owner alone.

    What is added is on the disk when the block of :meth:`adding` ends, or not at all; processes wait for one another.
    What to send once, and to repeat ever after, is looked up and added in one such block::

        with DurableLog(Path("sent"), name="file of messages sent", mark=0x666C6D31) as log, log.adding():
            sent = {round_of(text): text for text in log.texts()}
            if round not in sent:
                log.add(drawn(round))

    Args:
        path: of the file; made by the first block of :meth:`adding` if there is none.
        name: what it is, in messages.
        mark: SQLite's application id, which distinguishes such a file from others.

    Raises:
        InputError: there is another file of that name.
        DoesNotHoldError: it was changed.
        UsageError: its folder is missing, or it may not be opened.
        StoppedError: the disk, or another process for more than a minute, is in the way.
    """

    def __init__(self, path: Path, *, name: str, mark: int) -> None:
        super().__init__(path, Form(name=name, mark=mark, schema=SCHEMA))

    def texts(self) -> list[str]:
        """Return all texts, oldest first."""
        with translated_errors(self.path):
            rows = self.connection(make=False).execute("SELECT text FROM entries ORDER BY number")
            return [text for (text,) in rows]

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Lock the log for additions. They are durable when the block ends, or dropped if it raises."""
        with self.writing():
            yield

    def add(self, text: str) -> None:
        """Add a text within a block of :meth:`adding`."""
        with translated_errors(self.path):
            self.connection(make=True).execute("INSERT INTO entries (text) VALUES (?)", (text,))
