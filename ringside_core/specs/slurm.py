"""The place of a task in a Slurm job step, read from SLURM_*; all tasks compute the same cluster.

Source of the variables: srun(1), OUTPUT ENVIRONMENT VARIABLES, Slurm 22.05. The shell of a batch
script also has SLURM_PROCID=0, but no variables of a step, so it is no task.
"""

import re
from collections.abc import Callable, Mapping
from typing import Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from ringside_core.specs.cluster import Cluster, ClusterTask
from ringside_core.specs.errors import RefusalError
from ringside_core.specs.noun import Noun
from ringside_core.text import is_whole_number

RANK = "SLURM_PROCID"
SIZE = "SLURM_STEP_NUM_TASKS"
NODES = "SLURM_STEP_NODELIST"
LAYOUT = "SLURM_STEP_TASKS_PER_NODE"
JOB = "SLURM_JOB_ID"
STEP = "SLURM_STEP_ID"
NEEDED = (RANK, SIZE, NODES, LAYOUT, JOB, STEP)
NODE_OF_TASK = "SLURM_NODEID"

# The kernel of another node cannot be asked for a free port. So ports are computed from the numbers
# of job and step. They are below Linux's range for outgoing connections (32768 and up).
FIRST_PORT = 20000
PORTS = 10000
# Jobs on one node at the same time mostly have close numbers; their ports must be far apart.
PORTS_BETWEEN_JOBS = 613
PORTS_BETWEEN_STEPS = 31

MOST_NODES = 100_000  # Slurm itself knows fewer

_RUN = re.compile(r"(?P<tasks>[0-9]{1,9})(?:\(x(?P<nodes>[0-9]{1,9})\))?")

# From a node list such as `node[1-3,7]` to the addresses of the nodes, in the same order.
NodeAddresses = Callable[[str], tuple[str, ...]]


class SlurmStep(Noun):
    """One task of a job step whose ranks fill one node after the other.

    Attributes:
        rank: of this task in the step (SLURM_PROCID).
        tasks_per_node: tasks of each node, in the order of the node list.
        addresses: the address by which Slurm itself reaches each node, in that order.
    """

    job_id: NonNegativeInt
    step_id: NonNegativeInt
    rank: NonNegativeInt
    tasks_per_node: tuple[PositiveInt, ...] = Field(min_length=1)
    addresses: tuple[str, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.addresses) != len(self.tasks_per_node):
            raise RefusalError(
                "A Slurm step must have as many addresses as nodes.",
                received=f"{len(self.addresses)} addresses, {len(self.tasks_per_node)} nodes",
            )
        if self.rank >= self.size:
            raise RefusalError(
                f"{RANK} must be below the number of tasks.",
                received=f"{RANK}={self.rank}, {self.size} tasks",
            )
        return self

    @property
    def size(self) -> int:
        """Tasks of the step."""
        return sum(self.tasks_per_node)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The node of each rank."""
        return tuple(node for node, tasks in enumerate(self.tasks_per_node) for _ in range(tasks))

    @property
    def node(self) -> int:
        """The node of this task."""
        return self.nodes[self.rank]

    @property
    def first_port(self) -> int:
        """The lowest port that this step may use on a node."""
        apart = self.job_id * PORTS_BETWEEN_JOBS + self.step_id * PORTS_BETWEEN_STEPS
        return FIRST_PORT + apart % PORTS

    @property
    def endpoints(self) -> tuple[str, ...]:
        """host:port of each rank.

        Ports are counted for each address, not for each node, because the nodes of a test may share
        a machine.
        """
        used: dict[str, int] = {}
        found = []
        for node in self.nodes:
            address = self.addresses[node]
            port = self.first_port + 1 + used.setdefault(address, 0)
            used[address] += 1
            found.append(f"{address}:{port}")
        return tuple(found)

    @property
    def meeting_point(self) -> tuple[str, int]:
        """Address and port at which rank 0 may tell all ranks about each other."""
        return self.addresses[self.nodes[0]], self.first_port

    def neighbours(self, ranks: range) -> list[int]:
        """Those of the ranks that are on this task's node."""
        return [rank for rank in ranks if self.nodes[rank] == self.node]

    def workers(self) -> ClusterTask:
        """This task in a cluster in which every task trains."""
        return ClusterTask(cluster=Cluster(worker=self.endpoints), type="worker", index=self.rank)

    def with_servers(self, servers: int) -> ClusterTask:
        """This task in a parameter-server cluster: coordinator first, servers last.

        Raises:
            RefusalError: no task is left to be a worker.
        """
        workers = self.size - 1 - servers
        if workers < 1:
            raise RefusalError(
                "A parameter-server step needs a task for the coordinator, for each server and for "
                "at least one worker.",
                received=f"{self.size} tasks, servers={servers}",
                advice=f"Use srun --ntasks={servers + 2} or more, or fewer servers.",
            )
        endpoints = self.endpoints
        cluster = Cluster(
            chief=endpoints[:1], worker=endpoints[1 : 1 + workers], ps=endpoints[1 + workers :]
        )
        return cluster.tasks()[self.rank]


