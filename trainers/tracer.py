"""Traces a few steps of a training by TensorFlow's profiler, and sorts what ran into its parts."""

import re
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ringside_core.keras import optimizers_of, tf
from ringside_core.keras.tensorflow import Event, events_of, note_bytes
from ringside_core.specs import RefusalError, write_whole
from ringside_core.specs.timeline import COMPUTES, STEPS, Kind, Lane, Slice, lane_file
from trainers.driver import Listener
from trainers.turns import end_training

WARM = 24  # steps before the first traced one
COLLECTIVE = re.compile(r"Horovod\w+|Collective\w+|Nccl\w+")
EAGER = re.compile(r"EagerLocalExecute: (\w+)")
# What calls a function, a branch or the body of a loop puts its own name before those in it.
_CALLED = re.compile(r".*/(?:then|else|body|cond)/_\d+/")
# Scopes of no layer: of calls, replicas, Ringside's, Keras', TensorFlow's own changes of a graph.
_NO_LAYER = re.compile(
    r"(?:(?:Stateful)?PartitionedCall|while|cond|replica|div_no_nan|update|ArithmeticOptimizer"
    r"|ConstantFolding)(?:_\d+)*"
)
_READS = ("IteratorGetNext", "MultiDeviceIteratorGetNext", "OptionalGetValue")
_APPLIES = ("ResourceApply", "ResourceSparseApply")


class Tracer(Listener):
    """Traces `STEPS` steps, writes a lane, and ends the training.

    All processes trace the same steps, and within one epoch where it is long enough.
    """

    def __init__(self, run_dir: Path, task: str, validates: list[int] | None) -> None:
        """Before the training's functions are made: what a collective sends is known from them.

        Args:
            run_dir: folder of the run.
            task: name of this process.
            validates: see `end_training`.
        """
        self._run_dir, self._task, self._validates = run_dir, task, validates
        self._graphs = note_bytes(COLLECTIVE)
        self._done = self._of_epoch = self._began = 0
        self._steps: list[tuple[int, int]] = []  # begin and end, ns since 1970
        self._first: int | None = None  # place in them of the step in which the profiler started
        self._over = False

    def on_start(self) -> None:
        """Refuse a step of one operation.

        Raises:
            RefusalError: XLA compiles it.
        """
        if getattr(self.training.model, "jit_compile", False):
            raise RefusalError(
                "A traced step must be made of operations that TensorFlow's profiler sees.",
                received="jit_compile: XLA makes one of it",
                advice="Leave jit_compile out.",
            )

    def on_epoch_begin(self, epoch: int) -> None:
        """Count its updates from here."""
        self._of_epoch = self._done

    def on_step(self, done: int) -> None:
        """Begin, or end, or go on."""
        each, self._done = done - self._done, done
        now = time.time_ns()
        # The end of an epoch, and the barrier before the next one, belong to no step.
        since_s = time.perf_counter() - self.clock.began
        self._steps.append((max(self._began, now - int(1e9 * since_s)), now))
        self._began = now
        if self._over:
            return
        if self._first is None:
            epoch = self.training.steps_per_epoch
            # Two more than are kept: the profiler's own start is in its first step, and what ends
            # while it stops, in the last one, it does not see.
            fits = epoch is None or epoch < (STEPS + 3) * each
            if epoch is not None and not fits:
                fits = done - self._of_epoch + (STEPS + 2) * each <= epoch
            if len(self._steps) >= WARM and fits:
                self._folder = tempfile.TemporaryDirectory()
                self.training.backend.start_timeline(Path(self._folder.name) / "own.json")
                tf.profiler.experimental.start(self._folder.name)
                self._first = len(self._steps)
        elif len(self._steps) == self._first + STEPS + 2:
            self._end()

    def on_trained(self) -> None:
        """Say so if the training was over before the trace.

        Raises:
            RefusalError: then.
        """
        if self._over:
            return
        if self._first is not None:
            tf.profiler.experimental.stop()
            self.training.backend.end_timeline()
            self._folder.cleanup()
        raise RefusalError(
            f"A traced training must make {WARM + STEPS + 2} steps, the last ten in one epoch.",
            received=f"{len(self._steps)}, where its data ended",
            advice="Give data that can begin again, or more of them.",
        )

    def _end(self) -> None:
        self._over = True
        tf.profiler.experimental.stop()
        own = self.training.backend.end_timeline()
        assert self._first is not None
        steps = tuple(self._steps[self._first + 1 : -1])
        with self._folder as folder:
            events = list(events_of(Path(folder)))
        model = self.training.model
        names = _names_of(optimizers_of(model)), {model.name, *(one.name for one in model.layers)}
        slices = [*_operations(events, *names, self._graphs), *(Slice("own", *e) for e in own)]
        slices = [one for one in slices if any(a <= one.begin_ns < b for a, b in steps)]
        if not any(one.kind in COMPUTES and one.kind != "input" for one in slices):
            raise RefusalError(
                "A traced step must be made of operations that TensorFlow's profiler sees.",
                received="none: it may run eagerly",
                advice="Leave run_eagerly out.",
            )
        lane = Lane(
            task=self._task,
            steps=steps,
            slices=tuple(slices),
            times_as_long=_seconds(steps) / _seconds(self._steps[: self._first][-STEPS:]),
        )
        write_whole(lane_file(self._run_dir, self._task), lane.to_json())
        end_training(model, self._validates)


