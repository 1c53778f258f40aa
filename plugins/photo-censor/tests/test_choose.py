"""The local page: what stays is clicked, what goes is solved again."""

from __future__ import annotations

import http.client
import re
import threading
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.albums import write_album

from privopt.declare import load_problem
from privopt.run.solve import solve
from privopt.run.verify import load_release
from privopt_photo_censor.app.chooser_page import Chooser, serve
from privopt_photo_censor.command import cli
from privopt_photo_censor.problem import PhotoProblem

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture
def album(tmp_path):
    return write_album(tmp_path)


@pytest.fixture
def site(album):
    server, address = serve(Chooser.of(album))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield urlsplit(address)
    server.shutdown()
    server.server_close()
    thread.join()


def ask(site, path=None, form=None, host=None):
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=3000)
    body = None if form is None else urlencode(form, doseq=True)
    connection.request("GET" if form is None else "POST", path or site.path, body, {"Host": host or site.netloc})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def states(text):
    return dict(re.findall(r'value="([^"]+)"[^>]*> [^:]+: (stays|goes)', text))


def test_the_page_says_what_solve_says(album, site, tmp_path):
    solve("photo-censor", album, tmp_path / "out")
    release = load_release(tmp_path / "out").release
    answer, text = ask(site)
    assert answer.status == 200
    wanted = {n: "stays" if k else "goes" for n, k in zip(release.names, release.kept.tolist(), strict=True)}
    found = states(text)
    assert set(found) == set(wanted)
    assert list(found.values()).count("goes") == list(wanted.values()).count("goes") > 0
    assert found["beach-03.jpg"] == "stays"


def test_what_is_clicked_stays_and_is_written(album, site):
    _, text = ask(site)
    gone = [name for name, state in states(text).items() if state == "goes"]
    keep = ["beach-03.jpg", gone[0]]
    answer, text = ask(site, form={"keep": keep, "do": "solve"})
    assert answer.status == 200
    assert states(text)[gone[0]] == "stays"
    assert not album.with_suffix(".keep.toml").exists()
    _, text = ask(site, form={"keep": [*keep, "no such photo"], "do": "save"})
    assert "Written" in text
    assert set(load_problem(PhotoProblem, album.with_suffix(".keep.toml")).photos.keep) == set(keep)
    assert load_problem(PhotoProblem, album).photos.keep == ("beach-03.jpg",)


def test_where_nothing_protects_the_page_says_so(site):
    _, text = ask(site)
    answer, text = ask(site, form={"keep": list(states(text)), "do": "solve"})
    assert answer.status == 200
    assert "nothing protects" in text


def test_nobody_else_is_answered(site):
    assert ask(site, path="/")[0].status == 404
    assert ask(site, path=site.path + "x")[0].status == 404
    assert ask(site, host="evil.example")[0].status == 404
    assert ask(site, host="evil.example", form={"do": "save"})[0].status == 404
    answer, _ = ask(site)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_hostile_names_are_text(tmp_path, album):
    photos = tmp_path / "photos"
    (photos / "beach-01.jpg").rename(photos / "<script>alert(1)<.jpg")
    page = Chooser.of(album).page(["<script>alert(1)<.jpg"])
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_scores_alone_have_a_page_too(tmp_path):
    np.save(tmp_path / "s.npy", np.log([[0.6, 0.4], [0.3, 0.7]]))
    (tmp_path / "p.toml").write_text('[photos]\nscores = "s.npy"\ntrue_location = 0\n[privacy]\ntop_k = 1\n')
    assert "may stay" in Chooser.of(tmp_path / "p.toml").page([])


def test_a_bad_problem_is_a_line(tmp_path):
    done = CliRunner().invoke(cli, ["choose", str(tmp_path / "none.toml")])
    assert done.exit_code == 2
    assert "Traceback" not in done.output
