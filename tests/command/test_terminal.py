"""What people see while it works and at its end: on a terminal, and where there is none."""

import os
import pty
import re
import subprocess
import sys

import pytest
from attrs import evolve
from click.testing import CliRunner
from helpers.toys import write_toy

from privopt.command import terminal
from privopt.command.cli import cli
from privopt.run.solve import solve

WORK = """
import threading, time, types
import privopt.command.terminal as terminal
terminal.PATIENCE, terminal.SECONDS_BETWEEN_LINES = 0.2, 0.3
began, clock, drawn, line = time.monotonic(), [0.0], threading.Semaphore(0), terminal._line
terminal.time = types.SimpleNamespace(monotonic=lambda: clock[0])
terminal._line = lambda *told: drawn.release() or line(*told)
with terminal.progress_display(quiet=False, limit=60.0) as tell:
    for n in range(1, 9):
        clock[0] += 1.0
        tell("rounds [x]", n, 2.0 - 0.5 ** n, 2.0)
    while drawn.acquire(blocking=False):
        pass
    for _ in range(3):
        drawn.acquire()
print(time.monotonic() - began)
"""
"""Eight rounds of a second each by its own clock, and three lines that are drawn after them; says how long it took."""


def at_a_terminal(*command, **environment):
    """Run with standard error on a terminal of 100 columns; (exit code, standard output, what the terminal got)."""
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")} | {
        "TERM": "xterm-256color",
        "COLUMNS": "100",
        **environment,
    }
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, stdin=subprocess.DEVNULL, env=environment, text=True
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert running.stdout is not None
    with running.stdout as stream:
        said = stream.read()
    return running.wait(timeout=3000), said, seen.decode()


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_terminal_keeps_one_line_with_bound_gap_and_time_left():
    code, _, seen = at_a_terminal(sys.executable, "-c", WORK)
    assert code == 0
    assert "\x1b[?25l" in seen  # the cursor is hidden while the line moves
    assert "\x1b[?25h" in seen[-80:]
    shown = plain(seen)
    assert "rounds [x]" in shown
    assert re.search(r"round \d  loss 2  bound 1\.9\d+  gap [\d.]+e-0\d  at most \d+ s left", shown), shown


def test_elsewhere_lines_come_without_colour():
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, timeout=3000, check=True)
    assert "\x1b" not in done.stderr
    lines = done.stderr.splitlines()
    assert 3 <= len(lines) <= 1 + float(done.stdout) / 0.3
    assert re.fullmatch(r" *\d+\.\d s  rounds \[x\]  round \d  loss 2  bound [\d.]+  gap \S+  .* left", lines[-1])


INTERRUPTED = """
import os, signal, sys, time
import privopt.command.terminal as terminal
from privopt.execution.interrupts import interrupts
terminal.SECONDS_BEFORE_PROGRESS, terminal.SECONDS_BETWEEN_LINES = 0.05, 0.05
with interrupts(), terminal.progress_display(quiet=False) as tell:
    tell("rounds", 1, 1.0, 2.0)
    time.sleep(0.3)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        time.sleep(0.5)
"""


def test_an_interrupt_is_said_once_and_no_progress_after_it():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=3000, check=True)
    *before, last = done.stderr.splitlines()
    assert all("round 1" in line for line in before)
    assert last.endswith("interrupted: ending with what was found")


def test_a_solve_that_was_stopped_says_what_is_kept_and_a_large_file_its_size(tmp_path, monkeypatch):
    stopped = evolve(solve("optimal-lp", write_toy(tmp_path / "toy"), tmp_path / "out"), stopped=True)
    monkeypatch.setattr(terminal, "MIN_BYTES_NAMED", 1)
    with CliRunner().isolation() as (_, said, _):
        terminal.summary(stopped)
    text = " ".join(said.getvalue().decode().split())
    assert "(proof.npz 0 MB)" in text
    assert text.endswith(
        f"{tmp_path / 'out'} is certified and kept; the same command with --force and more time may lose less."
    )


@pytest.mark.parametrize("told", [(), pytest.param(("--json", "--quiet"), marks=pytest.mark.slow)])
def test_solve_ends_with_a_table_unless_quiet(tmp_path, told):
    problem = write_toy(tmp_path / "toy")
    command = (sys.executable, "-m", "privopt", "solve", "optimal-lp", str(problem), "--out", str(tmp_path / "out"))
    code, said, seen = at_a_terminal(*command, *told)
    assert code == 0
    assert said.startswith("{") == ("--json" in told)
    if "--quiet" in told:
        assert seen == ""
        return
    shown = plain(seen)
    for word in ("loss", "bound", "gap", "guarantee", "metric-dp", "proved", "status", "optimal", "time", "written"):
        assert word in shown
    assert COLOUR.search(seen)


def test_colours_are_off_where_nobody_sees_them(tmp_path, privopt):
    problem = write_toy(tmp_path / "toy")
    done = privopt("solve", "optimal-lp", problem, "--out", tmp_path / "out")
    assert "proved" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("command", "phases"),
    [
        (("verify",), {"problem and release", "certificate and loss", "bound"}),
        pytest.param(("report",), {"certificate and loss", "figures and tables of the report"}, marks=pytest.mark.slow),
        (("audit",), {"certificate and loss", "attacking the release"}),
        (("sample", "--input", "p0"), {"certificate and loss"}),
    ],
)
def test_commands_that_check_a_folder_say_what_they_are_at(tmp_path, monkeypatch, command, phases):
    out, told = tmp_path / "out", []
    solve("exponential", write_toy(tmp_path / "toy"), out)
    monkeypatch.setattr("privopt.run.verify.recall", lambda _: None)  # as if nobody had checked it before
    monkeypatch.setattr(terminal._Display, "update", lambda _, phase, *__: told.append(phase))
    done = CliRunner().invoke(cli, [command[0], str(out), *command[1:]])
    assert done.exit_code == 0, done.output
    assert phases <= set(told)


def test_an_interrupt_while_modules_are_imported_ends_without_a_traceback():
    code = """
import sys
class Interrupted:
    def find_spec(self, name, *rest):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from privopt.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (5, "", "interrupted\n")
