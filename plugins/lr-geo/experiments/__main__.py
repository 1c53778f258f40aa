"""Reproduce the paper's tables and figures: ``python plugins/lr-geo/experiments --out FOLDER``."""

import sys
from pathlib import Path

# This folder has the package ``experiments``, which all plugins share.
sys.path.append(str(Path(__file__).resolve().parents[3] / "tests"))

from lr_geo_paper.command import main

if __name__ == "__main__":
    sys.exit(main())
