"""Check the claims of a spherical-laplace release: its privacy, loss and bound, given the noise described by law.csv.

The checks rely on a theorem in docs/reference/proof.md, "The sphere": noise with the density exp(-epsilon d) / Z at
distance d from the true position satisfies epsilon-metric DP between any two points, because the constant Z is the same
for every true position.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from privopt.checker.compare import compare
from privopt.checker.exact import ONE, PI, cosine, down, low, need, number, rational
from privopt.checker.files import Problem

__all__ = ["Sphere"]

# The tables that a problem file for spherical-laplace may have.
TABLES = {"privacy", "outputs", "records", "distance", "utility", "spherical-laplace"}

OUTPUTS = "digits grid points columns"
"""The keys of the ``[outputs]`` table in a problem file."""

RADIUS_KM = Fraction(63710088, 10000)
"""The mean radius of the Earth (IUGG). Distances are measured on a sphere with this radius."""

SMALLEST, LARGEST = Fraction(1, 10**6), Fraction(10**6)
"""The range of valid epsilons, per km."""

CONTEXT = Context(prec=120)
TINY = Fraction(1, 10**100)
"""A generous bound on relative errors: pi is known to within 2**-240, and decimal results have 120 digits."""

PI_LOW, PI_HIGH = Fraction(PI - 2**16, ONE), Fraction(PI + 2**16, ONE)
"""Lower and upper bounds on pi. The integer PI is pi in units of 2**-256, with an error of at most 2**-240."""


def exp_of(x: Fraction) -> Fraction:
    """Return exp(x) with a relative error of at most 1e-100, including the error due to rounding x to 120 digits."""
    return Fraction(CONTEXT.exp(CONTEXT.divide(Decimal(x.numerator), Decimal(x.denominator))))


def enclose_tail(scaled: Fraction) -> tuple[Fraction, Fraction]:
    """Return lower and upper bounds on exp(-pi lambda), where lambda is ``scaled``."""
    return exp_of(-PI_HIGH * scaled) * (1 - TINY), exp_of(-PI_LOW * scaled) * (1 + TINY)


def enclose_mean(scaled: Fraction) -> tuple[Fraction, Fraction]:
    """Return lower and upper bounds on the mean angle between a position and its report before rounding.

    The mean angle, in radians, is 2 lambda / (1 + lambda^2) + pi / (exp(pi lambda) + 1).

    Args:
        scaled: lambda, which is epsilon times the sphere's radius.
    """
    tail_low, tail_high = enclose_tail(scaled)
    mean = 2 * scaled / (1 + scaled**2)
    return mean + PI_LOW * tail_low / (1 + tail_low), mean + PI_HIGH * tail_high / (1 + tail_high)


class Sphere:
    """A checker for the claims of one spherical-laplace release.

    A report is a noisy position, which is drawn on the sphere and then rounded. Before rounding, its density at
    distance d from the true position is exp(-rate d) / Z, where Z is a constant.

    Attributes:
        folder, problem, result: The arguments of the constructor.
        epsilon: The claimed epsilon per km, exact.
        kind, output: The kind of outputs ("digits", "grid" or "points"), and the value of the key with this name in the
            problem.
        columns: The problem's names for the columns in the file of points, keyed by their standard names. Empty if
            there are none.
        is_remapped: Whether the problem requires points to be remapped.
        law: The rows of law.csv below the header. There is always exactly one row. Its cells are the rate, the radius
            in km, the kind of outputs and its argument, all as strings.
        side: The side of a cell in degrees, for digits and grids. Set by :meth:`outputs`.
        rate: The rate of the noise per km. Set by :meth:`privacy`.
        value, bound: The loss and its lower bound in km. Set by :meth:`objective`.
    """

    def __init__(self, folder: Path, problem: Problem, result: dict[str, Any]) -> None:
        """Read the problem and law.csv.

        Args:
            folder: The release folder.
            problem: The release's problem file.
            result: The contents of the release's result.json.

        Raises:
            RefusedError: The problem or law.csv contains something that this checker does not support.
        """
        problem.allow(TABLES)
        need(result["mechanism"] == "spherical-laplace", f"mechanism: {result['mechanism']!r}: unknown here", 2)
        self.folder, self.problem, self.result = folder, problem, result
        self.epsilon = number(problem.table("privacy", "epsilon")["epsilon"])
        # The last argument of need() is the exit code. It is 2 if a claim cannot be checked, and by default 1, for a
        # false claim.
        need(SMALLEST <= self.epsilon <= LARGEST, "problem: privacy.epsilon: expected 1e-6 to 1e6", 2)
        need(
            problem.tables.get("distance", {}).get("kind", "haversine") == "haversine",
            "problem: distance.kind: expected haversine",
            2,
        )
        utility = problem.tables.get("utility", {})
        need(utility.get("kind", "distance") == "distance", "problem: utility.kind: expected distance", 2)
        self.is_remapped = utility.get("remap", "prior" in utility)
        # Points can be listed in [records] or in [outputs], but not in both.
        is_of_records = "records" in problem.tables
        need(is_of_records != bool(problem.tables.get("outputs")), "problem: expected [outputs] or [records]", 2)
        outputs = problem.table(*(("records", "points columns") if is_of_records else ("outputs", OUTPUTS)))
        self.columns = outputs.get("columns", {})
        kinds = sorted(outputs.keys() & {"digits", "grid", "points"})
        need(len(kinds) == 1, f"problem: [outputs] {kinds}: expected one of digits, grid, points", 2)
        self.kind, self.output = kinds[0], outputs[kinds[0]]
        self.law = self._read_table("law.csv", ["epsilon", "radius_km", "outputs", "argument"])
        need(len(self.law) == 1, "law.csv: expected one row")

    def _read_table(self, name: str, header: list[str]) -> list[list[str]]:
        """Read a CSV file in the release folder, and return the rows below its header.

        Raises:
            RefusedError: The header differs from ``header``, or a row has a different number of columns.
        """
        with (self.folder / name).open(encoding="utf8", newline="") as file:
            first, *rows = csv.reader(file, strict=True)
        need(
            first == header and all(len(row) == len(header) for row in rows),
            f"{name}: expected the header {','.join(header)}, and rows like it",
            2,
        )
        return rows

    def claims(self) -> Mapping[str, Callable[[], str]]:
        """Return the functions that check the release's claims, keyed by claim, in the order to call them.

        Each function returns a description of the result, which the checker prints.
        """
        return {"outputs": self.outputs, "privacy": self.privacy, "objective": self.objective, "words": self.words}

    def outputs(self) -> str:
        """Check that law.csv and remap.csv agree with the rounding declared in the problem.

        If they agree, a report depends only on the drawn position. It is either the rounded position or the point
        nearest to the drawn position, possibly remapped.

        Returns:
            A description of the result for the checker's output.

        Raises:
            RefusedError: The outputs differ from those declared in the problem, or remap.csv is missing, invalid or
                unexpected.
        """
        _, _, kind, argument = self.law[0]
        need(kind == self.kind, f"law.csv: outputs {kind!r}, the problem has {self.kind!r}")
        if self.kind == "digits":
            is_stated = type(self.output) is int and 0 <= self.output <= 9 and argument == str(self.output)
            need(is_stated, f"law.csv: digits {argument!r}, the problem has {self.output!r}")
            self.side = Fraction(1, 10**self.output)
        elif self.kind == "grid":
            # The side must divide 90 degrees, so that the rows of cells end exactly at the poles.
            self.side = number(self.output)
            is_stated = rational(argument) == self.side and self.side > 0 and (90 / self.side).denominator == 1
            need(is_stated, f"law.csv: grid {argument!r}, the problem has {self.output!r}")
        else:
            need(argument == "", f"law.csv: expected no argument for points, got {argument!r}")
            self._check_remap()
        has_remap = (self.folder / "remap.csv").exists()
        need(has_remap == self.is_remapped, "remap.csv: expected exactly if the problem asks for a remap")
        return f"{self.kind} {argument}".strip()

    def _check_remap(self) -> None:
        """Check that the points have distinct ids and that remap.csv, if required, maps points to points.

        Raises:
            RefusedError: An id is repeated, remap.csv does not list exactly the problem's points, or a point is mapped
                to something that is not one of these points.
        """
        table = self.problem.columns(self.output)
        names = self.columns.get("id", "id")
        parts = [table[name] for name in ([names] if isinstance(names, str) else names)]
        ids = ["/".join(cell.strip() for cell in cells) for cells in zip(*parts, strict=True)]
        need(len({*ids}) == len(ids), f"{self.output}: a repeated id", 2)
        if "prior" in self.problem.tables.get("utility", {}):
            self.problem.columns(self.problem.tables["utility"]["prior"])
        if self.is_remapped:
            rows = self._read_table("remap.csv", ["point", "report"])
            need([row[0] for row in rows] == ids, "remap.csv: the points are not the problem's")
            need({row[1] for row in rows} <= {*ids}, "remap.csv: a report is not one of the points")

    def privacy(self) -> str:
        """Check that the rate of the noise is at most epsilon, and that the sphere has the radius of the Earth.

        Returns:
            A description of the result for the checker's output.

        Raises:
            RefusedError: The rate is too large or too small, or the radius is not the Earth's.
        """
        rate, radius = (rational(text) for text in self.law[0][:2])
        need(rate <= self.epsilon, f"law.csv: epsilon {float(rate):g} exceeds {float(self.epsilon):g}")
        need(rate >= SMALLEST, f"law.csv: epsilon {float(rate):g} is below the range of the sampler")
        need(radius == RADIUS_KM, f"law.csv: radius_km {float(radius):g}")
        self.rate = rate
        return "a theorem for any two points of the sphere"

    def objective(self) -> str:
        """Compute the loss and its lower bound from closed forms.

        :meth:`words` compares the results with result.json.

        Returns:
            A description of the result for the checker's output.

        Raises:
            RefusedError: Reports are points, in which case the loss is an integral that this checker cannot evaluate.
        """
        need(self.kind != "points", "objective: the loss over points is not evaluated here", 2)
        scaled = self.rate * RADIUS_KM
        # The rate of the noise may be below the claimed epsilon. It determines the loss, but the bound must be valid
        # for every mechanism with the claimed epsilon.
        mean_high, bound_low = enclose_mean(scaled)[1], enclose_mean(self.epsilon * RADIUS_KM)[0]
        tail_low, root_high = enclose_tail(scaled)[0], enclose_tail(scaled / 2)[1]
        cell = PI_HIGH * self.side / 180
        # An upper bound on the probability of the caps within half a cell of the poles. The angle is rounded up, and
        # cosine() has an error of up to 2**28 of its units.
        cap = 1 - Fraction(cosine(low(cell / 2) + 1) - 2**28, ONE)
        # An upper bound on the mean square of the angle by which rounding moves a report. It is cell^2 / 12 each for
        # latitude and longitude, plus at most (cell / 2)^2 in the caps, where the poles are reported.
        square = cell**2 / 6 + cap * cell**2 / 4
        # Two upper bounds on the loss added by rounding, from the second derivative of the mean angle and from the
        # triangle inequality.
        curved = (scaled + root_high) / (1 + tail_low) * square / 2
        straight = Fraction(math.isqrt(low(square * ONE)) + 1, ONE)
        self.value = up(RADIUS_KM * (mean_high + min(curved, straight)))
        self.bound = down(RADIUS_KM * bound_low)
        return f"{self.value:.9g} km at most, no mechanism below {self.bound:.9g} km for a uniform position"

    def words(self) -> str:
        """Check that result.json states the guarantee, the measured privacy, the loss and the bound correctly.

        Returns:
            A description of the result for the checker's output.

        Raises:
            RefusedError: An entry of result.json differs from the computed value.
        """
        stated = self.result["objective"]
        # The program that made the release may have rounded the bound differently, but may exceed it by the last bit
        # only.
        is_bound = stated["lower_bound"] is not None and math.isclose(stated["lower_bound"], self.bound, rel_tol=1e-12)
        need(is_bound and stated["lower_bound"] <= self.bound * (1 + 2**-52), f"lower_bound: {stated['lower_bound']}")
        value, bound = float(stated["value"]), float(stated["lower_bound"])
        # The text need not be that in the problem. For example, it may be 1.0 instead of 1.
        stated_text = self.result["guarantee"]["epsilon_text"]
        need(rational(stated_text) == self.epsilon, f"guarantee.epsilon_text: {stated_text!r}")
        promise = {
            "kind": "metric-dp",
            "epsilon": float(self.epsilon),
            "epsilon_text": stated_text,
            "unit": "per km",
            "scope": "everywhere",
            "sphere_km": "6371.0088",
        }
        # "checked" counts the two parameters that are compared with the claim, the rate and the radius.
        measured = {"worst": float(self.rate), "allowed": float(self.epsilon), "checked": 2}
        return compare(
            self.result,
            promise=promise,
            measured=measured,
            value=self.value,
            unit="km",
            gap=max(0.0, (value - bound) / max(abs(value), 1e-12)),
            # The loss may have been rounded differently, so a relative difference of 1e-9 is allowed.
            close=frozenset({"objective"}),
        )


def up(value: Fraction) -> float:
    """Round a rational number up to a double."""
    return -down(-value)
