"""Horovod's ranks without horovodrun: rank 0 serves the rendezvous that it would serve.

Ringside itself starts ranks on this machine (launch/launchers/ranks.py), and srun on several.
srun numbers its tasks, but only MPI would tell them of each other, and Open MPI from PyPI does not
support that (seen: "OMPI was not built with SLURM's PMI support"). So the ranks meet by Gloo, as
under `horovodrun --gloo`. This file does what horovod/runner/gloo_run.py does there.
"""

import socket
import threading
import time
from collections.abc import Mapping, MutableMapping, Sequence

import psutil
from horovod.runner.common.util.hosts import HostInfo, SlotInfo, get_host_assignments
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

from ringside_core.specs import RefusalError
from ringside_core.specs.slurm import SlurmStep

# How long the other ranks wait until rank 0 has imported TensorFlow on a busy node. Also the limit
# of each step of the meeting (Horovod's 30 s are too short, see launch/launchers/horovodrun.py).
ARRIVAL_S = 120.0
POLL_S = 0.2


def meet(step: SlurmStep, env: MutableMapping[str, str]) -> RendezvousHTTPServer | None:
    """Write this rank's place, and the address where all ranks meet, into `env` for Horovod.

    Returns:
        In rank 0 the server of the meeting, to be shut down at the end; None in other ranks.

    Raises:
        RefusalError: its port is taken.
        TimeoutError: rank 0 never came.
    """
    from horovod.runner.gloo_run import create_slot_env_vars  # it imports much

    address, port = step.meeting_point
    # On its own node a name may mean 127.0.1.1, where no other host would find it.
    here = step.node == step.nodes[0]
    address = _own_address(step) if here else socket.gethostbyname(address)
    slots = _slots(step.tasks_per_node)
    server = _serve_or_wait(step.rank, slots, address, port)
    env.update(create_slot_env_vars(slots[step.rank]))
    env.update(HOROVOD_GLOO_RENDEZVOUS_ADDR=address, HOROVOD_GLOO_RENDEZVOUS_PORT=str(port))
    env.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(int(ARRIVAL_S)))
    env.setdefault("HOROVOD_GLOO_IFACE", _interface(step))
    return server


def meet_here(env: Mapping[str, str]) -> RendezvousHTTPServer | None:
    """The same for a rank whose place and meeting were written into `env` when it was started."""
    names = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_GLOO_RENDEZVOUS_PORT")
    rank, size, port = (int(env[name]) for name in names)
    return _serve_or_wait(rank, _slots((size,)), env["HOROVOD_GLOO_RENDEZVOUS_ADDR"], port)


def _slots(tasks_per_node: Sequence[int]) -> list[SlotInfo]:
    """The place of every rank, as horovodrun gives it; names of nodes only differ."""
    hosts = [HostInfo(f"node-{node}", tasks) for node, tasks in enumerate(tasks_per_node)]
    return list(get_host_assignments(hosts, sum(tasks_per_node)))


def _serve_or_wait(
    rank: int, places: Sequence[SlotInfo], address: str, port: int
) -> RendezvousHTTPServer | None:
    """Rank 0 serves on the one interface by which the others come: it asks for no password."""
    if rank:
        _wait_for(address, port)
        return None
    try:
        server = RendezvousHTTPServer((address, port), RendezvousHandler, 0)
    except OSError as error:
        raise RefusalError(
            "The port at which Horovod's ranks meet must be free.",
            received=f"{port} ({error.strerror})",
            advice="Start again: another one is taken then.",
        ) from None
    server.daemon_threads = True
    server.init(places)
    threading.Thread(target=server.serve_forever, daemon=True, name="meeting").start()
    return server


def _wait_for(address: str, port: int) -> None:
    """Return once rank 0 listens."""
    give_up = time.monotonic() + ARRIVAL_S
    while True:
        try:
            with socket.create_connection((address, port), timeout=POLL_S):
                return
        except OSError as error:
            if time.monotonic() > give_up:
                raise TimeoutError(
                    f"rank 0 did not come to {address}:{port} within {ARRIVAL_S:.0f} s ({error})"
                ) from None
        time.sleep(POLL_S)


def _own_address(step: SlurmStep) -> str:
    """The address by which this node reaches the others."""
    own = step.addresses[step.node]
    peer = next((address for address in step.addresses if address != own), own)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))  # of a datagram socket: looks up the route, sends nothing
        return str(probe.getsockname()[0])


def _interface(step: SlurmStep) -> str:
    """The network interface by which this node reaches the others."""
    # Without it, Gloo would take the address of the host's name. On Debian that is 127.0.1.1.
    address = _own_address(step)
    for name, bound in psutil.net_if_addrs().items():
        if any(one.address == address for one in bound):
            return name
    raise RefusalError(
        "The address by which a node reaches the others must belong to an interface.",
        received=address,
        advice="Name the interface in HOROVOD_GLOO_IFACE.",
    )
