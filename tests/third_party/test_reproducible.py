"""Wheels: the same bytes from two copies of the sources, whatever their dates; and the bill beside them."""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import subprocess
import sys
from importlib.metadata import distribution

import pytest
from helpers.environments import ROOT, copy_checkout


def bill() -> bytes:
    return subprocess.run([sys.executable, ROOT / ".ci" / "sbom.py"], capture_output=True, check=True).stdout


def test_bill_is_complete_and_reproducible():
    text = bill()
    found = json.loads(text)
    second_bill = runpy.run_path(str(ROOT / ".ci" / "sbom.py"))["document"]()
    assert text.decode() == json.dumps(second_bill, indent=2) + "\n"
    assert (found["bomFormat"], found["specVersion"], found["version"]) == ("CycloneDX", "1.6", 1)
    names = {entry["name"]: entry for entry in found["components"]}
    assert len(names) == len(found["components"])
    assert {"numpy", "scipy", "highspy", "mip", "privopt-lr-geo"} <= names.keys()
    assert not {"pytest", "mypy", "ruff"} & names.keys()
    assert names["numpy"]["version"] == distribution("numpy").version
    references = {entry["bom-ref"] for entry in found["components"]} | {found["metadata"]["component"]["bom-ref"]}
    assert {edge["ref"] for edge in found["dependencies"]} == references
    assert {required for edge in found["dependencies"] for required in edge["dependsOn"]} <= references


@pytest.mark.slow
def test_wheels_are_reproducible(tmp_path):
    sums = []
    for copy, date in (("one", 1_600_000_000), ("two", 1_700_000_000)):
        root = copy_checkout(tmp_path / copy)
        for path in root.rglob("*"):
            os.utime(path, (date, date))
        completed = subprocess.run(
            [sys.executable, root / ".ci" / "wheels.py", tmp_path / f"{copy}-dist"],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert completed.returncode == 0, completed.stderr
        artefacts = sorted((tmp_path / f"{copy}-dist").glob("*.*"))
        sums.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in artefacts})
    assert len([name for name in sums[0] if name.endswith(".whl")]) == 12
    assert sums[0] == sums[1]
