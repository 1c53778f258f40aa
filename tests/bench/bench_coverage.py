"""How often intervals of districts hold all at once, and how wide they are: every method, many repetitions.

``python tests/bench/bench_coverage.py RECORD.csv [--cases ...] [--minutes 8]`` adds a row for each block of
repetitions to RECORD.csv and goes on from the rows that are there, until every case has its repetitions; then it prints
the table. Block n draws from seed n. Truth, maps and districts are fixed: 81 places in 9 districts with 3,000 reports,
and 400 places in 64 districts with 50,000.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from attrs import frozen
from scipy.sparse import csr_array

from privopt.estimate.linear_intervals import linear_intervals
from privopt.estimate.shares import EstimateOptions, ReportCounts, estimate
from privopt.interfaces import Channel

BLOCK = 20
CONFIDENCE = 0.95
Ends = tuple[np.ndarray, np.ndarray]


@frozen(kw_only=True, eq=False)
class Town:
    """Places of a square in districts, the exponential mechanism over them, and where people are."""

    channel: Channel
    members: np.ndarray
    truth: np.ndarray
    reports: int

    @classmethod
    def of(cls, records: int, groups: int, reports: int) -> Town:
        """Return a town of a fixed seed; most people are in a few districts."""
        rng = np.random.default_rng(1)
        grid_side = round(groups**0.5)
        places = rng.uniform(0, grid_side, (records, 2))
        z = np.exp(-2.0 * np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)))
        z /= z.sum(axis=1, keepdims=True)
        cell = np.minimum(places.astype(int), grid_side - 1) @ [grid_side, 1]
        members = (cell[None] == np.arange(groups)[:, None]).astype(float)
        truth = rng.dirichlet(np.full(records, 0.3)) * np.exp(-((places - grid_side / 3) ** 2).sum(axis=1) / grid_side)
        names = [str(number) for number in range(records)]
        channel = Channel(inputs=names, outputs=names, probabilities=z)
        return cls(channel=channel, members=members, truth=truth / truth.sum(), reports=reports)

    def by_command(self, counts: np.ndarray, intervals: str) -> Ends:
        """Intervals as ``privopt estimate --by`` has them."""
        groups = {str(number): np.flatnonzero(row) for number, row in enumerate(self.members)}
        options = EstimateOptions(intervals=intervals, confidence=CONFIDENCE)
        estimated = estimate([ReportCounts(channel=self.channel, counts=counts)], options, groups=groups)
        return estimated.low, estimated.high

    def by_estimators(self, counts: np.ndarray, *, finite: bool) -> Ends:
        """Intervals by linear estimators alone."""
        z, members = self.channel.probabilities, csr_array(self.members)
        bounds = linear_intervals([z], [counts], members, CONFIDENCE, finite=finite)
        return bounds or (np.ones(len(self.members)), np.zeros(len(self.members)))


SMALL, LARGE = (81, 9, 3_000), (400, 64, 50_000)
CASES: dict[str, tuple[tuple[int, int, int], int, Callable[[Town, np.ndarray], Ends]]] = {
    "9: programs and estimators": (SMALL, 2_000, lambda town, counts: town.by_command(counts, "finite-sample")),
    "9: profile likelihood": (SMALL, 2_000, lambda town, counts: town.by_command(counts, "asymptotic")),
    "9: estimators, finite-sample": (SMALL, 2_000, lambda town, counts: town.by_estimators(counts, finite=True)),
    "9: estimators, asymptotic": (SMALL, 2_000, lambda town, counts: town.by_estimators(counts, finite=False)),
    "64: programs and estimators": (LARGE, 200, lambda town, counts: town.by_command(counts, "finite-sample")),
    "64: estimators, asymptotic": (LARGE, 200, lambda town, counts: town.by_command(counts, "asymptotic")),
}


def run_block(case: str, block: int, towns: dict[tuple[int, int, int], Town]) -> list[object]:
    """Return a row: case, block, repetitions, how many held, median width of districts above .01, seconds."""
    size, _, method = CASES[case]
    town = towns.setdefault(size, Town.of(*size))
    group_shares = town.members @ town.truth
    begun, held_count, widths = time.process_time(), 0, []
    for counts in np.random.default_rng(block).multinomial(
        town.reports, town.truth @ town.channel.probabilities, size=BLOCK
    ):
        low, high = method(town, counts)
        held_count += bool(((low <= group_shares) & (group_shares <= high)).all())
        widths.append(np.median((high - low)[group_shares > 0.01]))
    return [case, block, BLOCK, held_count, f"{np.mean(widths):.5f}", f"{time.process_time() - begun:.2f}"]


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print what is there; what must hold is .95 less three standard errors of that many repetitions."""
    print("| case | repetitions | all hold | expected | median width | processor seconds each |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        case_rows = np.array([[float(text) for text in row[1:]] for row in rows if row[0] == case])
        if len(case_rows):
            _, count, held_counts, width, seconds = case_rows.T
            n = count.sum()
            required_rate = CONFIDENCE - 3 * (CONFIDENCE * (1 - CONFIDENCE) / n) ** 0.5
            print(
                f"| {case} | {n:,.0f} | {held_counts.sum() / n:.4f} | {required_rate:.4f} | {width.mean():.4f} "
                f"| {seconds.sum() / n:.3f} |"
            )


def main() -> None:
    """Go on where the record ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--minutes", type=float, default=8.0)
    arguments = parser.parse_args()
    end_seconds = time.monotonic() + 60 * arguments.minutes
    rows = list(csv.reader(arguments.record.open())) if arguments.record.exists() else []
    done = {(case, int(block)) for case, block, *_ in rows}
    towns: dict[tuple[int, int, int], Town] = {}
    for block in range(max(repetitions for _, repetitions, _ in CASES.values()) // BLOCK):
        for case in arguments.cases:
            if (case, block) in done or block >= CASES[case][1] // BLOCK or time.monotonic() > end_seconds:
                continue
            row = run_block(case, block, towns)
            with arguments.record.open("a") as stream:
                csv.writer(stream).writerow(row)
            rows.append([str(cell) for cell in row])
    print_table(rows)


if __name__ == "__main__":
    main()
