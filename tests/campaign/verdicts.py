"""Compare the verdicts of verify, checker and page on random problems and forgeries, today's and earlier ones.

``python tests/campaign/verdicts.py --out FILE --earlier NAME=PYTHON`` solves the problems of
``tests/helpers/random_problems.py``, forges each folder and asks all three programs of this checkout, and those of the
environment that PYTHON belongs to. FILE keeps a line a folder, so that a stopped run continues. Two that differ in what
they accept are printed; then it ends with code 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.forgeries import Forgery, forge
from helpers.forgeries.archives import archives_of
from helpers.forgeries.arrays import arrays_of
from helpers.forgeries.claims import claims_of, files_of
from helpers.forgeries.photos import photos_of
from helpers.forgeries.proofs import proofs_of
from helpers.random_problems import Form, forms
from helpers.tampered_pages import DATA

from privopt.command.checker_file import checker_file
from privopt.errors import InfeasibleError
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release
from privopt_metric_dp.report.browser_check import check_section

TESTS: Final = Path(__file__).parents[1]
ACCEPTED: Final = (0, 6, "holds")
PROGRAMS: Final = ("verify", "checker", "page")

COMMAND: Final = """
import sys
from click.testing import CliRunner
from privopt.command.cli import cli
for line in sys.stdin:
    print(CliRunner().invoke(cli, line.rstrip("\\n").split(" ", 1), prog_name="privopt").exit_code, flush=True)
"""
CHECKER: Final = """
import sys
from pathlib import Path
from privopt import checker
for line in sys.stdin:
    print(checker.check(Path(line.rstrip("\\n")), str), flush=True)
"""
ALONE: Final = """
import runpy, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
parts = runpy.run_path(sys.argv[1])["PARTS"]
from privopt.checker.run import check
for line in sys.stdin:
    print(check(Path(line.rstrip("\\n")), str, parts), flush=True)
"""


class Program:
    """A process that answers each line with an exit code."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line: str) -> int:
        """Return the exit code for a folder, or for a command and a folder."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self) -> None:
        """Wait for its end."""
        self.process.communicate()


class Earlier:
    """The programs of an earlier version.

    Attributes:
        name: of the version.
        core: whether metric DP was in its core, and the mechanisms of it are named so.
    """

    def __init__(self, version_option: str) -> None:
        self.name, _, python = version_option.partition("=")
        self.verify, self.checker = Program(python, "-P", "-c", COMMAND), Program(python, "-P", "-c", CHECKER)
        code = "import importlib.metadata as m; m.version('privopt-metric-dp')"
        completed = subprocess.run([python, "-P", "-c", code], stderr=subprocess.DEVNULL, check=False)
        self.core = bool(completed.returncode)

    def restated(self, folder: Path) -> Path:
        """Return a copy in which the distribution that made the release is this version's."""
        copy = folder.with_name(f"{folder.name}-{self.name}")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy, symlinks=True, copy_function=copy_file)
        file, sums = copy / "result.json", copy / "SHA256SUMS"
        if self.core and file.is_file():
            raw = file.read_bytes()
            new_contents = raw.replace(b'"name": "privopt-metric-dp"', b'"name": "privopt"')
            file.write_bytes(new_contents)
            if sums.is_file():
                old, new = (hashlib.sha256(contents).hexdigest() for contents in (raw, new_contents))
                sums.write_bytes(sums.read_bytes().replace(old.encode(), new.encode()))
        return copy


def copy_file(source: str, target: str) -> None:
    """Copy a file, a pipe as a pipe."""
    if Path(source).is_fifo():
        os.mkfifo(target)
    else:
        shutil.copy2(source, target)


def pages(paths: list[Path]) -> list[str]:
    """Return what the buttons of pages say, by node."""
    run = ["node", str(TESTS / "browser" / "run_check.js"), *map(str, paths)]
    completed = subprocess.run(run, capture_output=True, text=True, check=True)
    return [json.loads(line)["verdict"] for line in completed.stdout.splitlines()]


