"""One process, here or over ssh: all replicas are its own logical devices."""

from pathlib import Path

from launch.placement import place_alone
from launch.plan import RUN_ID, Plan, Process, rank_names
from launch.remote import ssh
from launch.site import Site
from ringside_core.specs import Placement, RunSpec


class Local:
    """One process that holds all replicas."""

    def plan(self, spec: RunSpec, *, run_dir: Path, placement: Placement, site: Site) -> Plan:
        """The plan of a backend that holds all its replicas in one process."""
        host = place_alone(spec.topology, placement)
        (name,) = rank_names(spec)
        command = site.task_command(run_dir)
        env = {RUN_ID: site.run_id}
        if site.is_local(host.name):
            process = Process(name=name, argv=command, env=env)
        else:
            process = ssh.remote_process(name, host.name, command, env=env, cwd=site.cwd)
        return Plan(
            spec=spec,
            run_dir=str(run_dir),
            processes=(process,),
            expects=(name,),
            run_id=site.run_id,
            remote_hosts=() if site.is_local(host.name) else (host.name,),
            python=site.python,
        )
