"""Searches that can be stopped: solvers offer candidates, which are certified before the time is over."""
