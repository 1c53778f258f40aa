"""The memory that a script takes in a process of its own."""

import subprocess
import sys


def peak(script: str, *arguments: object, max_bytes: float) -> float:
    """Return the bytes that a script prints; where these are more, of a second run: the first may have compiled."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    for _ in range(2):
        peak_bytes = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        if peak_bytes <= max_bytes:
            break
    return peak_bytes
