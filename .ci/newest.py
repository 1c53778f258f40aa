"""Try privopt with the newest versions that its ranges allow: ``make newest``, before each release.

Users get what the package index has, not the pins of development. This resolves an environment without the pins, names
the versions, and runs there the demo, every command that has ``--json``, and the conformance kit of optimal-lp.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from bootstrap import ROOT, find_uv

FILES = {
    "trips.csv": "trip,start_lat,start_lon\n1,45.0,7.0\n2,45.004,7.012\n",
    "counts.csv": "level_1,level_2,size,groups\nall,a,1,3\nall,b,2,4\n",
    "like.csv": "level_1,level_2,size,groups\nall,a,1,2\nall,b,2,5\n",
    "census.toml": '[hierarchy]\ncounts = "counts.csv"\nlike = "like.csv"\nsizes = 3\n[privacy]\nepsilon = 1.0\n',
}
CITY = "docs/examples/city/problem.toml"
REPORTS = "apply out trips.csv --lat start_lat --lon start_lon --ledger book --subject trip"
COMMANDS = (
    "list --json",
    "describe optimal-lp --json",
    f"solve optimal-lp {CITY} --method full --solver highs --out out --json --quiet",
    "verify out --json",
    "audit out --json",
    "report out --json",
    f"curve {CITY} --mechanisms exponential --epsilon 1:3:2 --out curve.csv --json",
    f"{REPORTS} --out safe.csv --json",
    "estimate out safe.csv --out shares.csv --json",
    "budget book --json",
    f"certify even.npy {CITY} --json",
    "plan hierarchical-dp census.toml --json",
    "check optimal-lp --json",
)
"""Every command with ``--json``, in an order in which they can run: ``tests/house/test_newest.py`` holds it to that."""
EVEN = "import numpy; numpy.save('even.npy', numpy.full((48, 48), 1 / 48))"
"""A matrix for ``certify``: it keeps any epsilon."""


def run(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, its standard error shown.

    Raises:
        SystemExit: it failed.
    """
    left_out = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"newest: {' '.join(words)} ended with exit code {done.returncode}\n{done.stdout}")
    return done


def check_json(command: str, said: str) -> None:
    """Refuse standard output that is not one JSON document.

    Raises:
        SystemExit: it is not.
    """
    try:
        json.loads(said)
    except json.JSONDecodeError as error:
        sys.exit(f"newest: privopt {command}: standard output must be JSON ({error}), got\n{said[:2000]}")


def resolve(folder: Path) -> Path:
    """Make an environment of the newest versions; return the folder of its programs."""
    uv, plugins = find_uv(), sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
    run(folder, uv, "venv", "--quiet", "--python", sys.executable, "env")
    # from this folder: uv reads pins from the pyproject.toml of the folder it runs in
    python = folder / "env" / "bin" / "python"
    run(folder, uv, "pip", "install", "--quiet", "--python", python, "--upgrade", "--no-sources", ROOT, *plugins)
    return python.parent


def versions(folder: Path, programs: Path) -> str:
    """Name the versions, with the pin of each that differs."""
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["constraint-dependencies"]
    pinned = dict(pin.split("==") for pin in pins)
    frozen = run(folder, find_uv(), "pip", "freeze", "--python", programs / "python").stdout
    found = dict(re.findall(r"^([\w.-]+)==(\S+)$", frozen, re.MULTILINE))
    named = (f"{name} {version}{_pin(pinned.get(name), version)}" for name, version in found.items())
    return ", ".join(named)


def _pin(pin: str | None, version: str) -> str:
    return "" if pin == version else f" (pinned: {pin or 'no'})"


def main() -> None:
    """Resolve, name, run."""
    with tempfile.TemporaryDirectory(prefix="privopt-newest-") as name:
        folder = Path(name).resolve()
        programs = resolve(folder)
        print(f"newest: {versions(folder, programs)}", flush=True)
        shutil.copytree(ROOT / "docs" / "examples", folder / "docs" / "examples")
        for file, text in FILES.items():
            (folder / file).write_text(text, "utf-8")
        run(folder, programs / "python", "-c", EVEN)
        run(folder, programs / "python", "docs/examples/city/demo.py")
        print("newest: the demo runs", flush=True)
        for command in COMMANDS:
            check_json(command, run(folder, programs / "privopt", *command.split()).stdout)
            print(f"newest: privopt {command}", flush=True)
        said = run(folder, programs / "privopt", "solve", "optimal-lp", CITY, "--out", "quiet", "--quiet").stdout
        if said:
            sys.exit(f"newest: privopt solve --quiet: standard output must be empty, got\n{said}")
    print("newest: everything runs, and standard output holds what privopt prints alone")


if __name__ == "__main__":
    main()
