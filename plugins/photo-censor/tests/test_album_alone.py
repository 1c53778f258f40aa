"""A folder of photos without a classifier: what its files tell, guesses, clean copies."""

from __future__ import annotations

import json
import shutil

import exifread
import pytest
from helpers.command import run
from helpers.data import data_path
from helpers.mended_sums import mend
from PIL import Image

from privopt.errors import InputError
from privopt.report.write_report import write_figures, write_geo, write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_photo_censor.app.guesses import guesses
from privopt_photo_censor.app.metadata import Metadata

ALONE = '[photos]\nfolder = "photos"\n'
HERE = {1: "N", 2: (43.0, 28.0, 2.8), 3: "E", 4: (11.0, 53.0, 6.4)}


def photo(path, *, gps=None, taken_time="", camera="", serial="", colour="red"):
    exif = Image.Exif()
    if gps:
        exif.get_ifd(0x8825).update(gps)
    detail = {36867: taken_time, 42033: serial}
    exif.get_ifd(0x8769).update({tag: value for tag, value in detail.items() if value})
    exif.update({271: camera} if camera else {})
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (60, 40), colour).save(path, exif=exif)


@pytest.fixture
def album(tmp_path):
    """Photos of one day and camera, one of them without a position; one of a named place; one that tells nothing."""
    folder = tmp_path / "photos"
    photo(folder / "IMG_0001.jpg", gps=HERE, taken_time="2025:08:14 10:00:00", camera="ACME", serial="X-12345")
    photo(folder / "IMG_0002.jpg", gps=HERE, taken_time="2025:08:14 18:00:00", camera="ACME")
    photo(folder / "IMG_0003.jpg", taken_time="2025:08:14 17:00:00", camera="ACME")
    photo(folder / "IMG_0004.jpg", taken_time="2025:08:15 17:00:00", camera="ACME")
    photo(folder / "trip to Oslo.jpg")
    (folder / "walk.mp4").write_bytes(b"a film")
    (tmp_path / "album.toml").write_text(ALONE)
    return tmp_path


def solve_album(album, name="out", **options):
    return solve("photo-censor", album / "album.toml", album / name, Options(**options))


def test_folder_alone_has_clean_copies_without_promise(album):
    phases = []
    release = solve_album(album, copy_to=album / "to-post", progress=lambda phase, *_: phases.append(phase))
    assert "reading photos" in phases
    result = json.loads((album / "out/result.json").read_text())
    assert result["method"] == result["asked"]["method"] == "positions"
    assert result["guarantee"]["kind"] == "none"
    assert "the pictures themselves" in result["guarantee"]["statement"]
    assert result["objective"] == {"value": 0.0, "lower_bound": None, "gap": None, "unit": "photos"}
    details = result["details"]
    assert details["with_position"] == ["IMG_0001.jpg", "IMG_0002.jpg"]
    assert details["guessed"] == ["IMG_0003.jpg"]
    assert details["left_out"] == ["walk.mp4"]
    assert sorted(path.name for path in (album / "to-post").iterdir()) == sorted(details["copies"])
    assert "photo-0001.jpg" in details["copies"]
    assert not any("Oslo" in name for name in details["copies"])
    for path in (album / "to-post").iterdir():
        with path.open("rb") as file:
            assert not exifread.process_file(file)
        assert b"X-12345" not in path.read_bytes()
    assert any("no photo was" in line for line in release.warnings)
    verification = verify(album / "out")
    assert (verification.verdict, verification.complaints) == ("none", ())


def test_names_what_reveals_the_place_without_copies(album):
    lines = "\n".join(solve_album(album).warnings)
    assert "2 of 5 photos" in lines
    assert "guessed: IMG_0003.jpg" in lines
    assert "--copy-to FOLDER" in lines


def test_command_exits_0_and_verify_exits_6(album):
    solved = run("solve", "photo-censor", album / "album.toml", "--out", album / "out")
    assert solved.exit_code == 0, solved.stderr
    verified = run("verify", album / "out")
    assert verified.exit_code == 6
    assert verified.stdout.startswith(f"none {album / 'out'}: no privacy")


def test_report_has_list_map_and_guesses(album):
    folder = solve_album(album).folder
    page = write_report(folder).read_text()
    for words in (
        "What each photo reveals",
        "X-12345",
        "43.46744",
        "Where the photos say",
        "same day and camera",
        "walk.mp4",
    ):
        assert words in page
    assert "--allow-unsafe" not in page
    assert sorted(path.name for path in write_figures(folder, album / "figures")) == ["map.png", "map.svg"]
    features = json.loads(write_geo(folder, album / "map.geojson").read_text())["features"]
    assert {feature["properties"]["photo"] for feature in features} == {
        "IMG_0001.jpg",
        "IMG_0002.jpg",
        "IMG_0003.jpg",
    }


