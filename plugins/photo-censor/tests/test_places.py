"""From photos of known places to a classifier, an album and copies.

With a tiny model of their own making, and with the one that PRIVOPT_PLACE_MODEL names (the TOML beside a model that
embeds, as ``places`` takes it).
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.albums import write_onnx
from helpers.mended_sums import mend
from PIL import ExifTags, Image

from privopt.errors import DoesNotHoldError, InputError, UsageError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_photo_censor.app.classifier import load_classifier
from privopt_photo_censor.app.copies import recount
from privopt_photo_censor.app.places import place_table
from privopt_photo_censor.command import cli

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

TOWNS = {
    "Arezzo": (43.47, 11.88, (170, 130, 90)),
    "Bergen": (60.39, 5.32, (90, 110, 140)),
    "Nice": (43.70, 7.27, (120, 160, 210)),
    "Split": (43.51, 16.44, (200, 200, 190)),
}
HEAD = 'model = "{model}"\ncells = "cells.csv"\noutput = "embedding"\nplaces = "places.npy"\n'
INPUT = "[input]\nwidth = 16\nheight = 16\n"


def write_colours(path: Path) -> None:
    """Mean colour of each quarter of a picture: 12 numbers."""
    quarters = "AveragePool", ["photo"], {"kernel_shape": [8, 8], "strides": [8, 8]}
    write_onnx(path, [quarters, ("Flatten", ["AveragePool"], {})], 12, side=16)


def paint(path: Path, town: str, rng: np.random.Generator, *, gps: bool = True) -> None:
    lat, lon, colour = TOWNS[town]
    sky = np.array([110, 170, 230]) * rng.uniform(0.8, 1.1)
    pixels = np.where(np.arange(48)[:, None, None] < 20, sky, np.array(colour) * rng.uniform(0.9, 1.1))
    pixels = np.clip(pixels + rng.normal(0, 20, (48, 64, 3)), 0, 255).astype(np.uint8)
    exif = Image.Exif()
    if gps:
        place = {1: "N", 2: (lat + rng.normal(0, 0.01), 0.0, 0.0), 3: "E", 4: (lon, 0.0, 0.0)}
        exif.get_ifd(ExifTags.IFD.GPSInfo).update(place)
    Image.fromarray(pixels).save(path, quality=90, exif=exif)


@pytest.fixture(params=["tiny", "named"])
def spec(request, tmp_path):
    """Return the TOML beside a model that embeds; a table of places is still to be written."""
    if request.param == "tiny":
        write_colours(tmp_path / "eye.onnx")
        more = (
            "temperature = 0.05\n[input]\nwidth = 16\nheight = 16\nmean = [0.5, 0.5, 0.5]\nstd = [0.25, 0.25, 0.25]\n"
        )
        (tmp_path / "places.toml").write_text(HEAD.format(model="eye.onnx") + more)
        return tmp_path / "places.toml"
    named = os.environ.get("PRIVOPT_PLACE_MODEL")
    if not named:
        pytest.skip("PRIVOPT_PLACE_MODEL names no model: 3 tests with one that the user brings")
    for path in Path(named).parent.iterdir():
        if path.suffix in (".onnx", ".data"):
            shutil.copyfile(path, tmp_path / path.name)
    shutil.copyfile(named, tmp_path / "places.toml")
    return tmp_path / "places.toml"


@pytest.fixture
def references(tmp_path):
    """Five photos of each town, with their positions."""
    rng = np.random.default_rng(5)
    for town in TOWNS:
        (tmp_path / "known" / town).mkdir(parents=True)
        for number in range(5):
            paint(tmp_path / "known" / town / f"{number}.jpg", town, rng)
    return tmp_path / "known"


def run(*arguments):
    return CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)


def album(folder: Path, photos: int = 8) -> Path:
    """Return an album of Arezzo, whose place shall not be the best guess."""
    rng = np.random.default_rng(7)
    (folder / "album").mkdir()
    for number in range(photos):
        paint(folder / "album" / f"{number}.jpg", "Arezzo" if number < photos - 2 else "Split", rng, gps=number == 0)
    (folder / "album.toml").write_text(
        '[photos]\nfolder = "album"\nclassifier = "places.toml"\ntrue_location = 0\n[privacy]\ndeletion_budget = 5\n'
    )
    return folder / "album.toml"


def test_photos_of_known_places_make_a_classifier(spec, references):
    done = run("places", spec, references)
    assert done.exit_code == 0, done.output
    assert "Arezzo: 5 photos" in done.output
    assert "of 20" in done.output
    model = load_classifier(spec)
    assert model.cells.names == tuple(TOWNS)
    assert np.abs(model.cells.centres() - [[lat, lon] for lat, lon, _ in TOWNS.values()]).max() < 0.05
    assert np.allclose(np.linalg.norm(model.places, axis=1), 1.0)
    rng, right = np.random.default_rng(9), 0
    for place, town in enumerate(TOWNS):
        paint(references / "new.jpg", town, rng)
        with Image.open(references / "new.jpg") as photo:
            right += int(model.scores([model.tensor(photo)]).argmax()) == place
    assert right >= 2  # chance is 1 of 4; the tiny model, whose eyes fit, sees them all
    again = run("places", spec, references)
    assert again.exit_code == 2
    assert "--force" in again.output
    assert run("places", spec, references, "--force").exit_code == 0


def test_from_photos_of_known_places_to_copies_that_hold(spec, references, tmp_path):
    assert run("places", spec, references).exit_code == 0
    done = solve("photo-censor", album(tmp_path), tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    facts = done.result.details.facts
    assert facts["copies_protected_k"] >= facts["protected_k"]
    assert verify(done.folder).verdict == "proved"
    counted = run("recount", done.folder, tmp_path / "clean", spec)
    assert counted.exit_code == 0, counted.output
    assert f"{facts['copies_protected_k']} locations at or above the true one" in counted.output


def test_what_the_leave_one_out_figure_counts(spec, references):
    table, _ = place_table(spec, references)
    assert table.tried == 20
    assert table.counts.tolist() == [5] * 4
    for name in ("1", "2", "3", "4"):
        (references / "Nice" / f"{name}.jpg").unlink()
    fewer, _ = place_table(spec, references)
    assert fewer.tried == 15
    assert fewer.right <= 15


# --- faults ---------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(tmp_path):
    write_colours(tmp_path / "eye.onnx")
    (tmp_path / "places.toml").write_text(HEAD.format(model="eye.onnx") + INPUT)
    return tmp_path / "places.toml"


def test_cells_that_are_there_stay_and_must_name_the_folders(tiny, references, tmp_path):
    shutil.rmtree(references / "Split")
    (tmp_path / "cells.csv").write_text("lat,lon,name\n60,5,Bergen\n43,7,Nice\n43,12,Arezzo\n")
    before = (tmp_path / "cells.csv").read_text()
    table, _ = place_table(tiny, references)
    assert table.names == ("Bergen", "Nice", "Arezzo")
    assert run("places", tiny, references).exit_code == 0
    assert (tmp_path / "cells.csv").read_text() == before
    (references / "Split").mkdir()
    with pytest.raises(InputError, match=r"cells\.csv: column name: found not the folders of known \(Split\)"):
        place_table(tiny, references)


def test_references_that_will_not_do_are_named(tiny, references, tmp_path):
    for photo in (references / "Nice").iterdir():
        paint(photo, "Nice", np.random.default_rng(1), gps=False)
    with pytest.raises(InputError, match="known/Nice: GPS: found no photo with a position"):
        place_table(tiny, references)
    (references / "Nice" / "0.jpg").write_bytes(b"no photo")
    with pytest.raises(InputError, match=r"Nice/0\.jpg"):
        place_table(tiny, references)
    with pytest.raises(InputError, match="a folder of photos for each place"):
        place_table(tiny, references / "Arezzo")
    with pytest.raises(InputError, match="nowhere"):
        place_table(tiny, tmp_path / "nowhere")
    tiny.write_text(tiny.read_text().replace('"embedding"', '"logits"'))
    with pytest.raises(InputError, match="output"):
        place_table(tiny, references)


def test_copies_are_counted_again_and_what_is_no_copy_is_named(tiny, references, tmp_path):
    assert run("places", tiny, references).exit_code == 0
    clean = tmp_path / "clean"
    done = solve("photo-censor", album(tmp_path), tmp_path / "out", Options(copy_to=clean))
    (clean / "note.txt").write_text("beside")
    assert "not looked at: note.txt" in recount(done.folder, clean, [tiny])
    assert "not those of" not in recount(done.folder, clean, [tiny])
    (tmp_path / "other.toml").write_text(HEAD.format(model="eye.onnx") + "temperature = 0.03\n" + INPUT)
    assert "by scores that are not those of" in recount(done.folder, clean, [tmp_path / "other.toml"])
    with pytest.raises(UsageError, match="found 2, wanted the problem's 1"):
        recount(done.folder, clean, [tiny, tiny])
    one = next(path for path in sorted(clean.iterdir()) if path.suffix == ".jpg")
    one.write_bytes(one.read_bytes() + b" ")
    with pytest.raises(DoesNotHoldError, match=f"not the copies that were made: {one.name}"):
        recount(done.folder, clean, [tiny])
    plain = solve("photo-censor", tmp_path / "album.toml", tmp_path / "plain")
    with pytest.raises(UsageError, match="lists no clean copies"):
        recount(plain.folder, clean, [tiny])


def test_scores_of_copies_that_break_the_promise_do_not_verify(tiny, references, tmp_path):
    assert run("places", tiny, references).exit_code == 0
    done = solve("photo-censor", album(tmp_path), tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    with np.load(done.folder / "scores.npz") as archive:
        parts = dict(archive)
    parts["copies"][:, 0] += 50.0
    forge(done.folder, **parts)
    assert any("leave 0 locations at or above the true one" in line for line in verify(done.folder).complaints)
    del parts["copies"]
    forge(done.folder, **parts)
    with pytest.raises(InputError, match="wanted the scores of the clean copies"):
        verify(done.folder)


def forge(folder: Path, **arrays) -> None:
    """Other scores, with sums that fit."""
    np.savez(folder / "scores.npz", **arrays)
    mend(folder)
    assert json.loads((folder / "result.json").read_text())["details"]["copies_protected_k"] >= 0
