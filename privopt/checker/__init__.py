"""Check privopt's release folders with the standard library alone. No code is shared with the rest of privopt.

To audit a release, read this code in the following order: ``run`` (what is checked, exit codes), ``files`` and
``arrays`` (how bytes are read), ``exact`` (numbers), ``compare`` (what result.json claims). Then read the part for the
kind of guarantee. Plugins provide these parts (``privopt_metric_dp.checkers.matrix``,
``privopt_photo_censor.checkers.photos``). Each function names the formula that it checks. All formulas are in
docs/reference/proof.md, with their proofs.

``privopt checker --out FILE.pyz`` writes the whole checker to one file, which ``python -I FILE.pyz DIR`` runs on a
machine without privopt.
"""

from privopt.checker.arrays import Array, read_npz
from privopt.checker.compare import compare
from privopt.checker.exact import RefusedError, need
from privopt.checker.files import Problem, check_sums
from privopt.checker.parts import GROUP, find_parts
from privopt.checker.run import Part, Release, check

__all__ = [
    "GROUP",
    "Array",
    "Part",
    "Problem",
    "RefusedError",
    "Release",
    "check",
    "check_sums",
    "compare",
    "find_parts",
    "need",
    "read_npz",
]
