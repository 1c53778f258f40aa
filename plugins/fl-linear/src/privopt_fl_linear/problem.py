"""The problem solved by FL-Linear: the contents of the problem file and the locations that it names."""

from __future__ import annotations

import io
import math
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.declare import File, at_least, key, non_negative
from privopt.declare.table_words import find_total_names
from privopt.declare.tables import Column, Table, duplicate_faults, read_array, read_table
from privopt.errors import Faults, InputError, conceal
from privopt_fl_linear.location import MOST_CLIENTS, MOST_NOISY, compute_noise_budget
from privopt_fl_linear.margins import Kind, MarginRule
from privopt_fl_linear.metric import Matrix, Metric, Plane, Sphere
from privopt_fl_linear.plan import Server, Sites
from privopt_fl_linear.quantiles import Noise
from privopt_fl_linear.site import Site

__all__ = ["FLInstance", "FLProblem", "Locations", "read_locations"]

MIN_EPSILON = Fraction(1, 10**10)
"""The smallest epsilon allowed in a problem. With this budget, noise exceeds 1e12 only once in e**100 draws."""
MIN_PROBABILITY = 1e-100
"""The smallest failure probability allowed in a problem."""
MAX_SIZE = 1e100
"""The largest coordinate or cost allowed in a problem, chosen so that squares and products do not overflow."""


def _check_probability(value: Any) -> str | None:
    """Return None if the failure probability is valid, and a description of the valid values otherwise."""
    return None if MIN_PROBABILITY <= value < 1 else f"a number of at least {MIN_PROBABILITY:g} and below 1"


@frozen(kw_only=True)
class LocationTable:
    """The ``[locations]`` table of a problem file, which names the files with the locations' data."""

    points: File = key(
        secret=True,
        help="id,x,y,facility_cost,clients (or lat,lon for x,y; with matrix neither); noisy_clients instead of "
        "clients: what the locations sent. opening_cost: the fixed part of a facility's cost, 0 for one that exists; "
        "candidate: 1 where a facility may be, else 0; capacity: most clients that a facility may be built for, empty "
        "for no bound",
    )
    matrix: File | None = key(
        default=None,
        secret=True,
        help="(n, n) metric instead of the coordinates, .npy, in the order of points, which stays secret; published "
        "in the order of the ids",
    )
    totals: Literal["keep"] | None = key(
        default=None,
        help="keep: ids such as Total are locations like the others; default: such ids are refused, since clients "
        "would count twice",
    )


@frozen(kw_only=True)
class Privacy:
    """The ``[privacy]`` table of a problem file, with the privacy budget and the allowed failure probability."""

    epsilon: Fraction = key(help="budget of one client at one location", unit="1/client", check=at_least(MIN_EPSILON))
    failure_probability: float = key(
        default=0.1, help="alpha: with 1 - alpha no facility overflows", check=_check_probability
    )


def _check_radius(value: Any) -> str | None:
    """Return None if the reconnection radius is valid, and a description of the valid values otherwise."""
    return None if value == "auto" else non_negative(value)


@frozen(kw_only=True)
class Settings:
    """The ``[fl-linear]`` table of a problem file, which holds the server's settings."""

    delta: float | Literal["auto"] = key(
        default="auto",
        help="reconnection radius",
        unit="unit of x and y; km with lat, lon",
        check=_check_radius,
    )
    margin: Kind = key(default="exact", help="exact quantile of the noise, or the paper's bound")
    noise: Noise | None = key(
        default=None, help="integer or real noise; default: discrete, or what noisy_clients shows"
    )
    most_facilities: int | None = key(
        default=None, help="facilities that may be opened at all; one that exists has opening_cost 0", check=at_least(1)
    )
    mean_clients: float | None = key(
        default=None, help="mean count, as the public knows it: for auto and the prior's facilities", check=non_negative
    )
    sites: Sites = key(
        default="reports",
        help="where opening is a choice (opening_cost, most_facilities): reports = the noisy counts choose, and the "
        "better of their plan and the prior's is taken, each with half of failure_probability; prior = mean_clients "
        "alone chooses",
    )


