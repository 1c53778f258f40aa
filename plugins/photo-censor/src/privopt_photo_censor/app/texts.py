"""List the texts that a photo's file carries: captions, comments, keywords, names, whatever follows its end.

No program can tell whether a text names a place. So each is listed with its text, and only a photo without any is said
to reveal nothing. What cannot be read as text (a maker note, a film) is listed by its size. Left out are the fields
that have a column of their own (time, camera, serial number) and those that say how a picture was made.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any, Final

from attrs import frozen
from PIL import ExifTags, Image

from privopt.errors import printable
from privopt_photo_censor.app.blocks import AFTER_END, Block, blocks_of, photoshop_resources
from privopt_photo_censor.app.positions import EXIF, IPTC_RESOURCE, packets_of, texts_of
from privopt_photo_censor.app.xmp_texts import xmp_texts

__all__ = ["Text", "list_texts"]

MAX_CHARACTERS: Final = 2_000
"""Of one text; how many more there are is said."""
MAX_TEXTS: Final = 200
"""Of one photo; how many more there are is said."""
MAX_UNPACKED_BYTES: Final = 2**22

TECHNICAL_TAGS: Final = frozenset(
    (
        *("Make", "Model", "Software", "DateTime", "DateTimeOriginal", "DateTimeDigitized", "LensMake", "LensModel"),
        *("OffsetTime", "OffsetTimeOriginal", "OffsetTimeDigitized", "SubsecTime", "SubsecTimeOriginal"),
        *("SubsecTimeDigitized", "BodySerialNumber", "LensSerialNumber", "ImageUniqueID", "InteropIndex"),
        *("GPSLatitudeRef", "GPSLongitudeRef", "GPSSatellites", "GPSStatus", "GPSMeasureMode", "GPSSpeedRef"),
        *("GPSTrackRef", "GPSImgDirectionRef", "GPSMapDatum", "GPSDestLatitudeRef", "GPSDestLongitudeRef"),
        *("GPSDestBearingRef", "GPSDestDistanceRef", "GPSDateStamp"),
    )
)
"""Texts of Exif that have a column of their own, or that say how and with what a photo was made."""
CODED_TAGS: Final = ("UserComment", "GPSProcessingMethod", "GPSAreaInformation")
"""Texts of Exif behind eight bytes that name their encoding."""
EXIF_ENCODINGS: Final = {b"ASCII\0\0\0": "ascii", b"JIS\0\0\0\0\0": "iso2022_jp"}
UNREAD_TAGS: Final = ("MakerNote", "DNGPrivateData")
"""Bytes of Exif in a form of the camera's maker."""
IPTC_NAMES: Final = {
    5: "object name", 7: "edit status", 12: "subject", 15: "category", 20: "supplemental category", 22: "fixture",
    25: "keyword", 26: "location code", 27: "location name", 40: "special instructions", 65: "program", 80: "by-line",
    85: "by-line title", 90: "city", 92: "sublocation", 95: "state", 100: "country code", 101: "country",
    103: "transmission reference", 105: "headline", 110: "credit", 115: "source", 116: "copyright", 118: "contact",
    120: "caption", 121: "local caption", 122: "caption writer",
}  # fmt: skip
IPTC_TECHNICAL: Final = frozenset((0, 30, 35, 37, 38, 47, 50, 55, 60, 62, 63, 65, 70, 200, 201, 202))
"""Fields of record 2 that are dates, versions or previews."""
PNG_TECHNICAL: Final = frozenset(
    [
        "IHDR",
        "PLTE",
        "IDAT",
        "IEND",
        "tRNS",
        "cHRM",
        "gAMA",
        "iCCP",
        "sBIT",
        "sRGB",
        "cICP",
        "mDCV",
        "cLLI",
        "bKGD",
        "hIST",
        "pHYs",
        "sPLT",
        "tIME",
        "acTL",
        "fcTL",
        "fdAT",
        "eXIf",
    ]
)
PNG_KEYS: Final = re.compile(r"Software|Creation Time|date:\w+|Raw profile type .*|XML:com\.adobe\.xmp")
"""Texts of a PNG that say when it was made, or hold Exif, IPTC or XMP, which are listed by their fields."""
WEBP_TECHNICAL: Final = frozenset(("VP8 ", "VP8L", "VP8X", "ALPH", "ANIM", "ANMF", "ICCP", "EXIF", "XMP "))
BOXES_TECHNICAL: Final = frozenset(("ftyp", "meta", "mdat", "idat"))
JPEG_TECHNICAL: Final = (b"JFIF\0", b"JFXX\0", b"Exif\0", b"http://ns.adobe.com/", b"ICC_PROFILE\0", b"MPF\0", b"Adobe")
PHOTOSHOP: Final = b"Photoshop 3.0\0"
FILM: Final = re.compile(rb"[\0-\xff]{4}ftyp")
LETTERS: Final = re.compile(r"[^\W\d_]{3,}|\d[.°º:]\d")
"""What a run of bytes must hold to be taken for a text: a word, or a number that may be a coordinate."""
RUN: Final = re.compile(rb"(?:[\x20-\x7e]|[\xc2-\xf4][\x80-\xbf]{1,3}){6,}|(?:[\x20-\x7e]\0){6,}|(?:\0[\x20-\x7e]){6,}")
"""Bytes that may be a text, in UTF-8 or UTF-16."""


