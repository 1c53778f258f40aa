"""DIR as an enemy would write it: nothing outside it is read, nothing waits, and every entry of it counts."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.mended_sums import edit, mend

from privopt.errors import InputError, PrivoptError
from privopt.files.release_folder import check_sums, files_in
from privopt.run.verify import load_release, open_verified, verify


@pytest.fixture
def copy(solved_toy, tmp_path):
    return shutil.copytree(solved_toy, tmp_path / "out")


def pointed_at(folder, name):
    """Another points file in the problem, sums and result.json mended."""
    path = folder / "problem" / "problem.toml"
    path.write_text(path.read_text().replace('"points.csv"', json.dumps(str(name))))
    edit(folder, lambda r: r["problem"].update(sha256=hashlib.sha256(path.read_bytes()).hexdigest()))


@pytest.mark.parametrize("name", ["{outside}/secret.csv", "../../secret.csv", "/dev/zero", "/etc/passwd", "a\0b"])
def test_verify_reads_nothing_outside_and_prints_none_of_it(copy, tmp_path, privopt, name):
    (tmp_path / "secret.csv").write_text("id,x,y\nthe-secret-itself,nonsense,0\n")
    pointed_at(copy, name.format(outside=tmp_path))
    done = privopt("verify", copy)
    assert done.returncode == 2
    assert "records.points" in done.stderr
    assert "expected the name of a file in the same folder" in done.stderr
    assert "the-secret-itself" not in done.stderr + done.stdout
    assert "root:" not in done.stderr + done.stdout


@pytest.mark.parametrize("name", ["problem/points.csv", "result.json", "SHA256SUMS", "mechanism.npz", "problem"])
@pytest.mark.parametrize("how", ["link", "pipe"])
def test_links_and_pipes_are_refused_by_name_and_never_opened(copy, tmp_path, name, how):
    kept = tmp_path / "kept"
    (copy / name).rename(kept)
    if how == "link":
        (copy / name).symlink_to(kept)
    else:
        os.mkfifo(copy / name)
    word = "a link" if how == "link" else "a pipe"
    found = verify(copy)
    assert found.verdict is None
    assert found.complaints == (f"{name}: expected a regular file, got {word}",)
    with pytest.raises(InputError, match=f"{name}: expected .*, got {word}"):
        load_release(copy)


def test_a_folder_that_is_no_release_is_refused_before_it_is_walked(tmp_path, monkeypatch):
    monkeypatch.delattr("privopt.files.release_folder.files_in")
    for use in (verify, open_verified, check_sums):
        with pytest.raises(InputError, match=r"expected a folder that privopt solve has.*, got no SHA256SUMS in it"):
            use(tmp_path)


def test_every_entry_counts_even_empty_folders(copy):
    (copy / "empty" / "deep").mkdir(parents=True)
    assert verify(copy).complaints == ("empty/deep/: expected folders that hold files, got an empty folder",)
    (copy / "empty" / "deep" / "note.txt").write_text("x")
    assert verify(copy).complaints == ("empty/deep/note.txt: not listed in SHA256SUMS",)


def test_a_name_with_a_newline_is_no_second_line_of_the_sums(copy):
    before = (copy / "SHA256SUMS").read_text()
    digest = hashlib.sha256(b"forged").hexdigest()
    forged = f"a\n{digest}  result.json"
    (copy / forged.replace("/", "")).write_text("forged")
    assert check_sums(copy) == [rf"a\n{digest}  result.json: not listed in SHA256SUMS"]
    mend(copy)
    lines = (copy / "SHA256SUMS").read_text().split("\n")
    assert len(lines) == len(before.split("\n")) + 1
    assert lines[0] == rf"\{digest}  a\n{digest}  result.json"


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_odd_names_are_written_as_sha256sum_writes_them(tmp_path):
    for name in ("plain", "a b", "back\\slash", "new\nline", os.fsdecode(b"\xff")):
        (tmp_path / "x").mkdir(exist_ok=True)
        (tmp_path / "x" / name).write_text(name.encode(errors="replace").decode())
    mend(tmp_path / "x")
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS", "--quiet", "--strict"], cwd=tmp_path / "x", check=False)
    assert done.returncode == 0
    assert check_sums(tmp_path / "x") == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"mechanism": "a", "mechanism": "b"}', "'mechanism' occurs twice"),
        ('{"details": {"a": 1, "a": 1}}', "'a' occurs twice"),
        ('{"a": ' * 900 + "1" + "}" * 900, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": "\\ud800"}', "invalid characters"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1e999999999}', "no double holds"),
        ("{" + "9" * 10, "not JSON"),
        ('{"a": ' + "9" * 5000 + "}", "too many digits"),
        ("\xff", "not JSON"),
    ],
)
def test_json_has_one_meaning_or_is_refused(copy, text, word):
    (copy / "result.json").write_text(text, "latin-1")
    mend(copy)
    with pytest.raises(InputError, match=word):
        verify(copy)


@pytest.mark.parametrize(
    "file", ["..", ".", "", "a\0b", "../problem/problem.toml", "x" * 300, "\u202egnp", "/dev/zero"]
)
def test_an_odd_name_of_the_problem_file_is_refused(copy, file):
    edit(copy, lambda r: r["problem"].update(file=file))
    with pytest.raises(PrivoptError) as refused:
        verify(copy)
    assert str(refused.value).isprintable()


def test_files_are_listed_whatever_they_are_called(tmp_path):
    for name in (b"\xff\xfe", b"a\nb", "\u2028".encode(), b"-rf", b"\x1b[31m"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("x")
    files, faults = files_in(tmp_path)
    assert len(files) == 5
    assert faults == []
