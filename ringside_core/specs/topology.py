"""Where replicas live, and how one update's examples are divided among them."""

from typing import Self

from pydantic import Field, PositiveInt, model_validator

from ringside_core.specs.errors import RefusalError
from ringside_core.specs.noun import Noun


class Topology(Noun):
    """Hosts, processes and replicas of one run.

    `replicas_per_process` counts copies of the model. Of a parameter-server run only the workers
    count here; the coordinator and the servers are additional processes (`num_servers`).
    """

    hosts: PositiveInt = 1
    processes_per_host: PositiveInt = 1
    replicas_per_process: PositiveInt = 1

    @property
    def num_processes(self) -> int:
        """Processes that hold replicas: the size of a Horovod job, the workers of a TF_CONFIG."""
        return self.hosts * self.processes_per_host

    @property
    def num_replicas(self) -> int:
        """Copies of the model in the whole run."""
        return self.num_processes * self.replicas_per_process


class InputShard(Noun):
    """The part of the data that one input pipeline reads: `index` of `count`."""

    index: int = Field(default=0, ge=0)
    count: PositiveInt = 1

    @model_validator(mode="after")
    def _index_is_inside(self) -> Self:
        if self.index >= self.count:
            raise RefusalError(
                "The index of an input shard must be below the number of shards.",
                received=f"index={self.index}, count={self.count}",
            )
        return self


class BatchPlan(Noun):
    """How one update's examples are split. The only place where a batch is divided.

    Global batch k of an epoch holds the shuffled positions [k·B, (k+1)·B). Replica r takes the r-th
    part of B/R consecutive positions. The last batch of an epoch may be short: it is padded with
    examples of weight 0.

    Attributes:
        gradient_accumulation_steps: the number of passes in which a replica runs its part, one
            after the other. The gradients of all passes make one update.
    """

    global_batch: PositiveInt
    num_replicas: PositiveInt
    gradient_accumulation_steps: PositiveInt = 1

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.global_batch % self.num_replicas:
            below = self.global_batch // self.num_replicas * self.num_replicas
            above = below + self.num_replicas
            near = f"{below} or {above}" if below else str(above)
            raise RefusalError(
                "global_batch must be a multiple of the number of replicas.",
                received=f"global_batch={self.global_batch}, num_replicas={self.num_replicas}",
                advice=f"Try {near}.",
            )
        if self.per_replica_batch % self.gradient_accumulation_steps:
            multiple = self.num_replicas * self.gradient_accumulation_steps
            below = self.global_batch // multiple * multiple
            near = f"{below} or {below + multiple}" if below else str(multiple)
            raise RefusalError(
                "A replica's part of the global batch must be a multiple of the passes in which it "
                "is run.",
                received=f"global_batch={self.global_batch}, num_replicas={self.num_replicas}, "
                f"gradient_accumulation_steps={self.gradient_accumulation_steps}",
                advice=f"Try a global batch of {near}.",
            )
        return self

    @property
    def per_replica_batch(self) -> int:
        """Examples that one replica sees in one update."""
        return self.global_batch // self.num_replicas

    @property
    def per_pass_batch(self) -> int:
        """Examples that one replica sees in one forward and backward pass."""
        return self.per_replica_batch // self.gradient_accumulation_steps

    def steps_per_epoch(self, num_examples: int) -> int:
        """Updates in one epoch over `num_examples`, the short last batch included."""
        return -(-num_examples // self.global_batch)

    def true_examples(self, step: int, num_examples: int) -> int:
        """Examples of weight above 0 in global batch `step` of an epoch."""
        return max(0, min(self.global_batch, num_examples - step * self.global_batch))
