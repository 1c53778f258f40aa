"""Folders changed by somebody who mends their sums."""

import json
from pathlib import Path

import numpy as np

from privopt.errors import PrivoptError
from privopt.files.release_folder import SUMS, sums_text
from privopt.run.verify import verify


def mend(folder: Path) -> Path:
    """Make the sums right again after a change."""
    (folder / SUMS).write_bytes(sums_text(folder).encode("utf-8", "surrogateescape"))
    return folder


def edit(folder: Path, change) -> Path:
    """Change result.json in place, and mend its sum."""
    path = folder / "result.json"
    result = json.loads(path.read_text("utf-8"))
    change(result)
    path.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    return mend(folder)


def rewrite(folder: Path, name: str = "mechanism.npz", /, **changes) -> Path:
    """Change arrays of an archive, each by a function of the old one or for a new one, and mend its sum."""
    with np.load(folder / name) as archive:
        parts = dict(archive)
    parts |= {key: change(parts[key].copy()) if callable(change) else change for key, change in changes.items()}
    np.savez(folder / name, **parts)
    return mend(folder)


def is_refused(folder: Path) -> bool:
    """Whether verify ends with code 1 or 2."""
    try:
        return verify(folder).verdict is None
    except PrivoptError:
        return True
