"""What a data protection officer gets, and how it is checked: docs/explanation/data-protection-officers.md as a script.

``python docs/used-for/papers.py [--small] [--out FOLDER]``. A release is solved, verified, and checked once more by the
checker, which is one file and shares no code with privopt. Reports are drawn for some riders, whom the ledger counts by
keyed hashes. Then the papers are written, with the owner's answers, so that no question stays open. Two forgeries are
tried: a changed claim, and a changed claim with the folder's list of checksums written again; both must be found.

The full size protects the street nodes of Rome (PRIVOPT_DATA), where distances are by road; the small one 36 cells.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from job import main, privopt
from trips import write_streets

RIDERS, REPORTS = 20, 3

GRID = """
title = "Where trips begin"
[records]
grid = { rows = 6, cols = 6, cell_km = 0.5 }
[distance]
kind = "euclidean"
[privacy]
epsilon = 2
[utility]
kind = "distance"
"""


ANSWERS = {
    "name": "Trips of the city's bicycles",
    "curator": "City Bikes, the operator",
    "contact": "privacy@bikes.example",
    "purpose": "A map of where trips begin, for the city's office of transport",
    "collected": "By the lock of each bicycle in 2026, from riders who agreed to the terms of use",
    "legal_basis": "Article 6(1)(f) of the GDPR; see the assessment, section 3",
    "access": "True trips: two engineers of the operator. The release and the reports: the office of transport",
    "drawn_where": "On the operator's own machine",
    "why_epsilon": "Places 300 m apart shall stay hard to tell apart after one report",
    "utility": "Shares of districts were estimated from reports of 2025; the office found them good enough",
    "bias": "Riders with many trips lose more: reports beyond their budget are not drawn. No groups were compared",
    "retention_inputs": "30 days, then deleted from the database and its backups",
    "retention_release": "Five years",
    "incidents": "The ledger's key is renewed, and the office for data protection is told within 72 hours",
}
"""What only the owner knows: a made-up operator's answers to the questions of both papers."""


def draw_reports(folder: Path, ids: list[str]) -> None:
    """Draw some reports for each of some riders, which the ledger counts.

    Args:
        folder: The folder of the job.
        ids: Ids of places.
    """
    rows = [
        f"r{rider},{ids[(7 * rider + trip) % len(ids)]},2026-10-{trip + 1:02d}T08:00:00+00:00"
        for rider in range(RIDERS)
        for trip in range(REPORTS)
    ]
    (folder / "trips.csv").write_text("\n".join(["rider,place,at", *rows]) + "\n")
    job = ["apply", "city", "trips.csv", "--id", "place", "--ledger", "riders.ledger", "--subject", "rider"]
    job += ["--time", "at", "--hash-subjects", "riders.key", "--drop", "rider", "--out", "safe.csv", "--quiet"]
    privopt(folder, *job)


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
        (folder / "city.toml").write_text(GRID)
        ids = [f"r{row}c{column}" for row in range(6) for column in range(6)]
    else:
        ids, _ = write_streets(folder)
    privopt(folder, "solve", "exponential", "city.toml", "--out", "city", "--quiet")
    privopt(folder, "verify", "city", "--quiet")
    privopt(folder, "checker", "--out", "check.pyz")
    privopt(folder, "budget", "riders.ledger", "--set", "24", "--per", "month")
    draw_reports(folder, ids)
    facts = "\n".join(f"{name} = {json.dumps(answer)}" for name, answer in ANSWERS.items())
    (folder / "facts.toml").write_text(facts + "\n")
    papers = []
    for form in ("dpia", "nist"):
        arguments = ["disclose", "city", "--format", form, "--out", f"{form}.md", "--ledger", "riders.ledger"]
        privopt(folder, *arguments, "--facts", "facts.toml", "--quiet")
        papers.append((folder / f"{form}.md").read_text())
    privopt(folder, "report", "city", "--quiet")
    forge(folder, "claim", sums=False)
    forge(folder, "claim-and-sums", sums=True)
    return {
        "checker": run_checker(folder, "city"),
        "checker_of_changed_claim": run_checker(folder, "claim"),
        "checker_of_changed_claim_and_sums": run_checker(folder, "claim-and-sums"),
        "papers_that_name_the_limit": sum("24" in paper for paper in papers),
        "papers_that_count_reports": sum(f"has {RIDERS * REPORTS} charges for reports" in paper for paper in papers),
        "papers_that_say_by_road": sum("by road a report is at most twice as likely" in paper for paper in papers),
        "open_questions": sum(paper.count("[open]") for paper in papers),
        "papers_with_proved_sentences": sum("[proved]" in paper for paper in papers),
    }


if __name__ == "__main__":
    main(__doc__, run_job)
