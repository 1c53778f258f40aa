"""Hamming distance: records are words of one length, known by their ids alone."""

from typing import ClassVar

import numpy as np
from attrs import frozen

from privopt.errors import Fault, InputError
from privopt_metric_dp.problem.declared import DistanceKind
from privopt_metric_dp.space.metrics import Metric


class HammingMetric(Metric):
    """The number of letters in which two words differ."""

    def __init__(self, records, outputs):
        self.letters = np.array([list(word) for word in records])
        self.to = self.letters if outputs is None else np.array([list(word) for word in outputs])
        super().__init__(len(self.letters), len(self.to), own_outputs=outputs is None)

    def between(self, i, j):
        """Return the distances between words i and j, which are whole numbers, so that nothing is rounded."""
        return (self.letters[np.asarray(i)] != self.letters[np.asarray(j)]).sum(axis=-1).astype(float)

    def to_outputs(self, i=None):
        """Return the (B, K) distances from words i, by default all, to the outputs."""
        rows = self.letters if i is None else self.letters[np.asarray(i)]
        return (rows[:, None, :] != self.to[None, :, :]).sum(axis=-1).astype(float)


@frozen(kw_only=True)
class Hamming(DistanceKind):
    """`[distance] kind = "hamming"`."""

    kind: ClassVar[str] = "hamming"
    places: ClassVar[frozenset[str]] = frozenset({"points"})
    ids_alone: ClassVar[bool] = True
    kit: ClassVar[str] = "ranked_response.kit:WORDS"

    def metric(self, records, outputs):
        """Return the metric of the ids.

        Raises:
            InputError: Words have different lengths.
        """
        length = len(records.ids[0])
        for space in (records, outputs or records):
            for word in space.ids:
                if len(word) != length:
                    raise InputError([Fault(space.source, f"id {word!r}", f"{len(word)} letters", f"{length} letters")])
        return HammingMetric(records.ids, None if outputs is None else outputs.ids)

    def unit(self, records):
        """Return the unit of distances: epsilon is per letter."""
        return "letter"
