"""Functions that the scripts of whole jobs share: calling privopt, finding public data, and the command line."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def privopt(folder: Path, *arguments: object, code: int = 0) -> str:
    """Run a command of privopt in a folder, and return its standard output.

    Args:
        folder: The folder in which the command runs.
        arguments: The command and its options.
        code: The expected exit code.

    Raises:
        RuntimeError: The command ended with another code; the message has its standard error.
    """
    command = [sys.executable, "-m", "privopt", *map(str, arguments)]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if completed.returncode != code:
        raise RuntimeError(f"{' '.join(command[2:])}: exit code {completed.returncode}\n{completed.stderr}")
    return completed.stdout


def data_path(*parts: str) -> Path:
    """Return the path of a file of the public data sets, which are in the folder that PRIVOPT_DATA names.

    Raises:
        FileNotFoundError: The file is missing.
    """
    folder = Path(os.environ.get("PRIVOPT_DATA") or ROOT.parent / "shared" / "data")
    path = folder.joinpath(*parts)
    if not path.exists():
        raise FileNotFoundError(f"{path}: must be a public data set, in the folder that PRIVOPT_DATA names")
    return path


def main(text: str | None, run_job: Callable[..., dict[str, float]]) -> None:
    """Run a job from the command line, and print its figures as JSON.

    Args:
        text: The job's description for ``--help``.
        run_job: Function that does the job in a folder, small or at full size, and returns its figures.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a small instance, in seconds")
    parser.add_argument("--out", type=Path, help="a new folder for all files; a temporary one by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or Path(temporary)
        if arguments.out:
            folder.mkdir()
        try:
            figures = run_job(folder, small=arguments.small)
        except FileNotFoundError as error:
            sys.exit(str(error))
        # Four digits are all that a reader compares; counts of people and bytes are whole numbers.
        shown = {name: value if isinstance(value, int) else float(f"{value:.4g}") for name, value in figures.items()}
        print(json.dumps(shown, indent=2))
