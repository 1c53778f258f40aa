"""The program ``privopt``, and ``python -m privopt``."""

import atexit
import gc
import os
import sys
import time
from contextlib import suppress


class _End:
    """End the process once all that was registered after it has run: first in, last out.

    To take the interpreter apart took .3 s of processor time, and 1.0 to 2.6 s with five busy processes on two
    processors (a 7 x 7 grid by `optimal-lp`, numba loaded): time that a limit does not have.
    """

    code: int | None = None  # None: no command came to its end, and the interpreter ends as ever

    def __call__(self) -> None:
        if self.code is not None:
            with suppress(AttributeError, OSError, ValueError):  # what cannot be flushed the interpreter reports
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(self.code)


def main() -> None:
    """Run the program; an interrupt while modules are imported ends it as a later one would.

    Another program, which goes on afterwards, calls :func:`privopt.command.cli.main`.
    """
    began = time.monotonic()
    # By default 700 new objects start a collection: a tenth of the processor's time of a solve of the embedded city
    # (2.34 s, 2.13 with this; medians of eight in turn, 2026-11-27) went into looking through modules, which stay.
    gc.set_threshold(20_000, 20, 20)
    end = _End()
    atexit.register(end)
    try:
        from privopt.command.cli import main as run

        run(began)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        end.code = 5
        sys.exit(end.code)
    except SystemExit as error:
        end.code = 0 if error.code is None else error.code if isinstance(error.code, int) else None
        from privopt.execution.clock import left_behind

        if left_behind():  # the interpreter would wait for threads of its pools before anything registered runs
            end()
        raise


if __name__ == "__main__":
    main()
