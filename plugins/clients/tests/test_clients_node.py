"""The same bytes of entropy give the same report in Python and in JavaScript: run by node where it is."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from privopt_clients.client import open_artefact

NODE = shutil.which("node")
KINDS = ("earth", "plane", "streets", "words", "columns")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node on this machine")

RUN = """
import { readFileSync } from "node:fs";
import { createHash } from "node:crypto";
import { open } from "%(module)s";
const m = await open(readFileSync("%(folder)s/mechanism.bin"));
"""
CHECK_VECTORS = """
const vectors = JSON.parse(readFileSync("%(folder)s/vectors.json", "utf8"));
const wrong = vectors.filter(({ input, entropy, report }) =>
  JSON.stringify(m.reportFrom(input, Uint8Array.from(Buffer.from(entropy, "hex")))) !== JSON.stringify(report));
console.log(JSON.stringify({ checked: vectors.length, wrong, promise: m.promise, release: m.release }));
"""
HASH_REPORTS = """
const entropy = readFileSync("%(entropy)s");
const hash = createHash("sha256");
const size = %(size)d;
const ids = m.ids;
for (let at = 0; at < entropy.length / size; at += 1) {
  let id = "no block counts";
  try {
    id = m.reportFrom(ids[at %% ids.length], new Uint8Array(entropy.subarray(at * size, (at + 1) * size))).id;
  } catch (error) {
    if (!(error instanceof RangeError)) { throw error; }
  }
  hash.update(id + "\\n");
}
console.log(JSON.stringify(hash.digest("hex")));
"""
CHANGE_BITS = """
const data = readFileSync("%(folder)s/mechanism.bin");
let refused = 0;
for (let at = 0; at < 300; at += 1) {
  const changed = new Uint8Array(data);
  const place = at < 60 ? at : (at * 7919) %% data.length;
  changed[place] ^= 1 << (at %% 8);
  try { await open(changed); } catch (error) { refused += error.name === "Error" ? 1 : 0; }
}
const buffer = new Uint8Array(data).buffer;
const kept = await open(buffer);
new Uint8Array(buffer).fill(0);
console.log(JSON.stringify({ refused, drawn: kept.report(kept.ids[0]).id }));
"""
COUNT_DRAWS = """
const counts = {};
const began = process.hrtime.bigint();
for (let n = 0; n < %(count)d; n += 1) {
  const { id } = m.report(m.ids[0]);
  counts[id] = (counts[id] ?? 0) + 1;
}
console.log(JSON.stringify({ counts, nanoseconds: Number(process.hrtime.bigint() - began) }));
"""


def run(folder: Path, script: str, **more: object):
    names = {"module": (folder / "privopt-client.mjs").as_posix(), "folder": folder.as_posix(), **more}
    done = subprocess.run(
        [NODE, "--input-type=module", "-"], input=(RUN + script) % names, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", KINDS)
def test_vectors_hold_in_node(exported, name):
    found = run(exported[name], CHECK_VECTORS)
    client = open_artefact((exported[name] / "mechanism.bin").read_bytes())
    assert found["checked"] == 64
    assert found["wrong"] == []
    assert (found["promise"], found["release"]) == (client.promise, client.release)


def hash_of(folder: Path, entropy: Path, size: int) -> str:
    return run(folder, HASH_REPORTS, entropy=entropy.as_posix(), size=size)


@pytest.mark.parametrize("name", KINDS)
def test_strings_of_entropy_give_the_same_reports(exported, name, same_reports):
    same_reports(exported[name], 10_000, partial(hash_of, exported[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_million_strings_of_entropy_give_the_same_reports(exported, name, same_reports):
    same_reports(exported[name], 1_000_000, partial(hash_of, exported[name]))


@pytest.mark.parametrize("name", ["earth", "words"])
def test_node_refuses_changed_bits(exported, name):
    found = run(exported[name], CHANGE_BITS)
    assert found["refused"] == 300
    assert found["drawn"]


def test_draws_in_node_follow_the_row(releases, exported):
    import numpy as np
    from scipy.stats import chisquare

    from privopt_metric_dp.matrix.release import MatrixRelease

    release, count = MatrixRelease.alone(releases["plane"]), 20_000
    counts = run(exported["plane"], COUNT_DRAWS, count=count)["counts"]
    expected = release.weights[0] / 2.0**63 * count
    seen = np.array([counts.get(name, 0) for name in release.outputs.tolist()], dtype=float)
    often = expected >= 5
    seen, expected = (np.append(x[often], x[~often].sum()) for x in (seen, expected))
    assert chisquare(seen[expected > 0], expected[expected > 0]).pvalue > 1e-6


def test_the_module_is_small_and_stands_alone(exported):
    import gzip

    text = (exported["earth"] / "privopt-client.mjs").read_text("utf-8")
    assert len(text.splitlines()) <= 500
    assert max(map(len, text.splitlines())) <= 120
    assert len(gzip.compress(text.encode())) < 12_000
    assert "import " not in text.replace("// ", "")


PAGE = """
class Element {
  constructor(text = "") { Object.assign(this, { textContent: text, value: "", children: [], attributes: {} }); }
  append(...more) { this.children.push(...more); }
  replaceChildren() { this.children = []; }
  setAttribute(name, value) { this.attributes[name] = value; }
  removeAttribute(name) { this.shown = name === "hidden"; }
  addEventListener(name, listener) { this.listener = listener; }
  querySelector() { return this.button ??= new Element(); }
}
const elements = {};
globalThis.Option = class extends Element {};
globalThis.document = {
  getElementById: (id) => elements[id] ??= new Element(id === "mechanism" ? MECHANISM : ""),
  createElementNS: () => new Element(),
};
"""
PRESSED = """
const press = (place, first, second) => {
  Object.assign(by("place"), { value: place });
  Object.assign(by("first"), { value: first });
  Object.assign(by("second"), { value: second });
  by("form").listener({ preventDefault() {} });
  return by("report").textContent;
};
const said = [press(by("place").children[0].textContent, "", ""), press("", "41.86", "12.44"), press("", "95", "12.4")];
const { promise, count, picture } = elements;
console.log(JSON.stringify({ said, promise: promise.textContent, count: count.textContent,
  places: by("place").children.length, dots: picture.children.length, shown: picture.shown === true }));
