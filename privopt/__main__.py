"""The program ``privopt``, and ``python -m privopt``."""

import sys


def main() -> None:
    """Entry point: an interrupt while modules are imported ends as one that comes later."""
    try:
        from privopt.command.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(5)


if __name__ == "__main__":
    main()
