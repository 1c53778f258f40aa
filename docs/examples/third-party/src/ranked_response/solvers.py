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
        """Return the version of the installed package."""
        return version("clarabel")

    def solve_scaled(self, conditioned, options, attempt):
        """Solve the program as A x + s = b, where s is 0 for equations and nonnegative for other rows and bounds."""
        import clarabel

        n = len(conditioned.c)
        rows = sparse.csr_matrix(sparse.vstack([conditioned.A, sparse.identity(n)]))
        low = np.concatenate([conditioned.row_lower, conditioned.form.col_lower])
        high = np.concatenate([conditioned.row_upper, conditioned.form.col_upper])
        equal = np.flatnonzero(low == high)
        upper_rows = np.flatnonzero((low < high) & np.isfinite(high))
        lower_rows = np.flatnonzero((low < high) & np.isfinite(low))
        a = sparse.csc_matrix(sparse.vstack([rows[equal], rows[upper_rows], -rows[lower_rows]]))
        b = np.concatenate([high[equal], high[upper_rows], -low[lower_rows]])
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = options.threads
        if options.time_limit is not None:
            settings.time_limit = options.time_limit
        cones = [clarabel.ZeroConeT(len(equal)), clarabel.NonnegativeConeT(len(upper_rows) + len(lower_rows))]
        quadratic = sparse.csc_matrix((n, n))
        solution = clarabel.DefaultSolver(quadratic, conditioned.c, a, b, cones, settings).solve()
        status = str(solution.status)
        if status == "PrimalInfeasible":
            return Raw(outcome=Outcome.INFEASIBLE, message=status)
        if status == "DualInfeasible":
            return Raw(outcome=Outcome.UNBOUNDED, message=status)
        if status not in ("Solved", "AlmostSolved"):
            if "Max" in status:
                return Raw(outcome=Outcome.STOPPED, message=status)
            raise RejectedAnswerError(f"clarabel ended with {status}")
        duals = np.zeros(len(low))
        prices = -np.array(solution.z)
        duals[equal] = prices[: len(equal)]
        duals[upper_rows] += prices[len(equal) : len(equal) + len(upper_rows)]
        duals[lower_rows] -= prices[len(equal) + len(upper_rows) :]
        m = conditioned.A.shape[0]
        return Raw(
            outcome=Outcome.OPTIMAL,
            x=np.array(solution.x),
            duals=duals[:m],
            reduced=duals[m:],
            iterations=solution.iterations,
            seconds=solution.solve_time,
        )