@frozen(kw_only=True, eq=False)
class Locations:
    """The locations of a problem, sorted by id because their order in the file may reveal something about the counts.

    Attributes:
        ids: (n,) The locations' ids as strings, in ascending order of Unicode code points.
        coordinates: The names of the two coordinate columns (x and y, or lat and lon in degrees) and their (n, 2)
            values, or None if distances are given by a matrix.
        site: The distances, costs and capacities, which are public.
        clients: (n,) The secret counts as int64, or None if the file has no such column.
        noisy: (n,) The noisy counts that the locations reported, as float64, or None if the file has no such column.
    """

    ids: Any
    coordinates: tuple[tuple[str, str], Any] | None
    site: Site
    clients: Any
    noisy: Any

    def to_csv(self, noisy: NDArray[Any] | None) -> bytes:
        """Return the contents of the public locations file, a CSV file sorted by id without the true counts.

        Args:
            noisy: (n,) The column ``noisy_clients``, or None to leave it out.
        """
        import polars as pl

        columns: dict[str, Any] = {"id": self.ids}
        if self.coordinates is not None:
            (first_name, second_name), values = self.coordinates
            columns |= {first_name: values[:, 0], second_name: values[:, 1]}
        columns["facility_cost"] = self.site.cost
        if self.site.opening is not None:
            columns["opening_cost"] = self.site.opening
        if self.site.candidates is not None:
            columns["candidate"] = np.isin(np.arange(self.site.size), self.site.candidates).astype(np.int64)
        if self.site.capacity is not None:
            capacity = pl.Series(self.site.capacity)
            # As in the file that was read, an infinite capacity is an empty cell.
            columns["capacity"] = pl.select(pl.when(capacity.is_finite()).then(capacity)).to_series()
        if noisy is not None:
            # If all noisy counts are whole numbers below 2**53, they are written as integers, without ".0".
            is_whole = bool((np.abs(noisy) < 2.0**53).all() and (noisy == np.rint(noisy)).all())
            columns["noisy_clients"] = noisy.astype(np.int64) if is_whole else noisy
        buffer = io.BytesIO()
        pl.DataFrame(columns).write_csv(buffer)
        return buffer.getvalue()


@frozen(kw_only=True)
class FLProblem:
    """A problem file for FL-Linear."""

    locations: LocationTable = key(help="where clients are and facilities may be")
    privacy: Privacy = key(help="what is promised")
    settings: Settings = key(name="fl-linear", factory=Settings, help="the server's choices")


@frozen(kw_only=True, eq=False)
class FLInstance:
    """A problem together with its locations.

    Attributes:
        declared: The contents of the problem file.
        data: The locations named in the file.
        file: The name of the problem file, used in error messages.
    """

    declared: FLProblem
    data: Locations
    file: str

    @property
    def noise(self) -> Noise:
        """The kind of Laplace noise, discrete or continuous.

        If the problem file does not set it, it is continuous if any noisy count is fractional, and discrete otherwise.
        """
        if self.declared.settings.noise is not None:
            return self.declared.settings.noise
        noisy = self.data.noisy
        return "discrete" if noisy is None or bool((noisy == np.rint(noisy)).all()) else "continuous"

    @property
    def is_nearest_best(self) -> bool:
        """Whether it is optimal to connect every location to its cheapest facility, whatever the counts are."""
        # `chooses_sites` does not depend on the method, so any method can be used here.
        return not self.make_server("laplace").chooses_sites and self.data.site.capacity is None

    @property
    def is_paper_problem(self) -> bool:
        """Whether this is the problem studied in the paper, so that the paper's cost bounds apply.

        In that problem, every location may have a facility, and there are no fixed costs, no limit on the number of
        facilities and no capacity bounds.
        """
        return self.is_nearest_best and self.data.site.candidates is None

    def make_server(self, method: str) -> Server:
        """Return the public data and settings that the server uses to run a method."""
        settings, privacy = self.declared.settings, self.declared.privacy
        rule = MarginRule(
            n=self.data.site.size,
            # The budget of the noise that is actually drawn may be slightly below epsilon.
            epsilon=float(compute_noise_budget(privacy.epsilon)),
            kind=settings.margin,
            noise=self.noise,
        )
        return Server(
            site=self.data.site,
            rule=rule,
            alpha=privacy.failure_probability,
            # The method "laplace" is reconnection with radius 0.
            delta=0.0 if method == "laplace" else settings.delta,
            sites=settings.sites,
            mean_clients=settings.mean_clients,
            max_facilities=settings.most_facilities,
        )


