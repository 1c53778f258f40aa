"""A problem as a notebook shows it: its keys and their values; of secret files the name alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from attrs import AttrsInstance

from privopt.declare.notebook import card
from privopt.declare.schema import KEY, File, Folder, Key

__all__ = ["problem_html"]


def problem_html(problem: AttrsInstance, facts: Mapping[str, Any] | None = None) -> str:
    """Return the keys that a problem gives, one row each, below ``facts`` such as its sizes.

    A problem class uses it as::

        def _repr_html_(self) -> str:
            return problem_html(self, {"records": len(self.data.records)})
    """
    return card(f"Problem: {type(problem).__name__}", {**(facts or {}), **dict(_rows(problem, ""))})


def _rows(table: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for attribute in attrs.fields(type(table)):
        declared: Key | None = attribute.metadata.get(KEY)
        if declared is None:
            continue
        value = getattr(table, attribute.name)
        name = f"{prefix}{declared.name or attribute.name}"
        if value is None:
            continue
        if isinstance(value, File):
            yield name, f"{value.name} (secret)" if value.secret else value.name
        elif isinstance(value, Folder):
            yield name, value.name
        elif isinstance(value, Mapping) and any(attrs.has(type(inner)) for inner in value.values()):
            for own, inner in value.items():
                yield from _rows(inner, f"{name}.{own}.")
        elif attrs.has(type(value)):
            if declared.kinds:
                yield f"{name}.kind", value.kind
            yield from _rows(value, f"{name}.")
        else:
            yield f"{name} ({declared.unit})" if declared.unit else name, value
