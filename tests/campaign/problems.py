"""One small valid problem for each mechanism: what the campaign spoils."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import evolve, field, frozen

from privopt.testing import csv_bytes, to_toml

__all__ = ["PROBLEMS", "Given", "npy"]


@frozen(kw_only=True)
class Given:
    """A problem as its user would hand it in.

    Attributes:
        mechanism, method: what solves it.
        tables: of the problem file, or None where ``raw`` is its bytes.
        files: contents by name.
        raw: bytes of the problem file, in place of ``tables``.
    """

    mechanism: str
    method: str
    tables: Mapping[str, Any]
    files: Mapping[str, bytes] = field(factory=dict)
    raw: bytes | None = None

    @property
    def text(self) -> bytes:
        """Bytes of the problem file."""
        return to_toml(self.tables).encode() if self.raw is None else self.raw

    def write(self, folder: Path) -> Path:
        """Write everything into a folder; the path of the problem file."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, contents in self.files.items():
            (folder / name).write_bytes(contents)
        (folder / "problem.toml").write_bytes(self.text)
        return folder / "problem.toml"

    def with_file(self, name: str, contents: bytes) -> Given:
        """Return the same with one file's contents replaced."""
        return evolve(self, files={**self.files, name: contents})

    def without_file(self, name: str) -> Given:
        """Return the same with one file missing."""
        return evolve(self, files={file_name: value for file_name, value in self.files.items() if file_name != name})


def npy(array: Any, **options: Any) -> bytes:
    """Return an ``.npy`` file."""
    stream = io.BytesIO()
    np.save(stream, np.asarray(array), **options)
    return stream.getvalue()


POINTS = csv_bytes(["id", "x", "y"], [[f"p{n}", 0.4 * n, 0.3 * (n % 2)] for n in range(5)])
GLOBE = csv_bytes(["id", "lat", "lon"], [[f"p{n}", 41.0 + 0.004 * n, 12.0 + 0.003 * (n % 2)] for n in range(5)])
ROADS = csv_bytes(["from", "to", "km"], [[f"p{n}", f"p{n + 1}", 0.6 + 0.1 * n] for n in range(4)] + [["p0", "p4", 1.9]])
PRIOR = csv_bytes(["id", "p"], [[f"p{n}", p] for n, p in enumerate([0.1, 0.2, 0.3, 0.3, 0.1])])
TARGETS = csv_bytes(["id", "weight"], [["p0", 1.0], ["p3", 2.0]])
LINE = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
LOCATIONS = csv_bytes(
    ["id", "x", "y", "facility_cost", "clients"],
    [["a", 0.0, 0.0, 0.2, 40], ["b", 0.1, 0.0, 0.3, 35], ["c", 0.1, 0.1, 0.2, 50], ["d", 1.0, 1.0, 0.1, 60]],
)
BOUNDED = csv_bytes(
    ["id", "facility_cost", "opening_cost", "capacity", "clients"],
    [["a", 0.2, 3, 150, 40], ["b", 0.3, 5, 200, 35], ["c", 0.1, 0, 250, 25], ["d", 0.1, 4, "", 60]],
)
COUNTS = csv_bytes(
    ["level_1", "level_2", "size", "groups"],
    [["US", state, size, 20 + 3 * size] for state in ("GA", "NY") for size in (1, 2, 3)],
)
TOTALS = csv_bytes(["region", "total"], [["US", 156], ["GA", 78], ["NY", 78]])
UNITS = csv_bytes(
    ["level_1", "level_2", "unit", "quantity"],
    [["US", state, f"{state}-{unit}", 1] for state in ("GA", "NY") for unit in range(3) for _ in range(unit + 1)],
)
REGIONS = csv_bytes(["level_1", "level_2"], [["US", "GA"], ["US", "NY"]])
PEOPLE = csv_bytes(
    ["level_1", "level_2", "age", "tenure"],
    [
        ["US", state, age, tenure]
        for state in ("GA", "NY")
        for age in ("child", "adult")
        for tenure in ("owned", "rented")
    ],
)
BOUNDS = csv_bytes(["region", "at_least", "at_most"], [["GA", "", 2]])
SCORES = np.log(np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4], [0.5, 0.3, 0.2]]))


