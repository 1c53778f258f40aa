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
from helpers.mentions import assert_mentions
from PIL import ExifTags, Image, ImageOps, PngImagePlugin

from privopt.errors import InputError, UsageError
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release, verify
from privopt_photo_censor.app.classifier import load_classifier
from privopt_photo_censor.app.folder import find_album_place, look_at_folder
from privopt_photo_censor.app.open_photo import can_read_heif
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


def write_classifier(folder, **model_options):
    tiny_model(folder / "tiny.onnx", len(PLACES), **model_options)
    (folder / "cells.csv").write_text("\n".join(["lat,lon", *(f"{lat},{lon}" for lat, lon in PLACES)]) + "\n")
    text = 'model = "tiny.onnx"\ncells = "cells.csv"\n[input]\nwidth = 8\nheight = 8\n'
    (folder / "places.toml").write_text(text + "mean = [0.475, 0.427, 0.352]\nstd = [0.1, 0.1, 0.1]\n")
    return folder / "places.toml"


def paint(path, colour, point=None):
    photo = Image.new("RGB", (20, 12), colour)
    exif = Image.Exif()
    if point is not None:
        parts = []
        for value in map(abs, point):
            degrees, minutes = int(value), (value - int(value)) * 60
            parts.append((float(degrees), float(int(minutes)), (minutes - int(minutes)) * 60))
        ifd = exif.get_ifd(0x8825)
        ifd.update({1: "N" if point[0] >= 0 else "S", 2: parts[0], 3: "E" if point[1] >= 0 else "W", 4: parts[1]})
    photo.save(path, exif=exif)


@pytest.fixture
def classifier(tmp_path):
    return write_classifier(tmp_path)


def score_folder(folder, toml):
    """Return what is seen in a folder, the place that most of its photos are nearest to, and scores."""
    model = load_classifier(toml)
    folder_view, tensors = look_at_folder(folder, model)
    true = find_album_place([photo.point for photo in folder_view.metadata], model, folder.name)
    return folder_view, true, model.scores(tensors)


def test_folder_leads_to_a_deletion_list(tmp_path, classifier):
    photos = data_path("exif_gps")
    with Image.open(photos / "DSCN0010.jpg") as photo:
        assert gps(photo) == pytest.approx(AREZZO, abs=1e-6)
    (tmp_path / "photos").symlink_to(photos)
    problem = tmp_path / "album.toml"
    text = '[photos]\nfolder = "photos"\nclassifier = "places.toml"\nkeep = ["DSCN0042.jpg"]\n'
    problem.write_text(text + "[privacy]\ntop_k = 1\n")
    folder_view, true, scores = score_folder(photos, tmp_path / "places.toml")
    assert PLACES[true] == AREZZO
    assert scores.shape == (9, 6)
    np.testing.assert_allclose(np.exp(scores).sum(axis=1), 1.0)
    release = solve("photo-censor", problem, tmp_path / "out")
    assert release.result.status == "optimal"
    assert release.result.details.facts["rank_before"] == 1
    assert 1 <= release.result.details.facts["deleted"] <= 8
    rows = (tmp_path / "out" / "deletions.csv").read_text().splitlines()
    assert rows[0] == "photo,deleted"
    assert [row.split(",")[0] for row in rows[1:]] == list(folder_view.names)
    assert "DSCN0042.jpg,0" in rows
    (tmp_path / "photos").unlink()  # DIR stands alone
    verification = verify(tmp_path / "out")
    assert verification.verdict == "proved"


def test_album_without_gps_asks_for_its_place(tmp_path, classifier):
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


def test_gps_of_both_hemispheres(tmp_path, classifier):
    (tmp_path / "photos").mkdir()
    paint(tmp_path / "photos" / "a.jpg", "red", (-33.87, -151.2))
    with Image.open(tmp_path / "photos" / "a.jpg") as photo:
        assert gps(photo) == pytest.approx((-33.87, -151.2), abs=1e-4)
    paint(tmp_path / "photos" / "b.jpg", "red", (48.86, 2.35))
    with pytest.raises(InputError, match="2 cells"):
        score_folder(tmp_path / "photos", classifier)
    paint(tmp_path / "photos" / "c.jpg", "blue", (48.86, 2.36))
    paint(tmp_path / "photos" / "d.jpg", "blue")
    folder_view, true, _ = score_folder(tmp_path / "photos", classifier)
    assert true == 4
    assert folder_view.metadata[3].point is None


