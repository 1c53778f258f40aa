"""Checks of a release of counts over a hierarchy: sums, bounds, exact totals, noise scales and claims in result.json.

The formulas are documented in docs/reference/proof.md, "Counts in a hierarchy". The finding for each claim says what
this checker does not check. A release folder cannot show that the noise was drawn with the stated scales, and only
``privopt verify`` recomputes interval widths and the lower bound on the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

from privopt.checker.arrays import read_npz
from privopt.checker.exact import down, need, number, rational
from privopt.checker.files import Problem
from privopt_hierarchical_dp.checkers.budgets import delta_above, ratio
from privopt_hierarchical_dp.checkers.keys import BUDGETS, check_keys
from privopt_hierarchical_dp.checkers.regions import Regions, normalize, read_rows, written_regions
from privopt_hierarchical_dp.checkers.relations import METHODS, promise_of_sizes, promise_of_tables
from privopt_hierarchical_dp.checkers.shares import stated_parts
from privopt_hierarchical_dp.checkers.tables import Table, measure, project

__all__ = ["Counts"]

MOST_CELLS = 10**7
"""The maximum number of cells per region of a table. Larger tables are rejected, as they are by ``solve``."""

DRAWN = "that the noise was drawn, freshly and at those"
"""The assumption behind every certificate of noise. A single release cannot prove it.

