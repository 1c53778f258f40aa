"""Photos that cannot be read are listed and left out; the others of the album are solved and copied."""

from __future__ import annotations

import io
import random
import struct
import zlib

import numpy as np
import pytest
from helpers.mentions import assert_mentions
from hypothesis import given
from hypothesis import strategies as st
from PIL import ExifTags, Image

from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_photo_censor.app.folder import look_at_folder
from privopt_photo_censor.app.open_photo import open_photo
from privopt_photo_censor.app.picture import flatten_photo


def encode_picture(kind="JPEG", size=(40, 30), **options):
    stream = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(stream, kind, **options)
    return stream.getvalue()


@pytest.fixture
def album(tmp_path):
    """Return a function that solves a folder of one good photo and others."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good.jpg").write_bytes(encode_picture())

    def solve_album(settings="", **files):
        for name, contents in files.items():
            (tmp_path / "in" / name.replace("_", ".")).write_bytes(contents)
        (tmp_path / "album.toml").write_text(f'[photos]\nfolder = "in"\n{settings}')
        options = Options(copy_to=tmp_path / "clean", force=True)
        return solve("photo-censor", tmp_path / "album.toml", tmp_path / "out", options)

    return solve_album


def left_out(release):
    return release.result.details.facts["left_out"]


def test_large_photos_name_the_option(album):
    large = encode_picture(size=(2000, 600))
    release = album("max_megapixels = 1\n", large_jpg=large)
    assert_mentions(" ".join(left_out(release)), "large.jpg", "1.2 megapixels", "max_megapixels = 1")
    assert any("photos.max_megapixels" in line for line in release.warnings)
    assert verify(release.folder).complaints == ()
    release = album("max_megapixels = 1.2\n", large_jpg=large)
    assert left_out(release) == []
    assert len(release.result.details.facts["copies"]) == 2


def test_huge_header_is_left_out_undecoded(album):
    header = struct.pack(">IIBBBBB", 12_000, 9_000, 8, 2, 0, 0, 0)
    contents = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")):
        contents += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    assert_mentions(" ".join(left_out(album(s20_png=contents))), "s20.png", "108 megapixels", "max_megapixels = 89")


def test_leaves_out_16_bit_pixels(album):
    stream = io.BytesIO()
    Image.fromarray(np.full((9, 9), 3000, np.uint16)).save(stream, "PNG")
    (entry,) = left_out(album(odd_png=stream.getvalue()))
    assert_mentions(entry, "odd.png", "8 bits")


def test_album_without_readable_photo_names_reasons(tmp_path):
    (tmp_path / "large.jpg").write_bytes(encode_picture(size=(2000, 600)))
    (tmp_path / "torn.jpg").write_bytes(b"no picture")
    with pytest.raises(InputError) as excinfo:
        look_at_folder(tmp_path, max_megapixels=1)
    words = str(excinfo.value)
    assert_mentions(words, "large.jpg", "photos.max_megapixels")
    assert "torn.jpg: expected" in words


@pytest.mark.parametrize("suffix", ["jpe", "jfif", "JFIF"])
def test_jpegs_may_have_other_suffixes(album, suffix):
    release = album(**{f"b_{suffix}": encode_picture()})
    assert left_out(release) == []
    assert sorted(release.result.details.facts["copies"]) == ["photo-0001.jpg", "photo-0002.jpg"]


@given(st.randoms(use_true_random=False), st.sampled_from(["JPEG", "PNG", "WEBP"]))
def test_damaged_files_are_copied_or_left_out(tmp_path_factory, chance: random.Random, kind):
    folder = tmp_path_factory.mktemp("album", numbered=True)
    (folder / "good.jpg").write_bytes(encode_picture())
    exif = Image.Exif()
    exif[ExifTags.Base.ImageDescription] = "SECRETWORD"
    contents = bytearray(encode_picture(kind, exif=exif))
    for _ in range(chance.choice([1, 2, 5])):
        offset = chance.randrange(min(len(contents), 300))
        contents[offset : offset + chance.choice([1, 4])] = chance.choice([b"\xff" * 4, b"\0", b""])
    (folder / "torn.png").write_bytes(bytes(contents))
    folder_view, _ = look_at_folder(folder)
    assert "good.jpg" in folder_view.names
    assert ("torn.png" in folder_view.names) != any(
        entry.startswith("torn.png: ")
        for entry in folder_view.left_out
        if "film" not in entry and "picture" not in entry
    )
    assert "SECRETWORD" not in " ".join(folder_view.left_out)


def test_ignores_orientation_after_the_pixels():
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    contents = encode_picture("PNG", exif=exif)
    begin = contents.index(b"eXIf") - 4
    end = begin + 12 + int.from_bytes(contents[begin : begin + 4], "big")
    late_exif = contents[:begin] + contents[end:-12] + contents[begin:end] + contents[-12:]
    for file, size in ((contents, (30, 40)), (late_exif, (40, 30))):
        with open_photo(file) as photo:
            assert flatten_photo(photo).size == size


def test_warns_of_unreadable_photos_by_name(album):
    release = album(**{f"a{number}_txt": b"notes" for number in range(9)}, torn_jpg=b"no picture")
    assert any("torn.jpg: broken" in line for line in release.warnings)
    assert "and 5 more" in " ".join(release.warnings)
