"""Detect whether a photo's file reveals a position or a place.

Exif, XMP and IPTC data is parsed. Videos that some phones embed in photos are searched only for their position field.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final
from xml.parsers import expat

from PIL import ExifTags, Image

__all__ = ["EXIF", "IPTC_RESOURCE", "carries_position", "gps", "packets_of", "texts_of"]

EXIF: Final = re.compile(rb"Exif\0\0(?=II\*\0|MM\0\*)")
"""A pattern that matches the start of an Exif block. A file with several pictures has several blocks."""
POINTERS: Final = (b"\x25\x88\x04\0", b"\x88\x25\0\x04")
"""The Exif tag that points to the GPS data, in both byte orders.

If a block cannot be parsed but contains this tag, it is assumed to contain a position.
"""
IPTC_RESOURCE: Final = 0x0404
"""The id of the Photoshop resource that contains IPTC records."""
IPTC_PLACES: Final = frozenset({26, 27, 90, 92, 95, 100, 101})
"""The fields of IPTC record 2 that name a place: content location (26, 27), city, sublocation, state and country."""
FILM_PLACE: Final = re.compile(rb"\xa9xyz[\0-\xff]{4}[+-]\d|location\.ISO6709")
"""A pattern that matches the position field of an MP4 or QuickTime video."""
EXTENDED: Final = b"http://ns.adobe.com/xmp/extension/\0"
"""The start of a JPEG segment that contains part of a long XMP packet."""
HEXADECIMAL: Final = "Raw profile type"
"""The start of the keyword of a PNG text chunk in which ImageMagick stores Exif, IPTC or XMP data as hexadecimal
digits."""
ROOTS: Final = ("xmpmeta", "xapmeta", "RDF")
"""The local names of XMP root elements. Every XMP packet is enclosed in one of these elements, with any prefix."""
LONGEST: Final = 2**16
"""The number of bytes examined from the start of an Exif block, or of an XMP packet that has no closing tag."""
PLACE: Final = re.compile(
    r"gps(dest)?_?(lat|lon|pos|coord|areainfo).*|lat|long?|latitude|longitude|lat_?long|pos(ition)?|coordinates|point"
    r"|city|sublocation|location(created|shown|name)?|(province)?state|country(name|code)?|worldregion|coverage"
)
"""A pattern that matches the lower-case local names of properties that give a position or a place.

It covers Exif (including ``GpsLatitude`` and ``GpsLongtitude``, which are written by drones), W3C geo, GeoRSS,
photoshop, IPTC Core and Extension, and Dublin Core.
"""
WORD: Final = re.compile(r"[\w-]+")
"""A pattern that matches a word in an XMP packet that is not well-formed."""


def _tag_patterns(encoding: str, root: str) -> tuple[bytes, re.Pattern[bytes], re.Pattern[bytes]]:
    """Return an XML element's encoded name, and the patterns that match its opening and closing tags.

    The patterns match tags in the given encoding with any namespace prefix or none.

    Args:
        encoding: The encoding, such as ``utf-16-le``.
        root: The element's name, without a prefix.
    """
    # To match a letter of a prefix, "a" is encoded and then replaced by a class of letters, which keeps the zero bytes
    # that UTF-16 and UTF-32 put next to each letter.
    letter = "a".encode(encoding).replace(b"a", rb"[\w.-]").replace(b"\0", rb"\0")
    name, opening, closing, colon = (re.escape(text.encode(encoding)) for text in (root, "<", "</", ":"))
    prefixed_name = b"(?:(?:" + letter + b"){1,60}" + colon + b")?" + name
    return root.encode(encoding), re.compile(opening + prefixed_name), re.compile(closing + prefixed_name)


TAGS: Final = {
    (encoding, root): _tag_patterns(encoding, root)
    for encoding in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
    for root in ROOTS
}
"""The encoded name and the tag patterns for each combination of an encoding and a root element."""


def gps(photo: Image.Image) -> tuple[float, float] | None:
    """Return the latitude and longitude in a photo's Exif data, in degrees, or None if either is missing or invalid."""
    tags = photo.getexif().get_ifd(ExifTags.IFD.GPSInfo)
    latitude = _parse_degrees(tags.get(ExifTags.GPS.GPSLatitude), tags.get(ExifTags.GPS.GPSLatitudeRef), "NS", 90.0)
    longitude = _parse_degrees(tags.get(ExifTags.GPS.GPSLongitude), tags.get(ExifTags.GPS.GPSLongitudeRef), "EW", 180.0)
    return None if latitude is None or longitude is None else (latitude, longitude)


