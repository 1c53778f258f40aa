"""Extract the texts in a photo's file: captions, comments, keywords, names, and trailing data.

No program can tell whether a text names a place, so all texts are listed for the user to read. Data that cannot be read
as text, such as a maker note or a video, is listed by size. Fields that have their own column in metadata.csv (time,
camera, serial number) are skipped, as are technical fields about how the picture was produced.
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
"""The maximum number of characters to list per text. If a text is longer, the number of omitted characters is
appended."""
MAX_TEXTS: Final = 200
"""The maximum number of texts to list per photo. If there are more, the last entry gives the number of omitted
texts."""
MAX_UNPACKED_BYTES: Final = 2**22
"""The maximum number of bytes to unpack from a compressed text, so that a small file cannot exhaust memory."""

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
"""Exif texts to skip, because they have their own columns or describe how a photo was produced."""
CODED_TAGS: Final = ("UserComment", "GPSProcessingMethod", "GPSAreaInformation")
"""Exif texts that begin with an eight-byte code for their encoding."""
EXIF_ENCODINGS: Final = {b"ASCII\0\0\0": "ascii", b"JIS\0\0\0\0\0": "iso2022_jp"}
"""Python's name for each encoding, keyed by its eight-byte Exif code. Unicode is handled separately."""
UNREAD_TAGS: Final = ("MakerNote", "DNGPrivateData")
"""Exif fields in a manufacturer's proprietary format."""
IPTC_NAMES: Final = {
    5: "object name", 7: "edit status", 12: "subject", 15: "category", 20: "supplemental category", 22: "fixture",
    25: "keyword", 26: "location code", 27: "location name", 40: "special instructions", 80: "by-line",
    85: "by-line title", 90: "city", 92: "sublocation", 95: "state", 100: "country code", 101: "country",
    103: "transmission reference", 105: "headline", 110: "credit", 115: "source", 116: "copyright", 118: "contact",
    120: "caption", 121: "local caption", 122: "caption writer",
}  # fmt: skip
"""The names of the text fields in IPTC record 2, keyed by field number."""
IPTC_TECHNICAL: Final = frozenset((0, 30, 35, 37, 38, 47, 50, 55, 60, 62, 63, 65, 70, 200, 201, 202))
"""Fields of IPTC record 2 to skip, because they are dates, versions or previews."""
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
"""PNG chunks to skip, because they contain no texts, or only Exif data, which is read separately."""
PNG_KEYS: Final = re.compile(r"Software|Creation Time|date:\w+|Raw profile type .*|XML:com\.adobe\.xmp")
"""A pattern that matches the keywords of PNG texts to skip.

Their values are times, program names, or Exif, IPTC or XMP data, whose fields are listed instead.
"""
WEBP_TECHNICAL: Final = frozenset(("VP8 ", "VP8L", "VP8X", "ALPH", "ANIM", "ANMF", "ICCP", "EXIF", "XMP "))
BOXES_TECHNICAL: Final = frozenset(("ftyp", "meta", "mdat", "idat"))
JPEG_TECHNICAL: Final = (b"JFIF\0", b"JFXX\0", b"Exif\0", b"http://ns.adobe.com/", b"ICC_PROFILE\0", b"MPF\0", b"Adobe")
"""The first bytes of JPEG segments to skip.

These segments contain no texts, or only Exif or XMP data, which is read separately.
"""
PHOTOSHOP: Final = b"Photoshop 3.0\0"
FILM: Final = re.compile(rb"[\0-\xff]{4}ftyp")
LETTERS: Final = re.compile(r"[^\W\d_]{3,}|\d[.°º:]\d")
"""A pattern that matches three consecutive letters, or a number that may be a coordinate.

A run of bytes that it does not match is not considered text.
"""
RUN: Final = re.compile(rb"(?:[\x20-\x7e]|[\xc2-\xf4][\x80-\xbf]{1,3}){6,}|(?:[\x20-\x7e]\0){6,}|(?:\0[\x20-\x7e]){6,}")
"""A pattern that matches six or more printable characters in UTF-8 or UTF-16, which may be text."""


@frozen
class Text:
    """A piece of text in a photo's file, with the name of the field that contains it.

    Attributes:
        field: The name of the Exif, IPTC or XMP field, or of the block in the file.
        value: The text as a single line or, for data that cannot be read as text, a description such as the size of the
            data.
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
        size: A phrase that gives the size of the data in bytes and mentions any video in the data. For a malformed
            Exif block, it says only that there is another block.
    """

    size: str


_Field = tuple[str, str | _Unread]
"""The name of a field, together with its text or a placeholder for data that cannot be read."""


