"""Subjects from a column of a table."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import polars as pl

from privopt.declare.column_texts import TABLE, texts_of
from privopt.errors import Fault, InputError
from privopt.ledger.entries import LONGEST
from privopt.ledger.subject_names import fault_of, folded


def subjects_of(column: nw.Series[Any]) -> pl.Series:
    """Return a column of names as text, each in its one form (:func:`folded`); null where there is no name."""
    texts = texts_of(column)
    forms = {text: folded(text) or None for text in texts.drop_nulls().unique(maintain_order=True).to_list()}
    wrong = {text: fault for text, name in forms.items() if name and (fault := fault_of(name))}
    if wrong:
        found = f"{next(iter(wrong.values()))} ({texts.is_in(list(wrong)).sum():,} such rows)"
        wanted = f"names of at most {LONGEST:,} characters that can be seen"
        raise InputError([Fault(TABLE, f"column {texts.name}", found, wanted)])
    return texts.replace_strict(forms, default=None, return_dtype=pl.String).alias(texts.name)
