"""Clean copies: judged by a reader of EXIF that shares nothing with Pillow, and by the bytes of the files."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from datetime import datetime

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.albums import write_album
from helpers.data import data_path
from helpers.mended_sums import rewrite
from hypothesis import given
from hypothesis import strategies as st
from PIL import ExifTags, Image, PngImagePlugin

from privopt.checker import check
from privopt.command.cli import cli
from privopt.errors import CertificationError, InputError, UsageError
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release, verify
from privopt_photo_censor.app.clean import clean
from privopt_photo_censor.app.naming import describe_revelation
from privopt_photo_censor.app.open_photo import can_read_heif
from privopt_photo_censor.app.positions import gps

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
exifread = pytest.importorskip("exifread")

XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description exif:GPSLatitude="43,28.0N"/></x:xmpmeta>'
MARKS = (b"Exif", b"GPS", b"xmp", b"http://", b"ICC", b"Photoshop", b"NIKON", b"2008:", b"ftypmp4")
PLACE = {1: "N", 2: (43.0, 28.0, 2.8), 3: "E", 4: (11.0, 53.0, 6.4)}


def read_metadata(path):
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
    if can_read_heif():
        paint(photos / "IMG_1.HEIC", format="HEIF")
    else:
        (photos / "IMG_1.HEIC").write_bytes(b"a HEIC that nothing here reads")
    (photos / "clip.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    (photos / "2019").mkdir()
    paint(photos / "2019" / "f.jpg", "white")
    text = problem.read_text().replace('["beach-03.jpg"]', '["DSCN0010.jpg"]')
    problem.write_text(text.replace("top_k = 3", "deletion_budget = 3"))
    return problem


def read_deletions(folder):
    return [row["photo"] for row in csv.DictReader(io.StringIO((folder / "deletions.csv").read_text()))]


def test_copies_carry_no_position(holiday, tmp_path):
    solved = solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    facts = solved.result.details.facts
    names = {*read_deletions(solved.folder), *facts["left_out"]}
    assert {"IMG_1.HEIC", "clip.mp4", "2019/"} <= names
    assert len([name for name in names if name.startswith("DSCN")]) == 9
    assert ("IMG_1.HEIC" in read_deletions(solved.folder)) == can_read_heif()
    release = load_release(solved.folder).release
    kept_names = [name for name, stays in zip(release.names, release.retained, strict=True) if stays]
    assert "DSCN0010.jpg" in kept_names
    assert [copy.photo for copy in release.copies] == kept_names
    copy_names = {p.relative_to(tmp_path / "clean").as_posix() for p in (tmp_path / "clean").rglob("*") if p.is_file()}
    assert copy_names == set(facts["copies"]) == {f"photo-{n:04d}.jpg" for n in range(1, len(kept_names) + 1)}
    photos = holiday.parent / "photos"
    assert any("GPS GPSLatitude" in read_metadata(photos / name) for name in kept_names)
    for copy in release.copies:
        path = tmp_path / "clean" / copy.name
        assert hashlib.sha256(path.read_bytes()).hexdigest() == copy.sha256
        assert not read_metadata(path)
        assert not any(mark in path.read_bytes() for mark in MARKS)
    assert verify(solved.folder).verdict == "proved"
    page = write_report(solved.folder).read_text("utf-8")
    assert f"{len(kept_names)} clean copies" in page
    assert "Post the copies" in page
    assert "may be posted" not in page
    assert any("clean copies" in line for line in solved.warnings)


def test_copies_have_the_scored_pixels(tmp_path):
    rng = np.random.default_rng(1)
    smooth = np.asarray(Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((80, 60), 3))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for suffix, max_difference in ((".png", 0), (".jpg", 2), (".webp", 3)):
        path = tmp_path / f"a{suffix}"
        Image.fromarray(smooth).save(path, quality=100, exif=exif)
        with Image.open(path) as original, Image.open(io.BytesIO(clean(path.read_bytes(), suffix))) as copied:
            original_pixels = np.asarray(original.convert("RGB"), dtype=int)
            copied_pixels = np.asarray(copied.convert("RGB"), dtype=int)
            assert abs(copied_pixels - np.rot90(original_pixels, -1)).mean() <= max_difference


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_every_format_loses_its_metadata(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    paint(path, xmp=XMP, **({"comment": b"taken at home"} if suffix == ".jpg" else {}))
    path.write_bytes(path.read_bytes() + b"ftypmp42 a film that was appended")
    copy = clean(path.read_bytes(), suffix)
    (tmp_path / f"b{suffix}").write_bytes(copy)
    assert not [
        k for k in read_metadata(tmp_path / f"b{suffix}") if "GPS" in k or "Date" in k or "Make" in k or "Thumb" in k
    ]
    assert not any(mark in copy for mark in (b"GPS", b"NIKON", b"2019:08", b"taken at home", b"ftypmp4"))


def test_does_not_write_copies_with_positions(tmp_path, monkeypatch):
    texts = PngImagePlugin.PngInfo()
    texts.add_text("exif:GPSLatitude", "43/1")
    paint(tmp_path / "a.png")
    monkeypatch.setattr("privopt_photo_censor.app.clean.FORMATS", {".png": ("PNG", {"pnginfo": texts})})
    with pytest.raises(CertificationError, match="PNG still carries exif:GPSLatitude"):
        clean((tmp_path / "a.png").read_bytes(), ".png")


def test_colour_profiles_keep_their_colours(tmp_path):
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB"))
    for raw_profile in (b"no profile at all", profile.tobytes()):  # neither fits RGB: pixels as they are
        Image.new("RGB", (8, 8), (200, 30, 30)).save(tmp_path / "a.png", icc_profile=raw_profile)
        with Image.open(io.BytesIO(clean((tmp_path / "a.png").read_bytes(), ".png"))) as copy:
            assert copy.getpixel((0, 0)) == (200, 30, 30)
            assert "icc_profile" not in copy.info


def run(*arguments):
    return CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)


def test_copies_need_a_new_folder_or_force(holiday, tmp_path):
    clean_to, output_folder = tmp_path / "clean", tmp_path / "out"
    arguments = ("solve", "photo-censor", holiday, "--out", output_folder, "--copy-to", clean_to, "--quiet")
    assert run(*arguments).exit_code == 0
    first = sorted(path.name for path in clean_to.iterdir())
    assert run(*arguments).exit_code == 2  # DIR is there
    assert run(*arguments, "--force").exit_code == 0
    assert sorted(path.name for path in clean_to.iterdir()) == first
    (clean_to / "mine.txt").write_text("not privopt's")
    refusal = run(*arguments, "--force")
    assert refusal.exit_code == 2
    assert "--copy-to" in refusal.output
    assert (clean_to / "mine.txt").read_text() == "not privopt's"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_refuses_copies_among_the_photos(holiday, tmp_path):
    for target in (holiday.parent / "photos" / "clean", tmp_path / "out" / "clean", tmp_path / "out"):
        with pytest.raises(UsageError, match="--copy-to"):
            solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=target))
        assert not (tmp_path / "out").exists()
        assert not target.exists()


@pytest.mark.parametrize("relative_path", ["photos/out", "."])
def test_refuses_results_around_the_photos(holiday, relative_path):
    output_folder = holiday.parent / relative_path
    if relative_path == ".":
        output_folder = holiday.parent / "photos" / ".."
        (holiday.parent / "result.json").write_text("{}")
    with pytest.raises(UsageError, match=r"the problem reads|which is read"):
        solve("photo-censor", holiday, output_folder, Options(force=True))
    assert len(list((holiday.parent / "photos").glob("DSCN*"))) == 9
    assert not (holiday.parent / "photos" / "out").exists()


def test_lists_and_leaves_out_a_broken_photo(holiday):
    (holiday.parent / "photos" / "torn.jpg").write_bytes(b"no picture")
    release = solve("photo-censor", holiday, holiday.parent / "out", Options(copy_to=holiday.parent / "clean"))
    assert "torn.jpg: broken" in release.result.details.facts["left_out"]
    assert any("torn.jpg: broken" in line for line in release.warnings)
    assert not any("torn" in name for name in (release.folder / "copies.csv").read_text().split())


def test_makes_no_copies_if_nothing_is_written(holiday, tmp_path, monkeypatch):
    monkeypatch.setattr("privopt.run.publish._check_written", lambda work: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    assert sorted(os.listdir(tmp_path)) == ["problem"]


def test_copies_only_folders_of_photos(tmp_path):
    np.save(tmp_path / "s.npy", np.log([[0.6, 0.4], [0.5, 0.5]]))
    (tmp_path / "p.toml").write_text('[photos]\nscores = "s.npy"\ntrue_location = 0\n[privacy]\ntop_k = 1\n')
    with pytest.raises(InputError, match=r"photos\.folder: .*nothing"):
        solve("photo-censor", tmp_path / "p.toml", tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    (tmp_path / "e.toml").write_text(
        '[records]\ngrid = {rows = 2, cols = 2, cell_km = 1.0}\n[distance]\nkind = "euclidean"\n'
        '[privacy]\nepsilon = 1.0\n[utility]\nkind = "distance"\n'
    )
    with pytest.raises(UsageError, match="makes no copies"):
        solve("exponential", tmp_path / "e.toml", tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    assert not (tmp_path / "clean").exists()


def test_verify_names_a_forged_list_of_copies(holiday, tmp_path):
    release = solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    result = json.loads((release.folder / "result.json").read_text())
    name = next(iter(result["details"]["copies"]))
    (release.folder / "copies.csv").write_text(
        (release.folder / "copies.csv").read_text().replace(f",{name},", ",x.jpg,")
    )
    assert not verify(release.folder).holds


@pytest.mark.parametrize("task", ["deletion_budget = 3", "top_k = 1"])
def test_checker_counts_the_copies(holiday, tmp_path, task):
    holiday.write_text(holiday.read_text().replace("deletion_budget = 3", task))
    folder = solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean")).folder
    true = load_release(folder).problem.album.true
    assert check(folder) == 0

    def expose_true_place(copies):
        exposed_copies = copies.copy()
        exposed_copies[:, true] = 0.0
        return exposed_copies

    rewrite(folder, "scores.npz", copies=expose_true_place)
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


def test_finds_names_with_place_or_time():
    assert [describe_revelation(name) for name in TELLING] == ["a date"] * 5 + ["coordinates"] * 6
    assert describe_revelation("rome_a.jpg", ["Rome"]) == describe_revelation("in_Rome.jpg", ["Rome"]) == "a place"
    neutral = ("DSCN0010.jpg", "IMG_1234.JPG", "chrome.jpg", "pool.jpg")
    assert not any(describe_revelation(name, ["Rome", ""]) for name in neutral)


@given(
    moment=st.datetimes(datetime(1950, 1, 1), datetime(2099, 12, 31)),
    form=st.sampled_from(["%Y%m%d", "%Y%m%d%H", "%Y%m%d%H%M", "%Y%m%d%H%M%S", "%Y%m%d%H%M%S123", "%Y-%m-%d %H.%M"]),
)
def test_finds_time_stamps_of_any_length(moment, form):
    stamp = moment.strftime(form)
    assert describe_revelation(f"{stamp}.jpg") == describe_revelation(f"IMG_{stamp}.jpg") == "a date"
    # Within a longer number, the digits of a date mean nothing.
    assert describe_revelation(f"1{moment:%Y%m%d%H%M%S}0.jpg") != "a date"


def test_copies_have_neutral_names(holiday, tmp_path):
    photos = holiday.parent / "photos"
    (photos / "DSCN0010.jpg").rename(photos / "IMG_20081022_1628.jpg")
    holiday.write_text(holiday.read_text().replace("DSCN0010", "IMG_20081022_1628"))
    release = solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    assert not any("names of photos" in line for line in release.warnings)
    assert all(path.name.startswith("photo-00") for path in (tmp_path / "clean").iterdir())
    assert "\nIMG_20081022_1628.jpg,photo-00" in (release.folder / "copies.csv").read_text()
    assert verify(release.folder).verdict == "proved"
    uncopied = solve("photo-censor", holiday, tmp_path / "two", Options())
    assert any("contain a date" in line and line.endswith(": IMG_20081022_1628.jpg") for line in uncopied.warnings)


def test_broken_heic_is_not_a_missing_package(holiday, tmp_path, monkeypatch):
    (holiday.parent / "photos" / "IMG_1.HEIC").write_bytes(b"a HEIC that nothing reads")
    release = solve("photo-censor", holiday, tmp_path / "out", Options())
    assert ("IMG_1.HEIC: broken" in release.result.details.facts["left_out"]) == can_read_heif()
    assert any("[heif]" in line for line in release.warnings) != can_read_heif()
    monkeypatch.setattr("privopt_photo_censor.app.folder.can_read_heif", lambda: False)
    lacking = solve("photo-censor", holiday, tmp_path / "two", Options())
    assert "IMG_1.HEIC" in lacking.result.details.facts["left_out"]
    assert any("privopt-photo-censor[heif]" in line for line in lacking.warnings)


@pytest.mark.parametrize(
    ("hemisphere", "point"), [("S", -43.467444), ("south", -43.467444), ("", 43.467444), ("X", None)]
)
def test_invalid_hemisphere_is_no_position(hemisphere, point):
    exif, stream = Image.Exif(), io.BytesIO()
    exif.get_ifd(ExifTags.IFD.GPSInfo).update({**PLACE, 1: hemisphere})
    Image.new("RGB", (8, 8)).save(stream, "JPEG", exif=exif.tobytes())
    with Image.open(io.BytesIO(stream.getvalue())) as photo:
        assert gps(photo) == (None if point is None else pytest.approx((point, 11.885111), abs=1e-6))
