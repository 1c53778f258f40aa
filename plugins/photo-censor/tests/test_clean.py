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
from helpers.mended_sums import rewrite
from PIL import ExifTags, Image, PngImagePlugin
from PIL.TiffImagePlugin import IFDRational

from privopt.checker import check
from privopt.command.cli import cli
from privopt.errors import CertificationError, InputError, UsageError
from privopt.report.write_report import write_report
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import load_release, verify
from privopt.testing.data import data_path
from privopt_photo_censor.app.clean import clean, clean_copies, metadata_of
from privopt_photo_censor.app.naming import copy_names, revealed
from privopt_photo_censor.app.opening import heif
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


@pytest.mark.parametrize("subfolders", [False, True])
def test_the_list_names_all_and_copies_carry_no_position(holiday, tmp_path, subfolders):
    if subfolders:
        holiday.write_text(holiday.read_text().replace("[photos]\n", "[photos]\nsubfolders = true\n"))
    done = solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    facts = done.result.details.facts
    names = {*listed(done.folder), *facts["left_out"]}
    assert {"IMG_1.HEIC", "clip.mp4", "2019/f.jpg" if subfolders else "2019/"} <= names
    assert len([name for name in names if name.startswith("DSCN")]) == 9
    assert ("IMG_1.HEIC" in listed(done.folder)) == heif()
    release = load_release(done.folder).release
    kept = [name for name, stays in zip(release.names, release.kept, strict=True) if stays]
    assert "DSCN0010.jpg" in kept
    assert [copy.photo for copy in release.copies] == kept
    made = {p.relative_to(tmp_path / "clean").as_posix() for p in (tmp_path / "clean").rglob("*") if p.is_file()}
    assert made == set(facts["copies"]) == {*copy_names(kept, names)}
    assert not any("/" in name or "2019" in name for name in made)
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
    for suffix, off in ((".png", 0), (".bmp", 0), (".tif", 0), (".jpg", 2), (".webp", 3), (".avif", 3)):
        path = tmp_path / f"a{suffix}"
        options = {} if suffix == ".bmp" else {"exif": exif}
        Image.fromarray(smooth).save(path, quality=100, **options)
        with Image.open(path) as before, Image.open(io.BytesIO(clean(path.read_bytes(), suffix))) as after:
            wanted = np.asarray(before.convert("RGB"), dtype=int)
            found = np.asarray(after.convert("RGB"), dtype=int)
            if suffix not in (".bmp", ".avif"):  # libavif turns the picture itself
                wanted = np.rot90(wanted, -1)
            assert found.shape in (wanted.shape, np.rot90(wanted).shape)
            if found.shape == wanted.shape:
                assert abs(found - wanted).mean() <= off


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tiff", ".avif"])
def test_every_format_loses_what_its_file_carries(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    more = {} if suffix == ".tiff" else {"xmp": XMP}
    paint(path, **more, **({"comment": b"taken at home"} if suffix == ".jpg" else {}))
    path.write_bytes(path.read_bytes() + b"ftypmp42 a film that was appended")
    with Image.open(path) as photo:
        assert {"time", "camera", *({"position"} if suffix != ".tiff" else ())} <= metadata_of(photo)
    copy = clean(path.read_bytes(), suffix)
    (tmp_path / f"b{suffix}").write_bytes(copy)
    assert not [k for k in told(tmp_path / f"b{suffix}") if "GPS" in k or "Date" in k or "Make" in k or "Thumb" in k]
    assert not any(mark in copy for mark in (b"GPS", b"NIKON", b"2019:08", b"taken at home", b"ftypmp4"))


def test_a_copy_that_says_where_in_any_way_is_not_written(tmp_path, monkeypatch):
    texts = PngImagePlugin.PngInfo()
    texts.add_text("exif:GPSLatitude", "43/1")
    paint(tmp_path / "a.png")
    monkeypatch.setattr("privopt_photo_censor.app.clean.FORMATS", {".png": ("PNG", {"pnginfo": texts})})
    with pytest.raises(CertificationError, match="a copy in PNG still carries position"):
        clean((tmp_path / "a.png").read_bytes(), ".png")


def test_what_is_asked_for_stays(tmp_path):
    paint(tmp_path / "a.jpg")
    for wishes, tags in (
        (["time"], {"EXIF DateTimeOriginal", "Image DateTime"}),
        (["position"], {"GPS GPSLatitude", "GPS GPSLongitude"}),
        (["position", "time"], {"GPS GPSLatitude", "EXIF DateTimeOriginal"}),
    ):
        (tmp_path / "b.jpg").write_bytes(clean((tmp_path / "a.jpg").read_bytes(), ".jpg", wishes))
        found = told(tmp_path / "b.jpg")
        assert tags <= set(found)
        assert ("position" in wishes) == any("GPSLatitude" in tag for tag in found)
        assert ("time" in wishes) == any("DateTime" in tag for tag in found)
        assert "Image Make" not in found


def test_a_position_that_stays_is_written_anew(tmp_path):
    """Numbers of any length could hold a message, or the home of whoever took the photo."""
    paint(tmp_path / "a.jpg")
    odd = {1: "S", 2: (IFDRational(43 * 9973, 9973), IFDRational(28, 1), 2.8), 3: "W", 4: (11.0, 53.0, 6.4)}
    long = {**odd, 4: (11.0, 53.0, 6.4, *range(1000, 1200))}
    for tags, kept in ((odd, True), (long, False)):
        exif = Image.Exif()
        exif.get_ifd(ExifTags.IFD.GPSInfo).update(tags)
        Image.new("RGB", (40, 24)).save(tmp_path / "a.jpg", exif=exif)
        with Image.open(io.BytesIO(clean((tmp_path / "a.jpg").read_bytes(), ".jpg", ["position"]))) as copy:
            found = copy.getexif().get_ifd(ExifTags.IFD.GPSInfo)
            assert len(found) == 4 * kept
            if kept:
                assert gps(copy) == pytest.approx((-43.467444, -11.885111), abs=1e-6)
                assert [(p.numerator, p.denominator) for p in found[2][:2]] == [(43, 1), (28, 1)]


def test_colours_of_another_profile_are_kept_as_colours(tmp_path):
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB"))
    for given in (b"no profile at all", profile.tobytes()):  # neither fits RGB: pixels as they are
        Image.new("RGB", (8, 8), (200, 30, 30)).save(tmp_path / "a.png", icc_profile=given)
        with Image.open(io.BytesIO(clean((tmp_path / "a.png").read_bytes(), ".png"))) as copy:
            assert copy.getpixel((0, 0)) == (200, 30, 30)
            assert "icc_profile" not in copy.info


def test_names_of_jpegs_made_of_heic_take_nobodys_place(tmp_path):
    if not heif():
        pytest.skip("pillow-heif is not installed: 1 test of HEIC")
    (tmp_path / "in").mkdir()
    for name in ("IMG_1.heic", "IMG_1.jpg", "IMG_2.JPG"):
        paint(tmp_path / "in" / name, format="HEIF" if name.endswith("heic") else "JPEG")
    names = [
        (n, hashlib.sha256((tmp_path / "in" / n).read_bytes()).hexdigest())
        for n in ("IMG_2.JPG", "IMG_1.heic", "IMG_1.jpg")
    ]
    made = clean_copies(tmp_path / "in", names, tmp_path / "out")
    assert [copy.name for copy in made] == ["IMG_2.JPG", "photo-0001.jpg", "IMG_1.jpg"]
    (tmp_path / "in" / "IMG_1.jpg").write_bytes(b"another one")
    with pytest.raises(InputError, match=r"IMG_1\.jpg: found a photo that changed"):
        clean_copies(tmp_path / "in", names, tmp_path / "out")


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


def test_a_broken_photo_is_named(holiday):
    (holiday.parent / "photos" / "torn.jpg").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"torn\.jpg: found a photo that .*\(no picture, or a broken one\)"):
        solve("photo-censor", holiday, holiday.parent / "out")


