"""What the terminal shows at 80 columns, as text files that were read by eye.

``python tests/command/test_snapshots.py`` writes the files again; look at the difference before it is committed.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where this is run as a script

from helpers.terminals import run_at_terminal, strip_codes

from privopt.command.cli import cli
from privopt.registry import registry

FOLDER = Path(__file__).with_name("snapshots")
PROBLEM = """\
[records]
grid = { rows = 2, cols = 2, cell_kn = 1.0 }
[distance]
kind = "euclidean"
[privacy]
epsilom = 1.0
[utility]
kind = "distance"
"""
CITY = Path(__file__).parents[2] / "docs" / "examples" / "city" / "problem.toml"
CALLS = {
    "help": ["--help"],
    "solve-help": ["solve", "--help"],
    "list": ["list"],
    "describe": ["describe", "photo-censor"],
    "unknown-key": ["solve", "optimal-lp", "problem.toml", "--out", "out"],
    "missing-file": ["solve", "optimal-lp", "nowhere.toml", "--out", "out"],
    "unknown-command": ["solv", "optimal-lp"],
    "no-columns": ["apply", "city", "trips.csv", "--out", "safe.csv"],
}
PROGRESS = """
import time
from privopt.command import terminal
terminal.SECONDS_BEFORE_PROGRESS, terminal.SECONDS_BETWEEN_LINES = 0.3, 0.5
with terminal.progress_display(quiet=False, limit=60.0) as report:
    report("interior-point", 7, 1.9375, 2.0)
    time.sleep(1.0)
    report("writing and verifying the folder", 0, None, None)
    time.sleep(1.0)
"""
LIVE_PROGRESS = """
import threading
from privopt.command import terminal
steps = {
    ("problem", 0, None, None): 2.1,
    ("one output", 1, 0.0, 5.36147): 3.0,
    ("interior-point", 4, 0.512345, 0.734567): 4.2,
    ("interior-point", 19, 0.56791, 0.56793): 6.4,
    ("interior-point, repairing and certifying", 0, 0.56791, 0.56793): 7.5,
    ("interior-point, proving the bound", 0, 0.56791, 0.56792): 9.1,
    ("writing and verifying the folder", 0, None, None): 10.2,
}
drawn, describe = threading.Semaphore(0), terminal._describe_step
def describe_at_its_time(report, seconds, limit):
    drawn.release()
    return describe(report, steps.get(report, 0.0), limit)
terminal.SECONDS_BEFORE_PROGRESS, terminal._describe_step = 0.0, describe_at_its_time
with terminal.progress_display(quiet=False, limit=9.5) as report:
    for step in steps:
        report(*step)
        while drawn.acquire(blocking=False):
            pass
        for _ in range(3):
            drawn.acquire()
"""
"""A solve of ten seconds, each step at a second of its own, however busy the machine is."""


def run_at_80_columns(arguments, folder):
    """Run a Python program in a folder, on a terminal of 80 columns; return what it prints and its exit code."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    completed = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return f"{completed.stdout}{completed.stderr}exit code {completed.returncode}\n"


def take_snapshot(name, folder):
    """Return what one call shows."""
    (folder / "problem.toml").write_text(PROBLEM)
    (folder / "trips.csv").write_text("trip,start_lat,start_lon\n1,45.0,7.0\n")
    if name == "no-columns":
        run_at_80_columns(["-m", "privopt", "solve", "exponential", str(CITY), "--out", "city"], folder)
    shown = run_at_80_columns(["-m", "privopt", *CALLS[name]], folder)
    return re.sub(r"^ *\d+\.\d s  .*\n", "", shown, flags=re.MULTILINE)  # progress, on a machine that is busy


@pytest.mark.parametrize("name", CALLS)
def test_terminal_shows_the_snapshot(name, tmp_path):
    shown = take_snapshot(name, tmp_path)
    assert max(map(len, shown.splitlines())) <= 80 or "exit code 2" in shown  # a message is one line, for grep
    assert shown == (FOLDER / f"{name}.txt").read_text("utf-8")


