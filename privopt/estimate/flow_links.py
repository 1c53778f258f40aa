"""Weights with which the fit of flows begins: a mixture of ways to link ends to starts, from identity to independence.

Expectation maximisation moves slowly where the channel hides much, so its early rounds stay near the first weights. If
these were independent starts and ends, flows would come out too even. So the first weights are fitted to the reports:
they are the most likely mixture of a few links. A link is a distribution (M, M) of pairs of bumps (smooth distributions
over records): one for the start of a trip, and one for its end.

Let p be shares of the bumps, a_ik the probability of output k given bump i, and m_k that of output k. The kernel K_ij =
sum_k a_ik p_j a_jk / m_k is the mean posterior probability of bump j, given a report from bump i. Scaled by the roots
of p, it is a symmetric matrix without negative eigenvalues, so that it has powers. K^0 is the identity (each trip ends
where it began), K^1 links bumps that a report does not tell apart, and higher powers lead further away, in the end to
independence. No distances are needed.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from privopt.arrays import Floats
from privopt.estimate.likelihood import fit

POWERS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The powers of the kernel that serve as links, in addition to the identity and independence."""

UNIFORM_PART: Final = 0.1
"""Part of uniform shares, and of the independent link, in the first weights, because a weight of 0 would stay 0."""

INDEPENDENT_PART: Final = 1e-3
"""Part of the independent link in each power of the kernel, so that its rows and columns can be scaled."""

SCALINGS: Final = 20
"""Number of scalings of the rows and columns of a link, after which the sums are close enough for a beginning."""

MIXTURE_GAP: Final = 1e-7
"""Gap of the log-likelihood of the mixture, per trip."""

LIKELY: Final = 3.0
"""The reports allow a mixture if its log-likelihood is at most this much below the greatest one. This is more than half
of the 0.95 quantile of chi squared with one degree of freedom, 1.92, because two extremes are judged."""

SAME: Final = 0.02
"""Distance between mixtures, in total variation of their parts, below which they count as the same."""

BISECTIONS: Final = 30
"""Number of bisections by which the extreme mixtures are found."""


def find_links(
    columns: Floats, counts: Floats, start_shares: Floats, end_shares: Floats, *, extremes: bool = False
) -> list[Floats]:
    """Return the weights (M, M) of the most likely mixture of links and, if asked for, of up to two extreme ones.

    An extreme mixture is as near to the identity, or to independence, as the likelihood allows.

    Args:
        columns: (M, L) probability of each cell of outputs given each bump.
        counts: (L, L) number of trips by the cells of their reports, starts in rows.
        start_shares, end_shares: (M,) shares of the bumps for starts and for ends, summing to 1.
        extremes: Whether to return the extreme mixtures too. Those that are nearly the most likely one are left out.
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
        # The first link is the identity, and the last one independence.
        for number in (0, len(links) - 1):
            extreme = _move_towards(np.eye(len(links))[number], best, probabilities, trips)
            if np.abs(extreme - best).sum() / 2 > SAME:
                mixtures.append(extreme)
    independent = UNIFORM_PART * links[-1]
    return [(1.0 - UNIFORM_PART) * np.tensordot(mixture, links, axes=1) + independent for mixture in mixtures]


def _make_links(columns: Floats, starts: Floats, ends: Floats) -> Floats:
    """Return the links (7, M, M): the identity, the powers of the kernel, and independence.

    Args:
        columns: (M, L) probability of each cell of outputs given each bump.
        starts, ends: (M,) shares of the bumps, above 0, summing to 1.
    """
    # One kernel for both ends: the links are symmetric before they are scaled.
    shares = (starts + ends) / 2
    roots, outputs = np.sqrt(shares), shares @ columns
    factor = roots[:, None] * columns / np.sqrt(np.where(outputs > 0, outputs, 1.0))
    vectors, singular_values, _ = np.linalg.svd(factor, full_matrices=False)
    independent = np.outer(starts, ends)
    links = [np.diag(shares)]
    for power in POWERS:
        # The kernel's eigenvalues are the squares of the singular values.
        kernel = (vectors * singular_values ** (2 * power)) @ vectors.T
        # A fractional power can have small entries below 0.
        link = np.maximum(roots[:, None] * kernel * roots, 0.0)
        link = link / link.sum() + INDEPENDENT_PART * independent
        for _ in range(SCALINGS):
            link *= (starts / link.sum(axis=1))[:, None]
            link *= ends / link.sum(axis=0)
        links.append(link / link.sum())
    return np.array([*links, independent])


def _move_towards(extreme: Floats, best: Floats, probabilities: Floats, trips: Floats) -> Floats:
    """Return the mixture nearest to an extreme one, between it and the best, that the reports allow (:data:`LIKELY`).

    Args:
        extreme, best: (C,) parts of the links in two mixtures.
        probabilities: (C, K) probability of each counted pair of cells given each link.
        trips: (K,) number of trips in each of these pairs.
    """
    greatest = float(trips @ np.log(best @ probabilities))

    def is_likely(part: float) -> bool:
        """Return whether the mixture with this part of the extreme one is likely enough."""
        with np.errstate(divide="ignore"):  # the identity may not be able to give some pairs
            value = trips @ np.log(((1.0 - part) * best + part * extreme) @ probabilities)
        return bool(value >= greatest - LIKELY)

    if is_likely(1.0):
        return extreme
    # The log-likelihood is concave, so the likely parts are an interval from 0 on.
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_likely(middle) else (low, middle)
    mixture: Floats = (1.0 - low) * best + low * extreme
    return mixture
