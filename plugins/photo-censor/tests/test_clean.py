"""Clean copies: judged by a reader of EXIF that shares nothing with Pillow, and by the bytes of the files."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.albums import write_album
from helpers.data import data_path
from helpers.mended_sums import rewrite
from PIL import ExifTags, Image, PngImagePlugin

from privopt.checker import check
from privopt.command.cli import cli
from privopt.errors import CertificationError, InputError, UsageError
from privopt.report.write_report import write_report
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import load_release, verify
from privopt_photo_censor.app.clean import clean
from privopt_photo_censor.app.naming import revealed
from privopt_photo_censor.app.open_photo import heif
from privopt_photo_censor.app.positions import gps

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
exifread = pytest.importorskip("exifread")

XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description exif:GPSLatitude="43,28.0N"/></x:xmpmeta>'
MARKS = (b"Exif", b"GPS", b"xmp", b"http://", b"ICC", b"Photoshop", b"NIKON", b"2008:", b"ftypmp4")
PLACE = {1: "N", 2: (43.0, 28.0, 2.8), 3: "E", 4: (11.0, 53.0, 6.4)}


def told(path):
    """Return what an independent reader finds in a file, also in EXIF of HEIC and the like."""
    with path.open("rb") as file:
        return {k: v for k, v in exifread.process_file(file, details=True).items() if k != "JPEGThumbnail" or v}


def paint(path, colour="red", **options):
    exif = Image.Exif()
    exif.get_ifd(ExifTags.IFD.GPSInfo).update(PLACE)
    exif.get_ifd(ExifTags.IFD.Exif).update({ExifTags.Base.DateTimeOriginal: "2019:08:01 12:00:00"})
    exif[ExifTags.Base.DateTime] = "2019:08:01 12:00:00"
    exif[ExifTags.Base.Make] = "NIKON"
    exif[ExifTags.Base.Orientation] = 6
    Image.new("RGB", (40, 24), colour).save(path, exif=exif, **options)


@pytest.fixture
def holiday(tmp_path):
    """Make an album of the nine photos with GPS, a HEIC, a film, and a folder with a photo in it; return its file."""
    problem = write_album(tmp_path / "problem")
    photos = tmp_path / "problem" / "photos"
    for path in photos.iterdir():
        path.unlink()
    for path in data_path("exif_gps").glob("*.jpg"):
        shutil.copyfile(path, photos / path.name)
    if heif():
        paint(photos / "IMG_1.HEIC", format="HEIF")
    else:
        (photos / "IMG_1.HEIC").write_bytes(b"a HEIC that nothing here reads")
    (photos / "clip.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    (photos / "2019").mkdir()
    paint(photos / "2019" / "f.jpg", "white")
    text = problem.read_text().replace('["beach-03.jpg"]', '["DSCN0010.jpg"]')
    problem.write_text(text.replace("top_k = 3", "deletion_budget = 3"))
    return problem


def listed(folder):
    return [row["photo"] for row in csv.DictReader(io.StringIO((folder / "deletions.csv").read_text()))]


def test_the_list_names_all_and_copies_carry_no_position(holiday, tmp_path):
    done = solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    facts = done.result.details.facts
    names = {*listed(done.folder), *facts["left_out"]}
    assert {"IMG_1.HEIC", "clip.mp4", "2019/"} <= names
    assert len([name for name in names if name.startswith("DSCN")]) == 9
    assert ("IMG_1.HEIC" in listed(done.folder)) == heif()
    release = load_release(done.folder).release
    kept = [name for name, stays in zip(release.names, release.retained, strict=True) if stays]
    assert "DSCN0010.jpg" in kept
    assert [copy.photo for copy in release.copies] == kept
    made = {p.relative_to(tmp_path / "clean").as_posix() for p in (tmp_path / "clean").rglob("*") if p.is_file()}
    assert made == set(facts["copies"]) == {f"photo-{n:04d}.jpg" for n in range(1, len(kept) + 1)}
    photos = holiday.parent / "photos"
    assert any("GPS GPSLatitude" in told(photos / name) for name in kept)
    for copy in release.copies:
        path = tmp_path / "clean" / copy.name
        assert hashlib.sha256(path.read_bytes()).hexdigest() == copy.sha256
        assert not told(path)
        assert not any(mark in path.read_bytes() for mark in MARKS)
    assert verify(done.folder).verdict == "proved"
    page = write_report(done.folder).read_text("utf-8")
    assert f"{len(kept)} clean copies were made" in page
    assert "Post the copies, not the files" in page
    assert "photos may be posted" not in page
    assert any("post the clean copies, not these files" in line for line in done.warnings)


def test_pixels_of_a_copy_are_those_that_were_scored(tmp_path):
    rng = np.random.default_rng(1)
    smooth = np.asarray(Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((80, 60), 3))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for suffix, off in ((".png", 0), (".jpg", 2), (".webp", 3)):
        path = tmp_path / f"a{suffix}"
        Image.fromarray(smooth).save(path, quality=100, exif=exif)
        with Image.open(path) as before, Image.open(io.BytesIO(clean(path.read_bytes(), suffix))) as after:
            wanted = np.asarray(before.convert("RGB"), dtype=int)
            found = np.asarray(after.convert("RGB"), dtype=int)
            assert abs(found - np.rot90(wanted, -1)).mean() <= off


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_every_format_loses_what_its_file_carries(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    paint(path, xmp=XMP, **({"comment": b"taken at home"} if suffix == ".jpg" else {}))
    path.write_bytes(path.read_bytes() + b"ftypmp42 a film that was appended")
    copy = clean(path.read_bytes(), suffix)
    (tmp_path / f"b{suffix}").write_bytes(copy)
    assert not [k for k in told(tmp_path / f"b{suffix}") if "GPS" in k or "Date" in k or "Make" in k or "Thumb" in k]
    assert not any(mark in copy for mark in (b"GPS", b"NIKON", b"2019:08", b"taken at home", b"ftypmp4"))


def test_a_copy_that_says_where_in_any_way_is_not_written(tmp_path, monkeypatch):
    texts = PngImagePlugin.PngInfo()
    texts.add_text("exif:GPSLatitude", "43/1")
    paint(tmp_path / "a.png")
    monkeypatch.setattr("privopt_photo_censor.app.clean.FORMATS", {".png": ("PNG", {"pnginfo": texts})})
    with pytest.raises(CertificationError, match="a copy in PNG still carries exif:GPSLatitude"):
        clean((tmp_path / "a.png").read_bytes(), ".png")


def test_colours_of_another_profile_are_kept_as_colours(tmp_path):
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB"))
    for given in (b"no profile at all", profile.tobytes()):  # neither fits RGB: pixels as they are
        Image.new("RGB", (8, 8), (200, 30, 30)).save(tmp_path / "a.png", icc_profile=given)
        with Image.open(io.BytesIO(clean((tmp_path / "a.png").read_bytes(), ".png"))) as copy:
            assert copy.getpixel((0, 0)) == (200, 30, 30)
            assert "icc_profile" not in copy.info


def run(*arguments):
    return CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)


def test_the_folder_of_copies_is_new_or_replaced_with_its_dir(holiday, tmp_path):
    clean_to, out = tmp_path / "clean", tmp_path / "out"
    asked = ("solve", "photo-censor", holiday, "--out", out, "--copy-to", clean_to, "--quiet")
    assert run(*asked).exit_code == 0
    first = sorted(path.name for path in clean_to.iterdir())
    assert run(*asked).exit_code == 2  # DIR is there
    assert run(*asked, "--force").exit_code == 0
    assert sorted(path.name for path in clean_to.iterdir()) == first
    (clean_to / "mine.txt").write_text("not privopt's")
    refused = run(*asked, "--force")
    assert refused.exit_code == 2
    assert "--copy-to" in refused.output
    assert (clean_to / "mine.txt").read_text() == "not privopt's"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_copies_beside_the_photos_or_in_dir_are_refused(holiday, tmp_path):
    for target in (holiday.parent / "photos" / "clean", tmp_path / "out" / "clean", tmp_path / "out"):
        with pytest.raises(UsageError, match="--copy-to"):
            solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=target))
        assert not (tmp_path / "out").exists()
        assert not target.exists()


@pytest.mark.parametrize("where", ["photos/out", "."])
def test_a_result_among_the_photos_or_around_them_is_refused(holiday, where):
    out = holiday.parent / where
    if where == ".":
        out = holiday.parent / "photos" / ".."
        (holiday.parent / "result.json").write_text("{}")
    with pytest.raises(UsageError, match="which the problem reads"):
        solve("photo-censor", holiday, out, Options(force=True))
    assert len(list((holiday.parent / "photos").glob("DSCN*"))) == 9
    assert not (holiday.parent / "photos" / "out").exists()


def test_a_broken_photo_is_listed_and_left_out(holiday):
    (holiday.parent / "photos" / "torn.jpg").write_bytes(b"no picture")
    done = solve("photo-censor", holiday, holiday.parent / "out", Options(copy_to=holiday.parent / "clean"))
    assert "torn.jpg: broken" in done.result.details.facts["left_out"]
    assert any("torn.jpg: broken" in line for line in done.warnings)
    assert not any("torn" in name for name in (done.folder / "copies.csv").read_text().split())


def test_no_copies_where_nothing_is_written(holiday, tmp_path, monkeypatch):
    monkeypatch.setattr("privopt.run.publish._check_written", lambda work: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    assert sorted(os.listdir(tmp_path)) == ["problem"]


def test_only_a_folder_of_photos_is_copied(tmp_path):
    np.save(tmp_path / "s.npy", np.log([[0.6, 0.4], [0.5, 0.5]]))
    (tmp_path / "p.toml").write_text('[photos]\nscores = "s.npy"\ntrue_location = 0\n[privacy]\ntop_k = 1\n')
    with pytest.raises(InputError, match=r"photos\.folder: expected .*, got nothing"):
        solve("photo-censor", tmp_path / "p.toml", tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    (tmp_path / "e.toml").write_text(
        '[records]\ngrid = {rows = 2, cols = 2, cell_km = 1.0}\n[distance]\nkind = "euclidean"\n'
        '[privacy]\nepsilon = 1.0\n[utility]\nkind = "distance"\n'
    )
    with pytest.raises(UsageError, match="exponential makes no copies"):
        solve("exponential", tmp_path / "e.toml", tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    assert not (tmp_path / "clean").exists()


def test_a_list_of_copies_that_was_forged_is_named(holiday, tmp_path):
    done = solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    result = json.loads((done.folder / "result.json").read_text())
    name = next(iter(result["details"]["copies"]))
    (done.folder / "copies.csv").write_text((done.folder / "copies.csv").read_text().replace(f",{name},", ",x.jpg,"))
    assert not verify(done.folder).holds


@pytest.mark.parametrize("task", ["deletion_budget = 3", "top_k = 1"])
def test_the_checker_counts_the_copies_too(holiday, tmp_path, task):
    holiday.write_text(holiday.read_text().replace("deletion_budget = 3", task))
    folder = solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean")).folder
    true = load_release(folder).problem.album.true
    assert check(folder) == 0

    def exposed(copies):
        told = copies.copy()
        told[:, true] = 0.0
        return told

    rewrite(folder, "scores.npz", copies=exposed)
    assert (check(folder), verify(folder).holds) == (1, False)
    rewrite(folder, "scores.npz", copies=lambda copies: copies[1:])
    assert check(folder) == 2
    with pytest.raises(InputError, match="copies"):
        verify(folder)


TELLING = [
    "IMG_20190801_120000.jpg", "IMG-20190801-WA0003.jpg", "2019-08-01 12.00.00.jpg", "01.08.2019.jpg",
    "PXL_20190801.jpg", "43.467448,11.885127.jpg", "43.4674N_11.8851E.jpg", "-33.87_151.20.jpg",
    "N43E011.jpg", "43N28_11E53.jpg", "lat43lon11.jpg",
]  # fmt: skip


def test_names_that_tell_a_place_or_a_time():
    assert [revealed(name) for name in TELLING] == ["a date"] * 5 + ["coordinates"] * 6
    assert revealed("rome_a.jpg", ["Rome"]) == revealed("in_Rome.jpg", ["Rome"]) == "a place"
    neutral = ("DSCN0010.jpg", "IMG_1234.JPG", "chrome.jpg", "pool.jpg")
    assert not any(revealed(name, ["Rome", ""]) for name in neutral)


def test_copies_have_neutral_names(holiday, tmp_path):
    photos = holiday.parent / "photos"
    (photos / "DSCN0010.jpg").rename(photos / "IMG_20081022_1628.jpg")
    holiday.write_text(holiday.read_text().replace("DSCN0010", "IMG_20081022_1628"))
    done = solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    assert not any("names of photos" in line for line in done.warnings)
    assert all(path.name.startswith("photo-00") for path in (tmp_path / "clean").iterdir())
    assert "\nIMG_20081022_1628.jpg,photo-00" in (done.folder / "copies.csv").read_text()
    assert verify(done.folder).verdict == "proved"
    uncopied = solve("photo-censor", holiday, tmp_path / "two", Options())
    assert any(
        line.startswith("names of photos kept hold a date") and line.endswith(": IMG_20081022_1628.jpg")
        for line in uncopied.warnings
    )


def test_a_broken_heic_says_that_it_is_broken_and_no_package_missing(holiday, tmp_path, monkeypatch):
    (holiday.parent / "photos" / "IMG_1.HEIC").write_bytes(b"a HEIC that nothing reads")
    done = solve("photo-censor", holiday, tmp_path / "out", Options())
    assert ("IMG_1.HEIC: broken" in done.result.details.facts["left_out"]) == heif()
    assert any("[heif]" in line for line in done.warnings) != heif()
    monkeypatch.setattr("privopt_photo_censor.app.folder.heif", lambda: False)
    lacking = solve("photo-censor", holiday, tmp_path / "two", Options())
    assert "IMG_1.HEIC" in lacking.result.details.facts["left_out"]
    assert "install privopt-photo-censor[heif] to read HEIC photos" in lacking.warnings


@pytest.mark.parametrize(("side", "found"), [("S", -43.467444), ("south", -43.467444), ("", 43.467444), ("X", None)])
def test_a_side_that_names_no_half_of_the_earth_is_no_position(side, found):
    exif, out = Image.Exif(), io.BytesIO()
    exif.get_ifd(ExifTags.IFD.GPSInfo).update({**PLACE, 1: side})
    Image.new("RGB", (8, 8)).save(out, "JPEG", exif=exif.tobytes())
    with Image.open(io.BytesIO(out.getvalue())) as photo:
        assert gps(photo) == (None if found is None else pytest.approx((found, 11.885111), abs=1e-6))
