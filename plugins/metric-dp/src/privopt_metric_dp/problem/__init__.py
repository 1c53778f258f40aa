"""The metric problem: the keys of its file, and the arrays read from its files."""
