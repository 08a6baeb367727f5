"""One end of a plain transfer over TCP; it needs only the standard library.

    transfer.py receive ADDRESS WARM_UP_S SECONDS
        prints its port, then {"bytes", "seconds"} that arrived
    transfer.py send ADDRESS PORT
        prints its congestion control, then sends until the receiver hangs up

The receiver's clock counts: a sender only knows what its kernel accepted. Each end stops when its
standard input closes, as when its ssh connection is lost.
"""

import json
import os
import socket
import sys
import threading
import time

CHUNK_BYTES = 1 << 20
PATIENCE_S = 30.0  # for the other end, and for more of its data


def receive(address: str, warm_up_s: float, seconds: float) -> None:
    """Receive from one sender; count what arrives after the warm-up, when the queues are full."""
    buffer = bytearray(CHUNK_BYTES)
    with socket.create_server((address, 0)) as server:
        server.settimeout(PATIENCE_S)
        print(server.getsockname()[1], flush=True)
        connection, _ = server.accept()
    first = began = now = total = 0.0
    with connection:
        connection.settimeout(PATIENCE_S)
        while not began or now - began < seconds:
            count = connection.recv_into(buffer)
            if not count:
                raise SystemExit("the sender is gone")
            now = time.monotonic()
            first = first or now
            if began:
                total += count
            elif now - first >= warm_up_s:
                began = now  # what arrived by now does not count
    print(json.dumps({"bytes": int(total), "seconds": now - began}), flush=True)


def send(address: str, port: int) -> None:
    """Send until the receiver hangs up."""
    with socket.create_connection((address, port), timeout=PATIENCE_S) as connection:
        name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        print(name.rstrip(b"\0").decode(), flush=True)
        try:
            while True:
                connection.sendall(bytes(CHUNK_BYTES))
        except (BrokenPipeError, ConnectionResetError):
            return


def end_with_stdin() -> None:
    """End this process when its standard input closes."""
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_stdin, daemon=True).start()
    what, where, *rest = sys.argv[1:]
    if what == "receive":
        receive(where, float(rest[0]), float(rest[1]))
    else:
        send(where, int(rest[0]))
