"""The backend of one process of a run, started; a server serves at once."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backends import make_backend
from backends.base import Backend
from backends.devices import inter_op_threads
from ringside_core.die_with_parent import dying_with_parent
from ringside_core.keras import KERAS, tf
from ringside_core.specs import (
    REFERENCE,
    RecordInProgress,
    RunSpec,
    Surroundings,
    Topology,
    backend_options,
)


@contextmanager
def started(
    record: RecordInProgress,
    surroundings: Surroundings,
    on_phase: Callable[[str], None],
    *,
    verifies: bool = False,
) -> Iterator[Backend | None]:
    """Threads and precision of the spec, and its backend; stopped at the end.

    Args:
        record: of this process; `role` and `is_chief` are written into it.
        surroundings: where this process stands in its run.
        on_phase: called with `serving` by a server, which serves until its coordinator is gone.
        verifies: whether the run is verified, in all its processes.

    Yields:
        The backend; None in a server, once it has served.
    """
    spec = record.spec
    # TensorFlow's own choice is left alone: a script may have used TensorFlow by now.
    if intra := spec.resources.intra_op_threads:
        tf.config.threading.set_intra_op_parallelism_threads(intra)
    if inter := inter_op_threads(spec):
        tf.config.threading.set_inter_op_parallelism_threads(inter)
    KERAS.set_floatx(spec.precision, spec.policy)
    if verifies:
        # A GPU multiplies float32 with the 10 bits of TensorFloat-32, and chooses its algorithms
        # by timing them. So the serial run parted from itself by 7e-5 on an H200, and nothing
        # could be certified there.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        # What a program says of it counts when it is timed.
        tf.config.experimental.enable_tensor_float_32_execution = lambda enabled: None
    with make_backend(spec, surroundings) as backend, _slowed(spec, surroundings, verifies):
        record.role, record.is_chief = backend.role, backend.is_chief
        if backend.role == "server":
            record.startup_cpu_s = time.process_time()
            on_phase("serving")
            backend.serve()
            yield None
        else:
            yield backend


@contextmanager
def _slowed(spec: RunSpec, surroundings: Surroundings, verifies: bool) -> Iterator[None]:
    """Within this block the last worker has a part of its speed."""
    task, last = surroundings.task, spec.topology.num_processes - 1
    trains = task is None or not task.cluster.ps or task.type == "worker"
    if not (spec.slow_worker and trains and 0 < last == surroundings.rank) or verifies:
        yield
        return
    words = [*dying_with_parent("ringside_core.slow"), str(os.getpid()), str(spec.slow_worker)]
    slow = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    try:
        yield
        if slow.poll() is not None:
            raise RuntimeError("what slows this worker has ended, so it had all of its speed")
    finally:
        slow.terminate()
        slow.wait()


def trained_on(spec: RunSpec, backend: Backend) -> Backend:
    """The backend to train on: the started one, or the serial one if the ablation says `unused`.

    The started one then keeps its threads, connections and devices, but does nothing.
    """
    if spec.ablation != "unused":
        return backend
    plain = spec.replace(
        backend=REFERENCE,
        options=backend_options(REFERENCE, {}),
        topology=Topology(),
        ablation="none",
    )
    return make_backend(plain, Surroundings())  # nothing of it needs to be started
