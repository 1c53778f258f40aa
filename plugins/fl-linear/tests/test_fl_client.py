"""The JavaScript client: from the same bytes the same lines as Python's, once a round; run by node where it is."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from importlib.resources import files

import pytest
from click.testing import CliRunner

from privopt.numbers.laplace import draw_laplace
from privopt_fl_linear.command import cli
from privopt_fl_linear.messages import Message, collect_reports, parse_epsilon, read_messages

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node on this machine")
MODULE = files("privopt_fl_linear") / "js" / "privopt-fl-linear.mjs"
LOCATIONS = ("a", "  v7 ", 'say "hi" \\ there', "città 7", "駅", "🚉", "a\tb"[:1])
EPSILONS = ("0.1", "1", "2.50", "007.5", "0.0001", "12", "0.333333333", "1000000", "0.0000000001")


def node(script):
    ran = subprocess.run(
        [NODE, "--input-type=module", "-e", script], capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(ran.stdout)


def make_request(rng):
    """Return what is asked, its entropy in hexadecimal, and the line that Python makes of them."""
    request = {
        "location": rng.choice(LOCATIONS),
        "clients": rng.choice((0, 1, 57, 10**12)),
        "epsilon": rng.choice(EPSILONS),
        "round": rng.choice(("2026-11", " x ")),
    }
    entropy, offset, epsilon = rng.randbytes(8192), 0, parse_epsilon(request["epsilon"])

    def source(size):
        nonlocal offset
        offset += size
        return entropy[offset - size : offset]

    noisy = request["clients"] + int(draw_laplace(1, epsilon, source=source)[0])
    sent = Message(location=request["location"], round=request["round"], epsilon=epsilon, noise="discrete", noisy=noisy)
    return {"asked": request, "entropy": entropy.hex(), "line": sent.to_line()}


def test_same_bytes_give_same_lines(tmp_path):
    """600 reports, epsilon from 1e-10 to 1e6, ids in several scripts."""
    rng = random.Random(4)
    vectors = [make_request(rng) for _ in range(600)]
    (tmp_path / "vectors.json").write_text(json.dumps(vectors))
    lines = node(
        f"""
import {{ readFileSync }} from "node:fs";
import {{ reportFrom }} from "{MODULE}";
const vectors = JSON.parse(readFileSync("{tmp_path}/vectors.json", "utf8"));
const found = vectors.map(({{ asked, entropy }}) => reportFrom(asked, Uint8Array.from(Buffer.from(entropy, "hex"))));
console.log(JSON.stringify(found));
"""
    )
    assert lines == [vector["line"] for vector in vectors]
    assert len(set(lines)) > 300


def test_collects_reports_drawn_once_on_device(tmp_path):
    sites = tmp_path / "sites.csv"
    sites.write_text("id,x,y,facility_cost\n" + "".join(f"v{n},0.{n},0,0.2\n" for n in range(5)))
    answers = node(
        f"""
import {{ reportOnce, report }} from "{MODULE}";
const kept = new Map();
const store = {{ getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) }};
const ask = (n, more) => reportOnce({{ location: `v${{n}}`, clients: 40, epsilon: "0.5", round: "1", ...more }}, store);
const first = [0, 1, 2, 3, 4].map((n) => ask(n));
const again = [0, 1, 2, 3, 4].map((n) => ask(n, {{ clients: 41, location: ` v${{n}}` }}));
let refused = 0;
for (const more of [{{ epsilon: "0.6" }}, {{ clients: -1 }}, {{ clients: 1.5 }}, {{ epsilon: 0.5 }},
  {{ epsilon: "1e3" }}, {{ location: "a\\nb" }}, {{ location: "  " }}, {{ round: 7 }},
  {{ epsilon: "0.00000000001" }}]) {{
  try {{ ask(0, more); }} catch (error) {{ refused += error instanceof RangeError ? 1 : 0; }}
}}
const wide = {{ location: "v0", clients: 40, epsilon: "0.01", round: "2" }};
const other = Array.from({{ length: 20 }}, () => report(wide));
console.log(JSON.stringify({{ first, again, refused, differ: new Set(other).size }}));
"""
    )
    assert answers["first"] == answers["again"]
    assert answers["refused"] == 9
    assert answers["differ"] > 10
    (tmp_path / "messages").write_text("\n".join(answers["first"]) + "\n")
    table, silent = collect_reports(sites, read_messages([tmp_path / "messages"]))
    assert silent == []
    assert table.decode().splitlines()[0] == "id,x,y,facility_cost,noisy_clients"


def test_command_writes_the_module(tmp_path):
    completed = CliRunner().invoke(cli, ["client", "--out", str(tmp_path / "client")], standalone_mode=False)
    assert completed.exception is None
    assert (tmp_path / "client" / MODULE.name).read_bytes() == MODULE.read_bytes()


def test_refuses_entropy_that_runs_out():
    message = node(
        f"""
import {{ reportFrom, EntropySpentError }} from "{MODULE}";
let found = "";
try {{ reportFrom({{ location: "a", clients: 3, epsilon: "1", round: "1" }}, new Uint8Array(12)); }}
catch (error) {{ found = error instanceof EntropySpentError ? error.message : "other"; }}
console.log(JSON.stringify(found));
"""
    )
    assert "more than 12 bytes" in message
