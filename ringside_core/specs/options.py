"""The types of options of the backends, under the names that upstream gives them."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from ringside_core.specs.errors import RefusalError
from ringside_core.specs.knob import Search
from ringside_core.specs.noun import Noun

MIB = 2**20


class BackendOptions(Noun):
    """Options of a backend that has none, and the base of all others.

    The properties say what code outside a backend needs to know about any backend's options.
    """

    # Options that are no part of the name of the stack: they choose the stack, they change what is
    # sent and when (`wire_bytes` counts compression), or how long to wait. A collective of one
    # array takes the same time with and without them.
    _NOT_IN_STACK: ClassVar[tuple[str, ...]] = ()

    @property
    def num_servers(self) -> int:
        """Processes that hold variables for the workers."""
        return 0

    @property
    def horovod_controller(self) -> Literal["gloo", "mpi"] | None:
        """What coordinates Horovod's ranks; None: no Horovod, or what the launcher chooses."""
        return None

    @property
    def open_mpi_environment(self) -> dict[str, str]:
        """Variables that Open MPI reads when a process begins."""
        return {}

    @property
    def stack(self) -> str | None:
        """The stack of `ringside allreduce` that reduces the gradients; None: none of them.

        Settings follow the name as they are typed there, in the order of the options:
        `horovod mpi:btl_tcp_flags=9`. With other settings a collective takes another time.
        """
        if self._stack_name is None:
            return None
        settings = [
            f":{name}={getattr(self, name)}"
            for name, field in type(self).model_fields.items()
            if name not in self._NOT_IN_STACK and getattr(self, name) != field.default
        ]
        return self._stack_name + "".join(settings)

    @property
    def _stack_name(self) -> str | None:
        return None


class CrossDeviceOptions(BackendOptions):
    """tf.distribute.MirroredStrategy.

    Attributes:
        cross_device_ops: None lets TensorFlow choose (NCCL on GPUs, ReductionToOneDevice on CPUs).
        num_packs: packs of gradients for the two all-reduce kinds; None keeps upstream's default.
    """

    cross_device_ops: Annotated[
        Literal["NcclAllReduce", "HierarchicalCopyAllReduce", "ReductionToOneDevice"] | None,
        Search(("ReductionToOneDevice", "HierarchicalCopyAllReduce"), ("replicas",)),
        Search(("NcclAllReduce",), ("replicas", "gpus")),
    ] = None
    num_packs: Annotated[NonNegativeInt | None, Search((0, 4), ("replicas", "gpus"))] = None


class CommunicationOptions(BackendOptions):
    """tf.distribute.experimental.CommunicationOptions, for MultiWorkerMirroredStrategy.

    Attributes:
        implementation: the collective: RING, NCCL or AUTO.
        bytes_per_pack: gradients are packed into messages of at most this size; 0: automatic.
        timeout_seconds: a collective that takes longer fails; None: never.
    """

    implementation: Annotated[
        Literal["AUTO", "RING", "NCCL"],
        Search(("RING",), ("replicas",)),
        Search(("NCCL",), ("replicas", "gpus")),
    ] = "AUTO"
    bytes_per_pack: Annotated[NonNegativeInt, Search((MIB, 16 * MIB), ("replicas",))] = 0
    timeout_seconds: NonNegativeFloat | None = None

    _NOT_IN_STACK = ("implementation", "timeout_seconds")

    @property
    def _stack_name(self) -> str:
        # On GPUs AUTO may choose NCCL. The stack is AUTO all the same.
        return f"tf.distribute {self.implementation}"


