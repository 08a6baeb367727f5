"""Who started this process: read from the environment, which is an argument."""

from collections.abc import Mapping
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from specs.cluster import ClusterTask, parse_tf_config
from specs.errors import RefusalError
from specs.noun import Noun

# (rank, size, local rank, local size) as each engine names them.
HOROVODRUN = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE")
OPEN_MPI = (
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
)


class Surroundings(Noun):
    """What a process was started by, and its place there.

    `alone` means that this process decides everything itself.
    """

    kind: Literal["alone", "horovodrun", "mpirun", "tf_config"] = "alone"
    rank: NonNegativeInt = 0
    size: PositiveInt = 1
    local_rank: NonNegativeInt = 0
    local_size: PositiveInt = 1
    task: ClusterTask | None = None

    @property
    def default_backend(self) -> str:
        """The backend meant by someone who names none."""
        if self.task is not None:
            return self.task.cluster.backend
        return "serial" if self.kind == "alone" else "horovod"

    @property
    def task_name(self) -> str:
        """Name of this process in its run."""
        return self.task.name if self.task is not None else f"rank-{self.rank}"


def read_surroundings(env: Mapping[str, str]) -> Surroundings:
    """Find out who started a process with this environment.

    Raises:
        RefusalError: a broken TF_CONFIG, half a set of rank variables, or two launchers at once.
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
        if missing or not all(value.isdigit() for value in values):
            raise RefusalError(
                f"{kind} sets {', '.join(names)} together, each a number.",
                received=", ".join(f"{name}={env.get(name)!r}" for name in names),
                advice="Unset them, or start through the launcher.",
            )
        rank, size, local_rank, local_size = map(int, values)
        found = Surroundings(
            kind=kind, rank=rank, size=size, local_rank=local_rank, local_size=local_size
        )
    tf_config = env.get("TF_CONFIG", "").strip()
    if not tf_config:
        return found or Surroundings()
    if found:
        raise RefusalError(
            "A process can be started by one launcher only.",
            received=f"TF_CONFIG is set under {found.kind}",
            advice="Unset TF_CONFIG for Horovod, or leave the launcher away.",
        )
    task = parse_tf_config(tf_config)
    return Surroundings(
        kind="tf_config",
        rank=task.training_rank,
        size=task.cluster.num_training_tasks,
        task=task,
        local_rank=_local_rank(task),
        local_size=max(1, len(_neighbours(task))),
    )


def _neighbours(task: ClusterTask) -> list[str]:
    """Addresses of the training tasks on this task's host."""
    cluster = task.cluster
    training = [*(() if cluster.ps else cluster.chief), *cluster.worker]
    host = task.address.rpartition(":")[0]
    return [address for address in training if address.rpartition(":")[0] == host]


def _local_rank(task: ClusterTask) -> int:
    neighbours = _neighbours(task)
    return neighbours.index(task.address) if task.address in neighbours else 0
