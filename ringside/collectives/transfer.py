"""One end of a plain transfer over TCP.

It is started by its path over ssh, and needs only the standard library.

    transfer.py receive WARM_UP_S SECONDS [INTERFACE]
        prints {"address", "port"}, then {"bytes", "seconds"} that arrived
    transfer.py send ADDRESS PORT
        prints {"congestion_control"}, then sends until the receiver hangs up
    transfer.py iperf3-receive WARM_UP_S SECONDS [INTERFACE]
        prints {"address", "port"}; iperf3's own server
    transfer.py iperf3-send ADDRESS PORT WARM_UP_S SECONDS
        prints {"bytes", "seconds", "congestion_control"}

The receiver's clock counts, because a sender only knows what its kernel accepted. Each message is
one line of JSON. Each end stops when its standard input closes, which also happens when the ssh
connection is lost.
"""

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

CHUNK_BYTES = 1 << 20
# Wait this long for the sender, and for more of its data.
PATIENCE_S = 30.0
# iperf3 has no such limit of its own: this is added to the time of the test.
IPERF3_PATIENCE_S = 45.0
SIOCGIFADDR = 0x8915  # linux/sockios.h


def main(arguments: list[str]) -> None:
    """Do what the first argument says."""
    what, *rest = arguments
    if what == "receive":
        receive(float(rest[0]), float(rest[1]), rest[2] if len(rest) > 2 else "")
    elif what == "send":
        send(rest[0], int(rest[1]))
    elif what == "iperf3-receive":
        give_up_after(float(rest[0]) + float(rest[1]) + IPERF3_PATIENCE_S)
        iperf3_receive(rest[2] if len(rest) > 2 else "")
    else:
        give_up_after(float(rest[2]) + float(rest[3]) + IPERF3_PATIENCE_S)
        iperf3_send(rest[0], rest[1], float(rest[2]), float(rest[3]))


def say(**values: object) -> None:
    """One line of JSON."""
    print(json.dumps(values), flush=True)


def address_of(interface: str) -> str:
    """IPv4 address of an interface of this host; empty if no interface is named."""
    if not interface:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        request = struct.pack("256s", interface.encode()[:15])
        answer = fcntl.ioctl(asker.fileno(), SIOCGIFADDR, request)
    return socket.inet_ntoa(answer[20:24])


def receive(warm_up_s: float, seconds: float, interface: str) -> None:
    """Receive from one sender; count what arrives once buffers and queues are full."""
    with socket.create_server((address_of(interface), 0)) as server:
        server.settimeout(PATIENCE_S)
        address, port = server.getsockname()
        say(address=address if interface else "", port=port)
        connection, _ = server.accept()
    with connection:
        connection.settimeout(PATIENCE_S)
        count, took_s = counted(connection, warm_up_s, seconds)
    say(bytes=count, seconds=took_s)


def counted(connection: socket.socket, warm_up_s: float, seconds: float) -> tuple[int, float]:
    """(bytes, seconds) from the first arrival after the warm-up on, without that arrival."""
    buffer = bytearray(CHUNK_BYTES)

    def come() -> tuple[int, float]:
        count = connection.recv_into(buffer)
        if not count:
            raise SystemExit("the sender is gone")
        return count, time.monotonic()

    _, first = come()
    began = first
    while began - first < warm_up_s:
        _, began = come()
    total, now = 0, began
    while now - began < seconds:
        count, now = come()
        total += count
    return total, now - began


def send(address: str, port: int) -> None:
    """Send until the receiver hangs up."""
    chunk = bytes(CHUNK_BYTES)
    with socket.create_connection((address, port), timeout=PATIENCE_S) as connection:
        name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        say(congestion_control=name.rstrip(b"\0").decode())
        try:
            while True:
                connection.sendall(chunk)
        except (BrokenPipeError, ConnectionResetError):
            return


def iperf3_receive(interface: str) -> None:
    """iperf3's own server, for one test."""
    if shutil.which("iperf3") is None:
        say(missing="iperf3")
        return
    address = address_of(interface)
    with socket.create_server((address, 0)) as held:
        port = held.getsockname()[1]
    bind = ("-B", address) if address else ()
    # --forceflush: it prints at once that it listens, not when its buffer is full.
    command = ("iperf3", "-s", "-1", "-p", str(port), *bind, "--forceflush")
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        CHILDREN.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b"Server listening"):
                say(address=address, port=port)
                break
        process.stdout.read()  # read on until it ends: a full pipe would stop it


def iperf3_send(address: str, port: str, warm_up_s: float, seconds: float) -> None:
    """iperf3's client; print what its server has counted."""
    if shutil.which("iperf3") is None:
        say(missing="iperf3")
        return
    command = ("iperf3", "-J", "-c", address, "-p", port)
    # -O and -t of iperf3 take whole seconds only.
    times = ("-O", str(max(1, round(warm_up_s))), "-t", str(max(1, round(seconds))))
    with subprocess.Popen(
        (*command, *times), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        CHILDREN.append(process)
        assert process.stdout is not None
        text = process.stdout.read()
    answer = json.loads(text)
    if "error" in answer:
        raise SystemExit(f"iperf3: {answer['error']}")
    received = answer["end"]["sum_received"]
    say(
        bytes=received["bytes"],
        seconds=received["seconds"],
        congestion_control=answer["end"].get("sender_tcp_congestion", ""),
    )


CHILDREN: list[subprocess.Popen[bytes]] = []


def follow_stdin() -> None:
    """End when standard input closes."""
    while os.read(0, 4096):
        pass
    end()


def give_up_after(seconds: float) -> None:
    """End after this time, whatever is going on."""
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def end() -> None:
    """End this process, and the one that it has started."""
    for child in CHILDREN:
        child.kill()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=follow_stdin, daemon=True).start()
    main(sys.argv[1:])
