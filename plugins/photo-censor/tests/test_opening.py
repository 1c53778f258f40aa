"""Files that are no photos: none but the listed decoders see them, nothing is printed, each is one fault."""

from __future__ import annotations

import ast
import io
import random
from pathlib import Path

import pytest
from PIL import EpsImagePlugin, Image

import privopt
import privopt_photo_censor
from privopt.errors import InputError
from privopt_photo_censor.app.open_photo import heif, opened, readable
from privopt_photo_censor.app.picture import flatten_photo

PLUGINS = Path(privopt_photo_censor.__file__).parents[3]


def encoded(kind, **options):
    out = io.BytesIO()
    Image.linear_gradient("L").resize((40, 30)).convert("RGB").save(out, kind, **options)
    return out.getvalue()


def test_postscript_that_is_called_a_photo_starts_no_program(monkeypatch):
    def started(*_, **__):
        raise AssertionError("a program was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", started)
    words = r"a\.jpg: expected .*, got a photo that .* \(no picture, or a broken one\)"
    with pytest.raises(InputError, match=words), readable("a.jpg"), opened(encoded("EPS")) as photo:
        photo.load()


@pytest.mark.parametrize(
    "kind", ["EPS", "TIFF", "BMP", "GIF", "AVIF", "ICO", "JPEG2000", "PCX", "PPM", "SGI", "TGA", "PDF", "DDS"]
)
def test_no_decoder_of_another_format_runs(kind):
    contents = encoded(kind)
    with pytest.raises(InputError, match="no picture, or a broken one"), readable("a.jpg"), opened(contents):
        pass


def test_fault_of_broken_photo_quotes_no_byte_of_it():
    whole = encoded("PNG")
    header, data = whole.index(b"IHDR"), whole.index(b"IDAT")
    broken = [whole[:data] + b"\xff" + b"SeC" + whole[data + 4 :], whole[:header] + b"SeCr" + whole[header + 4 :]]
    broken += [whole[:data] + b"SECR" + whole[data + 4 :], whole[: data + 20] + b"SECRETNO" + whole[data + 28 :]]
    for contents in broken:
        with pytest.raises(InputError) as raised, readable("a.png"), opened(contents) as photo:
            flatten_photo(photo)
        assert "sec" not in str(raised.value).lower()


@pytest.mark.parametrize(
    "root", [Path(privopt.__file__).parent, *sorted(PLUGINS.glob("*/src"))], ids=lambda p: p.parts[-2]
)
def test_every_place_that_opens_a_picture_names_its_formats(root):
    for path in root.rglob("*.py"):
        text = path.read_text("utf-8")
        if "Image" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Image.open"):
                assert "formats" in {keyword.arg for keyword in node.keywords}, f"{path}: {node.lineno}"


def broken_files():
    """Files of every format with a few bytes changed, some of which each decoder stumbles over in its own way."""
    chance = random.Random(5)
    whole = [encoded(kind) for kind in ("JPEG", "PNG", "WEBP")]
    whole += [encoded("HEIF")] if heif() else []
    for _ in range(800):
        contents = bytearray(chance.choice(whole))
        for _ in range(chance.choice([1, 2, 5])):
            place = chance.randrange(min(len(contents), 300))
            contents[place : place + chance.choice([1, 4])] = chance.choice([b"\xff" * 4, b"\0", b""])
        yield bytes(contents)


def test_broken_files_are_faults_and_nothing_is_printed(capfd, recwarn):
    refused = []
    for contents in broken_files():
        try:
            with readable("a.jpg"), opened(contents) as photo:
                flatten_photo(photo)
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > 200
    assert all(
        line.startswith("a.jpg: expected a photo of 8 bits a channel, got a photo that cannot be read (")
        for line in refused
    )
    assert not any(" at 0x" in line for line in refused)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list