@frozen
class Text:
    """A text in a photo's file: the name of its field, and what it says in one line.

    Attributes:
        field: Exif's, IPTC's or XMP's name, or that of a block of the file.
        value: In one line. Of bytes that no one reads, what is known of them.
        is_read: Whether ``value`` is the text itself.
    """

    field: str
    value: str
    is_read: bool = True

    def __str__(self) -> str:
        return f"{self.field}: {self.value}"


@frozen
class _Unread:
    """Bytes that are not read as text: how many, and of what if that is known."""

    size: str


_Field = tuple[str, str | _Unread]
"""The name of a field and its text."""


def list_texts(photo: Image.Image, contents: bytes) -> tuple[Text, ...]:
    """List the texts that a photo's file carries, each once.

    Args:
        photo: Opened and loaded.
        contents: Its file.
    """
    unique: dict[Text, None] = {}
    for name, value in _all_texts(photo, contents):
        if isinstance(value, _Unread):
            unique[Text(name, value.size, is_read=False)] = None
            continue
        line = printable(" ".join(value.replace("\0", " ").split()))
        if len(line) > MAX_CHARACTERS:
            line = f"{line[:MAX_CHARACTERS]} ... ({len(line) - MAX_CHARACTERS:,} characters more)"
        if line:
            unique[Text(name, line)] = None
    texts = tuple(unique)
    if len(texts) > MAX_TEXTS:
        return (*texts[:MAX_TEXTS], Text("further texts", f"{len(texts) - MAX_TEXTS:,}"))
    return texts


def _all_texts(photo: Image.Image, contents: bytes) -> Iterator[_Field]:
    """Yield name and text of every field."""
    yield from _exif_texts(photo.getexif())
    hidden = texts_of(photo)  # unpacked profiles of a PNG, and XMP in several segments
    for text in (contents, *hidden):
        for header in EXIF.finditer(text):
            yield from _block_texts(text[header.start() :])
        for packet in packets_of(text):
            yield from xmp_texts(packet)
    for text in hidden:
        for record in _iptc_records(text):
            yield from _iptc_texts(record)
    photoshop = b""
    for block in blocks_of(contents):
        if block.kind == "APP13" and block.contents.startswith(PHOTOSHOP):
            photoshop += block.contents[len(PHOTOSHOP) :]
        else:
            yield from _texts_of_block(block)
    yield from _photoshop_texts(photoshop)


def _iptc_records(text: bytes) -> Iterator[bytes]:
    """Yield the IPTC records of an unpacked profile: within Photoshop's resources, or alone."""
    if b"8BIM" in text:
        yield from (data for number, data in photoshop_resources(text) if number == IPTC_RESOURCE)
    elif b"\x1c\x02" in text:
        yield text[text.find(b"\x1c\x02") :]


