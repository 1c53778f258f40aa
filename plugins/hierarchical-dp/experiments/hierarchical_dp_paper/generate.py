"""Synthetic data in the shape of the paper's section 11: a census and a year of taxi pick-ups.

The counts are made up; only the shape is real where a file of counties or zones is given: how
people spread over counties, which zones lie in which borough. Made with NumPy's generator: test
data, not privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt_hierarchical_dp.tree import Tree, add_up

__all__ = ["Census", "census", "taxi"]

CENSUS_GROUPS = 117_630_445
CENSUS_PEOPLE = 305_276_358
TAXI_PICKUPS = 24_489_743
TAXI_SIZES = 13_282
# households of 1, 2, ..., 6 persons per 1000, then a tail in which each size has TAIL_RATIO of the one before
_HOUSEHOLDS = (267.0, 328.0, 161.0, 134.0, 65.0, 26.0)
_TAIL_RATIO = 0.42


@frozen(kw_only=True, eq=False)
class Census:
    """A hierarchy with its true counts.

    Attributes:
        tree: regions.
        leaves: (R_L, N) number of groups of each size (from 1) in each leaf region.
    """

    tree: Tree
    leaves: Ints = field()

    @property
    def groups(self) -> int:
        """G, the number of groups."""
        return int(self.leaves.sum())

    @property
    def individuals(self) -> int:
        """Number of individuals: sizes times groups."""
        return int((self.leaves.sum(axis=0) * np.arange(1, self.leaves.shape[1] + 1)).sum())

    @property
    def levels(self) -> list[Ints]:
        """Counts of every level."""
        return add_up(self.tree, self.leaves)


def _county_shape(
    counties: Path | None, rng: np.random.Generator
) -> tuple[list[tuple[str, str, str]], NDArray[np.float64]]:
    """(path, population) of 3144 counties in 52 states: from the file, with Puerto Rico put beside it."""
    rows: list[tuple[str, str, float]] = []
    if counties is not None:
        import polars as pl

        table = pl.read_csv(counties).filter(pl.col("SUMLEV") == 50)
        states, names, people = (table[column].to_list() for column in ("STNAME", "CTYNAME", "CENSUS2010POP"))
        rows = [
            (state, f"{name}, {state}", _number(value))
            for state, name, value in zip(states, names, people, strict=True)
        ]
        rows += [("Puerto Rico", f"Puerto Rico {part}", 3_725_789 / 2) for part in ("North", "South")]
    else:
        of_state = np.maximum(1, np.round(rng.lognormal(3.9, 0.75, size=52))).astype(int)
        while of_state.sum() != 3144:
            pick = int(rng.integers(52))
            of_state[pick] = max(1, of_state[pick] + (1 if of_state.sum() < 3144 else -1))
        people_of = rng.lognormal(10.2, 1.45, size=3144)
        index = 0
        for state, number in enumerate(of_state, start=1):
            for county in range(1, number + 1):
                rows.append((f"S{state:02d}", f"S{state:02d}-C{county:03d}", float(people_of[index])))
                index += 1
    paths = [("US", state, name) for state, name, _ in rows]
    return paths, np.array([people for _, _, people in rows])


def _number(value: object) -> float:
    try:
        return max(100.0, float(str(value)))
    except ValueError:  # the file has one county without a count of 2010
        return 100.0


def census(
    *,
    seed: int = 2010,
    sizes: int = 1000,
    groups: int = CENSUS_GROUPS,
    individuals: int | None = CENSUS_PEOPLE,
    counties: Path | None = None,
    heterogeneity: float = 0.15,
) -> Census:
    """Return a census like section 11's: 52 states, 3144 counties, household sizes with a heavy tail, 50 outliers.

    Args:
        seed: of the generator.
        sizes: N.
        groups: number of households, exactly.
        individuals: number of persons, exactly (households in large counties grow or shrink by one
            until it holds); None: as it falls.
        counties: co_est2019.csv for the real spread of people over counties; default: log-normal.
        heterogeneity: standard deviation of a county's log odds of each size around the nation's;
            0: every county has the nation's shares.
    """
    rng = np.random.default_rng(seed)
    paths, people = _county_shape(counties, rng)
    size_shares = np.zeros(sizes)
    head = min(len(_HOUSEHOLDS), sizes)
    size_shares[:head] = _HOUSEHOLDS[:head]
    if sizes > head:
        size_shares[head:] = size_shares[head - 1] * _TAIL_RATIO ** np.arange(1, sizes - head + 1)
    weight = np.asarray(people)
    in_county = rng.multinomial(groups - min(50, groups), weight / weight.sum())
    leaves = np.zeros((len(weight), sizes), np.int64)
    for county, number in enumerate(in_county):
        local = size_shares * np.exp(rng.normal(0.0, heterogeneity, size=sizes)) if heterogeneity else size_shares
        leaves[county] = rng.multinomial(number, local / local.sum())
    outliers = min(50, groups)
    np.add.at(
        leaves, (rng.integers(len(weight), size=outliers), rng.integers(min(10, sizes) - 1, sizes, size=outliers)), 1
    )
    if individuals is not None:
        _settle(leaves, individuals, rng)
    return _census(paths, leaves)


def _census(paths: Sequence[tuple[str, ...]], leaves: Ints) -> Census:
    """Return the hierarchy of the paths, and the leaves, one a path, in the tree's order."""
    tree = Tree.from_paths(paths)
    row = {path[-1]: index for index, path in enumerate(paths)}
    return Census(tree=tree, leaves=leaves[[row[name] for name in tree.names[-1]]])


