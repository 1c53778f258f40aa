"""The entry point of the program ``privopt`` and of ``python -m privopt``."""

import gc
import os
import signal
import sys


def _end_at_once(_signal_number: int, _frame: object) -> None:
    """Handle SIGINT while modules are imported, by ending the process with exit code 5 and no traceback.

    No work has started yet, so there is nothing to clean up.
    """
    os.write(2, b"interrupted\n")
    os._exit(5)


def main() -> None:
    """Run the program ``privopt`` with the arguments of the command line, and end the process.

    An interrupt while modules are imported has the same message and exit code as a later one. A program that wants to
    continue afterwards should call :func:`privopt.command.cli.main` instead.
    """
    # By default 700 new objects start a collection: a tenth of the processor's time of a solve of the embedded city
    # (2.34 s, 2.13 with this; medians of eight in turn, 2026-11-27) went into looking through modules, which stay.
    gc.set_threshold(20_000, 20, 20)
    # Compiled modules turn an interrupt while they are imported into errors of their own, with a traceback. A caller
    # who ignores interrupts (nohup) goes on ignoring them.
    may_interrupt = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if may_interrupt:
        signal.signal(signal.SIGINT, _end_at_once)
    try:
        from privopt.command.cli import main as run_command

        if may_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
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