def test_report_of_photos_that_reveal_nothing(tmp_path):
    photo(tmp_path / "photos/a.png")
    (tmp_path / "album.toml").write_text(ALONE)
    page = write_report(solve_album(tmp_path).folder).read_text()
    assert "0 of 1 photo reveal a position" in page
    assert "the photos say" not in page


def test_real_photos(tmp_path):
    shutil.copytree(data_path("exif_gps"), tmp_path / "photos")
    (tmp_path / "album.toml").write_text(ALONE)
    release = solve_album(tmp_path, copy_to=tmp_path / "clean")
    details = release.result.details.facts
    assert len(details["with_position"]) == 9
    assert len(details["copies"]) == 9
    table = (release.folder / "metadata.csv").read_text().splitlines()
    assert table[1].startswith("DSCN0010.jpg,43.467")
    assert "NIKON COOLPIX P6000" in table[1]


WANTED = "expected photos.classifier with it (without one no photo is scored, and none deleted)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ALONE + "[privacy]\ntop_k = 1\n", f"privacy.top_k: {WANTED}, got 1"),
        (ALONE + "true_location = 1\n", f"photos.true_location: {WANTED}, got a column"),
        (ALONE + 'keep = ["IMG_0001.jpg"]\n', f"photos.keep: {WANTED}, got 1 photo"),
        ('[photos]\nclassifier = "album.toml"\n', "photos: expected one of scores,"),
    ],
)
def test_names_keys_that_need_a_classifier(album, text, words):
    (album / "album.toml").write_text(text)
    with pytest.raises(InputError) as excinfo:
        solve_album(album)
    assert words in str(excinfo.value)


def test_scoring_methods_need_a_classifier(album, tmp_path):
    with pytest.raises(InputError, match=r"photos\.classifier: .*method greedy"):
        solve_album(album, method="greedy")
    scores = tmp_path / "s.csv"
    scores.write_text("a,b\n-1,-2\n-2,-1\n")
    (album / "album.toml").write_text('[photos]\nscores = "s.csv"\ntrue_location = 0\n[privacy]\ntop_k = 1\n')
    with pytest.raises(InputError, match=r"method positions.*got scores"):
        solve_album(album, method="positions")


def test_changed_lists_do_not_hold(album):
    folder = solve_album(album).folder
    table = folder / "deletions.csv"
    table.write_text(table.read_text().replace("IMG_0003.jpg,0", "IMG_0003.jpg,1"))
    assert "deletes no photo" in " ".join(verify(mend(folder)).complaints)
    table.write_text(table.read_text().replace("IMG_0003.jpg,1", "IMG_0003.jpg,0"))
    metadata_table = folder / "metadata.csv"
    metadata_table.write_text(metadata_table.read_text().replace("IMG_0001.jpg,43.", "IMG_0001.jpg,143."))
    with pytest.raises(InputError, match="row 2, column latitude"):
        verify(mend(folder))


def make_metadata(name, point=None, taken_time="", camera=""):
    latitude, longitude = point or (None, None)
    return Metadata(photo=name, latitude=latitude, longitude=longitude, taken=taken_time, camera=camera)


def test_guess_is_the_nearest_in_time():
    placed = [
        make_metadata("a.jpg", (43.0, 11.0), "2025:08:14 10:00:00", "ACME"),
        make_metadata("b.jpg", (43.5, 11.0), "2025:08:14 18:00:00", "ACME"),
        make_metadata("c.jpg", (10.0, 10.0), "2025:08:14 15:00:00", "OTHER"),
        make_metadata("d.jpg", (20.0, 10.0), "2025:08:15 15:00:00", "ACME"),
    ]
    unplaced = make_metadata("e.jpg", None, "2025:08:14 15:00:00", "ACME")
    guess = guesses([*placed, unplaced])["e.jpg"]
    assert guess.point == (43.5, 11.0)
    assert guess.km == pytest.approx(55.6, abs=0.1)
    assert "b.jpg is nearest" in guess.source
    assert guesses([*placed[2:], unplaced]) == {}
    invalid_time = make_metadata("e.jpg", None, "2025:08:14 29:00:00", "ACME")
    assert guesses([*placed, invalid_time])["e.jpg"].point == (43.0, 11.0)
