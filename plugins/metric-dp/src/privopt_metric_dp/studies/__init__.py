"""Studies before a choice: a first problem file, curves over epsilon."""
