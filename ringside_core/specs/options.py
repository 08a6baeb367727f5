"""The options of each backend, typed, under the names that upstream gives them."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from ringside_core.specs.errors import RefusalError, unknown_name
from ringside_core.specs.noun import Noun


class BackendOptions(Noun):
    """Options of a backend that has none, and the base of all others."""


class CrossDeviceOptions(BackendOptions):
    """tf.distribute.MirroredStrategy.

    Attributes:
        cross_device_ops: None lets TensorFlow choose (NCCL on GPUs, ReductionToOneDevice on CPUs).
        num_packs: packs of gradients for the two all-reduce kinds; None keeps upstream's default.
    """

    cross_device_ops: (
        Literal["NcclAllReduce", "HierarchicalCopyAllReduce", "ReductionToOneDevice"] | None
    ) = None
    num_packs: NonNegativeInt | None = None


class CommunicationOptions(BackendOptions):
    """tf.distribute.experimental.CommunicationOptions, for MultiWorkerMirroredStrategy.

    Attributes:
        implementation: the collective: RING, NCCL or AUTO.
        bytes_per_pack: gradients are packed into messages of at most this size; 0: automatic.
        timeout_seconds: a collective that takes longer fails; None: never.
    """

    implementation: Literal["AUTO", "RING", "NCCL"] = "AUTO"
    bytes_per_pack: NonNegativeInt = 0
    timeout_seconds: NonNegativeFloat | None = None


class ParameterServerOptions(BackendOptions):
    """tf.distribute.ParameterServerStrategy: how many servers hold the variables."""

    servers: PositiveInt = 1


class TPUOptions(BackendOptions):
    """tf.distribute.TPUStrategy: the `tpu` argument of TPUClusterResolver (name or grpc://…)."""

    tpu: str = ""


OPEN_MPI = ("btl_tcp_flags", "btl_tcp_eager_limit", "coll_tuned_allreduce_algorithm")


class HorovodOptions(BackendOptions):
    """Horovod; None keeps Horovod's own default.

    Attributes:
        controller: what coordinates ranks and reduces on CPUs. None: what the launcher chose.
        fusion_threshold_mb: HOROVOD_FUSION_THRESHOLD, in MiB; 0 turns tensor fusion off.
        cycle_time_ms: HOROVOD_CYCLE_TIME, milliseconds between two negotiation cycles.
        compression: of gradients on the wire.
        num_groups: gradients are reduced in so many groups, each as a whole; None: one by one, as
            tensor fusion has it.
        hierarchical_allreduce: HOROVOD_HIERARCHICAL_ALLREDUCE, within hosts first; None keeps
            Horovod's default. It has an effect with NCCL only.
        backward_passes_per_step: passes accumulated locally before one reduction.
        btl_tcp_flags: OMPI_MCA_btl_tcp_flags, for the controller mpi: 1 send, 2 put, 8 inplace,
            added up; Open MPI's own default has put. With it a receiver asks for each piece of a
            large message, and its asking queues behind what it sends itself, so that one direction
            of the link waits for the other. With 9 both work at once.
        btl_tcp_eager_limit: OMPI_MCA_btl_tcp_eager_limit, bytes, for the controller mpi. A larger
            message is announced first, and the receiver's answer waits behind what that host sends
            to another; one that is not larger, with its header, is just sent. Each process sets
            aside address space for eight such messages at least.
        coll_tuned_allreduce_algorithm: OMPI_MCA_coll_tuned_allreduce_algorithm, for the controller
            mpi, by its names there; None: as Open MPI decides by the ranks and the bytes. In a
            ring each connection carries data one way only.
    """

    controller: Literal["gloo", "mpi"] | None = None
    fusion_threshold_mb: NonNegativeInt | None = None
    cycle_time_ms: float | None = Field(default=None, gt=0)
    compression: Literal["none", "fp16"] = "none"
    num_groups: PositiveInt | None = None
    hierarchical_allreduce: bool | None = None
    backward_passes_per_step: PositiveInt = 1
    btl_tcp_flags: PositiveInt | None = None
    btl_tcp_eager_limit: PositiveInt | None = None
    coll_tuned_allreduce_algorithm: Literal["recursive_doubling", "ring", "rabenseifner"] | None = (
        None
    )

    @model_validator(mode="after")
    def _open_mpi_has_its_own(self) -> Self:
        for name in OPEN_MPI:
            if (value := getattr(self, name)) is not None and self.controller != "mpi":
                raise RefusalError(
                    f"{name} is an option of Open MPI.",  # under Gloo it would change nothing
                    received=f"{name}={value} with controller={self.controller or '(open)'}",
                    advice="Use controller=mpi.",
                )
        return self

    @property
    def open_mpi_environment(self) -> dict[str, str]:
        """Variables that Open MPI reads when a process begins; what is left open is not in it."""
        found = {
            f"OMPI_MCA_{name}": str(value)
            for name in OPEN_MPI
            if (value := getattr(self, name)) is not None
        }
        if self.coll_tuned_allreduce_algorithm is not None:
            found["OMPI_MCA_coll_tuned_use_dynamic_rules"] = "1"  # else it is not listened to
        return found


OPTIONS: Mapping[str, type[BackendOptions]] = {
    "serial": BackendOptions,
    "one_device": BackendOptions,
    "mirrored": CrossDeviceOptions,
    "central_storage": BackendOptions,
    "multi_worker_mirrored": CommunicationOptions,
    "parameter_server": ParameterServerOptions,
    "tpu": TPUOptions,
    "horovod": HorovodOptions,
}


def backend_options(backend: str, values: Mapping[str, Any]) -> BackendOptions:
    """Build the options of one backend; an unknown option is refused with the nearest name."""
    if backend not in OPTIONS:
        raise unknown_name("backend", backend, OPTIONS)
    kind = OPTIONS[backend]
    for name in values:
        if name not in kind.model_fields:
            if not kind.model_fields:
                raise RefusalError(f"The backend {backend} has no options.", received=repr(name))
            raise unknown_name(f"option of {backend}", name, kind.model_fields)
    return kind(**values)


def with_typed_options(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of a noun that has `backend` and `options`, its options in the backend's type."""
    options = data.get("options") or {}
    if isinstance(options, BackendOptions):
        return data
    return {**data, "options": backend_options(data.get("backend", ""), options)}


def parse_option(text: str) -> tuple[str, str]:
    """Split `name=value`, as typed after --option."""
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise RefusalError(
            "An option is written name=value.",
            received=repr(text),
            advice="Example: -o servers=2",
        )
    return name.strip(), value.strip()
