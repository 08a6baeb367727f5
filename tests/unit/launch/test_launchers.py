"""Each launcher makes a plan in the same way; what the planner refuses, word for word."""

from pathlib import Path
from typing import Any

import pytest

from ringside_core.specs import RefusalError, assign_slots, read_hostfile
from tests.unit.launch.conftest import PlanOf

HOSTFILES = Path(__file__).resolve().parents[3] / "hostfiles"

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "more replicas than slots": (
        {"backend": "horovod", "replicas": 4, "hostfile": "a slots=2\nb"},
        "There must be a slot for each replica. Received: 4 replicas, 3 slots on a (2), b (1). "
        "Use --replicas 3 or fewer, or add slots.",
    ),
    "a small host": (
        {"backend": "horovod", "replicas": 4, "hosts": 2, "hostfile": "a slots=3\nb slots=1"},
        "There must be 2 hosts with 2 slots each. Received: b (1). "
        "Change the hostfile, or the number of replicas.",
    ),
    "more tasks than one TF_CONFIG can name": (
        {
            "backend": "multi_worker_mirrored",
            "replicas": 900,
            "hostfile": f"{'a' * 63}.{'b' * 63}.{'c' * 63} slots=900",
        },
        # 900 addresses of 191 + 1 + 5 characters in quotes, `, ` between; 67 around them.
        "TF_CONFIG must fit into 131,061 characters. Received: 180,965 for 900 tasks. "
        "Use fewer replicas or servers, or shorter names.",
    ),
    "no hostfile": (
        {"backend": "horovod", "hosts": 2},
        "A run on several hosts must have a hostfile. Received: 2 hosts.",
    ),
    "localhost beside another machine": (
        {"backend": "multi_worker_mirrored", "hosts": 2, "hostfile": "localhost\nb"},
        "Beside other machines, this one must have a name that they can reach it by. "
        "Received: localhost beside b. "
        "Put the name or address of this machine into the hostfile.",
    ),
    "one process that fits on no host": (
        {"backend": "mirrored", "hostfile": "a\nb"},
        "A process with 2 replicas must have a host with 2 slots. Received: a (1), b (1). "
        "Change the hostfile, or the number of replicas.",
    ),
    "servers on a host that is not there": (
        {"backend": "parameter_server", "hostfile": "a\nb", "servers_on": ("b", "c")},
        "Parameter servers need hosts of the hostfile. Received: --servers-on c. "
        "Hosts there: a, b.",
    ),
    "a launcher that the backend cannot join": (
        {"backend": "multi_worker_mirrored", "launcher": "mpirun"},
        "The backend multi_worker_mirrored is started by local. Received: launcher mpirun. "
        "Use launcher auto.",
    ),
    "Gloo under mpirun": (
        {"backend": "horovod", "launcher": "mpirun", "options": {"controller": "gloo"}},
        "Under mpirun Horovod's controller is MPI. Received: controller=gloo. "
        "Use -o controller=mpi, or the launcher horovodrun.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusal(case: str, plan_of: PlanOf) -> None:
    """A run that cannot be placed is refused with the rule, what came, and what to do."""
    request, message = REFUSED[case]

    with pytest.raises(RefusalError) as refusal:
        plan_of(**request)

    assert str(refusal.value) == message


@pytest.mark.parametrize("name", ["local4", "two_hosts.template"])
def test_the_hostfiles_that_come_with_ringside(name: str) -> None:
    """Each hostfile has room for four replicas."""
    hosts = read_hostfile(HOSTFILES / name)

    assert sum(host.slots for host in assign_slots(hosts, 4)) == 4
