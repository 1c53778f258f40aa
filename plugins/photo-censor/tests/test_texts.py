"""Every text that a photo carries is listed with its words, whatever field of whatever format it is in."""

from __future__ import annotations

import io
import stat
import struct
import zlib

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ExifTags, Image, PngImagePlugin

from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_photo_censor.app.open_photo import can_read_heif, open_photo
from privopt_photo_censor.app.texts import list_texts

XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:lr="http://ns.adobe.com/lightroom/1.0/" '
    'xmlns:mwg-rs="http://www.metadataworkinggroup.com/schemas/regions/" xmlns:q="urn:of-somebody" {}>{}'
    "</rdf:Description></rdf:RDF></x:xmpmeta>"
)


def picture(kind="JPEG", **options):
    stream = io.BytesIO()
    Image.linear_gradient("L").resize((24, 16)).convert("RGB").save(stream, kind, **options)
    return stream.getvalue()


def exif_with(tag, value, directory=None):
    exif = Image.Exif()
    (exif if directory is None else exif.get_ifd(directory))[tag] = value
    return exif


def escape_xml(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_with(*chunks):
    contents = picture("PNG")
    return contents[:-12] + b"".join(chunks) + contents[-12:]


def jpeg_with(marker, data):
    contents = picture()
    return contents[:2] + bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data + contents[2:]


def iptc(number, text):
    data = text.encode()
    records = b"\x1c\x02\x00\x00\x02\x00\x02" + bytes((0x1C, 2, number)) + struct.pack(">H", len(data)) + data
    resource = b"8BIM\x04\x04\0\0" + struct.pack(">I", len(records)) + records + b"\0" * (len(records) % 2)
    return b"Photoshop 3.0\0" + resource


def webp_with(kind, data):
    contents = picture("WEBP")
    body = contents[8:] + kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def raw_profile(kind, data):
    text = PngImagePlugin.PngInfo()
    text.add_text(f"Raw profile type {kind}", f"\n{kind}\n{len(data):8d}\n{data.hex()}\n", zip=True)
    return picture("PNG", pnginfo=text)


def xmp_with(text, is_element=True):
    element = f"<dc:title><rdf:Alt><rdf:li xml:lang='x-default'>{escape_xml(text)}</rdf:li></rdf:Alt></dc:title>"
    return (XMP.format("", element) if is_element else XMP.format(f'q:unknown="{escape_xml(text)}"', "")).encode()


def faces(text):
    region = f'<rdf:li><rdf:Description mwg-rs:Name="{escape_xml(text)}" mwg-rs:Type="Face"/></rdf:li>'
    return XMP.format("", f"<mwg-rs:RegionList><rdf:Bag>{region}</rdf:Bag></mwg-rs:RegionList>").encode()


def second_picture(text):
    return picture() + jpeg_with(0xFE, text.encode())


EXIF_FIELDS = {
    "description": 0x010E, "artist": 0x013B, "copyright": 0x8298, "host": 0x013C, "document": 0x010D, "unknown": 0xFDE8,
}  # fmt: skip
PLACES = {f"exif {name}": lambda text, tag=tag: picture(exif=exif_with(tag, text)) for name, tag in EXIF_FIELDS.items()}
PLACES |= {
    f"exif of {kind}": lambda text, kind=kind: picture(kind, exif=exif_with(0x010E, text)) for kind in ("PNG", "WEBP")
}
PLACES |= {
    f"exif {name}": lambda text, tag=tag: picture(exif=exif_with(tag, text.encode("utf-16-le")))
    for name, tag in {
        "title": 0x9C9B,
        "comment": 0x9C9C,
        "author": 0x9C9D,
        "keywords": 0x9C9E,
        "subject": 0x9C9F,
    }.items()
}
PLACES |= {
    f"user comment {code}": lambda text, code=code, form=form: picture(
        exif=exif_with(0x9286, code.ljust(8, b"\0") + text.encode(form), ExifTags.IFD.Exif)
    )
    for code, form in ((b"ASCII", "utf-8"), (b"UNICODE", "utf-16-le"), (b"UNICODE", "utf-16-be"), (b"", "utf-8"))
}
PLACES |= {
    "owner": lambda text: picture(exif=exif_with(0xA430, text, ExifTags.IFD.Exif)),
    "area": lambda text: picture(exif=exif_with(28, b"ASCII\0\0\0" + text.encode(), ExifTags.IFD.GPSInfo)),
    "comment": lambda text: jpeg_with(0xFE, text.encode()),
    "two comments": lambda text: jpeg_with(0xFE, text.encode()).replace(b"\xff\xda", b"\xff\xfe\0\5abc\xff\xda", 1),
    "segment": lambda text: jpeg_with(0xEC, b"Ducky\0\1" + text.encode()),
    "picture 2": second_picture,
    "after a JPEG": lambda text: picture() + text.encode(),
    "after a PNG": lambda text: picture("PNG") + b"\0\0" + text.encode(),
    "after a WebP": lambda text: picture("WEBP") + text.encode("utf-16"),
    "tEXt": lambda text: png_with(chunk(b"tEXt", b"Comment\0" + text.encode("latin-1", "xmlcharrefreplace"))),
    "two tEXt": lambda text: png_with(chunk(b"iTXt", b"A\0\0\0\0\0" + text.encode()), chunk(b"tEXt", b"A\0another")),
    "zTXt": lambda text: png_with(chunk(b"zTXt", b"Title\0\0" + zlib.compress(text.encode()))),
    "iTXt": lambda text: png_with(chunk(b"iTXt", b"T\0\1\0it\0\0" + zlib.compress(text.encode()))),
    "private chunk": lambda text: png_with(chunk(b"noTe", b"\1\2" + text.encode())),
    "late eXIf": lambda text: png_with(chunk(b"eXIf", exif_with(0x010E, text).tobytes()[6:])),
    "WebP chunk": lambda text: webp_with(b"NOTE", text.encode()),
    "raw profile iptc": lambda text: raw_profile("iptc", iptc(120, text)[14:]),
    "raw profile 8bim": lambda text: raw_profile("8bim", iptc(120, text)[14:]),
    "raw profile xmp": lambda text: raw_profile("xmp", xmp_with(text)),
    "raw profile exif": lambda text: raw_profile("exif", exif_with(0x010E, text).tobytes()),
}
PLACES |= {
    f"IPTC {number}": lambda text, n=number: jpeg_with(0xED, iptc(n, text)) for number in (5, 25, 80, 90, 105, 120, 231)
}
PLACES |= {f"XMP of {kind}": lambda text, kind=kind: picture(kind, xmp=xmp_with(text)) for kind in ("JPEG", "WEBP")}
PLACES |= {
    "XMP attribute": lambda text: picture(xmp=xmp_with(text, is_element=False)),
    "XMP faces": lambda text: picture(xmp=faces(text)),
    "XMP of PNG": lambda text: png_with(chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp_with(text))),
    "XMP in UTF-16": lambda text: picture(xmp=xmp_with(text).decode().encode("utf-16-le")),
    "broken XMP": lambda text: picture(xmp=xmp_with(text).replace(b"</dc:title>", b"")),
}
if can_read_heif():
    PLACES |= {
        "XMP of HEIF": lambda text: picture("HEIF", xmp=xmp_with(text)),
        "Exif of HEIF": lambda text: picture("HEIF", exif=exif_with(0x010E, text).tobytes()),
        "after a HEIF": lambda text: picture("HEIF") + text.encode(),
        "box of a HEIF": lambda text: b"".join(
            (picture("HEIF"), struct.pack(">I", 8 + len(text.encode())), b"free", text.encode())
        ),
    }  # fmt: skip

