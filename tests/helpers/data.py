"""Where tests find public data sets, which are not part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def data_path(*parts: str) -> Path:
    """Return the file or folder `parts` of the data folder; skip the test if it is missing, and say what.

    The folder is named by the environment variable PRIVOPT_DATA; without it, it is `shared/data`
    next to the checkout.
    """
    environment_folder = os.environ.get("PRIVOPT_DATA")
    default_folder = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    path = (Path(environment_folder) if environment_folder else default_folder).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no data at {path} (PRIVOPT_DATA names the folder)")
    return path
