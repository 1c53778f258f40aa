"""Mechanisms over traces with a fault in how reports are drawn or charged."""

import numpy as np

from privopt.metric.traces.mechanism import Predictive
from privopt.metric.traces.notion import TraceRelease
from privopt.metric.traces.walk import Walked, Walker


def planted(walks):
    """A mechanism whose releases draw with another walker."""
    release = type(f"{walks.__name__}Release", (TraceRelease,), {"walks": walks})
    return type(walks.__name__, (Predictive,), {"release_class": release})


class Plain(Walker):
    """The same law drawn another way, all subjects of a trace at once; its parts can be made wrong."""

    charges_segments = True

    def walk(self, rows, subjects, state, *, charge, source, steps=None):
        self_rows = {}
        for place, subject in enumerate(subjects.tolist()):
            self_rows.setdefault(subject, []).append(place)
        chance = np.random.default_rng(int.from_bytes(source(8), "little"))
        outputs, kept = np.full(len(rows), -1), np.zeros(len(rows), dtype=bool)
        for subject, places in self_rows.items():
            charge([subject], self.terms.report)
            last, level, shared = None, None, None
            for at, place in enumerate(places):
                record = int(rows[place])
                if last is not None:
                    level, shared = self.begin(level, shared, subject, charge, chance)
                    tested = self.tested(rows, places, at)
                    if self.good(level, shared, int(self.prediction.steps[tested, last]), chance):
                        outputs[place], kept[place] = last, True
                        continue
                    level, shared = self.end(level, shared)
                row = self.weights[record].astype(float)
                last = int(chance.choice(len(row), p=row / row.sum()))
                outputs[place] = last
        return Walked(outputs=outputs, kept=kept, spent=np.zeros(len(rows), dtype=bool))

    def begin(self, level, shared, subject, charge, chance):
        if level is None:
            if self.charges_segments:
                charge([subject], self.terms.segment)
            noise = chance.geometric(-np.expm1(-float(self.prediction.threshold))) - 1
            return self.prediction.level + noise, chance.random()
        return level, shared

    def tested(self, rows, places, at):
        return int(rows[places[at]])

    def good(self, level, shared, steps, chance):
        return chance.random() >= np.exp(-float(self.prediction.test) * max(level - steps, 0))

    def end(self, level, shared):
        return None, None


class ThresholdReused(Plain):
    """One threshold for all segments, of which only the first is charged."""

    def end(self, level, shared):
        return level, shared


class NoiseShared(Plain):
    """The same noise for all tests of a segment."""

    def good(self, level, shared, steps, chance):
        return shared >= np.exp(-float(self.prediction.test) * max(level - steps, 0))


class LooksAhead(Plain):
    """Asks whether the last report is good for where the subject goes next."""

    def tested(self, rows, places, at):
        return int(rows[places[min(at + 1, len(places) - 1)]])


class Uncharged(Plain):
    """Charges the first report alone."""

    charges_segments = False


RightWalk, ThresholdReusedWalk, NoiseSharedWalk, LooksAheadWalk, UnchargedWalk = map(
    planted, (Plain, ThresholdReused, NoiseShared, LooksAhead, Uncharged)
)
