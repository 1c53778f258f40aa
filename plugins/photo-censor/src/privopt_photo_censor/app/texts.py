"""Extract the texts in a photo's file: captions, comments, keywords, names, and trailing data.

No program can tell whether a text names a place, so all texts are listed for the user to read. Data that cannot be read
as text, such as a maker note or a film, are listed with their size. Fields with their own column in metadata.csv (time,
camera, serial number) are skipped, as are technical fields about how a picture was produced.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any, Final

from attrs import frozen
from PIL import ExifTags, Image

from privopt.errors import printable
from privopt_photo_censor.app.blocks import AFTER_END, Block, iter_blocks, photoshop_resources
from privopt_photo_censor.app.positions import EXIF, IPTC_RESOURCE, packets_of, texts_of
from privopt_photo_censor.app.xmp_texts import xmp_texts

__all__ = ["Text", "list_texts"]

MAX_CHARACTERS: Final = 2_000
"""The maximum number of characters listed per text. The number of further characters is stated."""
MAX_TEXTS: Final = 200
"""The maximum number of texts listed per photo. The number of further texts is stated."""
MAX_UNPACKED_BYTES: Final = 2**22
"""The maximum number of bytes unpacked from a compressed text, so that a small file cannot exhaust the memory."""

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
"""Exif texts that are skipped, because they are listed in other columns or describe how a photo was produced."""
CODED_TAGS: Final = ("UserComment", "GPSProcessingMethod", "GPSAreaInformation")
"""Exif texts that begin with an eight-byte code for their encoding."""
EXIF_ENCODINGS: Final = {b"ASCII\0\0\0": "ascii", b"JIS\0\0\0\0\0": "iso2022_jp"}
"""Python's names for encodings, by eight-byte Exif code. Unicode is handled separately."""
UNREAD_TAGS: Final = ("MakerNote", "DNGPrivateData")
"""Exif fields in a proprietary format of the camera's manufacturer."""
IPTC_NAMES: Final = {
    5: "object name", 7: "edit status", 12: "subject", 15: "category", 20: "supplemental category", 22: "fixture",
    25: "keyword", 26: "location code", 27: "location name", 40: "special instructions", 80: "by-line",
    85: "by-line title", 90: "city", 92: "sublocation", 95: "state", 100: "country code", 101: "country",
    103: "transmission reference", 105: "headline", 110: "credit", 115: "source", 116: "copyright", 118: "contact",
    120: "caption", 121: "local caption", 122: "caption writer",
}  # fmt: skip
"""The names of fields in IPTC record 2 that contain texts, by field number."""
IPTC_TECHNICAL: Final = frozenset((0, 30, 35, 37, 38, 47, 50, 55, 60, 62, 63, 65, 70, 200, 201, 202))
"""Fields in IPTC record 2 that are skipped, because they are dates, versions or previews."""
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
"""PNG chunks that are skipped: they contain no texts, or only Exif data, which are read separately."""
PNG_KEYS: Final = re.compile(r"Software|Creation Time|date:\w+|Raw profile type .*|XML:com\.adobe\.xmp")
"""A pattern for the keywords of PNG texts that are skipped.

Such texts are times, names of programs, or Exif, IPTC or XMP data, whose fields are listed instead.
"""
WEBP_TECHNICAL: Final = frozenset(("VP8 ", "VP8L", "VP8X", "ALPH", "ANIM", "ANMF", "ICCP", "EXIF", "XMP "))
BOXES_TECHNICAL: Final = frozenset(("ftyp", "meta", "mdat", "idat"))
JPEG_TECHNICAL: Final = (b"JFIF\0", b"JFXX\0", b"Exif\0", b"http://ns.adobe.com/", b"ICC_PROFILE\0", b"MPF\0", b"Adobe")
"""The first bytes of JPEG segments that are skipped.

Such segments contain no texts, or contain Exif or XMP data, which are read separately.
"""
PHOTOSHOP: Final = b"Photoshop 3.0\0"
FILM: Final = re.compile(rb"[\0-\xff]{4}ftyp")
LETTERS: Final = re.compile(r"[^\W\d_]{3,}|\d[.°º:]\d")
"""A pattern for three consecutive letters, or for a number that may be a coordinate.

A run of bytes that does not match it is not considered a text.
"""
RUN: Final = re.compile(rb"(?:[\x20-\x7e]|[\xc2-\xf4][\x80-\xbf]{1,3}){6,}|(?:[\x20-\x7e]\0){6,}|(?:\0[\x20-\x7e]){6,}")
"""A pattern for six or more printable characters in UTF-8 or UTF-16, which may be a text."""


