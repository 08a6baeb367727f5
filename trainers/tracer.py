"""Traces a few steps of a training by TensorFlow's profiler, and sorts what ran into its parts."""

import itertools
import re
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ringside_core.keras import optimizers_of, tf
from ringside_core.keras.tensorflow import Event, events_of, note_bytes
from ringside_core.specs import write_whole
from ringside_core.specs.timeline import STEPS, Kind, Lane, Slice, lane_file
from trainers.driver import Listener

WARM = 24  # steps before the first traced one
COLLECTIVE = re.compile(r"Horovod\w+|Collective\w+|Nccl\w+")
EAGER = re.compile(r"EagerLocalExecute: (\w+)")
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
            validates: epochs behind which the training is validated; none is, once it ends.
        """
        self._run_dir, self._task, self._validates = run_dir, task, validates
        self._graphs = note_bytes(COLLECTIVE)
        self._done = self._of_epoch = 0
        self._ends: list[int] = []  # ns since 1970, of each step
        self._first: int | None = None  # place in them of the end of the step before the first

    def on_epoch_begin(self, epoch: int) -> None:
        """Count its updates from here."""
        del epoch
        self._of_epoch = self._done

    def on_step(self, done: int) -> None:
        """Begin, or end, or go on."""
        each, self._done = done - self._done, done
        self._ends.append(time.time_ns())
        if self._first is None:
            epoch = self.training.steps_per_epoch
            # Two more than are kept: the profiler's own start is in its first step, and what ends
            # while it stops, in the last one, it does not see.
            fits = epoch is None or epoch < (STEPS + 3) * each
            if epoch is not None and not fits:
                fits = done - self._of_epoch + (STEPS + 2) * each <= epoch
            if len(self._ends) >= WARM and fits:
                self._folder = tempfile.TemporaryDirectory()
                self.training.backend.start_timeline(Path(self._folder.name) / "own.json")
                tf.profiler.experimental.start(self._folder.name)
                self._first = len(self._ends)
        elif len(self._ends) == self._first + STEPS + 2:
            self._end()

    def _end(self) -> None:
        tf.profiler.experimental.stop()
        own = self.training.backend.end_timeline()
        assert self._first is not None
        ends = self._ends[self._first : -1]
        steps = tuple(itertools.pairwise(ends))
        names = {optimizer.name for optimizer in optimizers_of(self.training.model)}
        with self._folder as folder:
            events = list(events_of(Path(folder)))
        slices = [*_operations(events, names, self._graphs), *(Slice("own", *e) for e in own)]
        lane = Lane(
            task=self._task,
            steps=steps,
            slices=tuple(one for one in slices if ends[0] <= one.begin_ns < ends[-1]),
            times_as_long=_seconds(ends) / _seconds(self._ends[: self._first][-STEPS - 1 :]),
        )
        write_whole(lane_file(self._run_dir, self._task), lane.to_json())
        self.training.model.stop_training = True
        if self._validates is not None:
            self._validates.clear()  # Keras looks into this list


def _seconds(ends: list[int]) -> float:
    """Of a step, as the median."""
    return statistics.median(b - a for a, b in itertools.pairwise(ends)) / 1e9


def _operations(
    events: Iterable[Event], optimizers: set[str], graphs: Sequence[dict[str, int | None]]
) -> Iterator[Slice]:
    """The operations of TensorFlow among what its profiler has seen."""
    found = list(_named(events))
    collectives = {one.name for one in found if COLLECTIVE.fullmatch(one.operation)}
    scopes = {name.partition("/")[0] for name in collectives if "/" in name}
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
    parts = one.name.split("/")
    if one.operation.startswith(_APPLIES) or optimizers.intersection(parts):
        return "optimizer"
    if any(part.startswith(("gradient_tape", "gradients")) for part in parts):
        return "backward"
    return "other" if len(parts) == 1 or parts[0] in scopes else "forward"


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
