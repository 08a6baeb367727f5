"""One process, here or over ssh: all replicas are its own logical devices."""

from pathlib import Path

from launch.placement import place_alone
from launch.plan import RUN_ID, Plan, rank_names
from launch.site import Site
from ringside_core.specs import Placement, RunSpec


class Local:
    """One process that holds all replicas."""

    def plan(self, spec: RunSpec, *, run_dir: Path, placement: Placement, site: Site) -> Plan:
        """The plan of a backend that holds all its replicas in one process."""
        host = place_alone(spec.topology, placement).name
        (name,) = rank_names(spec)
        command, env = site.task_command(run_dir), {RUN_ID: site.run_id}
        processes = (site.process(name, host, command, env=env),)
        away = site.away([host])
        return site.plan(spec, run_dir, processes=processes, expects=(name,), remote_hosts=away)
