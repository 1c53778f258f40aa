"""Recognise columns by name: coordinates, places; and by what their values reveal of the secret."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import narwhals as nw
from attrs import define, field

__all__ = ["LeakyColumns", "is_of_report", "like_places", "like_positions"]

_DEGREES: Final = frozenset(
    {"lat", "lats", "latitude", "lon", "lng", "lons", "longitude", "latlon", "latlng", "lonlat", "latitud", "longitud"}
    | {"latitudine", "longitudine", "breitengrad", "laengengrad", "langengrad", "breddegrad", "lengdegrad", "szerokosc"}
    | {"dlugosc", "breedtegraad", "lengtegraad", "enlem", "boylam", "inptlat", "intptlat", "intptlong"}
)
_WHOLE: Final = frozenset(
    {"geometry", "geom", "wkt", "wkb", "geohash", "coordinates", "coords", "position", "gps", "easting", "northing"}
    | {"w3w", "mgrs", "utm", "quadkey", "maidenhead", "locator", "olc", "pluscode", "pluscodes", "geopoint", "shape"}
    | {"polyline", "linestring", "trajectory", "track", "route", "xcoord", "ycoord", "wgs84", "gridref", "osgb"}
    | {"what3words", "geojson", "gpx", "coordonnees", "coordenadas", "koordinaten", "koordinate", "coordinata"}
    | {"coordinaten", "coordenada", "point", "multipoint", "multipolygon", "tile"}
    | {"bbox", "minx", "miny", "maxx", "maxy", "xmin", "ymin", "xmax", "ymax"}
)
_AXES: Final = frozenset({"x", "y", "long"})
_BESIDE: Final = frozenset(
    {"km", "m", "start", "end", "stop", "pickup", "dropoff", "pick", "drop", "up", "off", "from", "to", "origin"}
) | frozenset(
    {"min", "max", "dest", "destination", "home", "work", "coord", "coordinate", "pos", "point", "utm", "1", "2"}
)
_PLACES: Final = frozenset(
    {"station", "stations", "stop", "address", "addr", "street", "road", "postcode", "postal", "plz", "zip", "zipcode"}
    | {"zone", "place", "places", "location", "locations", "loc", "city", "town", "village", "suburb", "neighbourhood"}
    | {"neighborhood", "borough", "district", "ward", "block", "tract", "area", "region", "county", "fips", "geoid"}
    | {"venue", "site", "dock", "depot", "terminal", "hub", "airport", "building", "shop", "store", "school", "lsoa"}
    | {"origin", "destination", "dest", "intersection", "home", "workplace", "osm", "node", "edge", "ip", "precinct"}
    | {"elevation", "altitude", "locality", "municipality", "parish", "canton", "department", "province", "hamlet"}
    | {"adresse", "strasse", "stadt", "ort", "ortsteil", "gemeinde", "bezirk", "kreis", "stadtteil", "kanton"}
    | {"rue", "commune", "ville", "arrondissement", "quartier", "departement", "comune", "indirizzo", "citta", "via"}
    | {"quartiere", "provincia", "calle", "ciudad", "municipio", "barrio", "direccion", "endereco", "rua", "cidade"}
    | {"bairro", "straat", "gemeente", "woonplaats", "ulica", "miasto", "gmina", "gata", "kommun", "kommune"}
)
_PAIRS: Final = ({"post", "code"}, {"plus", "code"}, {"h", "3"}, {"s", "2"}, {"timeline", "path"})
_WHOLE_PAIRS: Final = ({"geo", "point"}, {"geo", "shape"}, {"x", "wgs"}, {"y", "wgs"}, {"w", "3"}, {"what", "words"})
_JOINED: Final = re.compile(r"(?:station|stop|street|place|location|zone)(?:id|name|nr|no|code)s?")
_NO_PLACES: Final = frozenset(
    {"time", "timezone", "date", "day", "hour", "minute", "seconds", "timestamp", "email", "mail", "count", "km"}
)
_ENDS: Final = frozenset({"from", "to", "id", "name", "code"})
_REPORT: Final = re.compile(r"(?P<report>(?:.*_)?report)(?:_(?:lat|lon|x|y))?", re.DOTALL)
_MARK: Final = re.compile(r"(?P<prefix>(?:.*_)?)(?:sticky|seeded|kept|first)", re.DOTALL)


def like_positions(names: Sequence[str]) -> list[str]:
    """Return a table's columns that are named like coordinates, those of reports omitted.

    >>> like_positions(["trip", "end_lat", "endLng", "x", "dropoff_y", "platform", "report", "report_lat"])
    ['end_lat', 'endLng', 'x', 'dropoff_y']
    """
    return [name for name in names if _like_position(_words(name)) and not is_of_report(name, names)]


def like_places(names: Sequence[str]) -> list[str]:
    """Return columns that are named like a place without being coordinates: a station, a zone, a trip's other end.

    >>> like_places(["start_station_name", "PULocationID", "zipcode", "to", "stop_time", "platform", "stop_report"])
    ['start_station_name', 'PULocationID', 'zipcode', 'to']
    """
    found = []
    for name in names:
        words = _words(name)
        told = bool(words & _PLACES) or any(map(_JOINED.fullmatch, words)) or any(pair <= words for pair in _PAIRS)
        told = (told and not words & _NO_PLACES) or bool(words & {"from", "to"} and words <= _ENDS)
        if told and not _like_position(words) and not is_of_report(name, names):
            found.append(name)
    return found


def _words(name: str) -> frozenset[str]:
    """Return a column's name in words: ``PULocationID`` is pu, location, id."""
    plain = "".join(
        sign for sign in unicodedata.normalize("NFKD", name.replace("ß", "ss")) if not unicodedata.combining(sign)
    )
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plain)
    return frozenset(re.findall(r"[a-z]+|[0-9]+", apart.lower()))


