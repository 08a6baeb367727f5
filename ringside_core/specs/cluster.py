"""Read and write TF_CONFIG: the cluster, and the place of one task in it.

Source of the format: tf.distribute.cluster_resolver.TFConfigClusterResolver.
"""

import json
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import ValidationError, model_validator

from ringside_core.specs.errors import RefusalError, refusal_from_validation
from ringside_core.specs.noun import Noun
from ringside_core.text import is_whole_number

TaskType = Literal["chief", "worker", "ps"]

# Linux allows 128 KiB for an environment variable (MAX_ARG_STRLEN), with its name and a NUL.
LONGEST_TF_CONFIG = 131_072 - len("TF_CONFIG=") - 1

NO_PROXY = "no_grpc_proxy"  # gRPC reads it in lower case only
EXAMPLE = '{"cluster": {"worker": ["a:1234", "b:1234"]}, "task": {"type": "worker", "index": 0}}'


class Cluster(Noun):
    """Addresses (`host:port`) of all tasks by type.

    With `ps` it is a parameter-server cluster; it needs workers and a `chief`, the coordinator.
    Without `ps` all workers train in step (multi_worker_mirrored); a `chief` is one of them.
    """

    chief: tuple[str, ...] = ()
    worker: tuple[str, ...] = ()
    ps: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        addresses = [*self.chief, *self.worker, *self.ps]
        for address in addresses:
            host, colon, port = address.rpartition(":")
            if not (colon and host and is_whole_number(port) and 0 < int(port) < 65536):
                raise RefusalError(
                    "Each address in TF_CONFIG must be host:port.", received=repr(address)
                )
        if len(set(addresses)) != len(addresses):
            twice = next(a for a in addresses if addresses.count(a) > 1)
            raise RefusalError(
                "No two tasks of TF_CONFIG may share an address.", received=f"{twice!r} twice"
            )
        if len(self.chief) > 1:
            raise RefusalError(
                "TF_CONFIG may name one chief.", received=f"{len(self.chief)} addresses"
            )
        if self.ps and not self.chief:
            raise RefusalError(
                "A TF_CONFIG with `ps` tasks must have a `chief`: the coordinator.",
                received=f"ps={list(self.ps)} and no chief",
                advice='Add "chief": ["host:port"] to the cluster and start one more process.',
            )
        if self.ps and not self.worker:
            raise RefusalError(
                "A TF_CONFIG with `ps` tasks must have at least one `worker`.", received="no worker"
            )
        if not (self.chief or self.worker):
            raise RefusalError(
                "TF_CONFIG must name at least one worker.",
                received="an empty cluster",
                advice=f"Example: {EXAMPLE}",
            )
        return self

    @property
    def num_training_tasks(self) -> int:
        """Number of tasks that hold a replica."""
        return len(self.worker) + (0 if self.ps else len(self.chief))

    def unproxied(self, environment: Mapping[str, str]) -> str:
        """The value of NO_PROXY that lets the tasks reach each other.

        gRPC reads http_proxy: TensorFlow's channels would use a proxy that is meant for downloads,
        even to 127.0.0.1. It reads no_proxy only where there is no no_grpc_proxy, so that the
        user's own exceptions are kept.
        """
        own = environment.get(NO_PROXY) or environment.get("no_proxy", "")
        hosts = [task.address.rpartition(":")[0] for task in self.tasks()]
        return ",".join(dict.fromkeys([*filter(None, own.split(",")), *hosts]))

    def tasks(self) -> list["ClusterTask"]:
        """All tasks: chief, workers, servers."""
        return [
            ClusterTask(cluster=self, type=kind, index=index)
            for kind, addresses in self
            for index in range(len(addresses))
        ]


class ClusterTask(Noun):
    """The TF_CONFIG of one process: the cluster, and which of its tasks the process is."""

    cluster: Cluster
    type: TaskType
    index: int

    @model_validator(mode="after")
    def _is_inside(self) -> Self:
        known: tuple[str, ...] = getattr(self.cluster, self.type)
        if not 0 <= self.index < len(known):
            raise RefusalError(
                "The task index in TF_CONFIG must lie inside the cluster.",
                received=f"type={self.type!r}, index={self.index}, "
                f"and the cluster has {len(known)} of that type",
            )
        return self

    @property
    def name(self) -> str:
        """Name of the process in its run, such as worker-1."""
        return f"{self.type}-{self.index}"

    @property
    def address(self) -> str:
        """This task's own host:port."""
        addresses: tuple[str, ...] = getattr(self.cluster, self.type)
        return addresses[self.index]

    @property
    def training_rank(self) -> int:
        """Rank among the tasks that hold a replica; TensorFlow puts the chief first."""
        if self.type == "worker" and self.cluster.chief and not self.cluster.ps:
            return self.index + 1
        return self.index

    def to_tf_config(self) -> str:
        """The value of TF_CONFIG for this task."""
        cluster = {kind: list(addresses) for kind, addresses in self.cluster if addresses}
        return json.dumps({"cluster": cluster, "task": {"type": self.type, "index": self.index}})


def refuse_too_long(text: str, cluster: Cluster) -> None:
    """Refuse a TF_CONFIG that is too long for an environment; call it before making all tasks."""
    if len(text) > LONGEST_TF_CONFIG:
        raise RefusalError(
            f"TF_CONFIG must fit into {LONGEST_TF_CONFIG:,} characters.",
            received=f"{len(text):,} for {sum(len(each) for _, each in cluster):,} tasks",
            advice="Use fewer replicas or servers, or shorter names.",
        )


def parse_tf_config(text: str) -> ClusterTask:
    """Read TF_CONFIG.

    Raises:
        RefusalError: not JSON, no cluster or task, an unknown task type, an index outside the
            cluster, `ps` without `chief`.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:  # the first also for a number of 5,000 digits
        raise RefusalError(
            "TF_CONFIG must be JSON.", received=f"{text!r} ({error})", advice=f"Example: {EXAMPLE}"
        ) from None
    if not (
        isinstance(body, dict)
        and isinstance(body.get("cluster"), dict)
        and isinstance(body.get("task"), dict)
    ):
        raise RefusalError(
            "TF_CONFIG must have a `cluster` and a `task`.",
            received=text,
            advice=f"Example: {EXAMPLE}",
        )
    task = body["task"]
    place = {"cluster": body["cluster"], "type": task.get("type"), "index": task.get("index")}
    try:
        return ClusterTask.model_validate(place)
    except ValidationError as error:
        raise refusal_from_validation(error, "TF_CONFIG") from None
