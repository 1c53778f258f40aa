"""The stand-alone checker of matrices knows every key of the tables that it reads."""

import attrs
import pytest

from privopt.declare.schema import KEY
from privopt_metric_dp.checkers import losses, metric, places
from privopt_metric_dp.problem.declared import Places
from privopt_metric_dp.problem.distance_kinds import Euclidean, Graph, Haversine, Table
from privopt_metric_dp.problem.loss_kinds import CostMatrix, DistanceLoss, TravelCost


def keys_of(declared_class):
    """Return the keys of a declared table, as problem files spell them."""
    return {field.metadata[KEY].name or field.name for field in attrs.fields(declared_class)}


def test_checker_knows_every_key_of_places():
    # ``choose`` is read by itself, from [outputs] alone.
    assert set(places.TABLE.split()) | {"mesh", "choose"} == keys_of(Places)


@pytest.mark.parametrize("kind", [Euclidean, Haversine, Graph, Table])
def test_checker_knows_every_key_of_a_distance(kind):
    assert set(metric.KEYS[kind.kind].split()) == keys_of(kind) | {"kind"}


def test_checker_knows_every_key_of_losses():
    # ``remap`` and ``per_km`` are accepted if their values have the right form.
    declared = set().union(*(keys_of(kind) for kind in (DistanceLoss, CostMatrix, TravelCost)))
    assert set(losses.KEYS.split()) | {"remap", "per_km"} == declared | {"kind"}
