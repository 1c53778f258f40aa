"""The last resort of a time limit: it ends what looks at no clock, and nothing that has its name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import click
import pytest

from privopt.command.cli import cli
from privopt.command.guard import ending
from privopt.execution import watch
from privopt.execution.watch import ended_after, lived, settling
from privopt.run.publish import new_file, new_folder


def test_work_that_outlasts_its_time_is_ended():
    ended = threading.Event()
    with ended_after(0.0, ended.set):
        assert ended.wait(60.0)


def test_work_that_ends_in_time_is_not():
    ended = threading.Event()
    with ended_after(3600.0, ended.set):
        pass
    with ended_after(None, ended.set):
        pass
    assert not ended.is_set()


@pytest.mark.parametrize("made", [new_file, new_folder])
def test_what_has_its_name_is_never_ended(tmp_path, made):
    """The time comes in the midst of a rename, and after it: neither ends the process."""
    ended, timers = threading.Event(), []
    with ended_after(3600.0, ended.set):
        timers += [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
        with made(tmp_path / "out") as work:
            if made is new_file:
                work.write_text("whole")
        for timer in timers:
            timer.function()
    assert timers
    assert (tmp_path / "out").exists()
    assert not ended.is_set()


def test_nothing_ends_inside_a_rename():
    ended, inside = threading.Event(), []
    with ended_after(3600.0, ended.set):
        timer = next(thread for thread in threading.enumerate() if isinstance(thread, threading.Timer))
        with settling():
            other = threading.Thread(target=timer.function)
            other.start()
            inside.append(ended.wait(0.05))
        other.join()
    assert not inside[0]
    assert not ended.is_set()


def test_a_process_knows_how_long_it_has_lived(tmp_path):
    assert 0.0 <= lived() < 86_400.0
    assert lived(tmp_path / "none") == 0.0


def test_a_command_that_looks_at_no_clock_ends_with_5(toy, tmp_path):
    """A method that sleeps for an hour, and a limit whose last end has come: the process ends, and nothing is there."""
    code = (
        "import sys, time\n"
        "from privopt.command import cli, guard\n"
        "from privopt.metric.baselines import mechanisms\n"
        "guard.LAST = 0.0\n"
        "mechanisms.Exponential.matrix = lambda *given: time.sleep(3600)\n"
        "cli.cli.main(['solve', 'exponential', *sys.argv[1:], '--time-limit', '0.01'])"
    )
    command = [sys.executable, "-c", code, str(toy), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=os.environ)
    assert done.returncode == 5
    assert "time limit" in done.stderr
    assert not any(path.name == "out" for path in tmp_path.iterdir())


@pytest.mark.parametrize(("before", "lived", "gone"), [(None, 1e6, 0.0), (7.0, 1e6, 8.0), (7.0, 7.1, 7.1)])
def test_a_limit_counts_from_the_start_of_the_command(monkeypatch, before, lived, gone):
    """A script that ends in ``exec privopt`` has lived longer; another program that calls commands for itself."""
    asked, began = [], time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began)
    monkeypatch.setattr(watch, "lived", lambda: lived)
    monkeypatch.setattr(watch, "ended_after", lambda seconds, end: asked.append(seconds) or nullcontext())
    with click.Context(cli, obj=None if before is None else began - before), ending(30.0):
        assert asked == [pytest.approx(1.1 * 30.0 + 4.2 - gone)]


def test_the_program_says_when_it_began(toy, tmp_path):
    code = "from privopt.execution import watch\nwatch.lived = lambda: 1e6\nfrom privopt.__main__ import main\nmain()"
    command = [sys.executable, "-c", code, "solve", "exponential", str(toy), "--out", str(tmp_path / "out")]
    done = subprocess.run([*command, "--time-limit", "600"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
