"""Make .venv with everything the workspace needs, from python3 alone.

uv is taken from PATH, else installed into .tools by pip, else by the pip of a fresh venv in .tools.
Nothing outside this folder is changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"


def attempt(*command: str | Path) -> bool:
    """Run a command quietly; tell whether it ended well."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    return done.returncode == 0


def find_uv() -> str:
    """Path of uv, installing it where needed."""
    candidates = [TOOLS / "bin" / "uv", TOOLS / "venv" / "bin" / "uv"]
    found = shutil.which("uv") or next((str(path) for path in candidates if path.exists()), None)
    if found:
        return found
    print("privopt: installing uv into .tools", file=sys.stderr, flush=True)
    if attempt(sys.executable, "-m", "pip", "install", "--quiet", "--target", TOOLS, "uv") and candidates[0].exists():
        return str(candidates[0])
    shutil.rmtree(TOOLS, ignore_errors=True)
    python = TOOLS / "venv" / "bin" / "python"
    made = attempt(sys.executable, "-m", "venv", TOOLS / "venv")
    if made and attempt(python, "-m", "pip", "install", "--quiet", "uv"):
        return str(candidates[1])
    shutil.rmtree(TOOLS, ignore_errors=True)
    sys.exit(
        "privopt: neither uv nor pip nor venv works with this python3; install one of them "
        "(on Debian: apt-get install python3-venv), then run make again"
    )


def main() -> None:
    """Sync the workspace into .venv."""
    if sys.version_info < (3, 11):
        sys.exit(f"privopt: needs Python 3.11 or later, python3 is {sys.version.split()[0]}")
    uv = find_uv()
    environment = os.environ | {"UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never"}
    environment.pop("VIRTUAL_ENV", None)
    # compiled here, once: where PYTHONDONTWRITEBYTECODE is set each command would compile 1,500 modules again
    seen = sys.stderr.isatty()
    if not (ROOT / ".venv").exists():
        told = "installing what uv.lock names into .venv: 2.6 GB on disk, fetched where uv keeps none of it; minutes"
        print(f"privopt: {told}", file=sys.stderr, flush=True)
    command = [uv, "sync", "--all-packages", "--compile-bytecode", *([] if seen else ["--quiet"])]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode == 0:  # uv compiles what it installs, which the workspace's own modules are not
        own = [ROOT / "privopt", *sorted(ROOT.glob("plugins/*/src"))]
        command = [ROOT / ".venv" / "bin" / "python", "-m", "compileall", "-q", "-j", "0", *own]
        done = subprocess.run(command, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
