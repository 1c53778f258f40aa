"""Subjects from a column of a table."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import polars as pl

from privopt.declare.column_texts import TABLE, texts_of
from privopt.errors import Fault, InputError
from privopt.ledger.batches import encoded
from privopt.ledger.entries import MAX_TEXT_CHARACTERS
from privopt.ledger.subject_names import fault_of, folded


def subjects_of(column: nw.Series[Any]) -> pl.Series:
    """Return a column of names as text, each in its one form (:func:`folded`); null without a name."""
    texts = texts_of(column)
    forms = {text: folded(text) or None for text in texts.drop_nulls().unique(maintain_order=True).to_list()}
    wrong = {text: fault for text, name in forms.items() if name and (fault := fault_of(name))}
    if wrong:
        found = f"{next(iter(wrong.values()))} ({texts.is_in(list(wrong)).sum():,} such rows)"
        wanted = f"names of at most {MAX_TEXT_CHARACTERS:,} characters that can be seen"
        raise InputError([Fault(TABLE, f"column {texts.name}", found, wanted)])
    return texts.replace_strict(forms, default=None, return_dtype=pl.String).alias(texts.name)


def row_names(frame: nw.DataFrame[Any], columns: tuple[str, str]) -> list[bytes]:
    """Name each row of a table by its subject and its id among the subject's rows.

    Args:
        frame: the table.
        columns: of subjects and of ids.

    Raises:
        InputError: a row with a subject has no id.
    """
    subjects, ids = subjects_of(frame[columns[0]]), texts_of(frame[columns[1]])
    if (ids.is_null() & subjects.is_not_null()).any():
        raise InputError([Fault(TABLE, f"column {columns[1]}", "nothing", "an id of each row")])
    whose = zip(subjects.fill_null("").to_list(), ids.fill_null("").to_list(), strict=True)
    return [encoded((subject.encode("utf-8"), own.encode("utf-8"))) for subject, own in whose]
