"""Ids, names and messages that were made to be obeyed: the page stays whole, and the terminal obeys nothing."""

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.grids import often

from privopt.command.cli import cli
from privopt.errors import printable
from privopt.report.templates import script_json
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import Options

HOSTILE = (
    "<!--<script>",
    "</script><script>alert(1)//",
    "--></style></svg></title></textarea>",
    "\"'><img src=x onerror=alert(1)>",
    "a\u2028b\u2029line",
    "$\\frac{1}{$ _x^",
    "&lt;b&gt;&#x3c;",
    "\x1b]0;owned\x07\x1b[31mred",
    "\u202etxt.exe",
)
POINTS = [(name, 0.7 * n, 0.3 * (n % 3)) for n, name in enumerate(HOSTILE)]
SPACE = '[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 0.9\n'
METRIC = SPACE + '[utility]\nkind = "distance"\n'


def table(*rows):
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


PLACES = table(("id", "x", "y"), *POINTS)
CASES = {
    "optimal-lp": (METRIC, {"points.csv": PLACES}),
    "exponential": (METRIC, {"points.csv": PLACES}),
    "planar-laplace": (METRIC, {"points.csv": PLACES}),
    "const-opt": (METRIC + "[const-opt]\nradius = 1.0\n", {"points.csv": PLACES}),
    "bd-mdp": (METRIC + "[bd-mdp]\nsubsets = 2\n", {"points.csv": PLACES}),
    "lr-geo": (
        METRIC
        + f"[lr-geo]\nusers = [{json.dumps(HOSTILE[0])}, {json.dumps(HOSTILE[1])}]\n"
        + "radius = 3.0\nobfuscation_radius = 2.0\nexponential_beyond = 1.0\n",
        {"points.csv": PLACES},
    ),
    "fl-linear": (
        '[locations]\npoints = "points.csv"\n[privacy]\nepsilon = 0.5\n[fl-linear]\ndelta = 0.2\n',
        {"points.csv": table(("id", "x", "y", "facility_cost", "clients"), *((*p, 1.0, 30) for p in POINTS))},
    ),
    "hierarchical-dp": (
        '[hierarchy]\ncounts = "counts.csv"\nsizes = 2\n[privacy]\nepsilon = 1\n',
        {
            "counts.csv": table(
                ("level_1", "level_2", "size", "groups"),
                *((HOSTILE[0], name, size, 50) for name in HOSTILE[1:] for size in (1, 2)),
            )
        },
    ),
    "photo-censor": (
        '[photos]\nscores = "scores.csv"\ntrue_location = 1\n[privacy]\ntop_k = 1\n',
        {
            "scores.csv": table(
                ("photo", *(f"place {n}" for n in range(4))),
                *((name, *np.linspace(-1, -2 - n, 4).tolist()) for n, name in enumerate(HOSTILE)),
            )
        },
    ),
}


