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
from privopt_photo_censor.app.open_photo import can_read_heif, open_photo, readable
from privopt_photo_censor.app.picture import flatten_photo

PLUGINS = Path(privopt_photo_censor.__file__).parents[3]


def encode_picture(kind, **options):
    stream = io.BytesIO()
    Image.linear_gradient("L").resize((40, 30)).convert("RGB").save(stream, kind, **options)
    return stream.getvalue()


def test_postscript_starts_no_program(monkeypatch):
    def fail_on_start(*_, **__):
        raise AssertionError("a program was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", fail_on_start)
    words = r"a\.jpg: expected .*, got a photo that .* \(no picture, or a broken one\)"
    with pytest.raises(InputError, match=words), readable("a.jpg"), open_photo(encode_picture("EPS")) as photo:
        photo.load()


@pytest.mark.parametrize(
    "kind", ["EPS", "TIFF", "BMP", "GIF", "AVIF", "ICO", "JPEG2000", "PCX", "PPM", "SGI", "TGA", "PDF", "DDS"]
)
def test_runs_no_decoder_of_another_format(kind):
    contents = encode_picture(kind)
    with pytest.raises(InputError, match="no picture, or"), readable("a.jpg"), open_photo(contents):
        pass


def test_fault_of_broken_photo_quotes_nothing():
    valid_png = encode_picture("PNG")
    header, data = valid_png.index(b"IHDR"), valid_png.index(b"IDAT")
    broken_files_of_png = [
        valid_png[:data] + b"\xff" + b"SeC" + valid_png[data + 4 :],
        valid_png[:header] + b"SeCr" + valid_png[header + 4 :],
    ]
    broken_files_of_png += [
        valid_png[:data] + b"SECR" + valid_png[data + 4 :],
        valid_png[: data + 20] + b"SECRETNO" + valid_png[data + 28 :],
    ]
    for contents in broken_files_of_png:
        with pytest.raises(InputError) as excinfo, readable("a.png"), open_photo(contents) as photo:
            flatten_photo(photo)
        assert "sec" not in str(excinfo.value).lower()


@pytest.mark.parametrize(
    "root", [Path(privopt.__file__).parent, *sorted(PLUGINS.glob("*/src"))], ids=lambda p: p.parts[-2]
)
def test_every_opening_names_its_formats(root):
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
    valid_files = [encode_picture(kind) for kind in ("JPEG", "PNG", "WEBP")]
    valid_files += [encode_picture("HEIF")] if can_read_heif() else []
    for _ in range(800):
        contents = bytearray(chance.choice(valid_files))
        for _ in range(chance.choice([1, 2, 5])):
            offset = chance.randrange(min(len(contents), 300))
            contents[offset : offset + chance.choice([1, 4])] = chance.choice([b"\xff" * 4, b"\0", b""])
        yield bytes(contents)


def test_broken_files_are_silent_faults(capfd, recwarn):
    messages = []
    for contents in broken_files():
        try:
            with readable("a.jpg"), open_photo(contents) as photo:
                flatten_photo(photo)
        except InputError as error:
            messages.append(str(error))
    assert len(messages) > 200
    assert all(line.startswith("a.jpg: ") and "cannot be read" in line for line in messages)
    assert not any(" at 0x" in line for line in messages)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list
