"""The launchers: one table, and the plan of a run by one of them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from launch.launchers.horovodrun import Horovodrun
from launch.launchers.kubernetes import Kubernetes
from launch.launchers.local import Local
from launch.launchers.mpirun import Mpirun
from launch.launchers.slurm import Slurm
from launch.launchers.tf_config import TFConfig
from launch.placement import place
from launch.plan import Plan
from launch.site import Site
from ringside_core.specs import THIS_MACHINE, Placement, RefusalError, RunSpec

# What a person may ask for. `local` starts tasks of a TF_CONFIG too, on this machine.
LauncherName = Literal["auto", "local", "horovodrun", "mpirun"]


class Launcher(Protocol):
    """Turns a run into a plan. Nothing is started, nothing is written to disk."""

    def plan(self, spec: RunSpec, *, run_dir: Path, placement: Placement, site: Site) -> Plan:
        """The plan of a run.

        Args:
            spec: the run.
            run_dir: folder of the run; on several machines, the same one on all.
            placement: the hosts, and what connects them.
            site: this machine.

        Raises:
            RefusalError: the launcher cannot start this run there.
        """
        ...


# The arguments are what only this launcher needs to know (`Slurm`, `Kubernetes`).
LAUNCHERS: Mapping[str, Callable[..., Launcher]] = {
    "local": Local,
    "horovodrun": Horovodrun,
    "mpirun": Mpirun,
    "tf_config": TFConfig,
    "slurm": Slurm,
    "kubernetes": Kubernetes,
}


def make_plan(
    spec: RunSpec,
    *,
    run_dir: Path,
    placement: Placement = THIS_MACHINE,
    launcher: LauncherName | Launcher = "auto",
    site: Site | None = None,
) -> Plan:
    """Write down the processes of a run; nothing is started, nothing is written to disk.

    Args:
        spec: the run.
        run_dir: folder of the run; on several machines, the same one on all.
        placement: the hosts, and what connects them.
        launcher: `auto` takes the first one that can start the backend.
        site: this machine; tests give another.

    Raises:
        RefusalError: a launcher that cannot start the backend, or more processes than slots.
    """
    site = site or Site.here()
    if isinstance(launcher, str):
        name = _choose(spec, launcher)
        if name == "tf_config" and launcher == "local":
            hosts = place(spec.topology, placement)
            if away := site.away(host.name for host in hosts):
                raise RefusalError(
                    "The local launcher starts processes on this machine only.",
                    received=", ".join(away),
                    advice="Use launcher auto: it reaches other machines over ssh.",
                )
        launcher = LAUNCHERS[name]()
    return launcher.plan(spec, run_dir=run_dir.absolute(), placement=placement, site=site)


def _choose(spec: RunSpec, asked: LauncherName) -> str:
    """The name of the launcher to use; one that cannot start the backend is refused."""
    capabilities = spec.capabilities
    single = capabilities.process_model == "single"
    possible = ["local"] if single else [name for name in capabilities.joins if name != "slurm"]
    if asked == "auto":
        # horovodrun --mpi only writes this command line. Before, it imports TensorFlow to see what
        # Horovod was built with: that takes seconds.
        mpi = spec.options.horovod_controller == "mpi"
        return "mpirun" if mpi and "mpirun" in possible else possible[0]
    name = "tf_config" if asked == "local" and not single else asked
    if name not in possible:
        names = " or ".join(possible).replace("tf_config", "local")
        raise RefusalError(
            f"The backend {spec.backend} is started by {names}.",
            received=f"launcher {asked}",
            advice="Use launcher auto.",
        )
    return name
