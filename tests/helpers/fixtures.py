"""A pytest plugin: small problems and commands that the tests of the core and of plugins share."""

import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from helpers.examples import EXAMPLES, SECRETIVE
from helpers.toys import write_toy


@pytest.fixture
def toy(tmp_path):
    """Path of the toy problem's file."""
    return write_toy(tmp_path / "toy")


@pytest.fixture(scope="session")
def solved_toy(tmp_path_factory):
    """Return a DIR of the toy problem, solved once; copy it before changing anything."""
    from privopt.run.solve import solve
    from privopt.run.task import Options

    folder = tmp_path_factory.mktemp("solved")
    problem = write_toy(folder / "toy")
    return solve("optimal-lp", problem, folder / "out", Options(method="full", solver="highs")).folder


@pytest.fixture(scope="session")
def town(tmp_path_factory):
    """DIR of a town of twelve places, which ledgers are charged for; the problem file lies beside it."""
    from helpers.charging import write_town
    from privopt.run.solve import solve

    folder = tmp_path_factory.mktemp("town")
    return solve("exponential", write_town(folder), folder / "out").folder


@pytest.fixture
def privopt():
    """Run the command line in this process: what it needs to start, and whatever fails in it, is the test's own."""
    from helpers.command import run as command

    def run(*arguments):
        completed = command(*arguments)
        return subprocess.CompletedProcess(arguments, completed.exit_code, completed.stdout, completed.stderr)

    return run


@pytest.fixture
def program():
    """Run the program in a process of its own, in another environment if asked: for streams, locales, native output."""

    def run(*arguments, timeout=3000, **environment):
        return subprocess.run(
            [sys.executable, "-m", "privopt", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
        )

    return run


@pytest.fixture
def result_of():
    """result.json of a DIR."""
    return lambda folder: json.loads((Path(folder) / "result.json").read_text())


@pytest.fixture(scope="session")
def example(tmp_path_factory, entropy):
    """DIR of an example problem by its name in examples.py, solved once; copy it before changing anything."""
    from privopt.run.solve import solve
    from privopt.run.task import Options

    folders = {}

    def solve_once(name, *, secretive=False):
        if (name, secretive) not in folders:
            example_problem = (SECRETIVE if secretive else EXAMPLES)[name]
            folder = tmp_path_factory.mktemp(name)
            problem = example_problem.write(folder / "problem")
            with entropy.of(f"{name} {secretive}"):
                release = solve(example_problem.mechanism, problem, folder / "out", Options(**example_problem.options))
            folders[name, secretive] = release.folder
        return folders[name, secretive]

    return solve_once


@pytest.fixture(scope="session")
def report(example, tmp_path_factory):
    """Path of an example's report, written once, in a copy of its DIR; read it alone."""
    from privopt.report.write_report import write_report

    pages = {}

    def of(name, *, truth=False):
        if (name, truth) not in pages:
            folder = tmp_path_factory.mktemp("report") / "out"
            shutil.copytree(example(name), folder)
            pages[name, truth] = write_report(folder, truth=truth)
        return pages[name, truth]

    return of


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Return the documentation as pages, built without a warning; skipped where there is nothing to build them with."""
    for package in ("mkdocs", "pygments"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    folder = tmp_path_factory.mktemp("site")
    completed = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"NO_COLOR": "1"},
    )
    assert completed.returncode == 0, completed.stderr
    assert "WARNING" not in completed.stderr
    return folder


@pytest.fixture
def undrawn(monkeypatch):
    """Let pages have the words of their figures in place of the figures: to draw them is most of a report's time."""
    from markupsafe import Markup
    from matplotlib.text import Text

    def words(figure, title, *, name="wide"):
        # The drawing for telephones has the words of the other.
        return Markup("<svg>{} {}</svg>" * (name == "wide")).format(
            title, " ".join(text.get_text() for text in figure.findobj(Text))
        )

    # a function of that name stands in front of the module
    monkeypatch.setattr(import_module("privopt.report.page"), "svg", words)
