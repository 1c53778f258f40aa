"""Which reports a policy draws and which it gives again: by clock or by cell, and never more than its limit."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node on this machine")
RUN = """
import { readFileSync } from "node:fs";
const folder = process.argv[1];
const { open } = await import(`file://${folder}/privopt-client.mjs`);
const { Policy, inMemory } = await import(`file://${folder}/privopt-policy.mjs`);
const mechanism = await open(readFileSync(`${folder}/mechanism.bin`));
const HOUR = 3600000, DAY = 24 * HOUR, FIRST = Date.UTC(2026, 2, 30); // a Monday, two days before a month ends
let draws = 0;
const { release, ids, positions, names } = mechanism;
const counted = { release, ids, positions, names, cell: (input) => mechanism.cell(input),
  report: () => ({ id: String(draws += 1) }) }; // every draw can be told apart
const at = (policy, ...asked) => asked.reduce(async (told, [input, now]) =>
  [...await told,
    await policy.report(input, now).then(({ report, left }) => [Number(report.id), left], (error) => error.name)], []);
const told = {};
%s
console.log(JSON.stringify(told));
"""


def run(folder, script):
    command = [NODE, "--input-type=module", "-e", RUN % script, str(folder)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


def test_time_policy_repeats_report_until_expiry(export_folders):
    answers = run(
        export_folders["plane"],
        """
        const policy = new Policy(counted, { storage: inMemory(), hours: 6, limit: 3, per: "day" });
        told.day = await at(policy, ["p1", FIRST], ["p2", FIRST + 5.9 * HOUR], ["p2", FIRST + 6 * HOUR], ["p2", FIRST],
          ["p3", FIRST + 12 * HOUR], ["p3", FIRST + 18 * HOUR], ["p3", FIRST + 24 * HOUR], ["p3", FIRST + 12 * HOUR]);
        """,
    )
    # the fourth call has a clock that was set back, the sixth is beyond the limit, the last is of the day before
    assert answers["day"] == [[1, 2], [1, 2], [2, 1], [2, 1], [3, 0], [3, 0], [4, 2], [4, 2]]


def test_place_policy_keeps_first_report_of_cell(export_folders):
    answers = run(
        export_folders["plane"],
        """
        const [[x, y]] = mechanism.positions;
        const other = mechanism.positions[1];
        const week = { keep: "place", per: "week", limit: 2 };
        const plain = new Policy(counted, { storage: inMemory(), ...week });
        const far = [(x + 2 * other[0]) / 3, (y + 2 * other[1]) / 3]; // in the other's cell
        told.plain = await at(plain, ["p0", FIRST], [[x, y], FIRST + DAY], [far, FIRST + DAY], ["p5", FIRST + 6 * DAY],
          ["p0", FIRST + 6 * DAY], ["p5", FIRST + 7 * DAY], ["p5", FIRST + 70 * DAY]);
        draws = 0;
        const km = Math.hypot(far[0] - x, far[1] - y) + 0.001;
        const near = new Policy(counted, { storage: inMemory(), ...week, km });
        told.near = await at(near, ["p0", FIRST], [far, FIRST], ["p1", FIRST], [far, FIRST]);
        """,
    )
    assert answers["plain"] == [[1, 1], [1, 1], [2, 0], [2, 0], [1, 0], [3, 1], [3, 2]]
    assert answers["near"] == [[1, 1], [1, 1], [2, 0], [1, 0]]


def test_refused_requests_store_and_tell_nothing(export_folders):
    answers = run(
        export_folders["plane"],
        """
        const full = { get: async () => undefined, set: async () => { throw new Error("no room"); } };
        told.full = await at(new Policy(counted, { storage: full }), ["p1", FIRST]);
        const others = { get: async () => ({ release: "another's", kept: [] }), set: async () => {} };
        told.others = await at(new Policy(counted, { storage: others }), ["p1", FIRST]);
        const policy = new Policy(mechanism, { storage: inMemory(), keep: "nothing", per: "month", limit: 2 });
        const ends = [];
        for (const [input, day] of [["nowhere", 0], ["p1", 0], ["p1", 1], ["p1", 1], ["p1", 2]]) {
          ends.push(await policy.report(input, FIRST + day * DAY).then(({ left }) => left, (error) => error.name));
        }
        told.ends = ends;
        const both = new Policy(counted, { storage: inMemory(), hours: 1 });
        const reports = await Promise.all([1, 2, 3].map(() => both.report("p1", FIRST)));
        told.together = reports.map(({ report }) => report.id);
        told.wrong = [{ keep: "all" }, { per: "year" }, { limit: 0 }, { limit: 1.5 }, { hours: 0 }, { km: -1 }]
          .map((options) => {
            try { return typeof new Policy(mechanism, options); } catch (error) { return error.name; }
          });
        """,
    )
    assert answers["full"] == ["Error"]
    assert answers["others"] == ["Error"]
    assert answers["ends"] == ["RangeError", 1, 0, 0, 1]  # the last is in another month
    assert len(set(answers["together"])) == 1
    assert answers["wrong"] == ["RangeError"] * 6
