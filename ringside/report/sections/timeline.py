"""What each process does within a step, where arms were traced."""

from collections.abc import Iterator, Sequence

from ringside.report.blocks import Cell, Picture, Section, Table, Text, heads
from ringside.report.words import NOTHING
from ringside_core.specs.timeline import Lane, Part, Timeline
from ringside_core.text import byte_size, percent, plural

PARTS: tuple[Part, ...] = (
    *("input", "forward", "backward", "collective", "optimizer", "other", "waiting"),
)
NOTE = (
    "Each row is one process; times are means over its traced steps, each the time in which at "
    "least one operation of the part ran, so that parts that overlap add up to more than the step. "
    "Other: what is in no scope of a layer, a loss or an optimizer, such as cutting rows, packing "
    "gradients, additions within one process, metrics. Waiting: a collective was under way and no "
    "other operation of the step ran. A process with several replicas has a collective for each; a "
    "step of an arm with steps_per_execution is so many updates. TensorFlow's profiler leaves out "
    "what takes less than some 3 µs, once it has run a hundred times. A traced step is longer than "
    "others, and no trace enters a figure of speed."
)


def timeline_section(timeline: Timeline | None) -> Iterator[Section]:
    """The picture of a step of each arm, and its parts; nothing where there is no trace."""
    if timeline is None:
        return
    waits = []
    for stack in timeline.undisturbed:
        if any(one.kind == "collective" for lane in stack.lanes for one in lane.slices):
            parts = [
                _ns(lane.spans(k, "waiting")) / _length(lane, k)
                for lane in stack.lanes
                for k in range(len(lane.steps))
            ]
            mean = percent(sum(parts) / len(parts))
            span = f"{percent(min(parts))} to {percent(max(parts))}"
            waits.append(f"{stack.label} waits for collectives {mean} of a step ({span})")
    blocks = (Picture("timeline"), steps_table(timeline), Text(NOTE))
    none = "No arm has a collective: what is added within one process is in Other"
    answer = f"{'; '.join(waits) or none}."
    yield Section("timeline", "What happens within a step?", "Within a step", answer, blocks)


def steps_table(timeline: Timeline) -> Table:
    """Of a step, as means: ms of each part in each process, and what collectives send."""
    rows = []
    for stack in timeline.undisturbed:
        for lane in stack.lanes:
            steps = range(len(lane.steps))
            last = [one for one in lane.of_step(steps[-1]) if one.kind == "collective"]
            sizes = [one.bytes for one in last]
            known = [size for size in sizes if size is not None]
            sent = f", {byte_size(sum(known))}" if known and None not in sizes else ""
            cells = []
            for part in PARTS:
                note = f"{plural(len(last), 'operation')}{sent}" if last else ""
                took = _ms([_ns(lane.spans(k, part)) for k in steps])
                cells.append(Cell(took, note if part == "collective" else ""))
            length, untraced = [_length(lane, k) for k in steps], f"{lane.times_as_long:.2f}"
            head = Cell(f"{stack.label}, {lane.task}"), Cell(_ms(length), f"{untraced}× untraced")
            rows.append((*head, *cells))
    columns = heads(
        "<Process | Step (ms) | Input (ms) | Forward (ms) | Backward (ms) | Collectives (ms) | "
        "Optimizer (ms) | Other (ms) | Waiting (ms)"
    )
    return Table(columns, tuple(rows), label="Parts of a traced step")


def _length(lane: Lane, number: int) -> int:
    begin, end = lane.steps[number]
    return end - begin


def _ns(spans: list[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in spans)


def _ms(ns: Sequence[int]) -> str:
    return f"{sum(ns) / len(ns) / 1e6:.3g}" if any(ns) else NOTHING
