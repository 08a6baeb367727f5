"""One process on this machine: all replicas are its own logical devices."""

from pathlib import Path

from launch.plan import RUN_ID, Plan, Process
from launch.site import Site, rank_names
from specs import Host, RefusalError, RunSpec


def plan(spec: RunSpec, *, run_dir: Path, hosts: tuple[Host, ...], site: Site) -> Plan:
    """The plan of a backend that holds all its replicas in one process."""
    if not site.is_local(hosts[0].name):
        raise RefusalError(
            f"The backend {spec.backend} runs in one process, on this machine.",
            received=f"host {hosts[0].name}",
            advice="Start Ringside there, or put localhost first.",
        )
    (name,) = rank_names(spec)
    process = Process(name=name, argv=site.task_command(run_dir), env={RUN_ID: site.run_id})
    return Plan(
        spec=spec,
        run_dir=str(run_dir),
        processes=(process,),
        expects=(name,),
        run_id=site.run_id,
        python=site.python,
    )
