"""Show one trap of Horovod, TensorFlow or Keras as shipped; docs/upstream.md lists them.

    python scripts/upstream            the names
    python scripts/upstream NAME       shows it, in seconds on a quiet machine

The last line is `seen: …`, exit code 0, or `not seen: …`, exit code 1: then a newer version has
mended it, or something else is in the way. Nothing of Ringside is imported.
"""

import signal
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])  # the root instead of this folder

from scripts.upstream import start, traps  # noqa: E402


def main(arguments: list[str]) -> int:
    """The exit code."""
    if arguments[:1] == ["--call"]:
        start.call(getattr(traps, arguments[1]), arguments[2])
    if not arguments:
        for name, trap in traps.TRAPS.items():
            print(f"{name:42}{(trap.function.__doc__ or '').splitlines()[0]}")
        return 0
    if len(arguments) != 1 or arguments[0] not in traps.TRAPS:
        print(
            f"scripts/upstream shows one trap by its name. Received: {' '.join(arguments)}. "
            "Without a name it lists all.",
            file=sys.stderr,
        )
        return 2
    trap = traps.TRAPS[arguments[0]]
    seen = True
    for way, keras in trap.cases:
        answers = start.run(trap.function, way, keras)
        print(f"{way}, Keras {keras}: {'; '.join(map(str, answers))}")
        seen = seen and not any(a.error or a.value == trap.right for a in answers)
    print(f"{'seen' if seen else 'not seen'}: right is {trap.right}")
    return 0 if seen else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its processes end, its folder goes
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
