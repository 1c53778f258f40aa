from __future__ import annotations

import io
import json
import os
import sys

import numpy as np
import pytest
from helpers.albums import write_means
from helpers.data import data_path
from helpers.mended_sums import mend
from PIL import ExifTags, Image, ImageOps, PngImagePlugin

from privopt.errors import InputError, UsageError
from privopt.report.write_report import write_report
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import load_release, verify
from privopt_photo_censor.app.classifier import load_classifier
from privopt_photo_censor.app.folder import look_at_folder, place_of
from privopt_photo_censor.app.open_photo import heif
from privopt_photo_censor.app.picture import flatten_photo
from privopt_photo_censor.app.positions import gps

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

AREZZO = (43.467448, 11.885127)
PLACES = [(41.9, 12.5), (43.77, 11.25), AREZZO, (45.46, 9.19), (48.86, 2.35), (40.4, -3.7)]


def tiny_model(path, places, true=2, **shape):
    """Average colour of the photo, times random weights."""
    bias = np.zeros(places)
    bias[true] = 0.9
    write_means(path, np.random.default_rng(10).normal(0, 2, (3, places)), bias, **shape)


def write_classifier(folder, **how):
    tiny_model(folder / "tiny.onnx", len(PLACES), **how)
    (folder / "cells.csv").write_text("\n".join(["lat,lon", *(f"{lat},{lon}" for lat, lon in PLACES)]) + "\n")
    text = 'model = "tiny.onnx"\ncells = "cells.csv"\n[input]\nwidth = 8\nheight = 8\n'
    (folder / "places.toml").write_text(text + "mean = [0.475, 0.427, 0.352]\nstd = [0.1, 0.1, 0.1]\n")
    return folder / "places.toml"


def paint(path, colour, place=None):
    photo = Image.new("RGB", (20, 12), colour)
    exif = Image.Exif()
    if place is not None:
        parts = []
        for value in map(abs, place):
            whole, minutes = int(value), (value - int(value)) * 60
            parts.append((float(whole), float(int(minutes)), (minutes - int(minutes)) * 60))
        ifd = exif.get_ifd(0x8825)
        ifd.update({1: "N" if place[0] >= 0 else "S", 2: parts[0], 3: "E" if place[1] >= 0 else "W", 4: parts[1]})
    photo.save(path, exif=exif)


@pytest.fixture
def classifier(tmp_path):
    return write_classifier(tmp_path)


def score_folder(folder, toml):
    """Return what is seen in a folder, the place that most of its photos are nearest to, and scores."""
    model = load_classifier(toml)
    seen, tensors = look_at_folder(folder, model)
    true = place_of([photo.point for photo in seen.metadata], model, folder.name)
    return seen, true, model.scores(tensors)


def test_nine_photos_go_from_folder_to_deletion_list(tmp_path, classifier):
    photos = data_path("exif_gps")
    with Image.open(photos / "DSCN0010.jpg") as photo:
        assert gps(photo) == pytest.approx(AREZZO, abs=1e-6)
    (tmp_path / "photos").symlink_to(photos)
    problem = tmp_path / "album.toml"
    text = '[photos]\nfolder = "photos"\nclassifier = "places.toml"\nkeep = ["DSCN0042.jpg"]\n'
    problem.write_text(text + "[privacy]\ntop_k = 1\n")
    seen, true, scores = score_folder(photos, tmp_path / "places.toml")
    assert PLACES[true] == AREZZO
    assert scores.shape == (9, 6)
    np.testing.assert_allclose(np.exp(scores).sum(axis=1), 1.0)
    solved = solve("photo-censor", problem, tmp_path / "out")
    assert solved.result.status == "optimal"
    assert solved.result.details.facts["rank_before"] == 1
    assert 1 <= solved.result.details.facts["deleted"] <= 8
    rows = (tmp_path / "out" / "deletions.csv").read_text().splitlines()
    assert rows[0] == "photo,deleted"
    assert [row.split(",")[0] for row in rows[1:]] == list(seen.names)
    assert "DSCN0042.jpg,0" in rows
    (tmp_path / "photos").unlink()  # DIR stands alone
    found = verify(tmp_path / "out")
    assert found.verdict == "proved"


