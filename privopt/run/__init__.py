"""The steps between a problem file and a certified release folder: solve, verify and audit."""
