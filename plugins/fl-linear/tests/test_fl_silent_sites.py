"""Sites that send no count, in a town whose distances are a table."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from privopt.command.cli import cli as whole
from privopt.errors import InputError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_fl_linear.command import cli

TOML = '[locations]\npoints = "sites.csv"\nmatrix = "d.npy"\n[privacy]\nepsilon = 0.5\n[fl-linear]\n{}\n'


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture
def town(tmp_path):
    """Return a grid of 12 x 12 corners; locations at 60 of them, with empty sites among them where asked for."""
    rng = np.random.default_rng(3)
    corner = np.arange(144).reshape(12, 12)
    ends = np.vstack([np.column_stack([corner[:, :-1].ravel(), corner[:, 1:].ravel()]),
                      np.column_stack([corner[:-1].ravel(), corner[1:].ravel()])])  # fmt: skip
    km = rng.uniform(0.05, 0.2, len(ends)).round(3)
    chosen = rng.choice(144, 60, replace=False)
    cost, clients = rng.uniform(0.1, 0.3, 60).round(3), rng.poisson(30, 60)

    def make(settings="delta = 0.15", *, header="id,facility_cost,clients", row="c{v},{f},{b}", silent=0):
        rows = [header]
        for place, (v, f, b) in enumerate(zip(chosen, cost, clients, strict=True)):
            rows.append(row.format(v=v, f=f, b="" if place < silent else b, s=int(place >= silent), o=3.0 + place))
        (tmp_path / "sites.csv").write_text("\n".join(rows) + "\n")
        (tmp_path / "p.toml").write_text(TOML.format(settings))
        graph = csr_array((km, (ends[:, 0], ends[:, 1])), shape=(144, 144))
        np.save(tmp_path / "d.npy", shortest_path(graph, directed=False)[np.ix_(chosen, chosen)])
        return tmp_path / "p.toml"

    return make


def run(path, method="reconnection", out="out", **options):
    folder = path.parent / out
    solve("fl-linear", path, folder, Options(method=method, force=True, allow_unsafe=True, **options))
    return folder, json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize("more", ["", "most_facilities = 6\nmean_clients = 30"])
def test_sites_that_send_nothing_may_hold_facilities_and_no_more(town, more):
    """Whoever is served, and by how large a margin, is as without the sites, but for where facilities stand."""
    made = town(f"delta = 0.15\n{more}", silent=20)
    table = made.parent / "sites.csv"
    rows = [line.split(",") for line in table.read_text().splitlines()]
    silent = {row[0] for row in rows[1:21]}
    cheap = [[name, "0.01" if name in silent else f, b] for name, f, b in rows]
    cheap[0] = rows[0]
    table.write_text("\n".join(map(",".join, cheap)) + "\n")
    for method in ("laplace", "reconnection", "optimal"):
        folder, result = run(made, method)
        links = rows_of(folder / "connections.csv")
        assert {link["id"] for link in links} == {row[0] for row in rows[21:]}
        used = {link["facility"] for link in links}
        assert used & silent  # they are cheap
        assert result["details"]["locations"] == 40
        assert verify(folder).complaints == ()
        if method != "optimal":
            assert result["certificate"]["checked"] == 40
            assert "bounds" not in result["details"]
            sent = {r["id"]: r["noisy_clients"] for r in rows_of(folder / "problem" / "sites.csv")}
            assert {name for name, count in sent.items() if count == ""} == silent
            table, asked = folder / "problem" / "sites.csv", ["--column", "noisy_clients", "--force", "--out"]
            estimated = CliRunner().invoke(
                whole, ["estimate", *map(str, [folder, table, *asked, made.parent / "e.csv"])]
            )
            assert estimated.exit_code == 0, estimated.output
            assert len(rows_of(made.parent / "e.csv")) == 40
            again, _ = run(folder / "problem" / "p.toml", method, out="again")
            assert (again / "capacities.csv").read_bytes() == (folder / "capacities.csv").read_bytes()
    truth = json.loads((folder / "private" / "truth.json").read_text())
    assert truth["clients"] == sum(int(row[2]) for row in rows[21:])


def test_sites_that_say_two_things_are_named(town):
    header, row = "id,facility_cost,candidate,clients,noisy_clients", "c{v},{f},{s},{b},{b}"
    with pytest.raises(InputError, match="a candidate, or a location with a count"):
        run(town(header=header, row=row, silent=2))
    path = town(header="id,facility_cost,clients,noisy_clients", row="c{v},{f},{b},3", silent=2)
    with pytest.raises(InputError, match="row 2, column noisy_clients: found a count"):
        run(path)
    with pytest.raises(InputError, match="sites alone"):
        run(town(silent=60))


def test_messages_know_the_sites_that_send_nothing(town):
    path = town("delta = 0.1", header="id,facility_cost,sends", row="c{v},{f},{s}", silent=3)
    folder = path.parent
    sites = rows_of(folder / "sites.csv")
    senders = [row["id"] for row in sites if row["sends"] == "1"]

    def ask(name):
        options = ["--epsilon", "0.5", "--round", "1", "--kept", str(folder / "sent")]
        done = CliRunner().invoke(cli, ["report", "--location", name, "--clients", "5", *options])
        with (folder / "lines.jsonl").open("a") as file:
            file.write(done.stdout)
        return done

    def gather(out):
        options = ["--sites", str(folder / "sites.csv"), "--out", str(folder / out)]
        return CliRunner().invoke(cli, ["collect", str(folder / "lines.jsonl"), *options])

    for name in senders[1:]:
        assert ask(name).exit_code == 0
    assert f"no report of {senders[0]}" in gather("one").stderr
    ask(senders[0])
    done = gather("one")
    assert done.exit_code == 0, done.output
    table = rows_of(folder / "one" / "locations.csv")
    assert [row["id"] for row in table if row["noisy_clients"] == ""] == [r["id"] for r in sites if r["sends"] == "0"]
    assert "sends" not in table[0]
    ask(sites[0]["id"])
    assert f"0 for {sites[0]['id']}, which sent a report" in gather("two").stderr
