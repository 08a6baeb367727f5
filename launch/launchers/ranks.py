"""Horovod's ranks on this machine, started without horovodrun, which takes 5 s to begin.

Each gets what `horovodrun --gloo` would give it, and rank 0 serves the meeting that horovodrun
would serve (backends/horovod_meeting.py).
"""

import importlib.util
from pathlib import Path

from launch.launchers.horovodrun import GLOO_TIMEOUT_S
from launch.plan import RUN_ID, Plan, rank_names
from launch.site import LOOPBACK, Site
from ringside_core.specs import Placement, RunSpec
from ringside_core.specs.surroundings import MEETING


class Ranks:
    """A process for each rank. Where Ringside runs the same arm several times, in its own ways."""

    def plan(self, spec: RunSpec, *, run_dir: Path, placement: Placement, site: Site) -> Plan:
        """The plan of a run of Horovod with its Gloo controller."""
        size = spec.topology.num_processes
        (port,) = site.free_ports(1)
        shared = {
            RUN_ID: site.run_id,
            **site.listen_on(LOOPBACK),
            MEETING: "here",
            "HOROVOD_SIZE": str(size),
            "HOROVOD_LOCAL_SIZE": str(size),
            "HOROVOD_CROSS_RANK": "0",
            "HOROVOD_CROSS_SIZE": "1",
            "HOROVOD_HOSTNAME": "localhost",
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_IFACE": LOOPBACK,
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(GLOO_TIMEOUT_S),
        }
        command, names = site.task_command(run_dir), rank_names(spec)
        processes = tuple(
            site.process(
                name,
                "localhost",
                command,
                env={**shared, "HOROVOD_RANK": str(rank), "HOROVOD_LOCAL_RANK": str(rank)},
            )
            for rank, name in enumerate(names)
        )
        return site.plan(spec, run_dir, processes=processes, expects=names)


def starts_ranks(spec: RunSpec) -> bool:
    """Whether `Ranks` can start a run on this machine; horovodrun says why Horovod is missing."""
    if spec.capabilities.family != "horovod" or spec.options.horovod_controller == "mpi":
        return False
    return importlib.util.find_spec("horovod") is not None
