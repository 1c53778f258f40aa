"""The picture that is scored is the picture that is posted: transparency, depth, profiles, and the copies' own rank."""

from __future__ import annotations

import hashlib
import io
import struct

import numpy as np
import pytest
from helpers.albums import write_album
from helpers.grids import first_alone
from PIL import Image, ImageCms

from privopt.errors import CertificationError, InputError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt_photo_censor.album import Album
from privopt_photo_censor.app.classifier import load_classifier
from privopt_photo_censor.app.clean import clean, clean_copies
from privopt_photo_censor.app.folder import look_at_folder, score_files
from privopt_photo_censor.app.picture import flatten_photo
from privopt_photo_censor.rank import protected_k

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description exif:GPSLatitude="43,28.0N"/></x:xmpmeta>'
FILM = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + b"\0\0\0\x08mdat" + b"\xff\xd9" * 9
WIDE = {b"rXYZ": (0.5151, 0.2412, -0.0011), b"gXYZ": (0.2920, 0.6922, 0.0419), b"bXYZ": (0.1571, 0.0666, 0.7841)}


def encoded(picture, kind, **options):
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def pixels(contents):
    with Image.open(io.BytesIO(contents)) as photo:
        return np.asarray(photo.convert("RGB"), dtype=int)


def wide_profile():
    """Return a profile with the colorants of Display P3, as telephones write it."""
    icc = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    for entry in range(132, 132 + 12 * struct.unpack(">I", icc[128:132])[0], 12):
        colour = WIDE.get(bytes(icc[entry : entry + 4]))
        if colour:
            start = struct.unpack(">I", icc[entry + 4 : entry + 8])[0] + 8
            icc[start : start + 12] = b"".join(struct.pack(">i", round(x * 65536)) for x in colour)
    return bytes(icc)


@pytest.fixture
def album(tmp_path):
    return write_album(tmp_path / "problem")


def erased():
    """Two halves, the left one transparent over a red that nobody is to see."""
    table = np.zeros((16, 16, 4), np.uint8)
    table[..., 0], table[:, 8:, 3] = 200, 255
    return Image.fromarray(table)


def hidden_files():
    palette = Image.new("P", (16, 16), 1)
    palette.putpalette([0, 0, 0, 200, 0, 0, 0, 200, 0])
    yield ".png", encoded(erased(), "PNG"), 8
    yield ".webp", encoded(erased(), "WEBP", lossless=True, exact=True), 8
    yield ".png", encoded(Image.new("LA", (16, 16), (90, 0)), "PNG"), 16
    yield ".png", encoded(palette, "PNG", transparency=1), 16


@pytest.mark.parametrize(("suffix", "contents", "width"), list(hidden_files()), ids=range(4))
def test_what_transparency_hides_is_in_no_copy_and_no_score(suffix, contents, width):
    with Image.open(io.BytesIO(contents)) as photo:
        seen = np.asarray(flatten_photo(photo))
    assert (seen[:, :width] == 255).all()
    assert not (seen[:, width:] == 255).any()
    off = abs(pixels(clean(contents, suffix)) - seen)
    assert off.mean() <= (0 if suffix != ".webp" else 8)


def test_pixels_without_a_scale_are_refused_by_name(tmp_path):
    contents = encoded(Image.fromarray(np.full((9, 9), 3000, np.uint16)), "PNG")
    (tmp_path / "odd.png").write_bytes(contents)
    with pytest.raises(InputError, match=r"odd\.png: expected a photo of 8 bits a channel.*, got .*more than 8 bits.*"):
        look_at_folder(tmp_path)
    digest = hashlib.sha256(contents).hexdigest()
    with pytest.raises(InputError, match=r"odd\.png: expected .*, got a photo that cannot be copied"):
        clean_copies(tmp_path, [("odd.png", digest)], tmp_path.parent / "clean")


def test_copies_are_of_the_photos_that_were_seen(tmp_path):
    for name in ("Rome.JPG", "b.png"):
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    seen, _ = look_at_folder(tmp_path)
    photos = list(zip(seen.names, seen.digests, strict=True))
    made = clean_copies(tmp_path, photos, tmp_path.parent / f"{tmp_path.name}-out")
    assert [(copy.photo, copy.name) for copy in made] == [("b.png", "photo-0001.png"), ("Rome.JPG", "photo-0002.jpg")]
    (tmp_path / "b.png").write_bytes(b"another one")
    with pytest.raises(InputError, match=r"b\.png: expected .*, got a photo that changed"):
        clean_copies(tmp_path, photos, tmp_path.parent / f"{tmp_path.name}-out")


def test_colours_of_a_profile_are_scored_as_the_copies_show_them(tmp_path):
    red = Image.new("RGB", (8, 8), (30, 200, 40))
    for picture in (red, red.convert("RGBA"), red.quantize(2)):
        contents = encoded(picture, "PNG", icc_profile=wide_profile())
        with Image.open(io.BytesIO(contents)) as photo:
            seen = flatten_photo(photo)
        assert seen.getpixel((0, 0))[0] < 10  # a green that sRGB has not
        assert np.array_equal(np.asarray(seen), pixels(clean(contents, ".png")))
        assert np.array_equal(np.asarray(seen), np.asarray(flatten_photo(seen)))


@first_alone("k", [2, 1, 3])
def test_copies_of_photos_with_profiles_keep_the_promise(album, tmp_path, k):
    for path in (tmp_path / "problem" / "photos").iterdir():
        with Image.open(path) as photo:
            photo.load()
        photo.save(path, quality=95, icc_profile=wide_profile())
    album.write_text(album.read_text().replace("top_k = 3", f"top_k = {k}"))
    solve("photo-censor", album, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    scores = score_files(sorted((tmp_path / "clean").iterdir()), load_classifier(tmp_path / "problem" / "places.toml"))
    assert protected_k(Album(scores=scores, true=4)) >= k


def test_copies_that_break_the_promise_are_not_written(album, tmp_path, monkeypatch):
    def spoilt(contents, suffix):  # an encoder whose colours are those of the true place
        return encoded(Image.new("RGB", (320, 240), (255, 200, 0)), "JPEG")

    monkeypatch.setattr("privopt_photo_censor.app.clean.clean", spoilt)
    with pytest.raises(CertificationError, match="the clean copies, scored as they are encoded, leave 0 locations"):
        solve("photo-censor", album, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "clean").exists()


def with_extended_xmp():
    jpeg = encoded(Image.new("RGB", (16, 16)), "JPEG")
    segment = b"http://ns.adobe.com/xmp/extension/\0" + b"A" * 32 + struct.pack(">II", len(XMP), 0) + XMP
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + jpeg[2:]


def test_positions_and_films_are_found_wherever_they_lie_in_the_file(album, tmp_path):
    photos = tmp_path / "problem" / "photos"
    plain = encoded(Image.new("RGB", (16, 16)), "JPEG")
    (photos / "x.jpg").write_bytes(with_extended_xmp())
    (photos / "film.jpg").write_bytes(plain + FILM)
    (photos / "samsung.jpg").write_bytes(plain + b"MotionPhoto_Data" + FILM)
    seen, _ = look_at_folder(photos)
    assert seen.positioned == ("x.jpg",)
    assert seen.left_out == ("film.jpg: the film inside", "samsung.jpg: the film inside")
