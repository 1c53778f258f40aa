"""Intervals of districts: seconds, widths beside the Cramer-Rao bound, whether all hold.

``python tests/bench/bench_intervals.py [RECORDS [GROUPS [REPORTS]]]`` prints two rows for each epsilon; 2,032 places of
a square, 64 districts and 200,000 reports where left out. The bound is that of unbiased estimators, at the truth, with
the same simultaneous confidence (Bonferroni); districts with a share above .01 count.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import norm

from privopt.estimate.linear_intervals import linear_intervals

CONFIDENCE = 0.95
DEFAULTS = ["2032", "64", "200000"]


def case(records: int, groups: int, epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the exponential mechanism over places of a square, its districts, and where people are."""
    rng = np.random.default_rng(0)
    grid_side = round(groups**0.5)
    places = rng.uniform(0, grid_side, (records, 2))
    z = np.exp(-epsilon / 2 * np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)))
    z /= z.sum(axis=1, keepdims=True)
    cell = np.minimum(places.astype(int), grid_side - 1) @ [grid_side, 1]
    members = (cell[None] == np.arange(groups)[:, None]).astype(float)
    truth = rng.gamma(0.5, size=records) * np.exp(-((places - 0.4 * grid_side) ** 2).sum(axis=1) / grid_side)
    return z, members, truth / truth.sum()


def main() -> None:
    """Print the table."""
    records, groups, reports = (int(text) for text in (sys.argv[1:] + DEFAULTS[len(sys.argv) - 1 :]))
    print(f"{records:,} records, {groups} groups, {reports:,} reports\n")
    print("| epsilon | intervals | seconds | median width | Cramer-Rao | all hold |")
    print("| --- | --- | --- | --- | --- | --- |")
    for epsilon in (2.0, 3.0, 6.0):
        z, members, truth = case(records, groups, epsilon)
        outputs = truth @ z
        counts = np.random.default_rng(1).multinomial(reports, outputs)
        group_shares = members @ truth
        is_large = group_shares > 0.01
        scaled = z / np.sqrt(outputs)
        min_variances = (
            np.einsum("gi,ig->g", members, np.linalg.lstsq(scaled @ scaled.T, members.T)[0]) - group_shares**2
        )
        bound = 2 * norm.isf((1 - CONFIDENCE) / (2 * groups)) * np.sqrt(np.maximum(min_variances, 0) / reports)
        for finite in (True, False):
            begun = time.perf_counter()
            intervals = linear_intervals([z], [counts], csr_array(members), CONFIDENCE, finite=finite)
            seconds = time.perf_counter() - begun
            assert intervals is not None
            low, high = intervals
            hold = bool(((low <= group_shares) & (group_shares <= high)).all())
            name = "finite-sample" if finite else "asymptotic"
            width, best = np.median((high - low)[is_large]), np.median(bound[is_large])
            print(f"| {epsilon:g} | {name} | {seconds:.1f} | {width:.4f} | {best:.4f} | {hold} |", flush=True)


if __name__ == "__main__":
    main()
