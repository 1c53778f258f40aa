"""Inputs and archives as an enemy would make them: refused by name, before anything waits or is allocated."""

import io
import os
import stat
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers.mentions import assert_mentions
from helpers.toys import write_toy

from privopt.errors import InputError, UsageError
from privopt.files.archive import npy_bytes, parse_npy, parse_npz, read_npz
from privopt.files.regular import LARGEST, Unreadable, open_private, private_folder, read_bytes
from privopt_metric_dp.matrix.release import MatrixRelease


def zip_members(*members, compression=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of a name that stands twice
        for name, contents in members:
            archive.writestr(name, contents)
    return stream.getvalue()


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def header(shape):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<u8", "fortran_order": False, "shape": shape})
    return stream.getvalue()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (os.mkfifo, "a pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "a device"),
        (lambda path: path.mkdir(), "a folder"),
        (lambda path: path.symlink_to("nowhere"), "exist"),
    ],
)
def test_solve_refuses_pipes_devices_and_folders(privopt, tmp_path, make, word):
    problem = write_toy(tmp_path / "toy")
    (problem.parent / "points.csv").unlink()
    make(problem.parent / "points.csv")
    completed = privopt("solve", "exponential", problem, "--out", tmp_path / "out", "--quiet")
    assert completed.returncode == 2, completed.stderr
    assert_mentions(completed.stderr, "problem.toml: records.points: expected a file", "'points.csv'")
    assert word in completed.stderr
    assert completed.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_refuses_pipe_as_problem_file(privopt, tmp_path):
    os.mkfifo(tmp_path / "problem.toml")
    completed = privopt("solve", "exponential", tmp_path / "problem.toml", "--out", tmp_path / "out", "--quiet")
    assert completed.returncode == 2
    assert_mentions(completed.stderr, "problem.toml", "got a pipe\n")


def test_refuses_large_input_unread(tmp_path):
    path = tmp_path / "huge.npy"
    with path.open("wb") as stream:
        stream.truncate(LARGEST + 1)  # holes: nothing is written
    with pytest.raises(Unreadable, match=r"8,589,934,593 bytes.*8,589,934,592"):
        read_bytes(path)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs a file that does not say its length")
def test_refuses_file_of_wrong_length():
    with pytest.raises(Unreadable, match="while it is"):
        read_bytes(Path("/proc/self/status"))


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 5000])
def test_refuses_invalid_names_cleanly(tmp_path, name):
    with pytest.raises(Unreadable, match="which"):
        read_bytes(tmp_path / name)


def test_refuses_zip_bombs_without_memory(tmp_path):
    bomb = tmp_path / "mechanism.npz"
    bomb.write_bytes(zip_members(("weights.npy", header((4096, 4096)) + bytes(4096 * 4096 * 8))))
    assert bomb.stat().st_size < 200_000
    tracemalloc.start()
    with pytest.raises(InputError, match=r"more than [\d,]+ bytes"):
        MatrixRelease.load(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10**7


def test_large_header_allocates_nothing(tmp_path):
    lie = tmp_path / "mechanism.npz"
    lie.write_bytes(zip_members(("weights.npy", header((10**6, 10**6)) + bytes(64)), compression=zipfile.ZIP_STORED))
    with pytest.raises(InputError, match=r"its header says 8,000,000,000,000"):
        MatrixRelease.load(lie)
    with pytest.raises(ValueError, match=r"64 bytes.*8,000,000,000,000"):
        parse_npy(header((10**6, 10**6)) + bytes(64))


def test_refuses_archive_with_duplicate_name():
    raw = zip_members(("a.npy", npy(np.arange(3))), ("a.npy", npy(np.arange(4))))
    with pytest.raises(ValueError, match="'a' twice"):
        parse_npz(io.BytesIO(raw), largest=10**6)


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (zip_members(("notes.txt", b"x")), "not an array"),
        (zip_members(("a.npy", npy(np.arange(3))), compression=zipfile.ZIP_LZMA), "solve writes members"),
        (zip_members(("a.npy", npy(np.array([None])))), "type object"),
        (zip_members(("a.npy", b"garbage")), "magic string"),
        (b"garbage", "zip"),
    ],
)
def test_refuses_archives_unlike_numpy(raw, word):
    with pytest.raises(ValueError, match=word):
        parse_npz(io.BytesIO(raw), largest=10**6)


@pytest.mark.parametrize("array", [np.arange(12.0).reshape(3, 4), np.asfortranarray(np.ones((2, 3))), np.zeros((0, 4))])
def test_arrays_round_trip(array, tmp_path):
    np.testing.assert_array_equal(parse_npy(npy(array)), array)
    np.savez(tmp_path / "a.npz", one=array, ids=np.array(["x", "yy"]))
    arrays = read_npz(tmp_path / "a.npz", "arrays")
    np.testing.assert_array_equal(arrays["one"], array)
    assert arrays["ids"].tolist() == ["x", "yy"]


def test_private_files_are_private_at_once(tmp_path):
    old_umask = os.umask(0)
    try:
        private_folder(tmp_path / "p" / "part-0")
        with open_private(tmp_path / "p" / "part-0" / "x.npz") as stream:
            (part,) = (tmp_path / "p" / "part-0").iterdir()
            assert stat.S_IMODE(part.stat().st_mode) == 0o600
            stream.write(b"secret")
    finally:
        os.umask(old_umask)
    assert stat.S_IMODE((tmp_path / "p" / "part-0").stat().st_mode) == 0o700
    assert [path.name for path in (tmp_path / "p" / "part-0").iterdir()] == ["x.npz"]


def test_private_files_follow_no_link(tmp_path):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out.partial").symlink_to("elsewhere")
    with pytest.raises(UsageError, match="got a link"):
        private_folder(tmp_path / "out.partial")
    for name in (".x.npz.part", "x.npz"):
        (tmp_path / name).symlink_to("mine")
    with open_private(tmp_path / "x.npz") as stream:
        stream.write(b"secret")
    assert (tmp_path / "mine").read_text() == "kept"
    assert (tmp_path / "x.npz").read_bytes() == b"secret"
    assert not (tmp_path / "x.npz").is_symlink()


@pytest.mark.parametrize("values", [[[0.5, None]], [["a", 1.0]], [[0.25, 0.75]]])
def test_names_the_type_of_object_arrays(values):
    with pytest.raises(UsageError, match="type object"):
        npy_bytes(np.array(values, dtype=object))
