"""Large albums: what the search of photo-censor keeps and proves, beside the whole integer program in HiGHS.

``python tests/bench/bench_albums.py [--sizes 1000 10000] [--top-k 5] [--albums 3] [--limit 60] [--no-peer]``. Both get
the same albums, one thread and the same processor seconds, one after the other in this process. The peer's program has
a binary variable for each photo and each location, ``sum_i z_i d_ij >= -T_j (1 - h_j)`` with the smallest T_j that
allows every set of photos, and ``sum_j h_j >= k``. Its photos count only if the exact rank confirms them; its bound is
taken at its word, where the search's is proved. Gaps are shares of the loss, the number of deleted photos. Set
OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from math import floor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from privopt.backends.highs import new_solver
from privopt.execution.clock import limit
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver.optimal import solve

sys.path.append(str(Path(__file__).parents[2] / "plugins" / "photo-censor" / "experiments"))
from photo_censor_paper.generate import LOCATIONS, World


class Answer(NamedTuple):
    """The photos that a method keeps, its bound on them, and its processor seconds."""

    retained_count: int
    bound: int
    seconds: float


def draw(size: int, number: int) -> Album:
    """Draw an album of independent photos of one location."""
    rng = np.random.default_rng([7, size, number])
    world = World.draw(np.random.default_rng([7, number % 8]))
    location = int(rng.integers(LOCATIONS))
    return Album(scores=world.scores(world.photos(rng, location, size)), true=location)


def search(album: Album, k: int, seconds: float) -> Answer:
    """Run the method ``optimal``, its proof included."""
    begun = time.process_time()
    with limit(seconds, now=time.process_time):
        plan = solve(album, Task(top_k=k))
    return Answer(int(plan.retained.sum()), plan.bound, time.process_time() - begun)


def whole_program(album: Album, k: int, seconds: float) -> Answer:
    """Solve the whole integer program in HiGHS."""
    begun = time.process_time()
    diff = album.scores - album.scores[:, [album.true]]
    diff = np.delete(diff, album.true, axis=1).T
    locations, photos = diff.shape
    count = photos + locations
    solver: Any = new_solver()
    columns = np.arange(count, dtype=np.int32)
    solver.addVars(count, np.zeros(count), np.ones(count))
    solver.changeColsCost(photos, columns[:photos], -np.ones(photos))
    solver.changeColsIntegrality(count, columns, np.ones(count, dtype=np.uint8))
    for j, row in enumerate(diff):
        lowest = float(np.minimum(row, 0.0).sum())
        indices, values = np.append(columns[:photos], photos + j).astype(np.int32), np.append(row, lowest)
        solver.addRow(lowest, np.inf, photos + 1, indices, values)
    solver.addRow(float(k), np.inf, locations, columns[photos:], np.ones(locations))

    def stop_in_time(event: Any) -> None:
        """End HiGHS's run at one of its callbacks, once the processor seconds are spent."""
        if time.process_time() - begun > seconds:
            event.interrupt()

    for channel in (solver.cbSimplexInterrupt, solver.cbMipInterrupt):
        channel.subscribe(stop_in_time)
    solver.setOptionValue("time_limit", 10.0 * seconds)
    solver.run()
    solution, lowest_cost = solver.getSolution(), solver.getInfo().mip_dual_bound
    retained = np.zeros(photos, dtype=np.bool_)
    if solution.value_valid:
        retained = np.array(solution.col_value)[:photos] > 0.5
    is_protected = retained.any() and protected_k(album, retained) >= k
    bound = min(photos, floor(1e-6 - lowest_cost)) if np.isfinite(lowest_cost) else photos
    return Answer(int(retained.sum()) if is_protected else 0, bound, time.process_time() - begun)


METHODS: dict[str, Callable[[Album, int, float], Answer]] = {"search": search, "HiGHS": whole_program}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--top-k", type=int, nargs="+", default=[5])
    parser.add_argument("--albums", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--no-peer", action="store_true")
    arguments = parser.parse_args()
    print("| photos | top-k | method | proved | deleted | gap, median / max | cpu s, median / max |")
    for size in arguments.sizes:
        for k in arguments.top_k:
            for name, method in METHODS.items():
                if name == "HiGHS" and arguments.no_peer:
                    continue
                answers = [method(draw(size, number), k, arguments.limit) for number in range(arguments.albums)]
                gaps = [(answer.bound - answer.retained_count) / (size - answer.retained_count) for answer in answers]
                seconds = [answer.seconds for answer in answers]
                deleted = median(size - answer.retained_count for answer in answers)
                print(
                    f"| {size:,} | {k} | {name} | {sum(gap == 0.0 for gap in gaps)} of {len(answers)} | "
                    f"{deleted:g} | {median(gaps):.2%} / {max(gaps):.2%} | "
                    f"{median(seconds):.1f} / {max(seconds):.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
