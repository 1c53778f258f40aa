"""What is left when the program or its solver is killed: a whole folder or none."""

import os
import signal
import subprocess
import sys

import pytest
from helpers.grids import first_alone
from helpers.toys import grid_text

from privopt.run.verify import verify

SLOW = grid_text(9, 9, 1.0, 0.7)


@pytest.fixture
def slow(tmp_path):
    """Return a problem whose whole LP takes minutes."""
    path = tmp_path / "slow.toml"
    path.write_text(SLOW)
    return path


def start(problem, output_folder, *options):
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "privopt",
            "solve",
            "optimal-lp",
            problem,
            "--out",
            output_folder,
            "--method",
            "full",
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_solving(process):
    """Wait for the first line of progress; an interrupt before that meets Python still importing."""
    for line in process.stderr:
        if "model of" in line:
            return
    raise AssertionError(f"ended with {process.wait()} before it solved anything")


def end_by_signal(process, signal_number):
    """Send a signal, again each minute: Python drops an interrupt that comes while it finalises an object."""
    for _ in range(10):
        process.send_signal(signal_number)
        try:
            return process.communicate(timeout=600)[1]
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(f"still running after ten times {signal_number!r}")


@first_alone("signal_number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_killed_program_leaves_no_partial_folder(slow, tmp_path, signal_number):
    process = start(slow, tmp_path / "out", "--solver", "highs")
    until_solving(process)
    err = end_by_signal(process, signal_number)
    assert process.returncode in ((-9,) if signal_number == signal.SIGKILL else (4, 5)), err
    assert "Traceback" not in err
    if signal_number != signal.SIGKILL:
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert not (tmp_path / "out").exists() or verify(tmp_path / "out").complaints == ()


def test_solve_ends_with_its_terminal(slow, tmp_path):
    """The terminal goes away: SIGHUP comes, and whatever is printed from then on fails."""
    owner, terminal = os.openpty()
    command = [sys.executable, "-m", "privopt", "solve", "optimal-lp", slow, "--out", tmp_path / "out"]
    command += ["--method", "full", "--solver", "highs"]
    process = subprocess.Popen(command, stdout=terminal, stderr=terminal, start_new_session=True)
    os.close(terminal)
    printed = b""
    while b"model of" not in printed:
        printed += os.read(owner, 1000)
    os.close(owner)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=600) in (4, 5)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert not (tmp_path / "out").exists() or verify(tmp_path / "out").complaints == ()
