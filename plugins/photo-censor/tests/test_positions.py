"""Positions in files, by parsers: what each format and program writes, and what merely looks alike."""

from __future__ import annotations

import io
import shutil
import struct

import pytest
from helpers.data import data_path
from PIL import Image, PngImagePlugin

from privopt_photo_censor.app.open_photo import can_read_heif, open_photo
from privopt_photo_censor.app.positions import carries_position

exifread = pytest.importorskip("exifread")

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
META = f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="{RDF}">{{}}</rdf:RDF></x:xmpmeta>'
DJI = 'xmlns:drone-dji="http://www.dji.com/drone-dji/1.0/"'
W3C = 'xmlns:geo="http://www.w3.org/2003/01/geo/wgs84_pos#"'
SHOWN = "<rdf:Description><i:LocationShown><rdf:Bag>{}</rdf:Bag></i:LocationShown></rdf:Description>"
ALONE = {3: "E", 4: (11.0, 53.0, 6.4)}

TELLING = {
    "attribute": '<rdf:Description exif:GPSLatitude="43,28.0N"/>',
    "longitude alone": "<rdf:Description><exif:GPSLongitude>11,53.1E</exif:GPSLongitude></rdf:Description>",
    "drone": f'<rdf:Description {DJI} drone-dji:GpsLatitude="43.46"/>',
    "drone's own spelling": f'<rdf:Description {DJI} drone-dji:GpsLongtitude="11.88"/>',
    "W3C": f'<rdf:Description {W3C} geo:lat="43.46"/>',
    "W3C element": f"<rdf:Description {W3C}><geo:long>11.88</geo:long></rdf:Description>",
    "city": '<rdf:Description photoshop:City="Arezzo"/>',
    "place shown": SHOWN.format("<rdf:li i:City='Rome'/>"),
    "not well-formed": '<rdf:Description geo:lat="43.46">',
}
SILENT = {
    "nothing": "",
    "empty": '<rdf:Description exif:GPSLatitude="" photoshop:City=" "/>',
    "empty list": SHOWN.format("<rdf:li/>"),
    "in a sentence": "<rdf:Description><dc:title>GPSLatitude, city, lat and long</dc:title></rdf:Description>",
    "other words": '<rdf:Description crs:LateralShift="1" xmp:Rating="5" exif:GPSVersionID="2.3.0.0"/>',
}


def encode_picture(kind="JPEG", **options):
    stream = io.BytesIO()
    Image.new("RGB", (16, 12), "red").save(stream, kind, **options)
    return stream.getvalue()


def carries(contents):
    with open_photo(contents) as photo:
        return carries_position(photo, contents)


def exif_of(tags):
    exif = Image.Exif()
    exif[271] = "a camera"
    if tags:
        exif.get_ifd(0x8825).update(tags)
    return exif.tobytes()


def segment(marker, body):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(body) + 2) + body


def with_segments(*segments):
    jpeg = encode_picture()
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-16", "utf-32-le"])
@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_finds_xmp_places_in_any_encoding(kind, encoding):
    for name, body in TELLING.items():
        assert carries(encode_picture(kind, xmp=META.format(body).encode(encoding))), name
    for name, body in SILENT.items():
        assert not carries(encode_picture(kind, xmp=META.format(body).encode(encoding))), name


def test_finds_xmp_of_heic_and_other_prefixes():
    renamed = META.format(TELLING["W3C"]).replace("x:xmpmeta", "any.thing:xmpmeta").replace("rdf:RDF", "r:RDF").encode()
    assert carries(encode_picture(xmp=renamed))
    if can_read_heif():
        assert carries(encode_picture("HEIF", xmp=renamed))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_longitude_alone_is_a_position(kind, tmp_path):
    contents = encode_picture(kind, exif=exif_of(ALONE))
    assert carries(contents)
    assert kind == "WEBP" or "GPS GPSLongitude" in exifread.process_file(io.BytesIO(contents))
    assert not carries(encode_picture(kind, exif=exif_of({0: b"\2\3\0\0"})))
    assert not carries(encode_picture(kind))


def test_reads_a_second_exif_block():
    block = exif_of(ALONE)
    assert carries(with_segments(segment(0xE1, Image.Exif().tobytes()), segment(0xE1, block)))
    assert carries(encode_picture() + block)  # of a second picture after the first
    broken_block = b"Exif\0\0II*\0\x08\0\0\0\x05\0\x25\x88\x04\0\x01\0\0\0\xff\xff\xff\xff"
    assert carries(encode_picture() + broken_block)
    assert not carries(encode_picture() + b"Exif\0\0II*\0 and no more")


@pytest.mark.parametrize(
    ("field", "text", "is_place"),
    [(90, b"Arezzo", True), (101, b"Italy", True), (90, b"  ", False), (120, b"x", False)],
)
def test_finds_iptc_places_by_their_fields(field, text, is_place):
    def record(number, value):
        return bytes([0x1C, 2, number]) + struct.pack(">H", len(value)) + value

    records = record(120, b"a caption \x1c\x02Z\0\x04Rome") + record(field, text)  # a caption that looks like a city
    resource = b"8BIM\x04\x04\0\0" + struct.pack(">I", len(records)) + records + b"\0" * (len(records) % 2)
    assert carries(with_segments(segment(0xED, b"Photoshop 3.0\0" + resource))) is is_place


def test_reads_png_texts_and_films_inside():
    for name, value, is_place in (
        ("exif:GPSLatitude", "43/1, 28/1, 0/1", True),
        ("XML:com.adobe.xmp", META.format(TELLING["W3C"]), True),
        ("XML:com.adobe.xmp", META.format(SILENT["in a sentence"]), False),
        ("Raw profile type xmp", "xmp\n99\n" + META.format(TELLING["drone"]).encode().hex(), True),
        ("Raw profile type iptc", "iptc\n9\n" + b"\x1c\x02\x5a\0\x04Rome".hex(), True),
        ("Title", "a city", False),
    ):
        texts = PngImagePlugin.PngInfo()
        texts.add_text(name, value, zip=True)
        assert carries(encode_picture("PNG", pnginfo=texts)) is is_place, name
    assert carries(encode_picture() + b"\0\0\0\x18ftypmp42" + b"\0\0\0\x1e\xa9xyz\0\x12\x15\xc7+43.4674+011.8851/")
    assert not carries(encode_picture() + b"\0\0\0\x18ftypmp42")


def test_joins_extended_xmp_before_reading():
    packet = META.format('<rdf:Description drone-dji:GpsLatitude="1"/>').encode()
    half = packet.index(b"GpsLat") + 3

    def part(begin, text):
        return segment(
            0xE1,
            b"http://ns.adobe.com/xmp/extension/\0" + b"A" * 32 + struct.pack(">II", len(packet), begin) + text,
        )

    assert carries(with_segments(part(half, packet[half:]), part(0, packet[:half])))


def test_real_photos_carry_their_position(tmp_path):
    for path in data_path("exif_gps").glob("*.jpg"):
        shutil.copyfile(path, tmp_path / path.name)
        assert carries(path.read_bytes())
        with Image.open(path) as photo:
            exif = photo.getexif()
            del exif[0x8825]
            photo.save(tmp_path / path.name, exif=exif)
        contents = (tmp_path / path.name).read_bytes()
        assert not any("GPS" in name for name in exifread.process_file(io.BytesIO(contents), details=False))
        assert not carries(contents)
