"""The last resort of a time limit: it ends what looks at no clock, and nothing that has its name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import click
import pytest

from privopt.command.cli import cli
from privopt.command.exit_codes import ending
from privopt.execution import hard_limit as watch
from privopt.execution.clock import EXIT_SECONDS, GRACE, OVER
from privopt.execution.hard_limit import ended_after, lived, settling
from privopt.run import solve as solving
from privopt.run.publish import new_file, new_folder
from privopt_metric_dp.mechanisms.base import MetricMechanism


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
        "from privopt.command import cli\n"
        "from privopt.execution import clock\n"
        "from privopt_metric_dp.mechanisms import registered\n"
        "clock.GRACE = clock.EXIT_SECONDS\n"
        "registered.Exponential.matrix = lambda *given: time.sleep(3600)\n"
        "cli.cli.main(['solve', 'exponential', *sys.argv[1:], '--time-limit', '0.01'])"
    )
    command = [sys.executable, "-c", code, str(toy), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False, env=os.environ)
    assert done.returncode == 5
    assert "time limit" in done.stderr
    assert not any(path.name == "out" for path in tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="a timer of Linux")
def test_code_that_never_lets_the_lock_go_is_ended_too():
    code = (
        "import re\n"
        "from privopt.execution import hard_limit as watch\n"
        "endless = re.compile('(a+)+$').match\n"
        "with watch.ended_after(2.0, print):  # on a busy machine less comes before the match begins\n"
        "    endless('a' * 100 + 'b')  # takes years, and no thread gets a turn"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (5, b"")


def test_a_kernel_timer_that_is_not_needed_leaves_everything_as_it_was():
    before = signal.getsignal(signal.SIGTRAP)
    with ended_after(3600.0, pytest.fail):
        pass
    assert signal.getsignal(signal.SIGTRAP) == before
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, signal\nfrom privopt.execution.hard_limit import ended_after\n"
            "with ended_after(3600.0, print):\n    pass\nos.kill(os.getpid(), signal.SIGTRAP)",
        ],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGTRAP


def test_the_program_says_when_it_began_and_its_process_is_not_taken_apart(toy, tmp_path):
    """Objects that are slow to end cost a limit nothing; what a command registered for the end runs, and is flushed."""
    code = (
        "import atexit, sys, time\n"
        "from privopt.execution import hard_limit\n"
        "hard_limit.lived = lambda: 1e6\n"  # the limit counts from where the program says that it began
        "class Slow:\n"
        "    def __del__(self, sleep=time.sleep):\n"
        "        sleep(3600)\n"
        "sys.slow = [Slow()]\n"
        "sys.slow.append(sys.slow)\n"
        "from privopt.__main__ import main\n"
        "from privopt.command import cli\n"
        "run = cli.main\n"
        "cli.main = lambda began: (atexit.register(print, 'ended'), run(began))\n"
        "main()"
    )
    command = [sys.executable, "-c", code, "solve", "exponential", str(toy), "--out", str(tmp_path / "out"), "--quiet"]
    command += ["--time-limit", "600"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_all_that_is_said_of_a_release_is_made_before_it_has_its_name(toy, tmp_path, monkeypatch):
    """For from then on nothing ends the command."""
    seen = []
    for home, name in ((solving, "warned"), (MetricMechanism, "meaning")):
        made = getattr(home, name)

        def looking(*given, made=made):
            seen.append((tmp_path / "out").exists())
            return made(*given)

        monkeypatch.setattr(home, name, looking)
    solving.solve("exponential", toy, tmp_path / "out")
    assert seen == [False, False]


@pytest.mark.parametrize(("before", "lived", "gone"), [(7.0, 1e6, 8.0), (7.0, 7.1, 7.1)])
def test_a_limit_counts_from_the_start_of_the_command(monkeypatch, before, lived, gone):
    """A script that ends in ``exec privopt`` has lived longer."""
    asked, began = [], time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began)
    monkeypatch.setattr(watch, "lived", lambda: lived)
    monkeypatch.setattr(watch, "ended_after", lambda seconds, end: asked.append(seconds) or nullcontext())
    with click.Context(cli, obj=began - before), ending(30.0):
        assert asked == [pytest.approx(OVER * 30.0 + GRACE - EXIT_SECONDS - gone)]


def test_another_program_that_calls_commands_is_never_ended(monkeypatch):
    """Beside a load of 12 a solve under a limit of 30 s took over 37 s, and the last resort ended pytest's worker."""
    monkeypatch.setattr(watch, "ended_after", lambda *_: pytest.fail("armed"))
    with click.Context(cli), ending(1e-9):
        pass