def test_no_copies_where_nothing_is_written(holiday, tmp_path, monkeypatch):
    monkeypatch.setattr("privopt.run.solve._check_written", lambda work, context: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    assert sorted(os.listdir(tmp_path)) == ["problem"]


def test_only_a_folder_of_photos_is_copied(tmp_path):
    np.save(tmp_path / "s.npy", np.log([[0.6, 0.4], [0.5, 0.5]]))
    (tmp_path / "p.toml").write_text('[photos]\nscores = "s.npy"\ntrue_location = 0\n[privacy]\ntop_k = 1\n')
    with pytest.raises(InputError, match=r"photos\.folder: found nothing"):
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
    true = load_release(folder).release.true
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
    "N43E011.jpg", "43N28_11E53.jpg", "lat43lon11.jpg", "Arezzo.jpg", "Nice 3.jpg", "rome/a.jpg", "2019/DSCN0010.jpg",
    "NYC1.jpg", "P8011234.jpg", "2019.jpg", "N43.jpg", "E_11.jpg", "43.jpg", "٤٣.jpg", "IMG_٤٣.jpg", "b-12.jpg",
    "a.webp",
]  # fmt: skip
NEUTRAL = [
    "DSCN0010.jpg",
    "IMG_1234.JPG",
    "_DSC0042.png",
    "dsc01234.jpg",
    "DJI_0001.jpg",
]


def test_names_that_may_tell_a_place_or_a_time_are_not_those_of_copies():
    made = copy_names([*TELLING, *NEUTRAL])
    assert made == [*(f"photo-{n:04d}.{name.rpartition('.')[2]}" for n, name in enumerate(TELLING, 1)), *NEUTRAL]
    taken = copy_names(["Arezzo.jpg", "Rome.HEIC", "IMG_1.heic"], ["photo-0001.jpg", "Photo-0003.JPG", "img_1.jpg"])
    assert taken == ["photo-0002.jpg", "photo-0004.jpg", "photo-0005.jpg"]
    assert [revealed(name) for name in TELLING[:11]] == ["a date"] * 5 + ["coordinates"] * 6
    assert revealed("rome/a.jpg", ["Rome"]) == revealed("in_Rome.jpg", ["Rome"]) == "a place"
    assert not any(revealed(name, ["Rome", ""]) for name in (*NEUTRAL, "chrome.jpg", "pool.jpg"))


def test_copies_have_neutral_names_where_those_of_photos_tell(holiday, tmp_path):
    photos = holiday.parent / "photos"
    (photos / "DSCN0010.jpg").rename(photos / "IMG_20081022_1628.jpg")
    holiday.write_text(holiday.read_text().replace("DSCN0010", "IMG_20081022_1628"))
    done = solve("photo-censor", holiday, tmp_path / "out", Options(copy_to=tmp_path / "clean"))
    assert not any("names of photos" in line for line in done.warnings)
    assert (tmp_path / "clean" / "photo-0001.jpg").exists()
    assert "IMG_20081022_1628.jpg,photo-0001.jpg," in (done.folder / "copies.csv").read_text()
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
    copy = clean(out.getvalue(), ".jpg", {"position"})
    for contents in (out.getvalue(), copy):
        with Image.open(io.BytesIO(contents)) as photo:
            place = gps(photo)
        assert place == (None if found is None else pytest.approx((found, 11.885111), abs=1e-6))
