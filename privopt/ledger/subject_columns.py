"""Names of rows from columns of a table."""

from __future__ import annotations

from typing import Any

import narwhals as nw

from privopt.declare.column_texts import TABLE, subjects_of, texts_of
from privopt.errors import Fault, InputError
from privopt.ledger.batches import encoded


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
