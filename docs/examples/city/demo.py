"""What ``make demo`` runs: solve the small city, verify the result apart, and say what it means."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parents[2] / "demo-out"


def privopt(*arguments: str | Path) -> str:
    """Run one command as a user would, showing it; its standard output comes back."""
    words = [str(word) for word in arguments]
    shown = [str(Path(word).relative_to(Path.cwd())) if word.startswith(str(Path.cwd())) else word for word in words]
    print(f"$ privopt {' '.join(shown)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "privopt", *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"demo: the command ended with exit code {done.returncode}")
    return done.stdout


def main() -> None:
    """Solve, verify, sample, compare, explain."""
    problem = HERE / "problem.toml"
    OUT.mkdir(exist_ok=True)
    losses = {}
    for mechanism in ("optimal-lp", "exponential"):
        target = OUT / mechanism
        privopt("solve", mechanism, problem, "--out", target, "--force", "--quiet")
        losses[mechanism] = json.loads((target / "result.json").read_text())
    best = losses["optimal-lp"]
    print(privopt("verify", OUT / "optimal-lp"), end="")
    drawn = privopt("sample", OUT / "optimal-lp", "--input", "2-3", "-n", "5").split()
    objective, guarantee, certificate = best["objective"], best["guarantee"], best["certificate"]
    plain = losses["exponential"]["objective"]["value"]
    print(
        f"""
What was solved: where the people of a small city say they are, so that nobody can tell streets that
are near one another apart, at the least cost in misjudged ways to six targets.

  guarantee   {guarantee["kind"]}, epsilon {guarantee["epsilon"]:g} {guarantee["unit"]}, {guarantee["scope"]}
  loss        {objective["value"]:.6f} {objective["unit"]} expected error of a way
  bound       {objective["lower_bound"]:.6f} {objective["unit"]}: no mechanism with this guarantee can do better (gap {objective["gap"]:.1e})
  compared    {plain:.6f} {objective["unit"]} for the exponential mechanism: {plain / objective["value"]:.1f} times as much
  proof       {certificate["checked"]:,} inequalities checked in exact arithmetic; worst {certificate["worst"]:.6f} of {certificate["allowed"]:g} allowed
  a report    someone at 2-3 might say: {", ".join(drawn)}

Files in {OUT.relative_to(HERE.parents[2])}/optimal-lp:"""
    )
    for path in sorted((OUT / "optimal-lp").rglob("*")):
        if path.is_file():
            print(f"  {path.relative_to(OUT / 'optimal-lp')}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
