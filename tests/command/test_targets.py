"""Targets of commands: what lies in a release, is read, has no place or too long a name is refused with code 2."""

import os
import signal
import subprocess
import sys

import pytest
from helpers.charging import run_command
from helpers.mentions import assert_mentions
from helpers.toys import write_toy

from privopt.errors import UsageError
from privopt.files.new_folder import (
    FOLDER_NAME_BYTES,
    PATH_BYTES,
    TARGET_NAME_BYTES,
    check_files,
    check_files_folder,
    check_location,
    check_target,
    new_file,
    new_folder,
)
from privopt.files.release_folder import check_sums
from privopt.ledger.subject_names import key_at
from privopt.run.solve import solve
from privopt.run.task import Options

POINTS = "id,lat,lon\na,41.9,12.5\nb,41.91,12.5\nc,41.9,12.51\n"


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Return a release of the places in ``points.csv`` beside it, drafted as ``p.toml``."""
    folder = tmp_path_factory.mktemp("release")
    (folder / "points.csv").write_text(POINTS)
    (folder / "reports.csv").write_text("report\na\nb\nc\n")
    code, _, err = run_command(
        "init", "exponential", "--points", folder / "points.csv", "--out", folder / "p.toml", "--quiet"
    )
    assert code == 0, err
    solve("exponential", folder / "p.toml", folder / "out")
    return folder / "out"


COMMANDS = {
    "solve": ("solve", "exponential", "{around}/p.toml", "--out", "{inside}"),
    "figures": ("report", "{release}", "--figures", "{inside}"),
    "figures in the folder itself": ("report", "{release}", "--figures", "{release}"),
    "geo": ("report", "{release}", "--geo", "{inside}.geojson"),
    "checker": ("checker", "--out", "{inside}.pyz"),
    "export": ("export", "{release}", "--out", "{inside}"),
    "init": ("init", "exponential", "--points", "{around}/points.csv", "--out", "{inside}.toml"),
    "curve": ("curve", "{around}/p.toml", "--mechanisms", "exponential", "--epsilon", "1:2:2", "--out", "{inside}.csv"),
    "curve's figures": (
        *("curve", "{around}/p.toml", "--mechanisms", "exponential", "--epsilon", "1:2:2"),
        *("--out", "{around}/curve.csv", "--figures", "{inside}"),
    ),
    "explore": ("explore", "{around}/p.toml", "--epsilon", "1:2:2", "--out", "{inside}.html"),
    "apply": ("apply", "{release}", "{around}/points.csv", "--id", "id", "--out", "{inside}.csv"),
    "estimate": ("estimate", "{release}", "{around}/reports.csv", "--out", "{inside}.csv"),
    "disclose": ("disclose", "{release}", "--format", "registry", "--out", "{inside}.yaml"),
    "new": ("new", "acme-mech", "--into", "{release}"),
    "a new ledger": ("budget", "{inside}.ledger", "--set", "1"),
}


@pytest.mark.parametrize("place", ["", "private/", "new/folder/"])
@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_written_into_a_release(release, name, place):
    listed = sorted(release.rglob("*"))
    inside = release / f"{place}extra"
    words = [word.format(release=release, around=release.parent, inside=inside) for word in COMMANDS[name]]
    code, _, err = run_command(*words)
    assert code == 2, err
    assert_mentions(err, str(release), "holds the release alone")
    assert sorted(release.rglob("*")) == listed
    assert check_sums(release) == []
    assert not (release.parent / "curve.csv").exists()


def test_links_into_a_release_are_seen_through(release, tmp_path):
    (tmp_path / "link").symlink_to(release)
    with pytest.raises(UsageError, match="holds the release alone"), new_file(tmp_path / "link" / "x"):
        pass
    with pytest.raises(UsageError, match="holds the release alone"), new_folder(tmp_path / "link" / "x"):
        pass
    with pytest.raises(UsageError, match="holds the release alone"):
        key_at(tmp_path / "link" / "key", make=True)


def test_release_itself_may_still_be_replaced(release, tmp_path):
    solve("exponential", release.parent / "p.toml", tmp_path / "out")
    check_target(tmp_path / "out", force=True)
    solve("exponential", release.parent / "p.toml", tmp_path / "out", Options(force=True))
    assert check_sums(tmp_path / "out") == []


def test_problem_in_the_folder_to_replace_is_refused(tmp_path):
    solve("exponential", write_toy(tmp_path / "toy"), tmp_path / "out")
    copy = next((tmp_path / "out").rglob("problem.toml"))
    with pytest.raises(UsageError, match="which is read"):
        solve("exponential", copy, tmp_path / "out", Options(force=True))
    assert copy.is_file()
    (tmp_path / "toy" / "problem.toml").write_text(
        (tmp_path / "toy" / "problem.toml").read_text().replace('"points.csv"', '"../out/problem/points.csv"')
    )
    with pytest.raises(UsageError, match="which is read"):
        solve("exponential", tmp_path / "toy" / "problem.toml", tmp_path / "out", Options(force=True))
    assert check_sums(tmp_path / "out") == []


@pytest.mark.parametrize("kind", ["same", "dots", "symbolic", "folder", "hard"])
def test_file_that_is_read_is_not_written(tmp_path, kind):
    table = tmp_path / "table.csv"
    table.write_text(POINTS)
    target = {"same": table, "dots": tmp_path / "." / "x" / ".." / "table.csv"}.get(kind, tmp_path / "other.csv")
    (tmp_path / "x").mkdir()
    if kind == "hard":
        target.hardlink_to(table)
    elif kind == "symbolic":
        target.symlink_to(table)
    elif kind == "folder":
        (tmp_path / "y").symlink_to(tmp_path)
        target = tmp_path / "y" / "table.csv"
    with pytest.raises(UsageError, match="is an input, so it is not overwritten"):
        check_files({"--out": target}, force=True, read=[None, table])
    with pytest.raises(UsageError, match="is --out too"):
        check_files({"--out": tmp_path / "new", "--report": tmp_path / "x" / ".." / "new"}, force=True)
    assert table.read_text() == POINTS


LONG = "é" * 128  # 256 bytes, of 128 characters
TARGETS = {
    "solve": ("--out", ("solve", "exponential", "{around}/p.toml", "--out")),
    "checker": ("--out", ("checker", "--out")),
    "export": ("--out", ("export", "{release}", "--out")),
    "geo": ("--geo", ("report", "{release}", "--geo")),
    "init": ("--out", ("init", "exponential", "--points", "{around}/points.csv", "--out")),
    "curve": ("--out", ("curve", "{around}/p.toml", "--mechanisms", "exponential", "--epsilon", "1:2:2", "--out")),
    "estimate": ("--out", ("estimate", "{release}", "{around}/reports.csv", "--out")),
    "disclose": ("--out", ("disclose", "{release}", "--format", "registry", "--out")),
}


@pytest.mark.parametrize("name", TARGETS)
def test_root_and_long_names_are_usage_errors(release, tmp_path, name):
    option, words = TARGETS[name]
    words = [word.format(release=release, around=release.parent) for word in words]
    for target, keywords in (
        ("/", ()),
        (tmp_path / LONG, ("256",)),
        (tmp_path / LONG / "x", ("256",)),
        (tmp_path / "/".join(["x" * 200] * 20), ("bytes",)),
    ):
        code, _, err = run_command(*words, target)
        assert code == 2, (target, err)
        assert_mentions(err, option, *keywords)
        assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    assert not (release / "report.html").exists()


def test_longest_name_that_is_accepted_can_be_written(tmp_path):
    name = "x" * TARGET_NAME_BYTES
    with new_folder(tmp_path / name) as work:
        (work / "result.json").write_text("1")
    with new_folder(tmp_path / name, force=True) as work:
        (work / "result.json").write_text("2")
    with new_file(tmp_path / ("y" * FOLDER_NAME_BYTES) / name) as path:
        path.write_text("3")
    with (
        pytest.raises(UsageError, match=rf"--out .*at most {TARGET_NAME_BYTES} bytes"),
        new_file(tmp_path / f"{name}x"),
    ):
        pass
    longest = tmp_path.joinpath(*["z" * 200] * 20)
    with pytest.raises(UsageError, match=f"{PATH_BYTES:,} bytes"):
        check_location(longest, "--out")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not a folder"):
        check_files_folder(tmp_path / "file", "--figures")


def test_ledger_with_a_long_name_is_refused(tmp_path):
    for target in (tmp_path / LONG, tmp_path / ("l" * (TARGET_NAME_BYTES + 1))):
        code, _, err = run_command("budget", target, "--set", "1")
        assert code == 2, err
        assert "bytes" in err


@pytest.mark.parametrize("words", [("verify",), ("report",), ("solve", "exponential", "--out", "out")])
def test_input_with_a_long_name_is_a_usage_error(tmp_path, words):
    code, _, err = run_command(*words, tmp_path / LONG)
    assert (code, "Traceback" in err) == (2, False), err


def test_figures_with_a_long_name_are_refused_before_the_page(release, tmp_path):
    code, _, err = run_command("report", release, "--figures", tmp_path / LONG)
    assert code == 2
    assert_mentions(err, "--figures", "256")
    assert not (release / "report.html").exists()


WAITING = """
import os, sys, time
from pathlib import Path
from privopt.command.exit_codes import handle_errors
from privopt.files.new_folder import new_file
@handle_errors
def wait():
    with new_file(Path(sys.argv[1])) as path:
        path.write_text("half")
        os.write(2, b"ready\\n")
        time.sleep(3000)
wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ended_command_leaves_no_hidden_folder(tmp_path, number):
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, tmp_path / "out"], stderr=subprocess.PIPE, text=True, preexec_fn=default_signals
    )
    assert process.stderr.readline() == "ready\n"
    process.send_signal(number)
    err = process.communicate(timeout=600)[1]
    assert (process.returncode, "Traceback" in err) == (5, False), err
    assert "nothing written" in err
    assert list(tmp_path.iterdir()) == []


def default_signals():
    """Undo what a caller such as nohup set: the tests are about signals that would end the process."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def test_ignored_hangup_stays_ignored():
    code = "import os, signal\nfrom privopt.execution.clock import interrupts, interrupts_on_end\n"
    code += "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    code += (
        "with interrupts_on_end(), interrupts() as numbers:\n    os.kill(os.getpid(), signal.SIGHUP)\nprint(numbers)"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert completed.stdout == "[]\n"


def test_vanished_terminal_leaves_no_hidden_folder(tmp_path):
    """The end of a terminal: SIGHUP comes, and nothing can be printed any more."""
    owner, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, tmp_path / "out"], stderr=terminal, start_new_session=True
    )
    os.close(terminal)
    assert os.read(owner, 100).startswith(b"ready")
    os.close(owner)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=600) == 5
    assert list(tmp_path.iterdir()) == []
