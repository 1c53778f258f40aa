"""Handle the columns that remain in a protected table: hash them on request, and warn about unhashed personal ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
from attrs import field, frozen

from privopt.declare.column_texts import texts_of
from privopt.declare.name_forms import fold_subject_name
from privopt.errors import UsageError, cut
from privopt.ledger.subject_names import derive_column_key, hash_name, key_at
from privopt_tables.column_names import select_person_names, select_place_names, select_position_names
from privopt_tables.options import ApplyOptions

__all__ = ["ColumnHashes", "check_column_options", "describe_clear_ids", "describe_hashes", "read_column_key"]


@frozen(kw_only=True)
class ColumnHashes:
    """The columns to hash, and the key to use.

    Hashing without a key would hide nothing, because anyone with a list of ids could hash them all and compare.

    Attributes:
        columns: The names of the columns to hash.
        key: The 32-byte key.
    """

    columns: tuple[str, ...]
    key: bytes = field(repr=False)

    def replace(self, frame: nw.DataFrame[Any]) -> nw.DataFrame[Any]:
        """Return a copy of ``frame`` with the cells of the columns to hash replaced by their hashes.

        Cells that are missing or have no visible characters become missing values. Columns missing from ``frame`` are
        skipped.
        """
        backend = frame.implementation
        # A column is missing if it has already been dropped because it contains the secret.
        for name in (name for name in self.columns if name in frame.columns):
            ids = texts_of(frame[name]).to_list()
            # Ids are repeated within a table, so each distinct id is hashed only once.
            hashes = {
                text: hash_name(self.key, text) if fold_subject_name(text) else None
                for text in dict.fromkeys(ids)
                if text is not None
            }
            texts = [None if text is None else hashes[text] for text in ids]
            column = (
                nw.from_native(pl.Series(name, texts, dtype=pl.String), series_only=True)
                if backend.is_polars()
                else nw.new_series(name, texts, nw.String, backend=backend)
            )
            frame = frame.with_columns(column)
        return frame


def read_column_key(path: Path) -> bytes:
    """Derive the key for hashing columns from the key in a file.

    If the file does not exist, it is created with a new key.

    Raises:
        InputError: The file does not contain a key.
        UsageError: Other users have access to the file, or its folder is missing.
        StoppedError: The file cannot be written.
    """
    return derive_column_key(key_at(path, make=True))


def check_column_options(
    options: ApplyOptions, names: Sequence[str], secret_columns: Sequence[str], dashes: str = ""
) -> None:
    """Check the options that drop, hash or keep columns.

    Args:
        options: How the release is applied.
        names: The names of the table's columns.
        secret_columns: The columns that hold the secret, which are replaced by reports.
        dashes: The prefix of option names in messages, such as ``--``.

    Raises:
        UsageError: A column to drop or hash is missing, a column to hash holds the secret, options contradict one
            another, or columns are to be hashed but no key is given.
    """
    for option, columns in (("drop", options.drop), ("hash", options.hashed)):
        for name in columns:
            # A misspelt name must be rejected, because the intended column would stay as it is.
            if name not in names:
                raise UsageError(f"{dashes}{option} must name columns of the table, got {cut(name)}")
    for name in options.hashed:
        if name in secret_columns:
            raise UsageError(f"{dashes}hash must name columns that stay, got the secret's {cut(name)}")
    for first, second, shared_names in (
        ("drop", "hash", {*options.drop} & {*options.hashed}),
        ("drop", "keep", {*options.drop} & {*options.keep}),
        ("hash", "keep", {*options.hashed} & {*options.keep}),
    ):
        if shared_names:
            raise UsageError(
                f"{dashes}{first} and {dashes}{second} must name different columns, got {cut(min(shared_names))}"
            )
    key_option = "--hash-key" if dashes else "hash_key"
    if options.hash_key is not None and not options.hashed:
        raise UsageError(f"{key_option} must be given with {dashes}hash COLUMN: it is the key of its hashes")
    if options.hashed and options.hash_key is None and (options.charge is None or not options.charge.has_key):
        ledger = "--hash-subjects KEYFILE" if dashes else "an open Ledger with a key"
        raise UsageError(
            f"{dashes}hash must be used with {key_option} KEYFILE, or with a ledger that hashes its subjects "
            f"({ledger}): anyone who can list the ids can recover them from hashes without a key"
        )


def describe_hashes(columns: Sequence[str], dashes: str = "") -> tuple[str, ...]:
    """Return notes on what hashed columns still reveal, or an empty tuple if no columns are hashed.

    Args:
        columns: The names of the hashed columns in the protected table.
        dashes: The prefix of option names in messages, such as ``--``.
    """
    if not columns:
        return ()
    listed = ", ".join(map(cut, columns))
    notes = [
        f"column {listed}: hashed under a key, so that only whoever has the key can name an id; rows of one id still "
        "have one hash, here and in other tables under this key, and their times and other columns may tell whose "
        "they are"
    ]
    # Equal hashes show how often each place was visited, which may be enough to recognise a place without the key.
    if place_names := [*select_position_names(columns), *select_place_names(columns)]:
        listed = ", ".join(map(cut, place_names))
        notes.append(
            f"column {listed}: named like places, and equal hashes show which rows were at the same place, which is "
            f"not protected: {dashes}drop leaves it out"
        )
    return tuple(notes)


def describe_clear_ids(names: Sequence[str], options: ApplyOptions, dashes: str = "") -> tuple[str, ...]:
    """Return a note on unhashed columns that appear to identify people, or an empty tuple if there are none.

    Args:
        names: The names of the columns in the protected table.
        options: How the release is applied. Its subject column is treated as identifying people, whatever its name.
        dashes: The prefix of option names in messages, such as ``--``.
    """
    is_subject = {name for name in names if name == options.subject_column}
    clear_names = [name for name in names if name in {*select_person_names(names), *is_subject} - {*options.hashed}]
    if not clear_names:
        return ()
    listed = ", ".join(map(cut, clear_names[:10])) + (", ..." if len(clear_names) > 10 else "")
    description, pronoun = (
        (f"columns {listed} look like ids of people and stay in clear", "them")
        if len(clear_names) > 1
        else (f"column {listed} looks like a person's id and stays in clear", "it")
    )
    return (
        f"{description}, which links all rows of a person: {dashes}drop leaves {pronoun} out, {dashes}hash replaces "
        f"{pronoun} by keyed hashes",
    )
