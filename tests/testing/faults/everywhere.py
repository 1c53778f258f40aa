"""Metric mechanisms that claim any two points of a region, with one fault each."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from faults.matrix import Blind, RightMatrix, Unchecked
from privopt_metric_dp.kit.reference import optimum
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.matrix.repair import repair


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
