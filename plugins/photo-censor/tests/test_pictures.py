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
from privopt.run.solve import solve
from privopt.run.task import Options
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


def encode_picture(picture, kind, **options):
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


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


def transparent_picture():
    """Two halves, the left one transparent over a red that nobody is to see."""
    table = np.zeros((16, 16, 4), np.uint8)
    table[..., 0], table[:, 8:, 3] = 200, 255
    return Image.fromarray(table)


def hidden_files():
    palette = Image.new("P", (16, 16), 1)
    palette.putpalette([0, 0, 0, 200, 0, 0, 0, 200, 0])
    yield ".png", encode_picture(transparent_picture(), "PNG"), 8
    yield ".webp", encode_picture(transparent_picture(), "WEBP", lossless=True, exact=True), 8
    yield ".png", encode_picture(Image.new("LA", (16, 16), (90, 0)), "PNG"), 16
    yield ".png", encode_picture(palette, "PNG", transparency=1), 16


@pytest.mark.parametrize(("suffix", "contents", "width"), list(hidden_files()), ids=range(4))
def test_transparent_pixels_are_not_shown_or_scored(suffix, contents, width):
    with Image.open(io.BytesIO(contents)) as photo:
        visible_pixels = np.asarray(flatten_photo(photo))
    assert (visible_pixels[:, :width] == 255).all()
    assert not (visible_pixels[:, width:] == 255).any()
    differences = abs(pixels(clean(contents, suffix)) - visible_pixels)
    assert differences.mean() <= (0 if suffix != ".webp" else 8)


def test_refuses_pixels_without_scale_by_name(tmp_path):
    contents = encode_picture(Image.fromarray(np.full((9, 9), 3000, np.uint16)), "PNG")
    (tmp_path / "odd.png").write_bytes(contents)
    with pytest.raises(InputError, match=r"odd\.png: .*8 bits.*more than"):
        look_at_folder(tmp_path)
    digest = hashlib.sha256(contents).hexdigest()
    with pytest.raises(InputError, match=r"odd\.png: .*cannot be copied"):
        clean_copies(tmp_path, [("odd.png", digest)], tmp_path.parent / "clean")


@pytest.mark.parametrize(("suffix", "longest"), [(".jpg", 65_500), (".webp", 16_383)])
def test_photo_too_long_for_its_copy_is_not_called_damaged(suffix, longest, tmp_path):
    """A file may have another format than its name says; HEIC becomes JPEG."""
    fitting, too_long = (encode_picture(Image.new("RGB", (1, side)), "PNG") for side in (longest, longest + 1))
    assert pixels(clean(fitting, suffix)).shape[0] == longest
    (tmp_path / f"long{suffix}").write_bytes(too_long)
    photos = [(f"long{suffix}", hashlib.sha256(too_long).hexdigest())]
    with pytest.raises(InputError, match=rf"expected a smaller photo, .*cannot be copied \({longest + 1:,} pixels"):
        clean_copies(tmp_path, photos, tmp_path.parent / "clean")
    assert clean(too_long, ".png")


def test_copies_show_the_scored_photos(tmp_path):
    for name in ("Rome.JPG", "b.png"):
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    folder_view, _ = look_at_folder(tmp_path)
    photos = list(zip(folder_view.names, folder_view.digests, strict=True))
    copies = clean_copies(tmp_path, photos, tmp_path.parent / f"{tmp_path.name}-out")
    assert [(copy.photo, copy.name) for copy in copies] == [("b.png", "photo-0001.png"), ("Rome.JPG", "photo-0002.jpg")]
    (tmp_path / "b.png").write_bytes(b"another one")
    with pytest.raises(InputError, match=r"b\.png: .*that changed"):
        clean_copies(tmp_path, photos, tmp_path.parent / f"{tmp_path.name}-out")


def test_profile_colours_are_scored_as_copied(tmp_path):
    red = Image.new("RGB", (8, 8), (30, 200, 40))
    for picture in (red, red.convert("RGBA"), red.quantize(2)):
        contents = encode_picture(picture, "PNG", icc_profile=wide_profile())
        with Image.open(io.BytesIO(contents)) as photo:
            flat_photo = flatten_photo(photo)
        assert flat_photo.getpixel((0, 0))[0] < 10  # a green that sRGB has not
        assert np.array_equal(np.asarray(flat_photo), pixels(clean(contents, ".png")))
        assert np.array_equal(np.asarray(flat_photo), np.asarray(flatten_photo(flat_photo)))


@first_alone("k", [2, 1, 3])
def test_copies_with_profiles_keep_the_promise(album, tmp_path, k):
    for path in (tmp_path / "problem" / "photos").iterdir():
        with Image.open(path) as photo:
            photo.load()
        photo.save(path, quality=95, icc_profile=wide_profile())
    album.write_text(album.read_text().replace("top_k = 3", f"top_k = {k}"))
    solve("photo-censor", album, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    scores = score_files(sorted((tmp_path / "clean").iterdir()), load_classifier(tmp_path / "problem" / "places.toml"))
    assert protected_k(Album(scores=scores, true=4)) >= k


def test_does_not_write_copies_that_break_the_promise(album, tmp_path, monkeypatch):
    def make_exposed_copy(contents, suffix):  # an encoder whose colours are those of the true place
        return encode_picture(Image.new("RGB", (320, 240), (255, 200, 0)), "JPEG")

    monkeypatch.setattr("privopt_photo_censor.app.clean.clean", make_exposed_copy)
    with pytest.raises(CertificationError, match=r"clean copies.*0 locations"):
        solve("photo-censor", album, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "clean").exists()


def with_extended_xmp():
    jpeg = encode_picture(Image.new("RGB", (16, 16)), "JPEG")
    segment = b"http://ns.adobe.com/xmp/extension/\0" + b"A" * 32 + struct.pack(">II", len(XMP), 0) + XMP
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + jpeg[2:]


def test_finds_positions_and_films_anywhere(album, tmp_path):
    photos = tmp_path / "problem" / "photos"
    jpeg = encode_picture(Image.new("RGB", (16, 16)), "JPEG")
    (photos / "x.jpg").write_bytes(with_extended_xmp())
    (photos / "film.jpg").write_bytes(jpeg + FILM)
    (photos / "samsung.jpg").write_bytes(jpeg + b"MotionPhoto_Data" + FILM)
    folder_view, _ = look_at_folder(photos)
    assert folder_view.photos_with_position == ("x.jpg",)
    assert [line.partition(":")[0] for line in folder_view.left_out] == ["film.jpg", "samsung.jpg"]
