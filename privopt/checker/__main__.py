"""Run the checker from the command line: ``python -m privopt.checker DIR``."""

import sys

from privopt.checker.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
