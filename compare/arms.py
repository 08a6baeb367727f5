"""From what a person asked for to a list of arms."""

import os

from specs import (
    Arm,
    RefusalError,
    Resources,
    RunSpec,
    Topology,
    backend_options,
    capabilities_of,
)
from specs.options import parse_option

DEFAULT_BACKENDS = (
    "serial,one_device,mirrored,central_storage,multi_worker_mirrored,parameter_server,"
    "horovod,horovod:controller=mpi,tpu"
)
REFERENCE = "serial"


def parse_arms(backends: str, replicas: str) -> tuple[Arm, ...]:
    """Every backend at every number of replicas; the serial reference is always among them.

    Args:
        backends: names with commas between, each with options after colons, such as
            `mirrored,horovod:controller=mpi:compression=fp16`.
        replicas: numbers with commas between.

    Raises:
        RefusalError: an unknown backend or option, a number that is none, the same arm twice.
    """
    sizes = _sizes(replicas)
    arms: list[Arm] = []
    named = [text.strip() for text in backends.split(",") if text.strip()]
    if not named:
        raise RefusalError("--backends must name at least one.", received=repr(backends))
    if REFERENCE not in named:
        named.insert(0, REFERENCE)
    for text in named:
        backend, *pairs = text.split(":")
        capabilities = capabilities_of(backend)
        options = backend_options(backend, dict(map(parse_option, pairs)))
        for size in (1,) if capabilities.always_one_replica else sizes:
            arms.append(
                Arm(
                    label=f"{text} ×{size}",
                    group=text,
                    backend=backend,
                    options=options,
                    replicas=size,
                )
            )
    named_as: dict[tuple[str, str, int], list[str]] = {}
    for arm in arms:  # by what it is: `horovod` and `horovod:compression=none` are the same
        key = (arm.backend, arm.options.model_dump_json(), arm.replicas)
        named_as.setdefault(key, []).append(arm.label)
    twice = [" = ".join(labels) for labels in named_as.values() if len(labels) > 1]
    if twice:
        raise RefusalError("Each arm may be named once.", received=", ".join(twice))
    return tuple(arms)


def _sizes(replicas: str) -> tuple[int, ...]:
    texts = [text.strip() for text in replicas.split(",") if text.strip()]
    if not texts or not all(text.isdigit() and int(text) > 0 for text in texts):
        raise RefusalError(
            "--replicas must be whole numbers of at least 1.",
            received=repr(replicas),
            advice="Example: --replicas 1,2",
        )
    return tuple(sorted({int(text) for text in texts}))


def arm_spec(base: RunSpec, arm: Arm) -> RunSpec:
    """The run of one arm: the base spec on the arm's backend, at its size.

    Threads of `base` are those of one replica, also where a person chose them: a process has those
    of all its replicas, so that every replica has the same number under every backend. Intra-op
    threads that nobody chose follow the cores.
    """
    single = capabilities_of(arm.backend).process_model == "single"
    topology = (
        Topology(replicas_per_process=arm.replicas)
        if single
        else Topology(processes_per_host=arm.replicas)
    )
    of_one, share = base.resources, topology.replicas_per_process
    intra = of_one.intra_op_threads or of_one.cores_per_replica or 1
    inter = of_one.inter_op_threads
    resources = of_one.replace(
        intra_op_threads=intra * share,
        inter_op_threads=None if inter is None else inter * share,
    )
    return base.replace(
        backend=arm.backend, options=arm.options, topology=topology, resources=resources
    )


def shared_out(resources: Resources, arms: tuple[Arm, ...]) -> Resources:
    """Cores for each replica so that the largest arm has them all; the same for every arm.

    A one-replica arm thus has one replica's share of the machine, not all of it: else scaling would
    compare one process on all cores with several on the same ones (STACK.md, Threads).
    """
    cores = len(os.sched_getaffinity(0))
    most = max(arm.replicas for arm in arms)
    return resources.replace(
        cores_per_replica=resources.cores_per_replica or max(1, cores // most),
        inter_op_threads=resources.inter_op_threads or 2,
    )