class Page(HTMLParser):
    """What a browser sees: the elements, the scripts' contents, and the text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.handlers = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def write_hostile(tmp_path):
    def write(mechanism):
        text, files = CASES[mechanism]
        (tmp_path / "p.toml").write_text(text)
        for name, contents in files.items():
            (tmp_path / name).write_text(contents, "utf-8")
        return tmp_path / "p.toml"

    return write


@often("mechanism", CASES, set(CASES) - {"exponential", "planar-laplace", "const-opt", "bd-mdp"})
def test_hostile_id_leaves_the_page_intact(write_hostile, tmp_path, mechanism):
    options = Options(solver="highs", allow_unsafe=True)
    folder = solve(mechanism, write_hostile(mechanism), tmp_path / "out", options).folder
    truth = [True] if (folder / "private" / "truth.json").exists() else []
    for compared in [False, *truth]:
        page = Page(text := write_report(folder, truth=compared).read_text("utf-8"))
        assert page.tags.count("script") == text.count("<script") <= 4
        assert "img" not in page.tags
        assert not page.handlers
        assert "footer" in page.tags, "the page goes on to its end"
        assert "<!--" not in text
        assert any("Made by privopt" in words for words in page.words)
        for script in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL):
            assert not set(script) & set("<>&\u2028\u2029")
            assert set(HOSTILE[:2]) <= set(json.loads(script)["outputs"])


def test_json_in_a_page_keeps_its_meaning():
    value = {"a": [*HOSTILE, 1.5, None]}
    assert json.loads(script_json(value)) == value
    assert not set(script_json(value)) & set("<>&\u2028\u2029")


# --- the terminal --------------------------------------------------------------------------------------


def control_characters(text):
    """Characters that a terminal acts on, line breaks aside."""
    return [c for c in text.replace("\n", "") if not c.isprintable()]


@pytest.mark.parametrize("mechanism", ["exponential", "hierarchical-dp"])
def test_control_characters_do_not_reach_the_terminal(write_hostile, tmp_path, mechanism):
    problem = write_hostile(mechanism)
    hostile_problem = problem.with_name("p\x1b[31m.toml")
    problem.rename(hostile_problem)
    output_folder = tmp_path / "out\x1b]0;owned\x07"
    runner = CliRunner()
    for command in (
        ["solve", mechanism, hostile_problem, "--out", output_folder, "--json"],
        ["solve", mechanism, hostile_problem, "--out", output_folder],
        ["solve", mechanism, hostile_problem, "--out", output_folder, "--method", "\x1b[31m"],
        ["verify", output_folder],
        ["verify", output_folder, "--json"],
        ["audit", output_folder],
        ["audit", output_folder, "--json"],
        ["report", output_folder],
        ["sample", output_folder, "--input", "\x1b[31m nobody"],
        ["verify", tmp_path / "\x1b[31m"],
        ["describe", "\x1b[31m"],
    ):
        completed = runner.invoke(cli, list(map(str, command)))
        assert control_characters(completed.stdout + completed.stderr) == [], command
        assert "Traceback" not in completed.stderr
    (output_folder / "\x1b[2J.txt").write_text("x")
    completed = runner.invoke(cli, ["verify", str(output_folder)])
    assert completed.exit_code == 1
    assert r"\x1b[2J.txt: not listed" in completed.stderr


def test_arguments_are_printed_escaped(privopt):
    for arguments in (["list", "\x1b[31m"], ["\x1b[31m"], ["solve", "--\x1b[31m"]):
        completed = privopt(*arguments)
        assert completed.returncode == 2
        assert control_characters(completed.stdout + completed.stderr) == []
    assert privopt("--version").returncode == privopt("--help").returncode == 0


def test_draws_are_escaped_only_on_a_terminal(write_hostile, tmp_path, privopt):
    output_folder = solve("exponential", write_hostile("exponential"), tmp_path / "out").folder
    piped = privopt("sample", output_folder, "--input", HOSTILE[0], "-n", 500).stdout
    lines = piped.split("\n")[:-1]
    assert len(lines) == 500
    assert set(lines) <= set(HOSTILE)
    assert HOSTILE[7] in lines
    master_end, terminal_end = pty.openpty()
    command = [sys.executable, "-m", "privopt", "sample", output_folder, "--input", HOSTILE[7], "-n", "50"]
    with subprocess.Popen(command, stdout=terminal_end, stdin=subprocess.DEVNULL):
        os.close(terminal_end)
        terminal_bytes = b""
        while True:
            try:
                terminal_bytes += os.read(master_end, 65536)
            except OSError:  # how a closed terminal ends on Linux
                break
    os.close(master_end)
    assert control_characters(terminal_bytes.decode().replace("\r\n", "\n")) == []
    assert r"\x1b[31mred" in terminal_bytes.decode()


def test_printable_text_is_unchanged():
    assert printable("naïve 東京\nnext") == "naïve 東京\nnext"
    assert printable("\x9b\x7f\ud800") == r"\x9b\x7f\ud800"
