"""Open photos silently, using allowed image decoders only, and convert any decoding failure to InputError."""

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
"""Suffixes of photos that can always be read."""
HEIF: Final = (".heic", ".heif", ".hif")
"""Suffixes of photos that can be read if pillow-heif is installed. Otherwise they are left out and listed."""
DECODERS: Final = ("JPEG", "PNG", "WEBP", "HEIF")
"""Pillow's names for these formats. Others are not allowed: Pillow passes PostScript to another program, for
example."""


class BrokenMetadataError(Exception):
    """A photo's picture can be read but not its metadata, so nothing can be guaranteed for the file."""


class UnsupportedPixelsError(ValueError):
    """The pixels of a picture cannot be converted to 8 bits per channel."""


class TooManyPixelsError(ValueError):
    """A picture has more pixels than ``photos.max_megapixels`` allows."""


MAX_MEGAPIXELS: Final = 89.0
"""Default maximum size of a photo, in million pixels. A pixel takes 12 bytes while the photo is read."""
LATE_EXIF: Final = "privopt: no Exif before the pixels"
"""Key of ``Image.info`` that marks a PNG whose Exif, if any, comes after its pixels. Viewers ignore its orientation."""


logging.getLogger("PIL").addHandler(logging.NullHandler())  # without a handler Python prints Pillow's log


@cache
def can_read_heif() -> bool:
    """Register pillow-heif (extra ``heif``) with Pillow if installed, and return whether HEIC files can be read."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


@cache
def _decoders() -> tuple[str, ...]:
    """Return those of :data:`DECODERS` that are installed, because Pillow raises KeyError for any other."""
    can_read_heif()
    Image.init()
    return tuple(name for name in DECODERS if name in Image.OPEN)


@contextmanager
def open_photo(contents: bytes, max_megapixels: float = MAX_MEGAPIXELS) -> Iterator[Image.Image]:
    """Open a picture from the bytes of its file, without Pillow's warnings.

    Args:
        contents: The bytes of the file.
        max_megapixels: A picture with more megapixels is refused before any pixel is decoded.

    Raises:
        Exception: The picture cannot be opened. The error can be of any class, because Pillow's decoders share none.
            :func:`readable` converts it to InputError.
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
    """Convert errors raised in the ``with`` block, which should only decode a photo, to InputError.

    The error does not repeat the decoder's message, because decoders quote bytes of the file.

    Args:
        name: The photo's name, for the error message.
        what: What the block does with the photo, as a participle for the message "a photo that cannot be read".

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
    """Return the fault for a photo that cannot be read, or that cannot be ``what``, for example "copied".

    ``error`` is the decoder's error. Its text is not repeated.
    """
    expectation = "a photo of 8 bits a channel"
    if isinstance(error, TooManyPixelsError):
        expectation = "a smaller photo, or a greater photos.max_megapixels"
    return Fault(name, "", f"a photo that cannot be {what} ({describe_failure(error)})", expectation)


def describe_failure(error: Exception) -> str:
    """Return the reason why a photo cannot be decoded, without quoting its file, which is secret."""
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
