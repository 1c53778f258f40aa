"""What people see while it works and at its end: on a terminal, and where there is none."""

import re
import shlex
import shutil
import subprocess
import sys

import pytest
from attrs import evolve
from click.testing import CliRunner
from helpers.mentions import assert_mentions
from helpers.terminals import run_at_terminal, strip_codes
from helpers.toys import write_toy

from privopt.command import terminal
from privopt.command.cli import cli
from privopt.run.solve import solve

WORK = """
import threading, time, types
import privopt.command.terminal as terminal
terminal.PATIENCE, terminal.SECONDS_BETWEEN_LINES = 0.2, 0.3
began, clock, drawn, line = time.monotonic(), [0.0], threading.Semaphore(0), terminal._describe_step
terminal.time = types.SimpleNamespace(monotonic=lambda: clock[0])
terminal._describe_step = lambda *told: drawn.release() or line(*told)
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


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_terminal_shows_progress_in_place():
    code, _, terminal_text = run_at_terminal(sys.executable, "-c", WORK)
    assert code == 0
    assert "\x1b[?25l" in terminal_text  # the cursor is hidden while the lines change
    assert "\x1b[?25h" in terminal_text[-80:]
    plain_text = strip_codes(terminal_text)
    assert "rounds [x]" in plain_text
    assert re.search(r"round \d.*s left.*\n.*bound 1\.9\d+.*gap [\d.]+ %.*Ctrl-C", plain_text), plain_text


def test_no_colour_outside_a_terminal():
    completed = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, timeout=3000, check=True)
    assert "\x1b" not in completed.stderr
    lines = completed.stderr.splitlines()
    assert 3 <= len(lines) <= 1 + float(completed.stdout) / 0.3
    assert re.fullmatch(r" *\d+\.\d s +rounds \[x\] +round \d.*left.*bound [\d.]+.*gap [\d.]+ %.*Ctrl-C.*", lines[-1])


INTERRUPTED = """
import os, signal, sys, time
import privopt.command.terminal as terminal
from privopt.execution.clock import interrupts
terminal.SECONDS_BEFORE_PROGRESS, terminal.SECONDS_BETWEEN_LINES = 0.05, 0.05
with interrupts(), terminal.progress_display(quiet=False) as tell:
    tell("rounds", 1, 1.0, 2.0)
    time.sleep(0.3)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        time.sleep(0.5)
"""


def test_interrupt_is_stated_once_and_last():
    completed = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=3000, check=True
    )
    *earlier_lines, last = completed.stderr.splitlines()
    assert all("round 1" in line for line in earlier_lines)
    assert "interrupted:" in last


def test_stopped_solve_says_what_is_kept(tmp_path, monkeypatch):
    stopped_release = evolve(solve("optimal-lp", write_toy(tmp_path / "toy"), tmp_path / "out"), stopped=True)
    monkeypatch.setattr(terminal, "MIN_BYTES_NAMED", 1)
    with CliRunner().isolation() as (_, stream, _):
        terminal.summary(stopped_release)
    text = " ".join(stream.getvalue().decode().split())
    assert "(proof.npz 0 MB)" in text
    assert_mentions(text, f"{tmp_path / 'out'} is certified", "--force")


@pytest.mark.parametrize("options", [(), pytest.param(("--json", "--quiet"), marks=pytest.mark.slow)])
def test_solve_ends_with_a_table_unless_quiet(tmp_path, options):
    problem = write_toy(tmp_path / "toy")
    command = (sys.executable, "-m", "privopt", "solve", "optimal-lp", str(problem), "--out", str(tmp_path / "out"))
    code, stdout, terminal_text = run_at_terminal(*command, *options)
    assert code == 0
    assert stdout.startswith("{") == ("--json" in options)
    if "--quiet" in options:
        assert terminal_text == ""
        return
    plain_text = strip_codes(terminal_text)
    for word in ("loss", "bound", "gap", "guarantee", "metric-dp", "proved", "status", "optimal", "time", "written"):
        assert word in plain_text
    assert COLOUR.search(terminal_text)


def test_colours_are_off_without_a_terminal(tmp_path, privopt):
    problem = write_toy(tmp_path / "toy")
    completed = privopt("solve", "optimal-lp", problem, "--out", tmp_path / "out")
    assert "proved" in completed.stderr
    assert "\x1b" not in completed.stderr + completed.stdout


@pytest.mark.parametrize(
    ("command", "phases"),
    [
        (("verify",), {"problem and release", "certificate and loss", "bound"}),
        pytest.param(("report",), {"certificate and loss", "figures and tables of the report"}, marks=pytest.mark.slow),
        (("audit",), {"certificate and loss", "attacking the release"}),
        (("sample", "--input", "p0"), {"certificate and loss"}),
    ],
)
def test_checking_commands_show_their_phase(tmp_path, monkeypatch, command, phases):
    output_folder, phases_shown = tmp_path / "out", []
    solve("exponential", write_toy(tmp_path / "toy"), output_folder)
    monkeypatch.setattr("privopt.run.verify.recall", lambda _: None)  # as if nobody had checked it before
    monkeypatch.setattr(terminal._Display, "update", lambda _, phase, *__: phases_shown.append(phase))
    completed = CliRunner().invoke(cli, [command[0], str(output_folder), *command[1:]])
    assert completed.exit_code == 0, completed.output
    assert phases <= set(phases_shown)


def test_interrupted_import_has_no_traceback():
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
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout, completed.stderr) == (5, "", "interrupted\n")


def test_interrupts_are_handled_before_any_library_is_imported():
    """What is imported until then is time in which Ctrl-C has a traceback."""
    code = """
