"""Find out who started this process, from its environment variables."""

from collections.abc import Mapping
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from ringside_core.specs.backends import capabilities_of
from ringside_core.specs.cluster import ClusterTask, parse_tf_config
from ringside_core.specs.errors import RefusalError
from ringside_core.specs.noun import Noun
from ringside_core.specs.slurm import RANK, SIZE, NodeAddresses, SlurmStep, read_slurm
from ringside_core.text import is_whole_number

# Each engine's names for rank, size, local rank and local size.
HOROVODRUN = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE")
OPEN_MPI = (
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
)
# Set where Ringside starts Horovod's ranks itself: rank 0 serves what horovodrun would serve.
MEETING = "RINGSIDE_MEETING"
SERVED = "horovodrun, Open MPI's mpirun, srun or a TF_CONFIG"
# Launchers that are not served: their names for rank and size (empty: they name none), and a
# variable that must be there too. The first row that fits names the launcher, so those that set
# the variables of others stand first.
NOT_SERVED = (
    ("Cray PALS", "PALS_RANKID", "PMI_SIZE", ""),
    ("Cray ALPS", "ALPS_APP_PE", "", ""),
    ("MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", ""),
    ("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", ""),
    ("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", ""),
    ("Platform MPI", "MPI_RANKID", "MPI_NRANKS", ""),
    ("HPE MPT", "MPT_MPI_RANK", "MPT_MPI_SIZE", ""),
    ("MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", ""),
    ("MPICH or Intel MPI", "PMI_ID", "PMI_SIZE", ""),
    ("PMIx", "PMIX_RANK", "", ""),
    ("torchrun", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"),
)
# Also exported by batch scripts, to all tasks of srun: of these it says nothing.
LIKE_TORCHRUN = ("torchrun or its like", "RANK", "WORLD_SIZE", "WORLD_SIZE")


class Surroundings(Noun):
    """Who started a process, and its place among the processes of the run.

    Attributes:
        kind: the launcher; `alone`: this process decides everything itself.
        task: its place in a cluster of TensorFlow. Under srun it is known only once the backend is
            known, see `placed`.
        step: the Slurm step that it belongs to.
        is_frozen_at_times: the launcher stops all processes of the run while it is not their turn.
            A heartbeat that is missed then is no sign of a dead peer.
    """

    kind: Literal["alone", "horovodrun", "mpirun", "tf_config", "slurm"] = "alone"
    rank: NonNegativeInt = 0
    size: PositiveInt = 1
    local_rank: NonNegativeInt = 0
    local_size: PositiveInt = 1
    task: ClusterTask | None = None
    step: SlurmStep | None = None
    is_frozen_at_times: bool = False

    @property
    def default_backend(self) -> str:
        """The backend of a user who names none."""
        if self.task is not None:
            return "parameter_server" if self.task.cluster.ps else "multi_worker_mirrored"
        return "serial" if self.kind == "alone" else "horovod"

    @property
    def task_name(self) -> str:
        """Name of this process in its run."""
        return self.task.name if self.task is not None else f"rank-{self.rank}"

    def placed(self, backend: str, *, servers: int = 1) -> "Surroundings":
        """The same surroundings, with the role of a Slurm task: srun only numbers its tasks.

        Args:
            backend: what all tasks of the step run.
            servers: tasks that hold variables, for a backend with a coordinator.

        Raises:
            RefusalError: too few tasks.
        """
        if self.step is None or "tf_config" not in capabilities_of(backend).joins:
            return self
        coordinated = capabilities_of(backend).process_model == "coordinator"
        task = self.step.with_servers(servers) if coordinated else self.step.workers()
        training = range(1, 1 + len(task.cluster.worker)) if coordinated else range(self.step.size)
        near = self.step.neighbours(training)
        return self.replace(
            rank=task.training_rank,
            size=task.cluster.num_training_tasks,
            local_rank=near.index(self.step.rank) if self.step.rank in near else 0,
            local_size=max(1, len(near)),
            task=task,
        )


def read_surroundings(
    env: Mapping[str, str], node_addresses: NodeAddresses | None = None
) -> Surroundings:
    """Find out who started a process with this environment.

    Horovod's launchers and TF_CONFIG count before Slurm, because inside an allocation somebody
    started them on purpose.

    Args:
        env: environment of the process.
        node_addresses: asks Slurm; None: a process of a Slurm step counts as alone.

    Raises:
        RefusalError: a broken TF_CONFIG, half a set of rank variables, two launchers at once, or
            one that is not served: each of its processes would train by itself.
    """
    found: Surroundings | None = None
    engines: tuple[tuple[Literal["horovodrun", "mpirun"], tuple[str, str, str, str]], ...] = (
        ("horovodrun", HOROVODRUN),
        ("mpirun", OPEN_MPI),
    )
    for kind, names in engines:
        present = [name for name in names if name in env]
        if not present or found:
            continue
        missing = [name for name in names if name not in env]
        values = [env[name] for name in present]
        if missing or not all(map(is_whole_number, values)):
            raise RefusalError(
                f"{kind} sets {', '.join(names)} together, each a number.",
                received=", ".join(f"{name}={env.get(name)!r}" for name in names),
                advice="Unset them, or start through the launcher.",
            )
        rank, size, local_rank, local_size = map(int, values)
        if not (rank < size and local_rank < local_size <= size):
            raise RefusalError(
                f"The ranks that {kind} sets must be below their sizes.",
                received=", ".join(f"{name}={env[name]}" for name in names),
                advice="Unset them, or start through the launcher.",
            )
        found = Surroundings(
            kind=kind, rank=rank, size=size, local_rank=local_rank, local_size=local_size
        )
    tf_config = env.get("TF_CONFIG", "").strip()
    if not tf_config:
        return found or _by_slurm_or_alone(env, node_addresses)
    if found:
        raise RefusalError(
            "A process can be started by one launcher only.",
            received=f"TF_CONFIG is set under {found.kind}",
            advice="Unset TF_CONFIG for Horovod, or leave the launcher away.",
        )
    task = parse_tf_config(tf_config)
    near = _neighbours(task)
    return Surroundings(
        kind="tf_config",
        rank=task.training_rank,
        size=task.cluster.num_training_tasks,
        task=task,
        local_rank=near.index(task.address) if task.address in near else 0,
        local_size=max(1, len(near)),
    )


def _by_slurm_or_alone(
    env: Mapping[str, str], node_addresses: NodeAddresses | None
) -> Surroundings:
    """The surroundings of a Slurm task, not yet `placed`; outside a Slurm step it is alone."""
    step = None if node_addresses is None else read_slurm(env, node_addresses)
    _refuse_other_launchers(env, NOT_SERVED if step else (*NOT_SERVED, LIKE_TORCHRUN))
    if step is None:
        return Surroundings()
    near = step.neighbours(range(step.size))
    return Surroundings(
        kind="slurm",
        rank=step.rank,
        size=step.size,
        local_rank=near.index(step.rank),
        local_size=len(near),
        step=step,
    )


def _refuse_other_launchers(
    env: Mapping[str, str], launchers: tuple[tuple[str, str, str, str], ...]
) -> None:
    for launcher, rank_name, size_name, proof in launchers:
        rank, size = env.get(rank_name, ""), env.get(size_name, "")
        if not (is_whole_number(rank) and env.get(proof or rank_name)) or size == "1":
            continue
        if SIZE in env and (rank, size or env[SIZE]) == (env.get(RANK), env[SIZE]):
            continue  # srun sets it too
        raise RefusalError(
            f"The processes of a run are started by {SERVED}.",
            received=f"process {rank}{size and f' of {size}'} of {launcher}, which is not served "
            f"({rank_name}={rank})",
            advice=f"Use one of those, or `ringside launch`. To train in one process, unset "
            f"{rank_name}.",
        )


def _neighbours(task: ClusterTask) -> list[str]:
    """Addresses of the training tasks on this task's host."""
    cluster = task.cluster
    training = [*(() if cluster.ps else cluster.chief), *cluster.worker]
    host = task.address.rpartition(":")[0]
    return [address for address in training if address.rpartition(":")[0] == host]
