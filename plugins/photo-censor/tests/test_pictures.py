"""The picture that is scored is the picture that is posted: transparency, depth, profiles, and the copies' own rank."""

from __future__ import annotations

import hashlib
import io
import struct

import numpy as np
import pytest
from helpers.albums import write_album
from PIL import ExifTags, Image, ImageCms

from privopt.errors import CertificationError, InputError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt_photo_censor.album import Album
from privopt_photo_censor.app.clean import clean, clean_copies
from privopt_photo_censor.app.folder import score_folder
from privopt_photo_censor.app.picture import flattened
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
    deep = Image.fromarray(np.full((16, 16), 30000, np.uint16))
    yield ".png", encoded(erased(), "PNG"), 8
    yield ".webp", encoded(erased(), "WEBP", lossless=True, exact=True), 8
    yield ".png", encoded(Image.new("LA", (16, 16), (90, 0)), "PNG"), 16
    yield ".png", encoded(palette, "PNG", transparency=1), 16
    yield ".gif", encoded(palette, "GIF", transparency=1), 16
    yield ".png", encoded(deep, "PNG", transparency=30000), 16


@pytest.mark.parametrize(("suffix", "contents", "width"), list(hidden_files()), ids=range(6))
def test_what_transparency_hides_is_in_no_copy_and_no_score(suffix, contents, width):
    with Image.open(io.BytesIO(contents)) as photo:
        seen = np.asarray(flattened(photo))
    assert (seen[:, :width] == 255).all()
    assert not (seen[:, width:] == 255).any()
    off = abs(pixels(clean(contents, suffix)) - seen)
    assert off.mean() <= (0 if suffix != ".webp" else 8)