import sys
before = set(sys.modules)
from privopt.__main__ import main
print(*sorted(set(sys.modules) - before))
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(completed.stdout.split())
    assert imported <= {"_signal", "gc", "privopt", "privopt.__main__", "privopt.version"}


@pytest.mark.parametrize("ending", ["return", "sys.exit(3)"])
def test_interrupted_ending_has_no_traceback(ending):
    code = f"""
import atexit, os, signal, sys
import privopt.command.cli as cli
def finish():
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
    {ending}
cli.main = finish
from privopt.__main__ import main
main()
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout, completed.stderr) == (5, "", "interrupted\n")


GONE = f"""
import os, subprocess, sys
read, write = os.pipe()
os.close(read)
streams = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
streams |= dict.fromkeys(sys.argv[1].split(","), write)
command = [{sys.executable!r}, "-m", "privopt", *sys.argv[2:]]
sys.exit(subprocess.run(command, **streams).returncode)
"""
"""Runs privopt with some of its standard streams connected to a pipe that nobody reads, and ends with its code."""


@pytest.mark.parametrize(
    ("streams", "code", "arguments"),
    [
        ("stdout", 0, ["--help"]),
        ("stdout", 0, ["sample", "--help"]),
        ("stdout", 0, ["sample", "DIR", "--input", "p1", "-n", "100000000"]),
        ("stdout", 0, ["list"]),
        ("stdout,stderr", 2, ["verify", "--typo"]),
        ("stdout,stderr", 2, ["verify", "NOWHERE"]),
        ("stdout,stderr", 1, ["verify", "DAMAGED"]),
        ("stdout,stderr", 1, ["verify", "DAMAGED", "--json"]),
        ("stderr", 0, ["solve", "exponential", "PROBLEM", "--out", "NEW"]),
    ],
)
def test_exit_code_does_not_depend_on_who_reads_the_output(streams, code, arguments, solved_toy, toy, tmp_path):
    damaged = shutil.copytree(solved_toy, tmp_path / "damaged")
    (damaged / "result.json").write_text((damaged / "result.json").read_text() + "\n")
    paths = {"DIR": solved_toy, "DAMAGED": damaged, "NOWHERE": tmp_path / "no", "PROBLEM": toy, "NEW": tmp_path / "out"}
    words = [str(paths.get(word, word)) for word in arguments]
    completed = subprocess.run([sys.executable, "-c", GONE, streams, *words], timeout=3000, check=False)
    assert completed.returncode == code
    assert "NEW" not in arguments or (tmp_path / "out" / "result.json").exists()


@pytest.mark.parametrize(
    ("redirection", "code", "arguments"),
    [
        (">&-", 0, "list"),
        (">/dev/full", 5, "list"),
        (">/dev/full", 5, "--help"),
        ("2>/dev/full", 2, "verify --typo"),
        ("2>/dev/full", 2, "verify nowhere"),
    ],
)
def test_exit_code_with_closed_or_full_output(redirection, code, arguments):
    line = f"{shlex.quote(sys.executable)} -m privopt {arguments} {redirection}"
    completed = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=3000, check=False)
    assert completed.returncode == code
    assert "Traceback" not in completed.stderr


BARE_COMMAND = """
import click
from privopt.command import program

cli = click.Group("acme")


@cli.command()
def fail():
    raise OSError("strange")


program.run_program(cli, "acme")
"""


def test_error_of_an_undecorated_command_is_code_5():
    """Python's own code for it, 1, would say that a claim does not hold."""
    command = [sys.executable, "-c", BARE_COMMAND, "fail"]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False)
    assert (completed.returncode, completed.stderr) == (5, "input or output: strange\n")
