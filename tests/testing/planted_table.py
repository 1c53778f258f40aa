"""Run planted faults, and mechanisms without faults, at two efforts and two seeds, and print tables of the results.

::

    python tests/testing/planted_table.py --out FOLDER              # goes on where an earlier run of FOLDER stopped
    python tests/testing/planted_table.py --out FOLDER --only house --effort ci

A fault counts as caught if the check named for it fails or, if that check passes, any other check does. A mechanism
without faults runs every check.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

from attrs import evolve

TESTS: Final = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "testing")]

from faults import one_sided  # noqa: E402  (tests are no package)
from test_author_faults import FAULTS as AUTHOR_FAULTS  # noqa: E402
from test_author_faults import RIGHT as AUTHOR_RIGHT  # noqa: E402
from test_planted_faults import FAULTS as HOUSE_FAULTS  # noqa: E402
from test_planted_faults import ODD, RIGHT, profile_of  # noqa: E402
from test_shipped import CLAIMED, OF_METHODS  # noqa: E402

from privopt.registry import registry, using  # noqa: E402
from privopt.testing import CheckResult, run_check, subject  # noqa: E402
from privopt.testing.checks import checks as all_checks  # noqa: E402
from privopt.testing.efforts import EFFORTS  # noqa: E402

SEEDS: Final = (0, 1)


class Case(NamedTuple):
    """A mechanism to try.

    Attributes:
        group: ``authors``, ``house`` (both planted faults), ``right`` or ``installed`` (both without faults).
        name: The name of the class, or the name and the method of an installed mechanism.
        mechanism: The class, or the name of an installed mechanism.
        method: The method of an installed mechanism; None for the only one of a class.
        kind: The notion that a class claims.
        check: The check that is named for a fault; empty without a fault.
        checks: The names of the checks to run if there is no fault, or if the named check misses it.
    """

    group: str
    name: str
    mechanism: Any
    method: str | None
    kind: str
    check: str
    checks: tuple[str, ...]


def iter_cases() -> Iterator[Case]:
    """Yield all mechanisms to try."""
    every = tuple(all_checks())
    # Another process does not know the notion, which is registered for these runs alone.
    for_kind = {"one-sided": tuple(name for name in every if name != "seed-determinism")}
    for fault, kind, check in AUTHOR_FAULTS:
        yield Case("authors", fault.__name__, fault, None, kind, check, for_kind.get(kind, every))
    for check, fault, kind in HOUSE_FAULTS:
        yield Case("house", fault.__name__, fault, None, kind, check, every)
    right_by_name = {right.__name__: (right, kind) for right, kind in [*AUTHOR_RIGHT, *RIGHT, *ODD]}
    for name, (right, kind) in right_by_name.items():
        yield Case("right", name, right, None, kind, "", for_kind.get(kind, every))
    for name, method in CLAIMED:
        is_default = method == registry().get(name).spec.default.name
        yield Case("installed", f"{name} {method}", name, method, "", "", every if is_default else OF_METHODS)


def run_case(case: Case, effort: str, seed: int) -> tuple[list[CheckResult], list[CheckResult]]:
    """Run the checks of a case.

    Args:
        case: The case.
        effort: dev or ci.
        seed: The seed.

    Returns:
        The failed results, and all results.
    """
    how = evolve(EFFORTS[effort], shrinking=0.2)
    profile = profile_of(case.mechanism)
    with using(registry().replace(one_sided.NOTION)) if case.kind == "one-sided" else nullcontext():
        kit_subject = subject(case.mechanism, case.method, guarantee=case.kind, profile=profile)
        results: list[CheckResult] = []
        for name in dict.fromkeys([case.check, *case.checks] if case.check else case.checks):
            results.append(run_check(name, kit_subject, how=how, seed=seed))
            if case.check and results[-1].status == "failed":
                break
        kit_subject.close()
    return [result for result in results if result.status == "failed"], results


def run_cases(out: Path, groups: list[str], efforts: list[str], match: str) -> None:
    """Run all cases of some groups, and append a line for each run to ``out``; runs that it has are left out.

    Args:
        out: The file of the results.
        groups: The groups.
        efforts: The efforts.
        match: A regular expression for the names of the cases.
    """
    finished = {tuple(json.loads(line)["run"]) for line in out.read_text().splitlines()} if out.exists() else set()
    for effort in efforts:
        for case in iter_cases():
            for seed in SEEDS:
                run = (case.group, case.name, case.check, effort, seed)
                if case.group not in groups or run in finished or not re.search(match, case.name):
                    continue
                start = time.process_time()
                failed, results = run_case(case, effort, seed)
                row = {
                    "run": run,
                    "failed": [(result.check, result.reason.splitlines()[0][:160]) for result in failed],
                    "passed": sum(result.status == "passed" for result in results),
                    "seconds": round(time.process_time() - start, 1),
                }
                with out.open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
                print(*run, [check for check, _ in row["failed"]], row["passed"], f"{row['seconds']} s", flush=True)


def format_tables(out: Path) -> str:
    """Return the tables of all runs in ``out``, as Markdown."""
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    checks_by_case: dict[tuple[str, str, str], dict[tuple[str, int], str]] = defaultdict(dict)
    for row in rows:
        group, name, check, effort, seed = row["run"]
        caught_by = row["failed"][0][0] if row["failed"] else ""
        checks_by_case[group, name, check][effort, seed] = caught_by
    lines = []
    for group, (title, is_fault) in {
        "authors": ("faults of authors", True),
        "house": ("faults of the house", True),
        "right": ("mechanisms without faults, of the tests", False),
        "installed": ("methods of installed mechanisms", False),
    }.items():
        for effort in EFFORTS:
            cases = {key: runs for key, runs in checks_by_case.items() if key[0] == group and (effort, 0) in runs}
            if not cases:
                continue
            counts = []
            for seed in SEEDS:
                failing = [key for key, runs in cases.items() if runs.get((effort, seed))]
                unexpected = sorted({key[1] for key in cases} - {key[1] for key in failing}) if is_fault else failing
                ran = sum((effort, seed) in runs for runs in cases.values())
                words = f"{len(failing)} of {ran}" if is_fault else f"{len(failing)} of {ran} accused"
                counts.append(words + (f" ({unexpected})" if unexpected else ""))
            lines.append(f"| {title} | {effort} | {' | '.join(counts)} |")
    return "\n".join(["| tried | effort | seed 0 | seed 1 |", "| --- | --- | --- | --- |", *lines])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results, one line a run")
    parser.add_argument("--only", nargs="+", default=["authors", "house", "right", "installed"], metavar="GROUP")
    parser.add_argument("--effort", nargs="+", default=["quick", "ci"])
    parser.add_argument("--match", default="", help="regular expression for the names to run")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = options.out / "runs.jsonl"
    run_cases(runs, options.only, options.effort, options.match)
    print(format_tables(runs))


if __name__ == "__main__":
    main()
