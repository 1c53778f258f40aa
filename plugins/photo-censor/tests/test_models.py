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
from privopt_photo_censor.app.classifier import _to_array, load_classifier

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def write_model(path, matrix):
    """Write a model: the photo's pixels, laid flat, times a matrix: enough to see what a model is given."""
    size, outputs = matrix.shape
    flat = ("Flatten", ["photo"], {}), ("MatMul", ["Flatten", "w"], {})
    write_onnx(path, flat, outputs, image_side=int((size / 3) ** 0.5), w=matrix)


def bring(folder, name="places", outputs=4, **lines):
    """Return a classifier of 4 x 4 pixels; ``lines`` are keys of the TOML, those of its table input after a dot."""
    rng = np.random.default_rng(len(name))
    write_model(folder / f"{name}.onnx", rng.normal(0, 1, (48, outputs)))
    (folder / "cells.csv").write_text("lat,lon,name\n43.5,11.9,Arezzo\n48.9,2.4,Paris\n59.9,10.7,Oslo\n41.9,12.5,\n")
    top = [f'model = "{name}.onnx"', 'cells = "cells.csv"', *(f"{k} = {v}" for k, v in lines.items() if k != "input")]
    inner = ["[input]", "width = 4", "height = 4", *lines.get("input", ())]
    (folder / f"{name}.toml").write_text("\n".join(top + inner) + "\n")
    return folder / f"{name}.toml"


