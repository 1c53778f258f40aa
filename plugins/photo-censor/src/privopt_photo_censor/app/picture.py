"""The one picture for scores, thumbnails and clean copies: upright, in sRGB, opaque, 8 bits a channel."""

from __future__ import annotations

import io
from typing import Final

import numpy as np
from PIL import Image, ImageCms, ImageOps

__all__ = ["flattened"]

BITS: Final = 258
PHOTOMETRIC: Final = 262
"""TIFF's tags."""
GREY: Final = ("1", "L", "LA")


def flattened(photo: Image.Image) -> Image.Image:
    """Return a photo's first picture as it is seen: turned upright, over white where it is transparent, in sRGB.

    Pixels that transparency hides are white here, whatever colour the file holds for them. A flattened picture
    flattened again is itself.

    Returns:
        Mode RGB, 8 bits a channel; nothing of the photo's metadata.

    Raises:
        ValueError: pixels of a kind that has no such picture (32 bits, floats, partly used 16 bits).
    """
    photo.load()
    upright = ImageOps.exif_transpose(photo)
    if upright.mode.startswith("I;16"):
        _whole(photo)
        upright = _eight(upright)
    elif upright.mode in ("I", "F"):
        raise ValueError(f"pixels of 32 bits, mode {upright.mode}")
    profile, grey = photo.info.get("icc_profile"), upright.mode in GREY
    if upright.has_transparency_data:
        sheet = Image.new("RGBA", upright.size, "white")
        sheet.alpha_composite(upright.convert("RGBA"))
        upright = sheet.convert("RGB")
    shown = _srgb(upright, profile, grey) if profile else upright.convert("RGB")
    plain = Image.new("RGB", shown.size)
    plain.paste(shown)
    return plain


def _whole(photo: Image.Image) -> None:
    """Pillow has no scale for 16-bit pixels: 65535 is white, and 0 black."""
    tags = getattr(photo, "tag_v2", None)
    if tags is None:
        return
    bits = {int(b) for b in np.atleast_1d(tags.get(BITS, 16))}
    if bits != {16} or tags.get(PHOTOMETRIC, 1) == 0:
        raise ValueError(f"grey pixels of {max(bits)} bits" + (", 0 being white" if bits == {16} else ""))


def _eight(photo: Image.Image) -> Image.Image:
    """Grey pixels of 16 bits as 8, rounded; one value may represent transparent."""
    deep = np.asarray(photo).astype(np.uint32)
    made = Image.fromarray(((deep + 128) // 257).astype(np.uint8))
    clear = photo.info.get("transparency")
    if isinstance(clear, int):
        made.putalpha(Image.fromarray(np.where(deep == clear, 0, 255).astype(np.uint8)))
    return made


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