def _settle(leaves: Ints, individuals: int, rng: np.random.Generator) -> None:
    """Move groups between sizes 2 and 3 (1 and 2 when spent) until the number of individuals is exact."""
    size = np.arange(1, leaves.shape[1] + 1)
    for lower in (1, 0, 2, 3):
        short = individuals - int((leaves.sum(axis=0) * size).sum())
        if short == 0 or lower + 1 >= leaves.shape[1]:
            continue
        source, target = (lower, lower + 1) if short > 0 else (lower + 1, lower)
        stock = leaves[:, source]
        moved_count = min(abs(short), int(stock.sum()) // 2)
        shift = np.minimum(rng.multinomial(moved_count, stock / stock.sum()), stock)
        remaining = moved_count - int(shift.sum())
        spare = stock - shift
        while remaining:
            county = int(spare.argmax())
            part = min(remaining, int(spare[county]))
            shift[county] += part
            spare[county] -= part
            remaining -= part
        leaves[:, source] -= shift
        leaves[:, target] += shift


def taxi(
    *,
    seed: int = 2014,
    sizes: int = TAXI_SIZES,
    pickups: int = TAXI_PICKUPS,
    taxis: int = TAXI_SIZES,
    zones: Path | None = None,
) -> Census:
    """Pick-ups of New York's taxis: city, 6 boroughs, 263 zones; a group is a (taxi, zone) pair.

    A zone's popularity is heavy-tailed and a taxi's activity uneven; a pair's pick-ups are Poisson
    around their product, one taxi is made to reach N in one zone. Pairs without pick-ups are no groups.

    Args:
        seed: of the generator.
        sizes: N, the cap of a group's size.
        pickups: number of pick-ups, exactly where no group is capped.
        taxis: number of taxis.
        zones: taxi_zone_lookup.csv for the real zones; default: as many zones under six boroughs.
    """
    rng = np.random.default_rng(seed)
    rows = _zones(zones)
    boroughs = list(dict.fromkeys(borough for borough, _ in rows))
    rows.sort(key=lambda row: boroughs.index(row[0]))  # draws are made borough by borough
    busy = np.array([6.0 if borough == "Manhattan" else 1.0 for borough, _ in rows])
    popularity = busy * rng.lognormal(0.0, 2.0, size=len(rows))
    per_zone = rng.multinomial(max(0, pickups - sizes), popularity / popularity.sum())
    activity = rng.lognormal(0.0, 0.7, size=taxis)
    activity /= activity.sum()
    leaves = np.zeros((len(rows), sizes), np.int64)
    for zone, number in enumerate(per_zone):
        trips = rng.multinomial(number, activity)
        trips = np.minimum(trips[trips > 0], sizes)
        leaves[zone] += np.bincount(trips, minlength=sizes + 1)[1:]
    leaves[int(popularity.argmax()), sizes - 1] += 1
    return _census([("New York City", borough, zone) for borough, zone in rows], leaves)


def _zones(path: Path | None) -> list[tuple[str, str]]:
    if path is None:
        boroughs = ("Manhattan", "Brooklyn", "Queens", "Bronx", "Staten Island")
        return [("EWR", "Zone 1"), *((boroughs[index % 5], f"Zone {index}") for index in range(2, 264))]
    import polars as pl

    table = pl.read_csv(path).filter(pl.col("LocationID") <= 263)
    return [
        (str(borough), f"{number} {zone}")
        for number, borough, zone in table.select("LocationID", "Borough", "Zone").iter_rows()
    ]
