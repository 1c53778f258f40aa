"""The memory that a script takes in a process of its own."""

import subprocess
import sys


def peak(script: str, *arguments: object, most: float) -> float:
    """Return the bytes that a script prints; where these are more, of a second run: the first may have compiled."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    for _ in range(2):
        taken = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        if taken <= most:
            break
    return taken