def list_texts(photo: Image.Image, contents: bytes) -> tuple[Text, ...]:
    """Return the distinct texts in a photo's file, and descriptions of the data that cannot be read as text.

    Long texts are truncated, with a note of how many characters were omitted. Likewise, a long list of texts is cut
    off, and its last entry states how many texts were omitted.

    Args:
        photo: The opened photo, with its pixels already loaded.
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
    """Yield every field of a photo's Exif, XMP, IPTC and Photoshop data, and of the other blocks in its file.

    A field may be yielded more than once, because Exif data is read both through Pillow and from the file's contents.

    Args:
        photo: The opened photo, with its pixels already loaded.
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
            # Photoshop's resources may be spread over several segments, so the segments are joined first.
            photoshop += block.contents[len(PHOTOSHOP) :]
        else:
            yield from _texts_of_block(block)
    yield from _photoshop_texts(photoshop)


def _iptc_records(text: bytes) -> Iterator[bytes]:
    """Yield the IPTC records in an unpacked profile.

    The profile contains the records either directly or inside Photoshop resources.
    """
    if b"8BIM" in text:
        yield from (data for number, data in photoshop_resources(text) if number == IPTC_RESOURCE)
    elif b"\x1c\x02" in text:
        yield text[text.find(b"\x1c\x02") :]


def _texts_of_block(block: Block) -> Iterator[_Field]:
    """Yield the text in one block of a photo's file, except for XMP and IPTC data, which is parsed separately."""
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
    """Yield the text in the bytes that follow the end of an image.

    If the bytes contain a video, or if they contain no text, a placeholder that gives their size is also yielded.
    """
    text = _decode(data)
    # If more than nine tenths of the characters are printable, the bytes are one text as a whole.
    if sum(map(str.isprintable, text)) > 0.9 * len(text):
        yield AFTER_END, text
        return
    film = FILM.search(data)
    # A film is not searched, because some of its bytes would look like texts by chance.
    runs = list(_runs(AFTER_END, data if film is None else data[: film.start()]))
    yield from runs
    if film is not None or not runs:
        yield AFTER_END, _Unread(f"{len(data):,} bytes" + ("" if film is None else ", a film"))


def _runs(name: str, data: bytes) -> Iterator[_Field]:
    """Find the runs of printable characters in binary data, and yield those that look like text (see :data:`LETTERS`).

    Args:
        name: The name of the field that contains the data.
        data: The data to search.
    """
    for run in RUN.finditer(data):
        text = _decode(run[0])
        if LETTERS.search(text):
            yield name, text


def _png_text(kind: str, data: bytes) -> Iterator[_Field]:
    """Yield the text of a PNG text chunk and, if present, its translated keyword.

    Args:
        kind: The type of the chunk: ``tEXt``, ``zTXt`` (compressed) or ``iTXt`` (UTF-8).
        data: The contents of the chunk, which begin with a keyword and a zero byte.
    """
    name, _, remainder = data.partition(b"\0")
    key, packed = name.decode("latin-1"), kind == "zTXt"
    if kind == "iTXt":
        # Before the text come a flag (1 if compressed), a compression method, a language, and the keyword in that
        # language. The last two each end in a zero byte.
        packed = remainder[:1] == b"\1"
        _, _, translated = remainder[2:].partition(b"\0")
        title, _, remainder = translated.partition(b"\0")
        if title:
            yield f"PNG text {key}, translated", _decode(title)
    elif packed:
        # The compressed text is preceded by one byte, the compression method.
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
    """Yield the text in an Exif block, or a placeholder if the block is malformed."""
    exif = Image.Exif()
    try:
        exif.load(block)
        texts = list(_exif_texts(exif))
    except Exception:  # Pillow's parser may raise any exception on malformed bytes
        texts = [("Exif", _Unread("a further block"))]
    yield from texts


def _exif_texts(exif: Image.Exif) -> Iterator[_Field]:
    """Yield the text in all directories of Exif data, except for technical fields."""
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
    """Yield the text of an Exif field, or a placeholder with its size if the field is in :data:`UNREAD_TAGS`.

    Nothing is yielded for fields that contain numbers or codes.

    Args:
        name: The name of the field.
        tag: The tag number of the field.
        value: The value of the field as returned by Pillow.
        order: The byte order of the Exif block, ``"le"`` or ``"be"``.
    """
    if isinstance(value, str):
        yield f"Exif {name}", _mend(value)
    elif isinstance(value, tuple) and value and all(isinstance(part, str) for part in value):
        yield f"Exif {name}", _mend(" ".join(value))
    elif isinstance(value, tuple) and value and all(isinstance(part, int) and 0 <= part < 256 for part in value):
        # The field may be a text whose bytes were written as separate numbers.
        yield from _tag_texts(name, tag, bytes(value), order)
    elif isinstance(value, bytes):
        if name in UNREAD_TAGS:
            yield f"Exif {name}", _Unread(f"{len(value):,} bytes")
        elif name in CODED_TAGS:
            yield f"Exif {name}", _decode_coded(value, order)
        # Windows writes its own fields (XPTitle, XPComment) in UTF-16.
        elif name.startswith("XP"):
            yield f"Exif {name}", value.decode("utf-16-le", "replace")
        # In a known field, bytes are codes. In an unknown one, they may be a text.
        elif tag not in ExifTags.TAGS and tag not in ExifTags.GPSTAGS:
            yield from _runs(f"Exif {name}", value)


