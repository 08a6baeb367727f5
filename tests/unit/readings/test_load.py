"""What others did on the processors, and what interfaces carried: from /proc."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringside.stats.rounds import disturbance
from ringside_core.readings import load
from ringside_core.readings.load import (
    TICKS_PER_S,
    LoadWatch,
    cores_of,
    own_cpu_s,
    read_ticks,
    sent_between,
    sent_bytes,
)
from ringside_core.specs import Load, MachineCounts, Topology
from tests.unit.stats.factory import simple_run, spec_of

STAT = """cpu  600 0 600 9 9 0 0 0 0 0
cpu0 100 20 30 4000 500 6 7 80 90 0
cpu1 1000 0 0 0 0 0 0 0 0 0
cpu11 5 0 0 0 0 0 0 0 0 0
intr 1 2 3
"""


def test_busy_is_user_nice_system_and_interrupts() -> None:
    """Idle, waiting, stolen and guest time do not count; nor do other processors."""
    ticks = read_ticks(STAT, {0, 11})

    assert ticks.busy_s == pytest.approx((100 + 20 + 30 + 6 + 7 + 5) / TICKS_PER_S)
    assert ticks.steal_s == pytest.approx(80 / TICKS_PER_S)


def counts(busy_s: float, own_s: float) -> MachineCounts:
    """Of a run on two of four processors; the others were busy for 4 s."""
    return MachineCounts(
        cores=(0, 1),
        busy_s=busy_s,
        steal_s=0.5,
        own_s=own_s,
        machine_cores=4,
        machine_busy_s=busy_s + 4.0,
        machine_steal_s=1.0,
    )


def test_what_is_not_our_own_is_others() -> None:
    """It is never below 0, even if the kernel's ticks are inexact; machines are added up."""
    load = Load.counted([counts(5.0, 3.5), counts(3.49, 3.5)], wall_s=9.0, swapped_bytes=7)

    assert (load.others_cpu_s, load.steal_cpu_s, load.cores) == (1.5, 1.0, 4)
    assert load.swapped_bytes == 7


def test_the_time_of_a_child_is_our_own() -> None:
    """Also of a child's child, if its parents wait for it."""
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    shell = f"{sys.executable} -c '{burn}'; true"  # a second command: the shell waits
    with LoadWatch() as nothing:
        pass
    with LoadWatch() as watch:
        own_s = own_cpu_s()
        subprocess.run(["sh", "-c", shell], check=True)

    if watch.load is None:
        pytest.skip("no /proc/stat")
    assert own_cpu_s() - own_s >= 0.5
    assert watch.load.machines[0].own_s >= 0.5
    assert nothing.load is not None
    assert watch.load.cores == len(os.sched_getaffinity(0))


def stat_of(busy_s: dict[int, float]) -> str:
    """The text of /proc/stat of a machine of 64 processors."""
    ticks = (int(busy_s.get(k, 0) * TICKS_PER_S) for k in range(64))
    return "".join(f"cpu{k} {busy} 0 0 0 0 0 0 0 0 0\n" for k, busy in enumerate(ticks))


@pytest.mark.parametrize(
    ("busy_s", "others_s"),
    [
        ({0: 100.0}, 100.0),  # on one of ours
        ({40: 100.0, 41: 100.0}, 0.0),  # where the run is not
    ],
)
def test_only_the_processors_of_a_run_are_looked_at(
    busy_s: dict[int, float], others_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 64 processors only the run's two count; a stranger on one of them is seen."""
    stat = tmp_path / "stat"
    stat.write_text(stat_of({}))
    monkeypatch.setattr(load, "PROC_STAT", stat)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    cores = cores_of(spec_of("horovod", 2), range(64))

    with LoadWatch(cores) as watch:
        stat.write_text(stat_of(busy_s))

    assert cores == (0, 1)
    assert watch.load is not None and watch.load.cores == 2
    assert watch.load.others_cpu_s == pytest.approx(others_s, abs=1.0)  # less our own
    # The same 100 s in a run of 100 s: half of its processors, and 2 % of the machine.
    seen = disturbance(simple_run("horovod", 2, 1.0).replace(load=watch.load.replace(wall_s=100)))
    assert bool(seen) == bool(others_s)


@pytest.mark.parametrize(
    ("backend", "changes", "cores"),
    [
        ("mirrored", {"resources": {}}, range(64)),  # not pinned
        ("mirrored", {"topology": Topology(replicas_per_process=3)}, (0, 1, 2)),
        ("horovod", {"topology": Topology(hosts=2, processes_per_host=4)}, (0, 1, 2, 3)),
        ("parameter_server", {"topology": Topology(processes_per_host=2)}, (0, 1)),
        ("horovod", {"resources": {"cores_per_replica": 40}}, range(64)),  # more than there are
    ],
)
def test_processors_of_a_run(backend: str, changes: dict[str, Any], cores: Any) -> None:
    """Those to which its processes on this machine are pinned, computed by hand."""
    spec = spec_of(backend, 2, **{"global_batch": 24, **changes})

    assert cores_of(spec, range(64)) == tuple(cores)


def test_what_interfaces_have_sent_is_the_kernels_count() -> None:
    """A datagram to this machine itself goes through loopback."""
    before = sent_bytes()["lo"]
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(bytes(1000), ("127.0.0.1", 9))

    assert sent_bytes()["lo"] >= before + 1000


def test_only_interfaces_that_counted_all_the_while_are_reported() -> None:
    """One disappeared, one appeared, one restarted: their traffic is unknown."""
    before = {"lo": 100, "gone": 5, "fresh": 900, "idle": 7}
    after = {"lo": 350, "new": 80, "fresh": 20, "idle": 7}

    assert sent_between(before, after) == {"lo": 250, "idle": 0}
