"""Entry point for ``python -m privopt_fl_linear`` (see :mod:`privopt_fl_linear.command`)."""

from privopt_fl_linear.command import main

main()
