"""Forged folders: verify and the checker refuse each, and agree on it; no refusal of the checker is untried."""

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from helpers.checker_parts import modules, replace_need
from helpers.forgeries import BASES, METRIC, forge, forgeries, make
from helpers.forgeries.bases import PLANES
from helpers.mentions import assert_mentions

from privopt import checker
from privopt.errors import PrivoptError
from privopt.run.verify import verify

LEAST = 60
"""Forgeries of each folder, at least: more than 300 in all."""

ELSEWHERE = {
    "{folder}: not a folder",
    "chooses no outputs",
    "neither one of them",
    "of the records, in their order",
    "connect all records",
    "no road begins or ends",
    "missing, twice, or too large",
    "not a list of texts",
    "len(points) == 1",
    "must be module:Part",
    "not is_own",
    "name in parts",
    "records.unit: must",
}
"""Refusals that none of these folders causes.

test_checker.py, test_checker_limits.py, test_checker_parts.py, test_chosen_outputs.py and test_street_bound.py do.
"""


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    """Forgeries by base, as far as they were tried."""
    return {}


@pytest.fixture(scope="module")
def hits() -> set[tuple[str, int]]:
    """File and line of each refusal of the checker that was reached."""
    return set()


def verify_exit_code(folder) -> int:
    """Return the exit code of verify."""
    try:
        verdict = verify(folder).verdict
    except PrivoptError:
        return 2
    return {None: 1, "none": 6}.get(verdict, 0)


@pytest.fixture(scope="module")
def tried_counts() -> Counter[tuple[str, str]]:
    """How often forgeries of each kind were tried."""
    return Counter()


NUMBER = re.compile(r"\d[\d.]*(e-?\d+)?")
CLAIM = re.compile(r"(guarantee|objective|certificate|asked|details|status|problem|result\.json)\b")


def kind(base, forgery) -> tuple[str, str]:
    """Return whose code refuses a forgery, and what it changes, whatever the numbers.

    Sums and files are read alike for all mechanisms, what a claim looks like for all releases of one, and all else for
    matrices, for planes, or for the base alone.
    """
    changed_part = NUMBER.sub("#", forgery.name)
    if not forgery.mended:
        return "files", changed_part
    if CLAIM.match(changed_part) and "#" not in changed_part:
        return BASES[base][0], changed_part
    return next((base_kind for base_kind in (METRIC, PLANES) if base in base_kind), [base])[0], changed_part


@pytest.mark.parametrize("all_forgeries", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["first", "every"])
@pytest.mark.parametrize("base", BASES)
def test_both_programs_refuse_every_forgery(tmp_path, base, all_forgeries, counts, hits, tried_counts, monkeypatch):
    """One forgery of a kind is tried; in make slow all are, of every base."""

    def need(condition, reason, code=1):
        if not condition:
            caller = sys._getframe(1)
            hits.add((caller.f_code.co_filename, caller.f_lineno))
            raise checker.RefusedError(reason, code)

    replace_need(monkeypatch, need)
    folder = make(base, tmp_path)
    assert (verify_exit_code(folder), checker.check(folder, str)) == (0, 0)
    accepted, number = [], 0
    for number, forgery in enumerate(forgeries(base, folder)):
        forgery_kind = kind(base, forgery)
        tried_counts[forgery_kind] += 1
        if tried_counts[forgery_kind] > 1 and not all_forgeries:
            continue
        forged_folder = forge(folder, forgery, tmp_path / f"forged-{number}")
        exit_codes = (verify_exit_code(forged_folder), checker.check(forged_folder, str))
        if exit_codes[0] in (0, 6) or exit_codes[1] in (0, 6):
            accepted.append((forgery.name, *exit_codes))
    assert accepted == []
    assert number + 1 >= LEAST
    counts[base] = number + 1


def test_every_refusal_of_the_checker_is_tried(counts, hits):
    """Each line where it refuses is reached by a forgery, and the page says how many there are."""
    if counts.keys() != BASES.keys():
        pytest.skip(f"forgeries of {len(counts)} of {len(BASES)} problems were tried before")
    untried = []
    for path in (Path(module.__file__) for module in modules()):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("need"):
                lines = range(node.lineno, node.end_lineno + 1)
                reason = ast.unparse(node)
                if not {(str(path), line) for line in lines} & hits and not any(part in reason for part in ELSEWHERE):
                    untried.append(f"{path.name}:{node.lineno}: {reason}")
    assert not untried, "\n".join(untried)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "proof.md").read_text("utf-8")
    count = sum(counts.values())
    assert_mentions(page, f"{count:,} forged folders", f"{len(BASES)} problems")
