"""Choose the launcher of a spec, and write its plan."""

from pathlib import Path
from typing import Literal

from launch import horovodrun, local, mpirun, tf_config
from launch.plan import Plan
from launch.site import Site
from specs import Host, RefusalError, RunSpec, Topology, assign_slots, capabilities_of

LauncherName = Literal["auto", "local", "horovodrun", "mpirun"]


def make_plan(
    spec: RunSpec,
    *,
    run_dir: Path,
    hosts: tuple[Host, ...] | None = None,
    launcher: LauncherName = "auto",
    site: Site | None = None,
) -> Plan:
    """Write down the processes of a run; nothing is started, nothing is written to disk.

    Args:
        spec: the run.
        run_dir: folder of the run; on several machines, the same one on all.
        hosts: where the replicas go, in this order; None: this machine, with room for all.
        launcher: `auto` takes the one that the backend can join.
        site: this machine; tests give another.

    Raises:
        RefusalError: a launcher that the backend cannot join, or more processes than slots.
    """
    site = site or Site.here()
    run_dir = run_dir.absolute()
    chosen = _choose(spec, launcher)
    used = _place(spec.topology, hosts)
    if chosen == "horovodrun":
        return horovodrun.plan(spec, run_dir=run_dir, hosts=used, site=site)
    if chosen == "mpirun":
        return mpirun.plan(spec, run_dir=run_dir, hosts=used, site=site)
    if capabilities_of(spec.backend).process_model == "single":
        return local.plan(spec, run_dir=run_dir, hosts=used, site=site)
    if launcher == "local" and (away := [h.name for h in used if not site.is_local(h.name)]):
        raise RefusalError(
            "The local launcher starts processes on this machine only.",
            received=", ".join(away),
            advice="Use launcher auto: it reaches other machines over ssh.",
        )
    return tf_config.plan(spec, run_dir=run_dir, hosts=used, site=site)


def _choose(spec: RunSpec, launcher: LauncherName) -> Literal["local", "horovodrun", "mpirun"]:
    """The launcher to use; one that the backend cannot join is refused."""
    capabilities = capabilities_of(spec.backend)
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
        mpi = getattr(spec.options, "controller", None) == "mpi"
        return "mpirun" if mpi and "mpirun" in possible else possible[0]
    if launcher not in possible:
        raise RefusalError(
            f"The backend {spec.backend} is started by {' or '.join(possible)}.",
            received=f"launcher {launcher}",
            advice="Use launcher auto.",
        )
    return launcher


def _place(topology: Topology, hosts: tuple[Host, ...] | None) -> tuple[Host, ...]:
    """The hosts that are used, with the number of processes on each.

    A topology of one host fills the hostfile in its order; one of several takes that many hosts,
    and the same number of processes on each.
    """
    if hosts is None:
        if topology.hosts > 1:
            raise RefusalError(
                "A run on several hosts must have a hostfile.", received=f"{topology.hosts} hosts"
            )
        return (Host(name="localhost", slots=topology.num_processes),)
    filled = assign_slots(hosts, topology.num_processes)
    if topology.hosts == 1:
        return filled
    chosen = hosts[: topology.hosts]
    each = topology.processes_per_host
    small = [f"{host.name} ({host.slots})" for host in chosen if host.slots < each]
    if len(chosen) < topology.hosts or small:
        raise RefusalError(
            f"There must be {topology.hosts} hosts with {each} slots each.",
            received=", ".join(small) or f"{len(chosen)} hosts",
            advice="Change the hostfile, or the number of replicas.",
        )
    return tuple(Host(name=host.name, slots=each) for host in chosen)