def _like_position(words: frozenset[str]) -> bool:
    if _DEGREES & words or _WHOLE & words or any(pair <= words for pair in _WHOLE_PAIRS):
        return True
    return bool(_AXES & words) and words <= _AXES | _BESIDE


def is_of_report(name: str, names: Sequence[str]) -> bool:
    """Check whether a column says where an earlier report lies, or marks it, and the report is in the table too."""
    report, mark = _REPORT.fullmatch(name), _MARK.fullmatch(name)
    return (report is not None and report["report"] in names) or (
        mark is not None and f"{mark['prefix']}report" in names
    )


_NESTED: Final = (nw.List, nw.Array)


@define
class LeakyColumns:
    """What the values and types of a table's columns reveal, examined part by part.

    Attributes:
        positions: fields of structures that are named like coordinates, as ``column.field``.
        places: those that are named like places.
    """

    positions: list[str] = field(factory=list)
    places: list[str] = field(factory=list)
    _same: dict[str, set[Any]] | None = None
    """Columns that are equal to one of the secret's in all rows so far, with values of theirs: two are enough."""

    def look(self, left: nw.DataFrame[Any], secret: nw.DataFrame[Any]) -> None:
        """Look at some rows.

        Args:
            left: their columns that stay.
            secret: those that do not.
        """
        if self._same is None:
            for name in left.columns:
                fields = {path: path.rpartition(".")[2] for path in _fields(left[name], name)}
                self.positions += [path for path, last in fields.items() if like_positions([last])]
                self.places += [path for path, last in fields.items() if like_places([last])]
            self._same = {name: set() for name in left.columns if _plain(left[name])}
        plain = [secret[name] for name in secret.columns if _plain(secret[name])]
        for name, seen in list(self._same.items()):
            if any(_equal(left[name], other) for other in plain):
                if len(seen) < 2:
                    seen.update(left[name].unique().head(2).to_list())
            else:
                del self._same[name]

    @property
    def same(self) -> list[str]:
        """Columns that are a copy of the secret; not where all rows are alike, which any column may be."""
        return [name for name, seen in (self._same or {}).items() if len(seen) > 1]


def _fields(column: nw.Series[Any], name: str) -> Iterator[str]:
    """Paths of the fields of a structure, and of those in it; in pandas they are dicts."""
    if column.dtype == nw.Object:
        first = next((value for value in column if isinstance(value, Mapping)), {})
        yield from (f"{name}.{own}" for own in first)
        return
    waiting = [(name, column.dtype)]
    while waiting:
        path, dtype = waiting.pop()
        if isinstance(dtype, _NESTED):
            inner = dtype.inner
            waiting.append((path, inner() if isinstance(inner, type) else inner))
        elif isinstance(dtype, nw.Struct):
            for own in dtype.fields:
                below = own.dtype() if isinstance(own.dtype, type) else own.dtype
                yield f"{path}.{own.name}"
                waiting.append((f"{path}.{own.name}", below))


def _plain(column: nw.Series[Any]) -> bool:
    """Check whether values can be compared one by one: numbers, text, bytes."""
    if column.dtype == nw.Object:
        first = next((value for value in column if value is not None), None)
        return isinstance(first, (str, bytes))
    return column.dtype.is_numeric() or isinstance(column.dtype, (nw.String, nw.Binary))


def _equal(one: nw.Series[Any], other: nw.Series[Any]) -> bool:
    if one.dtype != other.dtype and not (one.dtype.is_numeric() and other.dtype.is_numeric()):
        return False
    return bool(((one == other).fill_null(False) | (one.is_null() & other.is_null())).all())
