"""Count the files of privopt that the smallest solve enters. Run as ``python tests/house/count_files.py``.

The smallest solve is ``optimal-lp`` on four places. A file is entered if a function of it is called. Calls made
while a module is imported do not count: they build classes and constants, whatever is solved.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

import privopt

ROOT = Path(privopt.__file__).parents[1]
PROBLEM = """\
[records]
grid = { rows = 2, cols = 2, cell_km = 1.0 }
[distance]
kind = "euclidean"
[privacy]
epsilon = 1.0
[utility]
kind = "distance"
"""


def entered_files(folder: Path) -> list[str]:
    """Solve four places in a folder, and return the files whose functions were called, relative to the repository."""
    from privopt.run.solve import solve

    problem = folder / "problem.toml"
    problem.write_text(PROBLEM)
    paths: set[str] = set()

    def note_call(frame: FrameType, event: str, _argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path not in paths and not is_importing(frame):
            paths.add(path)

    threading.setprofile(note_call)
    sys.setprofile(note_call)
    try:
        solve("optimal-lp", problem, folder / "out")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    relative = {path.removeprefix(f"{ROOT}/") for path in paths if path.startswith(f"{ROOT}/")}
    return sorted(path for path in relative if path.startswith(("privopt/", "plugins/")))


def is_importing(frame: FrameType | None) -> bool:
    """Return whether a call comes, however far off, from the code of a module."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and "importlib" in str(frame.f_back and frame.f_back.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def main() -> None:
    """Print the files and their number."""
    with tempfile.TemporaryDirectory() as folder:
        files = entered_files(Path(folder))
    print("\n".join([*files, f"{len(files)} files"]))


if __name__ == "__main__":
    main()