@frozen
class Text:
    """A text in a photo's file, with the name of its field.

    Attributes:
        field: The name of the field in Exif, IPTC or XMP data, or of the block in the file.
        value: The text as a single line or, for data that cannot be read as text, a description, such as its size.
        is_read: Whether ``value`` is the text itself rather than a description.
    """

    field: str
    value: str
    is_read: bool = True

    def __str__(self) -> str:
        return f"{self.field}: {self.value}"


@frozen
class _Unread:
    """A placeholder for data that cannot be read as text.

    Attributes:
        size: A phrase that states the number of bytes and, if the data contain a film, says so. For a malformed Exif
            block, the phrase states only that there is a further block.
    """

    size: str


_Field = tuple[str, str | _Unread]
"""The name of a field, and its text or a placeholder for unreadable data."""


def list_texts(photo: Image.Image, contents: bytes) -> tuple[Text, ...]:
    """Return the distinct texts in a photo's file, and placeholders for data that cannot be read as text.

    Args:
        photo: The photo, opened and loaded.
        contents: The contents of the photo's file.
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
    """Yield the name and text of each field in Exif, XMP, IPTC and Photoshop data, and in other blocks of the file.

    A text may be yielded more than once, because Exif data are read both by Pillow and from the contents of the file.

    Args:
        photo: The photo, opened and loaded.
        contents: The contents of the photo's file.
    """
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
    for block in iter_blocks(contents):
        if block.kind == "APP13" and block.contents.startswith(PHOTOSHOP):
            # Photoshop's resources may be spread over several segments, so these are joined first.
            photoshop += block.contents[len(PHOTOSHOP) :]
        else:
            yield from _texts_of_block(block)
    yield from _photoshop_texts(photoshop)


def _iptc_records(text: bytes) -> Iterator[bytes]:
    """Yield the IPTC records in an unpacked profile, which contains them directly or inside Photoshop resources."""
    if b"8BIM" in text:
        yield from (data for number, data in photoshop_resources(text) if number == IPTC_RESOURCE)
    elif b"\x1c\x02" in text:
        yield text[text.find(b"\x1c\x02") :]


def _texts_of_block(block: Block) -> Iterator[_Field]:
    """Yield the texts in one block of a photo's file, except XMP and IPTC data, which are parsed separately."""
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
        # Segments that are skipped here contain no texts, or contain Exif or XMP, whose fields are read separately.
        if not data.startswith(JPEG_TECHNICAL):
            yield from _runs(f"JPEG segment {kind}", data)
    elif kind == "meta":
        yield from (("HEIF description", text) for text in _user_descriptions(data))
    elif kind not in PNG_TECHNICAL | WEBP_TECHNICAL | BOXES_TECHNICAL:
        yield from _runs(f"block {kind!r}", data)


def _trailing_texts(data: bytes) -> Iterator[_Field]:
    """Yield the texts in the bytes after the end of a picture, or a placeholder if there is a film or no text."""
    text = _decode(data)
    # If more than nine tenths of the characters are printable, the whole is taken for a text.
    if sum(map(str.isprintable, text)) > 0.9 * len(text):
        yield AFTER_END, text
        return
    film = FILM.search(data)
    # A film is not searched, because runs of its bytes look like texts.
    runs = list(_runs(AFTER_END, data if film is None else data[: film.start()]))
    yield from runs
    if film is not None or not runs:
        yield AFTER_END, _Unread(f"{len(data):,} bytes" + ("" if film is None else ", a film"))


def _runs(name: str, data: bytes) -> Iterator[_Field]:
    """Yield the runs of printable characters in binary data that match :data:`LETTERS`, and so may be texts.

    Args:
        name: The name of the field that contains the data.
        data: The data.
    """
    for run in RUN.finditer(data):
        text = _decode(run[0])
        if LETTERS.search(text):
            yield name, text


