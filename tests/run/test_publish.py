"""DIR as it is written: private until it is finished, checked before it has its name, whole or not there."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from attrs import evolve, frozen
from helpers.toys import TOY, write_toy

from privopt.declare import File, key, load_problem
from privopt.errors import CertificationError, InputError, RoundTripError, StoppedError, UsageError
from privopt.files import new_folder as new_folder_module
from privopt.files.new_folder import new_folder
from privopt.registry import registry, using
from privopt.report.write_report import write_report
from privopt.run.problem_copy import ProblemCopy
from privopt.run.publish import remove_checkpoint
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_metric_dp.matrix.release import MatrixRelease


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def no_umask():
    old_umask = os.umask(0)
    yield
    os.umask(old_umask)


# --- private from the first byte -----------------------------------------------------------------------


@pytest.mark.usefixtures("no_umask")
def test_unfinished_folder_is_private(tmp_path):
    with new_folder(tmp_path / "out") as work:
        assert mode(work) == 0o700
        (work / "private").mkdir()
        (work / "private" / "truth.json").write_text("{}")
        (work / "result.json").write_text("{}")
    output_folder = tmp_path / "out"
    assert [mode(output_folder / name) for name in ("", "result.json", "SHA256SUMS")] == [0o755, 0o644, 0o644]
    assert [mode(output_folder / "private" / name) for name in ("", "truth.json", "SHA256SUMS")] == [
        0o700,
        0o600,
        0o600,
    ]


@pytest.mark.usefixtures("no_umask")
def test_folder_is_on_disk_before_its_name(tmp_path, monkeypatch):
    flushed = set()

    def flush(handle):
        assert not (tmp_path / "out").exists()
        flushed.add(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", flush)
    with new_folder(tmp_path / "out") as work:
        (work / "private").mkdir()
        for name in ("a.txt", "private/b.txt"):
            (work / name).write_text(name)
    paths = [tmp_path / "out", *(tmp_path / "out").rglob("*")]
    assert len(paths) == 6  # a SHA256SUMS in each folder
    assert {path.stat().st_ino for path in paths} <= flushed


def test_secrets_stay_private_in_the_result(example, tmp_path):
    owned = shutil.copytree(example("fl-linear", secretive=True), tmp_path / "out") / "private"
    assert mode(owned) == 0o700
    assert {mode(path) for path in owned.rglob("*") if path.is_file()} == {0o600}


def test_folder_of_photos_is_private(example, tmp_path):
    folder = example("photo-censor")
    assert mode(folder) == 0o700
    assert {mode(path) for path in folder.rglob("*") if path.is_file()} == {0o600}
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert mode(write_report(copy)) == 0o600


# --- leftovers -----------------------------------------------------------------------------------------

KILLED = """
import os, sys
from pathlib import Path
from privopt.files.new_folder import new_folder
with new_folder(Path(sys.argv[1])) as work:
    (work / "secret").write_text("x")
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_removes_leftovers_of_killed_runs_only(tmp_path):
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path / "out")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for run in runs:
        assert run.stdout.readline() == b"writing\n"
    assert len(list(tmp_path.iterdir())) == 2
    runs[0].kill()
    runs[0].communicate()
    with pytest.raises(ValueError, match="enough"), new_folder(tmp_path / "other"):
        raise ValueError("enough")
    assert len(list(tmp_path.glob(".out.*.writing"))) == 1, "the dead run's alone are removed"
    runs[1].communicate(b"")
    assert (tmp_path / "out" / "secret").is_file()
    assert not list(tmp_path.glob(".out.*"))


KILLED_REPORT = """
import os, signal, sys
from pathlib import Path
from privopt.report.write_report import write_report
Path.replace = lambda made, target: os.kill(os.getpid(), signal.SIGKILL)
write_report(Path(sys.argv[1]))
"""


def test_removes_page_of_a_killed_run(example, tmp_path):
    shutil.copytree(example("hierarchical-dp"), tmp_path / "out")
    original_names = {path.name for path in tmp_path.iterdir()}
    assert subprocess.run([sys.executable, "-c", KILLED_REPORT, tmp_path / "out"]).returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".out.*"))) == 1
    with pytest.raises(ValueError, match="enough"), new_folder(tmp_path / "other"):
        raise ValueError("enough")
    assert {path.name for path in tmp_path.iterdir()} == original_names
    assert verify(tmp_path / "out").verdict == "declared"


