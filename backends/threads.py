"""TensorFlow's thread pools of one process, as its spec says."""

import os

from ringside_core.specs import RunSpec

# With one thread a worker that waits for a variable of its server has none left to answer its
# coordinator: on a host with one core, where that is TensorFlow's choice, both wait for ever.
# TensorFlow's own tutorial on parameter servers raises it for the same reason.
LEAST_OF_COORDINATED = 2


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