def test_an_album_without_gps_asks_for_its_place(tmp_path, classifier):
    (tmp_path / "photos").mkdir()
    for number, colour in enumerate(["red", "green", "blue", "white"]):
        paint(tmp_path / "photos" / f"{number}.jpg", colour)
    problem = tmp_path / "album.toml"
    text = '[photos]\nfolder = "photos"\nclassifier = "places.toml"\n{}[privacy]\ntop_k = 1\n'
    problem.write_text(text.format(""))
    with pytest.raises(InputError, match="true_location"):
        solve("photo-censor", problem, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    problem.write_text(text.format("true_location = 2\n"))
    solve("photo-censor", problem, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "result.json").read_text())["details"]["true_location"] == 2


def test_gps_of_both_hemispheres_and_of_several_places(tmp_path, classifier):
    (tmp_path / "photos").mkdir()
    paint(tmp_path / "photos" / "a.jpg", "red", (-33.87, -151.2))
    with Image.open(tmp_path / "photos" / "a.jpg") as photo:
        assert gps(photo) == pytest.approx((-33.87, -151.2), abs=1e-4)
    paint(tmp_path / "photos" / "b.jpg", "red", (48.86, 2.35))
    with pytest.raises(InputError, match="2 cells"):
        score_folder(tmp_path / "photos", classifier)
    paint(tmp_path / "photos" / "c.jpg", "blue", (48.86, 2.36))
    paint(tmp_path / "photos" / "d.jpg", "blue")
    seen, true, _ = score_folder(tmp_path / "photos", classifier)
    assert true == 4
    assert seen.metadata[3].point is None


def test_faults_of_folders_and_models_name_the_file(tmp_path, classifier):
    (tmp_path / "photos").mkdir()
    with pytest.raises(InputError, match="no photos"):
        score_folder(tmp_path / "photos", classifier)
    (tmp_path / "photos" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no photo")
    with pytest.raises(InputError, match=r"broken\.jpg: expected .*, got a photo that cannot be read"):
        score_folder(tmp_path / "photos", classifier)
    (tmp_path / "photos" / "broken.jpg").unlink()
    paint(tmp_path / "photos" / "a.jpg", "red", AREZZO)
    (tmp_path / "cells.csv").write_text("lat,lon\n1,2\n3,4\n")
    with pytest.raises(InputError, match=r"tiny\.onnx: expected .*, got an output of shape \(1, 6\)"):
        score_folder(tmp_path / "photos", classifier)
    (tmp_path / "tiny.onnx").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"tiny\.onnx: expected .*, got no model"):
        score_folder(tmp_path / "photos", classifier)
    (tmp_path / "cells.csv").write_text("lat,lon\n1,two\n")
    with pytest.raises(InputError, match="row 2"):
        load_classifier(classifier)


def test_a_model_of_one_photo_at_a_time(tmp_path):
    write_classifier(tmp_path, batch=1)
    (tmp_path / "photos").mkdir()
    for number, colour in enumerate(["red", "green", "blue"]):
        paint(tmp_path / "photos" / f"{number}.png", colour)
    assert score_folder(tmp_path / "photos", tmp_path / "places.toml")[2].shape == (3, 6)


def test_without_onnxruntime_one_line_says_what_to_install(tmp_path, classifier, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match=r"privopt-photo-censor\[onnx\]"):
        load_classifier(classifier)


def test_a_missing_folder_is_a_fault(tmp_path, classifier):
    problem = tmp_path / "album.toml"
    problem.write_text('[photos]\nfolder = "gone"\nclassifier = "places.toml"\n[privacy]\ntop_k = 1\n')
    with pytest.raises(InputError, match=r"photos\.folder: expected .*, got 'gone', which is not a folder"):
        solve("photo-censor", problem, tmp_path / "out", Options())


# --- what lies in the folder beside the pictures, and what their files carry --------------------------

XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description {}/></x:xmpmeta>'


@pytest.fixture
def holiday(tmp_path, classifier):
    """Four photos, the first with GPS; and a function that solves their album."""
    photos = tmp_path / "photos"
    photos.mkdir()
    paint(photos / "a.jpg", "red", AREZZO)
    for name, colour in (("b.jpg", "green"), ("c.png", "blue"), ("d.jpg", "white")):
        paint(photos / name, colour)
    text = '[photos]\nfolder = "photos"\nclassifier = "places.toml"\ntrue_location = 2\n'
    (tmp_path / "album.toml").write_text(text + 'keep = ["a.jpg"]\n[privacy]\ntop_k = 1\n')
    return photos