def _seconds(steps: Sequence[tuple[int, int]]) -> float:
    """Of a step, as the median."""
    return statistics.median(end - begin for begin, end in steps) / 1e9


def _names_of(optimizers: Iterable[Any]) -> set[str]:
    """The scopes in which they apply gradients; a scaled one has another within."""
    every = [part for one in optimizers for part in (one, getattr(one, "inner_optimizer", one))]
    # Legacy optimizers have the second only.
    return {str(getattr(one, "name", None) or getattr(one, "_name", "")) for one in every}


def _operations(
    events: Iterable[Event],
    optimizers: set[str],
    layers: set[str],
    graphs: Sequence[dict[str, int | None]],
) -> Iterator[Slice]:
    """The operations of TensorFlow among what its profiler has seen."""
    found = list(_named(events))
    collectives = {one.name for one in found if COLLECTIVE.fullmatch(one.operation)}
    # What stands beside a collective helps it, but where that is within a layer.
    scopes = {parts[0] for parts in map(_parts, collectives) if len(parts) > 1} - layers
    sizes = _sizes(collectives, graphs)
    by_kind: dict[tuple[Kind, str], list[_Operation]] = {}
    for one in found:
        kind = _kind(one, optimizers, scopes)
        if one.is_whole != (kind == "collective") and kind != "input":
            continue  # a function that is called; or what helps a collective
        by_kind.setdefault((kind, one.thread), []).append(one)
    tracks: dict[Kind, int] = {}
    for (kind, _), seen in by_kind.items():
        first = tracks.get(kind, 0)
        ends: list[int] = []
        for one in sorted(seen, key=lambda one: one.begin_ns):
            free = next((k for k, end in enumerate(ends) if end <= one.begin_ns), len(ends))
            ends[free : free + 1] = [one.begin_ns + one.ns]
            tracks[kind] = max(tracks.get(kind, 0), first + free + 1)
            yield Slice(kind, one.name, first + free, one.begin_ns, one.ns, sizes.get(one.name))


class _Operation(NamedTuple):
    name: str  # in its graph
    operation: str  # its type
    thread: str
    begin_ns: int
    ns: int
    is_whole: bool  # from its start until it is done, though its kernel returned at once


def _named(events: Iterable[Event]) -> Iterator[_Operation]:
    begun: dict[Any, Event] = {}
    for event in sorted(events, key=lambda event: event.begin_ns):
        if event.name == "ExecutorState::ProcessAsync::Start":
            begun[event.stats.get("_p")] = event
        elif event.name == "ExecutorState::ProcessAsync::Done":
            if (start := begun.pop(event.stats.get("_c"), None)) is not None:
                name, operation = str(start.stats["name"]), str(start.stats["kernel_type"])
                took = event.begin_ns - start.begin_ns
                yield _Operation(name, operation, "", start.begin_ns, took, True)
        elif found := re.fullmatch(r"([^:\s]+):(\w+)", event.name):
            name, operation = found.groups()
            yield _Operation(name, operation, event.thread, event.begin_ns, event.ns, False)
        elif (found := EAGER.fullmatch(event.name)) and found[1].startswith(_READS):
            yield _Operation(found[1], found[1], "", event.begin_ns, event.ns, False)


def _kind(one: _Operation, optimizers: set[str], scopes: set[str]) -> Kind:
    """The part of a step to which an operation belongs, by its name."""
    if COLLECTIVE.fullmatch(one.operation):
        return "collective"
    if one.operation.startswith(_READS):
        return "input"
    if one.thread.startswith("tf_data"):
        return "reading"
    parts = _parts(one.name)
    known = {name for part in parts for name in (part, re.sub(r"_\d+$", "", part))}
    if one.operation.startswith(_APPLIES) or optimizers & known:
        return "optimizer"
    if any(part.startswith(("gradient_tape", "gradients")) for part in parts):
        return "backward"
    return "other" if len(parts) == 1 or parts[0] in scopes else "forward"


def _parts(name: str) -> list[str]:
    """The name of an operation in its graph, part by part, without scopes of no layer before it."""
    parts = _CALLED.sub("", name, count=1).split("/")
    while len(parts) > 1 and _NO_LAYER.fullmatch(parts[0]):
        del parts[0]
    return parts


def _sizes(names: set[str], graphs: Sequence[dict[str, int | None]]) -> dict[str, int | None]:
    """Bytes of collectives: where graphs have one name, of the one of which most is seen.

    The training step is made before the test step, which may have the same names.
    """
    tails = {
        "/".join(parts[k:]) for n in names for parts in [n.split("/")] for k in range(len(parts))
    }
    seen = {id(graph): len(graph.keys() & tails) for graph in graphs}
    order = sorted(
        reversed(graphs), key=lambda graph: (seen[id(graph)] / len(graph), seen[id(graph)])
    )
    by_tail = {name: size for graph in order for name, size in graph.items()}
    sizes = {}
    for name in names:
        parts = name.split("/")
        longest = ("/".join(parts[k:]) for k in range(len(parts)))
        sizes[name] = next((by_tail[tail] for tail in longest if tail in by_tail), None)
    return sizes
