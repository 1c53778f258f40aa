"""Find the positions that a photo's file carries in Exif, XMP and IPTC, each by a parser, and in a film inside."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final
from xml.parsers import expat

from PIL import ExifTags, Image

__all__ = ["EXIF", "IPTC_RESOURCE", "carries_position", "gps", "packets_of", "texts_of"]

EXIF: Final = re.compile(rb"Exif\0\0(?=II\*\0|MM\0\*)")
"""Begins an Exif block, wherever it is in a file: a second picture has one of its own."""
POINTERS: Final = (b"\x25\x88\x04\0", b"\x88\x25\0\x04")
"""An entry of Exif that points to GPS, by byte order: the judge of a block that cannot be parsed."""
IPTC_RESOURCE: Final = 0x0404
"""Where Photoshop's block of a JPEG holds IPTC records."""
IPTC_PLACES: Final = frozenset({26, 27, 90, 92, 95, 100, 101})
"""Fields of IPTC's record 2: content location (code, name), city, sublocation, state, country (code, name)."""
FILM_PLACE: Final = re.compile(rb"\xa9xyz[\0-\xff]{4}[+-]\d|location\.ISO6709")
"""Where a film of the MP4 or QuickTime family says its position."""
EXTENDED: Final = b"http://ns.adobe.com/xmp/extension/\0"
"""Begins a part of an XMP packet too long for one segment of a JPEG; then a name of 32 bytes, length and offset."""
HEXADECIMAL: Final = "Raw profile type"
"""Begins the names of the texts in which ImageMagick puts IPTC and XMP into a PNG, in hexadecimal digits."""
ROOTS: Final = ("xmpmeta", "xapmeta", "RDF")
"""Elements of which one encloses every XMP packet, whatever their prefix."""
LONGEST: Final = 2**16
"""Bytes looked at of an Exif block, or of an XMP packet that does not end."""
PLACE: Final = re.compile(
    r"gps(dest)?_?(lat|lon|pos|coord|areainfo).*|lat|long?|latitude|longitude|lat_?long|pos(ition)?|coordinates|point"
    r"|city|sublocation|location(created|shown|name)?|(province)?state|country(name|code)?|worldregion|coverage"
)
"""Local names, in lower case, of properties that say a place: in Exif's own words (drones' are ``GpsLatitude`` and
``GpsLongtitude``), of W3C geo, GeoRSS, photoshop, IPTC Core and Extension, and Dublin Core."""
WORD: Final = re.compile(r"[\w-]+")


def _tags(encoding: str, root: str) -> tuple[bytes, re.Pattern[bytes], re.Pattern[bytes]]:
    """Return an element's name in an encoding, and the patterns of its opening and closing tags, with any prefix."""
    prefix = "a".encode(encoding).replace(b"a", rb"[\w.-]").replace(b"\0", rb"\0")
    name, opens, closes, colon = (re.escape(text.encode(encoding)) for text in (root, "<", "</", ":"))
    rest = b"(?:(?:" + prefix + b"){1,60}" + colon + b")?" + name
    return root.encode(encoding), re.compile(opens + rest), re.compile(closes + rest)


TAGS: Final = {
    (encoding, root): _tags(encoding, root)
    for encoding in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
    for root in ROOTS
}


def gps(photo: Image.Image) -> tuple[float, float] | None:
    """Return latitude and longitude in degrees from a photo's EXIF; None without a usable position."""
    tags = photo.getexif().get_ifd(ExifTags.IFD.GPSInfo)
    latitude = _degrees(tags.get(ExifTags.GPS.GPSLatitude), tags.get(ExifTags.GPS.GPSLatitudeRef), "NS", 90.0)
    longitude = _degrees(tags.get(ExifTags.GPS.GPSLongitude), tags.get(ExifTags.GPS.GPSLongitudeRef), "EW", 180.0)
    return None if latitude is None or longitude is None else (latitude, longitude)


def _degrees(parts: Any, side: Any, sides: str, limit: float) -> float | None:
    """Degrees, minutes and seconds (rationals) as signed degrees: of the first side, unless a file names the other.

    None where it names neither: half a world away would be as likely.
    """
    letter = "" if side is None else str(side).strip("\0 ").upper()[:1]
    try:
        values = [float(part) for part in parts[:4]]
        size = sum(value / 60.0**place for place, value in enumerate(values))
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    if not 1 <= len(values) <= 3 or not 0.0 <= size <= limit or letter not in sides:
        return None
    return -size if letter == sides[1] else size


