"""An album from a folder: its report shows the photos, small, without their metadata, and needs no folder any more."""

import base64
import io
import re

import pytest
from helpers.albums import write_album

from privopt.report.write_report import write_figures, write_report
from privopt.run.solve import solve
from privopt.run.verify import load_release, verify

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    folder = tmp_path_factory.mktemp("album")
    release = solve("photo-censor", write_album(folder / "problem"), folder / "out")
    (folder / "problem" / "photos").rename(folder / "elsewhere")
    return release.folder


def test_report_shows_every_photo_and_which_are_kept(album):
    text = write_report(album).read_text("utf-8")
    assert len(text) < 6e6
    opened_release = load_release(album)
    release, result = opened_release.release, opened_release.result
    photos = re.findall(r'<li class="(kept|deleted)"><img alt="" src="data:image/jpeg;base64,([^"]+)">', text)
    assert [state == "kept" for state, _ in photos] == release.retained.tolist()
    assert sum(state == "deleted" for state, _ in photos) == result.objective.value > 0
    names = re.findall(r"<strong>(beach-\d\d\.jpg)</strong>", text)
    assert tuple(names) == release.names
    assert "to be deleted" in text


def test_thumbnails_are_small_and_reveal_nothing(album):
    text = write_report(album).read_text("utf-8")
    for coded in re.findall(r"base64,([^\"]+)", text):
        raw = base64.b64decode(coded)
        with Image.open(io.BytesIO(raw)) as photo:
            assert max(photo.size) <= 192
            assert not photo.getexif()
        assert b"nowhere" not in raw
    assert "nowhere" not in text


def test_folder_is_complete_and_lists_thumbnails(album):
    assert verify(album).complaints == ()
    assert "thumbnails/0.jpg" in (album / "SHA256SUMS").read_text()


def test_figures_name_the_true_rank(album, tmp_path):
    file_names = {path.name for path in write_figures(album, tmp_path)}
    assert {"before.svg", "after.png", "photos.svg"} <= file_names
    result = load_release(album).result
    assert f"the true place is guess {result.details.facts['rank_after']}" in (tmp_path / "after.svg").read_text()
