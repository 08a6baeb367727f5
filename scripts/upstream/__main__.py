"""Show one trap of Horovod, TensorFlow or Keras as shipped; docs/upstream.md tells of each.

    python scripts/upstream            the names
    python scripts/upstream NAME       shows it, in seconds on a quiet machine

The last line is `seen: …`, exit code 0, or `not seen: …`, exit code 1: then a newer version has
mended it, or something else is in the way. Nothing of Ringside is imported.
"""

import signal
import sys
from pathlib import Path

# The root, in the place of this folder.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from scripts.upstream import horovod, keras2, keras3, start, strategies  # noqa: E402

MODULES = (keras3, keras2, strategies, horovod)  # they put their traps on the list


def main(arguments: list[str]) -> int:
    """The exit code."""
    if arguments[:1] == ["--call"]:
        start.call(*arguments[1:])
    if not arguments:
        for name, show in start.TRAPS.items():
            print(f"{name:42}{(show.__doc__ or '').partition(chr(10))[0]}")
        return 0
    if len(arguments) != 1 or arguments[0] not in start.TRAPS:
        print(
            f"scripts/upstream shows one trap by its name. Received: {' '.join(arguments)}. "
            "Without a name it lists all.",
            file=sys.stderr,
        )
        return 2
    try:
        seen, what = start.TRAPS[arguments[0]]()
    except start.UnansweredError as error:
        seen, what = False, f"a process failed otherwise: {error}"
    print(f"{'seen' if seen else 'not seen'}: {what}")
    return 0 if seen else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its processes end, its folder goes
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