"""


def test_the_page_draws_with_what_is_inside_it(exported):
    """Its script runs among stand-ins for the elements that it names; nothing is read but the page."""
    page = (exported["earth"] / "index.html").read_text("utf-8")
    inside = page.split('id="mechanism">')[1].split("</script>")[0]
    script = page.split('<script type="module">')[1].split("</script>")[0]
    text = f"const MECHANISM = {json.dumps(inside)};\n{PAGE}{script}{PRESSED}".replace(
        "new Option(id, id)", "new Option(id)"
    )
    done = subprocess.run(
        [NODE, "--input-type=module", "-"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    client = open_artefact((exported["earth"] / "mechanism.bin").read_bytes())
    assert found["promise"] == client.promise
    assert [said.startswith("id ") for said in found["said"]] == [True, True, False]
    assert (found["places"], found["dots"], found["shown"], found["count"]) == (20, 21, True, 2)
    named = set(re.findall(r'by\("([\w-]+)"\)', script))
    assert named <= set(re.findall(r'id="([\w-]+)"', page))
    assert not re.search(r"(src|href)=|https?://(?!www\.w3\.org/2000/svg)", page)


POSITIONS = """
const asked = JSON.parse(readFileSync("%(folder)s/positions.json", "utf8"));
console.log(JSON.stringify(asked.map((position) => m.reportFrom(position, new Uint8Array(m.entropy).fill(0x55)).id)));
"""


@pytest.mark.parametrize("name", ["earth", "plane", "columns"])
def test_positions_have_the_same_record_in_node(exported, name):
    """Midpoints too, where squares are equal or differ by a unit; the entropy asks for each row's first third."""
    folder = exported[name]
    client = open_artefact((folder / "mechanism.bin").read_bytes())
    points, source = client.positions, random.Random(1)
    pairs = [(source.choice(points), source.choice(points)) for _ in range(500)]
    asked = [[(a + c) / 2, (b + d) / 2] for (a, b), (c, d) in pairs]
    asked += [[a + source.gauss(0, 0.01), b + source.gauss(0, 0.01)] for (a, b), _ in pairs]
    (folder / "positions.json").write_text(json.dumps(asked))
    try:
        found = run(folder, POSITIONS)
    finally:
        (folder / "positions.json").unlink()
    entropy = b"\x55" * client.entropy
    assert found == [client.report_from(position, entropy)["id"] for position in asked]
    assert len(set(found)) > len(points) / 4