def content_of(folder: Path, solved: Path) -> Any:
    """Return what a page of a folder would carry, if no one verified first; None if no page can carry it."""
    opened = load_release(solved)
    release, result = opened.release, opened.result
    try:
        if folder != solved:
            with np.load(folder / "mechanism.npz") as arrays:
                parts = {name: arrays[name] for name in ("weights", "records", "outputs", "pairs", "distances")}
            release = SimpleNamespace(**parts, region=release.region)
        section = check_section(folder, release, result)
    except Exception:  # whatever reading a forged folder may raise
        return None
    match = section and DATA.search(section.html)
    return json.loads(match[2]) if match else None


def read(content: Any) -> Any:
    """Return what a page reads of its content: not where the problem file lay, nor its checksum."""
    if not content or not isinstance(content["result"], dict):  # a forged result.json may be anything
        return content
    return content | {"result": content["result"] | {"problem": None}}


def forged(folder: Path, form: Form) -> Iterator[tuple[str, list[Forgery]]]:
    """Yield the forgeries of a folder, by kind."""
    yield "claims", list(claims_of(json.loads((folder / "result.json").read_text())))
    yield "files", list(files_of(folder))
    proof = (folder / "proof.npz").exists()
    if form.mechanism == "photo-censor":
        if proof:
            yield "photos", list(photos_of(folder))
        return
    yield "archives", list(archives_of())
    with np.load(folder / "mechanism.npz") as arrays:
        if "simplices" not in arrays.files and len(arrays["pairs"]):
            yield "arrays", list(arrays_of(folder, "random"))
    if proof:
        yield "proofs", list(proofs_of(folder))


class Campaign:
    """The programs of all versions, and where folders are made."""

    def __init__(self, folder: Path, earlier: list[Earlier]) -> None:
        file = folder / "checker.pyz"
        file.write_bytes(checker_file(file.name)[0])
        self.place, self.earlier = folder, earlier
        self.verify = Program(sys.executable, "-P", "-c", COMMAND)
        self.checker = Program(sys.executable, "-I", "-S", "-c", ALONE, str(file))

    def end(self) -> None:
        """End all programs."""
        for program in (self.verify, self.checker, *(p for old in self.earlier for p in (old.verify, old.checker))):
            program.end()

    def verdicts(self, folder: Path) -> dict[str, Any]:
        """Return the exit codes of verify and checker, by version."""
        codes = {"verify": self.verify.ask(f"verify {folder}"), "checker": self.checker.ask(str(folder))}
        for version in self.earlier:
            copy = version.restated(folder)
            codes[f"verify {version.name}"] = version.verify.ask(f"verify {copy}")
            codes[f"checker {version.name}"] = version.checker.ask(str(copy))
        return codes

    def problem(self, number: int, count: int) -> Iterator[dict[str, Any]]:
        """Solve a problem, forge it so often, and yield what was found of each folder."""
        form, home, chance = forms(number), self.place / str(number), random.Random(number)
        try:
            options = Options(**form.options)
            folder = solve(form.mechanism, form.write(home / "problem"), home / "out", options).folder
        except InfeasibleError:
            return
        has_page = form.mechanism != "photo-censor"
        content = content_of(folder, folder) if has_page else None
        carriers = self.carriers(folder) if content is not None else {}
        cases = [("as solved", "", self.verdicts(folder), content)]
        kinds = dict(forged(folder, form))
        for turn in range(count):
            kind = chance.choice(sorted(kinds))
            forgery = chance.choice(kinds[kind])
            try:
                copy = forge(folder, forgery, home / str(turn))
            except (AssertionError, LookupError, ValueError, OSError):  # a change that this problem has no place for
                continue
            carried = content is not None and kind != "files"  # a page has no SHA256SUMS
            case = content_of(copy, folder) if carried else None
            cases.append((kind, forgery.name, self.verdicts(copy), case if read(case) != read(content) else None))
        for version, text in carriers.items():
            written = []
            for turn, (*_, codes, case) in enumerate(cases):
                if case is not None:
                    new_json = json.dumps(case).replace("<", "\\u003c")
                    page = home / f"{turn}.html"
                    page.write_text(DATA.sub(lambda old, new_json=new_json: old[1] + new_json + old[3], text))
                    written.append((page, codes))
            for page_verdict, (_, codes) in zip(pages([page for page, _ in written]), written, strict=True):
                codes[f"page {version}".rstrip()] = page_verdict
        for kind, name, codes, _ in cases:
            yield {"number": number, "mechanism": form.mechanism, "kind": kind, "name": name, "verdicts": codes}
        shutil.rmtree(home)

    def carriers(self, folder: Path) -> dict[str, str]:
        """Return the page of a folder as each version writes it."""
        texts = {}
        for version in self.earlier:
            copy = version.restated(folder)
            if version.verify.ask(f"report {copy}") == 0:
                text = (copy / "report.html").read_text("utf-8")
                if DATA.search(text):
                    texts[version.name] = text
        return {"": write_report(folder).read_text("utf-8"), **texts}