WORDS = st.text(st.sampled_from("abcdefgilmnorstuvz àéüßñĐ"), min_size=3, max_size=12).filter(str.strip)
TEXTS = st.tuples(WORDS, st.integers(1, 99)).map(lambda pair: f"Via {' '.join(pair[0].split())} {pair[1]}, Arezzo")


def texts_in(contents):
    with open_photo(contents) as photo:
        photo.load()
        return list_texts(photo, contents)


@pytest.mark.parametrize("container", PLACES)
def test_lists_a_text_in_any_place(container):
    text = "Our house, Via Roma 3, Arezzo"
    assert any(text in listed_text.value for listed_text in texts_in(PLACES[container](text))), texts_in(
        PLACES[container](text)
    )


@given(st.sampled_from(sorted(PLACES)), TEXTS)
def test_lists_any_text(container, text):
    if container in ("tEXt", "owner") or container.startswith(("exif ", "raw profile exif", "late", "Exif")):
        text = text.encode("ascii", "ignore").decode()  # Pillow writes texts of Exif in ASCII
    all_texts = " ".join(listed_text.value for listed_text in texts_in(PLACES[container](text)))
    assert " ".join(text.split()) in all_texts


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_technical_metadata_is_no_text(kind):
    exif = exif_with(0x010F, "ACME")
    exif.update({0x0110: "C 1", 0x0131: "Program 1.2", 0x0132: "2025:08:14 18:00:00"})
    exif.get_ifd(ExifTags.IFD.Exif).update(
        {36864: b"0230", 36867: "2025:08:14 18:00:00", 37121: b"\1\2\3\0", 42036: "X 1"}
    )
    xmp = XMP.format('xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmp:CreatorTool="Program" xmp:Rating="3"', "").encode()
    options = {"xmp": xmp} if kind != "PNG" else {}
    assert texts_in(picture(kind, exif=exif, **options)) == ()


