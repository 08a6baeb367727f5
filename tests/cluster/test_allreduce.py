"""`ringside allreduce` between two hosts of the lab, as a person types it."""

from pathlib import Path

import pytest

from ringside.lab.lab import Lab
from ringside_core.specs import Communication
from tests.parallel.typed import ringside

SIZES = (64 * 2**10, 2**20)
STACKS = "mpi:btl_tcp_flags=9,horovod gloo,tf.distribute RING:bytes_per_pack=262144"


def carried(lab: Lab) -> dict[str, int]:
    """Bytes that have come from each host, as its port on the bridge has counted them."""
    counters = "/sys/class/net/{}/statistics/rx_bytes"
    return {h.name: int(Path(counters.format(h.namespace)).read_text()) for h in lab.hosts[:2]}


@pytest.mark.nightly
def test_every_stack_goes_over_the_measured_link(lab: Lab, tmp_path: Path) -> None:
    """All elements right, by every stack; each of its bytes was seen on the link."""
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("".join(f"{host.name} slots=1\n" for host in lab.hosts[:2]))
    before = carried(lab)

    done = ringside(
        *("allreduce", "--hostfile", str(hostfile), "--stacks", STACKS, "--seconds", "0.01"),
        *("--sizes", ",".join(f"{size}B" for size in SIZES)),
        *("--output", str(tmp_path), "--name", "found"),
        output=tmp_path,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    after = carried(lab)
    names = tuple(host.name for host in lab.hosts[:2])
    found = Communication.from_json((tmp_path / "found" / "communication.json").read_text())
    assert found.hosts == names
    assert [stack.stack for stack in found.stacks] == STACKS.split(",")
    for stack in found.stacks:
        assert stack.outcome.completed and stack.wrong == 0 and len(stack.cores) == 2
        assert tuple(timing.size_bytes for timing in stack.timings) == SIZES
    assert [(link.sender, link.receiver) for link in found.links] == [names, names[::-1]]
    # A sum of n between two: n from each.
    each = sum(
        timing.size_bytes * (len(timing.seconds) + timing.warm_up)
        for stack in found.stacks
        for timing in stack.timings
    )
    for link in found.links:
        assert after[link.sender] - before[link.sender] >= each + link.bytes
    assert "Of the link" in done.stdout and f"{names[0]} → {names[1]}" in done.stdout