def _parse_degrees(parts: Any, hemisphere: Any, hemispheres: str, limit: float) -> float | None:
    """Convert degrees, minutes and seconds from Exif data to signed degrees, or return None if they are invalid.

    Args:
        parts: The degrees, minutes and seconds as rationals.
        hemisphere: The hemisphere letter from the file. If it is missing, the first of ``hemispheres`` is assumed. If
            it is not one of ``hemispheres``, the result is None, because the sign cannot be determined.
        hemispheres: The two valid letters. The second one makes the result negative.
        limit: The largest valid number of degrees.
    """
    letter = "" if hemisphere is None else str(hemisphere).strip("\0 ").upper()[:1]
    try:
        # Four parts are read although three are expected, so that a position with too many parts is found invalid
        # below.
        values = [float(part) for part in parts[:4]]
        degrees = sum(value / 60.0**power for power, value in enumerate(values))
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    if not 1 <= len(values) <= 3 or not 0.0 <= degrees <= limit or letter not in hemispheres:
        return None
    return -degrees if letter == hemispheres[1] else degrees


def carries_position(photo: Image.Image, contents: bytes) -> bool:
    """Return whether a photo's file, apart from its pixels, reveals a position or names a place.

    The search covers the GPS data of every Exif block, all XMP and IPTC data, the text chunks of a PNG, and the
    position field of an embedded video. Data that cannot be parsed is searched for tags or words that indicate a
    position.

    Args:
        photo: The opened photo.
        contents: The contents of the photo's file.
    """
    if _has_position(photo.getexif()) or any(
        _block_has_position(contents[block.start() : block.start() + LONGEST]) for block in EXIF.finditer(contents)
    ):
        return True
    if any(field in IPTC_PLACES for records in _iptc_records(photo) for field in _filled_fields(records)):
        return True
    texts = (contents, *texts_of(photo))
    # The keys of `info` include the keywords of a PNG's texts, which may be property names as well.
    if any(_names_place(str(name)) for name in photo.info) or any(FILM_PLACE.search(text) for text in texts):
        return True
    return any(
        _names_place(name) for text in texts for packet in packets_of(text) for name in _filled_properties(packet)
    )


def texts_of(photo: Image.Image) -> list[bytes]:
    """Return a photo's metadata as byte strings that can be searched for text.

    These are the strings and byte strings in Pillow's ``Image.info``, the profiles that a PNG stores as hexadecimal
    digits, and the XMP packets that a JPEG splits across several segments.
    """
    values = [value for value in photo.info.values() if isinstance(value, (bytes, str))]
    texts = [value.encode() if isinstance(value, str) else value for value in values]
    parts_by_packet: dict[bytes, list[bytes]] = defaultdict(list)
    for name, segment in getattr(photo, "applist", ()):
        if name == "APP1" and segment.startswith(EXTENDED):
            # What follows is a digest that identifies the packet (32 bytes), the packet's length (4 bytes), the part's
            # offset in the packet (4 bytes), and the part itself.
            part = segment[len(EXTENDED) :]
            parts_by_packet[part[:32]].append(part[36:])
    # Each part still begins with its big-endian offset, so sorting puts the parts in order.
    packets = [b"".join(part[4:] for part in sorted(parts)) for parts in parts_by_packet.values()]
    return [*texts, *_unpack_profiles(photo), *packets]


def _unpack_profiles(photo: Image.Image) -> Iterator[bytes]:
    """Yield the Exif, IPTC or XMP profiles that a PNG stores in text chunks.

    The text of each such chunk consists of a name, a length and hexadecimal digits. If the digits are invalid, an empty
    byte string is yielded.
    """
    for name, text in photo.info.items():
        if str(name).startswith(HEXADECIMAL):
            digits = "".join(str(text).split()[2:])
            yield bytes.fromhex(digits) if re.fullmatch(r"([0-9a-fA-F]{2})+", digits) else b""


