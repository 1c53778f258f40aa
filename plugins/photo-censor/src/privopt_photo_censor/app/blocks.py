"""Iterate over the blocks of a photo's file, including the bytes after the end of the picture.

A file is a sequence of blocks with stated lengths. In a HEIF file, iteration stops at the first malformed block, and
all remaining bytes are yielded as data after the end.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Final

from attrs import field, frozen

__all__ = ["AFTER_END", "Block", "iter_blocks", "photoshop_resources"]

AFTER_END: Final = "after the end of the file"
"""The kind of the block that contains the bytes after the end of the picture."""
IMAGE_START: Final = b"\xff\xd8"
NEXT_MARKER: Final = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""A pattern for the marker that ends the pixel data of a JPEG. Markers that escape a byte (0xFF 0x00) or restart the
decoder are part of the pixel data."""
WITHOUT_LENGTH: Final = frozenset((0x01, *range(0xD0, 0xD9)))
"""The JPEG markers that are not followed by a length."""
COMMENT: Final = 0xFE
END_OF_IMAGE: Final = 0xD9
START_OF_SCAN: Final = 0xDA
RESOURCE: Final = b"8BIM"


@frozen(kw_only=True)
class Block:
    """A block of a photo's file, such as a JPEG segment or a PNG chunk.

    Attributes:
        kind: The name of the block in the file's format (``APP1``, ``tEXt``, ``XMP``), or :data:`AFTER_END`.
        contents: The bytes of the block, without its name and length.
    """

    kind: str
    contents: bytes = field(repr=False)


def iter_blocks(contents: bytes) -> Iterator[Block]:
    """Yield the blocks of a JPEG, PNG, WebP or HEIF file.

    For a JPEG file, which may contain several pictures, the blocks are the comments and application segments of all
    pictures. Bytes after the end of the last picture are yielded as a final block, unless they are only padding.

    Args:
        contents: The contents of the file.
    """
    if contents.startswith(IMAGE_START):
        yield from _jpeg_blocks(contents)
    elif contents.startswith(b"\x89PNG\r\n\x1a\n"):
        yield from _png_blocks(contents)
    elif contents.startswith(b"RIFF"):
        yield from _webp_blocks(contents)
    else:  # HEIF files do not begin with fixed bytes
        yield from _heif_blocks(contents)


def _jpeg_blocks(contents: bytes) -> Iterator[Block]:
    """Yield the comments and application segments of all pictures in a JPEG file."""
    offset = 0
    while contents.startswith(IMAGE_START, offset):
        end = yield from _picture_blocks(contents, offset + 2)
        # Some cameras write a preview after the photo, separated by zeros. The zeros are skipped here.
        offset = end + len(contents[end:]) - len(contents[end:].lstrip(b"\0"))
        # If no further picture follows, the zeros count as data after the end.
        if not contents.startswith(IMAGE_START, offset):
            offset = end
    yield from _trailing_block(contents[offset:])


def _picture_blocks(contents: bytes, offset: int) -> Generator[Block, None, int]:
    """Yield the comments and application segments of one picture in a JPEG file, and return the offset of its end.

    A segment consists of the byte 0xFF, a byte for its kind, a two-byte length that includes itself, and the contents.

    Args:
        contents: The contents of the file.
        offset: The offset of the picture's first segment.
    """
    while offset + 1 < len(contents):
        kind = contents[offset + 1]
        if contents[offset] != 0xFF or kind == 0xFF:  # padding, or bytes that decoders skip
            offset += 1
        elif kind == END_OF_IMAGE:
            return offset + 2
        elif kind in WITHOUT_LENGTH:
            offset += 2
        else:
            end = offset + 2 + int.from_bytes(contents[offset + 2 : offset + 4], "big")
            # The kinds 0xE0 to 0xEF are the application segments APP0 to APP15.
            if kind == COMMENT or 0xE0 <= kind <= 0xEF:
                name = "COM" if kind == COMMENT else f"APP{kind - 0xE0}"
                yield Block(kind=name, contents=contents[offset + 4 : end])
            offset = end
            # The pixel data has no stated length and ends at the next marker.
            if kind == START_OF_SCAN:
                marker = NEXT_MARKER.search(contents, offset)
                offset = len(contents) if marker is None else marker.start()
    return len(contents)


def _png_blocks(contents: bytes) -> Iterator[Block]:
    """Yield the chunks of a PNG file.

    A chunk consists of a size (4 bytes), a name (4 bytes), the contents and a checksum (4 bytes).
    """
    offset = 8
    while offset + 12 <= len(contents):
        size, kind = int.from_bytes(contents[offset : offset + 4], "big"), contents[offset + 4 : offset + 8]
        yield Block(kind=kind.decode("latin-1"), contents=contents[offset + 8 : offset + 8 + size])
        # Size, name and checksum take 12 bytes.
        offset += 12 + size
        if kind == b"IEND":
            break
    yield from _trailing_block(contents[offset:])


def _webp_blocks(contents: bytes) -> Iterator[Block]:
    """Yield the chunks of a WebP file.

    The file begins with ``RIFF``, its size and ``WEBP``. A chunk consists of a name (4 bytes), a size (4 bytes) and the
    contents.
    """
    end = min(len(contents), 8 + int.from_bytes(contents[4:8], "little"))
    offset = 12
    while offset + 8 <= end:
        size = int.from_bytes(contents[offset + 4 : offset + 8], "little")
        kind = contents[offset : offset + 4].decode("latin-1")
        yield Block(kind=kind, contents=contents[offset + 8 : min(end, offset + 8 + size)])
        # RIFF chunks are padded to an even length.
        offset += 8 + size + size % 2
    yield from _trailing_block(contents[end:])


def _heif_blocks(contents: bytes) -> Iterator[Block]:
    """Yield the top-level boxes of a HEIF file.

    A box consists of its total size (4 bytes), a name (4 bytes) and the contents.
    """
    offset = 0
    while offset + 8 <= len(contents):
        size, kind, header = int.from_bytes(contents[offset : offset + 4], "big"), contents[offset + 4 : offset + 8], 8
        # Size 1 means that a 64-bit size comes after the name. Size 0 means up to the end of the file (ISO 14496-12).
        if size == 1:
            size, header = int.from_bytes(contents[offset + 8 : offset + 16], "big"), 16
        size = size or len(contents) - offset
        if size < header or offset + size > len(contents) or not kind.isalnum():
            break
        yield Block(kind=kind.decode("latin-1"), contents=contents[offset + header : offset + size])
        offset += size
    yield from _trailing_block(contents[offset:])


def _trailing_block(contents: bytes) -> Iterator[Block]:
    """Yield the bytes after the end of a picture as one block, or nothing if they are only padding."""
    if contents.strip(b"\0\xff\r\n \t"):
        yield Block(kind=AFTER_END, contents=contents)


def photoshop_resources(contents: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the id and the contents of each resource in a block of Photoshop data."""
    offset = contents.find(RESOURCE)
    while offset >= 0 and contents.startswith(RESOURCE, offset):
        # A resource consists of 8BIM, a number (2 bytes), the length of a name (1 byte), the name, a size (4 bytes) and
        # the data. The name with its length, and the data, are padded to an even length.
        name_size = 1 + contents[offset + 6] if offset + 6 < len(contents) else 1
        begin = offset + 6 + name_size + name_size % 2
        size = int.from_bytes(contents[begin : begin + 4], "big")
        yield int.from_bytes(contents[offset + 4 : offset + 6], "big"), contents[begin + 4 : begin + 4 + size]
        offset = begin + 4 + size + size % 2
