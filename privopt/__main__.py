"""The program ``privopt``, and ``python -m privopt``."""

import sys
import time


def main() -> None:
    """Entry point: an interrupt while modules are imported ends as one that comes later."""
    began = time.monotonic()
    try:
        from privopt.command.cli import main as run

        run(began)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(5)


if __name__ == "__main__":
    main()