@pytest.mark.parametrize(("suffix", "kind"), [(".png", "PNG"), (".tif", "TIFF")])
def test_sixteen_bits_are_scored_as_the_eight_that_they_show(album, tmp_path, suffix, kind):
    folder = tmp_path / "grey"
    folder.mkdir()
    with Image.open(tmp_path / "problem" / "photos" / "beach-03.jpg") as photo:
        grey = np.asarray(photo.convert("L"))
    Image.fromarray(grey).save(folder / "a.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(folder / f"b{suffix}", kind)
    scores = score_folder(folder, tmp_path / "problem" / "places.toml", 4).scores
    assert np.array_equal(scores[0], scores[1])
    assert np.array_equal(pixels(clean((folder / f"b{suffix}").read_bytes(), suffix))[..., 0], grey)


@pytest.mark.parametrize(
    "picture", [np.full((9, 9), 0.5, np.float32), np.full((9, 9), 70000, np.int32)], ids=["floats", "32 bits"]
)
def test_pixels_without_a_scale_are_refused_by_name(album, tmp_path, picture):
    Image.fromarray(picture).save(tmp_path / "problem" / "photos" / "odd.tif")
    with pytest.raises(InputError, match=r"odd\.tif: found .*32 bits.*, wanted a photo of 8 or 16 bits a channel"):
        score_folder(tmp_path / "problem" / "photos", tmp_path / "problem" / "places.toml", 4)
    contents = (tmp_path / "problem" / "photos" / "odd.tif").read_bytes()
    digest = hashlib.sha256(contents).hexdigest()
    with pytest.raises(InputError, match=r"odd\.tif: found a photo that cannot be copied"):
        clean_copies(tmp_path / "problem" / "photos", [("odd.tif", digest)], tmp_path / "clean")


def test_sixteen_bits_where_zero_is_white_are_refused():
    contents = bytearray(encoded(Image.fromarray(np.full((9, 9), 3000, np.uint16)), "TIFF"))
    for entry in range(len(contents) - 12):
        if contents[entry : entry + 8] == struct.pack("<HHI", 262, 3, 1):
            contents[entry + 8] = 0
    with pytest.raises(ValueError, match="0 being white"):
        clean(bytes(contents), ".tif")


def test_copies_are_held_against_each_of_several_classifiers(album, tmp_path):
    folder = tmp_path / "problem"
    text = (folder / "places.toml").read_text()
    (folder / "other.toml").write_text(text.replace("std = [0.15, 0.15, 0.15]", "std = [0.2, 0.15, 0.1]"))
    album.write_text(album.read_text().replace("true_location", 'also = ["other.toml"]\ntrue_location'))
    solve("photo-censor", album, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    for name in ("places.toml", "other.toml"):
        scores = score_folder(tmp_path / "clean", folder / name, 4).scores
        assert protected_k(Album(scores=scores, true=4)) >= 3


def test_colours_of_a_profile_are_scored_as_the_copies_show_them(tmp_path):
    red = Image.new("RGB", (8, 8), (30, 200, 40))
    for picture in (red, red.convert("RGBA"), red.quantize(2)):
        contents = encoded(picture, "PNG", icc_profile=wide_profile())
        with Image.open(io.BytesIO(contents)) as photo:
            seen = flattened(photo)
        assert seen.getpixel((0, 0))[0] < 10  # a green that sRGB has not
        assert np.array_equal(np.asarray(seen), pixels(clean(contents, ".png")))
        assert np.array_equal(np.asarray(seen), np.asarray(flattened(seen)))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_copies_of_photos_with_profiles_keep_the_promise(album, tmp_path, k):
    for path in (tmp_path / "problem" / "photos").iterdir():
        with Image.open(path) as photo:
            photo.load()
        photo.save(path, quality=95, icc_profile=wide_profile())
    album.write_text(album.read_text().replace("top_k = 3", f"top_k = {k}"))
    solve("photo-censor", album, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    scores = score_folder(tmp_path / "clean", tmp_path / "problem" / "places.toml", 4).scores
    assert protected_k(Album(scores=scores, true=4)) >= k


def test_copies_that_break_the_promise_are_not_written(album, tmp_path, monkeypatch):
    def spoilt(contents, suffix, wishes=()):  # an encoder whose colours are those of the true place
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


def with_xmp_of_gif():
    gif = encoded(Image.new("RGB", (16, 16)), "GIF")
    start = 13 + 3 * 2 ** ((gif[10] & 7) + 1)
    extension = b"!\xff\x0bXMP DataXMP" + XMP + b"\x01" + bytes(range(255, -1, -1)) + b"\0\0"
    return gif[:start] + extension + gif[start:]


def test_positions_and_films_are_found_wherever_they_lie_in_the_file(album, tmp_path):
    photos = tmp_path / "problem" / "photos"
    plain = encoded(Image.new("RGB", (16, 16)), "JPEG")
    (photos / "x.jpg").write_bytes(with_extended_xmp())
    (photos / "y.gif").write_bytes(with_xmp_of_gif())
    (photos / "film.jpg").write_bytes(plain + FILM)
    (photos / "samsung.jpg").write_bytes(plain + b"MotionPhoto_Data" + FILM)
    listing = score_folder(photos, tmp_path / "problem" / "places.toml", 4).listing
    assert listing.positioned == ("x.jpg", "y.gif")
    assert listing.left_out == ("film.jpg: the film inside", "samsung.jpg: the film inside")


@pytest.mark.parametrize(("suffix", "kind"), [(".jpg", "JPEG"), (".png", "PNG"), (".webp", "WEBP"), (".avif", "AVIF")])
def test_a_wish_alone_is_kept_and_nothing_that_poses_as_it(suffix, kind):
    exif = Image.Exif()
    exif[ExifTags.Base.DateTime] = "2019:08:01 12:00:00 at home"
    exif.get_ifd(ExifTags.IFD.GPSInfo).update({1: "N", 2: (43.0, 28.0, 2.0), 3: "E", 4: (11.0, 1.0, 1.0), 6: 100.0})
    detail = {ExifTags.Base.DateTimeOriginal: "2019:08:01 12:00:00", ExifTags.Base.DateTimeDigitized: "in Rome"}
    exif.get_ifd(ExifTags.IFD.Exif).update(detail)
    contents = encoded(Image.new("RGB", (16, 16)), kind, exif=exif.tobytes())
    with Image.open(io.BytesIO(clean(contents, suffix, ["position"]))) as copy:
        place = copy.getexif().get_ifd(ExifTags.IFD.GPSInfo)
        assert set(place) == {1, 2, 3, 4}
        assert [float(x) for x in place[2]] == [43.0, 28.0, 2.0]
        assert not copy.getexif().get_ifd(ExifTags.IFD.Exif)
    kept = clean(contents, suffix, ["time"])
    assert b"home" not in kept
    assert b"Rome" not in kept
    with Image.open(io.BytesIO(kept)) as copy:
        assert dict(copy.getexif().get_ifd(ExifTags.IFD.Exif)) == {
            ExifTags.Base.DateTimeOriginal: "2019:08:01 12:00:00"
        }


def test_no_copy_takes_the_name_of_a_photo_that_stays_at_home(tmp_path):
    heif = pytest.importorskip("pillow_heif")
    for name in ("IMG_1.heic", "IMG_2.heic"):
        heif.from_pillow(Image.new("RGB", (64, 64), "red")).save(tmp_path / name)
    (tmp_path / "IMG_2.jpg").mkdir()
    for name in ("IMG_1.jpg", "IMG_2.jpg/x.png"):
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    names = ["IMG_1.heic", "IMG_2.heic", "IMG_2.jpg/x.png"]
    photos = [(name, hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()) for name in names]
    made = clean_copies(tmp_path, photos, tmp_path.parent / f"{tmp_path.name}-out", album=[*names, "IMG_1.jpg"])
    assert [copy.name for copy in made] == ["photo-0001.jpg", "IMG_2.jpg", "photo-0002.png"]