def test_glob_signs_delete_no_other_work(tmp_path):
    kept_names = [".*.keep.me", ".a.abcdefgh.privopt.replaced", ".a.abcdefgh.writing"]
    for name in (
        *kept_names,
        ".*.abcdefgh.privopt.writing",
        ".*.abcdefgh.privopt.replaced",
        ".a.abcdefgh.privopt.writing",
    ):
        (tmp_path / name).mkdir()
    with new_folder(tmp_path / "*") as work:
        (work / "x").write_text("x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["*", *kept_names]


def test_needs_no_process_table(tmp_path, monkeypatch):
    """On a system without /proc every live run looked dead; nothing here asks it."""
    assert "/proc" not in Path(new_folder_module.__file__).read_text()
    with new_folder(tmp_path / "out") as first:
        with pytest.raises(ValueError, match="x"), new_folder(tmp_path / "out"):
            raise ValueError("x")
        assert first.is_dir()
        (first / "x").write_text("x")
    assert (tmp_path / "out").is_dir()


def test_concurrent_runs_replace_nothing_without_force(tmp_path):
    def open_twice():
        with new_folder(tmp_path / "out") as second:
            (second / "result.json").write_text("second")
            with new_folder(tmp_path / "out") as first:
                (first / "result.json").write_text("first")

    with pytest.raises(UsageError, match="exists already"):
        open_twice()
    assert (tmp_path / "out" / "result.json").read_text() == "first"


def test_refuses_link_as_output(toy, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to("real")
    with pytest.raises(UsageError, match="is a link"):
        solve("exponential", toy, tmp_path / "out", Options(force=True))


# --- checkpoints ---------------------------------------------------------------------------------------


def test_removes_checkpoints_after_the_work(toy, tmp_path):
    partial = tmp_path / "out.partial"
    (partial / "part-0").mkdir(parents=True)
    (partial / "part-0" / "benders.npz").write_bytes(b"secret")
    solve("exponential", toy, tmp_path / "out")
    assert not partial.exists()


def test_keeps_and_names_a_folder_with_more_files(toy, tmp_path):
    partial = tmp_path / "out.partial"
    partial.mkdir()
    (partial / "thesis.docx").write_text("mine")
    (partial / "benders.npz").write_bytes(b"")
    release = solve("exponential", toy, tmp_path / "out")
    assert (partial / "thesis.docx").is_file()
    assert "as it is" in release.warnings[0]
    (tmp_path / "link").symlink_to("out.partial")
    remove_checkpoint(tmp_path / "link", [].append)
    assert (partial / "thesis.docx").is_file()


# --- what is said where it fails -----------------------------------------------------------------------


def test_write_error_states_file_and_reason(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "some.npz")

    monkeypatch.setattr(new_folder_module, "flush_folder", full)
    with pytest.raises(StoppedError, match=r"^some\.npz: No space"), new_folder(tmp_path / "out") as work:
        (work / "x").write_text("x")
    assert list(tmp_path.iterdir()) == []


def test_written_release_is_never_denied(toy, tmp_path, monkeypatch):
    solve("exponential", toy, tmp_path / "out")

    def fails(path):
        raise OSError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors=False: ignore_errors or fails(path))
    release = solve("optimal-lp", toy, tmp_path / "out", Options(force=True))
    assert "could not be" in release.warnings[0]
    assert verify(tmp_path / "out").verdict == "proved"


def test_interrupted_rename_keeps_the_old_result(tmp_path, monkeypatch):
    with new_folder(tmp_path / "out") as work:
        (work / "result.json").write_text("before")
    rename = Path.rename

    def interrupt_rename(self, target):
        if self.parent.suffix == ".writing":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupt_rename)
    with pytest.raises(StoppedError, match="nothing written"), new_folder(tmp_path / "out", force=True) as work:
        (work / "result.json").write_text("after")
    assert (tmp_path / "out" / "result.json").read_text() == "before"


# --- inputs are read once, the folder is verified before it has its name ---------------------------------


def test_edit_while_solving_changes_nothing(toy, tmp_path, monkeypatch):
    from privopt.registry import registry

    mechanism = type(registry().get("exponential").load())
    original_files = {path.name: path.read_bytes() for path in toy.parent.iterdir()}
    original_solve = mechanism.solve

    def edit_and_solve(self, problem, context):
        toy.write_text(TOY.replace("0.9", "90.0"))
        (toy.parent / "points.csv").write_text("id,x,y\nother,0,0\nrecords,1,1\n")
        (toy.parent / "prior.csv").unlink()
        return original_solve(self, problem, context)

    monkeypatch.setattr(mechanism, "solve", edit_and_solve)
    folder = solve("exponential", toy, tmp_path / "out").folder
    assert {path.name: path.read_bytes() for path in (folder / "problem").iterdir()} == original_files
    assert verify(folder).verdict == "proved"


