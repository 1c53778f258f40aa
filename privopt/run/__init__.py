"""Code that solves a problem to make a certified release folder, and that verifies and audits such folders."""
