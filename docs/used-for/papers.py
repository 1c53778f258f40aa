"""What a data protection officer gets, and how it is checked: docs/explanation/data-protection-officers.md as a script.

``python docs/used-for/papers.py [--small] [--out FOLDER]``. A release is solved, verified, and checked once more by the
checker, which is one file and shares no code with privopt. Then the papers are written. Two forgeries are tried: a
changed claim, and a changed claim with the folder's list of checksums written again; both must be found.

The full size protects the street nodes of Rome (PRIVOPT_DATA), where distances are by road; the small one 64 cells.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from job import main, privopt
from trips import write_grid, write_streets


def run_checker(folder: Path, release: str) -> int:
    """Return the checker's exit code for a release folder."""
    command = [sys.executable, "-I", "check.pyz", release]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


def forge(folder: Path, name: str, *, sums: bool) -> None:
    """Copy the release to a folder that claims half its epsilon.

    Args:
        folder: The folder of the job, with the release ``city``.
        name: Name of the copy.
        sums: Whether to correct the list of checksums too.
    """
    forged = folder / name
    shutil.copytree(folder / "city", forged)
    result = (forged / "result.json").read_text()
    text = result.replace('"epsilon": 2', '"epsilon": 1')
    assert text != result  # the claim was found
    (forged / "result.json").write_text(text)
    if sums:
        lines = (forged / "SHA256SUMS").read_text().splitlines()
        digest = hashlib.sha256(text.encode()).hexdigest()
        mended = [f"{digest}{line[64:]}" if line.endswith("result.json") else line for line in lines]
        (forged / "SHA256SUMS").write_text("\n".join(mended) + "\n")


def run_job(folder: Path, *, small: bool) -> dict[str, float]:
    """Make, check and forge a release; return the checker's exit codes, and how many papers contain some words."""
    if small:
        write_grid(folder)
    else:
        write_streets(folder)
    privopt(folder, "solve", "exponential", "city.toml", "--out", "city", "--quiet")
    privopt(folder, "verify", "city", "--quiet")
    privopt(folder, "checker", "--out", "check.pyz")
    privopt(folder, "budget", "riders.ledger", "--set", "24", "--per", "month")
    papers = []
    for form in ("dpia", "nist"):
        arguments = ["disclose", "city", "--format", form, "--out", f"{form}.md", "--ledger", "riders.ledger"]
        privopt(folder, *arguments, "--ask", f"{form}.toml", "--quiet")
        papers.append((folder / f"{form}.md").read_text())
    privopt(folder, "report", "city", "--quiet")
    forge(folder, "claim", sums=False)
    forge(folder, "claim-and-sums", sums=True)
    return {
        "checker": run_checker(folder, "city"),
        "checker_of_changed_claim": run_checker(folder, "claim"),
        "checker_of_changed_claim_and_sums": run_checker(folder, "claim-and-sums"),
        "papers_that_name_the_limit": sum("24" in paper for paper in papers),
        "papers_that_say_by_road": sum("by road" in paper for paper in papers),
        "papers_with_proved_sentences": sum("[proved]" in paper for paper in papers),
    }


if __name__ == "__main__":
    main(__doc__, run_job)
