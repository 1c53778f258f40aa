"""Searches that can be stopped. Solvers offer candidates, and these are certified before the time is up."""
