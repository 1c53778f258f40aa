"""Multipliers of privacy rows in the form that solvers return: one signed number for each pair and output."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError

__all__ = ["Few", "Multipliers"]

#: The nonzero multipliers of one output: (k, pairs (M,), multipliers (M,)).
Few = tuple[int, Ints, Floats]

_BLOCK_COLUMNS = 128


@frozen(kw_only=True, eq=False)
class Multipliers:
    """One number for each pair p = (i, j) and output k.

    A positive number belongs to the row ``z_ik <= exp(eps d) z_jk``; the absolute value of a negative one belongs to
    the row with i and j exchanged. The two rows of a pair never need one each: reducing both by ``t`` raises the
    reduced costs of i and j by ``(exp(eps d) - 1) t``, so the larger one, reduced by the smaller, proves no less.

    Attributes:
        rows: Returns an iterator over the nonzero multipliers, in rising order of outputs, each output at most once,
            and each pair of an output at most once. Numbers that are not finite count as 0.
        many: Number of pairs times outputs, in both directions, if a solver gives a number for each; a file may omit
            the small ones. 0 if few are nonzero, as for trees.
    """

    rows: Callable[[], Iterator[Few]]
    many: int = 0

    @classmethod
    def whole(cls, forward: Floats, backward: Floats) -> Multipliers:
        """Combine the multipliers (P, K) of both rows of each pair; negative ones count as 0.

        Raises:
            UsageError: The shapes differ.
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
        """Return multipliers that are all 0. They prove the bound with every record at its cheapest output."""
        return cls(rows=lambda: iter(()))

    def mapped(self, change: Callable[[Ints, Floats], tuple[Ints, Floats]]) -> Multipliers:
        """Return multipliers with the pairs and values of each output replaced by ``change``."""
        return evolve(self, rows=lambda: ((k, *change(pairs, values)) for k, pairs, values in self.rows()))

    def among(self, rows: Ints) -> Multipliers:
        """Return the multipliers over a larger set of pairs, in which these have the numbers ``rows``."""
        return self.mapped(lambda pairs, values: (rows[pairs], values))

    def freer(self, gain: Floats) -> Multipliers:
        """Return multipliers for rows whose allowed log-ratios are larger by ``gain`` ``(P,)``: times ``exp(-gain)``.

        Any multipliers prove a bound. Unchanged ones would raise a row's ``exp(eps d) f`` by ``exp(eps d) gain f``,
        which ruins the bound from ``eps d`` of 5 on even at a gain of 1e-9. Scaled ones keep it and lose ``gain f``.
        """
        factors = np.exp(-gain)
        return self.mapped(lambda pairs, values: (pairs, values * factors[pairs]))

    def arrays(self, pairs: int, outputs: int) -> tuple[Floats, Floats]:
        """Return the multipliers of both rows of each pair as dense arrays (P, K)."""
        net = np.zeros((pairs, outputs))
        for k, places, values in self.rows():
            net[places, k] = values
        return np.maximum(net, 0.0), np.maximum(-net, 0.0)