def solved(photos):
    return solve("photo-censor", photos.parent / "album.toml", photos.parent / "out", Options(force=True))


def test_what_is_not_scored_is_listed_and_outside_of_the_guarantee(holiday):
    for name in ("IMG.HEIC", "e.avif", "clip.mp4", "clip.MOV", "notes.txt"):
        (holiday / name).write_bytes(b"anything")
    (holiday / "2019").mkdir()
    paint(holiday / "2019" / "f.jpg", "red")
    (holiday / "gone.jpg").symlink_to(holiday / "nowhere.jpg")
    os.mkfifo(holiday / "pipe.jpg")
    frames = [Image.new("RGB", (20, 12), colour) for colour in ("red", "green", "blue")]
    frames[0].save(holiday / "g.webp", save_all=True, append_images=frames[1:])
    frames[0].save(holiday / "old.gif")
    Image.new("RGB", (20, 12)).save(holiday / "h.jpg", xmp=XMP.replace(b"{}", b'GCamera:MotionPhoto="1"'))
    left_out = [
        "2019/",
        "clip.MOV",
        "clip.mp4",
        "e.avif",
        "gone.jpg",
        "IMG.HEIC: broken" if heif() else "IMG.HEIC",
        "notes.txt",
        "old.gif",
        "pipe.jpg",
    ]
    left_out += ["g.webp: pictures 2 to 3", "h.jpg: the film inside"]
    done = solved(holiday)
    assert done.result.details.facts["left_out"] == left_out
    told = "not scored, and the guarantee does not cover it: 2019/, clip.MOV, clip.mp4, e.avif, gone.jpg and 6 more"
    assert any(told in line for line in done.warnings)
    statement = done.result.guarantee.statement
    assert "the 6 pictures scored" in statement
    assert "nor of what else the folder holds: 2019/, clip.MOV" in statement
    page = write_report(done.folder).read_text("utf-8")
    assert all(f"<td>{name}</td>" in page for name in left_out)
    assert told in page


SECRET = b"SECRETNO"


def write_broken_exif(path, kind):
    """Write a picture that opens, beside an Exif block that begins with a secret and that no parser reads."""
    picture, block = Image.new("RGB", (20, 12), "red"), b"Exif\0\0" + SECRET + b" Via Roma 3"
    if kind == "raw profile":
        text = PngImagePlugin.PngInfo()
        text.add_text("Raw profile type exif", f"\nexif\n{len(block):8d}\n{block.hex()}\n", zip=True)
        picture.save(path, pnginfo=text)
    else:
        picture.save(path, exif=block)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("z.png", "raw profile"), ("z.png", "chunk"), ("z.jpg", "chunk"), ("z.webp", "chunk")],
)
def test_photo_with_broken_metadata_is_left_out_and_not_quoted(holiday, capfd, name, kind):
    write_broken_exif(holiday / name, kind)
    release = solved(holiday)
    assert release.result.details.facts["left_out"] == [f"{name}: metadata that cannot be read"]
    published = b"".join(path.read_bytes() for path in release.folder.rglob("*") if path.is_file())
    texts = " ".join([*release.warnings, *capfd.readouterr()])
    assert SECRET not in published
    assert SECRET.decode() not in texts
    assert "Roma" not in texts


def test_picture_is_turned_by_each_orientation_as_pillow_turns_it():
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        out = io.BytesIO()
        Image.linear_gradient("L").resize((7, 4)).convert("RGB").save(out, "PNG", exif=exif)
        with Image.open(out, formats=["PNG"]) as photo:
            assert flatten_photo(photo).tobytes() == ImageOps.exif_transpose(photo).tobytes()


def test_a_folder_of_photos_alone_is_covered_whole(holiday):
    done = solved(holiday)
    assert done.result.details.facts["left_out"] == []
    assert "what else the folder holds" not in done.result.guarantee.statement
    assert not any("not scored" in line for line in done.warnings)


