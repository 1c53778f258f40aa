"""Programs on a pseudo-terminal."""

import os
import pty
import re
import subprocess


def run_at_terminal(*command, cwd=None, **environment):
    """Run with standard error on a terminal of 100 columns; (exit code, standard output, what the terminal got)."""
    master_end, terminal_end = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")} | {
        "TERM": "xterm-256color",
        "COLUMNS": "100",
        **environment,
    }
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=terminal_end,
        stdin=subprocess.DEVNULL,
        env=environment,
        text=True,
        cwd=cwd,
    )
    os.close(terminal_end)
    terminal_bytes = b""
    while True:
        try:
            part = os.read(master_end, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        terminal_bytes += part
    os.close(master_end)
    assert running.stdout is not None
    with running.stdout as stream:
        stdout = stream.read()
    return running.wait(timeout=3000), stdout, terminal_bytes.decode()


def strip_codes(text):
    """Return what a terminal got without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
