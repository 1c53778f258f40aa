"""Open photos with a fixed set of image decoders, and convert the decoders' errors to InputError."""

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
"""The suffixes of photos that can be read only if pillow-heif is installed. Otherwise such photos are left out."""
DECODERS: Final = ("JPEG", "PNG", "WEBP", "HEIF")
"""Pillow's names for the allowed formats. For others, Pillow may run another program, as it does for PostScript."""


class BrokenMetadataError(Exception):
    """Raised if a photo's metadata cannot be parsed, although its picture can be read."""


class UnsupportedPixelsError(ValueError):
    """Raised if a picture cannot be converted to 8 bits per channel."""


class TooManyPixelsError(ValueError):
    """Raised if a picture has more pixels than permitted by ``photos.max_megapixels``."""


MAX_MEGAPIXELS: Final = 89.0
"""The default for the maximum size of a photo in megapixels. A pixel takes 12 bytes while the photo is read."""
LATE_EXIF: Final = "privopt: no Exif before the pixels"
"""A key in ``Image.info`` that marks a PNG with no Exif data before its pixels.

Viewers ignore an orientation in Exif data after the pixels.
"""


logging.getLogger("PIL").addHandler(logging.NullHandler())  # without a handler Python prints Pillow's log


@cache
def can_read_heif() -> bool:
    """Register pillow-heif with Pillow if it is installed, and return whether HEIC files can be read."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


@cache
def _decoders() -> tuple[str, ...]:
    """Return those of :data:`DECODERS` that are installed. Pillow raises KeyError for the others."""
    can_read_heif()
    Image.init()
    return tuple(name for name in DECODERS if name in Image.OPEN)


@contextmanager
def open_photo(contents: bytes, max_megapixels: float = MAX_MEGAPIXELS) -> Iterator[Image.Image]:
    """Open a picture for the duration of a ``with`` block, with Pillow's warnings suppressed.

    Args:
        contents: The contents of the file.
        max_megapixels: The largest accepted size, in megapixels. It is checked before any pixel is decoded.

    Raises:
        TooManyPixelsError: The picture is too large.
        Exception: The picture cannot be opened. Pillow's decoders raise exceptions of various classes, which
            :func:`readable` converts to InputError.
    """
    pillow_limit = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit is lower than what a problem may allow
        try:
            with Image.open(io.BytesIO(contents), formats=_decoders()) as photo:
                megapixels = photo.width * photo.height / 1e6
                if megapixels > max_megapixels:
                    limit = f"photos.max_megapixels = {max_megapixels:g}"
                    raise TooManyPixelsError(f"{megapixels:.4g} megapixels, more than {limit}")
                # When Pillow opens a file, it reads the chunks before the pixels. So any Exif not found yet comes after
                # the pixels.
                if photo.format == "PNG" and not photo.info.keys() & {"exif", "Raw profile type exif"}:
                    photo.info[LATE_EXIF] = True
                yield photo
        finally:
            Image.MAX_IMAGE_PIXELS = pillow_limit


@contextmanager
def readable(name: str, what: str = "read") -> Iterator[None]:
    """Convert any exception in a ``with`` block that decodes a photo to an InputError, unless it is a PrivoptError.

    The decoder's message is not repeated, because it may quote bytes of the file.

    Args:
        name: The photo's name, for the error message.
        what: The participle in the message "a photo that cannot be read", such as "read" or "copied".

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
    """Return the fault for a photo that cannot be decoded.

    Args:
        name: The photo's name.
        error: The decoder's error. Its text is not repeated.
        what: The participle in the message "a photo that cannot be read", such as "read" or "copied".
    """
    expectation = "a photo of 8 bits a channel"
    if isinstance(error, TooManyPixelsError):
        expectation = "a smaller photo, or a greater photos.max_megapixels"
    return Fault(name, "", f"a photo that cannot be {what} ({describe_failure(error)})", expectation)


def describe_failure(error: Exception) -> str:
    """Return the reason why a photo cannot be decoded. The file is secret, so the reason does not quote it."""
    # The texts of these two classes are our own.
    if isinstance(error, UnsupportedPixelsError | TooManyPixelsError):
        return str(error)
    if isinstance(error, BrokenMetadataError):
        return "metadata that cannot be read"
    if isinstance(error, UnidentifiedImageError):
        return "no picture, or a broken one"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "too large for the memory" if isinstance(error, MemoryError) else "its file is damaged"