def _texts_of_block(block: Block) -> Iterator[_Field]:
    """Yield the texts of a block of a file that no parser of Exif, XMP or IPTC takes."""
    kind, data = block.kind, block.contents
    if kind == AFTER_END:
        yield from _trailing_texts(data)
    elif kind == "COM":
        yield "JPEG comment", _decode(data)
    elif kind in ("tEXt", "zTXt", "iTXt"):
        yield from _png_text(kind, data)
    elif kind in ("eXIf", "EXIF"):
        yield from _block_texts(data if data.startswith(b"Exif") else b"Exif\0\0" + data)
    elif kind.startswith("APP"):
        if not data.startswith(JPEG_TECHNICAL):
            yield from _runs(f"JPEG segment {kind}", data)
    elif kind == "meta":
        yield from (("HEIF description", text) for text in _user_descriptions(data))
    elif kind not in PNG_TECHNICAL | WEBP_TECHNICAL | BOXES_TECHNICAL:
        yield from _runs(f"block {kind!r}", data)


def _trailing_texts(data: bytes) -> Iterator[_Field]:
    """Yield what follows the end of a picture: its texts, or its size."""
    whole = _decode(data)
    if sum(map(str.isprintable, whole)) > 0.9 * len(whole):
        yield AFTER_END, whole
        return
    film = FILM.search(data)
    runs = list(_runs(AFTER_END, data if film is None else data[: film.start()]))
    yield from runs
    if film is not None or not runs:
        yield AFTER_END, _Unread(f"{len(data):,} bytes" + ("" if film is None else ", a film"))


def _runs(name: str, data: bytes) -> Iterator[_Field]:
    """Yield the runs of bytes that may be texts."""
    for run in RUN.finditer(data):
        text = _decode(run[0])
        if LETTERS.search(text):
            yield name, text


def _png_text(kind: str, data: bytes) -> Iterator[_Field]:
    """Yield the text of a chunk of a PNG."""
    name, _, rest = data.partition(b"\0")
    key, packed = name.decode("latin-1"), kind == "zTXt"
    if kind == "iTXt":
        packed = rest[:1] == b"\1"
        _, _, translated = rest[2:].partition(b"\0")
        title, _, rest = translated.partition(b"\0")
        if title:
            yield f"PNG text {key}, translated", _decode(title)
    elif packed:
        rest = rest[1:]
    if PNG_KEYS.fullmatch(key):
        return
    if packed:
        try:
            rest = zlib.decompressobj().decompress(rest, MAX_UNPACKED_BYTES)
        except zlib.error:
            yield f"PNG text {key}", _Unread(f"{len(rest):,} bytes")
            return
    yield f"PNG text {key}", _decode(rest)


def _block_texts(block: bytes) -> Iterator[_Field]:
    """Yield the texts of an Exif block, which may be broken."""
    exif = Image.Exif()
    try:
        exif.load(block)
        texts = list(_exif_texts(exif))
    except Exception:  # Pillow's parser raises whatever it likes at a wrong byte
        texts = [("Exif", _Unread("a further block"))]
    yield from texts


def _exif_texts(exif: Image.Exif) -> Iterator[_Field]:
    """Yield the texts of Exif, of all its directories."""
    order = "le" if exif.endian == "<" else "be"
    directories = (ExifTags.IFD.Exif, ExifTags.IFD.GPSInfo, ExifTags.IFD.Interop, ExifTags.IFD.IFD1)
    for directory in (None, *directories):
        names = ExifTags.GPSTAGS if directory is ExifTags.IFD.GPSInfo else ExifTags.TAGS
        tags = exif if directory is None else exif.get_ifd(directory)
        for tag, value in tags.items():
            name = names.get(tag, f"tag 0x{tag:04x}")
            if name not in TECHNICAL_TAGS:
                yield from _tag_texts(name, tag, value, order)


