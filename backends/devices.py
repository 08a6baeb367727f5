"""Devices and threads of one process: GPUs if there are any, else logical CPU devices."""

import os
from typing import Any

from ringside_core.keras import tf
from ringside_core.specs import RefusalError, RunSpec

# A worker with one thread that waits for a variable of its server cannot answer its coordinator.
# On a host with one core TensorFlow chooses one thread, and then both wait for ever. TensorFlow's
# tutorial on parameter servers raises the number for the same reason.
LEAST_OF_COORDINATED = 2


def gpus_for(replicas: int) -> list[Any]:
    """The GPUs of this host, of which each of its replicas gets one; empty: it has none.

    Raises:
        RefusalError: fewer GPUs than replicas.
    """
    gpus: list[Any] = tf.config.list_physical_devices("GPU")
    if gpus and len(gpus) < replicas:
        raise RefusalError(
            "On a host with GPUs, each replica must have one.",
            received=f"GPUs: {len(gpus)}, replicas: {replicas}",
            advice=f"Use --replicas {len(gpus)}, or set CUDA_VISIBLE_DEVICES= (empty) for CPUs.",
        )
    return gpus


def replica_devices(count: int) -> list[str]:
    """Names of `count` devices for the replicas of this process.

    If there are GPUs, each replica gets one. If not, the CPU is divided into logical devices. They
    share its cores and TensorFlow's thread pool.

    Raises:
        RefusalError: fewer GPUs than replicas.
    """
    if gpus := gpus_for(count):
        tf.config.set_visible_devices(gpus[:count], "GPU")
        return [f"GPU:{index}" for index in range(count)]
    cpu = tf.config.list_physical_devices("CPU")[0]  # TensorFlow must not have used it before
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    )
    return [f"CPU:{index}" for index in range(count)]


def use_local_gpu(local_rank: int, local_size: int) -> bool:
    """Let this process see only the GPU of its local rank, so that no two ranks share a GPU.

    Returns:
        Whether there is one; if not, CPUs compute.

    Raises:
        RefusalError: fewer GPUs than processes on this host.
    """
    gpus = gpus_for(local_size)
    if gpus:
        tf.config.experimental.set_memory_growth(gpus[local_rank], True)
        tf.config.set_visible_devices(gpus[local_rank], "GPU")
    return bool(gpus)


def inter_op_threads(spec: RunSpec) -> int:
    """Operations at once; 0: TensorFlow's choice, one for each processor."""
    asked = spec.resources.inter_op_threads
    if asked is not None:
        return asked
    if spec.capabilities.process_model == "coordinator":
        return max(LEAST_OF_COORDINATED, len(os.sched_getaffinity(0)))
    return 0
