"""Optimal privacy mechanisms, with proof.

::

    import privopt as po

    places = po.records(table, id="node", lat="lat", lon="lon")
    problem = po.metric_problem(places, distance=po.roads(edges), epsilon="3/km", utility=po.travel_cost(targets))
    release = po.solve("optimal-lp", problem)
    safe = release.apply(trips, lat="start_lat", lon="start_lon")

Names are imported when they are first asked for: ``import privopt`` loads nothing heavy.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from privopt.errors import PrivoptError
    from privopt.run.ledger.entries import Cost
    from privopt.run.ledger.ledger import Ledger
    from privopt.tables.certify import certify
    from privopt.tables.curve import curve
    from privopt.tables.parts import cost, distances, grid, mesh, metric_problem, records, roads, travel_cost, vectors
    from privopt.tables.problems import Part, Problem, problem, read_problem, table
    from privopt.tables.released import PrivoptWarning, Released, solve
    from privopt.tables.released import open_release as open

__version__ = "0.1.0"

__all__ = [
    "Cost",
    "Ledger",
    "Part",
    "PrivoptError",
    "PrivoptWarning",
    "Problem",
    "Released",
    "__version__",
    "certify",
    "cost",
    "curve",
    "distances",
    "grid",
    "mesh",
    "metric_problem",
    "open",
    "problem",
    "read_problem",
    "records",
    "roads",
    "solve",
    "table",
    "travel_cost",
    "vectors",
]

_HOMES: Final = {
    ".errors": {"PrivoptError"},
    ".tables.certify": {"certify"},
    ".run.ledger.entries": {"Cost"},
    ".run.ledger.ledger": {"Ledger"},
    ".tables.curve": {"curve"},
    ".tables.parts": {
        "cost",
        "distances",
        "grid",
        "mesh",
        "metric_problem",
        "records",
        "roads",
        "travel_cost",
        "vectors",
    },
    ".tables.problems": {"Part", "Problem", "problem", "read_problem", "table"},
    ".tables.released": {"PrivoptWarning", "Released", "open", "solve"},
}
"""Where public names stand."""


def __getattr__(name: str) -> object:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'privopt' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(home, __name__), "open_release" if name == "open" else name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
