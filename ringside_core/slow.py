"""Give a process a part of its processors' time: stop it for the rest of every period.

python -m ringside_core.slow <process id> <part>

A quota of a control group does the same, but few users may set one. Everything that the process
does is slowed, its answers to others too.
"""

import contextlib
import os
import signal
import sys
import time

PERIOD_S = 0.03  # a step of a worker takes about as long, and a worker must answer
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def main() -> None:
    """Slow it until this process is ended; it ends with the process that it slows."""
    pid, part = int(sys.argv[1]), float(sys.argv[2])
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it is for the training, which saves
    for number in ENDING:
        signal.signal(number, lambda *_: sys.exit())
    try:
        while True:
            begun = time.monotonic()
            time.sleep(part * PERIOD_S)
            os.kill(pid, signal.SIGSTOP)
            # Longer than meant, where others use the processor; but this process may also have been
            # frozen meanwhile, with the one that it slows.
            ran_s = min(time.monotonic() - begun, PERIOD_S)
            time.sleep(ran_s / part - ran_s)
            os.kill(pid, signal.SIGCONT)
    finally:
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    main()
