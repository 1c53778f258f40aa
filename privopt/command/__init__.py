"""The command line, and its output on a terminal."""
