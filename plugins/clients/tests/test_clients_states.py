"""Times, states and storages that a policy refuses: what it cannot believe must not lead to further draws."""

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
const { Policy, inMemory, sealed, LostReportsError } = await import(`file://${folder}/privopt-policy.mjs`);
const mechanism = await open(readFileSync(`${folder}/mechanism.bin`));
const HOUR = 3600000, DAY = 24 * HOUR, NOW = Date.UTC(2026, 0, 15, 8);
const name = (error) => (error instanceof LostReportsError ? "LostReportsError" : error.constructor.name);
const count = async (policy, times) => {
  let [drawn, errors] = [0, []];
  for (const now of times) {
    await policy.report(mechanism.ids[0], now).then((given) => { drawn += given.drawn; }, (e) => errors.push(name(e)));
  }
  return [drawn, errors.length, [...new Set(errors)]];
};
const told = {};
%s
console.log(JSON.stringify(told));
"""


def run(folder, script):
    command = [NODE, "--input-type=module", "-e", RUN % script, str(folder)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


def test_refuses_times_that_are_no_milliseconds(export_folders):
    answers = run(
        export_folders["plane"],
        """
        const wrong = ["2026-01-15T08:00:00Z", NaN, Infinity, -Infinity, -1, null, new Date(NOW), BigInt(NOW), {},
          [NOW],
          String(NOW), true, NOW * 1e3, NOW * 1e6, () => NOW];
        for (const keep of ["time", "nothing", "place"]) {
          const policy = new Policy(mechanism, { storage: inMemory(), keep, limit: 3 });
          const before = await count(policy, wrong.flatMap((now) => Array(20).fill(now)));
          told[keep] = [before, await count(policy, Array(50).fill(NOW))];
        }
        """,
    )
    for policy, limit in (("time", 1), ("nothing", 3), ("place", 1)):
        refused_state, valid_state = answers[policy]
        assert refused_state == [0, 15 * 20, ["RangeError"]]
        assert valid_state == [limit, 0, []]


def test_clock_may_run_back_within_the_policy(export_folders):
    answers = run(
        export_folders["plane"],
        """
        for (const [key, options, back] of [["default", {}, 72], ["none", { backHours: 0 }, 0],
          ["two", { backHours: 2 }, 2],
          ["any", { backHours: Infinity }, 1e5]]) {
          const fixed = { storage: inMemory(), keep: "nothing", limit: 3, per: "day" };
          const policy = new Policy(mechanism, { ...fixed, ...options });
          told[key] = [await count(policy, [NOW]), await count(policy, [NOW - back * HOUR]),
            await count(policy, [NOW - back * HOUR - 1]), await count(policy, Array(9).fill(NOW - back * HOUR))];
        }
        told.wrong = [-1, NaN, "5", null].map((backHours) => {
          try { return typeof new Policy(mechanism, { storage: inMemory(), backHours }); } catch (e) { return name(e); }
        });
        """,
    )
    for key in ("default", "none", "two"):
        assert answers[key] == [[1, 0, []], [1, 0, []], [0, 1, ["RangeError"]], [1, 0, []]], key
    assert answers["any"] == [[1, 0, []], [1, 0, []], [1, 0, []], [0, 0, []]]
    assert answers["wrong"] == ["RangeError"] * 4


STATES = """
const storage = inMemory();
const valid = async (keep) => {
  await storage.set(undefined);
  await new Policy(mechanism, { storage: { ...storage }, keep }).report(mechanism.ids[0], NOW);
  return structuredClone(await storage.get());
};
const changes = {
  time: [undefined, null, NaN, Infinity, -1, 1e18, "x", String(NOW), {}, BigInt(NOW)],
  drawn: [undefined, null, NaN, Infinity, -1, -5, 0.5, 1.5, 2 ** 53, "1", true, [1], 0],
  kept: [undefined, null, {}, "x", [], [null], [undefined], [[]], [{}], [{ report: null }], [{ report: {} }],
    [{ report: { id: 1 } }], [{ report: { id: "x", x: NaN } }], [{ report: { id: "x" }, more: 1 }], new Array(1),
    [{ report: { id: "x" }, cell: "nowhere" }], [{ report: { id: "x" }, cell: 5 }],
    [{ report: { id: "x" }, level: 5 }], [{ report: { id: "x" }, level: "-1" }],
    [{ report: { id: "x" }, level: "1.5" }]],
  release: [undefined, null, "another's", 5, {}],
  more: [undefined, 1],
};
told.accepted = [];
told.names = [];
for (const keep of ["time", "place", "nothing"]) {
  const right = await valid(keep);
  const odd = Object.entries(changes).flatMap(([key, values]) => values.map((value) => ({ ...right, [key]: value })));
  odd.push(...Object.keys(right).map((key) => { const { [key]: gone, ...rest } = right; return rest; }));
  odd.push("text", [], 0, true, 5n, [right], NaN, { ...right, [Symbol.iterator]: 1, more: 0 }, JSON.stringify(right));
  for (const state of odd) {
    let held = state;
    const own = { get: async () => held, set: async (given) => { held = given; } };
    const policy = new Policy(mechanism, { storage: own, keep, limit: 2 });
    const [drawn, errors, names] = await count(policy, Array(6).fill(NOW));
    if (drawn || errors !== 6) told.accepted.push(JSON.stringify(state, (_, v) => typeof v === "bigint" ? "n" : v));
    told.names.push(...names);
  }
  const own = { get: async () => right, set: async () => {} };
  told[keep] = await count(new Policy(mechanism, { storage: own, keep, limit: 1 }), [NOW, NOW, NOW]);
}
told.names = [...new Set(told.names)];
"""


def test_unknown_states_count_as_lost_reports(export_folders):
    answers = run(export_folders["plane"], STATES)
    assert answers["accepted"] == []
    assert answers["names"] == ["LostReportsError"]
    for policy in ("time", "place", "nothing"):  # what a policy stored itself is believed
        assert answers[policy] == [0, 0, []]


def test_refuses_second_policy_without_locks(export_folders):
    answers = run(
        export_folders["plane"],
        """
        const storage = inMemory();
        const slow = { get: async () => { await new Promise((r) => setTimeout(r, 5)); return storage.get(); },
          set: storage.set };
        const first = new Policy(mechanism, { storage: slow, limit: 1 });
        told.shares = first.canShareStorage;
        try { told.second = typeof new Policy(mechanism, { storage: slow }); }
        catch (e) { told.second = name(e); }
        const both = await Promise.all([first.report(mechanism.ids[0]), first.report(mechanism.ids[0])]);
        told.drawn = both.map((given) => given.drawn);
        told.other = typeof new Policy(mechanism, { storage: inMemory(), limit: 1 });
        new Policy(mechanism);
        try { told.sealed = typeof new Policy(mechanism); } catch (e) { told.sealed = name(e); }
        """,
    )
    assert answers == {
        "shares": False,
        "second": "RangeError",
        "drawn": [True, False],
        "other": "object",
        "sealed": "RangeError",
    }


def test_policies_share_storage_with_locks(export_folders):
    answers = run(
        export_folders["plane"],
        """
        let last = Promise.resolve();
        const locks = { request: (_, act) => (last = last.then(act, act)) };
        Object.defineProperty(globalThis, "navigator", { value: { locks }, configurable: true });
        const storage = inMemory();
        const slow = { get: async () => { await new Promise((r) => setTimeout(r, 5)); return storage.get(); },
          set: storage.set };
        const policies = [1, 2, 3].map(() => new Policy(mechanism, { storage: slow, limit: 1 }));
        told.shares = policies[0].canShareStorage;
        const given = await Promise.all(policies.map((policy) => policy.report(mechanism.ids[0], NOW)));
        told.drawn = given.map((one) => one.drawn);
        """,
    )
    assert answers == {"shares": True, "drawn": [True, False, False]}


DATABASE = """
const stores = new Map();
const later = (act) => { const request = {}; queueMicrotask(() => act(request)); return request; };
globalThis.indexedDB = { open: (name) => later((request) => {
  if (!stores.has(name)) { stores.set(name, new Map()); }
  const parts = stores.get(name);
  request.result = { createObjectStore: () => {}, close: () => {}, transaction: () => {
    const running = { objectStore: () => ({
      get: (key) => ({ result: parts.get(key) }),
      put: (value, key) => { parts.set(key, value); return {}; },
    }) };
    queueMicrotask(() => running.oncomplete());
    return running;
  } };
  request.onupgradeneeded?.();
  request.onsuccess();
}) };
"""


@pytest.mark.parametrize("name", ["plane", "predictive"])
def test_sealed_states_round_trip(export_folders, name):
    answers = run(
        export_folders[name],
        DATABASE
        + """
        const storage = sealed("round");
        told.same = storage === sealed("round");
        const policy = new Policy(mechanism, { storage, limit: 3, per: "day" });
        const first = [], again = [];
        for (let n = 0; n < 40; n += 1) {
          first.push((await policy.report(mechanism.ids[n % 2 ? 0 : mechanism.ids.length - 1], NOW)).report.id);
        }
        told.state = await storage.get();
        const fresh = { get: storage.get, set: storage.set };
        const reopened = new Policy(mechanism, { storage: fresh, limit: 3, per: "day" });
        const given = await reopened.report(mechanism.ids[0], NOW);
        told.left = given.left;
        stores.get("round").get("state").data = new ArrayBuffer(20);
        told.broken = await count(reopened, [NOW]);
        """,
    )
    assert answers["same"] is True
    assert set(answers["state"]) == {"release", "time", "drawn", "kept"}
    assert answers["state"]["drawn"] + answers["left"] == 3
    assert answers["broken"] == [0, 1, ["LostReportsError"]]
