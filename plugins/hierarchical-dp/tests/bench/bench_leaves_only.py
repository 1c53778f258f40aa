"""Errors of the default method beside the simplest way of all, level by level: ``python bench_leaves_only.py [SEEDS]``.

The simplest way is the whole budget on the counts of the leaf regions, added up to the levels above, and nothing else
done; its errors are those of the discrete law. The default's are means over seeds of noise.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np

HERE: Final = Path(__file__).parents[2]
sys.path.insert(0, str(HERE / "experiments"))

from hierarchical_dp_paper.generate import census  # noqa: E402 (the experiments stand beside the tests)
from privopt.declare import File  # noqa: E402
from privopt_hierarchical_dp.groups import read_counts  # noqa: E402
from privopt_hierarchical_dp.methods import METHODS  # noqa: E402
from privopt_hierarchical_dp.plan import errors_on  # noqa: E402
from privopt_hierarchical_dp.problem import HierarchyProblem, HierarchyTable, Privacy, Settings  # noqa: E402
from privopt_hierarchical_dp.sizes import SizesDesign  # noqa: E402

SIZES: Final = 60
BUDGETS: Final = (
    *(Privacy(epsilon=Fraction(own)) for own in ("1/10", "1", "10")),
    *(Privacy(kind="zcdp", rho=Fraction(own)) for own in ("1/200", "1/2", "50")),
)


def main(seeds: int) -> None:
    """Print the ratio of errors by level: at most 1.02 is wanted of a default."""
    flights = read_counts(File.read(HERE / "tests" / "data" / "flights.parquet"), SIZES)
    people = census(sizes=SIZES, groups=3_000_000, individuals=None)
    method = next(iter(METHODS))
    for name, tree, leaves in (("flights", flights.tree, flights.leaves), ("census", people.tree, people.leaves)):
        for privacy in BUDGETS:
            problem = HierarchyProblem(hierarchy=HierarchyTable(sizes=SIZES), privacy=privacy, settings=Settings())
            design = SizesDesign.of(problem, method, tree)
            ratio = errors_on([leaves] * seeds, design) / design.leaves_only()
            doubt = ratio.std(axis=0) / np.sqrt(seeds)
            levels = " ".join(f"{own:.3f} ({d:.3f})" for own, d in zip(ratio.mean(axis=0), doubt, strict=True))
            print(f"{name} {privacy.kind} {privacy.budget}: {levels}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
