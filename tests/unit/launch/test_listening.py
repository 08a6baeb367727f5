"""On which interface the processes of a run listen, and what is said where it is every one."""

import dataclasses
from typing import Any

import pytest

from launch import Site
from tests.unit.launch.conftest import PlanOf

HOSTS = "here slots=1\nthere slots=1\n"
BUILT = "/venv/lib/ringside_listen.so"


@pytest.mark.parametrize(
    ("backend", "changes", "interface"),
    [
        ("multi_worker_mirrored", {}, "lo"),
        ("parameter_server", {}, "lo"),
        ("horovod", {}, "lo"),
        ("horovod", {"options": {"controller": "mpi"}}, "lo"),
        ("horovod", {"hostfile": HOSTS}, "eth7"),
        ("horovod", {"hostfile": HOSTS, "interface": "ib0"}, "ib0"),
        ("multi_worker_mirrored", {"hostfile": HOSTS, "interface": "ib0"}, "ib0"),
        # No one knows the interfaces of the other host, or gives Open MPI's daemon an environment.
        ("multi_worker_mirrored", {"hostfile": HOSTS}, None),
        ("horovod", {"hostfile": HOSTS, "options": {"controller": "mpi"}}, None),
        ("mirrored", {}, ""),
    ],
    ids=str,
)
def test_runs_listen_on_one_interface(
    backend: str, changes: dict[str, Any], interface: str | None, plan_of: PlanOf, site: Site
) -> None:
    """Loopback on one machine, the chosen one between several; None: on all, and it is known."""
    hosts = 2 if "hostfile" in changes else 1
    built = dataclasses.replace(site, listen_library=BUILT)

    plan = plan_of(backend, hosts=hosts, on=built, **changes)
    bare = plan_of(backend, hosts=hosts, **changes)

    for process in plan.processes:
        words = f"RINGSIDE_LISTEN_ON={interface} LD_PRELOAD={BUILT}"
        assert (words in process.render()) == bool(interface)
    assert plan.listens_everywhere == (interface is None)
    assert bare.listens_everywhere == (interface != "")
    assert "LD_PRELOAD" not in bare.render()
