"""Intervals for flows, computed by a parametric bootstrap with several plausible fits.

The parametric bootstrap in :mod:`.smooth_intervals` draws reports from a single pilot, which is a fit that stands in
for the truth. The errors of estimates from these reports include the estimate's bias at that pilot.

For trips, the reports may not determine how closely ends are linked to starts, and a single pilot would ignore all
other plausible links. Therefore up to three pilots are used. The first fit starts from the most likely links. The other
two start as near to the identity, and as near to independence, as the likelihood allows (:mod:`.flow_links`). All
pilots have more rounds than the estimate, and finer bumps unless too many bumps would be needed. A half width is
CALIBRATION times the sum of two terms: the largest half width from the pilots, and the largest distance between the
estimate and a pilot.

None of this is proved. docs/benchmarks/city.md measures how often these intervals held.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from privopt.arrays import Floats
from privopt.estimate.flow_bumps import Bumps
from privopt.estimate.flow_fit import FlowFit, scale_to_sums
from privopt.estimate.smooth_intervals import REPLICATE_GAP, SEED, half_widths_of
from privopt.interfaces import Progress

REPLICATES: Final = 40
"""The number of draws of trips from the first pilot. Each additional pilot gets half as many draws."""

PILOT_REFINEMENT: Final = 2.0
"""The factor by which the pilots' bumps are narrower than the estimate's, unless that would require too many bumps."""

PILOT_ROUNDS: Final = (2, 20)
"""A factor and an offset: a pilot's number of rounds is the estimate's, multiplied by the factor, plus the offset."""

CALIBRATION: Final = 1.25
"""The factor by which half widths are increased.

With this factor, the intervals held as often as claimed for most kinds of trips. Without it, with 36 records and seven
kinds of trips, the largest error was 1.1 to 1.3 half widths in one run out of ten.
"""


class FlowModel(NamedTuple):
    """The settings for estimating flows from counted trips.

    Attributes:
        bumps: The bumps (smooth distributions over records) for fitting flows.
        rounds: The number of rounds in a fit.
        start_bumps, end_bumps: The bumps for estimating the shares of starts and of ends.
        gap: A fit stops once its log-likelihood per trip is proved to be within this distance of the maximum.
    """

    bumps: Bumps
    rounds: int
    start_bumps: Bumps
    end_bumps: Bumps
    gap: float

    def estimate(self, counts: Floats) -> Floats:
        """Return the estimated flows between groups, as an array of shape (G, G) that sums to 1.

        Args:
            counts: (L, L) The number of trips for each pair of reported cells, with start cells in rows.
        """
        flows = self.bumps.fit(counts, self.bumps.find_links(counts)[0], gap=self.gap, rounds=self.rounds).flows
        margin_gap = max(self.gap, REPLICATE_GAP)
        starts = self.start_bumps.fit_weights(counts.sum(axis=1), margin_gap) @ self.start_bumps.groups
        ends = self.end_bumps.fit_weights(counts.sum(axis=0), margin_gap) @ self.end_bumps.groups
        return scale_to_sums(flows, starts / starts.sum(), ends / ends.sum())


def find_half_widths(
    counts: Floats, shares: Floats, model: FlowModel, pilot_bumps: Bumps, confidence: float, progress: Progress | None
) -> Floats:
    """Return the half widths of the intervals for flows, computed from the errors of bootstrap estimates.

    Trips are drawn from several pilots, which are plausible fits that stand in for the true flows, and flows are
    estimated from each draw. The half widths, of shape (G, G), are meant for intervals that hold simultaneously.

    Args:
        counts: (L, L) The number of trips for each pair of reported cells, with start cells in rows.
        shares: (G, G) The estimated flows.
        model: The settings used to estimate the flows.
        pilot_bumps: The bumps used to fit the pilots.
        confidence: The confidence level, in (0, 1).
        progress: A function to call with the number of the current draw, or None.
    """
    n = int(counts.sum())
    factor, extra_rounds = PILOT_ROUNDS
    links = pilot_bumps.find_links(counts, extremes=True)
    half_widths = np.zeros(shares.size)
    distances = np.zeros(shares.size)
    for number, link in enumerate(links):
        pilot = pilot_bumps.fit(counts, link, gap=model.gap, rounds=factor * model.rounds + extra_rounds)
        name = f"flows: pilot {number + 1} of {len(links)}"
        errors = _draw_errors(pilot, model, n, REPLICATES // (2 if number else 1), name, progress)
        half_widths = np.maximum(half_widths, half_widths_of(errors, confidence, n))
        distances = np.maximum(distances, np.abs(shares - pilot.flows).ravel())
    return CALIBRATION * (half_widths + distances).reshape(shares.shape)


def _draw_errors(
    pilot: FlowFit, model: FlowModel, n: int, replicates: int, name: str, progress: Progress | None
) -> Floats:
    """Return the errors of B estimates, each based on n trips drawn from a pilot, as an array of shape (B, G * G).

    Args:
        pilot: The pilot, a fit that stands in for the true flows.
        model: The settings for estimating flows.
        n: The number of trips in each draw.
        replicates: The number of draws, B.
        name: The pilot's name in progress messages.
        progress: A function to call with the number of the current draw, or None.
    """
    # The probabilities may not sum to exactly 1, for example because of rounding.
    probabilities = pilot.cell_probabilities.ravel() / pilot.cell_probabilities.sum()
    errors = np.zeros((replicates, pilot.flows.size))
    for number in range(replicates):
        if progress is not None:
            progress(f"{name}, draw {number + 1} of {replicates}", number, None, None)
        rng = np.random.default_rng([SEED, number])
        drawn = rng.multinomial(n, probabilities).reshape(pilot.cell_probabilities.shape).astype(np.float64)
        errors[number] = (model.estimate(drawn) - pilot.flows).ravel()
    return errors
