"""Clarabel, an interior-point solver in Rust, as a solver of linear programs under `--solver clarabel`."""

from importlib.metadata import version

import numpy as np
from scipy import sparse

from privopt.backends.base import Backend, Capabilities, Outcome, Raw, RejectedAnswerError


class Clarabel(Backend):
    """Linear programs without integers."""

    name = "clarabel"
    capabilities = Capabilities(mip=False)

    def version(self):
        """Of the installed package."""
        return version("clarabel")

    def solve_scaled(self, conditioned, options, attempt):
        """Rows and bounds as A x + s = b, s in a cone: zero for equations, nonnegative for the rest."""
        import clarabel

        n = len(conditioned.c)
        rows = sparse.csr_matrix(sparse.vstack([conditioned.A, sparse.identity(n)]))
        low = np.concatenate([conditioned.row_lower, conditioned.form.col_lower])
        high = np.concatenate([conditioned.row_upper, conditioned.form.col_upper])
        equal = np.flatnonzero(low == high)
        above = np.flatnonzero((low < high) & np.isfinite(high))
        below = np.flatnonzero((low < high) & np.isfinite(low))
        a = sparse.csc_matrix(sparse.vstack([rows[equal], rows[above], -rows[below]]))
        b = np.concatenate([high[equal], high[above], -low[below]])
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = options.threads
        if options.time_limit is not None:
            settings.time_limit = options.time_limit
        cones = [clarabel.ZeroConeT(len(equal)), clarabel.NonnegativeConeT(len(above) + len(below))]
        quadratic = sparse.csc_matrix((n, n))
        found = clarabel.DefaultSolver(quadratic, conditioned.c, a, b, cones, settings).solve()
        status = str(found.status)
        if status == "PrimalInfeasible":
            return Raw(outcome=Outcome.INFEASIBLE, message=status)
        if status == "DualInfeasible":
            return Raw(outcome=Outcome.UNBOUNDED, message=status)
        if status not in ("Solved", "AlmostSolved"):
            if "Max" in status:
                return Raw(outcome=Outcome.STOPPED, message=status)
            raise RejectedAnswerError(f"clarabel ended with {status}")
        duals = np.zeros(len(low))
        prices = -np.array(found.z)
        duals[equal] = prices[: len(equal)]
        duals[above] += prices[len(equal) : len(equal) + len(above)]
        duals[below] -= prices[len(equal) + len(above) :]
        m = conditioned.A.shape[0]
        return Raw(
            outcome=Outcome.OPTIMAL,
            x=np.array(found.x),
            duals=duals[:m],
            reduced=duals[m:],
            iterations=found.iterations,
            seconds=found.solve_time,
        )
