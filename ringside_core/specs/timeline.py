"""What a traced run leaves: which operation of which process ran when."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import PositiveFloat

from ringside_core.specs.noun import Document, Noun

TRACED = "traced"  # a run whose folder holds this file is traced
RESULT = "timeline.json"
STEPS = 8  # that are traced
HOROVOD_TIMELINE, ON_DEMAND = "HOROVOD_TIMELINE", "DYNAMIC"  # Horovod's variable, and its value
# `reading`: what tf.data does in the background. `own`: what a stack itself says.
Kind = Literal["input", "reading", "forward", "backward", "collective", "optimizer", "other", "own"]
Part = Kind | Literal["waiting"]  # for collectives: one is under way, and nothing else runs
COMPUTES: tuple[Kind, ...] = ("input", "forward", "backward", "optimizer", "other")


class Slice(NamedTuple):
    """One operation.

    Attributes:
        kind: the part of a step that it belongs to.
        name: as TensorFlow, or the stack itself, calls it.
        track: operations of one kind on one track do not overlap, those of `own` are nested.
        begin_ns: since 1970.
        ns: that it took.
        bytes: that a collective adds up, of this process; None: not known.
    """

    kind: Kind
    name: str
    track: int
    begin_ns: int
    ns: int
    bytes: int | None = None

    @property
    def span(self) -> tuple[int, int]:
        """Begin and end, ns since 1970."""
        return self.begin_ns, self.begin_ns + self.ns


class Lane(Document):
    """One process of a traced run.

    Attributes:
        task: its name, such as `rank-0`.
        steps: begin and end of each traced step (of several updates where an execution has
            several), ns since 1970.
        slices: operations that begin in these steps.
        times_as_long: a traced step ÷ one before, as medians; what tracing costs.
    """

    task: str
    steps: tuple[tuple[int, int], ...]
    slices: tuple[Slice, ...]
    times_as_long: PositiveFloat

    def of_step(self, number: int) -> Iterator[Slice]:
        """Operations that begin in a step."""
        begin, end = self.steps[number]
        return (one for one in self.slices if begin <= one.begin_ns < end)

    def spans(self, number: int, part: Part) -> list[tuple[int, int]]:
        """When at least one operation of a part ran in a step, or it only waited."""
        if part == "waiting":
            busy = merged(one.span for one in self.of_step(number) if one.kind in COMPUTES)
            return without(self.spans(number, "collective"), busy)
        return merged(one.span for one in self.of_step(number) if one.kind == part)


class Stack(Noun):
    """One run of an arm.

    Attributes:
        label: of the arm.
        lanes: of its processes.
        says: Horovod's own timeline was written, by a thread that takes a processor: no figure.
    """

    label: str
    lanes: tuple[Lane, ...]
    says: bool = False

    @property
    def begin_ns(self) -> int:
        """Of the first traced step."""
        return min(lane.steps[0][0] for lane in self.lanes)

    @property
    def middle(self) -> int:
        """The number of the step of median length: neither the luckiest nor a disturbed one."""
        first = self.lanes[0].steps
        order = sorted(range(len(first)), key=lambda k: first[k][1] - first[k][0])
        return order[len(order) // 2]


class Timeline(Document):
    """Traced runs of several arms."""

    stacks: tuple[Stack, ...]

    @property
    def undisturbed(self) -> list[Stack]:
        """Those from which figures and the picture are made."""
        return [stack for stack in self.stacks if not stack.says]


def lane_file(run_dir: Path, task: str) -> Path:
    """Where a process of a traced run writes its lane."""
    return run_dir / "lanes" / f"{task}.json"


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of spans, in order."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def without(
    spans: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """What of spans no other one covers; both are unions."""
    found = []
    for begin, end in spans:
        for first, last in other:
            if first >= end or last <= begin:
                continue
            if first > begin:
                found.append((begin, first))
            begin = max(begin, last)
        if begin < end:
            found.append((begin, end))
    return found
