"""Metric mechanisms that claim any two points of a region, with one fault each."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import evolve

from faults.matrix import Blind, RightMatrix, Unchecked
from privopt_metric_dp.kit.reference import optimum
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.matrix.repair import repair
from privopt_metric_dp.region.mesh import twice_areas
from privopt_metric_dp.region.region import Plane


class NearestRecord(RightMatrix):
    """Claims any two points, and lets positions take the nearest record."""

    def load(self, declared: Any, file: str) -> Any:
        instance = super().load(declared, file)
        data = instance.data
        return evolve(instance, data=evolve(data, metric=data.distance, ground=None, region=None))

    def privacy(self, problem: Any, method: str) -> Any:
        own = super().privacy(problem, method)
        return evolve(own, scope="everywhere") if problem.declared.privacy.everywhere else own


class RecordsAlone(Unchecked):
    """Claims any two points of rows that hold between the vertices alone."""

    def privacy(self, problem: Any, method: str) -> Any:
        return Blind.of(problem.data)

    def spoil(self, release: MatrixRelease, data: Any) -> MatrixRelease:
        if data.region is None:
            return release
        lengths = data.distance.between(data.pairs[:, 0], data.pairs[:, 1])
        z = optimum(data.weighted, data.pairs, lengths, float(data.epsilon))
        if z is None:
            return release
        return evolve(release, weights=repair(z, data.pairs, lengths, data.epsilon, loss=data.weighted).weights)


class TrianglesOverlap(RightMatrix):
    """Claims any two points of a plane where some have two rows: squares are halved both ways at once."""

    def found(self, data: Any) -> Any:
        z = super().found(data)
        return (z + z.mean(axis=0)) / 2  # so that every triangle alone keeps epsilon

    def load(self, declared: Any, file: str) -> Any:
        instance = super().load(declared, file)
        region = instance.data.region
        if not isinstance(region, Plane):
            return instance
        more = list[list[int]]()
        for a, b, c in np.concatenate([np.roll(region.simplices, turn, axis=1) for turn in range(3)]).tolist():
            beside = region.simplices[np.isin(region.simplices, [b, c]).sum(axis=1) == 2]
            for d in np.setdiff1d(beside, [a, b, c]).tolist():
                twice = twice_areas(region.vertices[[[a, b, d]]])[0]
                more += [[a, b, d] if twice > 0 else [a, d, b]] if twice else []
        simplices = np.concatenate([region.simplices, np.array(more, dtype=np.int64).reshape(-1, 3)])
        return evolve(instance, data=evolve(instance.data, region=evolve(region, simplices=simplices)))