def test_progress_names_the_step_and_what_ctrl_c_does(tmp_path):
    shown = run_at_80_columns(["-c", PROGRESS], tmp_path)
    assert mask_seconds(shown) == (FOLDER / "progress.txt").read_text("utf-8")


def take_frames(folder):
    """Return what a terminal of 80 columns shows while :data:`LIVE_PROGRESS` runs: each frame once, bars left out."""
    code, _, terminal_text = run_at_terminal(sys.executable, "-c", LIVE_PROGRESS, COLUMNS="80", cwd=folder)
    assert code == 0, terminal_text
    frames = []
    for part in re.split(r"(?:\r\x1b\[2K|\x1b\[1A\x1b\[2K|\x1b\[\?25[lh])+", terminal_text):
        lines = re.sub(r" [━╸╺]+", "", strip_codes(part)).replace("\r", "").split("\n")
        frame = "\n".join(re.sub(r"^[⠀-⣿] ", "* ", line).rstrip() for line in lines).strip("\n")
        if frame and frame not in frames[-1:]:
            frames.append(frame)
    return "\n\n".join(frame for frame in frames if "reading" not in frame) + "\n"


def test_live_progress_of_ten_seconds_fits_80_columns(tmp_path):
    shown = take_frames(tmp_path)
    assert max(map(len, shown.splitlines())) <= 80
    assert shown == (FOLDER / "progress-live.txt").read_text("utf-8")


def mask_seconds(text):
    """Replace times by blanks, and drop lines that repeat the one before: their number depends on the machine."""
    lines = [
        re.sub(r"^ *\d+\.\d s", "   #.# s", re.sub(r"at most \d+ s", "at most # s", line)) for line in text.splitlines()
    ]
    return "\n".join(line for number, line in enumerate(lines) if number == 0 or line != lines[number - 1]) + "\n"


@pytest.mark.parametrize("name", sorted(registry().of("command")))
def test_example_of_each_command_can_be_parsed(name):
    spec = registry().of("command")[name].spec
    program, called_name, *arguments = shlex.split(spec.example)
    assert (program, called_name) == ("privopt", name)
    context = click.Context(cli, info_name="privopt")
    command = cli.get_command(context, name)
    assert command is not None
    command.make_context(name, arguments, parent=context)
    assert spec.summary.endswith(".")
    assert len(spec.summary) <= 66  # one line of the help at 80 columns


def test_each_command_names_a_page_that_exists():
    pages = {entry.spec.page for entry in registry().of("command").values()}
    assert all((CITY.parents[3] / page).is_file() for page in pages)


def test_solve_names_the_next_two_commands(tmp_path):
    shown = run_at_80_columns(["-m", "privopt", "solve", "exponential", str(CITY), "--out", "my city"], tmp_path)
    assert "Next: privopt verify 'my city'; privopt report 'my city'\n" in shown


def test_completes_mechanisms_methods_commands_and_folders(tmp_path):
    def complete(words, count):
        environment = {
            **os.environ,
            "_PRIVOPT_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(count),
        }
        command = [str(Path(sys.executable).with_name("privopt"))]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    assert complete("privopt solve optimal", 2) == ["plain,optimal-lp"]
    assert "plain,interior-point" in complete("privopt solve optimal-lp p.toml --method inter", 5)
    assert complete("privopt veri", 1) == ["plain,verify"]
    assert complete("privopt verify ", 2) == ["dir,"]


def main():
    """Write all snapshots again."""
    import tempfile

    FOLDER.mkdir(exist_ok=True)
    for name in CALLS:
        with tempfile.TemporaryDirectory() as folder:
            (FOLDER / f"{name}.txt").write_text(take_snapshot(name, Path(folder)), "utf-8")
    with tempfile.TemporaryDirectory() as folder:
        (FOLDER / "progress.txt").write_text(mask_seconds(run_at_80_columns(["-c", PROGRESS], folder)), "utf-8")
        (FOLDER / "progress-live.txt").write_text(take_frames(folder), "utf-8")


if __name__ == "__main__":
    main()
