"""Ranks started by horovodrun, with the Gloo or the MPI controller."""

import shlex
from pathlib import Path

from launch.launchers.mpirun import remote_flags, scratch_env
from launch.plan import RUN_ID, Plan
from launch.site import Site, ranks_plan
from ringside_core.specs import Host, RunSpec

# Horovod's 30 s fail a rank whose peer is slow to import TensorFlow on a busy machine; no other arm
# has such a limit. Standing still is found by execute(), for every arm alike.
GLOO_TIMEOUT_S = 120


def plan(
    spec: RunSpec, *, run_dir: Path, hosts: tuple[Host, ...], interface: str, site: Site
) -> Plan:
    """The plan of a run under horovodrun.

    The hosts are named one by one: Horovod's parser fails at a comment in a hostfile.
    `--disable-cache`: the cache would keep what was true of a host for an hour, in the user's home.
    """
    away = site.away(host.name for host in hosts)
    by_mpi = spec.options.horovod_controller == "mpi"
    env = {RUN_ID: site.run_id}
    scratch = ""
    if by_mpi:
        env |= spec.options.open_mpi_environment
        # Tasks pin themselves, alike under every launcher. (`--name=value`: the values begin with
        # a dash. --allow-run-as-root is added by horovodrun itself.)
        # It names the interface of btl_tcp itself, and Open MPI takes no parameter twice.
        reach = remote_flags({"oob_tcp_if_include": interface}, site) if away else ()
        how = [
            "--mpi",
            "--binding-args=--bind-to none --map-by slot",
            f"--mpi-args={shlex.join(['--oversubscribe', *reach])}",
        ]
        if not away:
            scratch = site.scratch
            env |= scratch_env(scratch)
    else:
        how = ["--gloo", "--gloo-timeout-seconds", str(GLOO_TIMEOUT_S)]
    if interface:
        how += ["--network-interfaces", interface]
    argv = (
        "horovodrun",
        *("-np", str(spec.topology.num_processes)),
        *("-H", ",".join(f"{host.name}:{host.slots}" for host in hosts)),
        *how,
        "--disable-cache",
        *_shielded(site.task_command(run_dir)),
    )
    return ranks_plan(
        spec, run_dir=run_dir, site=site, argv=argv, env=env, away=away, scratch=scratch
    )


def _shielded(command: tuple[str, ...]) -> tuple[str, ...]:
    """Hide a command's flags from horovodrun, which would abbreviate its own by them.

    It reads the whole line with argparse, and ends at our `--log` ("ambiguous option: could match
    --log-level, --log-with-timestamp …"), though that stands behind the command.
    """
    return ("sh", "-c", f"exec {shlex.join(command)}")