def test_lists_other_data_by_size():
    note = picture(exif=exif_with(0x927C, bytes(range(256)), ExifTags.IFD.Exif))
    film = picture() + b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + bytes(1000)
    binary = picture("PNG") + bytes(range(1, 9))
    for contents, words in ((note, "MakerNote: 256 bytes"), (film, "a film"), (binary, "8 bytes")):
        (text,) = texts_in(contents)
        assert words in str(text)
        assert not text.is_read


def test_long_texts_are_cut_and_escaped():
    (text,) = texts_in(picture() + b"\x1b[31m" + b"word " * 1000)
    assert "\x1b" not in text.value
    assert text.value.endswith("characters more)")


@pytest.fixture
def album(tmp_path):
    (tmp_path / "in").mkdir()
    for name, container in (("a.jpg", "exif description"), ("b.jpg", "comment"), ("c.png", "tEXt")):
        text = "lat=43.4674 lon=11.8851" if name == "b.jpg" else "Our house, Via Roma 3, Arezzo"
        (tmp_path / "in" / name).write_bytes(PLACES[container](text))
    (tmp_path / "in" / "d.jpg").write_bytes(picture())
    note = exif_with(0x927C, bytes(range(256)), ExifTags.IFD.Exif)
    (tmp_path / "in" / "e.jpg").write_bytes(picture(exif=note))
    (tmp_path / "album.toml").write_text('[photos]\nfolder = "in"\n')
    return tmp_path


def test_report_and_table_list_the_texts(album):
    release = solve("photo-censor", album / "album.toml", album / "out", Options())
    table = pl.read_csv(release.folder / "metadata.csv")
    assert table["place"].to_list() == [0, 1, 0, 0, 0]
    assert [bool(text) for text in table["texts"].to_list()] == [True, True, True, False, False]
    page = write_report(release.folder).read_text()
    assert page.count("Via Roma 3,") >= 4
    assert page.count("reveals no place") == 1
    assert "reveal a position" not in page
    assert "1 carries data" in page
    assert release.result.details.facts["with_text"] == ["a.jpg", "b.jpg", "c.png"]
    (warning,) = [line for line in release.warnings if "carry texts" in line]
    assert "a.jpg" in warning
    assert verify(release.folder).complaints == ()


def test_texts_stay_in_the_private_folder(album):
    release = solve("photo-censor", album / "album.toml", album / "out", Options(copy_to=album / "clean"))
    files = [path for path in (*release.folder.rglob("*"), *(album / "clean").iterdir()) if path.is_file()]
    holders = [path.name for path in files if b"Via Roma" in path.read_bytes()]
    assert holders == ["metadata.csv"]
    assert "Via Roma" not in " ".join([*release.warnings, *release.meaning])
    assert stat.S_IMODE(release.folder.stat().st_mode) & 0o077 == 0
