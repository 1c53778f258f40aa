"""What the kit draws: problems, spaces and numbers of every shape, and the same tables as other programs write them."""

import math
import random
import tomllib
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.declare import load_problem
from privopt.testing import GeneratedProblem, Profile, Variant, csv_bytes, to_toml
from privopt.testing.variants import exports
from privopt_metric_dp.kit import metric_problems, metric_profile
from privopt_metric_dp.kit.strategies import SHAPES, costs, metric_spaces, priors
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem

few_examples = settings(max_examples=15)


class TestProblems:
    @given(
        st.dictionaries(
            st.text('ab-_ é"', min_size=1, max_size=4),
            st.recursive(
                st.booleans() | st.integers(-9, 9) | st.floats(-5, 5) | st.text('x"\\\n€', max_size=4),
                lambda inner: st.lists(inner, max_size=2),
                max_leaves=4,
            ),
            max_size=4,
        )
    )
    @few_examples
    def test_toml_reads_back(self, table):
        assert tomllib.loads(to_toml({"t": table, "x": 1})) == {"t": table, "x": 1}

    def test_sets_and_omits_keys(self):
        problem = GeneratedProblem(toml='[privacy]\nepsilon = 0.1\n[a]\nb = "c"\n')
        assert problem.get("privacy.epsilon") == Decimal("0.1")
        assert problem.with_key("privacy.epsilon", Decimal("0.30")).get("privacy.epsilon") == Decimal("0.30")
        assert problem.without_key("a.b").get("a.b", "none") == "none"
        assert problem.get("a.b.c") is None

    def test_tables_read_back_as_the_same_doubles(self):
        assert csv_bytes(["x"], [[0.1 + 0.2], ["a"], [3]]) == b"x\n0.30000000000000004\na\n3\n"

    @pytest.mark.parametrize("variant", ["relabelling", "reordering", "units"])
    def test_variants_are_problems(self, variant, tmp_path):
        @given(metric_problems())
        @few_examples
        def check(problem):
            variant_made = metric_profile().variants[variant](problem, random.Random(0))
            if variant_made is not None:
                folder = tmp_path / str(abs(hash(problem.identity)))
                files = problem.write(folder / "1"), variant_made.problem.write(folder / "2")
                original, changed = (MetricInstance.of(load_problem(MetricProblem, file)) for file in files)
                assert np.isclose(original.data.weighted.sum() * variant_made.factor, changed.data.weighted.sum())
                assert np.allclose(
                    np.sort(original.data.distances * float(original.data.epsilon)),
                    np.sort(changed.data.distances * float(changed.data.epsilon)),
                )

        check()


class TestStrategies:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_spaces_are_metric_spaces(self, shape):
        @given(metric_spaces(6, [shape]))
        @few_examples
        def check(space):
            d = space.distances
            assert 1 <= len(space) <= 6
            assert (np.diag(d) == 0).all()
            assert (d == d.T).all()
            assert (d[:, :, None] + d[None, :, :] >= d[:, None, :] * (1 - 1e-12)).all()
            assert space.kind in ("euclidean", "haversine", "graph", "matrix")

        check()

    def test_hard_shapes_are_what_they_say(self):
        from hypothesis import find

        assert 0 in find(metric_spaces(4, ["coincident"]), lambda s: len(s) > 1).distances[np.triu_indices(2, 1)]
        assert math.isinf(find(metric_spaces(4, ["islands"]), lambda s: len(s) > 1).distances.max())
        twins = find(metric_spaces(4, ["twins"]), lambda s: len(s) > 1).distances
        assert 0 < twins[twins > 0].min() <= 1.1e-3

    @given(st.integers(1, 5).flatmap(lambda n: st.tuples(priors(n), costs(n, 3))))
    @few_examples
    def test_priors_and_costs(self, drawn):
        prior, cost = drawn
        assert math.isclose(sum(prior), 1)
        assert cost.shape == (len(prior), 3)
        assert (cost >= 0).all()


class TestExports:
    def problem(self, **files):
        return GeneratedProblem(toml="", files=files)

    def all(self, problem, **options):
        profile = Profile(problems=st.just(problem), **options)
        return {made.change: made.problem.files for made in exports(profile, problem, ["c.csv"], random.Random(1))}

    def test_other_orders_and_forms(self):
        exports_made = self.all(self.problem(**{"c.csv": b"id,x,count\na,0.5,3\nb,1.5,12\n"}))
        assert [files["c.csv"] for change, files in exports_made.items() if "by size" in change] == [
            b"id,x,count\nb,1.5,12\na,0.5,3\n"
        ]
        quoted = next(files["c.csv"] for change, files in exports_made.items() if "quotes" in change)
        assert quoted == b'\xef\xbb\xbf"id","x","count"\r\n"a","0.5","3"\r\n"b","1.5","12"\r\n'

    def test_meaningful_row_order_stays(self):
        table = b"id,count\na,3\nb,12\n"
        array_exports = self.all(self.problem(**{"c.csv": table, "d.npy": b""}))
        sequence = self.all(self.problem(**{"c.csv": table}), variants={"reordering": lambda problem, chance: None})
        for exports_made in (array_exports, sequence):
            assert not any("by size" in change for change in exports_made)
            assert exports_made

    def test_profile_may_export_secrets_its_way(self):
        two_tables = self.problem(**{"c.csv": b"id,count\na,3\nb,12\n", "ids.csv": b"id\na\nb\n"})
        variant = Variant(problem=two_tables.with_file("c.csv", b"id,count\nb,12\na,3\n"), change="mine")
        assert "mine" in self.all(two_tables, variants={"reordering": lambda problem, chance: variant})
        public = Variant(problem=variant.problem.with_file("ids.csv", b"id\nb\na\n"), change="mine")
        assert "mine" not in self.all(two_tables, variants={"reordering": lambda problem, chance: public})
