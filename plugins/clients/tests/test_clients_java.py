"""What `--target jvm` writes: a jar that is the same each time, or what it takes to make one."""

from __future__ import annotations

import shutil
import zipfile

import pytest
from click.testing import CliRunner

from privopt.command.cli import cli
from privopt_clients.export import export


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK on this machine")
def test_the_jar_is_the_same_each_time_and_stands_alone(releases, exported, tmp_path):
    made = [export(releases[name], tmp_path / name, target="jvm").folder for name in ("earth", "plane")]
    assert (made[0] / "privopt-client.jar").read_bytes() == (made[1] / "privopt-client.jar").read_bytes()
    with zipfile.ZipFile(made[0] / "privopt-client.jar") as jar:
        assert {name.split("/")[0] for name in jar.namelist()} == {"META-INF", "privopt"}
    source = (made[0] / "PrivoptClient.java").read_text("utf-8")
    imported = [line.split()[1] for line in source.splitlines() if line.startswith("import ")]
    assert all(name.startswith("java.") for name in imported)
    for name in ("mechanism.bin", "vectors.json"):  # those that the clients of other languages are tested with
        assert (made[0] / name).read_bytes() == (exported["earth"] / name).read_bytes()


def test_without_a_compiler_it_says_what_is_needed(releases, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(
        cli, ["export", str(releases["plane"]), "--target", "jvm", "--out", str(tmp_path / "out"), "--quiet"]
    )
    assert done.exit_code == 2
    assert "javac of a JDK 11 or later" in done.stderr
    assert not (tmp_path / "out").exists()
