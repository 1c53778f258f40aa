"""Damaged metadata of any distribution are reported by their path; what plugins print does not reach the results."""

import importlib.metadata
import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privopt.registry import discover, distributions
from privopt.registry.distributions import DamagedMetadataError, installed_entry_points, owner_of

METADATA = b"Metadata-Version: 2.1\nName: acme-odd\nVersion: 1.0\n"
POINTS = b"[privopt]\nodd = acme_odd\n"


@pytest.fixture
def environment(tmp_path):
    """Return a function that installs a distribution from the bytes of its metadata, and its folder."""

    def install(metadata: bytes | None = METADATA, points: bytes = POINTS, source: str = "") -> Path:
        info = tmp_path / "acme_odd-1.0.dist-info"
        info.mkdir(exist_ok=True)
        if metadata is not None:
            (info / "METADATA").write_bytes(metadata)
        (info / "entry_points.txt").write_bytes(points)
        (tmp_path / "acme_odd.py").write_text(source)
        return info

    return install


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    return subprocess.run(
        [sys.executable, "-m", "privopt", *arguments], capture_output=True, text=True, env=environment, check=False
    )


DAMAGED = [
    (b"", POINTS, "METADATA"),
    (None, POINTS, "METADATA"),
    (b"Name: acme-odd\n", POINTS, "METADATA"),
    (b"\xff\xfe\x00", POINTS, "METADATA"),
    (METADATA, b"[privopt]\nno sign\n", "entry_points.txt"),
    (METADATA, b"[other]\nno sign\n", "entry_points.txt"),
    (METADATA, b"[privopt]\nodd = \xff\xfe\n", "entry_points.txt"),
]


@pytest.mark.parametrize(("metadata", "points", "file"), DAMAGED)
def test_reports_damaged_metadata_by_path(environment, monkeypatch, metadata, points, file):
    info = environment(metadata, points)
    monkeypatch.syspath_prepend(str(info.parent))
    installed_entry_points.cache_clear()
    try:
        installed = installed_entry_points()
        broken_plugins = discover(point for point in installed.points if point.group == "privopt").broken
    finally:
        installed_entry_points.cache_clear()
    [reason] = [*(entry.reason for entry in installed.damaged), *(entry.reason for entry in broken_plugins)]
    assert reason.startswith(str(info / file))
    assert "\n" not in reason


@pytest.mark.parametrize(("metadata", "points", "file"), [DAMAGED[0], DAMAGED[4]])
def test_commands_work_beside_damaged_metadata(environment, solved_toy, metadata, points, file):
    info = environment(metadata, points)
    for arguments in (["list", "--json"], ["verify", str(solved_toy)]):
        completed = run(info.parent, *arguments)
        assert (completed.returncode, "Traceback" in completed.stderr) == (0, False), completed.stderr
        assert str(info / file) in completed.stderr
        assert "optimal-lp" in completed.stdout or "holds" in completed.stdout


@given(st.binary(max_size=80))
def test_metadata_bytes_raise_only_known_errors(content):
    class Damaged(distributions.Distribution):
        def read_text(self, filename):
            return content.decode("utf-8")

        def locate_file(self, path):
            return Path(path)

    point = distributions.EntryPoint("odd", "acme_odd", "privopt")
    vars(point)["dist"] = Damaged()
    try:
        name, version = owner_of(point)
    except DamagedMetadataError:
        return
    assert name
    assert version


def test_other_libraries_skip_damaged_distributions(environment, monkeypatch):
    info = environment(METADATA, DAMAGED[4][1])
    monkeypatch.syspath_prepend(str(info.parent))
    classes = {
        ancestor for distribution in importlib.metadata.distributions() for ancestor in type(distribution).__mro__
    }
    for distribution_class in classes:
        if "entry_points" in vars(distribution_class):
            monkeypatch.setattr(distribution_class, "entry_points", vars(distribution_class)["entry_points"])
    installed_entry_points.cache_clear()
    try:
        distributions.skip_damaged_distributions()
        assert distributions.importlib.metadata.entry_points(group="privopt")
        [distribution] = distributions.importlib.metadata.distributions(name="acme-odd")
        assert isinstance(distribution.entry_points, EntryPoints)
        assert not set(distribution.entry_points.names)
    finally:
        installed_entry_points.cache_clear()


LOUD = """
import atexit, os, subprocess, sys
from privopt.specs import hookimpl

print("LOUD at import")
os.write(1, b"LOUD in C")
subprocess.run(["echo", "LOUD from a child"])
print("LOUD in the original stream", file=sys.__stdout__, flush=True)
atexit.register(print, "LOUD at exit")

@hookimpl
def privopt_mechanisms():
    print("LOUD in a hook")
    return []

@hookimpl
def privopt_released(release, problem):
    print("LOUD in an observer")
"""


def test_standard_output_has_only_the_results(environment, solved_toy, toy, tmp_path):
    folder = environment(source=LOUD).parent
    listing = run(folder, "list", "--json")
    assert {"name", "plugin"} < json.loads(listing.stdout)[0].keys()
    assert "LOUD in a" in listing.stderr
    sampled = run(folder, "sample", str(solved_toy), "--input", "p1", "-n", "2")
    assert len(sampled.stdout.split()) == 2, sampled.stdout
    solving = run(folder, "solve", "exponential", str(toy), "--out", str(tmp_path / "out"), "--json", "--quiet")
    assert json.loads(solving.stdout)["mechanism"] == "exponential"
    for arguments in (["--help"], ["--version"], ["describe", "exponential"], ["verify", str(solved_toy)]):
        assert "LOUD" not in run(folder, *arguments).stdout


def test_plugin_does_not_own_foreign_mechanism(environment):
    """A newcomer whose name comes first in the alphabet."""
    source = """
from privopt.specs import MechanismSpec, MethodSpec, hookimpl

@hookimpl
def privopt_mechanisms():
    return [MechanismSpec(name="optimal-lp", target="acme_odd:Odd", guarantee="none", summary="odd",
                          methods=[MethodSpec(name="odd", summary="odd")])]
"""
    completed = run(environment(source=source).parent, "list", "--json")
    assert completed.returncode == 2
    assert "acme-odd" not in {row["plugin"] for row in json.loads(completed.stdout)}
    assert "by both privopt-metric-dp" in completed.stderr


def test_unloadable_command_has_no_traceback(environment):
    source = """
from privopt.specs import CommandSpec, hookimpl

exiting = 3

@hookimpl
def privopt_commands():
    return [CommandSpec(name="odd", target="acme_odd:exiting", summary="odd"),
            CommandSpec(name="odder", target="acme_odd:missing", summary="odder"),
            CommandSpec(name="apply", target="acme_odd:missing", summary="claimed twice")]
"""
    folder = environment(source=source).parent
    for command in ("odd", "odder", "list"):
        completed = run(folder, command)
        assert (completed.returncode, "Traceback" in completed.stderr) == (2, False), completed.stderr
        assert "acme-odd" in completed.stderr
    assert run(folder, "apply", "--help").returncode == 0  # the project's own stays in use
