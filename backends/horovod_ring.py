"""Horovod: one process for each replica, ring all-reduce, DistributedOptimizer."""

import functools
import importlib.util
import json
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from backends.base import Reduction, TimelineEntry
from backends.devices import use_local_gpu
from backends.horovod_batch_norm import synchronise
from backends.horovod_sums import sum_over_ranks, unmerged
from backends.ranks import Ranks
from ringside_core.keras import KERAS, VERSION, legacy_named_keras, slots_of, tf
from ringside_core.specs import BackendOptions, RefusalError
from ringside_core.specs.options import HorovodOptions
from ringside_core.specs.surroundings import MEETING
from ringside_core.specs.timeline import HOROVOD_TIMELINE, ON_DEMAND


class HorovodRing(Ranks):
    """Horovod under horovodrun, mpirun or srun; alone it is a job of size 1."""

    _hvd: Any = None
    _meeting: Any = None
    _timeline: Path | None = None

    @classmethod
    def obstacle(cls, options: BackendOptions) -> str | None:
        """Horovod does not load, or was built without the controller that the options name."""
        assert isinstance(options, HorovodOptions)
        try:
            hvd = import_horovod()
        except RefusalError as error:
            return str(error)
        built = {"gloo": hvd.gloo_built, "mpi": hvd.mpi_built}
        controller = options.controller or "gloo"
        return None if built[controller]() else f"Horovod was built without {controller}"

    @classmethod
    def xla_obstacle(cls, num_replicas: int) -> str | None:
        """The set-up leaves Horovod's operations for XLA out (horovod#4314)."""
        return "Horovod was compiled without its operations for XLA (docs/stack.md)"

    @property
    def _options(self) -> HorovodOptions:
        assert isinstance(self.spec.options, HorovodOptions)
        return self.spec.options

    def _start(self) -> None:
        self._set_environment()
        hvd = import_horovod()
        hvd.init()
        self._hvd = hvd
        use_local_gpu(hvd.local_rank(), hvd.local_size())

    def _set_environment(self) -> None:
        """Horovod reads options from the environment when it starts; None changes nothing there."""
        options, launched_by = self._options, self.surroundings.kind
        env = os.environ
        if self.surroundings.step is not None:
            from backends.horovod_meeting import meet  # it needs Horovod

            self._meeting = meet(self.surroundings.step, env)
        elif MEETING in env:
            from backends.horovod_meeting import meet_here

            self._meeting = meet_here(env)
        if launched_by == "mpirun":
            chosen = env.setdefault("HOROVOD_CONTROLLER", "mpi")
            env.setdefault("HOROVOD_CPU_OPERATIONS", "mpi")
        else:
            # A process that runs alone has no mpirun, and MPI would look for one.
            chosen = env.setdefault("HOROVOD_CONTROLLER", "gloo")
            env.setdefault("HOROVOD_CPU_OPERATIONS", "gloo")
        if options.controller is not None and options.controller != chosen:
            raise RefusalError(
                "Horovod's controller is chosen by the launcher.",
                received=f"controller={options.controller} under {launched_by} ({chosen})",
                advice="mpi: mpirun or horovodrun --mpi. gloo: horovodrun --gloo or srun.",
            )
        if options.fusion_threshold_mb is not None:
            env["HOROVOD_FUSION_THRESHOLD"] = str(options.fusion_threshold_mb * 1024 * 1024)
        if options.cycle_time_ms is not None:
            env["HOROVOD_CYCLE_TIME"] = str(options.cycle_time_ms)
        if options.hierarchical_allreduce is not None:
            env["HOROVOD_HIERARCHICAL_ALLREDUCE"] = str(int(options.hierarchical_allreduce))
        env.update(options.open_mpi_environment)

    def _stop(self) -> None:
        if self._hvd is not None:
            self._hvd.shutdown()
            self._hvd = None
        if self._meeting is not None:
            self._meeting.shutdown()
            self._meeting.server_close()
            self._meeting = None

    def sum_gradients(
        self, gradients: list[Any], variables: list[Any], upstream: Callable[[Any], Any] | None
    ) -> list[Any]:
        """By the function with which Horovod's DistributedOptimizer or its tape reduces.

        A DistributedOptimizer is another object than the author's optimizer, and reduces in
        `minimize` only; so its function is called where the author's optimizer adds gradients.
        Its optimizer does not work on Keras 3, where its tape's function is taken.
        """
        reducer = self._tape if VERSION == 3 or upstream is None else self._optimizer
        raw = [KERAS.raw(v) for v in variables]
        return list(reducer._allreduce_grads(unmerged(gradients), raw))

    @functools.cached_property
    def _optimizer(self) -> Any:
        hvd, options = self._hvd, self._options
        with tf.init_scope():  # it is asked for while a step is traced
            return hvd.DistributedOptimizer(
                tf.keras.optimizers.SGD(),
                compression=getattr(hvd.Compression, options.compression),
                groups=options.num_groups,
                op=hvd.Sum,
            )

    @functools.cached_property
    def _tape(self) -> Any:
        import horovod.tensorflow as hvd

        return hvd.DistributedGradientTape(
            tf.GradientTape(),
            compression=getattr(hvd.Compression, self._options.compression),
            groups=self._options.num_groups,
            op=hvd.Sum,
        )

    def _sum_tensors(self, tensors: list[Any]) -> list[Any]:
        return sum_over_ranks(tensors)

    def prepare_model(self, model: Any, *, at_tape: bool = False) -> None:
        """Layers with `synchronized=True` get the statistics of all ranks."""
        if self.size > 1:
            synchronise(model)

    def begin_training(self, model: Any) -> None:
        """All ranks begin with the weights and the optimizer state of rank 0.

        Horovod's own BroadcastGlobalVariablesCallback waits for the end of the first step. That is
        in the epoch that is timed, and what the other ranks' moving statistics saw by then would be
        lost.
        """
        import horovod.tensorflow as hvd

        variables = [*KERAS.weights_of(model), *slots_of(model)]
        hvd.broadcast_variables(variables, root_rank=0)

    def start_timeline(self, file: Path) -> None:
        """Horovod's own timeline; its processes need HOROVOD_TIMELINE=DYNAMIC."""
        if os.environ.get(HOROVOD_TIMELINE) == ON_DEMAND:
            self._timeline = file
            self._hvd.start_timeline(str(file))

    def end_timeline(self) -> list[TimelineEntry]:
        """Of rank 0, which alone writes it."""
        if self._timeline is None:
            return []
        self._hvd.stop_timeline()
        text = self._timeline.read_text() if self._timeline.exists() else ""
        return timeline_entries(text) if text.strip() else []  # nothing was reduced

    def _all_reduce(self, array: NDArray[Any], reduction: Reduction) -> NDArray[Any]:
        import horovod.tensorflow as hvd

        operation = {"sum": hvd.Sum, "max": hvd.Max}[reduction]
        # For some types, such as 64-bit sums, Horovod needs at least one dimension.
        flat = tf.constant(array.reshape(-1))
        return hvd.allreduce(flat, op=operation).numpy().reshape(array.shape)


