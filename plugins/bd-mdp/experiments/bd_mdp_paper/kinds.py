"""Which kinds of data there are sources for, and instances of each by number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import frozen

from bd_mdp_paper import sources
from bd_mdp_paper.data import read_road_graph, read_streets, read_vectors, train_vectors
from bd_mdp_paper.sources import Source
from privopt.errors import UsageError

__all__ = ["CODE", "PAPER", "Kinds"]

PAPER: Final = ("road", "grid", "text", "synthetic")
"""The four kinds of the paper, in its order."""

CODE: Final = "grid-1.5"
"""The grid as the authors' code has it: for Tables 1 and 2 alone."""

VOCABULARY: Final = 3
"""Words are drawn from so many times as many as an instance has."""


@cache
def _roads(file: Path) -> Any:
    return read_road_graph(file)


@cache
def _streets(file: Path) -> Any:
    return read_streets(file)


@cache
def _vectors(folder: Path, words: int) -> Any:
    texts = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.txt"))]
    return train_vectors(texts, words, 300)[1]


@frozen(kw_only=True)
class Kinds:
    """Files that the kinds are read from, each None where it is not there.

    Attributes:
        roads: ``rome99.gr`` or another road graph of the DIMACS Challenge: kind ``road``.
        streets: an OpenStreetMap extract: kind ``helsinki``.
        places: the authors' ``rome500.csv``: kind ``rome500``.
        texts: folder of texts that word vectors are trained on: kind ``text``.
        vectors: word vectors instead of them.
    """

    roads: Path | None = None
    streets: Path | None = None
    places: Path | None = None
    texts: Path | None = None
    vectors: Path | None = None

    @classmethod
    def found(cls, data: Path | None, texts: Path | None, vectors: Path | None = None) -> Kinds:
        """Return the kinds that a folder of public data sets has."""

        def existing_path(*parts: str) -> Path | None:
            path = None if data is None else data.joinpath(*parts)
            return path if path is not None and path.exists() else None

        return cls(
            roads=existing_path("rome99", "rome99.gr"),
            streets=existing_path("osm_small", "Helsinki.osm.pbf"),
            places=existing_path("bdmdp_rome", "rome500.csv"),
            texts=texts,
            vectors=vectors,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Kinds that can be made, those of the paper first."""
        sources_by_kind: Mapping[str, object] = {
            "road": self.roads,
            "grid": True,
            "text": self.texts or self.vectors,
            "synthetic": True,
            "rome500": self.places,
            "helsinki": self.streets,
        }
        return tuple(name for name, source in sources_by_kind.items() if source)

    def make(self, name: str, records: int, seed: int = 0) -> Source:
        """Return records of a kind.

        Instances of one size differ by centre (road, helsinki), by the words drawn (text), by the points (synthetic),
        and for the grid, which is always the same, by what :meth:`Source.instance` draws.

        Raises:
            UsageError: no source for the kind.
        """
        if name == "grid":
            rows = next(r for r in range(int(np.sqrt(records)), 0, -1) if records % r == 0)
            return sources.grid(rows, records // rows)
        if name == CODE:
            rows = next(r for r in range(int(np.sqrt(records)), 0, -1) if records % r == 0)
            return sources.grid(rows, records // rows, 1.5)
        if name == "synthetic":
            return sources.gaussian(records, seed)
        if name == "road" and self.roads is not None:
            return sources.roads(_roads(self.roads), records, seed)
        if name == "helsinki" and self.streets is not None:
            return sources.roads(_streets(self.streets), records, seed, None, crossings=True, name="helsinki")
        if name == "rome500" and self.places is not None:
            return sources.nodes(self.places, records)
        if name == "text" and self.vectors is not None:
            return sources.words(read_vectors(self.vectors)[1], records, seed)
        if name == "text" and self.texts is not None:
            return sources.words(_vectors(self.texts, VOCABULARY * records), records, seed)
        raise UsageError(f"kind {name!r} has no source; there are {', '.join(self.names)}")
