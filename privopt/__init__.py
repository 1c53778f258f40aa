"""Optimal privacy mechanisms, with proof.

::

    import privopt as po

    places = po.records(table, id="node", lat="lat", lon="lon")
    problem = po.metric_problem(places, distance=po.roads(edges), epsilon="1.5/km", utility=po.travel_cost(targets))
    release = po.solve("optimal-lp", problem)
    safe = release.apply(trips, lat="start_lat", lon="start_lon")

Names are imported on first use, so that ``import privopt`` is fast.
"""

from privopt.version import VERSION as __version__  # noqa: N811

TYPE_CHECKING = False  # True to type checkers; importing typing would take longer than all the rest of this file

if TYPE_CHECKING:
    from privopt import sql
    from privopt.api.released import OpenRelease, PrivoptWarning, solve
    from privopt.api.released import open_release as open
    from privopt.declare.problems_in_memory import Part, Problem, problem, read_problem, table
    from privopt.errors import PrivoptError
    from privopt.interfaces.cost import Cost
    from privopt.ledger.charge import Charge
    from privopt.ledger.ledger import Ledger
    from privopt_metric_dp.api.problem_parts import (
        cost,
        distances,
        grid,
        mesh,
        metric_problem,
        records,
        roads,
        travel_cost,
        vectors,
    )
    from privopt_metric_dp.mechanisms.certify_matrix import certify
    from privopt_tables.studies.curve import curve

__all__ = [
    "Charge",
    "Cost",
    "Ledger",
    "OpenRelease",
    "Part",
    "PrivoptError",
    "PrivoptWarning",
    "Problem",
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
    "sql",
    "table",
    "travel_cost",
    "vectors",
]

_HOMES = {
    "Charge": "ledger.charge:Charge",
    "Ledger": "ledger.ledger:Ledger",
    "Cost": "interfaces.cost:Cost",
    "Part": "declare.problems_in_memory:Part",
    "PrivoptError": "errors:PrivoptError",
    "PrivoptWarning": "api.released:PrivoptWarning",
    "Problem": "declare.problems_in_memory:Problem",
    "OpenRelease": "api.released:OpenRelease",
    "open": "api.released:open_release",
    "problem": "declare.problems_in_memory:problem",
    "read_problem": "declare.problems_in_memory:read_problem",
    "solve": "api.released:solve",
    "table": "declare.problems_in_memory:table",
}
"""The location of each public name of the core, as ``module:name`` in this package. Plugins add names through
``privopt_names``."""


def __getattr__(name: str) -> object:
    """Import a public name of the core or of a plugin on first use (PEP 562).

    Plugins provide names through the hook ``privopt_names``.

    Raises:
        AttributeError: The name does not exist. The message says which plugins are broken or missing.
    """
    # Python and its tools probe for names such as __path__, which must not load the registry of plugins.
    if name.startswith("_"):
        raise AttributeError(f"module 'privopt' has no attribute {name!r}")
    from importlib import import_module

    if name in _HOMES:
        module, _, target = _HOMES[name].partition(":")
        public_object: object = getattr(import_module(f"{__name__}.{module}"), target)
        return public_object
    if name == "sql":
        return import_module(f"{__name__}.sql")
    from privopt.registry import registry

    if name in registry().of("name"):
        return registry().import_entry("name", name)
    raise AttributeError("; ".join([f"module 'privopt' has no attribute {name!r}", *registry().describe_absences()]))


def __dir__() -> list[str]:
    """Return the names for ``dir(privopt)``: the public names, including those added by plugins."""
    from privopt.registry import registry

    return sorted({*_HOMES, *registry().of("name"), "sql", "__version__"})