def carries_position(photo: Image.Image, contents: bytes) -> bool:
    """Return whether a photo's file reveals a position or a place apart from its pixels, usable or not.

    It looks at the GPS of every Exif block, XMP in any encoding, IPTC, the texts of a PNG and the position of a film
    inside. A block that its parser refuses is judged by the words in it.
    """
    if _located(photo.getexif()) or any(
        _parsed(contents[block.start() : block.start() + LONGEST]) for block in EXIF.finditer(contents)
    ):
        return True
    if any(field in IPTC_PLACES for raw in _iptc(photo) for field in _fields(raw)):
        return True
    texts = (contents, *texts_of(photo))
    if any(_tells(str(name)) for name in photo.info) or any(FILM_PLACE.search(text) for text in texts):
        return True
    return any(_tells(name) for text in texts for packet in packets_of(text) for name in _properties(packet))


def texts_of(photo: Image.Image) -> list[bytes]:
    """Return the texts that a photo's file carries apart from its pixels, unpacked, XMP among them."""
    given = [v.encode() if isinstance(v, str) else v for v in photo.info.values() if isinstance(v, (bytes, str))]
    parts: dict[bytes, list[bytes]] = defaultdict(list)
    for name, segment in getattr(photo, "applist", ()):
        if name == "APP1" and segment.startswith(EXTENDED):
            begun = segment[len(EXTENDED) :]
            parts[begun[:32]].append(begun[36:])  # each begins with its offset
    extended = [b"".join(part[4:] for part in sorted(each)) for each in parts.values()]
    return [*given, *_unhexed(photo), *extended]


def _unhexed(photo: Image.Image) -> Iterator[bytes]:
    """Yield the profiles that are in a PNG as text: a name, a length, hexadecimal digits."""
    for name, text in photo.info.items():
        if str(name).startswith(HEXADECIMAL):
            digits = "".join(str(text).split()[2:])
            yield bytes.fromhex(digits) if re.fullmatch(r"([0-9a-fA-F]{2})+", digits) else b""


def _located(exif: Image.Exif) -> bool:
    """Return whether Exif has GPS apart from its version; GPS that cannot be read may be a position."""
    tags = exif.get_ifd(ExifTags.IFD.GPSInfo)
    return any(tag != ExifTags.GPS.GPSVersionID for tag in tags) or (not tags and ExifTags.IFD.GPSInfo in exif)


def _parsed(block: bytes) -> bool:
    """Return whether an Exif block, which may be broken, has a position."""
    exif = Image.Exif()
    try:
        exif.load(block)
        return _located(exif)
    except Exception:  # Pillow's parser raises whatever it likes at a wrong byte
        return any(pointer in block for pointer in POINTERS)


def _iptc(photo: Image.Image) -> Iterator[bytes]:
    """Yield the IPTC records of a photo, from wherever its format has them."""
    resources = photo.info.get("photoshop")
    if isinstance(resources, dict):
        yield resources.get(IPTC_RESOURCE, b"")
    yield from (raw[raw.find(b"\x1c\x02") :] for raw in _unhexed(photo))


def _fields(raw: bytes) -> Iterator[int]:
    """Yield the numbers of the fields of IPTC's record 2 that are not empty."""
    while len(raw) > 5 and raw[0] == 0x1C:
        size = int.from_bytes(raw[3:5], "big")
        if raw[1] == 2 and raw[5 : 5 + size].strip(b"\0 "):
            yield raw[2]
        raw = raw[5 + size :]


def packets_of(contents: bytes) -> Iterator[str]:
    """Yield the XMP packets of a file, in whichever encoding they are."""
    for (encoding, _), (name, opening, closing) in TAGS.items():
        if name not in contents:
            continue
        for begin in opening.finditer(contents):
            end = closing.search(contents, begin.end())
            if end is None:
                yield contents[begin.start() : begin.start() + LONGEST].decode(encoding, "replace")
            else:
                yield contents[begin.start() : end.end()].decode(encoding, "replace") + ">"


def _properties(packet: str) -> list[str]:
    """Return the names of the attributes and elements of an XMP packet that have a value.

    The packet begins with its root, so that it cannot declare an entity. If it is not well-formed, return its words.
    """
    names: list[str] = []
    filled = [False]

    def begin(_: str, attributes: dict[str, str]) -> None:
        names.extend(name for name, value in attributes.items() if value.strip())
        filled.append(any(value.strip() for value in attributes.values()))

    def end(name: str) -> None:
        if filled.pop():  # a list or a structure has a value if one of its parts has
            names.append(name)
            filled[-1] = True

    def write(text: str) -> None:
        filled[-1] |= bool(text.strip())

    parser = expat.ParserCreate()  # without namespaces: a packet may use a prefix that it does not declare
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = begin, end, write
    try:
        parser.Parse(packet, True)
    except expat.ExpatError:
        return WORD.findall(packet)
    return names


def _tells(name: str) -> bool:
    """Return whether a property says a position or a place, by its local name."""
    return PLACE.fullmatch(name.rpartition(":")[2].lower()) is not None
