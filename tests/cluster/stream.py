"""A TCP stream between two hosts, for tests/cluster/test_lab.py.

`stream.py receive ADDRESS` prints its port, then for each number of bytes on its standard input the
seconds that they took to arrive; it ends with its standard input. `stream.py send ADDRESS PORT`
sends until no process listens.
"""

import contextlib
import select
import socket
import sys
import time


def receive(address: str) -> None:
    """Read all that comes, and time what is asked for."""
    with socket.create_server((address, 0)) as server:
        print(server.getsockname()[1], flush=True)
        stream, _ = server.accept()
    wanted, start = 0, 0.0
    with stream:
        while True:
            ready, _, _ = select.select([stream, sys.stdin], [], [])
            if sys.stdin in ready:
                line = sys.stdin.readline()
                if not line:
                    return
                wanted, start = int(line), time.monotonic()
            if stream in ready:
                got = len(stream.recv(1 << 16))
                if 0 < wanted <= got:
                    print(time.monotonic() - start, flush=True)
                wanted = max(wanted - got, 0)


def send(address: str, port: str) -> None:
    """Send zeros."""
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection((address, int(port))) as stream,
    ):
        while True:
            stream.sendall(bytes(1 << 16))


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(*sys.argv[2:])
    else:
        send(*sys.argv[2:])
