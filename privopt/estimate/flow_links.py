"""Initial weights for a fit of flows: the most likely mixture of several links between starts and ends.

If the channel is very noisy, expectation maximisation converges slowly, and its early rounds stay near the initial
weights. If starts and ends were independent in the initial weights, the estimated flows would be too uniform. Therefore
the initial weights are fitted to the reports, as the most likely mixture of a few links. A link is a distribution over
pairs of bumps (smooth distributions over records), one for the start of a trip and one for its end, and is stored as an
array of shape (M, M).

Let p be the shares of the bumps, a_ik the probability of output k given bump i, and m_k the overall probability of
output k. The kernel K_ij = sum_k a_ik p_j a_jk / m_k is the mean posterior probability of bump j, given a report from
bump i. Scaled by the square roots of p, it is a symmetric matrix without negative eigenvalues, so it also has
fractional powers. K^0 is the identity (each trip ends where it began), and K^1 links bumps that a report does not
distinguish. Higher powers link more distant bumps and converge to independence. No distances are needed.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from privopt.arrays import Floats
from privopt.estimate.likelihood import fit

POWERS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The powers of the kernel to use as links, in addition to the identity and independence."""

UNIFORM_PART: Final = 0.1
"""The weight of uniform shares and of the independent link in the initial weights, because a weight of 0 would remain
0."""

INDEPENDENT_PART: Final = 1e-3
"""The fraction of the independent link that is added to each power of the kernel, so that the power can be scaled."""

SCALINGS: Final = 20
"""The number of times that a link's rows and columns are scaled, which makes their sums accurate enough for initial
weights."""

MIXTURE_GAP: Final = 1e-7
"""The gap, per trip, at which maximisation of the mixture's log-likelihood stops."""

LIKELY: Final = 3.0
"""The amount by which a mixture's log-likelihood may be below the maximum for the mixture to count as plausible.

This is more than 1.92, which is half of the 0.95 quantile of chi squared with one degree of freedom, because two
extremes are tested.
"""

SAME: Final = 0.02
"""The total variation distance up to which two mixtures of links count as the same."""

BISECTIONS: Final = 30
"""The number of bisections in the search for each extreme mixture."""


def find_links(
    columns: Floats, counts: Floats, start_shares: Floats, end_shares: Floats, *, extremes: bool = False
) -> list[Floats]:
    """Return initial weights for fitting flows: the most likely mixture of several links between starts and ends.

    A link is a distribution over pairs of bumps, one for the start of a trip and one for its end.

    Args:
        columns: (M, L) The probability of each cell of outputs given each bump.
        counts: (L, L) The number of trips for each pair of reported cells, with start cells in rows.
        start_shares, end_shares: (M,) The bumps' shares for starts and for ends, which sum to 1.
        extremes: Whether to also return extreme mixtures. An extreme mixture is omitted if it nearly equals the most
            likely one.

    Returns:
        A list of arrays of shape (M, M). The first is the most likely mixture. If ``extremes`` is True, up to two
        extreme mixtures follow: one that is as near to the identity (each trip ends where it began) as the likelihood
        allows, and one that is as near to the independence of starts and ends as the likelihood allows.
    """
    uniform = UNIFORM_PART / len(columns)
    starts, ends = ((1.0 - UNIFORM_PART) * shares + uniform for shares in (start_shares, end_shares))
    links = _make_links(columns, starts, ends)
    is_counted = counts > 0
    probabilities = np.array([(columns.T @ link @ columns)[is_counted] for link in links])
    trips = counts[is_counted]
    best = fit(probabilities, trips / trips.sum(), gap=MIXTURE_GAP).shares
    mixtures = [best]
    if extremes:
        # The first link is the identity, and the last one is independence.
        for number in (0, len(links) - 1):
            extreme = _move_towards(np.eye(len(links))[number], best, probabilities, trips)
            if np.abs(extreme - best).sum() / 2 > SAME:
                mixtures.append(extreme)
    independent = UNIFORM_PART * links[-1]
    return [(1.0 - UNIFORM_PART) * np.tensordot(mixture, links, axes=1) + independent for mixture in mixtures]


def _make_links(columns: Floats, starts: Floats, ends: Floats) -> Floats:
    """Return the links as an array of shape (7, M, M): the identity, the powers of the kernel, and independence.

    Each link is a distribution over pairs of bumps, one for the start of a trip and one for its end. The kernel is
    explained in the module's docstring.

    Args:
        columns: (M, L) The probability of each cell of outputs given each bump.
        starts, ends: (M,) The bumps' shares for starts and for ends, which are positive and sum to 1.
    """
    # Starts and ends share one kernel, so the links are symmetric before they are scaled.
    shares = (starts + ends) / 2
    roots, outputs = np.sqrt(shares), shares @ columns
    factor = roots[:, None] * columns / np.sqrt(np.where(outputs > 0, outputs, 1.0))
    vectors, singular_values, _ = np.linalg.svd(factor, full_matrices=False)
    independent = np.outer(starts, ends)
    links = [np.diag(shares)]
    for power in POWERS:
        # The kernel's eigenvalues are the squares of the singular values.
        kernel = (vectors * singular_values ** (2 * power)) @ vectors.T
        # A fractional power can have small negative entries.
        link = np.maximum(roots[:, None] * kernel * roots, 0.0)
        link = link / link.sum() + INDEPENDENT_PART * independent
        for _ in range(SCALINGS):
            link *= (starts / link.sum(axis=1))[:, None]
            link *= ends / link.sum(axis=0)
        links.append(link / link.sum())
    return np.array([*links, independent])


def _move_towards(extreme: Floats, best: Floats, probabilities: Floats, trips: Floats) -> Floats:
    """Return the plausible mixture nearest to ``extreme`` on the segment from ``extreme`` to ``best``.

    A mixture is plausible if its log-likelihood is at most :data:`LIKELY` below that of the best one.

    Args:
        extreme, best: (C,) The fractions of the links in the extreme and in the best mixture.
        probabilities: (C, K) The probability of each counted pair of cells given each link.
        trips: (K,) The number of trips with each of these pairs.
    """
    greatest = float(trips @ np.log(best @ probabilities))

    def is_likely(part: float) -> bool:
        """Return whether the mixture with weight ``part`` on ``extreme`` and the rest on ``best`` is plausible."""
        with np.errstate(divide="ignore"):  # some pairs may be impossible under the identity
            value = trips @ np.log(((1.0 - part) * best + part * extreme) @ probabilities)
        return bool(value >= greatest - LIKELY)

    if is_likely(1.0):
        return extreme
    # The log-likelihood is concave, so the plausible values of ``part`` form an interval that begins at 0.
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_likely(middle) else (low, middle)
    mixture: Floats = (1.0 - low) * best + low * extreme
    return mixture
