"""Convert photos to upright, opaque 8-bit sRGB pictures, from which scores, thumbnails and clean copies are made."""

from __future__ import annotations

import io
from typing import Final

from PIL import ExifTags, Image, ImageCms

from privopt_photo_censor.app.open_photo import LATE_EXIF, UnsupportedPixelsError

__all__ = ["flatten_photo"]

TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The transposition that turns a picture upright, for each Exif orientation. Orientation 1 is already upright.

``ImageOps.exif_transpose`` is not used, because it also rewrites the Exif data, which can fail.
"""

GREY: Final = ("1", "L", "LA")
"""Pillow's modes for greyscale pictures."""


def flatten_photo(photo: Image.Image) -> Image.Image:
    """Return the first image in a photo's file as a viewer would show it: upright, in sRGB, and on a white background.

    Fully transparent pixels become white, whatever colour the file stores for them. Flattening an image a second time
    has no further effect.

    Returns:
        An RGB image with 8 bits per channel and none of the photo's metadata.

    Raises:
        UnsupportedPixelsError: The image has 16-bit or 32-bit grey values, which Pillow cannot scale to 8 bits.
    """
    photo.load()
    # LATE_EXIF marks a photo whose orientation is stored after the pixels, where viewers ignore it. Orientation 1 is
    # upright.
    orientation = 1 if LATE_EXIF in photo.info else photo.getexif().get(ExifTags.Base.Orientation, 1)
    turn = TURNS.get(orientation)
    upright = photo if turn is None else photo.transpose(turn)
    # Pillow's modes I, I;16 and F have pixels of 16 or 32 bits.
    if upright.mode.startswith(("I", "F")):
        raise UnsupportedPixelsError(f"pixels of more than 8 bits, mode {upright.mode}")
    profile, grey = photo.info.get("icc_profile"), upright.mode in GREY
    if upright.has_transparency_data:
        background = Image.new("RGBA", upright.size, "white")
        background.alpha_composite(upright.convert("RGBA"))
        upright = background.convert("RGB")
    picture = _convert_to_srgb(upright, profile, grey) if profile else upright.convert("RGB")
    # The pixels are pasted into a new image, because Image.copy would also copy the info, Exif data and profile.
    pixels_only = Image.new("RGB", picture.size)
    pixels_only.paste(picture)
    return pixels_only


def _convert_to_srgb(picture: Image.Image, profile: bytes, grey: bool) -> Image.Image:
    """Convert an image from its colour profile to sRGB, ignoring a profile that does not match the image.

    Args:
        picture: The image to convert.
        profile: The ICC profile from the photo's file.
        grey: Whether the image stored in the file is greyscale, in which case it may have a greyscale profile. The
            image in ``picture`` may have been converted to RGB since then, to remove transparency.
    """
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        space = source.profile.xcolor_space.strip()
        if space == "GRAY" and grey:
            converted = picture.convert("L")
        elif space == "RGB" and picture.mode != "CMYK":
            converted = picture.convert("RGB")
        else:
            converted = picture
        in_srgb = ImageCms.profileToProfile(converted, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError):  # most programs ignore such a profile too
        return picture.convert("RGB")
    return picture.convert("RGB") if in_srgb is None else in_srgb