def test_faults_of_folders_and_models_name_the_file(tmp_path, classifier):
    (tmp_path / "photos").mkdir()
    with pytest.raises(InputError, match="no photos"):
        score_folder(tmp_path / "photos", classifier)
    (tmp_path / "photos" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no photo")
    with pytest.raises(InputError, match=r"broken\.jpg: .*cannot be read"):
        score_folder(tmp_path / "photos", classifier)
    (tmp_path / "photos" / "broken.jpg").unlink()
    paint(tmp_path / "photos" / "a.jpg", "red", AREZZO)
    (tmp_path / "cells.csv").write_text("lat,lon\n1,2\n3,4\n")
    with pytest.raises(InputError, match=r"tiny\.onnx: .*shape \(1, 6\)"):
        score_folder(tmp_path / "photos", classifier)
    (tmp_path / "tiny.onnx").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"tiny\.onnx: .*no model"):
        score_folder(tmp_path / "photos", classifier)
    (tmp_path / "cells.csv").write_text("lat,lon\n1,two\n")
    with pytest.raises(InputError, match="row 2"):
        load_classifier(classifier)


def test_model_of_single_photos(tmp_path):
    write_classifier(tmp_path, batch=1)
    (tmp_path / "photos").mkdir()
    for number, colour in enumerate(["red", "green", "blue"]):
        paint(tmp_path / "photos" / f"{number}.png", colour)
    assert score_folder(tmp_path / "photos", tmp_path / "places.toml")[2].shape == (3, 6)


def test_says_how_to_install_onnxruntime(tmp_path, classifier, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match=r"privopt-photo-censor\[onnx\]"):
        load_classifier(classifier)


def test_missing_folder_is_a_fault(tmp_path, classifier):
    problem = tmp_path / "album.toml"
    problem.write_text('[photos]\nfolder = "gone"\nclassifier = "places.toml"\n[privacy]\ntop_k = 1\n')
    with pytest.raises(InputError, match=r"photos\.folder: .*'gone'.*not a folder"):
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


def solve_photos(photos):
    return solve("photo-censor", photos.parent / "album.toml", photos.parent / "out", Options(force=True))


def test_lists_unscored_files_outside_the_guarantee(holiday):
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
        "IMG.HEIC: broken" if can_read_heif() else "IMG.HEIC",
        "notes.txt",
        "old.gif",
        "pipe.jpg",
    ]
    left_out += ["g.webp: pictures 2 to 3", "h.jpg: the film inside"]
    release = solve_photos(holiday)
    assert release.result.details.facts["left_out"] == left_out
    keywords = (
        "not scored, and the guarantee does not cover them: 2019/, clip.MOV, clip.mp4, e.avif, gone.jpg and 6 more"
    )
    assert any(keywords in line for line in release.warnings)
    statement = release.result.guarantee.statement
    assert "the 6 pictures scored" in statement
    assert "2019/, clip.MOV" in statement
    page = write_report(release.folder).read_text("utf-8")
    assert all(f">{name}</td>" in page for name in left_out)
    assert keywords in page


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
def test_does_not_quote_broken_metadata(holiday, capfd, name, kind):
    write_broken_exif(holiday / name, kind)
    release = solve_photos(holiday)
    assert [line.partition(": ")[0] for line in release.result.details.facts["left_out"]] == [name]
    published = b"".join(path.read_bytes() for path in release.folder.rglob("*") if path.is_file())
    texts = " ".join([*release.warnings, *capfd.readouterr()])
    assert SECRET not in published
    assert SECRET.decode() not in texts
    assert "Roma" not in texts


def test_turns_pictures_like_pillow():
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        stream = io.BytesIO()
        Image.linear_gradient("L").resize((7, 4)).convert("RGB").save(stream, "PNG", exif=exif)
        with Image.open(stream, formats=["PNG"]) as photo:
            assert flatten_photo(photo).tobytes() == ImageOps.exif_transpose(photo).tobytes()


def test_folder_of_photos_is_covered_completely(holiday):
    release = solve_photos(holiday)
    assert release.result.details.facts["left_out"] == []
    assert "else the folder" not in release.result.guarantee.statement
    assert not any("not scored" in line for line in release.warnings)


