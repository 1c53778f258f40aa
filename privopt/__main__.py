"""The entry point for the ``privopt`` program and for ``python -m privopt``."""

# ``_signal`` is the C module that underlies ``signal``. Importing ``signal`` itself also imports enum, functools and
# collections, which would take most of the time until main() can handle interrupts.
import _signal  # type: ignore[import-not-found]
import gc
import os
import sys


def _end_at_once(_signal_number: int, _frame: object) -> None:
    """Handle SIGINT by ending the process with exit code 5 and without a traceback.

    This handler is active before the command starts and after it ends, when there is nothing to clean up.
    """
    os.write(2, b"interrupted\n")
    os._exit(5)


def main() -> None:
    """Run the ``privopt`` program with the arguments from the command line, and exit.

    Interrupts are handled in the same way, with the same message and exit code, even while modules are still being
    imported. This function never returns and may end the process without raising SystemExit. To continue after a
    command, call :func:`privopt.command.cli.main` instead and catch SystemExit.
    """
    # By default, garbage is collected after every 700 new objects. The collector keeps searching imported modules,
    # which are never freed, and took a tenth of the CPU time for solving the example city (2.34 s, against 2.13 s with
    # these thresholds; medians of eight alternating runs, 2026-11-27).
    gc.set_threshold(20_000, 20, 20)
    # If compiled modules are interrupted while they are imported, they raise errors of their own, with a traceback. If
    # interrupts are being ignored (nohup), that stays so.
    may_interrupt = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    if may_interrupt:
        _signal.signal(_signal.SIGINT, _end_at_once)
    # Freezing objects at exit keeps the interpreter from searching all modules for garbage once more. The import comes
    # after the handler is set.
    import atexit

    atexit.register(gc.freeze)
    try:
        from privopt.command.cli import main as run_command

        if may_interrupt:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        try:
            run_command()
        finally:
            # A KeyboardInterrupt in an exit handler, or in the import below, would print a traceback too.
            if may_interrupt:
                _signal.signal(_signal.SIGINT, _end_at_once)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(5)
    except SystemExit as error:
        from privopt.execution.clock import left_behind

        # A normal exit would wait for the threads of an abandoned solver.
        if left_behind() and isinstance(error.code, int):
            for stream in (sys.stdout, sys.stderr):
                # The terminal may be gone and its stream closed, which must not change the exit code.
                try:
                    stream.flush()
                except (OSError, ValueError):
                    continue
            os._exit(error.code)
        raise


if __name__ == "__main__":
    main()
