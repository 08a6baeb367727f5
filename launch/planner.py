"""Choose the launcher of a spec, and write its plan."""

from pathlib import Path
from typing import Literal

from launch.launchers import (
    horovodrun,
    local,
    mpirun,
    tf_config,
)
from launch.placement import THIS_MACHINE, Placement, place, place_alone
from launch.plan import Plan
from launch.site import Site
from ringside_core.specs import RefusalError, RunSpec

LauncherName = Literal["auto", "local", "horovodrun", "mpirun"]


def make_plan(
    spec: RunSpec,
    *,
    run_dir: Path,
    placement: Placement = THIS_MACHINE,
    launcher: LauncherName = "auto",
    site: Site | None = None,
) -> Plan:
    """Write down the processes of a run; nothing is started, nothing is written to disk.

    Args:
        spec: the run.
        run_dir: folder of the run; on several machines, the same one on all.
        placement: which hosts, and what joins them.
        launcher: `auto` takes the one that the backend can join.
        site: this machine; tests give another.

    Raises:
        RefusalError: a launcher that the backend cannot join, or more processes than slots.
    """
    site = site or Site.here()
    run_dir = run_dir.absolute()
    chosen = _choose(spec, launcher)
    if spec.capabilities.process_model == "single":
        host = place_alone(spec.topology, placement)
        return local.plan(spec, run_dir=run_dir, host=host, site=site)
    hosts = place(spec.topology, placement)
    names = [host.name for host in hosts]
    interface = site.interface(names, placement.interface)
    if chosen == "horovodrun":
        return horovodrun.plan(spec, run_dir=run_dir, hosts=hosts, interface=interface, site=site)
    if chosen == "mpirun":
        return mpirun.plan(spec, run_dir=run_dir, hosts=hosts, interface=interface, site=site)
    if launcher == "local" and (away := site.away(names)):
        raise RefusalError(
            "The local launcher starts processes on this machine only.",
            received=", ".join(away),
            advice="Use launcher auto: it reaches other machines over ssh.",
        )
    return tf_config.plan(
        spec, run_dir=run_dir, hosts=hosts, servers_on=placement.servers_on, site=site
    )


def _choose(spec: RunSpec, launcher: LauncherName) -> Literal["local", "horovodrun", "mpirun"]:
    """The launcher to use; one that the backend cannot join is refused."""
    capabilities = spec.capabilities
    joins = capabilities.joins
    possible: list[Literal["local", "horovodrun", "mpirun"]] = []
    if capabilities.process_model == "single" or "tf_config" in joins:
        possible.append("local")
    if "horovodrun" in joins:
        possible.append("horovodrun")
    if "mpirun" in joins:
        possible.append("mpirun")
    if launcher == "auto":
        # horovodrun --mpi only writes this command line, after importing TensorFlow to see
        # what Horovod was built with: seconds, which mpirun itself does not take.
        mpi = spec.options.horovod_controller == "mpi"
        return "mpirun" if mpi and "mpirun" in possible else possible[0]
    if launcher not in possible:
        raise RefusalError(
            f"The backend {spec.backend} is started by {' or '.join(possible)}.",
            received=f"launcher {launcher}",
            advice="Use launcher auto.",
        )
    return launcher
