"""Mechanisms over traces with a fault in how reports are drawn or charged."""

import numpy as np
from attrs import asdict, evolve, frozen

from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.mechanisms.predictive import Predictive
from privopt_metric_dp.mechanisms.predictive_problem import PredictiveProblem
from privopt_metric_dp.mechanisms.trace_dp import TraceDP, TraceRelease
from privopt_metric_dp.traces.draw_trace import TraceReports, Walker
from privopt_metric_dp.traces.prediction import Terms


def planted(walks):
    """Return a mechanism whose releases draw with another walker."""
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
        upto = np.cumsum(self.weights, axis=1, dtype=float)
        for subject, places in self_rows.items():
            charge([subject], self.terms.report)
            last, level, shared = None, None, None
            for at, place in enumerate(places):
                record = int(rows[place])
                if last is not None:
                    level, shared = self.begin(level, shared, subject, charge, chance)
                    far = self.far(self.tested(places, at), rows, steps)
                    if self.good(level, shared, int(far[last]), chance):
                        outputs[place], kept[place] = last, True
                        continue
                    level, shared = self.end(level, shared)
                last = int(np.searchsorted(upto[record], chance.random() * upto[record, -1], side="right"))
                outputs[place] = last
        return TraceReports(outputs=outputs, kept=kept, spent=np.zeros(len(rows), dtype=bool))

    def begin(self, level, shared, subject, charge, chance):
        if level is None:
            if self.charges_segments:
                charge([subject], self.terms.segment)
            noise = int(np.log1p(-chance.random()) / -float(self.prediction.threshold))
            return self.prediction.level + noise, chance.random()
        return level, shared

    def tested(self, places, at):
        return places[at]

    def far(self, row, rows, steps):
        return self.prediction.steps[rows[row]] if steps is None else steps[row]

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

    def tested(self, places, at):
        return places[min(at + 1, len(places) - 1)]


class Uncharged(Plain):
    """Charges the first report alone."""

    charges_segments = False


class Trusting(TraceDP):
    """Looks at fresh reports alone."""

    def measure(self, release):
        return MetricDP.measure(self, release)


class Forged(Predictive):
    """Counts steps as it likes, and has them looked at by nobody."""

    def solve(self, problem, context):
        outcome = super().solve(problem, context)
        numbers = self.forged(outcome.release.prediction, problem.data)
        return evolve(outcome, release=evolve(outcome.release, prediction=numbers))

    def privacy(self, problem, method):
        data = problem.data
        return Trusting.over(data, problem.declared.terms(data))


class Cheap(Terms):
    """States and charges a segment without what its tests tell."""

    @property
    def segment(self):
        return self.threshold + self.report


@frozen(kw_only=True)
class CheapProblem(PredictiveProblem):
    def terms(self, data):
        return Cheap(**asdict(super().terms(data)))


class TestForgotten(Predictive):
    """A budget without the tests' share, in every word and number."""

    problem_class = CheapProblem


RightWalk, ThresholdReusedWalk, NoiseSharedWalk, LooksAheadWalk, UnchargedWalk = map(
    planted, (Plain, ThresholdReused, NoiseShared, LooksAhead, Uncharged)
)
