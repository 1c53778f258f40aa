"""Mutants drawn by hand: a line changed for the worse in the core, in metric DP or a plugin, and tests that must fail.

A test is deleted only where another fails for the same fault. ``python tests/mutants.py [--root TREE] [NUMBER...]``
changes each line in place, runs its tests and puts it back: run it on a checkout that nobody else works in.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parents[1]
METRIC: Final = "plugins/metric-dp/src/privopt_metric_dp"
HIERARCHY: Final = "plugins/hierarchical-dp/src/privopt_hierarchical_dp"
OWN: Final = "plugins/hierarchical-dp/tests"
CORPUS: Final = "tests/checker/test_corpus.py -k [town]"
FORGED: Final = "tests/run/test_forged_results.py -k words"
ENEMIES: Final = "tests/run/test_hostile_folders.py"
PLANTED: Final = "tests/testing/test_planted_faults.py -k"
PAGES: Final = "tests/browser/test_check.py -k tampered"
BENDERS: Final = "tests/decompose/test_benders.py"
RUNS: Final = "tests/decompose/test_benders_runs.py"
CERTIFY: Final = "tests/matrix/test_certify.py"

MUTANTS: Final[Mapping[str, tuple[tuple[str, str, tuple[str, ...]], ...]]] = {
    "privopt/run/verify.py": (
        (
            "passed = value > bound if maximise else bound > value",
            "passed = False",
            ("tests/run/test_forged_results.py -k below_the_value",),
        ),
        ("if not math.isfinite(bound):", "if math.isnan(bound):", ("tests/run/test_forged_results.py -k cannot_have",)),
        (
            "elif opened.mechanism.bound_is_proof and proved != bound:",
            "elif False:",
            ("tests/proof/test_proofs.py -k last_bit",),
        ),
        ("if (opened.folder / PROOF).exists() else []", "if False else []", (CORPUS,)),
        (
            "if result.problem.sha256 != digest:",
            "if False:",
            (FORGED, CORPUS),
        ),
        ("if result.asked.method != result.method:", "if False:", (FORGED,)),
        ("if seeded and seed is None:", "if False:", ("tests/run/test_forged_results.py -k seed",)),
        ("if certificate.holds is False:", "if False:", ("tests/run/test_solve_verify.py -k stretched",)),
        (
            "if strange:",
            "if False:",
            (ENEMIES, CORPUS),
        ),
        (
            "if Path(file).name != file:",
            "if False:",
            (ENEMIES, CORPUS),
        ),
    ),
    "privopt/files/release_folder.py": (
        (
            "if before[name] != after[name]]",
            "if False]",
            ("tests/run/test_use_verifies.py -k until_a_byte",),
        ),
        (
            "elif not stat.S_ISREG(status.st_mode):",
            "elif False:",
            (ENEMIES, CORPUS),
        ),
        (
            "if len(table) < len(pairs):",
            "if False:",
            (ENEMIES, CORPUS),
        ),
        (
            "if math.isinf(number):",
            "if False:",
            (ENEMIES, CORPUS),
        ),
        (
            "if above and not found:",
            "if False:",
            (ENEMIES, CORPUS),
        ),
    ),
    "privopt/interfaces/result.py": (
        (
            "gap <= self.asked.gap else",
            "gap <= 1e9 * self.asked.gap else",
            ("tests/run/test_forged_results.py -k gap", CORPUS),
        ),
    ),
    f"{METRIC}/matrix/certify.py": (
        ("holds=not failed and not len(wrong),", "holds=not failed,", (CORPUS,)),
        (
            "if left << bits <= low * right:",
            "if left << bits <= 2 * low * right:",
            (CORPUS, CERTIFY),
        ),
        ("if exponent > 45:", "if exponent > 4:", (CERTIFY,)),
    ),
    f"{METRIC}/proof/proof_file.py": (
        (
            "if len(lost):",
            "if False:",
            ("tests/proof/test_proofs.py", CORPUS),
        ),
    ),
    f"{METRIC}/proof/row_proof.py": (
        (
            "(math.nextafter(low - excess, -math.inf) if excess else low), high",
            "low, high",
            ("tests/proof/test_proof_mutations.py -k town", "tests/proof/test_proofs.py -k optimum"),
        ),
    ),
    f"{METRIC}/checkers/check.js": (
        ('need(n >= 0n, "a multiplier below 0");', "", (PAGES,)),
        ("need(abs(proved) * bottom <= (top * ONE) << 48n,", "need(true,", (PAGES,)),
        ("need(kept, `in triangle", "need(true, `in triangle", (PAGES,)),
    ),
    "privopt/decompose/master.py": (
        (
            "if bound > best:",
            "if bound < best:",
            (BENDERS, RUNS),
        ),
    ),
    "privopt/decompose/checkpoint.py": (
        ("if not follows(split, places, values, upper, duals):", "if False:", (RUNS,)),
        ("if len(master.idle) != len(master.rows):", "if False:", (RUNS,)),
    ),
    "privopt/testing/checks/secrets.py": (
        ("if where is None:", "if True:", (f"{PLANTED} no-secret-leak",)),
        ("if alone != whole:", "if False:", (f"{PLANTED} public-report",)),
        ("if first[name] != second[name]:", "if False:", (f"{PLANTED} non-interference",)),
    ),
    "privopt/testing/checks/matrix.py": (
        ("(one == 0) != (two == 0) and", "False and", (f"{PLANTED} zeros-on-both-sides",)),
        (
            "if first == other and max(map(first.count, set(first))) <= 0.9 * FRESH:",
            "if False:",
            (f"{PLANTED} fresh-samples",),
        ),
    ),
    f"{HIERARCHY}/relations.py": (
        ('return 1 if query == "counts" else self.classes', "return 1", (f"{OWN}/test_relations.py -k by_search",)),
        (
            'return 2 if query == "counts" else most',
            'return 2 if query == "counts" else 1',
            (f"{OWN}/test_hierarchical_conformance.py -k search", f"{OWN}/test_relations.py -k by_search"),
        ),
    ),
    f"{HIERARCHY}/structural_zeros.py": (
        ("np.where(found == ALL, totals[:, None], taken)", "taken", (f"{OWN}/test_zeros.py",)),
    ),
    f"{HIERARCHY}/release_checks.py": (
        ("if zero is None", "if True", (f"{OWN}/test_zeros.py",)),
        ("if design.limits is None", "if True", (f"{OWN}/test_bounds.py",)),
        ("if release.bounds is None:", "if True:", (f"{OWN}/test_intervals.py",)),
    ),
    f"{HIERARCHY}/sizes.py": (
        (
            "if not self.valid or self.totals or (self.relation.exact and self.limits is None):",
            "if True:",
            (f"{OWN}/test_relations.py -k total",),
        ),
    ),
    f"{HIERARCHY}/methods.py": (
        (
            "Fraction(step, 5 * sum(rising))",
            "Fraction(step, 6 * sum(rising))",
            (f"{OWN}/test_hierarchical_solve.py -k shares",),
        ),
    ),
}
"""By file: part of a line, there once; what stands in its place; what pytest is given, run by run, until one fails."""


def killed(root: Path, file: str, old: str, new: str, tests: tuple[str, ...]) -> bool:
    """Return whether a test fails while a mutant stands in the checkout.

    Raises:
        ValueError: the line is not there or there more than once, or pytest has no such test.
    """
    path = root / file
    text = path.read_text("utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{file}: {old!r} stands there {text.count(old)} times, wanted once")
    sources = [root, root / "tests", *root.glob("plugins/*/src")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sources)), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "--hypothesis-profile", "ci"]
    try:
        path.write_text(text.replace(old, new), "utf-8")
        for given in tests:
            place, _, word = given.partition(" -k ")
            command = [sys.executable, "-m", "pytest", *options, place, *(["-k", word] if word else [])]
            done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
            if done.returncode == 1:
                return True
            if done.returncode:
                raise ValueError(f"{given}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
    finally:
        path.write_text(text, "utf-8")
    return False


def main() -> int:
    """Print a row for each mutant; end with the number of those that survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=HERE, help="the checkout to change")
    parser.add_argument("numbers", nargs="*", type=int, help="of mutants, from 1; without any, all")
    asked = parser.parse_args()
    rows = [(file, *mutant) for file, mutants in MUTANTS.items() for mutant in mutants]
    survive = 0
    for number in asked.numbers or range(1, len(rows) + 1):
        began, (file, old, new, tests) = time.monotonic(), rows[number - 1]
        died = killed(asked.root.resolve(), file, old, new, tests)
        survive += not died
        seconds = f"{time.monotonic() - began:.0f} s"
        print(f"| {number} | {file} | `{new}` | {'killed' if died else 'survived'} | {seconds} |", flush=True)
    return survive


if __name__ == "__main__":
    sys.exit(main())
