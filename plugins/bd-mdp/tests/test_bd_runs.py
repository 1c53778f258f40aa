"""From the command line: where the blocks run changes nothing; a killed run ends well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.command import run
from helpers.toys import grid_text

TOML = (
    grid_text(2, 4, within=2.0)
    + """[bd-mdp]
partition = "minimum-boundary"
subsets = 3
start = "cold"
"""
)
PAUSED = """
import os, signal, sys
from privopt.__main__ import main
from privopt.decompose import benders
write = benders.write_checkpoint

def first(*given):
    write(*given)
    benders.write_checkpoint = write
    os.kill(os.getpid(), signal.SIGSTOP)

benders.write_checkpoint = first
main()
"""


def call(folder: Path, name: str, *options: object) -> list[str]:
    (folder / "p.toml").write_text(TOML)
    arguments = ["solve", "bd-mdp", folder / "p.toml", "--out", folder / name, "--quiet", "--solver", "highs", *options]
    return [sys.executable, "-m", "privopt", *map(str, arguments)]


def run_to_end(folder: Path, name: str, *options: object) -> dict:
    """Run it in this process, to the end; with ``--jobs`` the blocks run in others."""
    completed = run(*call(folder, name, *options)[3:])
    assert completed.exit_code == 0, completed.output
    return json.loads((folder / name / "result.json").read_text())


def weights(folder: Path, name: str) -> np.ndarray:
    return np.load(folder / name / "mechanism.npz")["weights"]


def start_and_pause(folder: Path, name: str, *options: object) -> subprocess.Popen[str]:
    """Return the same, stopped where its first checkpoint is written; SIGCONT has it go on."""
    _, _, _, *arguments = call(folder, name, *options)
    process = subprocess.Popen([sys.executable, "-c", PAUSED, *arguments], stderr=subprocess.PIPE, text=True)
    process_state = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert process_state.si_code == os.CLD_STOPPED, process.communicate()
    return process


@pytest.fixture(scope="module")
def single_process_run(tmp_path_factory):
    """Return a run in one process."""
    folder = tmp_path_factory.mktemp("alone")
    result = run_to_end(folder, "serial", "--gap", "1e-4")
    assert result["status"] == "optimal"
    assert result["details"]["told"]["parts"][0]["rounds"] > 5
    return weights(folder, "serial"), result


def test_two_processes_release_the_same(single_process_run, tmp_path):
    two_process_result = run_to_end(tmp_path, "two", "--gap", "1e-4", "--jobs", "2")
    assert (weights(tmp_path, "two") == single_process_run[0]).all()
    assert two_process_result["objective"] == single_process_run[1]["objective"]


def test_killed_run_resumes_to_same_bound(single_process_run, tmp_path):
    process = start_and_pause(tmp_path, "out", "--gap", "1e-4")
    file = tmp_path / "out.partial" / "part-0" / "benders.npz"
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    with np.load(file) as archive:
        assert 0 < archive["rounds"] < single_process_run[1]["details"]["told"]["parts"][0]["rounds"]
    result = run_to_end(tmp_path, "out", "--gap", "1e-4", "--resume")
    assert result["objective"] == single_process_run[1]["objective"]
    assert (weights(tmp_path, "out") == single_process_run[0]).all()
