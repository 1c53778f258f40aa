"""Standard output holds what privopt prints, whatever native libraries print there: here HiGHS, as it likes."""

import json
import os
import subprocess
import sys

import pytest
from helpers.toys import grid_text

LOUD = """
import contextlib, ctypes, importlib.util, os, sys

def noise(what):
    with contextlib.suppress(OSError):  # closed
        os.write(1, b"noise by the descriptor\\n")
    ctypes.CDLL(None).printf(b"noise in a buffer\\n")
    with open(os.environ["HEARD"], "a") as heard:
        print(what, os.getpid(), file=heard)

class Finder:
    def find_spec(self, name, path, target=None):
        if name != "highspy":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("highspy")
        load = spec.loader.exec_module
        def loud(module):
            load(module)
            class Highs(module.Highs):
                def __init__(self):
                    noise("made")
                    super().__init__()
                def run(self):
                    noise("run")
                    return super().run()
            module.Highs = Highs
        spec.loader.exec_module = loud
        return spec

sys.meta_path.insert(0, Finder())
"""
"""A sitecustomize.py, so that worker processes have it too."""


@pytest.fixture
def loud(tmp_path):
    """Return a way to run Python where HiGHS prints; (the process that ended, what HiGHS said that it printed)."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(LOUD)
    log_path = tmp_path / "heard"

    def run(*arguments):
        log_path.write_text("")
        environment = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "HEARD": str(log_path)}
        command = [sys.executable, *map(str, arguments)]
        completed = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        return completed, [line.split() for line in log_path.read_text().splitlines()]

    return run


@pytest.mark.parametrize("options", [["--json"], pytest.param([], marks=pytest.mark.slow)], ids=len)
def test_json_is_json_and_quiet_is_quiet(tmp_path, loud, options):
    problem = tmp_path / "problem.toml"
    problem.write_text(grid_text(2, 2))
    solve = ["-m", "privopt", "solve", "optimal-lp", problem, "--method", "full", "--solver", "highs", "--quiet"]
    completed, calls = loud(*solve, "--out", tmp_path / "out", *options)
    assert (completed.returncode, completed.stderr) == (0, "")
    if options:
        assert json.loads(completed.stdout)["mechanism"] == "optimal-lp"
    else:
        assert completed.stdout == ""
    assert {call for call, _ in calls} == {"made", "run"}


def test_library_user_sees_native_output(loud):
    code = """
import ctypes, threading
from privopt.backends.highs import Highs
ctypes.CDLL(None).printf(b"before\\n")
made = [threading.Thread(target=Highs().version) for _ in range(8)]
[thread.start() for thread in made]
[thread.join() for thread in made]
ctypes.CDLL(None).fflush(None)
print("after")
"""
    completed, calls = loud("-c", code)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout == "before\nafter\n"
    assert len(calls) == 8


def test_workers_print_like_python(loud):
    code = """
from privopt.backends.highs import Highs
from privopt.dsl.form import StandardForm
from privopt.execution import processes
form = StandardForm(c=[2.0, 3.0], A=[[2, 3]], row_lower=[4], row_upper=[9], col_lower=[0, 0], col_upper=[9, 9],
                    integrality=[1, 1])
assert Highs().solve(form).objective == 4.0
with processes(2) as executor:
    made = [executor.submit(key, Highs.version, Highs()) for key in range(2)]
    assert [future.result() for future in made]
    executor.submit(0, print, "said there").result()
"""
    completed, calls = loud("-c", code)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "said there\n")
    assert len({process for call, process in calls if call == "made"}) >= 3


def test_closed_standard_output_stays_closed(loud):
    code = "import os; os.close(1)\nfrom privopt.backends.highs import Highs\nprint(bool(Highs().version()))"
    completed, calls = loud("-c", code.replace("print(", "os._exit(not "))
    assert (completed.returncode, completed.stdout, len(calls)) == (0, "", 1)


@pytest.mark.parametrize("program", ["privopt", "privopt_fl_linear"])
def test_every_program_reserves_standard_output(tmp_path, program):
    """What a library prints while a command ends up in nothing; what the command prints is there."""
    code = f"""
import ctypes, os, runpy, sys
from privopt.command import terminal
reserve = terminal.reserve_standard_output
def reserved():
    reserve()
    os.write(1, b"noise")
    ctypes.CDLL(None).puts(b"noise")
terminal.reserve_standard_output = reserved
sys.argv = ["{program}", "--help"]
runpy.run_module("{program}", run_name="__main__")
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.startswith("Usage: ")
    assert "noise" not in completed.stdout