def _has_position(exif: Image.Exif) -> bool:
    """Return whether Exif data contains GPS fields besides the GPS version, or refers to unreadable GPS data."""
    tags = exif.get_ifd(ExifTags.IFD.GPSInfo)
    return any(tag != ExifTags.GPS.GPSVersionID for tag in tags) or (not tags and ExifTags.IFD.GPSInfo in exif)


def _block_has_position(block: bytes) -> bool:
    """Return whether an Exif block, which may be malformed, contains a position.

    A block that cannot be parsed counts as containing a position if the tag that points to GPS data occurs anywhere in
    it.
    """
    exif = Image.Exif()
    try:
        exif.load(block)
        return _has_position(exif)
    except Exception:  # Pillow's parser may raise any exception on malformed bytes
        return any(pointer in block for pointer in POINTERS)


def _iptc_records(photo: Image.Image) -> Iterator[bytes]:
    """Yield the IPTC records stored in a JPEG's Photoshop block or in the text chunks of a PNG."""
    resources = photo.info.get("photoshop")
    if isinstance(resources, dict):
        yield resources.get(IPTC_RESOURCE, b"")
    yield from (profile[profile.find(b"\x1c\x02") :] for profile in _unpack_profiles(photo))


def _filled_fields(records: bytes) -> Iterator[int]:
    """Yield the field number of each non-empty field in IPTC record 2."""
    while len(records) > 5 and records[0] == 0x1C:
        # A field consists of the marker 0x1C, a record number, a field number, a size (2 bytes), and the data.
        size = int.from_bytes(records[3:5], "big")
        if records[1] == 2 and records[5 : 5 + size].strip(b"\0 "):
            yield records[2]
        records = records[5 + size :]


def packets_of(contents: bytes) -> Iterator[str]:
    """Yield the XMP packets in a file, decoded from UTF-8, UTF-16 or UTF-32.

    Packets are located by the tags of their root elements. A root element that is nested in another one is also yielded
    on its own, so a packet's contents may be yielded more than once.

    Args:
        contents: The contents of the file.
    """
    for (encoding, _), (name, opening, closing) in TAGS.items():
        if name not in contents:
            continue
        for opening_tag in opening.finditer(contents):
            start, closing_tag = opening_tag.start(), closing.search(contents, opening_tag.end())
            # A packet without a closing tag is broken. Its first bytes are yielded, so that the caller can search them
            # for words.
            if closing_tag is None:
                yield contents[start : start + LONGEST].decode(encoding, "replace")
            else:
                # The pattern matches the closing tag up to, but not including, its ">".
                yield contents[start : closing_tag.end()].decode(encoding, "replace") + ">"


def _filled_properties(packet: str) -> list[str]:
    """Return the names of all non-empty attributes and elements in an XMP packet.

    If the packet is not well-formed XML, all of its words are returned instead. Entity expansion is not a risk, because
    a packet begins with its root element and therefore cannot declare entities.
    """
    names: list[str] = []
    # A stack that records for each open element whether it, or an element within it, has a value so far. The first
    # entry belongs to the packet itself.
    has_value = [False]

    def begin(_: str, attributes: dict[str, str]) -> None:
        """Record an element's non-empty attributes, which count as properties too."""
        names.extend(name for name, value in attributes.items() if value.strip())
        has_value.append(any(value.strip() for value in attributes.values()))

    def end(name: str) -> None:
        """Record an element's name if the element or one of its descendants has a value."""
        # A list or a structure has a value if one of its parts has.
        if has_value.pop():
            names.append(name)
            has_value[-1] = True

    def write(text: str) -> None:
        """Mark the innermost open element as having a value, unless the text is blank."""
        has_value[-1] |= bool(text.strip())

    parser = expat.ParserCreate()  # without namespaces: a packet may use a prefix that it does not declare
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = begin, end, write
    try:
        parser.Parse(packet, True)
    except expat.ExpatError:
        return WORD.findall(packet)
    return names


def _names_place(name: str) -> bool:
    """Return whether a property's name, ignoring its namespace prefix, indicates a position or a place."""
    return PLACE.fullmatch(name.rpartition(":")[2].lower()) is not None
