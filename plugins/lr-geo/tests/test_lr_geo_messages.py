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


def reached(value):
    """All objects that lead on from a value, classes and modules left out."""
    found, left = {}, [value]
    while left:
        one = left.pop()
        if id(one) not in found and not isinstance(one, type):
            found[id(one)] = one
            left += gc.get_referents(one)
            left += [one.base] if isinstance(one, np.ndarray) and one.base is not None else []
    return list(found.values())


@pytest.mark.parametrize("method", ["benders", "full"])
def test_the_server_is_handed_packages_and_nothing_else(write, monkeypatch, method):
    """Numbers in arrays of its own: no name of a record, nothing of the problem, no order, no seed."""
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, write()))
    handed = []
    solve = server.solve

    def seen(*arguments, **options):
        handed.append((arguments, options))
        return solve(*arguments, **options)

    monkeypatch.setattr(server, "solve", seen)
    LRGeo().solve(problem, SolveContext(method=method, solver="highs", seed=11))
    (((packages, terms, context), options),) = handed
    assert options == {}
    assert context.seed is None
    assert type(terms) is Terms
    assert [type(package) for package in packages] == [Package] * 2
    kinds = {type(one) for package in packages for one in reached(package)}
    assert kinds <= {Package, np.ndarray, *(type(np.dtype(kind)) for kind in ("f8", "?"))}
    clients = clients_of(problem, 11)
    for package, client in zip(packages, clients, strict=True):
        records = client.around.records
        in_order = {"distances": problem.data.metric.between(records[:, None], records[None, :]), "costs": client.costs}
        for name, array in asdict(package).items():
            assert np.array_equal(array, getattr(client.package, name))
        for name, array in in_order.items():
            assert not np.array_equal(getattr(package, name), array), f"{name} in the order of the map"


def test_the_table_is_asked_for_circles_alone(write, monkeypatch):
    from privopt_lr_geo.reference import ReferenceTable

    path = write()
    text = path.read_text().replace('kind = "distance"', 'kind = "travel-cost"')
    path.write_text(text + "reference_cell_km = 0.4\n")
    asked = []
    circle = ReferenceTable.circle

    def seen(self, request):
        asked.append(request)
        found = circle(self, request)
        assert type(found) is Extract
        return found

    monkeypatch.setattr(ReferenceTable, "circle", seen)
    LRGeo().solve(LRGeoInstance.of(load_problem(LRGeoProblem, path)), SolveContext(method="full", solver="highs"))
    assert [type(request) for request in asked] == [Request] * 2
    assert {type(one) for request in asked for one in reached(request)} == {Request, int, float}


def test_messages_travel_as_bytes(package):
    for message in (
        package,
        Answer(z=package.costs),
    ):
        again = from_bytes(type(message), to_bytes(message))
        for name, value in asdict(message).items():
            assert np.array_equal(getattr(again, name), value)


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
def test_packages_that_cannot_be_are_refused(package, change, words):
    with pytest.raises(InputError, match=words):
        evolve(package, **change)


def test_other_bytes_are_refused(package, monkeypatch):
    raw = to_bytes(package)
    with pytest.raises(InputError, match="other bytes"):
        from_bytes(Package, raw[:-30])
    with pytest.raises(InputError, match=r"expected format, z.*, got .*parts costs, distances, format, free, reach"):
        from_bytes(Answer, raw)
    monkeypatch.setattr("privopt_lr_geo.messages.FORMAT_VERSION", 2)
    with pytest.raises(InputError, match=r"format: expected 2.*, got 1"):
        from_bytes(Package, raw)
    monkeypatch.setattr("privopt_lr_geo.messages.LARGEST_BYTES", 100)
    with pytest.raises(InputError, match="other bytes"):
        from_bytes(Package, raw)
