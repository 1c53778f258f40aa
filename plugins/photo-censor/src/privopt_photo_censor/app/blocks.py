"""Walk through the files of photos block by block: what stands beside the pixels, and what follows the end.

Each format is a list of blocks with their lengths. A walk stops at the first block that does not fit. What comes from
there on is yielded as what follows the end.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Final

from attrs import field, frozen

__all__ = ["AFTER_END", "Block", "blocks_of", "photoshop_resources"]

AFTER_END: Final = "after the end of the file"
"""Kind of the block of bytes that follow the picture's own."""
IMAGE_START: Final = b"\xff\xd8"
NEXT_MARKER: Final = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""What ends the pixels of a JPEG: a marker that neither escapes a byte nor restarts the decoder."""
WITHOUT_LENGTH: Final = frozenset((0x01, *range(0xD0, 0xD9)))
"""Markers of a JPEG that no length follows."""
COMMENT: Final = 0xFE
END_OF_IMAGE: Final = 0xD9
START_OF_SCAN: Final = 0xDA
RESOURCE: Final = b"8BIM"


@frozen(kw_only=True)
class Block:
    """A part of a photo's file.

    Attributes:
        kind: Its name in the format (``APP1``, ``tEXt``, ``XMP``), or :data:`AFTER_END`.
        contents: Without name and length.
    """

    kind: str
    contents: bytes = field(repr=False)


def blocks_of(contents: bytes) -> Iterator[Block]:
    """Yield the blocks of a JPEG, PNG, WebP or HEIF file apart from its pixels, further pictures of a JPEG included."""
    if contents.startswith(IMAGE_START):
        yield from _jpeg_blocks(contents)
    elif contents.startswith(b"\x89PNG\r\n\x1a\n"):
        yield from _png_blocks(contents)
    elif contents.startswith(b"RIFF"):
        yield from _riff_blocks(contents)
    else:
        yield from _box_blocks(contents)


def _jpeg_blocks(contents: bytes) -> Iterator[Block]:
    """Yield comments and application segments, of all pictures that follow one another."""
    offset = 0
    while contents.startswith(IMAGE_START, offset):
        end = yield from _picture_blocks(contents, offset + 2)
        offset = end + len(contents[end:]) - len(contents[end:].lstrip(b"\0"))
        if not contents.startswith(IMAGE_START, offset):
            offset = end
    yield from _rest(contents[offset:])


def _picture_blocks(contents: bytes, offset: int) -> Generator[Block, None, int]:
    """Yield the segments of one picture of a JPEG, and return where it ends."""
    while offset + 1 < len(contents):
        kind = contents[offset + 1]
        if contents[offset] != 0xFF or kind == 0xFF:  # fill, or bytes that decoders pass over
            offset += 1
        elif kind == END_OF_IMAGE:
            return offset + 2
        elif kind in WITHOUT_LENGTH:
            offset += 2
        else:
            end = offset + 2 + int.from_bytes(contents[offset + 2 : offset + 4], "big")
            if kind == COMMENT or 0xE0 <= kind <= 0xEF:
                name = "COM" if kind == COMMENT else f"APP{kind - 0xE0}"
                yield Block(kind=name, contents=contents[offset + 4 : end])
            offset = max(end, offset + 2)
            if kind == START_OF_SCAN:
                marker = NEXT_MARKER.search(contents, offset)
                offset = len(contents) if marker is None else marker.start()
    return len(contents)


def _png_blocks(contents: bytes) -> Iterator[Block]:
    """Yield the chunks of a PNG."""
    offset = 8
    while offset + 12 <= len(contents):
        size, kind = int.from_bytes(contents[offset : offset + 4], "big"), contents[offset + 4 : offset + 8]
        yield Block(kind=kind.decode("latin-1"), contents=contents[offset + 8 : offset + 8 + size])
        offset += 12 + size
        if kind == b"IEND":
            break
    yield from _rest(contents[offset:])


def _riff_blocks(contents: bytes) -> Iterator[Block]:
    """Yield the chunks of a WebP."""
    end = min(len(contents), 8 + int.from_bytes(contents[4:8], "little"))
    offset = 12
    while offset + 8 <= end:
        size = int.from_bytes(contents[offset + 4 : offset + 8], "little")
        kind = contents[offset : offset + 4].decode("latin-1")
        yield Block(kind=kind, contents=contents[offset + 8 : min(end, offset + 8 + size)])
        offset += 8 + size + size % 2
    yield from _rest(contents[end:])


def _box_blocks(contents: bytes) -> Iterator[Block]:
    """Yield the outermost boxes of a HEIF file."""
    offset = 0
    while offset + 8 <= len(contents):
        size, kind, header = int.from_bytes(contents[offset : offset + 4], "big"), contents[offset + 4 : offset + 8], 8
        if size == 1:
            size, header = int.from_bytes(contents[offset + 8 : offset + 16], "big"), 16
        size = size or len(contents) - offset
        if size < header or offset + size > len(contents) or not kind.isalnum():
            break
        yield Block(kind=kind.decode("latin-1"), contents=contents[offset + header : offset + size])
        offset += size
    yield from _rest(contents[offset:])


def _rest(contents: bytes) -> Iterator[Block]:
    """Yield what follows the end of a file, unless it is padding."""
    if contents.strip(b"\0\xff\r\n \t"):
        yield Block(kind=AFTER_END, contents=contents)


def photoshop_resources(contents: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and contents of the resources in a block of Photoshop's."""
    offset = contents.find(RESOURCE)
    while offset >= 0 and contents.startswith(RESOURCE, offset):
        name_size = 1 + contents[offset + 6] if offset + 6 < len(contents) else 1
        begin = offset + 6 + name_size + name_size % 2
        size = int.from_bytes(contents[begin : begin + 4], "big")
        yield int.from_bytes(contents[offset + 4 : offset + 6], "big"), contents[begin + 4 : begin + 4 + size]
        offset = begin + 4 + size + size % 2
