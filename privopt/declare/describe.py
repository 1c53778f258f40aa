"""The rows that ``privopt describe`` prints, one for each key of a problem class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs
from attrs import NOTHING, frozen

from privopt.declare.schema import KEY, File, Folder, Key, show
from privopt.declare.toml import list_kind_classes
from privopt.errors import UsageError
from privopt.registry import registry


@frozen(kw_only=True)
class KeyRow:
    """A line printed by ``privopt describe``, which describes one key of a problem file.

    Attributes:
        key: The key, preceded by the names of the tables that contain it, such as ``privacy.epsilon``.
        type: The type of its value, such as ``number``.
        unit: The unit of its value, or an empty string if the value has no unit.
        default: The key's default, "required" for a required key, or "left out" for an optional key without a simple
            default.
        help: A one-line explanation of the key.
    """

    key: str
    type: str
    unit: str
    default: str
    help: str


def _type_name(type_: Any) -> str:
    """Return the name that ``privopt describe`` shows for a field's type, such as ``list of number`` or ``file``."""
    if get_origin(type_) in (Union, UnionType):
        return " | ".join(_type_name(member) for member in get_args(type_) if member is not NoneType)
    if get_origin(type_) is Literal:
        return " | ".join(map(str, get_args(type_)))
    if get_origin(type_) is tuple:
        return f"list of {_type_name(get_args(type_)[0])}"
    names = {float: "number", Fraction: "number", int: "whole number", bool: "true | false", str: "text"}
    return (names | {File: "file", Folder: "folder"}).get(type_, "table")


def _is_composite(default: Any) -> bool:
    """Return whether a default cannot be shown as a single value, because it is a table or is created by a factory."""
    return isinstance(default, attrs.Factory) or attrs.has(type(default))  # type: ignore[arg-type]


def _tables_in(type_: Any) -> list[type]:
    """Return the tables (attrs classes) in a union type, or the type itself if it is a table."""
    members = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
    return [member for member in members if attrs.has(member) and member not in (File, Folder)]


Takes = Callable[[str, str], bool]
"""A mechanism's ``takes(role, name)`` method (:class:`privopt.interfaces.abilities.TakesKinds`)."""


def describe_keys(cls: type, prefix: str = "", *, takes: Takes = lambda role, name: True) -> list[KeyRow]:
    """Return one row for each key in a problem class, in order. The keys of a table follow the table itself.

    Args:
        cls: The problem class to describe.
        prefix: The prefix to put before every key.
        takes: A function that returns whether the mechanism accepts a kind, given the role and the kind's name. (A kind
            is a registered way to fill a role.) Kinds that the mechanism does not accept are omitted, together with
            their keys.

    Raises:
        UsageError: The class is not an attrs class.
    """
    if not attrs.has(cls):
        raise UsageError(f"{cls.__name__} is not an attrs class, so it cannot be a problem class")
    # In modules that postpone the evaluation of annotations, annotations are strings, which are resolved here.
    hints = get_type_hints(cls)
    rows: list[KeyRow] = []
    for attribute in attrs.fields(cls):
        declared: Key | None = attribute.metadata.get(KEY)
        if declared is None:
            continue
        type_ = hints[attribute.name]
        name = f"{prefix}{declared.name or attribute.name}"
        is_required = attribute.default is NOTHING
        if is_required:
            default = "required"
        elif attribute.default in (None, ()) or _is_composite(attribute.default):
            default = "left out"
        else:
            default = show(attribute.default).strip("'")
        secret = " (secret)" if declared.secret else ""
        rows.append(
            KeyRow(key=name, type=_type_name(type_), unit=declared.unit, default=default, help=declared.help + secret)
        )
        if declared.kinds:
            rows.extend(_kind_rows(declared, f"{name}.", takes))
        else:
            # The user chooses the names of tables in a mapping, for which "NAME" stands.
            is_mapping = get_origin(type_) is Mapping
            for table in _tables_in(get_args(type_)[1] if is_mapping else type_):
                rows.extend(describe_keys(table, f"{name}.NAME." if is_mapping else f"{name}.", takes=takes))
    return rows


def _kind_rows(declared: Key, prefix: str, takes: Takes) -> list[KeyRow]:
    """Return the rows for a table whose other keys depend on its ``kind`` key.

    The row for ``kind`` comes first, followed by the keys of all kinds. If only some kinds have a key, the key's help
    lists those kinds.

    Args:
        declared: The declaration of the table.
        prefix: The prefix of the table's keys, such as ``distance.``.
        takes: A function that returns whether the mechanism accepts a kind, given the role and the kind's name.
    """
    kinds = {
        name: kind for name, kind in list_kind_classes(declared).items() if kind is None or takes(declared.kinds, name)
    }
    summaries = "; ".join(
        f"{name}: {registry().kind(declared.kinds, name).spec.summary if cls else 'cannot be loaded'}"
        for name, cls in kinds.items()
    )
    default = "required" if declared.kind is None else declared.kind
    rows = [KeyRow(key=f"{prefix}kind", type=" | ".join(kinds), unit="", default=default, help=summaries)]
    classes = {name: cls for name, cls in kinds.items() if cls is not None}
    # For each row, the names of the kinds that have it.
    owners: dict[KeyRow, list[str]] = {}
    for name, cls in classes.items():
        for row in describe_keys(cls, prefix, takes=takes):
            # Equal rows of several kinds are shown once.
            owners.setdefault(row, []).append(name)
    for row, names in owners.items():
        only = "" if len(names) == len(classes) else f"kind {' or '.join(names)}: "
        rows.append(attrs.evolve(row, help=only + row.help))
    return rows
