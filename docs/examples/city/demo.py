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
    unit = objective["unit"]
    print()
    print("What was solved: where the people of a small city say they are, so that nobody can tell places that")
    print("are near one another apart, at the least cost in misjudged ways to six targets.")
    print()
    print(
        f"  guarantee   {guarantee['kind']}, epsilon {guarantee['epsilon']:g} {guarantee['unit']}, {guarantee['scope']}"
    )
    print(f"  loss        {objective['value']:.6f} {unit}, the expected error of a way")
    print(f"  bound       {objective['lower_bound']:.6f} {unit}: no mechanism with this guarantee can lose less")
    print(f"  gap         {objective['gap']:.1e} of the loss")
    ratio = plain / objective["value"]
    print(f"  compared    {plain:.6f} {unit} for the exponential mechanism, {ratio:.1f} times as much")
    print(f"  proof       {certificate['checked']:,} inequalities in exact arithmetic,")
    print(f"              the worst at {certificate['worst']:.9g} of {certificate['allowed']:g} allowed")
    print(f"  a report    someone at 2-3 might say: {', '.join(drawn)}")
    print()
    print(f"Files in {OUT.relative_to(HERE.parents[2])}/optimal-lp:")
    for path in sorted((OUT / "optimal-lp").rglob("*")):
        if path.is_file():
            print(f"  {path.relative_to(OUT / 'optimal-lp')}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