def test_names_kept_photos_with_positions(holiday):
    Image.new("RGB", (20, 12)).save(holiday / "x.jpg", xmp=XMP.replace(b"{}", b'exif:GPSLatitude="43,28.0N"'))
    (holiday.parent / "album.toml").write_text(
        (holiday.parent / "album.toml").read_text().replace('"a.jpg"', '"a.jpg", "x.jpg", "b.jpg"')
    )
    release = solve_photos(holiday)
    assert release.result.details.facts["with_position"] == ["a.jpg", "x.jpg"]
    kept_count = 5 - release.result.details.facts["deleted"]
    keywords = f"2 of the {kept_count} photos kept carry"
    assert any(line.startswith(keywords) and line.endswith("a.jpg, x.jpg") for line in release.warnings)
    page = write_report(release.folder).read_text("utf-8")
    assert page.count("position in its") == 2
    assert_mentions(page, "may be posted with", "2 files carry")
    assert "photos may be posted" not in page


def test_scores_alone_say_nothing_of_metadata(tmp_path):
    np.save(tmp_path / "s.npy", np.log([[0.6, 0.4], [0.5, 0.5]]))
    (tmp_path / "p.toml").write_text('[photos]\nscores = "s.npy"\ntrue_location = 0\n[privacy]\ntop_k = 1\n')
    release = solve("photo-censor", tmp_path / "p.toml", tmp_path / "out")
    assert "left_out" not in release.result.details.facts
    assert "their files carry" in release.result.guarantee.statement
    assert "remove it before" in write_report(release.folder).read_text("utf-8")


@pytest.mark.parametrize("absolute", [False, True])
def test_verify_opens_no_photo_outside(holiday, tmp_path, monkeypatch, absolute):
    if absolute:
        text = (tmp_path / "album.toml").read_text().replace('"photos"', f'"{holiday}"')
        (tmp_path / "album.toml").write_text(text.replace('"places.toml"', f'"{tmp_path / "places.toml"}"'))
    release = solve_photos(holiday)
    assert release.result.details.facts["photos"] == 4
    for path in holiday.iterdir():
        path.write_bytes(b"no photo any more")
    monkeypatch.setattr("privopt_photo_censor.app.folder.look_at_folder", None)
    assert verify(release.folder).holds


def test_verify_names_forged_details(holiday):
    (holiday / "clip.mov").write_bytes(b"")
    release = solve_photos(holiday)
    text = (release.folder / "result.json").read_text()
    for old, new in (('"clip.mov"', ""), ('"a.jpg"', ""), ('"photos": 4', '"photos": 5')):
        assert old in text
        head, _, tail = text.rpartition(old)
        (release.folder / "result.json").write_text(head + new + tail)
        assert not verify(mend(release.folder)).holds


@pytest.mark.parametrize("name", ["deletions.csv", "scores.npz", "thumbnails/0.jpg"])
def test_reads_only_regular_files(holiday, tmp_path, name):
    release = solve_photos(holiday)
    (release.folder / name).rename(tmp_path / "elsewhere")
    (release.folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="link"):
        load_release(release.folder)
    (release.folder / name).unlink()
    os.mkfifo(release.folder / name)
    with pytest.raises(InputError, match="pipe"):
        load_release(release.folder)
    (release.folder / name).unlink()
    with pytest.raises(InputError, match="file not found"):
        load_release(release.folder)


def test_names_with_line_ends_survive(holiday):
    (holiday / "b.jpg").rename(holiday / "b\r\n.jpg")
    release = solve_photos(holiday)
    assert "b\r\n.jpg" in load_release(release.folder).release.names
    assert verify(release.folder).holds


def test_one_true_location_needs_no_gps(holiday):
    paint(holiday / "b.jpg", "green", (48.86, 2.35))
    assert solve_photos(holiday).result.details.facts["true_location"] == 2


def test_names_files_that_are_not_utf8(holiday):
    raw_path = os.fsencode(holiday) + b"/\xff.mov"
    with open(raw_path, "wb"):
        pass
    assert solve_photos(holiday).result.details.facts["left_out"] == ["\\xff.mov"]
    os.rename(raw_path, raw_path[:-3] + b"jpg")
    with pytest.raises(InputError, match=r"names in UTF-8.*\\xff\.jpg"):
        solve_photos(holiday)
