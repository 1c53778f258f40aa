"""Build every wheel into dist/, the same bytes each time, with a bill of what they stand on beside them.

Run it with the python of .venv: ``make wheels``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bootstrap import ROOT, find_uv
from sbom import document

EPOCH = "1580601600"
"""Seconds since 1970 that files in wheels are dated, where SOURCE_DATE_EPOCH does not say another."""


def main() -> None:
    """Build from the folder that is given, or from this workspace."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    command = [find_uv(), "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(out)]
    subprocess.run(command, cwd=ROOT, env={"SOURCE_DATE_EPOCH": EPOCH} | os.environ, check=True)
    (out / "sbom.cdx.json").write_text(json.dumps(document(), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
