"""What an approximate location costs and gives away, beside a grid and planar Laplace in doubles.

Run as ``python tests/bench/bench_sphere_client.py [--persons N]``, some minutes. Persons at uniform positions of a
square of 25 km around Rome report once, and twenty times from the same place. Every report is drawn in node by the code
that a page would have; time is also measured in Chromium. The attacker knows the way and its parameters, and has no
prior but the square: the best guess is the likeliest position.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from helpers.browser import open_browser  # noqa: E402

from privopt_clients.export import CLIENT  # noqa: E402

REPEATS = 20
SIDE_KM = 25.0
SOUTH, WEST = 41.79, 12.35
KM_PER_DEGREE = 111.19
COSINE = float(np.cos(np.radians(SOUTH + SIDE_KM / KM_PER_DEGREE / 2)))
EPSILON = 1.4
GRID_KM = 2.0 / EPSILON / 0.382598
"""The side of a cell of the same mean error: (2^.5 + log(1 + 2^.5)) / 6 = .3826 sides is the mean from its centre."""
SPHERE = """
const { fromEpsilon } = await import(base + "privopt-sphere.mjs");
const client = fromEpsilon("1.4/km", { digits: 3 });
const report = (position) => { const { lat, lon } = client.report(position); return [lat, lon]; };
"""
LAPLACE = """
// W is the branch -1 of Lambert's function, by Newton's steps: the inverse of the radius's distribution.
function radius(p, epsilon) {
  let w = p < 0.5 ? -1 - Math.sqrt(2 * p) : Math.log((1 - p) / Math.E) - 1;
  for (let step = 0; step < 30; step += 1) w -= (w * Math.exp(w) - (p - 1) / Math.E) / ((w + 1) * Math.exp(w) || -1e-9);
  return -(w + 1) / epsilon;
}
const report = ([lat, lon]) => {
  const [bearing, km] = [2 * Math.PI * Math.random(), radius(Math.random(), 1.4)];
  const east = lon + (km * Math.sin(bearing)) / (111.19 * Math.cos((lat * Math.PI) / 180));
  return [lat + (km * Math.cos(bearing)) / 111.19, east];
};
"""
GRID = """
const report = ([lat, lon]) => {
  const [up, across] = [%s / 111.19, %s / 111.19 / Math.cos((41.9 * Math.PI) / 180)];
  return [(Math.floor(lat / up) + 0.5) * up, (Math.floor(lon / across) + 0.5) * across];
};
"""
ROUNDING = """
const report = (position) => position.map((degrees) => Math.round(degrees * 100) / 100);
"""
WAYS = {
    "privopt, epsilon 1.4 per km": SPHERE,
    "planar Laplace in doubles, 1.4 per km": LAPLACE,
    f"grid of {GRID_KM:.2f} km": GRID.replace("%s", f"{GRID_KM:.6f}"),
    "rounding to .01 degree": ROUNDING,
}
TIMED = """
const position = [41.9021, 12.5034];
let least = Infinity;
for (let batch = 0; batch < 20; batch += 1) {
  const start = performance.now();
  for (let draw = 0; draw < draws; draw += 1) report(position);
  least = Math.min(least, (performance.now() - start) / draws);
}
const microseconds = least * 1000;
"""


def draw_in_node(code: str, positions: np.ndarray) -> tuple[np.ndarray, float]:
    """Return (N, REPEATS, 2) reports of positions, and microseconds a draw."""
    script = f"""
import {{ readFileSync }} from "node:fs";
const base = {json.dumps(CLIENT.as_uri() + "/")}, draws = 200;
const positions = JSON.parse(readFileSync(0, "utf8"));
{code}
const reports = positions.map((position) => Array.from({{ length: {REPEATS} }}, () => report(position)));
{TIMED}
console.log(JSON.stringify({{ reports, microseconds }}));
"""
    command = ["node", "--input-type=module", "-e", script]
    completed = subprocess.run(
        command, input=json.dumps(positions.tolist()), capture_output=True, text=True, check=True
    )
    answer = json.loads(completed.stdout)
    return np.array(answer["reports"]), float(answer["microseconds"])


def time_in_browser(code: str) -> float:
    """Return microseconds a draw in Chromium."""
    with open_browser() as browser:
        page = browser.new_page()

        def serve(route: Any) -> None:
            name = route.request.url.rsplit("/", 1)[1]
            kind = "text/javascript" if name else "text/html"
            route.fulfill(body=(CLIENT / name).read_bytes() if name else b"<!doctype html>", content_type=kind)

        page.route("**/*", serve)
        page.goto("https://bench.example/")
        # A browser's clock ticks each .1 ms, so that a batch must be long.
        draws = 200 if code == SPHERE else 20_000
        return float(
            page.evaluate(f"async () => {{ const base = '/', draws = {draws}; {code} {TIMED} return microseconds; }}")
        )


def to_km(positions: np.ndarray) -> np.ndarray:
    """Return (..., 2) km north and east of the corner of the square."""
    return (positions - [SOUTH, WEST]) * [KM_PER_DEGREE, KM_PER_DEGREE * COSINE]


def guess_by_laplace(reports: np.ndarray) -> np.ndarray:
    """Return (N, 2) the likeliest position of each (N, K, 2) reports: the point with the least sum of distances."""
    guesses = np.median(reports, axis=1)
    for _ in range(200):  # Weiszfeld's steps
        weights = 1.0 / np.maximum(np.linalg.norm(reports - guesses[:, None], axis=2), 1e-9)
        guesses = (reports * weights[..., None]).sum(axis=1) / weights.sum(axis=1)[:, None]
    return guesses


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--persons", type=int, default=2_000)
    persons = parser.parse_args().persons
    rng = np.random.default_rng(1)
    truth = rng.uniform(0.0, SIDE_KM, (persons, 2))
    positions = truth / [KM_PER_DEGREE, KM_PER_DEGREE * COSINE] + [SOUTH, WEST]
    print(f"load {os.getloadavg()[0]:.1f}, {persons:,} persons")
    for name, code in WAYS.items():
        degrees, in_node = draw_in_node(code, positions)
        reports = to_km(degrees)
        errors = np.linalg.norm(reports[:, 0] - truth, axis=1)
        figures = []
        for count in (1, REPEATS):
            # A cell's reports are all the same, and its centre is a likeliest position.
            guesses = guess_by_laplace(reports[:, :count]) if count > 1 and "1.4" in name else reports[:, 0]
            misses = np.linalg.norm(guesses - truth, axis=1)
            figures.append(
                f"{count} reports: {(misses < 1.0).mean():.0%} within 1 km, median {np.median(misses):.2f} km"
            )
        sources = [(CLIENT / "privopt-sphere.mjs").read_bytes()] if code == SPHERE else [code.encode()]
        size = f"{sum(map(len, sources)):,} bytes ({len(gzip.compress(b''.join(sources), mtime=0)):,} gzipped)"
        times = f"{in_node:.2f} us in node, {time_in_browser(code):.2f} us in Chromium"
        quantile = float(np.quantile(errors, 0.95))
        print(f"{name}: mean {errors.mean():.2f} km, p95 {quantile:.2f}; {'; '.join(figures)}; {size}; {times}")


if __name__ == "__main__":
    main()
