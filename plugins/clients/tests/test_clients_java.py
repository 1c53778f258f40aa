"""The same bytes of entropy give the same report in Python and in Java: run by java where a JDK is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import chisquare

from privopt.command.cli import cli
from privopt_clients.client import open_artefact
from privopt_clients.export import export

KINDS = ("earth", "plane", "streets", "words", "columns")
needs_jdk = pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK on this machine")


@pytest.fixture(scope="module")
def jars(releases, tmp_path_factory) -> dict[str, Path]:
    """FOLDER of each export for Java, with the class that replays compiled beside the first."""
    made = {}
    for name in KINDS:
        made[name] = tmp_path_factory.mktemp("jvm") / name
        form = "columns" if name == "columns" else None
        export(releases["streets" if form else name], made[name], target="jvm", form=form)
    classes = tmp_path_factory.mktemp("replay")
    source = Path(__file__).with_name("Replay.java")
    jar = made["earth"] / "privopt-client.jar"
    subprocess.run(["javac", "-cp", jar, "-encoding", "UTF-8", "-d", classes, source], check=True, timeout=300)
    made["replay"] = classes
    return made


def replay(jars: dict[str, Path], name: str, task: str, *more: object) -> str:
    classes = os.pathsep.join([str(jars[name] / "privopt-client.jar"), str(jars["replay"])])
    command = ["java", "-cp", classes, "Replay", task, str(jars[name] / "mechanism.bin"), *map(str, more)]
    done = subprocess.run(command, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8")


@needs_jdk
@pytest.mark.parametrize("name", KINDS)
def test_vectors_hold_in_java(jars, name, tmp_path):
    vectors = json.loads((jars[name] / "vectors.json").read_text("utf-8"))
    lines = []
    for vector in vectors:
        secret = vector["input"]
        lines.append("\t".join([*([secret] if isinstance(secret, str) else map(repr, secret)), vector["entropy"]]))
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n", "utf-8")
    promise, release, *reports = replay(jars, name, "vectors", tmp_path / "lines.txt").splitlines()
    client = open_artefact((jars[name] / "mechanism.bin").read_bytes())
    assert (promise, release) == (client.promise, client.release)
    for vector, report in zip(vectors, reports, strict=True):
        output, *numbers = report.split("\t")
        found = [float(number) for number in numbers if number != "NaN"]
        assert [output, *found] == list(vector["report"].values())


@needs_jdk
@pytest.mark.parametrize("name", KINDS)
def test_entropy_leads_to_the_same_reports_as_in_python(jars, name, same_reports):
    same_reports(jars[name], 2_000, partial(replay, jars, name, "hash"))


@pytest.mark.slow
@needs_jdk
@pytest.mark.parametrize("name", KINDS)
def test_a_million_strings_do(jars, name, same_reports):
    same_reports(jars[name], 10**6 if name != "columns" else 10**5, partial(replay, jars, name, "hash"))


@needs_jdk
def test_a_changed_bit_is_refused(jars):
    assert replay(jars, "plane", "bits") == "300"


@needs_jdk
def test_draws_follow_the_row(jars, releases):
    nanoseconds, *lines = replay(jars, "earth", "draws", 100_000).splitlines()
    counts = {report: int(times) for times, report in (line.split("\t") for line in lines)}
    with np.load(releases["earth"] / "mechanism.npz") as arrays:
        expected = arrays["weights"][0] / 2.0**63 * 100_000
        seen = np.array([counts.get(report, 0) for report in arrays["outputs"]])
    assert seen.sum() == 100_000
    rare = expected < 5
    together = [np.append(part[~rare], part[rare].sum() + 1e-9) for part in (seen, expected)]
    assert chisquare(*together, sum_check=False).pvalue > 1e-6
    assert int(nanoseconds) > 0


@needs_jdk
def test_the_jar_is_the_same_each_time_and_stands_alone(jars):
    folders = [jars[name] / "privopt-client.jar" for name in ("earth", "plane")]
    assert folders[0].read_bytes() == folders[1].read_bytes()
    with zipfile.ZipFile(folders[0]) as jar:
        assert {name.split("/")[0] for name in jar.namelist()} == {"META-INF", "privopt"}
    source = (jars["earth"] / "PrivoptClient.java").read_text("utf-8")
    imported = [line.split()[1] for line in source.splitlines() if line.startswith("import ")]
    assert all(name.startswith("java.") for name in imported)


def test_without_a_compiler_it_says_what_is_needed(releases, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(
        cli, ["export", str(releases["plane"]), "--target", "jvm", "--out", str(tmp_path / "out"), "--quiet"]
    )
    assert done.exit_code == 2
    assert "javac of a JDK 11 or later" in done.stderr
    assert not (tmp_path / "out").exists()