class ParameterServerOptions(BackendOptions):
    """tf.distribute.ParameterServerStrategy.

    Attributes:
        servers: how many hold the variables.
        schedule: who makes the next update. `in_turn`: each worker those of its rows, so that every
            row is trained once in an epoch. `free`: the first worker that is free, as TensorFlow's
            coordinator does it; a slow worker makes fewer, and a fast one begins its rows again.
    """

    servers: Annotated[PositiveInt, Search((1, 2))] = 1
    schedule: Literal["in_turn", "free"] = "in_turn"

    _NOT_IN_STACK = ("schedule",)

    @property
    def num_servers(self) -> int:
        """Processes that hold variables for the workers."""
        return self.servers

    @property
    def _stack_name(self) -> str:
        return "parameter_server"


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
        num_groups: the number of groups of gradients; each group is reduced as a whole. None: no
            groups, tensor fusion decides.
        hierarchical_allreduce: HOROVOD_HIERARCHICAL_ALLREDUCE, first within each host, then between
            hosts. It has an effect with NCCL only.
        btl_tcp_flags: OMPI_MCA_btl_tcp_flags, for the controller mpi. The sum of 1 (send), 2 (put)
            and 8 (inplace). Open MPI's default contains put: then the receiver asks for each piece
            of a large message. Its questions queue behind the data that it sends itself, so one
            direction of the link waits for the other. With 9 both directions work at once.
        btl_tcp_eager_limit: OMPI_MCA_btl_tcp_eager_limit, in bytes, for the controller mpi. A
            message that is not larger (with its header) is sent at once. A larger one is announced
            first, and the receiver's answer waits behind the data that its host sends to others.
            Each process reserves address space for at least eight messages of this size.
        coll_tuned_allreduce_algorithm: OMPI_MCA_coll_tuned_allreduce_algorithm, for the controller
            mpi, by its names there. None: Open MPI chooses by the number of ranks and bytes. In a
            ring each connection carries data one way only.
    """

    controller: Literal["gloo", "mpi"] | None = None
    # Ranges: docs/tensor-fusion.rst and autotune.rst of Horovod 0.28.
    fusion_threshold_mb: Annotated[NonNegativeInt | None, Search((0, 16, 64), ("replicas",))] = None
    cycle_time_ms: Annotated[float | None, Field(gt=0), Search((0.1, 0.5, 5.0), ("replicas",))] = (
        None
    )
    compression: Annotated[Literal["none", "fp16"], Search(("fp16",), ("replicas",))] = "none"
    num_groups: Annotated[PositiveInt | None, Search((1, 4), ("replicas",))] = None
    hierarchical_allreduce: Annotated[bool | None, Search((True,), ("replicas", "gpus"))] = None
    btl_tcp_flags: Annotated[PositiveInt | None, Search((9,), ("replicas", "hosts", "mpi"))] = None
    # To copy a larger message that no process expects yet costs more than to announce it.
    btl_tcp_eager_limit: Annotated[
        PositiveInt | None, Search((4 * MIB,), ("replicas", "hosts", "mpi"))
    ] = None
    coll_tuned_allreduce_algorithm: Annotated[
        Literal["recursive_doubling", "ring", "rabenseifner"] | None,
        Search(("ring",), ("replicas", "hosts", "mpi")),
    ] = None

    _NOT_IN_STACK = ("controller", "compression", "num_groups")

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
    def horovod_controller(self) -> Literal["gloo", "mpi"] | None:
        """What coordinates the ranks; None: what the launcher chooses."""
        return self.controller

    @property
    def _stack_name(self) -> str:
        return f"horovod {self.controller or 'gloo'}"

    @property
    def open_mpi_environment(self) -> dict[str, str]:
        """Variables that Open MPI reads when a process begins, without options that are None."""
        found = {
            f"OMPI_MCA_{name}": str(value)
            for name in OPEN_MPI
            if (value := getattr(self, name)) is not None
        }
        if self.coll_tuned_allreduce_algorithm is not None:
            found["OMPI_MCA_coll_tuned_use_dynamic_rules"] = "1"  # or Open MPI ignores it
        return found


def parse_option(text: str) -> tuple[str, str]:
    """Split `name=value`, as typed after --option."""
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise RefusalError(
            "An option is written name=value.", received=repr(text), advice="Example: -o servers=2"
        )
    return name.strip(), value.strip()