def _decode_coded(value: bytes, order: str) -> str:
    """Decode an Exif text that begins with an eight-byte code for its encoding.

    Args:
        value: The field's value, which consists of the code and the encoded text.
        order: The byte order of the Exif block, ``"le"`` or ``"be"``. It is used for UTF-16 text unless the text itself
            indicates a different byte order.
    """
    code, text = value[:8], value[8:]
    if code == b"UNICODE\0":
        if text.startswith((b"\xff\xfe", b"\xfe\xff")):
            return text.decode("utf-16", "replace")
        # Programs disagree on the byte order, so it is inferred from the text: most letters have one byte that is zero.
        even_zeros, odd_zeros = text[::2].count(0), text[1::2].count(0)
        if even_zeros != odd_zeros:
            order = "le" if odd_zeros > even_zeros else "be"
        return text.decode(f"utf-16-{order}", "replace")
    if code in EXIF_ENCODINGS:
        encoding = EXIF_ENCODINGS[code]
        return _decode(text) if encoding == "ascii" else text.decode(encoding, "replace")
    # Eight zeros stand for an unspecified encoding. Anything else is no code but the beginning of the text.
    return _decode(text if code == bytes(8) else value)


def _photoshop_texts(contents: bytes) -> Iterator[_Field]:
    """Yield the text in Photoshop resources: IPTC and Exif data, captions, URLs and slices."""
    for number, data in photoshop_resources(contents):
        if number == IPTC_RESOURCE:
            yield from _iptc_texts(data)
        # These two resources contain Exif data.
        elif number in (0x0422, 0x0423):
            yield from _block_texts(b"Exif\0\0" + data)
        elif number in (0x03F0, 0x03F1, 0x040B, 0x041A, 0x041E):  # caption, its border, URL, slices, list of URLs
            yield from _runs("Photoshop", data)


def _iptc_texts(records: bytes) -> Iterator[_Field]:
    """Yield the text in IPTC records."""
    # Anything before the first marker, such as padding, is skipped.
    offset = records.find(b"\x1c")
    while offset >= 0 and offset + 5 <= len(records) and records[offset] == 0x1C:
        # A field consists of the marker 0x1C, a record number, a field number, a size (2 bytes), and the data.
        record, number = records[offset + 1], records[offset + 2]
        size, begin = int.from_bytes(records[offset + 3 : offset + 5], "big"), offset + 5
        # If the highest bit is set, the other bits give the width in bytes of the actual size, which follows.
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
    """Yield the names, descriptions and tags of images in a HEIF file.

    They are stored in ``udes`` boxes. Each box consists of its size, its name, a version and flags (4 bytes), and
    several texts, each terminated by a zero byte.

    Args:
        meta: The contents of the file's ``meta`` box.
    """
    offset = meta.find(b"udes")
    while offset >= 0:
        size = int.from_bytes(meta[max(0, offset - 4) : offset], "big")
        # `offset` is that of the name. The box begins 4 bytes earlier, with its size, and its texts begin 8 bytes
        # later.
        parts = meta[offset + 8 : offset - 4 + size].split(b"\0")
        yield from (_decode(part) for part in parts[1:])  # the language comes first
        offset = meta.find(b"udes", offset + 4)


def _decode(data: bytes) -> str:
    """Decode bytes whose encoding is unknown as UTF-16, UTF-8 or Latin-1.

    UTF-16 is recognised by its byte order mark or its zero bytes. Data that is neither UTF-16 nor valid UTF-8 is
    decoded as Latin-1.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    even_zeros, odd_zeros = data[::2].count(0), data[1::2].count(0)
    # In UTF-16, every other byte of Latin text is zero, so the share is close to one half.
    zero_share = max(even_zeros, odd_zeros) / max(1, len(data))
    if zero_share > 0.4:
        return data.decode("utf-16-le" if odd_zeros > even_zeros else "utf-16-be", "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _mend(text: str) -> str:
    """Repair UTF-8 text that Pillow decoded as Latin-1. Text that is not valid UTF-8 is returned unchanged."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
