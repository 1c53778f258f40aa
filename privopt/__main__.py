"""The program ``privopt``, and ``python -m privopt``."""

import gc
import os
import sys


def main() -> None:
    """Run the program; an interrupt while modules are imported ends it as a later one would.

    Another program, which goes on afterwards, calls :func:`privopt.command.cli.main`.
    """
    # By default 700 new objects start a collection: a tenth of the processor's time of a solve of the embedded city
    # (2.34 s, 2.13 with this; medians of eight in turn, 2026-11-27) went into looking through modules, which stay.
    gc.set_threshold(20_000, 20, 20)
    try:
        from privopt.command.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(5)
    except SystemExit as error:
        from privopt.execution.clock import left_behind

        # The interpreter would wait for threads in the pools of an abandoned solver.
        if left_behind() and isinstance(error.code, int):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(error.code)
        raise


if __name__ == "__main__":
    main()
