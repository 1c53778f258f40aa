"""The parts that need processes of their own: kills, full disks, solvers that die, odd clocks and locales."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import evolve
from problems import PROBLEMS, Given
from trials import Ended, Tally, privopt, spread

__all__ = ["dead_solvers", "full_disks", "kills", "odd_places"]

PATIENCE: Final = 600.0


def start(*arguments: str | Path, preparation: Callable[[], None] | None = None, **environment: str) -> Any:
    """Return a process of the program."""
    return subprocess.Popen(
        [sys.executable, "-m", "privopt", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
        preexec_fn=preparation,
    )


def end(process: Any) -> Ended:
    """How a process ended; one that hangs is killed."""
    try:
        stdout, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Ended(code=None, out="", err="", raised=f"nothing: it hung for {PATIENCE:g} s")
    return Ended(code=process.returncode, out=stdout.decode("utf-8", "replace"), err=err.decode("utf-8", "replace"))


def solving(problem: Given, path: Path, output_folder: Path, *options: str) -> list[str | Path]:
    """Return the command that solves a problem."""
    return ["solve", problem.mechanism, path, "--method", problem.method, "--out", output_folder, "--quiet", *options]


def kills(folder: Path, chance: random.Random, count: int) -> Tally:
    """SIGKILL at random moments: a whole folder or none, nothing half is taken for a release, and a rerun works."""
    tally = Tally(part="kills")
    problems = spread(PROBLEMS, min(count, len(PROBLEMS)))
    took: dict[int, float] = {}
    for number in range(count):
        problem = problems[number % len(problems)]
        home = folder / str(number)
        path = problem.write(home / "given")
        if number % len(problems) not in took:
            begun = time.monotonic()
            done = end(start(*solving(problem, path, home / "first")))
            took[number % len(problems)] = time.monotonic() - begun
            if done.code != 0:
                tally.note(problem.mechanism, done, [f"was not solved: {done.err}"])
                continue
            shutil.rmtree(home / "first")
        replacing = chance.random() < 0.5
        if replacing:
            end(start(*solving(problem, path, home / "out")))
        process = start(*solving(problem, path, home / "out", "--force"))
        # most of the time is spent on imports; the last half is where things are written
        time.sleep(took[number % len(problems)] * chance.uniform(0.5, 1.05))
        process.kill()
        ended = end(process)
        wrong = [] if ended.code in (-signal.SIGKILL, 0) else [f"ended with {ended.code}: {ended.err[:200]}"]
        if (home / "out").exists():
            wrong += [f"verify of what was left: {fault}" for fault in privopt("verify", home / "out").faults([0])]
        elif replacing and not list(home.glob(".out.*")):
            wrong.append("the earlier result is gone")
        for half in home.glob(".out.*"):
            read = privopt("verify", half)
            is_complete = read.code == 0  # killed between its last byte and its new name
            wrong += [] if is_complete else [f"verify of half a folder: {fault}" for fault in read.faults([1, 2])]
        rerun = end(start(*solving(problem, path, home / "out", "--force")))
        wrong += [f"rerun: {fault}" for fault in rerun.faults([0])]
        wrong += [f"verify after the rerun: {fault}" for fault in privopt("verify", home / "out").faults([0])]
        leftovers = sorted(p.name for p in home.iterdir() if p.name not in ("given", "out"))
        wrong += [f"left {leftovers}"] if leftovers else []
        tally.note(f"{problem.mechanism} ({number})", ended, wrong)
        shutil.rmtree(home)
    return tally


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a file system of a given size in bytes.

    Raises:
        OSError: this user may not mount one.
    """
    folder.mkdir(parents=True)
    completed = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=200", "tmpfs", folder], capture_output=True, check=False
    )
    if completed.returncode:
        raise OSError(completed.stderr.decode())
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def full_disks(folder: Path, chance: random.Random, count: int) -> Tally:
    """No room: code 5, a line, nothing left. On a small file system where one may be mounted, else under a limit."""
    tally = Tally(part="full disks")
    for number in range(count):
        problem = PROBLEMS[number % len(PROBLEMS)]
        home = folder / str(number)
        path = problem.write(home / "given")
        if number % 2 == 0:
            with contextlib.suppress(OSError), small_disk(home / "disk", 4096 * chance.choice([1, 2, 3, 4])) as disk:
                _no_room(tally, problem, solving(problem, path, disk / "out"), disk, None)
                continue

        def limit(bytes_: int = chance.choice([0, 1, 100, 1000])) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_))

        (home / "disk").mkdir(exist_ok=True)
        _no_room(tally, problem, solving(problem, path, home / "disk" / "out"), home / "disk", limit)
    return tally


