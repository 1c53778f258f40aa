"""Multipliers of privacy rows as solvers return them: one signed number for each pair and output."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError

__all__ = ["Few", "Multipliers"]

#: Those of one output that are not 0: (k, pairs (M,), multipliers (M,)).
Few = tuple[int, Ints, Floats]

_BLOCK_COLUMNS = 128


@frozen(kw_only=True, eq=False)
class Multipliers:
    """One number for each pair p = (i, j) and output k.

    Above 0 it belongs to the row ``z_ik <= exp(eps d) z_jk``; below 0 its size belongs to the row with i and j
    exchanged. Two rows never have one each: ``a`` and ``b`` of them, less ``t`` each, change the reduced costs of i and
    j by ``(exp(eps d) - 1) t``, upwards, so that the larger one alone with the difference proves no less.

    Attributes:
        rows: called without arguments, gives those that are not 0, outputs rising, each at most once, and no pair of
            an output twice; numbers that are not finite count as 0.
        many: pairs times outputs, both directions counted, where a solver gives a number for each; a file may omit the
            small ones of these. 0 where few are not 0, as of trees.
    """

    rows: Callable[[], Iterator[Few]]
    many: int = 0

    @classmethod
    def whole(cls, forward: Floats, backward: Floats) -> Multipliers:
        """Make multipliers from those of both rows of each pair (P, K); negative ones count as 0.

        Raises:
            UsageError: the shapes differ.
        """
        if forward.ndim != 2 or forward.shape != backward.shape:
            raise UsageError(f"multipliers must have one shape (P, K), got {forward.shape} and {backward.shape}")

        def rows() -> Iterator[Few]:
            for start in range(0, forward.shape[1], _BLOCK_COLUMNS):
                blocks = (part[:, start : start + _BLOCK_COLUMNS].T for part in (forward, backward))
                ahead, back = (np.where((part > 0.0) & (part < np.inf), part, 0.0) for part in blocks)
                for k, net in enumerate(ahead - back, start=start):
                    pairs = np.flatnonzero(net)
                    yield k, pairs, net[pairs]

        return cls(rows=rows, many=2 * forward.size)

    @classmethod
    def zero(cls) -> Multipliers:
        """Make multipliers that are all 0: they prove every record's cheapest output."""
        return cls(rows=lambda: iter(()))

    def mapped(self, change: Callable[[Ints, Floats], tuple[Ints, Floats]]) -> Multipliers:
        """Return other pairs and numbers in place of those of each output."""
        return evolve(self, rows=lambda: ((k, *change(pairs, values)) for k, pairs, values in self.rows()))

    def among(self, rows: Ints) -> Multipliers:
        """Return the same over more pairs, among which ``rows`` (in order) are these; the others get 0."""
        return self.mapped(lambda pairs, values: (rows[pairs], values))

    def freer(self, gain: Floats) -> Multipliers:
        """Return multipliers for rows that allow log-ratios greater by ``gain``, ``(P,)``: each times ``exp(-gain)``.

        Any multipliers prove something. Left as they are, a row's ``exp(eps d) f`` would grow by ``exp(eps d) gain f``,
        which ruins a bound from ``eps d`` of 5 on at gains of a billionth; so it stays, and ``f`` loses ``gain f``.
        """
        factors = np.exp(-gain)
        return self.mapped(lambda pairs, values: (pairs, values * factors[pairs]))

    def arrays(self, pairs: int, outputs: int) -> tuple[Floats, Floats]:
        """Return those of both rows of each pair, at full size (P, K)."""
        net = np.zeros((pairs, outputs))
        for k, places, values in self.rows():
            net[places, k] = values
        return np.maximum(net, 0.0), np.maximum(-net, 0.0)
