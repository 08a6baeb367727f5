"""Ranks started by Open MPI's mpirun."""

from collections.abc import Mapping
from pathlib import Path

from launch.placement import place
from launch.plan import LAUNCHER, LAUNCHER_NAME, RUN_ID, Plan, Process, rank_names
from launch.remote import ssh, sweep
from launch.site import LOOPBACK, Site
from ringside_core.specs import Placement, RefusalError, RunSpec


class Mpirun:
    """Open MPI's mpirun."""

    def plan(self, spec: RunSpec, *, run_dir: Path, placement: Placement, site: Site) -> Plan:
        """The plan of a run under mpirun, with the transports that horovodrun --mpi chooses."""
        if spec.options.horovod_controller == "gloo":
            raise RefusalError(
                "Under mpirun Horovod's controller is MPI.",
                received="controller=gloo",
                advice="Use -o controller=mpi, or the launcher horovodrun.",
            )
        hosts = place(spec.topology, placement)
        interface = site.interface((host.name for host in hosts), placement.interface)
        away = site.away(host.name for host in hosts)
        # LAUNCHER names a process of this machine: a task on another one would not find it.
        exported = [RUN_ID] if away else [RUN_ID, LAUNCHER]
        networks = {"btl_tcp_if_include": interface, "oob_tcp_if_include": interface}
        reach = (
            [*remote_flags(networks, site), "-x", "PATH", "-x", "PYTHONHASHSEED=0"] if away else []
        )
        argv = (
            "mpirun",
            *(["--allow-run-as-root"] if site.is_root else []),
            *("-np", str(spec.topology.num_processes)),
            *("-H", ",".join(f"{host.name}:{host.slots}" for host in hosts)),
            # Tasks pin themselves, in the same way under every launcher. There may be more ranks
            # than cores.
            *("--bind-to", "none", "--map-by", "slot", "--oversubscribe"),
            *("--mca", "pml", "ob1", "--mca", "btl", "^openib"),
            *reach,
            *(part for name in exported for part in ("-x", name)),
            *site.task_command(run_dir),
        )
        env = {RUN_ID: site.run_id, **scratch_env(site, away)}
        env |= {} if away else site.listen_on(LOOPBACK)
        env |= spec.options.open_mpi_environment  # mpirun passes it to every rank
        return site.plan(
            spec,
            run_dir,
            processes=(Process(name=LAUNCHER_NAME, argv=argv, env=env),),
            expects=rank_names(spec),
            remote_hosts=away,
        )


def remote_flags(networks: Mapping[str, str], site: Site) -> tuple[str, ...]:
    """Flags for other machines: the folder of Open MPI, the network, and the mark of the run."""
    # Its daemons get no environment from us; by the mark a keeper finds them.
    return (
        *("--prefix", str(Path(site.python).parent.parent)),
        *(part for name, value in networks.items() for part in ("--mca", name, value)),
        *("--mca", "plm_rsh_args", " ".join(ssh.OPTIONS)),
        *("--mca", "orte_launch_agent", f"env {RUN_ID}={site.run_id} orted"),
    )


def scratch_env(site: Site, away: tuple[str, ...]) -> dict[str, str]:
    """Let Open MPI keep its files in a folder of the run, on each host; we remove it."""
    if away:  # they need not have shared memory that we may write
        return {"OMPI_MCA_orte_tmpdir_base": sweep.scratch(sweep.TEMPORARY, site.run_id)}
    folder = site.scratch
    return {"OMPI_MCA_orte_tmpdir_base": folder, "OMPI_MCA_btl_vader_backing_directory": folder}
