"""Horovod's ranks under srun: their places, and the server at which they meet."""

import urllib.error
import urllib.request

import pytest

from backends.horovod_meeting import meet
from launch.site import free_ports
from ringside_core.specs import RefusalError
from ringside_core.specs.slurm import SlurmStep


def step_of(layout: tuple[int, ...], addresses: tuple[str, ...], *, rank: int = 0) -> SlurmStep:
    """A step of so many tasks on each node."""
    return SlurmStep(job_id=1, step_id=0, rank=rank, tasks_per_node=layout, addresses=addresses)


def test_rank_0_serves_and_the_others_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other rank hears of a server that answers; the interface is that of the address."""
    monkeypatch.setattr("ringside_core.specs.slurm.FIRST_PORT", free_ports(1)[0] - 613)
    first: dict[str, str] = {}
    second: dict[str, str] = {"HOROVOD_GLOO_IFACE": "mine"}

    server = meet(step_of((1, 1), ("127.0.0.1", "127.0.0.1")), first)
    other = meet(step_of((1, 1), ("127.0.0.1", "127.0.0.1"), rank=1), second)

    assert server is not None
    assert other is None
    assert (
        server.server_address[0] == "127.0.0.1"
    )  # a process that reaches it can change the meeting
    where = f"http://127.0.0.1:{second['HOROVOD_GLOO_RENDEZVOUS_PORT']}/global/0"
    with pytest.raises(urllib.error.HTTPError, match="404"):  # nothing is there yet
        urllib.request.urlopen(where)
    assert [first[f"HOROVOD_{name}"] for name in ("RANK", "CROSS_RANK", "SIZE")] == ["0", "0", "2"]
    assert [second[f"HOROVOD_{name}"] for name in ("RANK", "CROSS_RANK")] == ["1", "1"]
    assert (first["HOROVOD_GLOO_IFACE"], second["HOROVOD_GLOO_IFACE"]) == ("lo", "mine")
    server.shutdown()
    server.server_close()


def test_a_taken_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs that want the same port: the second says so."""
    monkeypatch.setattr("ringside_core.specs.slurm.FIRST_PORT", free_ports(1)[0] - 613)
    step = step_of((1, 1), ("127.0.0.1", "127.0.0.1"))
    server = meet(step, {})
    assert server is not None

    with pytest.raises(RefusalError, match="port at which Horovod's ranks meet must be free"):
        meet(step, {})
    server.shutdown()
    server.server_close()


def test_a_rank_0_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others give up, with its address."""
    monkeypatch.setattr("ringside_core.specs.slurm.FIRST_PORT", free_ports(1)[0] - 613)
    monkeypatch.setattr("backends.horovod_meeting.ARRIVAL_S", 0.5)

    with pytest.raises(TimeoutError, match=r"rank 0 did not come to 127\.0\.0\.1:\d+"):
        meet(step_of((1, 1), ("127.0.0.1", "127.0.0.1"), rank=1), {})
