"""From a problem file to a certified folder and back: solve, verify, audit, report."""
