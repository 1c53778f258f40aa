"""The script of ``make demo``: solve the small city by four methods, verify a result, and explain it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import privopt as po
from privopt.declare import load_problem
from privopt.registry import registry
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem

HERE = Path(__file__).resolve().parent
OUT = HERE.parents[2] / "demo-out"
PROBLEM = HERE / "problem.toml"

RUNS = (
    ("exponential", ["exponential"], "all places", "nothing"),
    ("optimal-lp", ["optimal-lp"], "all places", "nothing"),
    ("lr-geo", ["lr-geo"], "each user's own matrix", "distances around it"),
    ("lr-geo-exact", ["lr-geo", "--method", "exact"], "all places", "nothing"),
)
"""Folder, words after ``privopt solve``, between which places the guarantee holds, what a user tells the server."""


def privopt(*arguments: str | Path) -> str:
    """Print and run one command as a user would, and return its standard output."""
    words = [str(word) for word in arguments]
    shown_words = [
        str(Path(word).relative_to(Path.cwd())) if word.startswith(str(Path.cwd())) else word for word in words
    ]
    print(f"$ privopt {' '.join(shown_words)}", flush=True)
    completed = subprocess.run(
        [sys.executable, "-m", "privopt", *words], stdout=subprocess.PIPE, text=True, check=False
    )
    if completed.returncode:
        sys.exit(f"demo: the command ended with exit code {completed.returncode}")
    return completed.stdout


def losses(data: MetricData, folder: Path, users: list[str]) -> tuple[float, float | None]:
    """Return the expected error in km, as the mean over some users and over the whole city.

    Args:
        data: The problem's data.
        folder: The folder of a release.
        users: Ids of the users.

    Returns:
        The two errors. The second one is None unless every place has a row.
    """
    places = list(data.records.ids)
    with np.load(folder / "mechanism.npz") as archive:
        rows, ids = archive["weights"] / 2.0**63, archive["records"].tolist()
    user_errors = [float(rows[ids.index(user)] @ data.cost[places.index(user)]) for user in users]
    city_error = float((data.weighted * rows).sum()) if ids == places else None
    return float(np.mean(user_errors)), city_error


def table(results: dict[str, dict[str, Any]], users: list[str]) -> None:
    """Print the errors of each method, between which places its guarantee holds, and what users tell the server."""
    data = MetricInstance.of(load_problem(MetricProblem, PROBLEM, ignore=registry().mechanisms.keys())).data
    print(f"{'':14}{'those four':>12}{'whole city':>12}  {'holds between':24}a user tells the server")
    for name, _, scope, trust in RUNS:
        user_error, city_error = losses(data, OUT / name, users)
        if city_error is None:
            city_error = results[name]["details"].get("population", {}).get("value")
        city = f"{city_error:9.3f} km" if city_error is not None else f"{'-':>12}"
        print(f"  {name:12}{user_error:9.3f} km{city}  {scope:24}{trust}")


def main() -> None:
    """Solve the city by each method, verify and sample a release, and explain the results."""
    OUT.mkdir(exist_ok=True)
    results = {}
    for name, words, _, _ in RUNS:
        privopt("solve", words[0], PROBLEM, "--out", OUT / name, *words[1:], "--force", "--quiet")
        results[name] = json.loads((OUT / name / "result.json").read_text())
    print(privopt("verify", OUT / "lr-geo-exact"), end="")
    with np.load(OUT / "lr-geo-exact" / "mechanism.npz") as archive:
        users = archive["records"].tolist()
    reports = privopt("sample", OUT / "lr-geo-exact", "--input", users[1], "-n", "5")
    print(reports, end="")
    best, exact = results["optimal-lp"], results["lr-geo-exact"]
    objective, guarantee, certificate = best["objective"], exact["guarantee"], exact["certificate"]
    print()
    print("What was solved: where the people of a small city say they are, so that nobody can tell places that")
    print("are near one another apart, at the least cost in misjudged ways to six targets. Four of them, at")
    print(f"{', '.join(users)}, ask for their own rows of the answer. The expected error of a way:")
    print()
    table(results, users)
    print()
    print("exponential adds noise by a formula; optimal-lp is the best that there is, but needs the whole city solved;")
    print("lr-geo is the paper's method: each user has only its surroundings solved for, and protects itself against")
    print("who sees its reports; with --method exact the server publishes one number a place, from which each user")
    print("computes its own row, and nobody learns anything else.")
    print()
    print(f"  guarantee   {guarantee['kind']}, epsilon {guarantee['epsilon']:g} {guarantee['unit']} (lr-geo-exact)")
    print(f"  proof       {certificate['checked']:,} inequalities in exact arithmetic,")
    print(f"              the worst at {certificate['worst']:.9g} of {certificate['allowed']:g} allowed")
    print(
        f"  bound       {objective['lower_bound']:.6f} {objective['unit']}: none with this guarantee and these "
        "outputs can lose less"
    )
    print(f"              over the whole city; optimal-lp is {objective['gap']:.1e} above it")
    print(f"  a report    someone at {users[1]} might say: {', '.join(reports.split())}")
    guess_with_report, guess_without = po.open(OUT / "optimal-lp").meaning[-1].split("; ")
    print(f"  attacker    {guess_with_report[0].lower()}{guess_with_report[1:]};")
    print(f"              {guess_without.rstrip('.')} (optimal-lp)")
    print()
    print(f"Files in {OUT.relative_to(HERE.parents[2])}/lr-geo-exact:")
    for path in sorted((OUT / "lr-geo-exact").rglob("*")):
        if path.is_file():
            print(f"  {path.relative_to(OUT / 'lr-geo-exact')}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
