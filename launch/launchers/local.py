"""One process, here or behind ssh: all replicas are its own logical devices."""

from pathlib import Path

from launch.plan import RUN_ID, Plan, Process
from launch.remote import ssh
from launch.site import Site, rank_names
from ringside_core.specs import Host, RunSpec


def plan(spec: RunSpec, *, run_dir: Path, host: Host, site: Site) -> Plan:
    """The plan of a backend that holds all its replicas in one process."""
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
