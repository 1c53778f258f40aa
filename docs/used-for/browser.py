"""A client that draws reports on the device: docs/how-to/approximate-location.md as a script. It needs node.

``python docs/used-for/browser.py [--small] [--out FOLDER]``. A release is exported. In node the client draws reports of
uniform positions, from which their mean error is measured, beside the mean error that planar Laplace of the same
epsilon has on an endless plane. The two are not the same promise: reports of planar Laplace may leave the grid, and it
protects any two positions, while the release protects pairs of cells. The client must refuse a position on another
continent, and give the reports of its own test vectors.

The full size has 25 x 25 cells of 1 km at 1.4 per km; the small one 6 x 6 cells.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from job import main, privopt

EPSILON = 1.4

SCRIPT = """
import { readFileSync } from "node:fs";
import { open } from "./client/privopt-client.mjs";
const mechanism = await open(readFileSync("client/mechanism.bin"));
const side = Number(process.argv[2]), draws = Number(process.argv[3]);
let sum = 0;
for (let draw = 0; draw < draws; draw++) {
  const x = Math.random() * (side - 1), y = Math.random() * (side - 1);
  const report = mechanism.report([x, y]);
  sum += Math.hypot(report.x - x, report.y - y);
}
let refused = 0;
try { mechanism.report([500, 500]); } catch { refused = 1; }
const vectors = JSON.parse(readFileSync("client/vectors.json", "utf8"));
const wrong = vectors.filter(({ input, entropy, report }) => {
  const bytes = Uint8Array.from(entropy.match(/../g).map((digits) => parseInt(digits, 16)));
  const given = mechanism.reportFrom(input, bytes);
  return (report.id ?? report) !== given.id;
}).length;
console.log(JSON.stringify({ mean_km: sum / draws, refused, vectors: vectors.length, wrong_vectors: wrong,
  covers_elsewhere: Number(mechanism.covers([500, 500])) }));
"""


def run_job(folder: Path, *, small: bool) -> dict[str, float]:
    """Export the release, draw in node, and return mean errors in km, sizes in bytes and what was refused."""
    side = 6 if small else 25
    (folder / "problem.toml").write_text(
        f'title = "An approximate location in a city"\n'
        f'[records]\ngrid = {{ rows = {side}, cols = {side}, cell_km = 1.0 }}\n[distance]\nkind = "euclidean"\n'
        f'[privacy]\nepsilon = {EPSILON}\nneighbours_within = 1.5\n[utility]\nkind = "distance"\n'
    )
    privopt(folder, "solve", "optimal-lp", "problem.toml", "--out", "city", "--quiet")
    privopt(folder, "verify", "city", "--quiet")
    privopt(folder, "export", "city", "--target", "js", "--out", "client", "--quiet")
    (folder / "draw.mjs").write_text(SCRIPT)
    command = ["node", "draw.mjs", str(side), "2000" if small else "20000"]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(completed.stdout)
    return {
        **figures,
        "planar_laplace_mean_km": 2 / EPSILON,  # on an endless plane
        "artefact_bytes": (folder / "client" / "mechanism.bin").stat().st_size,
        "module_bytes": (folder / "client" / "privopt-client.mjs").stat().st_size,
    }


if __name__ == "__main__":
    main(__doc__, run_job)