def _no_room(
    tally: Tally, problem: Given, command: Sequence[Any], disk: Path, limit: Callable[[], None] | None
) -> None:
    # compiled kernels are not kept: their cache would meet the limit too
    ended = end(start(*command, preparation=limit))
    wrong = ended.faults([0, 5])
    if ended.code == 0:
        wrong += [f"verify: {fault}" for fault in privopt("verify", disk / "out").faults([0])]
    elif any(disk.iterdir()):
        wrong.append(f"left {sorted(p.name for p in disk.iterdir())}")
    how = "small disk" if limit is None else "limit on files"
    tally.note(f"{problem.mechanism}: {how}", ended, wrong)


def child_ids(parent: int) -> list[int]:
    """Return processes of a process, through /proc."""
    ids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rsplit(")", 1)[1].split()[1]) == parent:
                ids.append(int(path.parent.name))
    return ids


def dead_solvers(folder: Path, chance: random.Random, count: int) -> Tally:
    """CBC's process killed, stopped for good, or starved of memory while it works: an error and nothing written."""
    tally = Tally(part="dead solvers")
    large = next(problem for problem in PROBLEMS if problem.method == "full" and "grid" in problem.tables["records"])
    grid = {"grid": {"rows": 7, "cols": 7, "cell_km": 0.5}}
    problem = evolve(large, tables={**large.tables, "records": grid, "privacy": {"epsilon": 1.4}})
    for number in range(count):
        path = problem.write(folder / "given")
        output_folder = folder / f"out-{number}"
        process = start(*solving(problem, path, output_folder, "--solver", "cbc"))
        deadline = time.monotonic() + PATIENCE
        workers: list[int] = []
        while not workers and process.poll() is None and time.monotonic() < deadline:
            workers = child_ids(process.pid)
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 1.0))
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, chance.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM]))
        ended = end(process)
        wrong = ended.faults([0, 5])
        if ended.code == 0:
            wrong += [f"verify: {fault}" for fault in privopt("verify", output_folder).faults([0])]
        elif output_folder.exists():
            wrong.append("something was written")
        tally.note(f"kill {number}", ended, wrong)
    return tally


CLOCKS: Final = {
    "backwards": "time.time = lambda start=time.time(), n=itertools.count(): start - next(n)",
    "1970": "time.time = lambda: 0.0",
    "2106": "time.time = lambda: 2.0**32",
    "before 1970": "time.time = lambda: -1e9",
    "leaps": "time.monotonic = lambda real=time.monotonic, n=itertools.count(): real() + 1000 * next(n)",
}
"""What a clock may do, as what Python runs at its start."""

PLACES: Final[list[dict[str, str]]] = [
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"},
    {"LC_ALL": "tr_TR.ISO-8859-9"},
    {"PYTHONIOENCODING": "utf-16"},
    {"TZ": "Asia/Kathmandu"},
    {"TZ": "no/where"},
    {"COLUMNS": "1", "TERM": "dumb"},
    {"NO_COLOR": "1", "FORCE_COLOR": "1"},
    {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"},
    {"TMPDIR": "/nonexistent"},
    {"PYTHONHASHSEED": "1"},
    {"PYTHONOPTIMIZE": "2"},
    {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"},
]


def odd_places(folder: Path, chance: random.Random, count: int) -> Tally:
    """Clocks and locales: everything works, or one line says why not; ids outside ASCII among the input."""
    tally = Tally(part="clocks and locales")
    shocks: list[tuple[str, dict[str, str]]] = [(str(environment), environment) for environment in PLACES]
    for name, text in CLOCKS.items():
        start_up = folder / name.replace(" ", "-")
        start_up.mkdir(parents=True)
        (start_up / "sitecustomize.py").write_text(f"import itertools, time\n{text}\n")
        shocks.append((f"clock {name}", {"PYTHONPATH": str(start_up)}))
    for number, (name, environment) in enumerate(spread(shocks, count)):
        problem = PROBLEMS[(3 * number) % len(PROBLEMS)]
        if number % 2 == 0:
            problem = PROBLEMS[0]
            renamed = {name: text.replace(b"p0", "Ō0 ф".encode()) for name, text in problem.files.items()}
            problem = evolve(problem, files=renamed)
        home = folder / str(number)
        path = problem.write(home / "gegében")
        output_folder = home / "öut"
        commands = [
            solving(problem, path, output_folder),
            ["verify", output_folder],
            ["audit", output_folder],
            ["report", output_folder],
            ["list"],
        ]
        commands += [["sample", output_folder, "--input", "Ō0 ф", "-n", "3"]] if number % 2 == 0 else []
        for command in commands:
            ended = end(start(*command, **environment))
            tally.note(f"{name}: {problem.mechanism}: {command[0]}", ended, ended.faults([0]))
    return tally