def _png_text(kind: str, data: bytes) -> Iterator[_Field]:
    """Yield the text in a text chunk of a PNG file.

    Args:
        kind: The kind of the chunk: ``tEXt``, ``zTXt`` (compressed) or ``iTXt`` (UTF-8).
        data: The contents of the chunk: a keyword, a zero byte, and the text.
    """
    name, _, remainder = data.partition(b"\0")
    key, packed = name.decode("latin-1"), kind == "zTXt"
    if kind == "iTXt":
        # Before the text come a flag (1 if compressed), a compression method, a language that ends in a zero byte, and
        # the keyword in that language, which ends in a zero byte too.
        packed = remainder[:1] == b"\1"
        _, _, translated = remainder[2:].partition(b"\0")
        title, _, remainder = translated.partition(b"\0")
        if title:
            yield f"PNG text {key}, translated", _decode(title)
    elif packed:
        # One byte for the compression method comes before the text.
        remainder = remainder[1:]
    if PNG_KEYS.fullmatch(key):
        return
    if packed:
        try:
            remainder = zlib.decompressobj().decompress(remainder, MAX_UNPACKED_BYTES)
        except zlib.error:
            yield f"PNG text {key}", _Unread(f"{len(remainder):,} bytes")
            return
    yield f"PNG text {key}", _decode(remainder)


def _block_texts(block: bytes) -> Iterator[_Field]:
    """Yield the texts in an Exif block, or a placeholder if the block is malformed."""
    exif = Image.Exif()
    try:
        exif.load(block)
        texts = list(_exif_texts(exif))
    except Exception:  # Pillow's parser may raise any exception on malformed bytes
        texts = [("Exif", _Unread("a further block"))]
    yield from texts


def _exif_texts(exif: Image.Exif) -> Iterator[_Field]:
    """Yield the texts in all Exif directories, except technical fields."""
    order = "le" if exif.endian == "<" else "be"
    # IFD1 describes the thumbnail, and may contain texts of its own.
    directories = (ExifTags.IFD.Exif, ExifTags.IFD.GPSInfo, ExifTags.IFD.Interop, ExifTags.IFD.IFD1)
    for directory in (None, *directories):
        names = ExifTags.GPSTAGS if directory is ExifTags.IFD.GPSInfo else ExifTags.TAGS
        tags = exif if directory is None else exif.get_ifd(directory)
        for tag, value in tags.items():
            name = names.get(tag, f"tag 0x{tag:04x}")
            if name not in TECHNICAL_TAGS:
                yield from _tag_texts(name, tag, value, order)


def _tag_texts(name: str, tag: int, value: Any, order: str) -> Iterator[_Field]:
    """Yield the texts in an Exif field, or its size if it is one of :data:`UNREAD_TAGS`.

    Fields without text, such as numbers and codes, yield nothing.

    Args:
        name: The name of the field.
        tag: The tag number of the field.
        value: The value of the field as Pillow returns it.
        order: The byte order of the Exif block, ``"le"`` or ``"be"``.
    """
    if isinstance(value, str):
        yield f"Exif {name}", _mend(value)
    elif isinstance(value, tuple) and value and all(isinstance(part, str) for part in value):
        yield f"Exif {name}", _mend(" ".join(value))
    elif isinstance(value, tuple) and value and all(isinstance(part, int) and 0 <= part < 256 for part in value):
        # This may be a text whose bytes were written as separate numbers.
        yield from _tag_texts(name, tag, bytes(value), order)
    elif isinstance(value, bytes):
        if name in UNREAD_TAGS:
            yield f"Exif {name}", _Unread(f"{len(value):,} bytes")
        elif name in CODED_TAGS:
            yield f"Exif {name}", _decode_coded(value, order)
        # Windows writes its own fields (XPTitle, XPComment) in UTF-16.
        elif name.startswith("XP"):
            yield f"Exif {name}", value.decode("utf-16-le", "replace")
        # Bytes of known fields are codes; bytes of an unknown field may be a text.
        elif tag not in ExifTags.TAGS and tag not in ExifTags.GPSTAGS:
            yield from _runs(f"Exif {name}", value)