def read_locations(table: LocationTable, *, must_be_whole: bool) -> Locations:
    """Read the table of locations and, if there is one, the distance matrix, and sort both by id.

    Args:
        table: The ``[locations]`` table, which names the files.
        must_be_whole: Whether noisy counts must be whole numbers.

    Raises:
        InputError: A file cannot be read or has invalid contents. The error lists all faults that were found.
    """
    columns = [
        Column(name="id", kind="id"),
        Column(name="facility_cost", least=0.0, most=MAX_SIZE, unit="for one client"),
        Column(name="opening_cost", least=0.0, most=MAX_SIZE, optional=True),
        Column(name="candidate", kind="count", one_of=(0, 1), optional=True),
        Column(name="capacity", least=0.0, optional=True, unit="clients", blank=math.inf),
        Column(name="clients", kind="count", least=0, most=MOST_CLIENTS, optional=True),
        Column(name="noisy_clients", least=-MOST_NOISY, most=MOST_NOISY, optional=True),
    ]
    choices = [("x", "y"), ("lat", "lon")] if table.matrix is None else []
    for name in [name for pair in choices for name in pair]:
        size = 90.0 if name == "lat" else MAX_SIZE
        columns.append(Column(name=name, least=-size, most=size, optional=True))
    # Without a matrix, the table must have either x and y or lat and lon.
    columns_by_name = read_table(table.points, columns, any_of=choices)
    _check_rows(table, columns_by_name, must_be_whole=must_be_whole)
    # Sort by id, because the order of the file's rows may reveal something about the counts.
    order = np.argsort(columns_by_name["id"], kind="stable")
    metric, coordinates = _read_metric(table, columns_by_name, order)
    columns_by_name = {name: _remove_negative_zeros(values[order]) for name, values in columns_by_name.items()}
    site = Site(
        metric=metric,
        cost=columns_by_name["facility_cost"],
        opening=columns_by_name.get("opening_cost"),
        candidates=np.flatnonzero(columns_by_name["candidate"]) if "candidate" in columns_by_name else None,
        capacity=columns_by_name.get("capacity"),
        source=table.points.name,
    )
    return Locations(
        ids=columns_by_name["id"],
        coordinates=coordinates,
        site=site,
        clients=columns_by_name.get("clients"),
        noisy=columns_by_name.get("noisy_clients"),
    )


def _remove_negative_zeros(values: Any) -> Any:
    """Return the array with -0.0 replaced by 0.0, so that equal numbers are published as equal bytes."""
    return values + 0.0 if values.dtype.kind == "f" else values


def _check_rows(table: LocationTable, columns: Table, *, must_be_whole: bool) -> None:
    """Check the ids, the candidates and the noisy counts of all locations.

    Ids must be unique. No id may suggest that its row is a total of the other rows (such as "total"), unless the
    problem file says to keep such rows. At least one location must be a candidate for a facility. If ``must_be_whole``
    is set, noisy counts must be whole numbers.

    Args:
        table: The ``[locations]`` table, which names the files.
        columns: The columns of the table, keyed by name.
        must_be_whole: Whether noisy counts must be whole numbers.

    Raises:
        InputError: Some rows fail these checks. The error lists the faults.
    """
    name = table.points.name
    # Ids are not quoted, because they come from a secret file.
    faults = Faults(duplicate_faults(name, columns["id"], is_secret=True))
    if table.totals is None:
        # A spreadsheet's row of totals counts every client a second time, which epsilon does not account for.
        totals = find_total_names(columns["id"].tolist(), allow_letters=False)
        rows = np.flatnonzero(np.isin(columns["id"], totals)).tolist() if totals else []
        expectation = 'the other locations alone, or totals = "keep" in [locations] if it is a location'
        faults.add_rows(name, "id", rows, lambda row: "a total of the other locations, by its name", expectation)
    if not columns.get("candidate", np.ones(1)).any():
        faults.add(name, "column candidate", "0 everywhere", "1 for some location")
    noisy = columns.get("noisy_clients", np.zeros(1))
    if must_be_whole:
        broken = np.flatnonzero(noisy != np.rint(noisy)).tolist()
        expectation = 'a whole number, for noise = "discrete"'
        faults.add_rows(name, "noisy_clients", broken, lambda row: "another number", expectation)
    faults.check()


def _read_metric(
    table: LocationTable, columns: Table, order: NDArray[np.int64]
) -> tuple[Metric, tuple[tuple[str, str], Any] | None]:
    """Return the metric between the locations, based on the distance matrix or, without one, on coordinates.

    Columns x and y give the planar metric, and columns lat and lon the spherical one.

    Args:
        table: The ``[locations]`` table, which names the files.
        columns: The columns of the locations file, keyed by name.
        order: (n,) The indices of the file's rows, sorted by id. The results are in this order.

    Returns:
        The metric and the coordinates. The coordinates consist of the names of the two columns and their (n, 2) values,
        with -0.0 replaced by 0.0. They are None if there is a matrix.

    Raises:
        InputError: The matrix is not a metric. The message does not quote its values.
    """
    if table.matrix is not None:
        distances = _remove_negative_zeros(
            read_array(table.matrix, (len(order), len(order)), what="distances", minimum=0.0)
        )
        # Put rows and columns into the order of the sorted ids.
        sorted_distances = distances[np.ix_(order, order)]
        try:
            return Matrix(sorted_distances, source=table.matrix.name, file_rows=order), None
        except InputError as error:
            raise InputError(conceal(error.faults)) from None  # the file is secret
    names = ("x", "y") if "x" in columns and "y" in columns else ("lat", "lon")
    values = _remove_negative_zeros(np.column_stack([columns[name] for name in names])[order])
    return (Plane(values) if names == ("x", "y") else Sphere(values)), (names, values)
