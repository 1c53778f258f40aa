"""Proof times on one thread: ``python bench_optimal.py [--albums 40] [--sizes 16,32] [--only top_k]``.

Processor seconds of each optimisation, its proof written: median, largest, and what stayed unproved within 60 s of wall
clock or 60 million multipliers times photos. Set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from privopt.execution.clock import limit
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.solver.optimal import solve

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from photo_censor_paper.generate import LOCATIONS, World

SIZES = "16,32,64,128,250"
LIMIT = 60.0


def draw(size: int, count: int) -> list[Album]:
    rng = np.random.default_rng([7, size])
    albums = []
    for number in range(count):
        world = World.draw(np.random.default_rng([7, number % 8]))
        location = int(rng.integers(LOCATIONS))
        albums.append(Album(scores=world.scores(world.photos(rng, location, size)), true=location))
    return albums


def measure(name: str, albums: list[Album], task: Task) -> None:
    seconds, gaps, wall = [], [], 0.0
    for album in albums:
        start, clock = time.process_time(), time.perf_counter()
        with limit(LIMIT):
            plan = solve(album, task)
        seconds.append(time.process_time() - start)
        wall += time.perf_counter() - clock
        if not plan.proved:
            value = plan.protected if task.budget is not None else int(plan.retained.sum())
            gaps.append((value, plan.bound))
    late_count = sum(s > 10.0 for s in seconds)
    gap_text = f"; value and bound of the unproved: {gaps}" if gaps else ""
    print(
        f"{name:24} median {np.median(seconds):7.3f} s  max {max(seconds):7.3f} s  over 10 s {late_count:2}  "
        f"unproved {len(gaps)} of {len(albums)} (wall clock {wall:.1f} s in all){gap_text}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--albums", type=int, default=40)
    parser.add_argument("--only", choices=["top_k", "budget"])
    parser.add_argument("--sizes", default=SIZES)
    arguments = parser.parse_args()
    for size in map(int, arguments.sizes.split(",")):
        albums = draw(size, arguments.albums)
        if arguments.only != "budget":
            for k in (5, 10, 20):
                measure(f"{size} photos, top-{k}", albums, Task(top_k=k))
        if arguments.only != "top_k":
            for deleted_share in (0.125, 0.25, 0.375, 0.5):
                measure(f"{size} photos, delete {deleted_share:.1%}", albums, Task(budget=int(deleted_share * size)))


if __name__ == "__main__":
    main()
