"""What there is to turn for each backend, as data: upstream's names, values worth a trial."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ringside_core.specs import Arm, HorovodOptions, backend_options

Value = bool | int | float | str
MIB = 2**20


@dataclass(frozen=True)
class Knob:
    """One thing to turn.

    Attributes:
        name: an option of the backend, or a field of Settings.
        values: worth a trial beside what the arm has.
        needs: without which it has no effect: `gpus`, several `replicas`, several `hosts`,
            Horovod's controller `mpi`.
    """

    name: str
    values: tuple[Value, ...]
    needs: tuple[Literal["gpus", "replicas", "hosts", "mpi"], ...] = ()


# Every arm has these, also those without distribution: the same number of trials for each.
# Not `prefetch`: its buffer fills while an epoch is validated, so more of it would look faster in
# short epochs of a workload that waits for its input.
COMMON = (
    Knob("steps_per_execution", (5, 20)),
    Knob("jit_compile", (True,)),
    Knob("inter_op_threads", (1, 4)),
)

# Horovod: docs/tensor-fusion.rst and autotune.rst of 0.28 name the ranges. tf.distribute: the
# arguments of the strategies. The controller of Horovod is not here: it is an arm of its own.
KNOBS: Mapping[str, tuple[Knob, ...]] = {
    "mirrored": (
        Knob(
            "cross_device_ops",
            ("ReductionToOneDevice", "HierarchicalCopyAllReduce"),
            ("replicas",),
        ),
        Knob("cross_device_ops", ("NcclAllReduce",), ("replicas", "gpus")),
        Knob("num_packs", (0, 4), ("replicas", "gpus")),
    ),
    "multi_worker_mirrored": (
        Knob("implementation", ("RING",), ("replicas",)),
        Knob("implementation", ("NCCL",), ("replicas", "gpus")),
        Knob("bytes_per_pack", (MIB, 16 * MIB), ("replicas",)),
    ),
    "parameter_server": (Knob("servers", (1, 2)),),
    "horovod": (
        Knob("fusion_threshold_mb", (0, 16, 64), ("replicas",)),
        Knob("cycle_time_ms", (0.1, 0.5, 5.0), ("replicas",)),
        Knob("num_groups", (1, 4), ("replicas",)),
        Knob("compression", ("fp16",), ("replicas",)),
        Knob("hierarchical_allreduce", (True,), ("replicas", "gpus")),
        Knob("btl_tcp_flags", (9,), ("replicas", "hosts", "mpi")),
        # A larger message that is not expected yet costs more to copy than to announce.
        Knob("btl_tcp_eager_limit", (4 * MIB,), ("replicas", "hosts", "mpi")),
        Knob("coll_tuned_allreduce_algorithm", ("ring",), ("replicas", "hosts", "mpi")),
    ),
}


def candidates(arm: Arm, *, gpus: bool, hosts: bool = False) -> list[tuple[str, Value]]:
    """Every (knob, value) that may change how fast the arm is, without what it has already.

    Args:
        arm: to be tuned.
        gpus: there are some.
        hosts: its replicas are on several.
    """
    mpi = isinstance(arm.options, HorovodOptions) and arm.options.controller == "mpi"
    there = {"gpus": gpus, "replicas": arm.replicas > 1, "hosts": hosts, "mpi": mpi}
    return [
        (knob.name, value)
        for knob in (*KNOBS.get(arm.backend, ()), *COMMON)
        if all(there[need] for need in knob.needs)
        for value in knob.values
        if with_changes(arm, {knob.name: value}) != arm
    ]


def with_changes(arm: Arm, changes: Mapping[str, Value]) -> Arm:
    """The arm with some of its options and settings changed; its label stays."""
    known = type(arm.options).model_fields
    options = {name: value for name, value in changes.items() if name in known}
    settings = {name: value for name, value in changes.items() if name not in known}
    return arm.replace(
        options=backend_options(arm.backend, {**dict(arm.options), **options}),
        settings=arm.settings.replace(**settings),
    )


def as_text(changes: Mapping[str, Value]) -> str:
    """The changes as they are typed after a backend's name."""
    return ":".join(f"{name}={value}" for name, value in changes.items())