It is completed by the word "scales" or "variances".
"""


class Counts:
    """The checks of all claims made by a release of ``hierarchical-dp`` or ``hierarchical-tables``.

    Attributes:
        folder: The release folder.
        problem: The problem file.
        result: The contents of result.json.
        hierarchy: The ``[hierarchy]`` table of the problem file.
        privacy_table: The ``[privacy]`` table of the problem file.
        is_of_sizes: Whether the mechanism is hierarchical-dp, whose only table counts groups by size.
        kind: The privacy notion.
        tables: The published tables, with their noisy values.
        regions: The region hierarchy.
        promise: The properties of the guarantee that follow from the problem file and the method.
        exact_numbers: The exact totals in noisy.npz, as one list per exact level.
        scales: The noise scales of all measurements, ordered by level and then by table. They are set by
            :meth:`privacy`.
        spent: The budget spent by noise with these scales. It is set by :meth:`privacy`.
        allowed: The largest allowed epsilon, rho or delta. It is set by :meth:`privacy`.
    """

    def __init__(self, folder: Path, problem: Problem, result: dict[str, Any]) -> None:
        """Read the problem, the tables and the noisy values.

        Raises:
            RefusedError: A file is malformed, or contains something that this checker does not support.
        """
        self.folder, self.problem, self.result = folder, problem, result
        self.is_of_sizes = result["mechanism"] == "hierarchical-dp"
        is_known = self.is_of_sizes or (result["mechanism"], result["method"]) == ("hierarchical-tables", "margins")
        need(is_known, f"mechanism {result['mechanism']!r}, method {result['method']!r}: unknown here", 2)
        check_keys(problem, is_of_sizes=self.is_of_sizes)
        self.hierarchy, self.privacy_table = problem.tables["hierarchy"], problem.tables["privacy"]
        self.kind = self.privacy_table.get("kind", "pure-dp")
        self.tables = self._read_tables()
        depth = len(self.regions.levels)
        self.promise = (
            promise_of_sizes(problem.tables, str(result["method"]), depth)
            if self.is_of_sizes
            else promise_of_tables(problem.tables, self.kind, depth)
        )
        self._read_noisy()
        # The public counts that `plan` uses in place of the secret ones do not affect any claim. They only have to be
        # readable.
        if "like" in self.hierarchy:
            problem.read(self.hierarchy["like"])

    def _read_tables(self) -> list[Table]:
        """Read the counts and their intervals, and check that all tables cover the same regions."""
        if self.is_of_sizes:
            first, most = self.hierarchy.get("first_size", 1), self.hierarchy["sizes"]
            need(type(most) is int and first in (0, 1) and first <= most <= MOST_CELLS, "problem: sizes", 2)
            tables = [Table("", "release.csv", (), [(str(size),) for size in range(first, most + 1)])]
        else:
            attributes = self.hierarchy.get("attributes", {})
            tables = []
            for name, stated in self.hierarchy["tables"].items():
                by = tuple(n for n, attribute in enumerate(attributes) if attribute in stated["by"])
                values = [[*attributes.values()][n] for n in by]
                need(math.prod(map(len, values)) <= MOST_CELLS, f"problem: tables.{name}: too many cells", 2)
                tables.append(Table(f"{name}.", f"tables/{name}.csv", by, [*product(*values)]))
        parents: dict[str, str] = {}
        for table in tables:
            # For groups by size, the intervals are in a separate file.
            names = ["size"] if self.is_of_sizes else [[*attributes][n] for n in table.attributes]
            columns = ["groups"] if self.is_of_sizes else ["count", "low", "high"]
            header = ["region", "parent", *names, *columns]
            parents_here, rows = read_rows(self.folder / table.file, header, table.cells)
            need(parents in ({}, parents_here), f"{table.file}: other regions than {tables[0].file}")
            parents = parents_here
            table.counts = {region: [row[0] for row in cells] for region, cells in rows.items()}
            if self.is_of_sizes:
                header = ["region", "parent", "size", "low", "high"]
                intervals_of, table.ends = read_rows(self.folder / "intervals.csv", header, table.cells)
                need(intervals_of == parents, "intervals.csv: other regions than release.csv")
            else:
                table.ends = {region: [row[1:] for row in cells] for region, cells in rows.items()}
        self.regions = Regions(parents, tables[0].file)
        return tables

    def _read_noisy(self) -> None:
        """Read the noisy values, their scales and the exact totals from noisy.npz, and check their shapes."""
        levels, name = self.regions.levels, self.scale_name
        numbered = range(1, len(levels) + 1)
        # read_npz takes the name, the type and the number of dimensions of each array.
        noisy_arrays = " ".join(
            f"{table.prefix}level_{level}:i8:{2 if self.is_of_sizes else 1 + len(table.attributes)}"
            for table in self.tables
            for level in numbered
        )
        scales = " ".join(f"{table.prefix}{name}:U:1" for table in self.tables)
        exact = " ".join(f"totals_{level}:i8:1" for level in range(1, self.promise.exact + 1))
        # The size of the largest arrays that these tables can have, including headers. A file that would unpack to more
        # bytes is rejected before it is unpacked.
        values = sum(len(level) for level in levels) * (1 + max(len(table.cells) for table in self.tables))
        max_bytes = 8 * values * len(self.tables) + 4096 * (2 + len(levels)) * (1 + len(self.tables))
        arrays = read_npz(
            self.folder / "noisy.npz",
            f"{noisy_arrays} {scales} {exact}",
            max_bytes,
            "split_levels:U:1 split_tables:U:1",
        )
        for table in self.tables:
            for level in levels:
                array = arrays.pop(0)
                # There is one column per cell, except that cumulative counts with a known total lack the last one.
                width = len(array.flat) // len(level)
                need(array.shape[0] == len(level), f"noisy.npz: {table.prefix}level: expected {len(level)} rows")
                missing = self.is_of_sizes and self.order == "inner"
                need(width == len(table.cells) - missing, f"noisy.npz: {table.prefix}level: {width} columns")
                table.noisy.append([[*array.flat[row * width : (row + 1) * width]] for row in range(len(level))])
        for table in self.tables:
            texts = [*arrays.pop(0).flat]
            need(len(texts) == len(levels), f"noisy.npz: {table.prefix}{name}: expected {len(levels)}", 2)
            table.scales = [ratio(text) if text else Fraction(0) for text in texts]
        self.exact_numbers = [[*arrays.pop(0).flat] for _ in range(self.promise.exact)]

    @property
    def scale_name(self) -> str:
        """The name of the noise parameters: ``scales`` (Laplace noise, pure DP) or ``variances`` (Gaussian noise)."""
        return "scales" if self.kind == "pure-dp" else "variances"

    @property
    def drawn(self) -> str:
        """A description of the assumption behind the certificate."""
        return f"{DRAWN} {self.scale_name}"

    @property
    def order(self) -> str:
        """The kind of values that a method of hierarchical-dp measures in each region.

        The values are either counts or cumulative counts, with one value per size s:

        * ``counts``: the number of groups of size s.
        * ``less``: the number of groups of size s or less.
        * ``inner``: the same as ``less``, but without the last value, which is the exact total.
        * ``more``: the number of groups of size s or more. This is used if neighbouring inputs can have different
          numbers of groups.
        """
        if METHODS[self.result["method"]][0] == "counts":
            return "counts"
        if self.promise.has_totals:
            return "inner"
        return "less" if self.privacy_table.get("relation", "sizes") in ("sizes", "replaced") else "more"

    def claims(self) -> Mapping[str, Callable[[], str]]:
        """Return the functions that check the claims, keyed by claim.

        The functions must be called in the order in which they are listed. Each returns a description of its findings,
        or raises RefusedError.
        """
        return {
            "regions": self.public_regions,
            "sums": self.sums,
            "exact": self.exact,
            "bounds": self.bounds,
            "privacy": self.privacy,
            "unmeasured": self.unmeasured,
            "intervals": self.intervals,
            "objective": self.objective,
            "words": self.words,
        }

    def public_regions(self) -> str:
        """Check that the regions are those listed in the problem's public table of regions, if it has one.

        Raises:
            RefusedError: Regions or their parents differ from those in the table.
        """
        count = len(self.regions.parents)
        if "regions" not in self.hierarchy:
            return f"{count} in a tree of {len(self.regions.levels)} levels; which the input listed is not shown"
        listed = written_regions(self.problem, self.hierarchy["regions"])
        need(listed == self.regions.parents, f"{self.hierarchy['regions']}: other regions than the release's")
        return f"{count} in a tree of {len(self.regions.levels)} levels, as the public table lists them"

    def sums(self) -> str:
        """Check that children add up to their parents in every cell, and that tables agree on shared attributes.

        Raises:
            RefusedError: A sum is wrong, or two tables disagree.
        """
        for table in self.tables:
            for parent, names in self.regions.children.items():
                sums = [sum(cells) for cells in zip(*(table.counts[name] for name in names), strict=True)]
                need(sums == table.counts[parent], f"{table.file}: region {parent!r} is not the sum of its children")
        for number_of_table, table in enumerate(self.tables):
            for other in self.tables[:number_of_table]:
                shared = {*table.attributes} & {*other.attributes}
                for region in self.regions.parents:
                    is_equal = project(table, region, shared) == project(other, region, shared)
                    need(is_equal, f"{table.file}: region {region!r} differs from {other.file}")
        counts = sum(len(table.cells) for table in self.tables) * len(self.regions.parents)
        return f"{counts} counts of at least 0; children add up to parents"

    def exact(self) -> str:
        """Check that released totals at exact levels equal those in noisy.npz, and that result.json lists these levels.

        Raises:
            RefusedError: A total is wrong, or result.json lists other levels.
        """
        levels = [f"level_{level}" for level in range(1, self.promise.exact + 1)]
        stated = self.result["details"]["exact"]
        need(stated == levels, f"details.exact: {stated!r} is claimed, the problem implies {levels}")
        for names, numbers in zip(self.regions.levels, self.exact_numbers, strict=False):
            need(len(names) == len(numbers), "noisy.npz: totals: another length")
            for name, total in zip(names, numbers, strict=True):
                number_released = sum(self.tables[0].counts[name])
                need(number_released == total, f"region {name!r} has {number_released}, the exact number is {total}")
        if not levels:
            return "no number is claimed to be exact"
        return f"{', '.join(levels)}: numbers without noise; that they are the input's is not shown"

    def bounds(self) -> str:
        """Check that the total of every region is within the public bounds.

        Raises:
            RefusedError: A total is out of bounds, or a region is unknown.
        """
        if "bounds" not in self.hierarchy:
            return "none are stated"
        file = self.hierarchy["bounds"]
        columns = {str(name).casefold(): cells for name, cells in self.problem.columns(file).items()}
        for place, region in enumerate(map(normalize, columns["region"])):
            need(region in self.regions.parents, f"problem/{file}: region {region!r} is unknown")
            number_released = sum(self.tables[0].counts[region])
            for column, sign in (("at_least", 1), ("at_most", -1)):
                text = columns[column][place] if column in columns else ""
                keeps = not text or sign * number_released >= sign * rational(text)
                need(keeps, f"region {region!r} has {number_released}, hierarchy.bounds has {column} {text}")
        return f"{len(columns['region'])} regions within them"

    def privacy(self) -> str:
        """Check in exact rational arithmetic that noise with the stated scales spends at most the budget.

        Double geometric noise with scale b spends epsilon = sensitivity / b, and discrete Gaussian noise with variance
        V spends rho = sensitivity / (2 V). These amounts add up over tables and levels. If the problem states shares of
        the budget, no table may exceed its share at any level.

        Raises:
            RefusedError: The noise spends more than the budget or a share of it, or nothing was measured.
        """
        times = 1 if self.kind == "pure-dp" else 2
        measured = [scale for level in zip(*(table.scales for table in self.tables), strict=True) for scale in level]
        self.scales = [scale for scale in measured if scale]
        need(self.scales, "noisy.npz: nothing was measured")
        self.spent = sum((self.promise.sensitivity / (times * scale) for scale in self.scales), Fraction(0))
        self.budget = {name: number(self.privacy_table[name]) for name in BUDGETS[self.kind]}
        need(min(self.budget.values()) > 0, "problem: privacy: expected a budget above 0", 2)
        # The last entry is the amount to compare with, which is epsilon, rho, or the delta at epsilon.
        self.allowed = self.budget[BUDGETS[self.kind][-1]]
        need(self.kind != "approx-dp" or self.allowed < 1, "problem: privacy.delta: expected less than 1", 2)
        self._need_within_budget(self.spent)
        self._check_shares(times)
        name = "epsilon" if self.kind == "pure-dp" else "rho"
        spent = f"{name} {float(self.spent):g} {self.promise.unit}"
        return f"{spent} is spent; it rests on what no folder shows: {self.drawn}"

    def _need_within_budget(self, spent: Fraction, where: str = "") -> None:
        """Check that an amount of epsilon or rho is within the budget.

        Args:
            spent: The positive amount of epsilon or rho.
            where: The prefix of error messages.

        Raises:
            RefusedError: The amount exceeds the budget.
        """
        if self.kind == "approx-dp":
            epsilon = self.budget["epsilon"]
            is_kept = delta_above(spent, epsilon) <= self.allowed
            need(is_kept, f"{where}rho {float(spent):g} at epsilon {float(epsilon):g} needs a larger delta")
            return
        need(spent <= self.allowed, f"{where}spent {float(spent):g}, the budget is {float(self.allowed):g}")

    def _check_shares(self, times: int) -> None:
        """Check that each table spends at most its stated share of the budget at each level.

        Args:
            times: The factor t in the formula for the amount spent, which is sensitivity / (t scale). It is 2 for
                Gaussian noise and 1 otherwise.

        Raises:
            RefusedError: A table spends more than its share at a level.
        """
        depth = len(self.regions.levels)
        are_exact = [[self._shows_exact_numbers(table, level) for level in range(depth)] for table in self.tables]
        parts = stated_parts(self.problem.tables, depth, are_exact, is_of_sizes=self.is_of_sizes)
        if parts is None:
            return
        for table, table_parts in zip(self.tables, parts, strict=True):
            for level, (scale, part) in enumerate(zip(table.scales, table_parts, strict=True), start=1):
                where = f"noisy.npz: {table.prefix}level_{level}: "
                need(part or not scale, f"{where}noise where the problem gives no share of the budget")
                if scale:
                    # Divided by its share of the budget, the amount can be compared with the total budget.
                    spent = self.promise.sensitivity / (times * scale * part)
                    self._need_within_budget(spent, f"{where}divided by its share of the budget, ")

    def unmeasured(self) -> str:
        """Check that every value without noise can be derived from public or noisy values.

        If a table contains nothing but exact totals at a level, its values there must be these totals. Otherwise, a
        value without noise must be 0 if another table is measured at the same level. If no table is measured there, it
        must be the sum of the values at the level below. Anything else could be a secret count.

        Raises:
            RefusedError: The leaves are not measured, or a table contains any other value without noise.
        """
        levels, count = self.regions.levels, 0
        is_measured = [any(scales) for scales in zip(*(table.scales for table in self.tables), strict=True)]
        need(is_measured[-1], "noisy.npz: the leaves are not measured")
        for table in self.tables:
            for depth, names in enumerate(levels):
                if self._shows_exact_numbers(table, depth):
                    numbers = [[value] for value in self.exact_numbers[depth]]
                    need(table.noisy[depth] == numbers, f"noisy.npz: {table.prefix}level_{depth + 1}: no exact numbers")
                    continue
                if table.scales[depth]:
                    continue
                derived = [[0] * len(row) for row in table.noisy[depth]]
                if not is_measured[depth]:
                    below = dict(zip(levels[depth + 1], table.noisy[depth + 1], strict=True))
                    # A leaf above the last level has no children but appears again on the level below. Its values there
                    # take the place of the sum.
                    derived = [
                        [sum(v) for v in zip(*(below[c] for c in self.regions.children.get(name, [name])), strict=True)]
                        for name in names
                    ]
                expected = "zeros" if is_measured[depth] else "sums"
                place = f"noisy.npz: {table.prefix}level_{depth + 1}"
                need(derived == table.noisy[depth], f"{place}: values without noise that are no {expected}")
                count += 1
        return f"{count} levels of a table without noise are zeros, or sums of those below"

    def _shows_exact_numbers(self, table: Table, level: int) -> bool:
        """Return whether a table of individuals contains nothing but exact totals at a level. Level 0 is the root."""
        return not self.is_of_sizes and len(table.cells) == 1 and level < self.promise.exact

    def intervals(self) -> str:
        """Check that each interval contains its count, and that intervals of exact totals have width 0.

        Raises:
            RefusedError: A count is outside its interval, or an exact total has an interval of positive width.
        """
        exact = {name for level in self.regions.levels[: self.promise.exact] for name in level}
        for table in self.tables:
            for region, ends in table.ends.items():
                for count, (low, high) in zip(table.counts[region], ends, strict=True):
                    need(low <= count <= high, f"region {region!r}: {count} is outside [{low}, {high}]")
                    is_exact = region in exact and len(table.cells) == 1
                    need(not is_exact or low == high, f"region {region!r}: an exact number in [{low}, {high}]")
        return "each contains its count; how wide they must be is computed by privopt verify alone"

    def objective(self) -> str:
        """Check the loss, its lower bound, the optimality gap and the solver status in result.json.

        The loss is the squared distance between the release and its noisy values. It is recomputed only for groups by
        size.

        Raises:
            RefusedError: An entry differs from the recomputed one, or the lower bound exceeds the loss.
        """
        stated = self.result["objective"]
        value, bound = number(stated["value"]), stated["lower_bound"]
        unit = "groups squared" if self.is_of_sizes else "individuals squared"
        need(stated["unit"] == unit and value >= 0, f"objective: {stated['value']} {stated['unit']}")
        if bound is None:
            need(stated["gap"] is None and self.result["status"] == "feasible", "objective: a gap without a bound")
        else:
            need(0 <= number(bound) <= value, f"objective.lower_bound: {bound}")
            gap = max(0.0, (float(value) - float(bound)) / max(abs(float(value)), 1e-12))
            asked = self.result["asked"]["gap"]
            is_close = type(stated["gap"]) in (int, float) and math.isclose(gap, stated["gap"], abs_tol=1e-15)
            need(is_close, f"objective.gap: {stated['gap']}")
            status = "optimal" if gap <= asked and type(asked) is float and asked < 1 else "feasible"
            need(self.result["status"] == status, f"status: {self.result['status']!r} at a gap of {gap:g}")
        rest = "" if bound is None else "; the lower bound is proved by privopt verify alone"
        if not self.is_of_sizes:
            return f"{float(value):g} {unit}, which privopt verify alone computes{rest}"
        loss = self._loss()
        need(math.isclose(float(loss), float(value), rel_tol=1e-12), f"objective.value: {float(loss)} was found")
        return f"{float(loss):g} {unit}{rest}"

    def _loss(self) -> Fraction:
        """Return the loss, i.e. the sum of w |x - noisy|^2 over all levels.

        Here w is the weight of the level, and x are the values that correspond to the noisy ones, computed from the
        released counts. Weights are scaled so that the largest is 1. Levels that were not measured have weight 0.
        """
        table, levels = self.tables[0], self.regions.levels
        weights = [number(w) for w in self.problem.tables.get("hierarchical-dp", {}).get("level_weights", [])]
        weights = weights or [Fraction(1)] * len(levels)
        need(len(weights) == len(levels), "problem: level_weights: not one for each level", 2)
        weights = [weight if scale else Fraction(0) for weight, scale in zip(weights, table.scales, strict=True)]
        total = Fraction(0)
        for names, rows, weight in zip(levels, table.noisy, weights, strict=True):
            squares = 0
            for name, noisy in zip(names, rows, strict=True):
                measured = measure(table.counts[name], self.order)
                squares += sum((a - b) ** 2 for a, b in zip(measured, noisy, strict=True))
            total += weight * squares
        return total / max(weights)

    def words(self) -> str:
        """Check the guarantee and the certificate in result.json against the problem and the noise scales.

        Raises:
            RefusedError: An entry is wrong or missing.
        """
        self._check_guarantee()
        certificate = self.result["certificate"]
        need(certificate["holds"] is True and certificate["evidence"] == "declared", "certificate: not declared")
        need(certificate["kind"] == self.kind and certificate["rests_on"] == self.drawn, "certificate.rests_on")
        name = self.scale_name
        need([*map(Fraction, certificate[name])] == self.scales, f"certificate.{name}: not those of noisy.npz")
        sensitivities = [str(self.promise.sensitivity)] * len(self.scales)
        need(certificate["sensitivities"] == sensitivities, f"certificate.sensitivities: {sensitivities[0]} is right")
        figures = {name: certificate[name] for name in ("worst", "allowed", "checked")}
        # True equals 1 in Python, but is not a number in JSON.
        need({*map(type, figures.values())} <= {int, float}, f"certificate: expected numbers, got {figures}")
        need(certificate["allowed"] == float(self.allowed), f"certificate.allowed: {certificate['allowed']}")
        if self.kind == "approx-dp":
            need(Fraction(certificate["rho"]) == self.spent, f"certificate.rho: {certificate['rho']}")
            # `solve` minimises the same bound on delta. Its minimum may differ from this one by less than a millionth.
            least = delta_above(self.spent, self.budget["epsilon"]) * (1 - Fraction(1, 10**6))
            need(least <= certificate["worst"] <= certificate["allowed"], f"certificate.worst: {certificate['worst']}")
        else:
            worst = min(-down(-self.spent), float(self.allowed))
            need(certificate["worst"] == worst, f"certificate.worst: {certificate['worst']} is claimed, {worst} found")
        checked = sum(
            sum(map(len, rows))
            for table in self.tables
            for scale, rows in zip(table.scales, table.noisy, strict=True)
            if scale
        )
        need(certificate["checked"] == checked, f"certificate.checked: {checked} values have noise")
        return f"{self.promise.scope}; {self.result['status']}"

    def _check_guarantee(self) -> None:
        """Check the guarantee in result.json, except for the wording of its sentences.

        Raises:
            RefusedError: An entry is wrong, missing or unknown.
        """
        guarantee, privacy = self.result["guarantee"], self.privacy_table
        expected: dict[str, object] = {
            "kind": self.kind,
            "scope": self.promise.scope,
            "unit": self.promise.unit,
            "relation": privacy.get("relation", "sizes" if self.is_of_sizes else "individuals"),
        }
        if self.is_of_sizes:
            expected["region_totals_exact"] = self.promise.has_totals
        else:
            expected["tables"] = [*self.hierarchy["tables"]]
        keys = {*expected, "statement", "epsilon", "epsilon_text"}
        keys |= {key for name in ("rho", "delta") if name in privacy for key in (name, f"{name}_text")}
        if "seeded" in guarantee:
            need(guarantee["seeded"] is True, "guarantee.seeded", 2)
            keys |= {"seeded", "warning"}
        differing = sorted(guarantee.keys() ^ keys)
        need(not differing, f"guarantee: {differing}: keys that are missing, or that no release of counts has")
        for key, value in expected.items():
            # Types are compared too, because 1 equals True in Python.
            is_equal = type(guarantee[key]) is type(value) and guarantee[key] == value
            need(is_equal, f"guarantee.{key}: {guarantee[key]!r} is claimed, {value!r} found")
        for name in ("epsilon", "rho", "delta"):
            text = guarantee.get(f"{name}_text")
            is_stated = (text is None) == (name not in privacy) and (guarantee.get(name) is None) == (text is None)
            need(is_stated, f"guarantee.{name}_text: {text!r}")
            if text is not None:
                is_equal = rational(text) == number(privacy[name]) and guarantee[name] == float(rational(text))
                is_number = type(guarantee[name]) in (int, float)
                need(is_equal and is_number, f"guarantee.{name}: {guarantee[name]!r}, as text {text!r}")