def read_slurm(env: Mapping[str, str], node_addresses: NodeAddresses) -> SlurmStep | None:
    """This task of a step with several tasks; None without such a step.

    A step with one task is a shell (`srun --pty bash`) or a process that needs no others. It
    decides everything itself.

    Raises:
        RefusalError: half a set of variables, or ranks that do not fill node after node.
    """
    if SIZE not in env:
        return None
    missing = [name for name in NEEDED if not env.get(name)]
    numbers = {name: env.get(name, "") for name in (RANK, SIZE, JOB, STEP)}
    if missing or not all(map(is_whole_number, numbers.values())):
        raise RefusalError(
            f"srun sets {', '.join(NEEDED)} together.",
            received=", ".join(f"{name}={env.get(name)!r}" for name in NEEDED),
            advice="Unset them, or start through srun.",
        )
    if int(env[SIZE]) == 1:
        return None
    layout = tasks_per_node(env[LAYOUT])
    if sum(layout) != int(env[SIZE]):
        raise RefusalError(
            f"{LAYOUT} and {SIZE} must agree.", received=f"{env[LAYOUT]} and {env[SIZE]}"
        )
    step = SlurmStep(
        job_id=int(env[JOB]),
        step_id=int(env[STEP]),
        rank=int(env[RANK]),
        tasks_per_node=layout,
        addresses=node_addresses(env[NODES]),
    )
    _refuse_other_layouts(step, env)
    return step


def tasks_per_node(text: str) -> tuple[int, ...]:
    """Expand a run-length list: `2(x3),1` is 2, 2, 2, 1.

    Raises:
        RefusalError: it is none.
    """
    found: list[int] = []
    for part in text.split(","):
        match = _RUN.fullmatch(part)
        if match is None:
            raise RefusalError(f"{LAYOUT} must read like 2(x3),1.", received=repr(text))
        nodes = int(match["nodes"] or 1)
        if len(found) + nodes > MOST_NODES:
            raise RefusalError(
                f"{LAYOUT} must be of at most {MOST_NODES:,} nodes.", received=repr(text)
            )
        found += [int(match["tasks"])] * nodes
    return tuple(found)


def _refuse_other_layouts(step: SlurmStep, env: Mapping[str, str]) -> None:
    """Refuse ranks that are not in blocks: from the counts alone a task cannot find the others."""
    layout = env.get("SLURM_DISTRIBUTION", "block")
    scattered = max(step.tasks_per_node) > 1 and len(step.tasks_per_node) > 1
    elsewhere = env.get(NODE_OF_TASK, str(step.node)) != str(step.node)
    if elsewhere or (scattered and not layout.startswith("block")):
        raise RefusalError(
            "The ranks of a Slurm step must fill one node after the other.",
            received=f"distribution {layout}, rank {step.rank} on node "
            f"{env.get(NODE_OF_TASK)} of the step",
            advice="Use srun --distribution=block.",
        )
