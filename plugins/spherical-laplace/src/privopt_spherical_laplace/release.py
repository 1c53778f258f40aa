"""The release of spherical-laplace: the parameters of the noise, from which reports are drawn for any position."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.declare.columns import read_columns, write_columns
from privopt.declare.tables import Column
from privopt.errors import DoesNotHoldError, Fault, InputError
from privopt.numbers.noise import stated_scale
from privopt.numbers.sampling import Source
from privopt_metric_dp.matrix.release import PositionRelease
from privopt_spherical_laplace.places import coordinates_of, decimal_text, ids_of, parse_position
from privopt_spherical_laplace.problem import SphereInstance
from privopt_spherical_laplace.sampler.exact import RADIUS_KM
from privopt_spherical_laplace.sampler.fast import draw_positions

__all__ = ["LAW", "REMAP", "SphereRelease", "describe_outputs", "number_text"]

LAW: Final = "law.csv"
REMAP: Final = "remap.csv"

_MAX_DECIMALS: Final = 999
_DECIMAL: Final = re.compile(r"[0-9]{1,40}\.[0-9]{1,999}")


def describe_outputs(problem: SphereInstance) -> tuple[str, str]:
    """Return the kind of outputs and its argument as written to law.csv, such as ``("digits", "3")``."""
    outputs = problem.declared.outputs
    if outputs.digits is not None:
        return "digits", str(outputs.digits)
    return ("points", "") if outputs.grid is None else ("grid", number_text(outputs.grid))


def number_text(value: Fraction) -> str:
    """Format a rational number exactly, as a decimal if 999 decimal places suffice, and otherwise as a quotient.

    >>> number_text(Fraction(7, 5)), number_text(Fraction(1, 10**6)), number_text(Fraction(1, 3))
    ('1.4', '0.000001', '1/3')
    """
    decimals = next((k for k in range(_MAX_DECIMALS + 1) if 10**k % value.denominator == 0), None)
    return str(value) if decimals is None else decimal_text(int(value * 10**decimals), decimals)


def _read_number(text: str) -> Fraction:
    """Parse a positive number in the form written by :func:`number_text`.

    Raises:
        ValueError: The string has a different form. Exponents and overlong strings are rejected, because parsing them
            could take hours.
    """
    if _DECIMAL.fullmatch(text) and Fraction(text) > 0:
        return Fraction(text)
    return stated_scale(text)


@frozen(kw_only=True, eq=False)
class SphereRelease(PositionRelease):
    """A release of spherical-laplace: the parameters of the noise, and the rule for rounding.

    At distance d from the true position, the density of the noise is proportional to exp(-epsilon d).

    Attributes:
        problem: The problem, which provides the rule for rounding and, if reports are points, the N points.
        epsilon: The rate of the noise, per km.
        radius_km: The radius of the sphere, in km.
        remap: (N,) The index of the point to report in place of each nearest point. None if points are not remapped.
    """

    problem: SphereInstance
    epsilon: Fraction
    radius_km: Fraction = RADIUS_KM
    remap: Ints | None = None

    def write(self, folder: Path) -> None:
        """Write the parameters to law.csv and, if points are remapped, the mapping to remap.csv."""
        kind, argument = describe_outputs(self.problem)
        law = {
            "epsilon": number_text(self.epsilon),
            "radius_km": number_text(self.radius_km),
            "outputs": kind,
            "argument": argument,
        }
        write_columns(folder / LAW, {name: [text] for name, text in law.items()})
        if self.remap is not None and self.problem.points is not None:
            ids = self.problem.points.ids
            write_columns(folder / REMAP, {"point": ids, "report": [ids[number] for number in self.remap.tolist()]})

    @classmethod
    def read(cls, folder: Path, problem: SphereInstance) -> SphereRelease:
        """Read the release from law.csv and, if points are remapped, remap.csv.

        Raises:
            InputError: A file is missing or malformed, or remap.csv exists although points are not remapped.
            DoesNotHoldError: The outputs in law.csv differ from those declared in the problem.
        """
        path = folder / LAW
        texts = ("epsilon", "radius_km", "outputs", "argument")
        table = read_columns(path, [Column(name=name, kind="text") for name in texts])
        if len(table) != 1:
            raise InputError([Fault(str(path), "", f"{len(table)} rows", "one row")])
        epsilon, radius, kind, argument = table.row(0)
        if (kind, argument) != describe_outputs(problem):
            raise DoesNotHoldError(f"{LAW}: the outputs are not those of the problem")
        try:
            rates = _read_number(epsilon), _read_number(radius)
        except ValueError:
            raise InputError([Fault(str(path), "row 2", "no numbers", "a rate and a radius above 0")]) from None
        return cls(problem=problem, epsilon=rates[0], radius_km=rates[1], remap=_read_remap(folder, problem))

    def draw(self, latitudes: Floats, longitudes: Floats, *, source: Source | None = None) -> tuple[list[str], Floats]:
        """Draw one report for each position.

        Args:
            latitudes, longitudes: (n,) The coordinates of the positions in degrees, from -90 to 90 and from -180 to
                180.
            source: A function that returns a given number of random bytes. By default, they come from the operating
                system.

        Returns:
            The ids of the reports, and their latitudes and longitudes in degrees, as an array of shape (n, 2).
        """
        outputs = draw_positions(latitudes, longitudes, self.epsilon, self.problem.rounding, source=source)
        if self.remap is not None:
            outputs = self.remap[outputs[:, 0]][:, None]
        points = self.problem.points
        ids = ids_of(self.problem.rounding, outputs, () if points is None else points.ids)
        return ids, coordinates_of(self.problem.rounding, outputs, points)

    def sample(self, input_id: str, count: int) -> list[str]:
        """Draw several reports for the same position, and return their ids.

        Args:
            input_id: The position, as the id of one of the problem's points or as ``LAT,LON`` in degrees.
            count: The number of reports.

        Raises:
            UnknownNameError: ``input_id`` is neither an id nor a position.
        """
        points = self.problem.points
        if points is not None and points.coordinates is not None and input_id in points.ids:
            latitude, longitude = points.coordinates[points.ids.index(input_id)].tolist()
        else:
            latitude, longitude = parse_position(input_id)
        # A file of points may have longitudes from 0 to 360 degrees.
        longitude = longitude - 360.0 if longitude > 180.0 else longitude
        return self.draw(np.full(count, latitude), np.full(count, longitude))[0]


def _read_remap(folder: Path, problem: SphereInstance) -> Ints | None:
    """Read remap.csv, which specifies the point to report in place of each nearest point.

    Returns:
        (N,) The indices of the points to report, or None if points are not remapped.

    Raises:
        InputError: The file is missing or malformed, or it exists although the problem does not require remapping.
    """
    path = folder / REMAP
    if not problem.is_remapped or problem.points is None:
        # exists() is False for a broken symbolic link, which is not allowed in the folder either.
        if path.exists() or path.is_symlink():
            raise InputError([Fault(str(path), "", "a file", "none, for the problem asks for no remap")])
        return None
    table = read_columns(path, [Column(name="point", kind="text"), Column(name="report", kind="text")])
    ids = list(problem.points.ids)
    row_by_id = {name: row for row, name in enumerate(ids)}
    if table["point"].to_list() != ids or not set(table["report"].to_list()) <= set(ids):
        raise InputError([Fault(str(path), "column point", "other points", "the points of the problem, in order")])
    return np.array([row_by_id[name] for name in table["report"].to_list()], dtype=np.int64)
