"""Distances along streets, against the table of all pairs; and sites that send no count."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from privopt.command.cli import cli as whole
from privopt.errors import InputError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_fl_linear.command import cli
from privopt_fl_linear.metric import Matrix
from privopt_fl_linear.reconnection import reconnect
from privopt_fl_linear.site import Site
from privopt_fl_linear.streets import Streets

TOML = '[locations]\npoints = "sites.csv"\n{}[privacy]\nepsilon = 0.5\n[fl-linear]\n{}\n'


def network(seed, nodes, more):
    """Return a random tree and some edges beside, of whole lengths (ties, and sums that are exact), 0 among them."""
    rng = np.random.default_rng(seed)
    ends = [(int(rng.integers(0, v)), v) for v in range(1, nodes)]
    ends += [tuple(rng.integers(0, nodes, 2).tolist()) for _ in range(more)]
    return np.array(ends, dtype=np.int64).reshape(-1, 2), rng.integers(0, 5, len(ends)) * 1.0


@given(st.integers(0, 10**6), st.integers(1, 14), st.integers(0, 12), st.integers(0, 6))
def test_every_answer_is_that_of_the_table(seed, locations, others, more):
    nodes = locations + others
    ends, km = network(seed, nodes, more) if nodes > 1 else (np.array([[0, 0]]), np.zeros(1))
    names = np.array([f"n{v:02d}" for v in range(nodes)])
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(nodes, locations, replace=False))
    streets = Streets(names[ends[:, 0]], names[ends[:, 1]], km, names[chosen])
    dense = np.full((nodes, nodes), np.inf)
    for (a, b), length in zip(ends, km, strict=True):
        dense[a, b] = dense[b, a] = min(dense[a, b], length)
    for _ in range(nodes):  # Floyd and Warshall, too short to be wrong
        dense = np.minimum(dense, (dense[:, :, None] + dense[None]).min(axis=1))
    np.fill_diagonal(dense, 0.0)
    table = Matrix(dense[np.ix_(chosen, chosen)])
    everyone, cost, rank = np.arange(locations), rng.integers(0, 4, locations) * 1.0, rng.permutation(locations)
    u, v = (index.ravel() for index in np.indices((locations, locations)))
    assert np.array_equal(streets.between(u, v), table.between(u, v))
    for radius in (0.0, 1.0, 3.0):
        sites = [Site(metric=m, cost=cost, rank=rank) for m in (streets, table)]
        one, two = (site.connect() for site in sites)
        assert np.array_equal(one.facility, two.facility)
        one, two = (reconnect(site, one, radius) for site in sites)
        assert np.array_equal(one.facility, two.facility)
        assert np.array_equal(streets.crowded(everyone, radius, 3.0), table.crowded(everyone, radius, 3.0))
        assert np.array_equal(streets.balls(everyone[::2], rank, radius), table.balls(everyone[::2], rank, radius))
    assert table.extent <= streets.extent <= 2.0 * table.extent


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
    roads = ["from,to,km", *(f"c{a},c{b},{k}" for (a, b), k in zip(ends.tolist(), km, strict=True))]
    (tmp_path / "roads.csv").write_text("\n".join(roads) + "\n")
    chosen = rng.choice(144, 60, replace=False)
    cost, clients = rng.uniform(0.1, 0.3, 60).round(3), rng.poisson(30, 60)

    def make(settings="delta = 0.15", *, header="id,facility_cost,clients", row="c{v},{f},{b}", silent=0, matrix=False):
        rows = [header]
        for place, (v, f, b) in enumerate(zip(chosen, cost, clients, strict=True)):
            rows.append(row.format(v=v, f=f, b="" if place < silent else b, s=int(place >= silent), o=3.0 + place))
        (tmp_path / "sites.csv").write_text("\n".join(rows) + "\n")
        named = 'matrix = "d.npy"\n' if matrix else '[distance]\nkind = "graph"\nedges = "roads.csv"\n'
        (tmp_path / "p.toml").write_text(TOML.format(named, settings))
        graph = csr_array((km, (ends[:, 0], ends[:, 1])), shape=(144, 144))
        np.save(tmp_path / "d.npy", shortest_path(graph, directed=False)[np.ix_(chosen, chosen)])
        return tmp_path / "p.toml"

    return make


def run(path, method="reconnection", out="out", **options):
    folder = path.parent / out
    solve("fl-linear", path, folder, Options(method=method, force=True, allow_unsafe=True, **options))
    return folder, json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize(
    "settings", ["delta = 0.15", 'delta = "auto"\nmean_clients = 30', "most_facilities = 5\nmean_clients = 30"]
)
def test_a_town_by_its_streets_is_as_by_its_table(town, settings):
    for method in ("optimal", "laplace"):
        (one, by_streets), (two, by_table) = (
            run(town(settings, matrix=matrix), method, "m" if matrix else "s", seed=4) for matrix in (False, True)
        )
        assert (one / "connections.csv").read_bytes() == (two / "connections.csv").read_bytes()
        assert by_streets["objective"]["value"] == pytest.approx(by_table["objective"]["value"], rel=1e-12)
    folder, result = run(town(settings))
    assert verify(folder).complaints == ()
    assert (folder / "problem" / "roads.csv").is_file()
    assert result["guarantee"]["kind"] == "local-dp"
    again, _ = run(folder / "problem" / "p.toml", out="again")
    assert (again / "connections.csv").read_bytes() == (folder / "connections.csv").read_bytes()


def test_networks_that_will_not_do_are_named(town):
    path = town()
    roads = path.parent / "roads.csv"
    whole = roads.read_text()
    roads.write_text("from,to,km\nc0,c1,1\n")
    with pytest.raises(InputError, match=r"roads.csv: from, to: found no node c\d+"):
        run(path)
    names = [line.split(",")[0] for line in (path.parent / "sites.csv").read_text().splitlines()[1:]]
    roads.write_text("\n".join(["from,to,km", *(f"{name},{name}x,1" for name in names)]) + "\n")
    with pytest.raises(InputError, match=r"no way between .* nor to 58 more locations"):
        run(path)
    roads.write_text(whole.replace(",0.", ",-0.", 1))
    with pytest.raises(InputError, match=r"roads.csv: row 2, column km"):
        run(path)
    roads.write_text(whole)
    path.write_text(path.read_text().replace("[distance]", 'matrix = "d.npy"\n[distance]'))
    with pytest.raises(InputError, match="a matrix and"):
        run(path)


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
    expected = CliRunner().invoke(cli, ["expect", str(town("mean_clients = 30", header="id,facility_cost,sends",
                                  row="c{v},{f},{s}", silent=3)), "--epsilon", "0.5:1:2"])  # fmt: skip
    assert expected.exit_code == 0, expected.output
