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
def test_verify_reads_and_prints_nothing_outside(copy, tmp_path, privopt, name):
    (tmp_path / "secret.csv").write_text("id,x,y\nthe-secret-itself,nonsense,0\n")
    pointed_at(copy, name.format(outside=tmp_path))
    completed = privopt("verify", copy)
    assert completed.returncode == 2
    assert "records.points" in completed.stderr
    assert "in the same folder" in completed.stderr
    assert "the-secret-itself" not in completed.stderr + completed.stdout
    assert "root:" not in completed.stderr + completed.stdout


@pytest.mark.parametrize("name", ["problem/points.csv", "result.json", "SHA256SUMS", "mechanism.npz", "problem"])
@pytest.mark.parametrize("file_kind", ["link", "pipe"])
def test_refuses_links_and_pipes_by_name(copy, tmp_path, name, file_kind):
    original_path = tmp_path / "kept"
    (copy / name).rename(original_path)
    if file_kind == "link":
        (copy / name).symlink_to(original_path)
    else:
        os.mkfifo(copy / name)
    word = "a link" if file_kind == "link" else "a pipe"
    verification = verify(copy)
    assert verification.verdict is None
    assert [
        complaint.startswith(f"{name}: ") and complaint.endswith(word) for complaint in verification.complaints
    ] == [True]
    with pytest.raises(InputError, match=f"{name}: expected .*, got {word}"):
        load_release(copy)


def test_refuses_other_folders_unread(tmp_path, monkeypatch):
    monkeypatch.delattr("privopt.files.release_folder.files_in")
    for use in (verify, open_verified, check_sums):
        with pytest.raises(InputError, match="no SHA256SUMS"):
            use(tmp_path)


def test_every_entry_counts_even_empty_folders(copy):
    (copy / "empty" / "deep").mkdir(parents=True)
    assert [line.partition(":")[0] for line in verify(copy).complaints] == ["empty/deep/"]
    (copy / "empty" / "deep" / "note.txt").write_text("x")
    assert [line.partition(":")[0] for line in verify(copy).complaints] == ["empty/deep/note.txt"]


def test_name_with_newline_is_one_line_of_sums(copy):
    original_sums = (copy / "SHA256SUMS").read_text()
    digest = hashlib.sha256(b"forged").hexdigest()
    forged_name = f"a\n{digest}  result.json"
    (copy / forged_name.replace("/", "")).write_text("forged")
    assert check_sums(copy) == [rf"a\n{digest}  result.json: not listed in SHA256SUMS"]
    mend(copy)
    lines = (copy / "SHA256SUMS").read_text().split("\n")
    assert len(lines) == len(original_sums.split("\n")) + 1
    assert lines[0] == rf"\{digest}  a\n{digest}  result.json"


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_names_are_escaped_like_sha256sum(tmp_path):
    for name in ("plain", "a b", "back\\slash", "new\nline", os.fsdecode(b"\xff")):
        (tmp_path / "x").mkdir(exist_ok=True)
        (tmp_path / "x" / name).write_text(name.encode(errors="replace").decode())
    mend(tmp_path / "x")
    completed = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS", "--quiet", "--strict"], cwd=tmp_path / "x", check=False
    )
    assert completed.returncode == 0
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
        ('{"a": 1e999999999}', "no double can hold"),
        ("{" + "9" * 10, "not JSON"),
        ('{"a": ' + "9" * 5000 + "}", "too many digits"),
        ("\xff", "not JSON"),
    ],
)
def test_json_is_unambiguous_or_refused(copy, text, word):
    (copy / "result.json").write_text(text, "latin-1")
    mend(copy)
    with pytest.raises(InputError, match=word):
        verify(copy)


@pytest.mark.parametrize(
    "file", ["..", ".", "", "a\0b", "../problem/problem.toml", "x" * 300, "\u202egnp", "/dev/zero"]
)
def test_refuses_invalid_problem_file_names(copy, file):
    edit(copy, lambda r: r["problem"].update(file=file))
    with pytest.raises(PrivoptError) as excinfo:
        verify(copy)
    assert str(excinfo.value).isprintable()


def test_lists_files_of_any_name(tmp_path):
    for name in (b"\xff\xfe", b"a\nb", "\u2028".encode(), b"-rf", b"\x1b[31m"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("x")
    files, faults = files_in(tmp_path)
    assert len(files) == 5
    assert faults == []