def is_accepted(codes: dict[str, Any], name: str) -> bool | None:
    """Return whether a program accepts a folder; None if it was not asked."""
    return codes[name] in ACCEPTED if name in codes else None


def compare_cases(cases: list[dict[str, Any]], versions: list[str]) -> tuple[list[str], list[str]]:
    """Return the table of all cases, and a line for each that differs.

    A version is compared where each of its programs accepts the solved folder: else it does not know the form.
    """
    numbers_by_version = {version: set() for version in versions}
    for case in cases:
        for version in versions:
            codes = [code for name, code in case["verdicts"].items() if name.endswith(f" {version}")]
            if case["kind"] == "as solved" and codes and all(code in ACCEPTED for code in codes):
                numbers_by_version[version].add(case["number"])
    head = ["folders", "tried", "verify accepts", "checker accepts", "page accepts, of", "differ"]
    head += [f"{version}: compared | refused now | accepted now" for version in versions]
    rows, findings = [f"| {' | '.join(head)} |", "| --- " * (6 + 3 * len(versions)) + "|"], []
    for kind in dict.fromkeys(case["kind"] for case in cases):
        cells = Counter[str]()
        for case in (case for case in cases if case["kind"] == kind):
            case_codes, what = case["verdicts"], f"problem {case['number']}: {kind} {case['name']}: {case['verdicts']}"
            now = {name: is_accepted(case_codes, name) for name in PROGRAMS}
            cells.update(["tried", *(name for name, holds in now.items() if holds)])
            cells["page asked"] += now["page"] is not None
            if len(set(now.values()) - {None}) > 1:
                cells["differ"] += 1
                findings.append(f"differ: {what}")
            for version in versions:
                if case["number"] not in numbers_by_version[version]:
                    continue
                cells[version] += 1
                then = {name: is_accepted(case_codes, f"{name} {version}") for name in PROGRAMS}
                pairs = {(now[name], then[name]) for name in PROGRAMS if None not in (now[name], then[name])}
                for pair, change in (((False, True), "refused now"), ((True, False), "accepted now")):
                    if pair in pairs:
                        cells[f"{version} {change}"] += 1
                        findings.append(f"{change}: {what}")
        row = [cells["tried"], cells["verify"], cells["checker"], f"{cells['page']}, {cells['page asked']}"]
        row += [cells["differ"]]
        for version in versions:
            row += [cells[version], cells[f"{version} refused now"], cells[f"{version} accepted now"]]
        rows.append(f"| {kind} | {' | '.join(map(str, row))} |")
    return rows, findings


def main() -> None:
    """Try the problems that FILE does not have yet, and print the table of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=500, help="how many")
    parser.add_argument("--forgeries", type=int, default=4, help="of each solved folder")
    parser.add_argument("--earlier", action="append", default=[], metavar="NAME=PYTHON", help="an environment's python")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a line of JSON a folder")
    options = parser.parse_args()
    cases = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {case["number"] for case in cases}
    with tempfile.TemporaryDirectory(prefix="privopt-verdicts-") as folder_name, options.out.open("a") as file:
        os.environ["PRIVOPT_CACHE"] = str(Path(folder_name) / "cache")
        campaign = Campaign(Path(folder_name), [Earlier(version_option) for version_option in options.earlier])
        for number in sorted(set(range(options.problems)) - done):
            new = list(campaign.problem(number, options.forgeries))
            file.write("".join(f"{json.dumps(case)}\n" for case in new))
            file.flush()
            cases += new
        campaign.end()
    rows, findings = compare_cases(cases, [version.name for version in campaign.earlier])
    print("\n".join([*rows, *findings]))
    sys.exit(any(not finding.startswith("refused now") for finding in findings))


if __name__ == "__main__":
    main()
