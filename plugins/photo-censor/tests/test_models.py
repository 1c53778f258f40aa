"""Models as the user brings them: what they take and return, and the names of their places."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.albums import write_album, write_onnx
from PIL import Image

from privopt.checker import check
from privopt.errors import InputError
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.verify import load_release, verify
from privopt_photo_censor.app.classifier import load_classifier

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def write_model(path, matrix):
    """Write a model: the photo's pixels, laid flat, times a matrix: enough to see what a model is given."""
    size, outputs = matrix.shape
    flat = ("Flatten", ["photo"], {}), ("MatMul", ["Flatten", "w"], {})
    write_onnx(path, flat, outputs, side=int((size / 3) ** 0.5), w=matrix)


def bring(folder, name="places", outputs=4, **lines):
    """Return a classifier of 4 x 4 pixels; ``lines`` are keys of the TOML, those of its table input after a dot."""
    rng = np.random.default_rng(len(name))
    write_model(folder / f"{name}.onnx", rng.normal(0, 1, (48, outputs)))
    (folder / "cells.csv").write_text("lat,lon,name\n43.5,11.9,Arezzo\n48.9,2.4,Paris\n59.9,10.7,Oslo\n41.9,12.5,\n")
    top = [f'model = "{name}.onnx"', 'cells = "cells.csv"', *(f"{k} = {v}" for k, v in lines.items() if k != "input")]
    inner = ["[input]", "width = 4", "height = 4", *lines.get("input", ())]
    (folder / f"{name}.toml").write_text("\n".join(top + inner) + "\n")
    return folder / f"{name}.toml"


def photo(size=(40, 24)):
    """Return a picture whose pixels tell where they were: red by column, green by row."""
    width, height = size
    red, green = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([red, green, np.full_like(red, 99)], axis=2).astype(np.uint8))


def test_what_a_model_is_given(tmp_path):
    given = {
        "crop": load_classifier(bring(tmp_path)),
        "stretch": load_classifier(bring(tmp_path, input=['resize = "stretch"'])),
        "shorter": load_classifier(bring(tmp_path, input=["shorter_side = 8", 'interpolation = "nearest"'])),
        "bgr": load_classifier(bring(tmp_path, input=['channels = "BGR"', "mean = [0.1, 0.2, 0.3]"])),
    }
    made = {name: model.tensor(photo()) for name, model in given.items()}
    assert all(tensor.shape == (3, 4, 4) for tensor in made.values())
    spread = {name: float(np.ptp(tensor[0])) for name, tensor in made.items()}
    assert spread["stretch"] > spread["crop"] > spread["shorter"] > 0  # the whole width, its middle, half of that
    wanted = made["crop"][::-1] - np.array([0.1, 0.2, 0.3], dtype=np.float32)[:, None, None]
    np.testing.assert_allclose(made["bgr"], wanted, atol=1e-6)
    whole = photo().resize((13, 8), Image.Resampling.NEAREST)
    pixels = np.asarray(whole.crop((4, 2, 8, 6)), dtype=np.float32).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(made["shorter"], pixels, atol=1e-6)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"input": ["shorter_side = 3"]}, 'expected at least width and height, with resize = "crop", got 3'),
        ({"input": ["shorter_side = 8", 'resize = "stretch"']}, "shorter_side"),
        ({"input": ['interpolation = "magic"']}, "interpolation"),
    ],
)
def test_faults_of_the_spec_name_their_key(tmp_path, lines, said):
    with pytest.raises(InputError, match=said):
        load_classifier(bring(tmp_path, **lines))


def test_places_have_names(tmp_path):
    problem = write_album(tmp_path)
    rows = (tmp_path / "cells.csv").read_text().splitlines()
    names = [f"{row},Town {number}" for number, row in enumerate(rows[1:])]
    (tmp_path / "cells.csv").write_text("\n".join([rows[0] + ",name", *names]) + "\n")
    done = solve("photo-censor", problem, tmp_path / "out")
    release = load_release(done.folder).release
    assert release.problem.places == tuple(f"Town {number}" for number in range(12))
    assert "Town 4 (place 4) (true)" in write_report(done.folder).read_text("utf-8")
    assert verify(done.folder).verdict == "proved"
    lines = []
    assert check(done.folder, lines.append) == 0, lines


def test_columns_of_a_table_are_names_of_places(tmp_path):
    (tmp_path / "s.csv").write_text("photo,rome,paris\na,-0.1,-2\nb,-2,-0.2\n")
    (tmp_path / "p.toml").write_text('[photos]\nscores = "s.csv"\ntrue_location = 0\n[privacy]\ntop_k = 1\n')
    done = solve("photo-censor", tmp_path / "p.toml", tmp_path / "out")
    assert "rome (place 0) (true)" in write_report(done.folder).read_text("utf-8")
