"""Models as the user brings them: what they take and return, several at once, and how far one is from another."""

from __future__ import annotations

import csv
import io
import json
from fractions import Fraction

import numpy as np
import pytest
from helpers.albums import write_album, write_onnx
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from privopt.checker import check
from privopt.errors import InputError
from privopt.report.write_report import write_figures, write_geo, write_report
from privopt.run.solve import solve
from privopt.run.verify import load_release, verify
from privopt_photo_censor.album import Album
from privopt_photo_censor.app.classifier import load_classifier, log_softmax
from privopt_photo_censor.app.folder import score_folder
from privopt_photo_censor.classifier_ensemble import jointly, theta
from privopt_photo_censor.rank import protected_k

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


def test_a_model_that_embeds_has_a_table_of_places(tmp_path):
    table = np.random.default_rng(1).normal(0, 1, (4, 6))
    np.save(tmp_path / "table.npy", table)
    model = load_classifier(bring(tmp_path, outputs=6, output='"embedding"', places='"table.npy"', temperature=0.1))
    tensors = [model.tensor(photo()), model.tensor(photo((30, 50)))]
    matrix = np.random.default_rng(len("places")).normal(0, 1, (48, 6)).astype(np.float32)
    raw = np.array([tensor.reshape(-1) @ matrix for tensor in tensors], dtype=np.float64)
    cosines = (raw / np.linalg.norm(raw, axis=1)[:, None]) @ (table / np.linalg.norm(table, axis=1)[:, None]).T
    np.testing.assert_allclose(model.scores(tensors), log_softmax(cosines / 0.1), rtol=1e-4)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"output": '"embedding"'}, "places: found nothing"),
        ({"places": '"table.npy"'}, "places: found a table of places with output = 'logits'"),
        ({"output": '"embedding"', "places": '"other.npy"'}, r"other\.npy.*4"),
        ({"output": '"embedding"', "places": '"zero.npy"'}, r"zero\.npy: row 0"),
        ({"input": ["shorter_side = 3"]}, "shorter_side: found 3, wanted at least width"),
        ({"input": ["shorter_side = 8", 'resize = "stretch"']}, "shorter_side"),
        ({"input": ['interpolation = "magic"']}, "interpolation"),
    ],
)
def test_faults_of_the_spec_name_their_key(tmp_path, lines, said):
    np.save(tmp_path / "table.npy", np.ones((4, 6)))
    np.save(tmp_path / "other.npy", np.ones((3, 6)))
    np.save(tmp_path / "zero.npy", np.zeros((4, 6)))
    with pytest.raises(InputError, match=said):
        load_classifier(bring(tmp_path, **lines))


def test_an_embedding_of_another_length_is_named(tmp_path):
    np.save(tmp_path / "table.npy", np.ones((4, 7)))
    model = load_classifier(bring(tmp_path, outputs=6, output='"embedding"', places='"table.npy"'))
    with pytest.raises(InputError, match=r"shape \(1, 6\), wanted \(photos, 7\)"):
        model.scores([model.tensor(photo())])


# --- several at once --------------------------------------------------------------------------------


def tables(rng, photos, places, count):
    made = [np.log(rng.dirichlet(np.full(places, 0.8), photos)) for _ in range(count)]
    if rng.random() < 0.3:
        made = [np.round(table, 1) for table in made]
    for table in made:
        table[rng.random(table.shape) < rng.choice([0.0, 0.1])] = -np.inf
    return made


@given(st.integers(0, 10**9), st.integers(1, 6), st.integers(2, 6), st.integers(1, 3))
def test_what_protects_jointly_protects_from_each_and_from_every_mixture(seed, photos, places, count):
    rng = np.random.default_rng(seed)
    made, true = tables(rng, photos, places, count), int(rng.integers(places))
    joint = jointly(made, true)
    kept = rng.random(photos) < 0.7
    above = protected_k(Album(scores=joint, true=true), kept)
    for which in ([c] * photos for c in range(count)):
        assert protected_k(Album(scores=np.array([made[c][i] for i, c in enumerate(which)]), true=true), kept) >= above
    mixed = np.array([made[c][i] for i, c in enumerate(rng.integers(0, count, photos))])
    assert protected_k(Album(scores=mixed, true=true), kept) >= above
    finite = np.isfinite(joint) & np.isfinite(joint[:, [true]])
    for i, j in np.argwhere(finite).tolist():
        least = (
            min(
                Fraction(float(t[i, j])) - Fraction(float(t[i, true]))
                for t in made
                if np.isfinite(t[i, j]) and np.isfinite(t[i, true])
            )
            if any(np.isfinite(t[i, j]) and np.isfinite(t[i, true]) for t in made)
            else Fraction(0)
        )
        assert Fraction(float(joint[i, j])) <= least
        assert float(joint[i, j]) >= float(least) - 1e-12


