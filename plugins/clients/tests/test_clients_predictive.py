"""A predictive policy on the device: the reports of the core's traces from the same bytes, counted by segments."""

from __future__ import annotations

import json
import shutil
import subprocess
from itertools import pairwise

import numpy as np
import pytest

from privopt.run.verify import open_verified
from privopt_metric_dp.matrix.release import matrix_of
from privopt_metric_dp.traces.draw_trace import Limit, State

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node on this machine")
RUN = """
import { readFileSync } from "node:fs";
const [folder, given] = process.argv.slice(1);
const { open } = await import(`file://${folder}/privopt-client.mjs`);
const { nextReport } = await import(`file://${folder}/privopt-prediction.mjs`);
const { Policy, inMemory } = await import(`file://${folder}/privopt-policy.mjs`);
const mechanism = await open(readFileSync(`${folder}/mechanism.bin`));
const DAY = 86400000, FIRST = Date.UTC(2026, 2, 30);
const told = {};
%s
console.log(JSON.stringify(told));
"""
TRACE = """
const entropy = new Uint8Array(readFileSync(`${given}/entropy.bin`));
let [at, trace] = [0, {}];
const read = (count) => entropy.subarray(at, at += count);
told.rows = JSON.parse(readFileSync(`${given}/ids.json`)).map((id) => {
  trace = nextReport(mechanism, trace, id, read);
  return [trace.report.id, trace.level !== undefined];
});
"""
COUNTED = """
const kept = inMemory();
const stored = [];
const storage = () => ({ get: kept.get, set: async (state) => { stored.push(state); await kept.set(state); } });
const policy = () => new Policy(mechanism, { storage: storage(), limit: 3, per: "day" }); // each time another page
const [near, far] = [mechanism.ids[0], mechanism.ids.at(-1)];
told.rows = [];
for (let n = 0; n < 400; n += 1) {
  const before = stored.length;
  const { report, drawn, left } = await policy().report(n % 40 < 20 ? near : far, FIRST + Math.floor(n / 100) * DAY);
  told.rows.push([report.id, drawn, left, stored.length - before]);
}
const lost = { get: kept.get, set: async () => { throw new Error("no room"); } };
told.lost = await new Policy(mechanism, { storage: lost, per: "day" }).report(near, FIRST + 9 * DAY)
  .catch((error) => error.message);
const running = stored.find(({ kept: [one] }) => one.level);
const stuck = () => ({ get: async () => running, set: lost.set });
told.unwritten = [];
for (let n = 0; n < 40; n += 1) {
  const day = new Date(running.time).getTime() + 1;
  told.unwritten.push(await new Policy(mechanism, { storage: stuck(), per: "day" }).report(n % 2 ? near : far, day)
    .catch((error) => error.message));
}
try { mechanism.steps(near, "none of them"); } catch (error) { told.other = error.message; }
told.sealed = typeof JSON.parse(JSON.stringify(stored.find(({ kept: [one] }) => one.level))).kept[0].level;
"""
WITHOUT = """
try { new Policy(mechanism, { keep: "predictive" }); } catch (error) { told.refused = error.message; }
"""


def run(folder, script, entropy=""):
    command = [NODE, "--input-type=module", "-e", RUN % script, str(folder), str(entropy)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


def walk_of(folder, rows, entropy):
    """Return the core's reports of one subject's rows, from given bytes, and which repeat the last."""
    release, _ = matrix_of(open_verified(folder))
    offset = 0

    def source(count):
        nonlocal offset
        offset += count
        return entropy[offset - count : offset]

    walked = release.walker.walk(rows, np.zeros(len(rows), dtype=np.int64), State(), charge=Limit(None), source=source)
    return release.outputs[walked.outputs].tolist(), walked.kept.tolist()


def test_same_bytes_give_reports_of_apply(releases, export_folders, tmp_path):
    """Stays, steps to neighbours and leaps: a segment of any length, and renewals near and far."""
    rng = np.random.default_rng(5)
    release, _ = matrix_of(open_verified(releases["predictive"]))
    records = len(release.records)
    moves = rng.choice([0, 0, 0, 0, 1, -1, 5, -5, 11], size=20_000)
    rows = np.cumsum(moves) % records
    entropy = rng.bytes(8 * 40 * len(rows))
    (tmp_path / "entropy.bin").write_bytes(entropy)
    (tmp_path / "ids.json").write_text(json.dumps(release.records[rows].tolist()))
    client_rows = run(export_folders["predictive"], TRACE, tmp_path)["rows"]
    outputs, is_repeated = walk_of(releases["predictive"], rows, entropy)
    assert [list(row) for row in zip(outputs, is_repeated, strict=True)] == client_rows
    assert 0.1 < np.mean(is_repeated) < 0.99


def test_counts_a_segment_once_before_its_first_test(export_folders):
    answers = run(export_folders["predictive"], COUNTED)
    for day in range(4):
        rows = answers["rows"][100 * day : 100 * day + 100]
        assert rows[0][1:] == [True, 2, 1]  # a period begins with a new report
        lefts = [left_tests for _, _, left_tests, _ in rows]
        assert lefts == sorted(lefts, reverse=True)
        assert 0 <= lefts[-1] < 2
        assert sum(is_drawn for _, is_drawn, _, _ in rows) <= 3
        for (report, _, previous_left, _), (next_report, is_drawn, left_tests, stored_count) in pairwise(rows):
            assert is_drawn or next_report == report  # what is given again is the last one
            # where nothing may be tested
            is_idle = (stored_count, is_drawn, left_tests, previous_left) == (0, False, 0, 0)
            assert stored_count == 1 or is_idle
    assert answers["lost"] == "no room"
    assert answers["unwritten"] == ["no room"] * 40  # near and far alike: a failure does not show what a test found
    assert "this artefact's" in answers["other"]
    assert answers["sealed"] == "string"


def test_refuses_releases_without_a_test(export_folders):
    assert "solve predictive" in run(export_folders["plane"], WITHOUT)["refused"]