def timeline_entries(text: str) -> list[TimelineEntry]:
    """What Horovod's timeline says of each tensor: (negotiation, or what is done) by name.

    Args:
        text: of the file; Chrome's trace format, times in µs.
    """
    events = json.loads(text)
    start_us = next(e["args"][_EPOCH] for e in events if _EPOCH in e.get("args", ()))
    names, begun, found = {}, defaultdict(list), []
    for event in events:
        pid = event.get("pid")
        if event["ph"] == "M" and "name" in event["args"]:
            names[pid] = event["args"]["name"]
        elif event["ph"] == "B":
            begun[pid].append(event)
        elif event["ph"] == "E" and begun[pid]:
            begin = begun[pid].pop()
            begin_ns, took_us = 1000 * (start_us + begin["ts"]), event["ts"] - begin["ts"]
            name = f"{begin['name']} {names[pid]}"
            found.append(TimelineEntry(name, pid, begin_ns, 1000 * took_us))
    return found


_EPOCH = "start_time_since_epoch_in_micros"


def import_horovod() -> Any:
    """horovod.tensorflow.keras, on legacy Keras; its optimizer does not work on Keras 3.

    Raises:
        RefusalError: not installed, built without TensorFlow, or against another one.
    """
    found = importlib.util.find_spec("horovod")
    if found is None or found.origin is None:
        raise RefusalError(
            "The backend horovod needs Horovod.", received="none installed", advice=_REBUILD
        )
    # Checked before the library is loaded: with another TensorFlow it may end the process with an
    # undefined symbol.
    metadata = Path(found.origin).with_name("metadata.json")
    built_against = json.loads(metadata.read_text()).get("tensorflow")
    if built_against != tf.__version__:
        raise RefusalError(
            "Horovod must be built against the installed TensorFlow.",
            received=f"built against {built_against}, installed {tf.__version__}",
            advice=_REBUILD,
        )
    try:
        if VERSION == 3:
            import horovod.tensorflow as hvd
        else:
            with legacy_named_keras():
                import horovod.tensorflow.keras as hvd
    except ImportError as error:
        raise RefusalError(
            "Horovod must load with the installed TensorFlow.", received=error, advice=_REBUILD
        ) from None
    return hvd


_REBUILD = "Run `make setup`: it compiles Horovod against the installed TensorFlow."
