"""What each backend can do, as data: nobody asks a backend for its name."""

from collections.abc import Mapping
from typing import Literal

from ringside_core.specs.errors import unknown_name
from ringside_core.specs.noun import Noun

ProcessModel = Literal["single", "per_replica", "coordinator"]


class Capabilities(Noun):
    """What one backend is able to do.

    Attributes:
        family: the library that does the distribution.
        process_model: `single`: one process holds all replicas. `per_replica`: a process for each
            replica. `coordinator`: a process for each replica, plus servers and a coordinator.
        synchronous: all replicas contribute to each update.
        always_one_replica: more than one replica makes no sense.
        joins: launch surroundings in which the backend can find its place.
        accelerator: device type without which it cannot run, or None.
    """

    family: Literal["none", "tf.distribute", "horovod"]
    process_model: ProcessModel
    synchronous: bool = True
    always_one_replica: bool = False
    joins: tuple[Literal["tf_config", "horovodrun", "mpirun", "slurm"], ...] = ()
    accelerator: Literal["TPU"] | None = None


CAPABILITIES: Mapping[str, Capabilities] = {
    "serial": Capabilities(family="none", process_model="single", always_one_replica=True),
    "one_device": Capabilities(
        family="tf.distribute", process_model="single", always_one_replica=True
    ),
    "mirrored": Capabilities(family="tf.distribute", process_model="single"),
    "central_storage": Capabilities(family="tf.distribute", process_model="single"),
    "multi_worker_mirrored": Capabilities(
        family="tf.distribute", process_model="per_replica", joins=("tf_config", "slurm")
    ),
    "parameter_server": Capabilities(
        family="tf.distribute",
        process_model="coordinator",
        synchronous=False,
        joins=("tf_config", "slurm"),
    ),
    "tpu": Capabilities(family="tf.distribute", process_model="single", accelerator="TPU"),
    "horovod": Capabilities(
        family="horovod", process_model="per_replica", joins=("horovodrun", "mpirun", "slurm")
    ),
}


def capabilities_of(backend: str) -> Capabilities:
    """The capabilities of a backend by name; an unknown name is refused with the nearest one."""
    if backend not in CAPABILITIES:
        raise unknown_name("backend", backend, CAPABILITIES)
    return CAPABILITIES[backend]
