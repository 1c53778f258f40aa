"""``python -m privopt``."""

from privopt.cli import main

if __name__ == "__main__":
    main()
