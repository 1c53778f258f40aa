"""Environments that hold nothing of this checkout: how tests of what is installed make them, and run commands there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_INHERITED = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
"""Without bytecode on the disk each of some dozens of processes would compile a thousand modules again."""
NOT_COPIED = shutil.ignore_patterns(".venv", ".git", ".tools", "dist", "site", ".*_cache", "__pycache__", "shared")


def find_uv() -> str:
    """Return the path of uv, looked for where .ci/bootstrap.py does."""
    places = [ROOT / ".tools" / "bin" / "uv", ROOT / ".tools" / "venv" / "bin" / "uv"]
    program = shutil.which("uv") or next((str(path) for path in places if path.exists()), None)
    assert program, "no uv on PATH or in .tools: make .venv first"
    return program


def run(*command: str | Path, cwd: Path, expect: int = 0, **environment: str) -> str:
    """Run a command without this checkout's environment; return its standard output."""
    inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    completed = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=inherited | {"UV_PYTHON_DOWNLOADS": "never"} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert completed.returncode == expect, f"{command}\n{completed.stdout}\n{completed.stderr}"
    return completed.stdout


def copy_checkout(folder: Path) -> Path:
    """Copy the sources, without what make and git keep beside them."""
    return shutil.copytree(ROOT, folder, ignore=NOT_COPIED)


def build_wheels(folder: Path) -> Path:
    """Build the wheels of all distributions into a folder, as ``make wheels`` does."""
    run(sys.executable, ROOT / ".ci" / "wheels.py", folder, cwd=ROOT)
    return folder


class Environment:
    """An environment that is empty at first (but for pip where it is asked for)."""

    def __init__(self, folder: Path, *, pip: bool = False) -> None:
        """Make it."""
        self.folder, self.bin = folder, folder / "bin"
        options = ["--seed"] if pip else []
        run(find_uv(), "venv", "--quiet", *options, "--python", sys.executable, folder, cwd=folder.parent)

    def shell(self, line: str, cwd: Path, **environment: str) -> str:
        """Run a line as somebody types it who has activated this environment and has uv; its standard output."""
        path = os.pathsep.join([str(self.bin), str(Path(find_uv()).parent), os.environ["PATH"]])
        return run("bash", "-c", line, cwd=cwd, PATH=path, VIRTUAL_ENV=str(self.folder), **environment)
