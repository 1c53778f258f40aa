"""No message of an album shows what its photos tell: texts, positions, or bytes of broken files."""

from __future__ import annotations

import io
import itertools
import struct
import zlib

import pytest
from helpers.secret_values import PROPERTY, SENTINEL, run_command
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image, PngImagePlugin

from privopt.command.cli import cli

COORDINATES = f"41.{SENTINEL}, 9.{SENTINEL}"
XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:exif="http://ns.adobe.com/exif/1.0/" exif:GPSLatitude="41,{}N" exif:UserComment="{}"/>'
    "</rdf:RDF></x:xmpmeta>"
)


def make_picture(kind: str, **options) -> bytes:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((24, 16)).convert("RGB").save(out, kind, **options)
    return out.getvalue()


def make_exif(text: str) -> Image.Exif:
    exif = Image.Exif()
    exif[ExifTags.Base.ImageDescription] = text
    exif[ExifTags.Base.DateTime] = text
    gps = exif.get_ifd(ExifTags.IFD.GPSInfo)
    gps[ExifTags.GPS.GPSLatitudeRef], gps[ExifTags.GPS.GPSLatitude] = "N", (41.0, 0.0, int(SENTINEL) / 1e8)
    gps[ExifTags.GPS.GPSLongitudeRef], gps[ExifTags.GPS.GPSLongitude] = "E", (9.0, 0.0, int(SENTINEL) / 1e8)
    gps[ExifTags.GPS.GPSAreaInformation] = text.encode()
    return exif


def make_png(text: str) -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", text)
    info.add_text("Raw profile type exif", f"\nexif\n      {len(text)}\n{text}", zip=True)
    info.add_itxt("XML:com.adobe.xmp", XMP.format(text, text))
    return make_picture("PNG", pnginfo=info)


def make_segment(text: str) -> bytes:
    """Return a JPEG with the text in a comment, in IPTC, and after its end."""
    contents, data = make_picture("JPEG"), text.encode()
    iptc = b"\x1c\x02\x5a" + struct.pack(">H", len(data)) + data
    block = b"Photoshop 3.0\x008BIM\x04\x04\0\0" + struct.pack(">I", len(iptc)) + iptc
    segments = b"".join(
        bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body
        for marker, body in ((0xFE, data), (0xED, block))
    )
    return contents[:2] + segments + contents[2:] + data


MAKERS = {
    "exif.jpg": lambda text: make_picture("JPEG", exif=make_exif(text)),
    "exif.webp": lambda text: make_picture("WEBP", exif=make_exif(text), xmp=XMP.format(text, text).encode()),
    "exif.png": lambda text: make_picture("PNG", exif=make_exif(text)),
    "texts.png": make_png,
    "segments.jpg": make_segment,
    "unknown.png": lambda text: make_picture("PNG")[:-12] + struct.pack(">I", len(text)) + f"teXt{text}".encode(),
}


def spoil(contents: bytes, draw) -> bytes:
    """Return a file as it is, cut short, with a byte changed, or with its sums made right after a change."""
    way = draw(st.sampled_from(["whole", "cut", "changed", "doubled", "mended"]))
    offset = draw(st.integers(0, len(contents) - 1))
    if way == "cut":
        return contents[:offset]
    if way == "doubled":
        return contents[:offset] + contents[max(0, offset - 40) :]
    if way in ("changed", "mended"):
        changed = contents[:offset] + bytes([contents[offset] ^ draw(st.integers(1, 255))]) + contents[offset + 1 :]
        return mend_png(changed) if way == "mended" else changed
    return contents


def mend_png(contents: bytes) -> bytes:
    """Return a PNG with right sums of its chunks, as far as they can be walked."""
    if not contents.startswith(b"\x89PNG\r\n\x1a\n"):
        return contents
    mended, offset = contents[:8], 8
    while offset + 12 <= len(contents):
        size = int.from_bytes(contents[offset : offset + 4], "big")
        body = contents[offset + 4 : offset + 8 + size]
        mended += contents[offset : offset + 4] + body + struct.pack(">I", zlib.crc32(body))
        offset += 12 + size
    return mended


@pytest.fixture(scope="module")
def new_folder(tmp_path_factory):
    numbers, root = itertools.count(), tmp_path_factory.mktemp("albums")

    def make():
        folder = root / str(next(numbers))
        (folder / "in").mkdir(parents=True)
        return folder

    return make


def check_album(folder, draw):
    for name, make in MAKERS.items():
        text = draw(st.sampled_from([SENTINEL, COORDINATES, f"Via {SENTINEL} é", f"{SENTINEL}\x1b[31m"]))
        (folder / "in" / name).write_bytes(spoil(make(text), draw))
    (folder / "in" / "good.jpg").write_bytes(make_picture("JPEG"))
    (folder / "album.toml").write_text('[photos]\nfolder = "in"\n')
    release, copies = folder / "out", folder / "copies"
    for options in ([], ["--copy-to", copies, "--force"]):
        code, shown = run_command(cli, "solve", "photo-censor", folder / "album.toml", "--out", release, *options)
        assert code == 0, shown
        assert SENTINEL not in shown
        for command in ("verify", "report"):
            assert SENTINEL not in run_command(cli, command, release)[1]
    for copy in copies.iterdir():
        assert SENTINEL.encode() not in copy.read_bytes()


@PROPERTY
@given(data=st.data())
def test_messages_of_an_album_show_nothing_of_its_photos(new_folder, data):
    check_album(new_folder(), data.draw)


@pytest.mark.slow
@settings(PROPERTY, max_examples=100)
@given(data=st.data())
def test_messages_of_many_albums_show_nothing_of_their_photos(new_folder, data):
    check_album(new_folder(), data.draw)


@pytest.mark.parametrize("more", ["", "[privacy]\ntop_k = 1\n"])
@pytest.mark.parametrize("photos", ['folder = "in"', 'scores = "s.csv"'])
def test_true_location_is_not_repeated(new_folder, photos, more):
    folder = new_folder()
    (folder / "in" / "good.jpg").write_bytes(make_picture("JPEG"))
    (folder / "s.csv").write_text("a,b\n-1,-2\n")
    (folder / "album.toml").write_text(f"[photos]\n{photos}\ntrue_location = {SENTINEL}\n{more}")
    code, shown = run_command(cli, "solve", "photo-censor", folder / "album.toml", "--out", folder / "out")
    assert code == 2
    assert "true_location" in shown or "privacy" in shown
    assert SENTINEL not in shown
