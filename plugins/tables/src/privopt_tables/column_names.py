"""Find copies of the secret, and columns whose names or field names suggest that they reveal where someone was.

Names are compared with the word lists in column_words.toml, next to this module. That file also explains each list.
:mod:`.find_positions` finds columns whose values contain the secret in another form.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

import narwhals as nw
from attrs import define, field

__all__ = ["LeakyColumns", "is_of_report", "select_person_names", "select_place_names", "select_position_names"]


def _strip_accents(text: str) -> str:
    """Remove accents from a string, and replace the German sharp s with ``ss``."""
    decomposed = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    return "".join(sign for sign in decomposed if not unicodedata.combining(sign))


def _read_word_table() -> dict[str, Any]:
    """Read the word lists in column_words.toml and strip the accents from their words.

    Returns:
        A dict keyed by list name. If the name ends in ``_pairs``, the value is a tuple of two-word sets. Otherwise, it
        is a set of lower-case words.
    """
    table = tomllib.loads(files("privopt_tables").joinpath("column_words.toml").read_text("utf-8"))
    return {
        key: tuple(frozenset(map(_strip_accents, pair)) for pair in entries)
        if key.endswith("_pairs")
        else frozenset(_strip_accents(word).lower() for word in entries)
        for key, entries in table.items()
    }


_WORDS: Final = _read_word_table()
_FIRST_UNSPACED: Final = "\u1100"
"""The first character of the Unicode block Hangul Jamo. Listed words that begin with this character or a later one are
in Hangul, whose syllables NFKD splits into Jamo, or in a script without spaces between words."""
_UNSPACED_WORDS: Final = frozenset(
    word for key in ("degrees", "whole", "places") for word in _WORDS[key] if word[0] >= _FIRST_UNSPACED
)
# Compounds in which no capital or punctuation separates the words, such as ``stopid`` or ``zonecodes``.
_COMPOUND_PLACE: Final = re.compile(r"(?:station|stop|street|place|location|zone)(?:id|name|nr|no|code)s?")
_COMPOUND_PERSON: Final = re.compile(
    r"(?:account|client|customer|device|driver|member|passenger|patient|person|rider|subscriber|user)"
    r"(?:id|no|nr|name|key|code|hash|uid|uuid|guid)s?"
)
# Names of columns that an earlier run of apply added: a report and its coordinates, and marker columns such as
# `seeded`. The groups match the name of the report column, or the prefix that a marker column shares with it.
_REPORT_COLUMN: Final = re.compile(r"(?P<report>(?:.*_)?report)(?:_(?:lat|lon|x|y))?", re.DOTALL)
_MARK_COLUMN: Final = re.compile(r"(?P<prefix>(?:.*_)?)(?:sticky|seeded|kept|first)", re.DOTALL)


def select_position_names(names: Sequence[str]) -> list[str]:
    """Return the names that suggest a coordinate or position, excluding columns added by an earlier run.

    >>> select_position_names(["trip", "end_lat", "endLng", "x", "dropoff_y", "platform", "report", "report_lat"])
    ['end_lat', 'endLng', 'x', 'dropoff_y']
    """
    return [name for name in names if _names_position(_split_words(name)) and not is_of_report(name, names)]


def select_place_names(names: Sequence[str]) -> list[str]:
    """Return the names that suggest a place, such as a station or a zone, rather than a coordinate.

    >>> names = ["start_station_name", "PULocationID", "zipcode", "to", "stop_time", "platform", "stop_report"]
    >>> select_place_names(names)
    ['start_station_name', 'PULocationID', 'zipcode', 'to']
    """
    place_names = []
    for name in names:
        words = _split_words(name)
        names_place = (
            bool(words & _WORDS["places"])
            or any(map(_COMPOUND_PLACE.fullmatch, words))
            or any(pair <= words for pair in _WORDS["place_pairs"])
        )
        # `from` and `to` name the ends of a trip, but not in names such as `to_date`. So they count only if every word
        # of the name is in the list `ends`.
        is_end = bool(words & {"from", "to"}) and words <= _WORDS["ends"]
        is_place = is_end or (names_place and not words & _WORDS["no_places"])
        if is_place and not _names_position(words) and not is_of_report(name, names):
            place_names.append(name)
    return place_names


def select_person_names(names: Sequence[str]) -> list[str]:
    """Return the names that suggest an identifier of a person, device or household.

    >>> select_person_names(["rider_id", "userId", "riderid", "passenger_count", "user type", "trip", "e_mail"])
    ['rider_id', 'userId', 'riderid', 'e_mail']
    """
    person_names = []
    for name in names:
        words = _split_words(name)
        names_person = bool(words & _WORDS["persons"]) or any(map(_COMPOUND_PERSON.fullmatch, words))
        if names_person and not words & _WORDS["no_persons"] and not is_of_report(name, names):
            person_names.append(name)
    return person_names


def _split_words(name: str) -> frozenset[str]:
    """Split a column name into a set of lower-case words. For example, ``PULocationID`` becomes pu, location and id."""
    separated = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", _strip_accents(name)).lower()
    # In scripts without spaces, nothing separates the words, so they are searched for anywhere in the name.
    unspaced_words = {word for word in _UNSPACED_WORDS if word in separated}
    return frozenset(re.findall(r"[^\W\d_]+|[0-9]+", separated)) | unspaced_words


def _names_position(words: frozenset[str]) -> bool:
    """Return whether the words of a column name suggest a coordinate or position."""
    if _WORDS["degrees"] & words or _WORDS["whole"] & words or any(pair <= words for pair in _WORDS["whole_pairs"]):
        return True
    # x, y and long can mean many things. They count as coordinates only if every other word in the name is one that
    # occurs with coordinates, as in `dropoff_y`.
    return bool(_WORDS["axes"] & words) and words <= _WORDS["axes"] | _WORDS["beside"]


def is_of_report(name: str, names: Sequence[str]) -> bool:
    """Return whether a column's name shows that the column was added along with reports already in the table.

    For example, if the table has a column ``report``, then ``report_lat`` contains the reports' coordinates, and
    ``seeded`` marks reports that were drawn with a seed.

    Args:
        name: The column's name.
        names: The names of all columns in the table.
    """
    report, mark = _REPORT_COLUMN.fullmatch(name), _MARK_COLUMN.fullmatch(name)
    return (report is not None and report["report"] in names) or (
        mark is not None and f"{mark['prefix']}report" in names
    )


_NESTED: Final = (nw.List, nw.Array)
"""The types of columns whose cells are lists."""


@define
class LeakyColumns:
    """A search for columns that reveal the secret through their values or field names.

    The secret consists of the columns to be protected. The table is examined one part at a time.

    Attributes:
        positions: Struct fields whose names suggest coordinates, as ``column.field``.
        places: Struct fields whose names suggest places, as ``column.field``.
        _copies: The columns that have matched a secret column in every row so far, each with up to three of its
            distinct values. None before the first part is examined.
    """

    positions: list[str] = field(factory=list)
    places: list[str] = field(factory=list)
    _copies: dict[str, set[Any]] | None = None

    def examine_part(self, public_frame: nw.DataFrame[Any], secret_frame: nw.DataFrame[Any]) -> None:
        """Examine one part of a table.

        Args:
            public_frame: The rows of this part, without the columns that hold the secret.
            secret_frame: The columns that hold the secret, for the same rows.
        """
        # Names and types are the same in every part, so only the first part is examined for them.
        if self._copies is None:
            for name in public_frame.columns:
                last_names = {path: path.rpartition(".")[2] for path in _field_paths(public_frame[name], name)}
                self.positions += [path for path, last_name in last_names.items() if select_position_names([last_name])]
                self.places += [path for path, last_name in last_names.items() if select_place_names([last_name])]
            self._copies = {name: set() for name in public_frame.columns if _is_comparable(public_frame[name])}
        secret_columns = [secret_frame[name] for name in secret_frame.columns if _is_comparable(secret_frame[name])]
        for name, distinct_values in list(self._copies.items()):
            if any(_has_equal_values(public_frame[name], secret_column) for secret_column in secret_columns):
                # Two distinct values prove that the column is not constant. More would only take memory.
                if len(distinct_values) < 2:
                    distinct_values.update(public_frame[name].unique().head(2).to_list())
            else:
                # A column that differs in any row is not a copy.
                del self._copies[name]

    @property
    def copies(self) -> list[str]:
        """The columns that equal a secret column in every row examined so far.

        Constant columns are excluded, because two such columns may be equal by chance.
        """
        return [name for name, values in (self._copies or {}).items() if len(values) > 1]


def _field_paths(column: nw.Series[Any], name: str) -> Iterator[str]:
    """Yield the path of every struct field in a column, including nested fields, in the form ``column.field``.

    A pandas column of Python objects does not declare its fields. For such a column, the keys of its first dict are
    used, but nested dicts are ignored.

    Args:
        column: The column to examine.
        name: The name of the column.
    """
    if column.dtype == nw.Object:
        first = next((value for value in column if isinstance(value, Mapping)), {})
        yield from (f"{name}.{key}" for key in first)
        return
    waiting = [(name, column.dtype)]
    while waiting:
        path, dtype = waiting.pop()
        if isinstance(dtype, _NESTED):
            inner = dtype.inner
            # narwhals represents a type without parameters by its class, and any other type by an instance. Classes are
            # instantiated here, so that only instances need to be examined.
            waiting.append((path, inner() if isinstance(inner, type) else inner))
        elif isinstance(dtype, nw.Struct):
            for inner_field in dtype.fields:
                inner_dtype = inner_field.dtype() if isinstance(inner_field.dtype, type) else inner_field.dtype
                yield f"{path}.{inner_field.name}"
                waiting.append((f"{path}.{inner_field.name}", inner_dtype))


def _is_comparable(column: nw.Series[Any]) -> bool:
    """Return whether a column contains numbers, strings or bytes, which can be compared element-wise."""
    if column.dtype == nw.Object:
        first = next((value for value in column if value is not None), None)
        return isinstance(first, (str, bytes))
    return column.dtype.is_numeric() or isinstance(column.dtype, (nw.String, nw.Binary))


def _has_equal_values(left: nw.Series[Any], right: nw.Series[Any]) -> bool:
    """Return whether two columns are equal in every row.

    Two missing values count as equal, and numeric columns may have different types.
    """
    if left.dtype != right.dtype and not (left.dtype.is_numeric() and right.dtype.is_numeric()):
        return False
    return bool(((left == right).fill_null(False) | (left.is_null() & right.is_null())).all())
