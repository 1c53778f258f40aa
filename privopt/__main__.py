"""``python -m privopt``."""

from privopt.command.cli import main

if __name__ == "__main__":
    main()