def write_sklearn_model(path, matrix, *, zipmap):
    """Write a model as skl2onnx does: rows of pixels, a label, and probabilities or a map of them for each photo."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    places = matrix.shape[1]
    steps = [
        helper.make_node("MatMul", ["X", "w"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
    ]
    score_output = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", places])
    if zipmap:
        keys = list(range(places))
        steps.append(
            helper.make_node("ZipMap", ["probabilities"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=keys)
        )
        value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
        score_output = helper.make_value_info(
            "maps", helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, value))
        )
    graph = helper.make_graph(
        steps,
        "logistic",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, matrix.shape[0]])],
        [helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]), score_output],
        [numpy_helper.from_array(matrix.astype(np.float32), "w")],
    )
    versions = [helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 2)]
    onnx.save(helper.make_model(graph, opset_imports=versions, ir_version=8), str(path))


@pytest.mark.parametrize("zipmap", [False, True])
def test_reads_models_as_scikit_learn_exports_them(tmp_path, zipmap):
    toml = bring(tmp_path)
    matrix = np.random.default_rng(1).normal(0, 0.1, (48, 4))
    write_model(tmp_path / "places.onnx", matrix)
    photos = [photo(), photo((24, 40)), photo((30, 30))]
    expected = load_classifier(toml)
    log_shares = expected.scores([expected.tensor(picture) for picture in photos])
    write_sklearn_model(tmp_path / "places.onnx", matrix, zipmap=zipmap)
    toml.write_text('output = "probabilities"\n' + toml.read_text())
    model = load_classifier(toml)
    scores = model.scores([model.tensor(picture) for picture in photos])
    np.testing.assert_allclose(scores, log_shares, atol=1e-5)


@pytest.mark.parametrize(
    ("line", "keywords"),
    [
        (
            'output_name = "label"',
            [r"output label of shape \(1,\)", "label, probabilities", r"\(1, 4\): photos, cells"],
        ),
        ('output_name = "place"', ["no output place", "one of label, probabilities"]),
        ("", ["output probabilities, in which", 'output = "probabilities"']),
    ],
)
def test_names_the_output_that_was_read(tmp_path, line, keywords):
    toml = bring(tmp_path)
    write_sklearn_model(tmp_path / "places.onnx", np.ones((48, 4)), zipmap=False)
    toml.write_text(f"{line}\n{toml.read_text()}")
    model = load_classifier(toml)
    for pattern in keywords:
        with pytest.raises(InputError, match=pattern):
            model.scores([model.tensor(photo())])


def test_names_the_input_that_a_model_has(tmp_path):
    toml = bring(tmp_path)
    write_sklearn_model(tmp_path / "places.onnx", np.ones((27, 4)), zipmap=False)
    model = load_classifier(toml)
    with pytest.raises(InputError, match=r"expected one that takes \(48,\) for each photo.*input X has shape .*27"):
        model.scores([model.tensor(photo())])


def photo(size=(40, 24)):
    """Return a picture whose pixels tell where they were: red by column, green by row."""
    width, height = size
    red, green = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([red, green, np.full_like(red, 99)], axis=2).astype(np.uint8))


def test_prepares_photos_as_declared(tmp_path):
    models = {
        "crop": load_classifier(bring(tmp_path)),
        "stretch": load_classifier(bring(tmp_path, input=['resize = "stretch"'])),
        "shorter": load_classifier(bring(tmp_path, input=["shorter_side = 8", 'interpolation = "nearest"'])),
        "bgr": load_classifier(bring(tmp_path, input=['channels = "BGR"', "mean = [0.1, 0.2, 0.3]"])),
    }
    tensors = {name: model.tensor(photo()) for name, model in models.items()}
    assert all(tensor.shape == (3, 4, 4) for tensor in tensors.values())
    spread = {name: float(np.ptp(tensor[0])) for name, tensor in tensors.items()}
    assert spread["stretch"] > spread["crop"] > spread["shorter"] > 0  # the whole width, its middle, half of that
    expected = tensors["crop"][::-1] - np.array([0.1, 0.2, 0.3], dtype=np.float32)[:, None, None]
    np.testing.assert_allclose(tensors["bgr"], expected, atol=1e-6)
    resized = photo().resize((13, 8), Image.Resampling.NEAREST)
    pixels = np.asarray(resized.crop((4, 2, 8, 6)), dtype=np.float32).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(tensors["shorter"], pixels, atol=1e-6)


@pytest.mark.parametrize(
    ("lines", "keywords"),
    [
        ({"input": ["shorter_side = 3"]}, "width and height"),
        ({"input": ["shorter_side = 8", 'resize = "stretch"']}, "shorter_side"),
        ({"input": ['interpolation = "magic"']}, "interpolation"),
    ],
)
def test_faults_of_the_spec_name_their_key(tmp_path, lines, keywords):
    with pytest.raises(InputError, match=keywords):
        load_classifier(bring(tmp_path, **lines))


def test_places_have_names(tmp_path):
    problem = write_album(tmp_path)
    rows = (tmp_path / "cells.csv").read_text().splitlines()
    names = [f"{row},Town {number}" for number, row in enumerate(rows[1:])]
    (tmp_path / "cells.csv").write_text("\n".join([rows[0] + ",name", *names]) + "\n")
    solved = solve("photo-censor", problem, tmp_path / "out")
    release = load_release(solved.folder).release
    assert release.problem.places == tuple(f"Town {number}" for number in range(12))
    assert "Town 4 (true)" in write_report(solved.folder).read_text("utf-8")
    assert verify(solved.folder).verdict == "proved"
    lines = []
    assert check(solved.folder, lines.append) == 0, lines


def test_table_columns_name_places(tmp_path):
    (tmp_path / "s.csv").write_text("photo,rome,paris\na,-0.1,-2\nb,-2,-0.2\n")
    (tmp_path / "p.toml").write_text('[photos]\nscores = "s.csv"\ntrue_location = 0\n[privacy]\ntop_k = 1\n')
    release = solve("photo-censor", tmp_path / "p.toml", tmp_path / "out")
    assert "rome (true)" in write_report(release.folder).read_text("utf-8")


@pytest.mark.parametrize(
    ("names", "expected"),
    [(("Rome", "Oslo"), [0.75, 0.25]), (("", ""), [0.25, 0.75]), (("Rome", "Bonn"), [0.25, 0.75])],
)
def test_labels_that_are_names_of_places_give_their_order(names, expected):
    maps = [{"Oslo": 0.25, "Rome": 0.75}]
    assert _to_array(maps, names).tolist() == [expected]
    assert _to_array([{0: 0.25, 1: 0.75}], names).tolist() == [[0.25, 0.75]]
