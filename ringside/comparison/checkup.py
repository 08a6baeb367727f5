"""A look at a machine before it is used: limits, clock, ports, and five real steps of each backend.

Each finding is `good`, or says what to do.
"""

import math
import resource
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple

import psutil
from rich.console import Console

from launch import execute, make_plan
from ringside.comparison.arms import default_backends, largest, parse_arms
from ringside.comparison.available_arms import available
from ringside.comparison.hosts import all_slots, links_between, ready_hosts
from ringside.stats.links import link_words
from ringside_core.readings.cgroups import cpu_quota, memory_left_bytes
from ringside_core.readings.cores import usable_cores
from ringside_core.specs import Arm, Placement, RefusalError, Shared
from ringside_core.text import byte_size, plural

STEPS, BATCH = 5, 8
DEADLINE_S = 60.0
SAME = 1e-9  # of the loss in float64, over five updates
# What a run of two replicas needs about: TensorFlow's threads, sockets and files, and memory.
LEAST_THREADS, LEAST_FILES, LEAST_BYTES = 1000, 1024, 2 * 2**30
LEAST_SHARED = 64 * 2**20  # of /dev/shm, through which Open MPI's ranks send
CLOCK_S, MOST_DRIFT = 0.5, 0.002  # s, and as a part of it
PORTS = 8
_SHARED = Shared(
    workload="synthetic",
    workload_options={"examples": STEPS * BATCH, "image_size": 8, "width": 4},
    epochs=1,
    precision="float64",
    global_batch=BATCH,
).with_cores(1)


# What cannot be used here need not be mended: few machines have a TPU.
Mark = Literal["good", "to do", "absent"]


class Finding(NamedTuple):
    """One line."""

    what: str
    said: str
    mark: Mark = "good"


def limits() -> Iterator[Finding]:
    """Processors, threads, files and memory that this process may have."""
    cores, quota = len(usable_cores()), cpu_quota()
    if quota is not None and quota < cores:
        said = f"{cores} can be used, but a quota allows {quota:g} at once: raise it, or use fewer"
        yield Finding("cores", said, "to do")
    else:
        yield Finding("cores", plural(cores, "core"))
    for what, limit, least, unit in (
        ("threads", resource.RLIMIT_NPROC, LEAST_THREADS, "ulimit -u"),
        ("open files", resource.RLIMIT_NOFILE, LEAST_FILES, "ulimit -n"),
    ):
        most = resource.getrlimit(limit)[0]
        few = most != resource.RLIM_INFINITY and most < least
        advice = f"; a run needs about {least}: {unit} {least}" if few else ""
        count = "no limit" if most == resource.RLIM_INFINITY else str(most)
        yield Finding(what, f"{count}{advice}", "to do" if few else "good")
    free = min(psutil.virtual_memory().available, memory_left_bytes() or 2**63)
    shared = psutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else 0
    for what, has, needs in (("memory", free, LEAST_BYTES), ("/dev/shm", shared, LEAST_SHARED)):
        advice = "" if has >= needs else f"; a run needs about {byte_size(needs)}"
        yield Finding(what, f"{byte_size(has)} free{advice}", "to do" if advice else "good")


def clock() -> Finding:
    """Whether the clock of the day goes as fast as the one that steps are timed by."""
    drifts = []
    for _ in range(3):  # a process that is stopped between two looks sees a drift too
        day, steady = time.time(), time.perf_counter()
        time.sleep(CLOCK_S)
        drifts.append((time.time() - day) / (time.perf_counter() - steady) - 1)
    drift = min(drifts, key=abs)
    if abs(drift) > MOST_DRIFT:
        return Finding("clock", f"it is being set ({drift:+.1%}): wait until it is right", "to do")
    return Finding("clock", "steady")


def ports() -> Finding:
    """Whether processes can meet on this machine: by its name, on ports that are free."""
    try:
        with ExitStack() as held:
            for _ in range(PORTS):
                server = held.enter_context(socket.create_server(("127.0.0.1", 0)))
                held.enter_context(socket.create_connection(server.getsockname(), timeout=5))
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError as error:
        return Finding("ports", f"{error}: mend loopback, or the name in /etc/hosts", "to do")
    return Finding("ports", "loopback answers, and the name of this host is known")


def hosts(console: Console, placement: Placement, folder: Path) -> Iterator[Finding]:
    """Whether each host of a hostfile is ready, and what the link to the next one carries.

    Args:
        console: shows what is being done.
        placement: with a hostfile; of this machine alone there is nothing to say.
        folder: that the hosts must share.
    """
    if not placement.names:
        return
    arms = parse_arms("horovod", str(all_slots(placement)))
    try:
        facts = ready_hosts([_SHARED.spec_of(arm, placement) for arm in arms], placement, folder)
    except RefusalError as error:
        yield Finding("hosts", str(error), "to do")
        return
    for name, one in facts.items():
        yield Finding(name, f"{plural(one.cores, 'core')}, {one.address}")
    found = links_between(console, placement, {name: one.address for name, one in facts.items()})
    if len(facts) > 1 and not found:
        yield Finding("links", "nothing came through: see why by `ringside allreduce`", "to do")
    for link in found:
        yield Finding(f"{link.sender} → {link.receiver}", link_words(link))


def steps() -> Iterator[Finding]:
    """Five float64 updates of each backend that can run here; losses against the serial run."""
    able, unable = available(_arms(), _SHARED)
    arms = largest(able)  # a machine with one GPU has no room for two replicas
    groups = {arm.group for arm in arms}
    for one in unable:
        if one.label.endswith("×1") and one.label.removesuffix(" ×1") not in groups:
            yield Finding(one.label, one.reason, "absent")
    serial = math.nan
    with tempfile.TemporaryDirectory(prefix="ringside-doctor-") as folder:
        for number, arm in enumerate(arms):
            plan = make_plan(_SHARED.spec_of(arm), run_dir=Path(folder) / str(number))
            began = time.monotonic()
            ended = execute(plan, deadline_s=DEADLINE_S)
            took = f"{time.monotonic() - began:.0f} s"
            if not ended.outcome.completed:
                yield Finding(arm.label, str(ended.outcome).splitlines()[0], "to do")
                continue
            loss = next(r.epochs[0].train["loss"] for r in ended.records if r.epochs)
            if arm.capabilities.family == "none":
                serial = loss
            if math.isnan(serial):
                said = f"{STEPS} steps in {took}; there is no loss of serial to hold it against"
                yield Finding(arm.label, said)
                continue
            same = abs(loss / serial - 1) < SAME
            said = "same loss as serial" if same else f"loss {loss!r}, and serial has {serial!r}"
            advice = "" if same else f": see why by `ringside verify --backends {arm.group}`"
            yield Finding(
                arm.label, f"{STEPS} steps in {took}, {said}{advice}", "good" if same else "to do"
            )


def _arms() -> tuple[Arm, ...]:
    """Each backend with one replica, and with two where the result is plain Keras'."""
    arms = parse_arms(default_backends(), "1,2")
    kept = [arm for arm in arms if arm.replicas == 1 or arm.capabilities.synchronous]
    return tuple(sorted(kept, key=lambda arm: arm.capabilities.family != "none"))
