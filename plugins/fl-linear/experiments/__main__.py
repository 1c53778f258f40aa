"""Reproduce the paper's tables and figures: ``python plugins/fl-linear/experiments --out FOLDER``."""

import sys
from pathlib import Path

sys.path.append(
    str(Path(__file__).resolve().parents[3] / "tests")
)  # has the package ``experiments``, which all plugins share

from fl_linear_paper.command import main

if __name__ == "__main__":
    sys.exit(main())