def _metric(mechanism: str, method: str, files: Mapping[str, bytes], **tables: Any) -> Given:
    common_tables = {
        "records": {"points": "points.csv"},
        "distance": {"kind": "euclidean"},
        "privacy": {"epsilon": 1.5},
        "utility": {"kind": "distance"},
    }
    return Given(
        mechanism=mechanism, method=method, tables={**common_tables, **tables}, files={"points.csv": POINTS, **files}
    )


PROBLEMS: Final = [
    _metric(
        "exponential",
        "exponential",
        {"roads.csv": ROADS, "prior.csv": PRIOR, "targets.csv": TARGETS},
        distance={"kind": "graph", "edges": "roads.csv"},
        privacy={"epsilon": 1.5, "neighbours_within": 1.0},
        utility={"kind": "travel-cost", "prior": "prior.csv", "targets": "targets.csv"},
    ),
    _metric("planar-laplace", "voronoi", {"points.csv": GLOBE}, distance={"kind": "haversine"}),
    Given(
        mechanism="optimal-lp",
        method="auto",
        tables={
            "records": {"vectors": "v.npy", "ids": "ids.txt"},
            "outputs": {"count": 3},
            "distance": {"kind": "matrix", "matrix": "d.npy", "output_matrix": "o.npy"},
            "privacy": {"epsilon": 1.0},
            "utility": {"kind": "matrix", "cost": "c.npy"},
        },
        files={
            "v.npy": npy(np.eye(4)),
            "ids.txt": b"w\nx\ny\nz\n",
            "d.npy": npy(LINE),
            "o.npy": npy(LINE[:, :3]),
            "c.npy": npy(LINE[:, :3] ** 2),
        },
    ),
    _metric("optimal-lp", "full", {}, records={"grid": {"rows": 2, "cols": 2, "cell_km": 0.5}}),
    _metric("given", "repair", {"m.npy": npy(np.full((5, 5), 0.2))}, given={"matrix": "m.npy"}),
    _metric("predictive", "auto", {}, predictive={"good_within": 1.0, "total": 20.0}),
    _metric(
        "predictive",
        "auto",
        {},
        privacy={"epsilon": 1.5, "everywhere": True, "split_km": 0.5},
        predictive={"threshold_epsilon": 1.0, "test_epsilon": 0.8},
    ),
    _metric(
        "predictive",
        "auto",
        {"points.csv": GLOBE, "roads.csv": ROADS},
        distance={"kind": "graph", "edges": "roads.csv"},
        privacy={"epsilon": 1.0, "everywhere": True},
        predictive={"good_within": 0.4},
    ),
    _metric("const-opt", "full", {"prior.csv": PRIOR}, **{"const-opt": {"radius": 0.6}}),
    _metric("bd-mdp", "benders", {}, **{"bd-mdp": {"partition": "records", "subsets": 2}}),
    _metric(
        "lr-geo",
        "exact",
        {},
        privacy={"epsilon": 1.5, "neighbours_within": 0.7},
        **{
            "lr-geo": {
                "users": ["p0", "p3"],
                "radius": 1.0,
                "obfuscation_radius": 1.2,
                "exponential_beyond": 0.6,
                "exponent": 1.0,
            }
        },
    ),
    Given(
        mechanism="fl-linear",
        method="reconnection",
        tables={
            "locations": {"points": "locations.csv"},
            "privacy": {"epsilon": 0.5, "failure_probability": 0.1},
            "fl-linear": {"delta": 0.2, "margin": "exact", "mean_clients": 50},
        },
        files={"locations.csv": LOCATIONS},
    ),
    Given(
        mechanism="fl-linear",
        method="laplace",
        tables={
            "locations": {"points": "locations.csv", "matrix": "d.npy"},
            "privacy": {"epsilon": 0.5, "failure_probability": 0.1},
            "fl-linear": {"most_facilities": 2},
        },
        files={"locations.csv": BOUNDED, "d.npy": npy(LINE)},
    ),
    Given(
        mechanism="hierarchical-dp",
        method="cumulative-dp",
        tables={
            "hierarchy": {"counts": "counts.csv", "totals": "totals.csv", "sizes": 3},
            "privacy": {"epsilon": 0.5},
            "hierarchical-dp": {"budget": [0.4, 0.6], "level_weights": [1, 1], "max_quantity": 1},
        },
        files={"counts.csv": COUNTS, "totals.csv": TOTALS},
    ),
    Given(
        mechanism="hierarchical-dp",
        method="top-down",
        tables={"hierarchy": {"units": "units.csv", "sizes": 3}, "privacy": {"epsilon": 0.5}},
        files={"units.csv": UNITS},
    ),
    Given(
        mechanism="hierarchical-dp",
        method="cumulative-chain",
        tables={"hierarchy": {"counts": "counts.csv", "sizes": 3}, "privacy": {"kind": "zcdp", "rho": 0.1}},
        files={"counts.csv": COUNTS},
    ),
    Given(
        mechanism="hierarchical-dp",
        method="hierarchical-dp",
        tables={
            "hierarchy": {
                "counts": "c.csv",
                "regions": "r.csv",
                "sizes": 4,
                "bounds": "b.csv",
                "first_size": 1,
            },
            "privacy": {"epsilon": 0.5, "relation": "individuals"},
        },
        files={
            "c.csv": COUNTS,
            "r.csv": csv_bytes(["level_1", "level_2"], [["US", "GA"], ["US", "NY"], ["US", "OR"]]),
            "b.csv": csv_bytes(["region", "at_least", "at_most"], [["GA", 70, 90], ["NY", "", 100], ["OR", "", 5]]),
        },
    ),
    Given(
        mechanism="hierarchical-tables",
        method="margins",
        tables={
            "hierarchy": {
                "regions": "regions.csv",
                "records": "people.csv",
                "attributes": {"age": ["child", "adult"], "tenure": ["owned", "rented"]},
                "tables": {
                    "age": {"by": ["age"], "share": 2},
                    "both": {"by": ["age", "tenure"]},
                },
                "bounds": "bounds.csv",
                "budget": [0.4, 0.6],
            },
            "privacy": {"epsilon": 0.5, "relation": "moves"},
        },
        files={"regions.csv": REGIONS, "people.csv": PEOPLE, "bounds.csv": BOUNDS},
    ),
    Given(
        mechanism="hierarchical-tables",
        method="margins",
        tables={
            "hierarchy": {
                "regions": "regions.csv",
                "records": "people.csv",
                "attributes": {"age": ["child", "adult"], "tenure": ["owned", "rented"]},
                "tables": {"age": {"by": ["age"]}},
            },
            "privacy": {"kind": "zcdp", "rho": 0.1, "relation": "attributes"},
        },
        files={"regions.csv": REGIONS, "people.csv": PEOPLE},
    ),
    Given(
        mechanism="photo-censor",
        method="optimal",
        tables={
            "photos": {"scores": "scores.npy", "true_location": 0, "keep": [1], "keep_at_least": 1},
            "privacy": {"top_k": 1, "margin": 0.0},
        },
        files={"scores.npy": npy(SCORES)},
    ),
    Given(
        mechanism="photo-censor",
        method="greedy",
        tables={
            "photos": {"probabilities": "p.csv", "true_location": 0},
            "privacy": {"deletion_budget": 1},
        },
        files={"p.csv": csv_bytes(["photo", "rome", "paris", "oslo"], [["a", 0.7, 0.2, 0.1], ["b", 0.5, 0.3, 0.2]])},
    ),
    *(
        Given(
            mechanism=name,
            method="closed-form",
            tables={"answers": ["walk", "cycle", "bus"], "privacy": {"epsilon": 1.0}},
            files={},
        )
        for name in ("randomised-response", "unary-encoding", "hadamard-response", "subset-selection")
    ),
    Given(
        mechanism="piecewise",
        method="closed-form",
        tables={"steps": 4, "privacy": {"epsilon": 1.0}},
        files={},
    ),
    Given(
        mechanism="spherical-laplace",
        method="exact",
        tables={"privacy": {"epsilon": 1.4}, "outputs": {"digits": 2}},
        files={},
    ),
    Given(
        mechanism="geometric",
        method="closed-form",
        tables={"largest": 5, "privacy": {"epsilon": 0.5}},
        files={},
    ),
    Given(
        mechanism="staircase",
        method="closed-form",
        tables={"largest": 9, "sensitivity": 3, "privacy": {"epsilon": 1.0}},
        files={},
    ),
    *(
        Given(
            mechanism=name,
            method="closed-form",
            tables={
                "choices": ["tea", "water"],
                "scores": "votes.csv",
                "monotone": True,
                "privacy": {"epsilon": 1.0},
            },
            files={"votes.csv": csv_bytes(["choice", "score"], [["tea", 12], ["water", 15]])},
        )
        for name in ("permute-and-flip", "noisy-max")
    ),
]
