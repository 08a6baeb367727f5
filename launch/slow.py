"""Give a process a part of its speed: stop it for the rest of every period.

python -m launch.slow <process id> <part>

A quota of a control group does the same, but few users may set one. Everything that the process
does is slowed, its answers to others too.
"""

import contextlib
import os
import signal
import sys
import time

PERIOD_S = 0.03  # a step of a worker takes about as long, and a worker must answer


def main() -> None:
    """Slow it until this process is ended; it ends with the process that it slows."""
    pid, part = int(sys.argv[1]), float(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    begun = time.monotonic()
    try:
        while True:
            begun = max(begun + PERIOD_S, time.monotonic())
            _until(begun + part * PERIOD_S)
            os.kill(pid, signal.SIGSTOP)
            _until(begun + PERIOD_S)
            os.kill(pid, signal.SIGCONT)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


if __name__ == "__main__":
    main()
