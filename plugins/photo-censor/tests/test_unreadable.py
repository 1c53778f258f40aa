"""Photos that cannot be read are listed and left out; the others of the album are solved and copied."""

from __future__ import annotations

import io
import random
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ExifTags, Image

from privopt.errors import InputError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_photo_censor.app.folder import look_at_folder
from privopt_photo_censor.app.open_photo import opened
from privopt_photo_censor.app.picture import flatten_photo


def encoded(kind="JPEG", size=(40, 30), **options):
    out = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(out, kind, **options)
    return out.getvalue()


@pytest.fixture
def album(tmp_path):
    """Return a function that solves a folder of one good photo and others."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good.jpg").write_bytes(encoded())

    def solved(more="", **files):
        for name, contents in files.items():
            (tmp_path / "in" / name.replace("_", ".")).write_bytes(contents)
        (tmp_path / "album.toml").write_text(f'[photos]\nfolder = "in"\n{more}')
        options = Options(copy_to=tmp_path / "clean", force=True)
        return solve("photo-censor", tmp_path / "album.toml", tmp_path / "out", options)

    return solved


def left_out(done):
    return done.result.details.facts["left_out"]


def test_too_many_pixels_name_the_option_that_allows_them(album):
    large = encoded(size=(2000, 600))
    done = album("max_megapixels = 1\n", large_jpg=large)
    assert left_out(done) == ["large.jpg: 1.2 megapixels, more than photos.max_megapixels = 1"]
    assert any("photos.max_megapixels" in line for line in done.warnings)
    assert verify(done.folder).complaints == ()
    done = album("max_megapixels = 1.2\n", large_jpg=large)
    assert left_out(done) == []
    assert len(done.result.details.facts["copies"]) == 2


def test_a_header_that_claims_many_pixels_is_left_out_before_they_are_decoded(album):
    header = struct.pack(">IIBBBBB", 12_000, 9_000, 8, 2, 0, 0, 0)
    contents = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")):
        contents += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    assert left_out(album(s20_png=contents)) == ["s20.png: 108 megapixels, more than photos.max_megapixels = 89"]


def test_pixels_of_16_bits_are_left_out(album):
    out = io.BytesIO()
    Image.fromarray(np.full((9, 9), 3000, np.uint16)).save(out, "PNG")
    (entry,) = left_out(album(odd_png=out.getvalue()))
    assert entry.startswith("odd.png: pixels of more than 8 bits")


def test_an_album_without_a_readable_photo_is_refused_with_the_reasons(tmp_path):
    (tmp_path / "large.jpg").write_bytes(encoded(size=(2000, 600)))
    (tmp_path / "torn.jpg").write_bytes(b"no picture")
    with pytest.raises(InputError) as caught:
        look_at_folder(tmp_path, max_megapixels=1)
    words = str(caught.value)
    assert "large.jpg: expected a smaller photo, or a greater photos.max_megapixels" in words
    assert "torn.jpg: expected a photo" in words


@pytest.mark.parametrize("suffix", ["jpe", "jfif", "JFIF"])
def test_other_suffixes_of_jpegs_are_photos(album, suffix):
    done = album(**{f"b_{suffix}": encoded()})
    assert left_out(done) == []
    assert sorted(done.result.details.facts["copies"]) == ["photo-0001.jpg", "photo-0002.jpg"]


@given(st.randoms(use_true_random=False), st.sampled_from(["JPEG", "PNG", "WEBP"]))
def test_any_damaged_file_is_copied_or_left_out(tmp_path_factory, chance: random.Random, kind):
    folder = tmp_path_factory.mktemp("album", numbered=True)
    (folder / "good.jpg").write_bytes(encoded())
    exif = Image.Exif()
    exif[ExifTags.Base.ImageDescription] = "SECRETWORD"
    contents = bytearray(encoded(kind, exif=exif))
    for _ in range(chance.choice([1, 2, 5])):
        offset = chance.randrange(min(len(contents), 300))
        contents[offset : offset + chance.choice([1, 4])] = chance.choice([b"\xff" * 4, b"\0", b""])
    (folder / "torn.png").write_bytes(bytes(contents))
    seen, _ = look_at_folder(folder)
    assert "good.jpg" in seen.names
    assert ("torn.png" in seen.names) != any(
        entry.startswith("torn.png: ") for entry in seen.left_out if "film" not in entry and "picture" not in entry
    )
    assert "SECRETWORD" not in " ".join(seen.left_out)


def test_a_png_is_not_turned_by_exif_after_its_pixels():
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    contents = encoded("PNG", exif=exif)
    begin = contents.index(b"eXIf") - 4
    end = begin + 12 + int.from_bytes(contents[begin : begin + 4], "big")
    late = contents[:begin] + contents[end:-12] + contents[begin:end] + contents[-12:]
    for file, size in ((contents, (30, 40)), (late, (40, 30))):
        with opened(file) as photo:
            assert flatten_photo(photo).size == size


def test_a_warning_of_its_own_names_unreadable_photos(album):
    done = album(**{f"a{number}_txt": b"notes" for number in range(9)}, torn_jpg=b"no picture")
    assert "1 photo could not be read: torn.jpg: broken" in done.warnings
    assert "and 5 more" in " ".join(done.warnings)
