"""Nine places of a town for tests of engines, and how often each report is expected."""

import os
import random
import signal

from privopt.numbers import TOTAL
from privopt_metric_dp.api.released_matrix import ReleasedMatrix

PLACES = {f"p{n}": (45.0 + 0.01 * (n // 3), 7.0 + 0.012 * (n % 3)) for n in range(9)}
TRIPS = 3000
NOTES = "ignore::privopt.api.released.PrivoptWarning"


def at(places):
    return {end: [place[axis] for place in places.values()] for axis, end in enumerate(("lat", "lon"))}


def expected(release, places):
    """(9,) the expected numbers of each report over draws for some places, given how many of each."""
    matrix = release.opened.release
    rows = {name: row for row, name in enumerate(matrix.records.tolist())}
    shares = sum(count * (matrix.weights[rows[place]] / TOTAL) for place, count in places.items())
    return dict(zip(matrix.outputs.tolist(), shares, strict=True))


def tallied(tally, part):
    """Run the first pass over a partition; in any process."""
    import pyarrow

    return pyarrow.Table.from_batches(tally(iter(part)))


def reported(plan, part):
    """Run the second pass."""
    import pyarrow

    return pyarrow.Table.from_batches(ReleasedMatrix.map_arrow(iter(part), plan))


def killed_at_random(run, part):
    """Run a task, and die without a word three times in ten after its work."""
    made = run(part)
    if random.SystemRandom().random() < 0.3:
        os.kill(os.getpid(), signal.SIGKILL)
    return made