def _tag_texts(name: str, tag: int, value: Any, order: str) -> Iterator[_Field]:
    """Yield the texts of one field of Exif."""
    if isinstance(value, str):
        yield f"Exif {name}", _mend(value)
    elif isinstance(value, tuple) and value and all(isinstance(part, str) for part in value):
        yield f"Exif {name}", _mend(" ".join(value))
    elif isinstance(value, tuple) and value and all(isinstance(part, int) and 0 <= part < 256 for part in value):
        yield from _tag_texts(name, tag, bytes(value), order)  # written as numbers of a byte each
    elif isinstance(value, bytes):
        if name in UNREAD_TAGS:
            yield f"Exif {name}", _Unread(f"{len(value):,} bytes")
        elif name in CODED_TAGS:
            yield f"Exif {name}", _decode_coded(value, order)
        elif name.startswith("XP"):
            yield f"Exif {name}", value.decode("utf-16-le", "replace")
        elif tag not in ExifTags.TAGS and tag not in ExifTags.GPSTAGS:
            yield from _runs(f"Exif {name}", value)


def _decode_coded(value: bytes, order: str) -> str:
    """Decode a text of Exif behind eight bytes that name its encoding."""
    code, text = value[:8], value[8:]
    if code == b"UNICODE\0":
        if text.startswith((b"\xff\xfe", b"\xfe\xff")):
            return text.decode("utf-16", "replace")
        # writers disagree on the order of bytes: most letters have a zero in one of the two
        even, odd = text[::2].count(0), text[1::2].count(0)
        if even != odd:
            order = "le" if odd > even else "be"
        return text.decode(f"utf-16-{order}", "replace")
    if code in EXIF_ENCODINGS:
        encoding = EXIF_ENCODINGS[code]
        return _decode(text) if encoding == "ascii" else text.decode(encoding, "replace")
    return _decode(text if code == bytes(8) else value)


def _photoshop_texts(contents: bytes) -> Iterator[_Field]:
    """Yield the texts of Photoshop's resources: IPTC, captions, addresses, slices."""
    for number, data in photoshop_resources(contents):
        if number == IPTC_RESOURCE:
            yield from _iptc_texts(data)
        elif number in (0x0422, 0x0423):
            yield from _block_texts(b"Exif\0\0" + data)
        elif number in (0x03F0, 0x03F1, 0x040B, 0x041A, 0x041E):  # caption, its border, URL, slices, list of URLs
            yield from _runs("Photoshop", data)


def _iptc_texts(records: bytes) -> Iterator[_Field]:
    """Yield the texts of IPTC's records."""
    offset = records.find(b"\x1c")
    while offset >= 0 and offset + 5 <= len(records) and records[offset] == 0x1C:
        record, number = records[offset + 1], records[offset + 2]
        size, begin = int.from_bytes(records[offset + 3 : offset + 5], "big"), offset + 5
        if size & 0x8000:  # a size of several bytes
            width = size & 0x7FFF
            size, begin = int.from_bytes(records[begin : begin + width], "big"), begin + width
        data = records[begin : begin + size]
        offset = begin + size
        if record == 2 and number not in IPTC_TECHNICAL:
            yield f"IPTC {IPTC_NAMES.get(number, f'2:{number}')}", _decode(data)
        elif record not in (1, 2, 7, 8, 9):  # envelope, and the picture itself
            yield from _runs(f"IPTC {record}:{number}", data)


def _user_descriptions(meta: bytes) -> Iterator[str]:
    """Yield names, descriptions and tags that a HEIF file gives its pictures."""
    offset = meta.find(b"udes")
    while offset >= 0:
        size = int.from_bytes(meta[max(0, offset - 4) : offset], "big")
        parts = meta[offset + 8 : offset - 4 + size].split(b"\0")
        yield from (_decode(part) for part in parts[1:])  # the language comes first
        offset = meta.find(b"udes", offset + 4)


def _decode(data: bytes) -> str:
    """Decode a text whose encoding is not known: UTF-8, UTF-16 by its mark or zeros, or Latin-1."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    even, odd = data[::2].count(0), data[1::2].count(0)
    zero_share = max(even, odd) / max(1, len(data))
    if zero_share > 0.4:
        return data.decode("utf-16-le" if odd > even else "utf-16-be", "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _mend(text: str) -> str:
    """Return a text that Pillow read as Latin-1, as UTF-8 if it is."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
