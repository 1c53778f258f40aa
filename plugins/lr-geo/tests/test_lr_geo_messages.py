"""What users hand over to the server: messages of one class, and nothing that leads back to a user."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from attrs import asdict, evolve

from privopt.declare import load_problem
from privopt.errors import InputError
from privopt.interfaces import SolveContext
from privopt_lr_geo import server
from privopt_lr_geo.central import clients_of
from privopt_lr_geo.mechanism import LRGeo
from privopt_lr_geo.messages import Answer, Extract, Package, Request, Terms, from_bytes, to_bytes
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem


@pytest.fixture
def package():
    chance = np.random.default_rng(0)
    d = chance.random((3, 3))
    return Package(distances=d, reach=chance.random((3, 5)), costs=chance.random((3, 5)), free=np.eye(3, 5) > 0)


def reachable_objects(value):
    """All objects that lead on from a value, classes and modules left out."""
    objects_by_id, pending = {}, [value]
    while pending:
        item = pending.pop()
        if id(item) not in objects_by_id and not isinstance(item, type):
            objects_by_id[id(item)] = item
            pending += gc.get_referents(item)
            pending += [item.base] if isinstance(item, np.ndarray) and item.base is not None else []
    return list(objects_by_id.values())


@pytest.mark.parametrize("method", ["benders", "full"])
def test_server_receives_only_packages(write, monkeypatch, method):
    """Numbers in arrays of its own: no name of a record, nothing of the problem, no order, no seed."""
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, write()))
    handed = []
    solve = server.solve

    def record_and_solve(*arguments, **options):
        handed.append((arguments, options))
        return solve(*arguments, **options)

    monkeypatch.setattr(server, "solve", record_and_solve)
    LRGeo().solve(problem, SolveContext(method=method, solver="highs", seed=11))
    (((packages, terms, context), options),) = handed
    assert options == {}
    assert context.seed is None
    assert type(terms) is Terms
    assert [type(package) for package in packages] == [Package] * 2
    kinds = {type(item) for package in packages for item in reachable_objects(package)}
    assert kinds <= {Package, np.ndarray, *(type(np.dtype(kind)) for kind in ("f8", "?"))}
    clients = clients_of(problem, 11)
    for package, client in zip(packages, clients, strict=True):
        records = client.around.records
        in_order = {"distances": problem.data.metric.between(records[:, None], records[None, :]), "costs": client.costs}
        for name, array in asdict(package).items():
            assert np.array_equal(array, getattr(client.package, name))
        for name, array in in_order.items():
            assert not np.array_equal(getattr(package, name), array), f"{name} in the order of the map"


def test_table_is_asked_only_for_circles(write, monkeypatch):
    from privopt_lr_geo.reference import ReferenceTable

    path = write()
    text = path.read_text().replace('kind = "distance"', 'kind = "travel-cost"')
    path.write_text(text + "reference_cell_km = 0.4\n")
    requests = []
    circle = ReferenceTable.circle

    def record_and_extract(self, request):
        requests.append(request)
        extract = circle(self, request)
        assert type(extract) is Extract
        return extract

    monkeypatch.setattr(ReferenceTable, "circle", record_and_extract)
    LRGeo().solve(LRGeoInstance.of(load_problem(LRGeoProblem, path)), SolveContext(method="full", solver="highs"))
    assert [type(request) for request in requests] == [Request] * 2
    assert {type(item) for request in requests for item in reachable_objects(request)} == {Request, int, float}


def test_messages_round_trip_as_bytes(package):
    for message in (
        package,
        Answer(z=package.costs),
    ):
        decoded = from_bytes(type(message), to_bytes(message))
        for name, value in asdict(message).items():
            assert np.array_equal(getattr(decoded, name), value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"costs": np.zeros((3, 4))}, "costs"),
        ({"free": np.zeros((3, 5))}, "free: expected "),
        ({"distances": -np.ones((3, 3))}, "negative distances"),
        ({"costs": np.full((3, 5), np.inf)}, "infinite costs"),
        ({"distances": np.zeros((3, 2))}, "distances"),
    ],
)
def test_refuses_invalid_packages(package, change, words):
    with pytest.raises(InputError, match=words):
        evolve(package, **change)


def test_refuses_other_bytes(package, monkeypatch):
    raw = to_bytes(package)
    with pytest.raises(InputError, match="other bytes"):
        from_bytes(Package, raw[:-30])
    with pytest.raises(InputError, match=r"expected format, z.*got .*costs.*reach"):
        from_bytes(Answer, raw)
    monkeypatch.setattr("privopt_lr_geo.messages.FORMAT_VERSION", 2)
    with pytest.raises(InputError, match=r"format: expected 2.*, got 1"):
        from_bytes(Package, raw)
    monkeypatch.setattr("privopt_lr_geo.messages.LARGEST_BYTES", 100)
    with pytest.raises(InputError, match="other bytes"):
        from_bytes(Package, raw)
