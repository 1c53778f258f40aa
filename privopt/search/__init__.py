"""Searches that can be stopped early. Solvers offer candidates, which are certified before the time is up."""