def test_verifies_before_the_folder_has_its_name(toy, tmp_path, monkeypatch):
    original_write = MatrixRelease.write

    def torn(self, folder):
        original_write(self, folder)
        (folder / "mechanism.npz").write_bytes(b"torn")

    monkeypatch.setattr(MatrixRelease, "write", torn)
    with pytest.raises(CertificationError, match=r"read back.*mechanism\.npz"):
        solve("exponential", toy, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_two_keys_may_name_one_outside_file(tmp_path):
    write_toy(tmp_path)
    text = TOY.replace("points.csv", "../points.csv").replace("prior.csv", r"..\u002fprior.csv")
    text = text.replace('kind = "euclidean"', 'kind = "graph"\nedges = "../roads.csv"')
    text = text.replace('kind = "distance"', "kind = 'travel-cost'\nedges = '../roads.csv'")
    (tmp_path / "roads.csv").write_text("from,to,km\n" + "".join(f"p{i},p{i + 1},1\n" for i in range(4)))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "p.toml").write_text("# it's the \"../roads.csv\" of a user's city\n" + text)
    folder = solve("exponential", tmp_path / "sub" / "p.toml", tmp_path / "out").folder
    published_text = (folder / "problem" / "p.toml").read_text()
    assert published_text.count('"external/roads.csv"') == 2
    assert published_text.startswith('# it\'s the "../roads.csv"')
    assert sorted(path.name for path in (folder / "problem" / "external").iterdir()) == [
        "points.csv",
        "prior.csv",
        "roads.csv",
    ]
    assert verify(folder).verdict == "proved"


def test_outside_files_of_one_name_do_not_collide(tmp_path):
    write_toy(tmp_path)
    for name, source in (("a", "points.csv"), ("b", "prior.csv")):
        (tmp_path / name).mkdir()
        (tmp_path / source).rename(tmp_path / name / "t.csv")
    (tmp_path / "sub" / "external").mkdir(parents=True)
    text = TOY.replace("points.csv", "../a/t.csv").replace("prior.csv", "../b/t.csv")
    (tmp_path / "sub" / "problem.toml").write_text(text)
    folder = solve("exponential", tmp_path / "sub" / "problem.toml", tmp_path / "out").folder
    assert (folder / "problem" / "external" / "t.csv").read_bytes() == (tmp_path / "a" / "t.csv").read_bytes()
    assert (folder / "problem" / "external" / "t-2.csv").read_bytes() == (tmp_path / "b" / "t.csv").read_bytes()
    assert verify(folder).verdict == "proved"


@frozen(kw_only=True)
class Named:
    secret: File = key(help="a secret", secret=True)
    public: File = key(help="no secret")


def test_refuses_file_named_secret_and_public(tmp_path):
    (tmp_path / "a.csv").write_text("x")
    (tmp_path / "b.csv").hardlink_to(tmp_path / "a.csv")
    (tmp_path / "c.csv").symlink_to("a.csv")
    for name in ("a.csv", "./a.csv", "c.csv", "b.csv"):
        (tmp_path / "p.toml").write_text(f'secret = "a.csv"\npublic = "{name}"\n')
        problem = load_problem(Named, tmp_path / "p.toml")
        with pytest.raises(InputError, match="a secret one"):
            ProblemCopy.of(File.read(tmp_path / "p.toml"), problem)


# --- observers of releases -----------------------------------------------------------------------------


def solve_observed(tmp_path, *functions, **options):
    """Solve a problem in a registry with these functions as implementations of ``privopt_released``."""
    observers = tuple(
        SimpleNamespace(function=function, argnames=("release", "problem"), plugin_name=f"watcher-{number}")
        for number, function in enumerate(functions)
    )
    with using(evolve(registry(), observers=observers)):
        return solve("exponential", write_toy(tmp_path / "toy"), tmp_path / "out", Options(**options))


def test_observers_see_a_verified_release_in_its_place(tmp_path):
    seen = []

    def observe(release, problem):
        assert release.probabilities.shape == problem.data.shape
        seen.append((verify(tmp_path / "out").verdict, sorted(path.name for path in tmp_path.iterdir())))

    solve_observed(tmp_path, observe)
    # No hidden folder is left either.
    assert seen == [("proved", ["out", "toy"])]
    # The folder that a new one replaces is gone too.
    solve_observed(tmp_path, observe, force=True)
    assert seen == [("proved", ["out", "toy"])] * 2


def test_errors_of_observers_are_warnings_and_the_release_stays(tmp_path):
    calls = []

    def fail(release, problem):
        calls.append("fail")
        raise ValueError("disk full")

    def leave(release, problem):
        sys.exit(3)

    solved = solve_observed(tmp_path, fail, leave, lambda release, problem: calls.append("last"))
    assert calls == ["fail", "last"]
    assert solved.warnings[-2:] == ("watcher-0: ValueError: disk full", "watcher-1: SystemExit: 3")
    assert verify(tmp_path / "out").verdict == "proved"


def test_release_stays_if_an_observer_is_interrupted(tmp_path):
    def interrupt(release, problem):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve_observed(tmp_path / "new", interrupt)
    assert verify(tmp_path / "new" / "out").verdict == "proved"


def test_observers_see_nothing_of_a_release_that_fails_its_check(tmp_path, monkeypatch):
    def refuse(folder):
        raise RoundTripError("what was written does not hold")

    monkeypatch.setattr("privopt.run.publish._check_written", refuse)
    with pytest.raises(RoundTripError):
        solve_observed(tmp_path, lambda release, problem: pytest.fail("called"))
    assert not (tmp_path / "out").exists()
