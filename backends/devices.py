"""Devices and threads of one process: GPUs if there are any, else logical CPU devices."""

import os

from ringside_core.keras import tf
from ringside_core.specs import RefusalError, RunSpec

# A worker with one thread that waits for a variable of its server cannot answer its coordinator.
# On a host with one core TensorFlow chooses one thread, and then both wait for ever. TensorFlow's
# tutorial on parameter servers raises the number for the same reason.
LEAST_OF_COORDINATED = 2


def replica_devices(count: int) -> list[str]:
    """Names of `count` devices for the replicas of this process.

    If there are GPUs, each replica gets one. If not, the CPU is divided into logical devices. They
    share its cores and TensorFlow's thread pool.

    Raises:
        RefusalError: fewer GPUs than replicas.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        if len(gpus) < count:
            raise RefusalError(
                "There must be a GPU for each replica of a process.",
                received=f"{count} replicas, {len(gpus)} GPUs",
                advice=f"Use --replicas {len(gpus)}, or CUDA_VISIBLE_DEVICES= for CPUs.",
            )
        tf.config.set_visible_devices(gpus[:count], "GPU")
        return [f"GPU:{index}" for index in range(count)]
    split_cpu(count)
    return [f"CPU:{index}" for index in range(count)]


def split_cpu(count: int) -> None:
    """Divide the CPU into `count` logical devices. TensorFlow must not have used it before."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    )


def use_local_gpu(local_rank: int, local_size: int) -> None:
    """Let this process see only the GPU of its local rank, so that no two ranks share a GPU.

    Raises:
        RefusalError: fewer GPUs than processes on this host.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return
    if len(gpus) < local_size:
        raise RefusalError(
            "There must be a GPU for each process of a host.",
            received=f"{local_size} processes, {len(gpus)} GPUs",
            advice="Start fewer processes, or set CUDA_VISIBLE_DEVICES= for CPUs.",
        )
    tf.config.experimental.set_memory_growth(gpus[local_rank], True)
    tf.config.set_visible_devices(gpus[local_rank], "GPU")


def intra_op_threads(spec: RunSpec) -> int:
    """Threads within one operation; 0: TensorFlow's choice."""
    return spec.resources.intra_op_threads or 0


def inter_op_threads(spec: RunSpec) -> int:
    """Operations at once; 0: TensorFlow's choice, one for each processor."""
    asked = spec.resources.inter_op_threads
    if asked is not None:
        return asked
    if spec.capabilities.process_model == "coordinator":
        return max(LEAST_OF_COORDINATED, len(os.sched_getaffinity(0)))
    return 0