def test_kept_photos_that_carry_their_position_are_named(holiday):
    Image.new("RGB", (20, 12)).save(holiday / "x.jpg", xmp=XMP.replace(b"{}", b'exif:GPSLatitude="43,28.0N"'))
    (holiday.parent / "album.toml").write_text(
        (holiday.parent / "album.toml").read_text().replace('"a.jpg"', '"a.jpg", "x.jpg", "b.jpg"')
    )
    done = solved(holiday)
    assert done.result.details.facts["with_position"] == ["a.jpg", "x.jpg"]
    kept = 5 - done.result.details.facts["deleted"]
    told = f"2 of the {kept} photos kept carry their position in their files' metadata (GPS or the name of a place), "
    assert any(line.startswith(told) and line.endswith("a.jpg, x.jpg") for line in done.warnings)
    page = write_report(done.folder).read_text("utf-8")
    assert page.count("position in its metadata") == 2
    assert "may be posted with its metadata: of the photos kept 2 files carry their position" in page
    assert "photos may be posted" not in page


def test_scores_without_files_say_nothing_of_metadata(tmp_path):
    np.save(tmp_path / "s.npy", np.log([[0.6, 0.4], [0.5, 0.5]]))
    (tmp_path / "p.toml").write_text('[photos]\nscores = "s.npy"\ntrue_location = 0\n[privacy]\ntop_k = 1\n')
    done = solve("photo-censor", tmp_path / "p.toml", tmp_path / "out")
    assert "left_out" not in done.result.details.facts
    assert "not of what else their files carry" in done.result.guarantee.statement
    assert "remove it before posting" in write_report(done.folder).read_text("utf-8")


@pytest.mark.parametrize("absolute", [False, True])
def test_verify_looks_at_no_photo_outside_dir(holiday, tmp_path, monkeypatch, absolute):
    if absolute:
        text = (tmp_path / "album.toml").read_text().replace('"photos"', f'"{holiday}"')
        (tmp_path / "album.toml").write_text(text.replace('"places.toml"', f'"{tmp_path / "places.toml"}"'))
    done = solved(holiday)
    assert done.result.details.facts["photos"] == 4
    for path in holiday.iterdir():
        path.write_bytes(b"no photo any more")
    monkeypatch.setattr("privopt_photo_censor.app.folder.look_at_folder", None)
    assert verify(done.folder).holds


def test_details_that_were_forged_are_named(holiday):
    (holiday / "clip.mov").write_bytes(b"")
    done = solved(holiday)
    text = (done.folder / "result.json").read_text()
    for before, after in (('"clip.mov"', ""), ('"a.jpg"', ""), ('"photos": 4', '"photos": 5')):
        assert before in text
        head, _, tail = text.rpartition(before)
        (done.folder / "result.json").write_text(head + after + tail)
        assert not verify(mend(done.folder)).holds


@pytest.mark.parametrize("name", ["deletions.csv", "scores.npz", "thumbnails/0.jpg"])
def test_nothing_but_regular_files_of_dir_is_read(holiday, tmp_path, name):
    done = solved(holiday)
    (done.folder / name).rename(tmp_path / "elsewhere")
    (done.folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="link"):
        load_release(done.folder)
    (done.folder / name).unlink()
    os.mkfifo(done.folder / name)
    with pytest.raises(InputError, match="pipe"):
        load_release(done.folder)
    (done.folder / name).unlink()
    with pytest.raises(InputError, match="no such file"):
        load_release(done.folder)


def test_names_with_ends_of_lines_survive(holiday):
    (holiday / "b.jpg").rename(holiday / "b\r\n.jpg")
    done = solved(holiday)
    assert "b\r\n.jpg" in load_release(done.folder).release.names
    assert verify(done.folder).holds


def test_one_true_location_given_needs_no_gps_of_one_place(holiday):
    paint(holiday / "b.jpg", "green", (48.86, 2.35))
    assert solved(holiday).result.details.facts["true_location"] == 2


def test_names_that_are_not_utf8_are_named(holiday):
    odd = os.fsencode(holiday) + b"/\xff.mov"
    with open(odd, "wb"):
        pass
    assert solved(holiday).result.details.facts["left_out"] == ["\\xff.mov"]
    os.rename(odd, odd[:-3] + b"jpg")
    with pytest.raises(InputError, match=r"expected names in UTF-8.*, got .*a photo called \\xff\.jpg"):
        solved(holiday)
