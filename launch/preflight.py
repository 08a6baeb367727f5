"""Is this machine ready for its tasks? Started by its path over ssh; the standard library only."""

import socket
import sys
from pathlib import Path


def obstacles(spec_file: Path, ports: list[int]) -> list[str]:
    """What is in the way on this machine; empty when nothing is."""
    found = [f"port {port} is taken" for port in ports if not _is_free(port)]
    if not spec_file.is_file():
        found.append(f"{spec_file} is not there; all machines must see the run's folder")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # The last connections of an earlier run may linger (TIME_WAIT); servers do not mind.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    problems = obstacles(Path(sys.argv[1]), [int(port) for port in sys.argv[2:]])
    print("; ".join(problems))
    raise SystemExit(1 if problems else 0)