def _decode_coded(value: bytes, order: str) -> str:
    """Decode an Exif text that begins with an eight-byte code identifying its encoding.

    Args:
        value: The code and the text.
        order: The byte order of the Exif block, "le" or "be". It is used for UTF-16 if the text does not reveal its
            byte order.
    """
    code, text = value[:8], value[8:]
    if code == b"UNICODE\0":
        if text.startswith((b"\xff\xfe", b"\xfe\xff")):
            return text.decode("utf-16", "replace")
        # Programs disagree on the byte order, so it is found from the text: in most letters, one of the two bytes is
        # zero.
        even_zeros, odd_zeros = text[::2].count(0), text[1::2].count(0)
        if even_zeros != odd_zeros:
            order = "le" if odd_zeros > even_zeros else "be"
        return text.decode(f"utf-16-{order}", "replace")
    if code in EXIF_ENCODINGS:
        encoding = EXIF_ENCODINGS[code]
        return _decode(text) if encoding == "ascii" else text.decode(encoding, "replace")
    # Eight zeros mean that the encoding is not stated. Anything else is not a code but part of the text.
    return _decode(text if code == bytes(8) else value)


def _photoshop_texts(contents: bytes) -> Iterator[_Field]:
    """Yield the texts in Photoshop resources: IPTC and Exif data, captions, URLs and slices."""
    for number, data in photoshop_resources(contents):
        if number == IPTC_RESOURCE:
            yield from _iptc_texts(data)
        # Either of these two resources contains Exif.
        elif number in (0x0422, 0x0423):
            yield from _block_texts(b"Exif\0\0" + data)
        elif number in (0x03F0, 0x03F1, 0x040B, 0x041A, 0x041E):  # caption, its border, URL, slices, list of URLs
            yield from _runs("Photoshop", data)


def _iptc_texts(records: bytes) -> Iterator[_Field]:
    """Yield the texts in IPTC records."""
    # Bytes before the first marker, such as padding, are skipped.
    offset = records.find(b"\x1c")
    while offset >= 0 and offset + 5 <= len(records) and records[offset] == 0x1C:
        # A field consists of the marker 0x1C, a record number, a field number, a size of two bytes, and the data.
        record, number = records[offset + 1], records[offset + 2]
        size, begin = int.from_bytes(records[offset + 3 : offset + 5], "big"), offset + 5
        # If the highest bit is set, the other bits state how many bytes the actual size takes, which follows.
        if size & 0x8000:
            width = size & 0x7FFF
            size, begin = int.from_bytes(records[begin : begin + width], "big"), begin + width
        data = records[begin : begin + size]
        offset = begin + size
        if record == 2 and number not in IPTC_TECHNICAL:
            yield f"IPTC {IPTC_NAMES.get(number, f'2:{number}')}", _decode(data)
        # Records 1 and 7 to 9 contain the envelope and the picture itself, not texts.
        elif record not in (1, 2, 7, 8, 9):
            yield from _runs(f"IPTC {record}:{number}", data)


def _user_descriptions(meta: bytes) -> Iterator[str]:
    """Yield the names, descriptions and tags of pictures in a HEIF file.

    They are stored in ``udes`` boxes. Each box consists of a size, the name, the version and flags (4 bytes), and texts
    that each end in a zero byte.

    Args:
        meta: The contents of the file's ``meta`` box.
    """
    offset = meta.find(b"udes")
    while offset >= 0:
        size = int.from_bytes(meta[max(0, offset - 4) : offset], "big")
        # The size comes before a box's name. After the name come the version and flags, and then the texts.
        parts = meta[offset + 8 : offset - 4 + size].split(b"\0")
        yield from (_decode(part) for part in parts[1:])  # the language comes first
        offset = meta.find(b"udes", offset + 4)


def _decode(data: bytes) -> str:
    """Decode bytes in an unknown encoding as UTF-16, UTF-8 or Latin-1.

    UTF-16 is recognised by a byte order mark or by zero bytes. Latin-1 is used if the text is not valid UTF-8.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    even_zeros, odd_zeros = data[::2].count(0), data[1::2].count(0)
    # In UTF-16, every other byte of Latin text is zero, so zeros make up as much as half of all bytes.
    zero_share = max(even_zeros, odd_zeros) / max(1, len(data))
    if zero_share > 0.4:
        return data.decode("utf-16-le" if odd_zeros > even_zeros else "utf-16-be", "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _mend(text: str) -> str:
    """Repair UTF-8 text that Pillow decoded as Latin-1. Return the text unchanged if its bytes are not valid UTF-8."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
