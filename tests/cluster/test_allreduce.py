"""`ringside allreduce` between two hosts of the lab, as a person types it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ringside.lab import Lab, format_rate
from ringside_core.specs import Communication

RATE = "20mbit"
BITS_PER_S = 20e6
SIZES = (64 * 2**10, 2**20)
REPETITIONS = 2
STACKS = "mpi:btl_tcp_flags=9,horovod gloo,tf.distribute RING:bytes_per_pack=262144"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def slow(lab: Lab) -> Iterator[Lab]:
    """The lab with slow links, as long as one test lasts."""
    before = {host.name: format_rate(lab.look(host).out_bits_per_s) for host in lab.hosts}
    lab.set_rate(None, RATE)
    yield lab
    for name, rate in before.items():
        lab.set_rate(name, rate)


def command(lab: Lab, folder: Path, *flags: str) -> list[str]:
    """On the first two hosts."""
    hostfile = folder / "hostfile"
    hostfile.write_text("".join(f"{host.name} slots=1\n" for host in lab.hosts[:2]))
    ringside = Path(sys.executable).parent / "ringside"
    return [str(ringside), "allreduce", "--hostfile", str(hostfile), *flags]


def carried(lab: Lab) -> dict[str, int]:
    """Bytes that have come from each host, as its port on the bridge has counted them."""
    counters = "/sys/class/net/{}/statistics/rx_bytes"
    return {h.name: int(Path(counters.format(h.namespace)).read_text()) for h in lab.hosts[:2]}


def receive_buffer_bytes() -> int:
    """What may lie in a receiver's kernel before it reads: it came before its clock began."""
    return int(Path("/proc/sys/net/ipv4/tcp_rmem").read_text().split()[2])


@pytest.mark.nightly
def test_every_stack_goes_over_the_measured_link(slow: Lab, tmp_path: Path) -> None:
    """All elements right, by every stack; each of its bytes was seen on the link."""
    before = carried(slow)
    sizes = ",".join(f"{size}B" for size in SIZES)

    done = subprocess.run(
        command(
            slow,
            tmp_path,
            *("--sizes", sizes, "--stacks", STACKS),
            *("--seconds", "0.01", "--repetitions", str(REPETITIONS)),
            *("--output", str(tmp_path), "--name", "found"),
        ),
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    names = tuple(host.name for host in slow.hosts[:2])
    text = (tmp_path / "found" / "communication.json").read_text()
    found = Communication.from_json(text)
    assert found.hosts == names
    assert [str(stack.outcome) for stack in found.stacks] == ["completed"] * 3
    assert [stack.stack for stack in found.stacks] == STACKS.split(",")
    for stack in found.stacks:
        asked = {(op, size) for op in ("allreduce", "broadcast") for size in SIZES}
        assert {(one.operation, one.size_bytes) for one in stack.timings} == asked
        assert stack.wrong == 0 and len(stack.cores) == 2
        assert all(len(one.cpu_s) == 2 for one in stack.timings)
    plain = [link for link in found.links if link.tool == "tcp"]
    assert [(link.sender, link.receiver) for link in plain] == [names, names[::-1]]
    for link in plain:
        # A token bucket passes no more. On top: what lay in the receiver's kernel when its clock
        # began, and the bucket's burst, which is smaller.
        most = BITS_PER_S / 8 * link.seconds + 2 * receive_buffer_bytes()
        assert 0 < link.bytes <= most
    # A sum of n between two: n from each. A broadcast: n from the first.
    after = carried(slow)
    each = sum(
        one.size_bytes * (len(one.seconds) + one.warm_up)
        for stack in found.stacks
        for one in stack.timings
        if one.operation == "allreduce"
    )
    by_links = {link.sender: link.bytes for link in plain}
    for name in names:
        assert after[name] - before[name] >= each + by_links[name]
    assert "of link" in done.stdout and f"{names[0]} → {names[1]}" in done.stdout


@pytest.mark.usefixtures("signals_heard")
def test_a_stopped_transfer_leaves_nothing(slow: Lab, tmp_path: Path) -> None:
    """Ctrl-C while a link is measured: both ends end, on both hosts."""
    addresses = {host.address for host in slow.hosts} | {slow.interface}

    def ends() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if any(word.endswith("transfer.py") for word in words) and addresses & set(words):
                found.append(process)
        return found

    with subprocess.Popen(
        command(slow, tmp_path, "--stacks", "mpi", "--output", str(tmp_path)),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        while not (running := ends()):
            assert process.poll() is None

        process.send_signal(signal.SIGINT)

        assert process.wait(60) == 130
    _, alive = psutil.wait_procs(running, timeout=30)
    assert alive == [] and ends() == []
