"""Open photos with a fixed set of image decoders, and turn decoder failures into InputError."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from PIL import Image, UnidentifiedImageError

from privopt.errors import Fault, InputError, PrivoptError

__all__ = [
    "HEIF",
    "JPEG",
    "LATE_EXIF",
    "MAX_MEGAPIXELS",
    "SUFFIXES",
    "BrokenMetadataError",
    "TooLongSideError",
    "TooManyPixelsError",
    "UnsupportedPixelsError",
    "can_read_heif",
    "describe_failure",
    "open_photo",
    "readable",
    "unreadable_fault",
]

JPEG: Final = (".jpg", ".jpeg", ".jpe", ".jfif")
SUFFIXES: Final = (*JPEG, ".png", ".webp")
"""The suffixes of photos that can always be read."""
HEIF: Final = (".heic", ".heif", ".hif")
"""The suffixes of photos that can be read only if pillow-heif is installed. Without it, such photos are left out."""
DECODERS: Final = ("JPEG", "PNG", "WEBP", "HEIF")
"""Pillow's names for the allowed formats. Other formats are not tried, because Pillow runs external programs for some
of them."""


class BrokenMetadataError(Exception):
    """Raised when a photo's metadata cannot be parsed even though its image can be decoded."""


class UnsupportedPixelsError(ValueError):
    """Raised when an image's pixels cannot be converted to 8 bits per channel."""


class TooManyPixelsError(ValueError):
    """Raised when an image has more pixels than ``photos.max_megapixels`` allows."""


class TooLongSideError(ValueError):
    """Raised when an image's width or height is more than the format of its copy can store."""


MAX_MEGAPIXELS: Final = 89.0
"""The default limit on the size of a photo, in megapixels. Reading a photo takes 12 bytes of memory per pixel."""
LATE_EXIF: Final = "privopt: no Exif before the pixels"
"""A key that :func:`open_photo` adds to ``Image.info`` if a PNG has no Exif data before its pixels.

Viewers ignore an orientation that is stored after the pixels, so it must not be applied here either.
"""


logging.getLogger("PIL").addHandler(logging.NullHandler())  # without a handler Python prints Pillow's log


@cache
def can_read_heif() -> bool:
    """Return whether HEIC files can be read, which requires pillow-heif to be installed.

    As a side effect, the first call registers pillow-heif with Pillow.
    """
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


@cache
def _decoders() -> tuple[str, ...]:
    """Return the formats in :data:`DECODERS` for which Pillow has a decoder.

    The other formats must not be passed to Pillow, which would raise KeyError for them.
    """
    can_read_heif()
    Image.init()
    return tuple(name for name in DECODERS if name in Image.OPEN)


@contextmanager
def open_photo(contents: bytes, max_megapixels: float = MAX_MEGAPIXELS) -> Iterator[Image.Image]:
    """Open a photo for the duration of a ``with`` block, with Pillow's warnings suppressed.

    Args:
        contents: The contents of the photo's file.
        max_megapixels: The largest photo to accept, in megapixels. The size is checked before any pixels are decoded.

    Raises:
        TooManyPixelsError: The photo is too large.
        Exception: The photo cannot be opened. The exception's class depends on the decoder; use :func:`readable` to
            convert it to InputError.
    """
    pillow_limit = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Image.MAX_IMAGE_PIXELS = None  # a problem may allow more than Pillow's own limit
        try:
            with Image.open(io.BytesIO(contents), formats=_decoders()) as photo:
                megapixels = photo.width * photo.height / 1e6
                if megapixels > max_megapixels:
                    limit = f"photos.max_megapixels = {max_megapixels:g}"
                    raise TooManyPixelsError(f"{megapixels:.4g} megapixels, more than {limit}")
                # On opening a file, Pillow reads only the chunks before the pixels. Any Exif data that it has not found
                # yet must come after them.
                if photo.format == "PNG" and not photo.info.keys() & {"exif", "Raw profile type exif"}:
                    photo.info[LATE_EXIF] = True
                yield photo
        finally:
            Image.MAX_IMAGE_PIXELS = pillow_limit


@contextmanager
def readable(name: str, what: str = "read") -> Iterator[None]:
    """Raise InputError in place of exceptions raised while a photo is decoded in a ``with`` block.

    A PrivoptError is re-raised unchanged. The decoder's message is discarded, because it may quote bytes of the file.

    Args:
        name: The photo's name, for the error message.
        what: A past participle, such as "read" or "copied", that completes the message "a photo that cannot be ...".

    Raises:
        InputError: The photo cannot be decoded.
    """
    try:
        yield
    except PrivoptError:
        raise
    except Exception as error:  # a decoder may raise any exception on malformed bytes
        raise InputError([unreadable_fault(name, error, what)]) from None


def unreadable_fault(name: str, error: Exception, what: str = "read") -> Fault:
    """Return the fault to report for a photo that cannot be decoded.

    Args:
        name: The photo's name.
        error: The exception raised by the decoder. Its message is used only if it is known not to quote the file.
        what: A past participle, such as "read" or "copied", that completes the message "a photo that cannot be ...".
    """
    expectation = "a photo of 8 bits a channel"
    if isinstance(error, TooManyPixelsError):
        expectation = "a smaller photo, or a greater photos.max_megapixels"
    if isinstance(error, TooLongSideError):
        expectation = "a smaller photo, or one whose name ends in .png"
    return Fault(name, "", f"a photo that cannot be {what} ({describe_failure(error)})", expectation)


def describe_failure(error: Exception) -> str:
    """Describe in a few words why a photo cannot be decoded.

    The description does not quote the photo's file, because its contents are sensitive.
    """
    # These classes are defined above, and their messages do not quote the file.
    if isinstance(error, UnsupportedPixelsError | TooManyPixelsError | TooLongSideError):
        return str(error)
    if isinstance(error, BrokenMetadataError):
        return "metadata that cannot be read"
    if isinstance(error, UnidentifiedImageError):
        return "no picture, or a broken one"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "too large for the memory" if isinstance(error, MemoryError) else "its file is damaged"
