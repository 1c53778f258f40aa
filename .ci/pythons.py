"""Try privopt on every Python that it names: ``python .ci/pythons.py [VERSION ...]``; ``make newest`` runs it too.

For each version an environment is filled from the wheels. There run ``privopt list``, the demo, and the conformance kit
of one mechanism, which solves by CBC and by HiGHS. For a version without an interpreter on this machine the last lines
say so, and only its wheels are looked for: each requirement must have one for that version.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bootstrap import ROOT, TOOLS, find_uv
from newest import run

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""The versions that the classifiers of the wheels name: ``tests/house/test_newest.py`` compares them."""
KIT = ("check", "optimal-lp", "--method", "full", "--json")
"""The kit of the method that goes through the modelling language, CBC (python-mip, cffi) and HiGHS."""
PYTHONS = TOOLS / "python"
"""Where uv puts interpreters that it may download."""


def interpreter_candidates(version: str) -> Iterator[Path]:
    """Yield where an interpreter of a version may be: this one, those that uv finds, and those of pyenv."""
    yield Path(sys.executable)
    environment = os.environ | {"UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON_INSTALL_DIR": str(PYTHONS)}
    environment.pop("VIRTUAL_ENV", None)
    command = [find_uv(), "python", "find", "--no-project", version]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if completed.returncode == 0:
        yield Path(completed.stdout.strip())
    # The commands that pyenv puts on PATH fail for all versions but the selected ones, so uv does not see the others.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)


def find_interpreter(version: str) -> Path | None:
    """Return an interpreter of a version such as "3.13", or None if this machine has none that starts."""
    code = "import ssl, sys; print('.'.join(map(str, sys.version_info[:2])))"
    for candidate in interpreter_candidates(version):
        if not candidate.is_file():
            continue
        completed = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
        if completed.returncode == 0 and completed.stdout.strip() == version:
            return candidate
    return None


def download_interpreter(version: str) -> Path | None:
    """Let uv download an interpreter into .tools, and return it; None if there is no way to its archive."""
    environment = os.environ | {"UV_PYTHON_INSTALL_DIR": str(PYTHONS), "UV_HTTP_TIMEOUT": "30"}
    command = [find_uv(), "python", "install", "--quiet", "--no-bin", version]
    completed = subprocess.run(command, env=environment, capture_output=True, check=False)
    return find_interpreter(version) if completed.returncode == 0 else None


def check_wheels_exist(version: str, wheels: Path, folder: Path) -> None:
    """Resolve the requirements of ``privopt`` for a version, from wheels alone.

    Raises:
        SystemExit: A requirement has no wheel for the version.
    """
    (folder / "privopt.in").write_text("privopt\n")
    options = ["--quiet", "--only-binary", ":all:", "--python-version", version, "--find-links", wheels]
    run(folder, find_uv(), "pip", "compile", *options, "privopt.in")


def try_python(interpreter: Path, wheels: Path, folder: Path, *options: str | Path) -> None:
    """Install everything on an interpreter, and run there what a new user and a maker of plugins run first.

    Args:
        interpreter: The Python.
        wheels: The folder of privopt's wheels.
        folder: An empty folder to work in.
        options: Further options of ``uv pip install``, such as constraints.

    Raises:
        SystemExit: A step failed, or a mechanism is missing.
    """
    uv, python = find_uv(), folder / "env" / "bin" / "python"
    run(folder, uv, "venv", "--quiet", "--python", interpreter, "env")
    run(folder, uv, "pip", "install", "--quiet", "--python", python, "--find-links", wheels, *options, "privopt")
    # Newer compilers warn of more (invalid escapes, return in finally), and later ones refuse it.
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    run(folder, python, "-W", "error", "-m", "compileall", "-q", "-f", *sorted(packages.glob("privopt*/")))
    here = {row["name"] for row in json.loads(run(folder, sys.executable, "-m", "privopt", "list", "--json").stdout)}
    there = {row["name"] for row in json.loads(run(folder, python, "-m", "privopt", "list", "--json").stdout)}
    if here - there:
        sys.exit(f"pythons: {interpreter}: privopt list has no {', '.join(sorted(here - there))}")
    shutil.copytree(ROOT / "docs" / "examples", folder / "docs" / "examples", ignore=shutil.ignore_patterns(".*"))
    run(folder, python, "docs/examples/city/demo.py")
    results = json.loads(run(folder, python, "-m", "privopt", *KIT).stdout)
    statuses = {result["check"]: result["status"] for result in results}
    if statuses.get("backends-agree") != "passed":
        sys.exit(f"pythons: {interpreter}: CBC and HiGHS must be compared, got {statuses}")


def main() -> None:
    """Try the versions that are given, or all."""
    os.environ.setdefault("PRIVOPT_PROFILE", "dev")  # the kit's effort: the Python is tried here, not the mechanism
    missing = []
    with tempfile.TemporaryDirectory(prefix="privopt-pythons-") as name:
        home = Path(name).resolve()
        run(ROOT, sys.executable, ROOT / ".ci" / "wheels.py", home / "wheels")
        for version in sys.argv[1:] or VERSIONS:
            folder = home / version
            folder.mkdir()
            interpreter = find_interpreter(version) or download_interpreter(version)
            if interpreter is None:
                check_wheels_exist(version, home / "wheels", folder)
                missing.append(version)
                continue
            try_python(interpreter, home / "wheels", folder)
            print(f"pythons: {version}: install, list, demo and kit ({interpreter})", flush=True)
            shutil.rmtree(folder)
    for version in missing:
        print(f"pythons: {version}: skipped, no interpreter here and none to download; all its wheels exist")


if __name__ == "__main__":
    main()