@given(st.integers(0, 10**9), st.integers(1, 6), st.integers(2, 6))
def test_the_calibrated_margin_carries_protection_over(seed, photos, places):
    rng = np.random.default_rng(seed)
    (first, second), true = tables(rng, photos, places, 2), int(rng.integers(places))
    margin = theta(first, second, true)
    if not np.isfinite(margin):
        return
    kept = rng.random(photos) < 0.7
    proxy = Album(scores=first, true=true, margin=margin)
    other = protected_k(Album(scores=second, true=true), kept)
    assert other >= protected_k(proxy, kept) or proxy.hidden
    assert theta(first, first, true) < 1e-9 or np.isneginf(first[:, true]).any()
    assert theta(first, second, true, 0.5) <= margin


def test_theta_says_what_will_not_do():
    with pytest.raises(ValueError, match="share 0"):
        theta(np.zeros((1, 2)), np.zeros((1, 2)), 0, 0.0)
    with pytest.raises(ValueError, match="shapes"):
        theta(np.zeros((1, 2)), np.zeros((2, 2)), 0)


@pytest.fixture
def two(tmp_path):
    """Return an album, its classifier and a second one of the same cells; places have names."""
    problem = write_album(tmp_path)
    rows = (tmp_path / "cells.csv").read_text().splitlines()
    names = [f"{row},Town {number}" for number, row in enumerate(rows[1:])]
    (tmp_path / "cells.csv").write_text("\n".join([rows[0] + ",name", *names]) + "\n")
    other = np.random.default_rng(9).normal(0, 0.6, (192, 12))
    write_model(tmp_path / "other.onnx", other)
    (tmp_path / "other.toml").write_text((tmp_path / "places.toml").read_text().replace("tiny.onnx", "other.onnx"))
    text = problem.read_text().replace(
        'classifier = "places.toml"', 'classifier = "places.toml"\nalso = ["other.toml"]'
    )
    problem.write_text(text.replace("top_k = 3", "deletion_budget = 5"))
    return problem


def test_two_classifiers_through_the_pipeline(two, tmp_path):
    done = solve("photo-censor", two, tmp_path / "out")
    assert done.result.guarantee.scope == "these-classifiers"
    assert "each of these 2 classifiers" in done.result.guarantee.statement
    assert verify(done.folder).verdict == "proved"
    lines = []
    assert check(done.folder, lines.append) == 0, lines
    release = load_release(done.folder).release
    above = done.result.details.facts["protected_k"]
    for name in ("places.toml", "other.toml"):
        alone = score_folder(tmp_path / "photos", tmp_path / name, 4)
        assert protected_k(Album(scores=alone.scores, true=4), release.kept) >= above
    (tmp_path / "cells2.csv").write_text((tmp_path / "cells.csv").read_text().replace("41.0", "41.5"))
    (tmp_path / "other.toml").write_text((tmp_path / "other.toml").read_text().replace("cells.csv", "cells2.csv"))
    with pytest.raises(InputError, match=r"other\.toml: cells: found other cells"):
        solve("photo-censor", two, tmp_path / "out2")


def test_further_classifiers_need_a_folder(tmp_path):
    np.save(tmp_path / "s.npy", np.log([[0.6, 0.4]]))
    (tmp_path / "o.toml").write_text("")
    text = '[photos]\nscores = "s.npy"\nalso = ["o.toml"]\ntrue_location = 0\n[privacy]\ntop_k = 1\n'
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(InputError, match=r"photos\.also"):
        solve("photo-censor", tmp_path / "p.toml", tmp_path / "out")


def test_places_have_names_and_a_map(two, tmp_path):
    done = solve("photo-censor", two, tmp_path / "out")
    rows = list(csv.DictReader(io.StringIO((done.folder / "places.csv").read_text())))
    assert [row["name"] for row in rows] == [f"Town {number}" for number in range(12)]
    page = write_report(done.folder).read_text("utf-8")
    assert "Town 4 (place 4) (true)" in page
    assert "The places on a map" in page
    assert {"map.svg", "map.png"} <= {path.name for path in write_figures(done.folder, tmp_path / "figures")}
    points = json.loads(write_geo(done.folder, tmp_path / "places.geojson").read_text())["features"]
    assert len(points) == 12
    assert [p["properties"]["name"] for p in points if p["properties"]["true"]] == ["Town 4"]
    assert sum(p["properties"]["belief_before"] for p in points) == pytest.approx(1.0)
    (done.folder / "places.csv").write_text((done.folder / "places.csv").read_text().replace("\n5,", "\n6,"))
    with pytest.raises(InputError, match=r"places\.csv"):
        load_release(done.folder)


def test_columns_of_a_table_are_names_of_places(tmp_path):
    (tmp_path / "s.csv").write_text("photo,rome,paris\na,-0.1,-2\nb,-2,-0.2\n")
    (tmp_path / "p.toml").write_text('[photos]\nscores = "s.csv"\ntrue_location = 0\n[privacy]\ntop_k = 1\n')
    done = solve("photo-censor", tmp_path / "p.toml", tmp_path / "out")
    assert "rome (place 0) (true)" in write_report(done.folder).read_text("utf-8")
