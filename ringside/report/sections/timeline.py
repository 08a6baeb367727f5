"""What each process does within a step, where arms were traced."""

from collections.abc import Iterator
from pathlib import Path

from ringside.report.blocks import Cell, Picture, Section, Table, Text, heads
from ringside.report.words import NOTHING
from ringside_core.specs.timeline import RESULT, Kind, Lane, Timeline
from ringside_core.text import byte_size, percent

PARTS: tuple[Kind, ...] = ("input", "forward", "backward", "collective", "optimizer", "other")
NOTE = (
    "Each row is one process; a time is when at least one operation of the part ran, so that parts "
    "that overlap add up to more than the step. Other: what has no name of a layer, a loss or an "
    "optimizer, such as cutting rows, packing gradients, metrics. Waiting: a collective was under "
    "way and nothing was computed. A traced step is longer than others, and no trace enters a "
    "figure of speed. Operations on a GPU are not shown."
)


def timeline_of(folder: Path | None) -> Timeline | None:
    """The traces that were made beside a comparison; None: there are none.

    Raises:
        RefusalError: a file that cannot be read.
    """
    if folder is None or not (folder / RESULT).exists():
        return None
    return Timeline.from_json((folder / RESULT).read_text(encoding="utf-8"), origin=RESULT)


def timeline_section(timeline: Timeline | None) -> Iterator[Section]:
    """The picture of a step of each arm, and its parts; nothing where there is no trace."""
    if timeline is None:
        return
    waits = [
        f"{stack.label} waits for collectives {percent(waiting / step)} of a step"
        for stack in timeline.stacks
        if any(one.kind == "collective" for lane in stack.lanes for one in lane.slices)
        for step, waiting in [
            (
                sum(_length(lane, stack.middle) for lane in stack.lanes),
                sum(_ns(lane.waiting(stack.middle)) for lane in stack.lanes),
            )
        ]
    ]
    blocks = (Picture("timeline"), steps_table(timeline), Text(NOTE))
    answer = "; ".join(waits or ["No arm has a collective"]) + "."
    yield Section("timeline", "What happens within a step?", "Within a step", answer, blocks)


def steps_table(timeline: Timeline) -> Table:
    """Of the step of median length: ms of each part in each process, and what collectives send."""
    rows = []
    for stack in timeline.stacks:
        for lane in stack.lanes:
            k = stack.middle
            collectives = [one for one in lane.of_step(k) if one.kind == "collective"]
            sizes = [one.bytes for one in collectives]
            known = [size for size in sizes if size is not None]
            sent = byte_size(sum(known)) if known and None not in sizes else ""
            rows.append(
                (
                    Cell(f"{stack.label}, {lane.task}"),
                    Cell(_ms(_length(lane, k)), f"{lane.times_as_long:.2f}× untraced"),
                    *(
                        Cell(
                            _ms(_ns(lane.spans(k, kind))),
                            ", ".join(filter(None, (str(len(collectives)), sent)))
                            if kind == "collective"
                            else "",
                        )
                        for kind in PARTS
                    ),
                    Cell(_ms(_ns(lane.waiting(k)))),
                )
            )
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


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.3g}" if ns else NOTHING
