"""The one picture for scores, thumbnails and clean copies: upright, in sRGB, opaque, 8 bits a channel."""

from __future__ import annotations

import io
from typing import Final

from PIL import ExifTags, Image, ImageCms

from privopt_photo_censor.app.open_photo import LATE_EXIF, UnsupportedPixelsError

__all__ = ["flattened"]

TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns a picture upright, by its orientation in Exif. Pillow's own function writes Exif anew, which can fail."""

GREY: Final = ("1", "L", "LA")


def flattened(photo: Image.Image) -> Image.Image:
    """Return a photo's first picture as it is seen: turned upright, over white where it is transparent, in sRGB.

    Pixels that transparency hides are white here, whatever colour the file holds for them. A flattened picture
    flattened again is itself.

    Returns:
        Mode RGB, 8 bits a channel; nothing of the photo's metadata.

    Raises:
        UnsupportedPixelsError: grey pixels of 16 or 32 bits, for which Pillow has no scale.
    """
    photo.load()
    orientation = 1 if LATE_EXIF in photo.info else photo.getexif().get(ExifTags.Base.Orientation, 1)
    turn = TURNS.get(orientation)
    upright = photo if turn is None else photo.transpose(turn)
    if upright.mode.startswith(("I", "F")):
        raise UnsupportedPixelsError(f"pixels of more than 8 bits, mode {upright.mode}")
    profile, grey = photo.info.get("icc_profile"), upright.mode in GREY
    if upright.has_transparency_data:
        sheet = Image.new("RGBA", upright.size, "white")
        sheet.alpha_composite(upright.convert("RGBA"))
        upright = sheet.convert("RGB")
    shown = _srgb(upright, profile, grey) if profile else upright.convert("RGB")
    plain = Image.new("RGB", shown.size)
    plain.paste(shown)
    return plain


def _srgb(picture: Image.Image, profile: bytes, grey: bool) -> Image.Image:
    """Colours of another profile as sRGB has them; of one that does not fit its picture as they are."""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        space = source.profile.xcolor_space.strip()
        if space == "GRAY" and grey:
            fitting = picture.convert("L")
        elif space == "RGB" and picture.mode != "CMYK":
            fitting = picture.convert("RGB")
        else:
            fitting = picture
        changed = ImageCms.profileToProfile(fitting, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError):  # most programs ignore such a profile too
        return picture.convert("RGB")
    return picture.convert("RGB") if changed is None else changed
