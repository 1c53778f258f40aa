"""``privopt new``: a plugin project whose tests pass as generated."""

from __future__ import annotations

import keyword
import shutil
import sys
import tempfile
from pathlib import Path
from string import Template
from typing import Final

from privopt import __version__
from privopt.errors import UsageError
from privopt.registry import registry
from privopt.specs import MethodSpec

__all__ = ["new_plugin"]

_PYPROJECT: Final = Template("""[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
description = "A mechanism for privopt"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["privopt>=$version"]

[project.entry-points.privopt]
$name = "$package"

[dependency-groups]
dev = ["pytest>=8.3"]

[tool.hatch.build.targets.wheel]
packages = ["src/$package"]

[tool.pytest.ini_options]
testpaths = ["tests"]
""")

_INIT: Final = Template('''"""$name: a mechanism for privopt."""

from privopt.specs import MechanismSpec, MethodSpec, hookimpl


@hookimpl
def privopt_mechanisms():
    """What this distribution registers; imports nothing heavy, so that ``privopt list`` stays fast."""
    return [
        MechanismSpec(
            name="$name",
            target="$package.mechanism:$cls",
            guarantee="metric-dp",
            summary="say in one line what it is for",
            source="name the paper",
            methods=[MethodSpec(name="lp", summary="the linear program, by CBC or HiGHS")],
        )
    ]
''')

_MECHANISM: Final = Template('''"""The method of $name: change ``matrix``; repair, certificate and files follow."""

from attrs import frozen
from privopt.dsl import Eq, Index, IndexSet, Model, total
from privopt.metric.mechanism import Matrix, MetricMechanism
from privopt.metric.privacy import both_ways
from privopt.declare import key, non_negative
from privopt.metric.problem import MetricProblem


@frozen(kw_only=True)
class $options:
    """The table [$name] of a problem file."""

    penalty: float = key(0.0, help="added to the cost of all outputs but the cheapest", check=non_negative)


@frozen(kw_only=True)
class $problem(MetricProblem):
    """A metric problem and the options of $name."""

    options: $options = key($options(), help="options of $name", name="$name")


class $cls(MetricMechanism):
    """Least expected loss, and a penalty."""

    problem_class = $problem

    def matrix(self, problem, context):
        """Solve the linear program; any near-feasible matrix (records, outputs) may be returned."""
        data = problem.data
        m = Model("$name")
        X, Y = IndexSet("X", data.records.ids), IndexSet("Y", data.outputs.ids)
        i, j, k = Index("i", X), Index("j", X), Index("k", Y)
        z = m.variable("z", X, Y, lower=0)
        dear = data.cost > data.cost.min(axis=1, keepdims=True)
        c = m.param("c", data.weighted + problem.declared.options.penalty * data.prior[:, None] * dear)
        d = m.param("d", data.metric.between)
        m.minimize(total(c[i, k] * z[i, k], over=(i, k)))
        m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
        pairs = both_ways(data.pairs[data.needed])  # the other required pairs follow from these
        self.privacy(problem, context.method).emit(m, z=z, i=i, j=j, k=k, d=d, pairs=pairs)
        return Matrix.of(m.solve(context.solver, time_limit=context.remaining), data, context)
''')

_TEST: Final = Template('''"""privopt's conformance kit attacks the mechanism: one case for each check."""

from privopt.testing import conformance

test_conformance = conformance("$name")
''')

_PROBLEM: Final = Template("""# A problem to try it with: privopt solve $name example.toml --out out
[records]
grid = { rows = 4, cols = 4, cell_km = 0.5 }

[distance]
kind = "euclidean"

[privacy]
epsilon = 2.0                  # per km

[utility]
kind = "distance"

[$name]
penalty = 0.0
""")

_README: Final = Template("""# $name

A mechanism for [privopt]: say which paper it implements, what it promises, and against whom.

```
python -m pip install -e .          # beside privopt
privopt list                        # shows $name
privopt solve $name example.toml --out out
privopt verify out
python -m pytest                    # the conformance kit
privopt check $name                 # the same, as a table
```

Where things are: `src/$package/__init__.py` registers it, `mechanism.py` holds the problem's own table and the
method, `tests/` calls the kit.

[privopt]: the documentation of privopt says what a problem file, a guarantee and a certificate are.
""")


def new_plugin(name: str, into: Path) -> Path:
    """Write a plugin project called ``name`` into the folder ``into``/``name``.

    Returns:
        The project's folder.

    Raises:
        UsageError: a name that cannot be a distribution, a mechanism and a package, or that is taken.
    """
    try:
        MethodSpec(name=name, summary="")
    except ValueError as error:
        raise UsageError(f"new: {error}") from None
    package = name.replace("-", "_")
    taken = set(sys.stdlib_module_names) | {"privopt", "test", "tests"}
    if keyword.iskeyword(package) or package in taken:
        raise UsageError(f"new: {name!r} cannot be the name of a Python package; add a word to it")
    if name in registry().mechanisms:
        owner = registry().mechanisms[name]
        raise UsageError(f"new: a mechanism called {name!r} comes with {owner.plugin} already")
    target = into / name
    if target.exists():
        raise UsageError(f"new: {target} exists already")
    if not into.is_dir():
        raise UsageError(f"new: the folder {into} does not exist")
    cls = "".join(word.capitalize() for word in name.split("-"))
    words = {
        "name": name,
        "package": package,
        "cls": cls,
        "problem": f"{cls}Problem",
        "options": f"{cls}Options",
        "version": __version__,
    }
    files = {
        "pyproject.toml": _PYPROJECT,
        "README.md": _README,
        "example.toml": _PROBLEM,
        f"src/{package}/__init__.py": _INIT,
        f"src/{package}/mechanism.py": _MECHANISM,
        "tests/test_conformance.py": _TEST,
    }
    work = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=into))
    try:
        for path, template in files.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(template.substitute(words), "utf-8")
        work.chmod(0o755)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target
