"""Ranks started by horovodrun, with the Gloo or the MPI controller."""

import shlex
from pathlib import Path

from launch.launchers.mpirun import remote_flags, scratch_env
from launch.placement import place
from launch.plan import LAUNCHER_NAME, RUN_ID, Plan, Process, rank_names
from launch.remote import private
from launch.remote.sweep import ENVIRONMENT
from launch.site import LOOPBACK, Site
from ringside_core.specs import Placement, RunSpec

# With Horovod's 30 s a rank fails if its peer imports TensorFlow slowly on a busy machine. No other
# arm has such a limit. execute() finds a run that stands still, for every arm in the same way.
# A live comparison freezes an arm for minutes, and Gloo counts that time.
GLOO_TIMEOUT_S = 3600
READER = str(Path(private.__file__).resolve())


class Horovodrun:
    """Horovod's horovodrun."""

    def plan(self, spec: RunSpec, *, run_dir: Path, placement: Placement, site: Site) -> Plan:
        """The plan of a run under horovodrun.

        The hosts are named one by one, because Horovod's parser fails at a comment in a hostfile.
        `--disable-cache`: Horovod would keep facts of hosts for an hour in the user's home.
        """
        hosts = place(spec.topology, placement)
        interface = site.interface((host.name for host in hosts), placement.interface)
        away = site.away(host.name for host in hosts)
        by_mpi = spec.options.horovod_controller == "mpi"
        env = {RUN_ID: site.run_id}
        if not (away and by_mpi):  # Open MPI's daemons elsewhere get no environment from us
            env |= site.listen_on(interface or LOOPBACK)
        hidden = ""
        command = site.task_command(run_dir)
        if by_mpi:
            env |= scratch_env(site, away) | spec.options.open_mpi_environment
            # Tasks pin themselves, in the same way under every launcher. `--name=value`, because
            # the values begin with a dash. horovodrun itself adds --allow-run-as-root.
            # horovodrun sets the interface of btl_tcp, and Open MPI takes no parameter twice.
            reach = remote_flags({"oob_tcp_if_include": interface}, site) if away else ()
            how = [
                "--mpi",
                "--binding-args=--bind-to none --map-by slot",
                f"--mpi-args={shlex.join(['--oversubscribe', *reach])}",
            ]
        else:
            how = ["--gloo", "--gloo-timeout-seconds", str(GLOO_TIMEOUT_S)]
            hidden = str(run_dir / ENVIRONMENT)
            command = (site.python, "-I", "-S", READER, hidden, *command)
        if interface:
            how += ["--network-interfaces", interface]
        argv = (
            "horovodrun",
            *("-np", str(spec.topology.num_processes)),
            *("-H", ",".join(f"{host.name}:{host.slots}" for host in hosts)),
            *how,
            "--disable-cache",
            # It reads the whole line with argparse, and would take our flags for abbreviations of
            # its own (`--log`: "ambiguous option: could match --log-level …").
            *("sh", "-c", f"exec {shlex.join(command)}"),
        )
        return site.plan(
            spec,
            run_dir,
            processes=(Process(name=LAUNCHER_NAME, argv=argv, env=env, private=hidden),),
            expects=rank_names(spec),
            remote_hosts=away,
        )
